# Copyright: mqops maintainers
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Asks a host for what a module finds there, where it is no fault that the host is away.

A task that is delegated to a host which is not reached makes the host unreachable that it was delegated by, for the
rest of the run. So not to be reached is an answer here.
"""

from __future__ import annotations

from ansible.errors import AnsibleActionFail, AnsibleConnectionFailure
from ansible.plugins.action import ActionBase


class ActionModule(ActionBase):
    """See the module's documentation."""

    _VALID_ARGS = frozenset({"module", "arguments"})
    _requires_connection = True

    def run(self, tmp=None, task_vars=None):
        """What the module found, or why the host was not reached."""
        result = super().run(tmp, task_vars)
        if "module" not in self._task.args:
            raise AnsibleActionFail("module is required")
        module, arguments = self._task.args["module"], self._task.args.get("arguments") or {}
        try:
            answer = self._execute_module(module_name=module, module_args=dict(arguments), task_vars=task_vars)
        except AnsibleConnectionFailure as fault:
            result.update(changed=False, reached=False, why=str(fault), answer={})
        else:
            result.update(changed=False, reached=True, why="", answer=answer)
        return result
