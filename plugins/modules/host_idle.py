#!/usr/bin/python
# Copyright: mqops maintainers
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Whether nothing else of Ansible's is under way on a host."""

from __future__ import annotations

DOCUMENTATION = r"""
module: host_idle
short_description: Wait until nothing else of Ansible is under way on a host
version_added: 0.1.0
description:
  - Looks at the processes of the host until no task of another run has been among them for some seconds on end, as
    there is none between two tasks of a run either. That it does not come about is no failure of the module.
author:
  - mqops maintainers (@mqops)
options:
  wait_s:
    description:
      - Seconds after which it gives up, but not before O(quiet_s).
      - V(0) asks whether nothing is under way from now on for O(quiet_s).
    type: float
    default: 15
  quiet_s:
    description:
      - For how many seconds on end nothing has to be under way. Ansible takes less between two tasks, unless the host
        waits for another one.
    type: float
    default: 5
attributes:
  check_mode:
    description: Changes nothing anyway.
    support: full
  diff_mode:
    description: Changes nothing.
    support: none
"""

EXAMPLES = r"""
- name: Wait until nothing else is under way
  mqops.cluster.host_idle:
  register: idle
"""

RETURN = r"""
task:
  description: Number and module, or program, of a process that was under way last; empty where it came about.
  type: str
  returned: always
is_idle:
  description: Whether it came about.
  type: bool
  returned: always
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.mqops.cluster.plugins.module_utils.idle import under_way


def main():
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "wait_s": {"type": "float", "default": 15.0},
            "quiet_s": {"type": "float", "default": 5.0},
        },
        supports_check_mode=True,
    )
    found = under_way(module.params["wait_s"], quiet_s=module.params["quiet_s"])
    module.exit_json(changed=False, is_idle=not found, task=found)


if __name__ == "__main__":
    main()
