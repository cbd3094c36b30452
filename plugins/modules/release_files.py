#!/usr/bin/python
# Copyright: mqops maintainers
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Whether a release is installed and as it was installed."""

from __future__ import annotations

DOCUMENTATION = r"""
module: release_files
short_description: See whether a release is whole
version_added: 0.1.0
description:
  - Compares every file of an installed release with the manifest of its bundle, by the hashes in its wheels.
author:
  - mqops maintainers (@mqops)
options:
  folder:
    description:
      - Where the release is, or is to be.
    type: path
    required: true
attributes:
  check_mode:
    description: Changes nothing.
    support: full
"""

EXAMPLES = r"""
- name: See whether it is there already
  mqops.cluster.release_files:
    folder: /opt/mq/releases/0.1.0-8b95a2d1
  register: release
"""

RETURN = r"""
is_whole:
  description: Whether everything is there and as it was installed.
  type: bool
  returned: success
faults:
  description: What is not.
  type: list
  elements: str
  returned: success
  sample: [bin/mqbroker has changed]
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.mqops.cluster.plugins.module_utils.release_files import faults


def main():
    """Run the module."""
    module = AnsibleModule(
        argument_spec={"folder": {"type": "path", "required": True}},
        supports_check_mode=True,
    )
    found = faults(module.params["folder"])
    module.exit_json(changed=False, is_whole=not found, faults=found)


if __name__ == "__main__":
    main()
