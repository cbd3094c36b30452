#!/usr/bin/python
# Copyright: mqops maintainers
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Identities of the broker nodes of a host."""

from __future__ import annotations

DOCUMENTATION = r"""
module: node_identity
short_description: Read and make the identities of broker nodes
description:
  - Each node has a random id, made on its host at first install and kept beside its messages.
  - Reads the identities of all instances of a host, and makes them where they are wanted and missing.
  - That two nodes have one id means that a data directory was copied; P(mqops.cluster.shared_node_ids#filter) finds it.
author:
  - mqops maintainers (@mqops)
options:
  instances:
    description:
      - Names of the instances.
    type: list
    elements: str
    required: true
  state:
    description:
      - V(read) changes nothing.
      - V(present) makes an identity where there is none, and fails where there is one that belongs to another machine
        or another path.
    type: str
    choices: [read, present]
    default: read
  host:
    description:
      - Name of the host in messages. Its own name where it is left out.
    type: str
  executable:
    description:
      - The program C(mqbroker).
    type: path
    default: /opt/mq/current/bin/mqbroker
attributes:
  check_mode:
    description: Says what would be made and makes nothing.
    support: full
  diff_mode:
    description: There is nothing to show, ids are random.
    support: none
"""

EXAMPLES = r"""
- name: Read the node ids
  mqops.cluster.node_identity:
    host: "{{ inventory_hostname }}"
    instances: [default]
  register: identity
"""

RETURN = r"""
identities:
  description: One entry for each instance that has an identity.
  type: list
  elements: dict
  returned: always
  sample:
    - place: mq1/default
      instance: default
      node_id: 5f0c1d0e-7c0e-4f43-a5b2-3f2f3b1f4b11
      created: "2026-01-05T10:12:00+00:00"
      machine_id: 3f1e6c0d9b0a4c0f8a7b6c5d4e3f2a1b
      data_directory: /var/lib/mq/default
      matches: true
      mismatches: []
missing:
  description: Instances without an identity. In check mode those that would be made are among them.
  type: list
  elements: str
  returned: always
"""

import socket

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.mqops.cluster.plugins.module_utils import identity
from ansible_collections.mqops.cluster.plugins.module_utils.command import EXECUTABLE, CommandFault, chosen


def read_or_make(module, executable):
    """Identities by instance, None where there is none; and whether anything was made."""
    is_changed, found = False, {}
    for instance in module.params["instances"]:
        if module.params["state"] == "present":
            if not module.check_mode:
                is_changed |= identity.make(instance, executable=executable)
            else:
                is_changed |= not identity.is_there(instance)
        found[instance] = identity.read(instance, executable=executable)
        if found[instance]:
            found[instance]["place"] = f"{module.params['host'] or socket.gethostname()}/{instance}"
    return found, is_changed


def main():
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "instances": {"type": "list", "elements": "str", "required": True},
            "state": {"type": "str", "choices": ["read", "present"], "default": "read"},
            "host": {"type": "str"},
            "executable": {"type": "path", "default": EXECUTABLE},
        },
        supports_check_mode=True,
    )
    executable = chosen(module.params["executable"], module.check_mode)
    try:
        found, is_changed = read_or_make(module, executable)
    except CommandFault as fault:
        module.fail_json(msg=str(fault))
    result = {
        "identities": [one for one in found.values() if one],
        "missing": [name for name, one in found.items() if not one],
    }
    module.exit_json(changed=is_changed, **result)


if __name__ == "__main__":
    main()
