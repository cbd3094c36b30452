#!/usr/bin/python
# Copyright: mqops maintainers
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""A folder of the control node, copied to a host as one archive."""

from __future__ import annotations

DOCUMENTATION = r"""
module: copy_tree
short_description: Copy a folder to a host in one go
version_added: 0.1.0
description:
  - Packs a folder of the control node, carries it to the host as one file and unpacks it there, where
    M(ansible.builtin.copy) goes to the host several times for each file.
  - What arrives belongs to root, files with mode 0644 and folders with mode 0755. Files that are there already are
    replaced and others stay; it compares nothing and always says that it changed something.
author:
  - mqops maintainers (@mqops)
options:
  src:
    description:
      - The folder on the control node.
    type: path
  dest:
    description:
      - The folder on the host that its content is put into. It is made where it is missing.
    type: path
    required: true
  archive:
    description:
      - Where the archive is on the host. Set by the action plugin.
    type: path
attributes:
  check_mode:
    description: Says that it would change something and copies nothing.
    support: full
  diff_mode:
    description: Shows nothing.
    support: none
  action:
    description: Packs on the control node.
    support: full
"""

EXAMPLES = r"""
- name: Copy a bundle
  mqops.cluster.copy_tree:
    src: bundle-0.1.0
    dest: /opt/bundle
"""

RETURN = r"""
dest:
  description: The folder on the host.
  type: str
  returned: always
  sample: /opt/bundle
"""

import tarfile

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.mqops.cluster.plugins.module_utils import tree


def main():
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "src": {"type": "path"},
            "dest": {"type": "path", "required": True},
            "archive": {"type": "path"},
        },
        supports_check_mode=True,
    )
    dest = module.params["dest"]
    if not module.check_mode:
        try:
            tree.unpack(module.params["archive"], dest)
        except (tree.TreeFault, tarfile.TarError, OSError) as fault:
            module.fail_json(msg=f"{dest}: {fault}", dest=dest)
    module.exit_json(changed=True, dest=dest)


if __name__ == "__main__":
    main()
