# Copyright: mqops maintainers
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Compares on the control node what the hosts of a cluster heard."""

from __future__ import annotations

import sys

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase
from ansible_collections.mqops.cluster.plugins.module_utils.multicast_matrix import (
    ProbeOrder,
    drawn,
    findings_of,
    groups_of,
)


class ActionModule(ActionBase):
    """See the module's documentation."""

    _VALID_ARGS = frozenset({"host", "probes", "reports", "is_whole"})
    _requires_connection = False

    def run(self, tmp=None, task_vars=None):
        """Findings of one host, and the matrix of all."""
        result = super().run(tmp, task_vars)
        args = self._task.args
        try:
            reports = {one["host"]: one for one in args["reports"]}
            places = {one["ready"]["host"]: one["places"] for one in args["probes"]}
            wanted = ProbeOrder(places, bool(args.get("is_whole", True)))
            groups = groups_of(wanted, reports)
            found = findings_of(wanted, reports, groups)
        except (LookupError, TypeError, ValueError, AttributeError) as fault:
            raise AnsibleActionFail(f"what the hosts report cannot be read: {fault!r}") from None
        is_ascii = not (sys.stdout.encoding or "").lower().replace("-", "").startswith("utf8")
        own = [
            {name: value for name, value in one.items() if name != "host"}
            for one in found
            if one["host"] == args["host"]
        ]
        result.update(
            changed=False,
            findings=[{name: one[name] for name in ("level", "check", "message")} for one in own],
            groups=[one.as_row() for one in groups],
            drawn=[line for one in groups for line in drawn(one, is_ascii)],
        )
        return result
