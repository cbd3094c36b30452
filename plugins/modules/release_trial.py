#!/usr/bin/python
# Copyright: mqops maintainers
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Whether a release could run on a host with what is there."""

from __future__ import annotations

DOCUMENTATION = r"""
module: release_trial
short_description: Try a release with the options and data of a host
version_added: 0.1.0
description:
  - Asks the program of a release that is installed whether it runs here, takes the options, and reads journals of the
    formats that are there. Brokers that run are not touched. That it could not is no failure of the module.
author:
  - mqops maintainers (@mqops)
options:
  release:
    description:
      - Name of the release.
    type: str
    required: true
  options:
    description:
      - Text of C(broker.toml) of each instance, by its name.
    type: dict
    required: true
  is_back:
    description:
      - Whether these options are those of another time. Then what they need has to be there, and what a start with them
        would delete is looked for.
    type: bool
    default: false
attributes:
  check_mode:
    description: Changes nothing anyway.
    support: full
  diff_mode:
    description: Changes nothing.
    support: none
"""

EXAMPLES = r"""
- name: Try the release before
  mqops.cluster.release_trial:
    release: 0.1.0-8b95a2d1
    options:
      default: "{{ lookup('ansible.builtin.file', 'broker.toml') }}"
  register: trial
"""

RETURN = r"""
faults:
  description: Why it could not run here.
  type: list
  elements: str
  returned: always
deletions:
  description: Addresses and queues that a start would delete with their messages, with O(is_back=true).
  type: list
  elements: str
  returned: always
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.mqops.cluster.plugins.module_utils.release_trial import deletions, faults, missing


def main():
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "release": {"type": "str", "required": True},
            "options": {"type": "dict", "required": True},
            "is_back": {"type": "bool", "default": False},
        },
        supports_check_mode=True,
    )
    options = {str(name): str(text) for name, text in module.params["options"].items()}
    found, deleted = faults(module.params["release"], options), []
    if module.params["is_back"]:
        found, deleted = [*found, *missing(options)], deletions(options)
    module.exit_json(changed=False, faults=found, deletions=deleted)


if __name__ == "__main__":
    main()
