# Copyright: mqops maintainers
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Compares the clocks of a host and of the control node.

A clock is read on the control node before and after the host is asked for its own: the host read it somewhere in
between. A busy control node makes that interval long, not the offset wrong.
"""

from __future__ import annotations

import time

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase
from ansible_collections.mqops.cluster.plugins.module_utils.clock import Reading, best

ROUNDS_MAX = 10


class ActionModule(ActionBase):
    """Runs on the control node; the host only needs `date`."""

    _VALID_ARGS = frozenset({"rounds"})
    _requires_connection = True

    def run(self, tmp=None, task_vars=None):
        """See the module's documentation."""
        result = super().run(tmp, task_vars)
        rounds = int(self._task.args.get("rounds", 3))
        if not 1 <= rounds <= ROUNDS_MAX:
            raise AnsibleActionFail(f"rounds is {rounds}, it must be 1 to {ROUNDS_MAX}")
        found = best([self._ask() for number in range(rounds)])
        result.update(changed=False, offset_ms=found.offset_ms, uncertainty_ms=found.uncertainty_ms)
        return result

    def _ask(self):
        before_s = time.time()
        answer = self._low_level_execute_command("date +%s.%N")
        after_s = time.time()
        try:
            return Reading(before_s, float(answer["stdout"].strip()), after_s)
        except ValueError:
            raise AnsibleActionFail(f"the host did not tell its time: {answer['stdout'] or answer['stderr']}") from None
