#!/usr/bin/python
# Copyright: mqops maintainers
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
from __future__ import annotations

DOCUMENTATION = r"""
module: bind_address
short_description: Finds the address that listeners are bound to
version_added: 0.1.0
description:
  - The given address, which the host must have; else the IPv4 address of the given network card; else loopback.
author: mqops maintainers (@mqops)
options:
  interface:
    description: Name of a network card.
    type: str
    default: ""
  address:
    description: IP address of the host.
    type: str
    default: ""
attributes:
  check_mode:
    description: The module changes nothing.
    support: full
"""

EXAMPLES = r"""
- name: Find the address of the second card
  mqops.cluster.bind_address:
    interface: eth1
  register: bind
"""

RETURN = r"""
address:
  description: The address.
  returned: success
  type: str
  sample: 198.51.100.11
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.mqops.cluster.plugins.module_utils.host import cards
from ansible_collections.mqops.cluster.plugins.module_utils.network import NoAddress, bind_address
from ansible_collections.mqops.cluster.plugins.module_utils.running import quiet_runner


def main():
    """Entry of the module."""
    module = AnsibleModule(
        argument_spec={
            "interface": {"type": "str", "default": ""},
            "address": {"type": "str", "default": ""},
        },
        supports_check_mode=True,
    )
    known = cards(quiet_runner(module))
    if known is None:
        module.fail_json(msg="network cards cannot be listed; install the package iproute2")
    try:
        address = bind_address(known, module.params["interface"], module.params["address"])
    except NoAddress as fault:
        module.fail_json(msg=str(fault))
    module.exit_json(changed=False, address=address)


if __name__ == "__main__":
    main()
