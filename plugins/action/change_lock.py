# Copyright: mqops maintainers
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Finds out who this run is, and whether another one that is in the way is gone."""

from __future__ import annotations

import os
import socket
import time

from ansible.plugins.action import ActionBase
from ansible_collections.mqops.cluster.plugins.module_utils import change_lock

TRIES_MAX = 3


class ActionModule(ActionBase):
    """Runs on the control node, and the module on the host."""

    _VALID_ARGS = frozenset({"state", "what", "take_over"})

    def run(self, tmp=None, task_vars=None):
        """See the module's documentation."""
        result = super().run(tmp, task_vars)
        arguments = {**self._task.args, "holder": self._holder()}
        for _attempt in range(TRIES_MAX):
            result.update(self._execute_module("mqops.cluster.change_lock", arguments, task_vars=task_vars))
            other = result.get("in_the_way")
            if not other or not (arguments.get("take_over") or change_lock.is_gone(other, change_lock.space())):
                break
            arguments = {**arguments, "instead_of": other}
        is_held = arguments.get("state") != "free" and result.get("refusal") == "" and not self._task.check_mode
        result["held_as"] = arguments["holder"] if is_held else None
        return result

    def _holder(self):
        """The process of ansible-playbook, of which tasks are children."""
        pid = os.getppid()
        return {
            "user": change_lock.user(os.getuid(), os.environ),
            "machine": socket.gethostname(),
            "space": change_lock.space(),
            "pid": pid,
            "began": change_lock.began(pid),
            "what": self._task.args.get("what", "a playbook"),
            "since": time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime()),
        }
