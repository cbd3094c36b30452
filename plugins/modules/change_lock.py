#!/usr/bin/python
# Copyright: mqops maintainers
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
from __future__ import annotations

DOCUMENTATION = r"""
module: change_lock
short_description: Keeps two runs from changing a host at once
version_added: 0.1.0
description:
  - Notes on the host who changes it, and says who is in the way; that is no failure of the module.
  - A run is the process of C(ansible-playbook). One that is gone, as seen from the machine that it ran on, is in
    nobody's way.
author: mqops maintainers (@mqops)
options:
  state:
    description:
      - V(held) takes the host for this run, V(free) gives it back where this run has it.
      - V(kept) looks whether this run still has it.
    type: str
    choices: [held, free, kept]
    default: held
  what:
    description: What is done, for whoever is told to wait.
    type: str
    default: a playbook
  take_over:
    description: Take the place of whoever is noted.
    type: bool
    default: false
  holder:
    description: Who this run is. It is found out on the control node and not to be set.
    type: dict
    default: {}
  instead_of:
    description: Whose note is replaced. It is found out on the control node and not to be set.
    type: dict
attributes:
  check_mode:
    description: Takes nothing, and so finds nobody in the way.
    support: full
  diff_mode:
    description: There is nothing to show.
    support: none
  action:
    description: Finds out on the control node who this run is, and whether another one is gone.
    support: full
"""

EXAMPLES = r"""
- name: Keep others from changing the host meanwhile
  mqops.cluster.change_lock:
    what: rollout
  register: lock
"""

RETURN = r"""
refusal:
  description: Who is in the way and what to do; empty where this run has the host.
  type: str
  returned: always
in_the_way:
  description: The note of another run; null where there is none.
  type: dict
  returned: always
held_as:
  description: What is noted of this run; null where it has not got the host.
  type: dict
  returned: always
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.mqops.cluster.plugins.module_utils import change_lock


def main():
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "state": {"type": "str", "choices": ["held", "free", "kept"], "default": "held"},
            "what": {"type": "str", "default": "a playbook"},
            "take_over": {"type": "bool", "default": False},
            "holder": {"type": "dict", "default": {}},
            "instead_of": {"type": "dict"},
        },
        supports_check_mode=True,
    )
    state, holder = module.params["state"], module.params["holder"]
    found, refusal = None, ""
    if module.check_mode:
        pass
    elif state == "free":
        change_lock.give_back(holder)
    elif state == "kept":
        refusal = change_lock.lost_to(holder)
    else:
        found = change_lock.take(holder, module.params["instead_of"])
        refusal = change_lock.sentence(found) if found else ""
    module.exit_json(changed=False, in_the_way=found, refusal=refusal)


if __name__ == "__main__":
    main()
