#!/usr/bin/python
# Copyright: mqops maintainers
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
from __future__ import annotations

DOCUMENTATION = r"""
module: operation
short_description: Keeps two operations from changing a cluster at once
version_added: 0.1.0
description:
  - Notes on the host which operation changes it, by a number that only grows, and says which one is in the way; that is
    no failure of the module.
  - Nothing ends by itself. An operation that is gone is gone on with, or given up with C(mqctl operation release).
author: mqops maintainers (@mqops)
options:
  state:
    description:
      - V(seen) says what is noted.
      - V(held) takes the host for this operation, V(free) gives it back where this operation has it.
      - V(kept) looks whether this operation still has it.
    type: str
    choices: [seen, held, free, kept]
    default: held
  operation:
    description: This operation, as it is noted.
    type: dict
    default: {}
  instead_of:
    description: The token of the operation in whose place this one is to be; empty for none.
    type: str
    default: ""
attributes:
  check_mode:
    description: Takes nothing, and so finds nobody in the way.
    support: full
  diff_mode:
    description: There is nothing to show.
    support: none
"""

EXAMPLES = r"""
- name: Keep others from changing the host meanwhile
  mqops.cluster.operation:
    operation: "{{ mq_operation }}"
  register: noted
"""

RETURN = r"""
refusal:
  description: Which operation is in the way and what to do; empty where this one has the host.
  type: str
  returned: always
is_paused:
  description: Whether somebody paused this operation, with O(state=kept).
  type: bool
  returned: always
is_followed:
  description: Whether another operation has the host or has had it since, with O(state=kept).
  type: bool
  returned: always
found:
  description: What was noted there; null where that is nothing, or this operation.
  type: dict
  returned: always
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.mqops.cluster.plugins.module_utils import operation


def main():
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "state": {"type": "str", "choices": ["seen", "held", "free", "kept"], "default": "held"},
            "operation": {"type": "dict", "default": {}},
            "instead_of": {"type": "str", "default": ""},
        },
        supports_check_mode=True,
    )
    is_paused = is_followed = False
    state, own = module.params["state"], module.params["operation"]
    found, refusal = None, ""
    if state == "seen":
        found = operation.look()
    elif module.check_mode:
        pass
    elif state == "free":
        operation.give_back(own)
    elif state == "kept":
        refusal = operation.lost_to(own)
        is_paused = operation.is_paused(own)
        is_followed = operation.is_followed(own)
    else:
        try:
            found = operation.take(own, module.params["instead_of"])
            refusal = operation.sentence(found) if found else ""
        except ValueError as fault:
            module.fail_json(msg=str(fault))
        except OSError as fault:  # no failure: those that were taken are to be given back
            refusal = f"the host can note no operation: {fault}"
    module.exit_json(changed=False, found=found, refusal=refusal, is_paused=is_paused, is_followed=is_followed)


if __name__ == "__main__":
    main()
