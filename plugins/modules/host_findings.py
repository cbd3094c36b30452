#!/usr/bin/python
# Copyright: mqops maintainers
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
from __future__ import annotations

DOCUMENTATION = r"""
module: host_findings
short_description: Says everything that is wrong with a host before a broker is installed
version_added: 0.1.0
description:
  - Looks at operating system, Python, bundle, clock, network cards, ports, disk and user. Changes nothing.
  - Findings are no failure of the module.
author: mqops maintainers (@mqops)
options:
  instances:
    description: Broker processes of the host, each with C(name) and C(port_offset).
    type: list
    elements: dict
    required: true
  listeners:
    description: Listeners of every instance, as in the role P(mqops.cluster.broker#role).
    type: list
    elements: dict
    required: true
  manifest:
    description: Content of the bundle's C(manifest.json); empty where there is none.
    type: dict
    default: {}
  bundle:
    description: Folder of the bundle, for messages.
    type: str
    default: ""
  cluster_interface:
    description: Network card whose address the listeners are bound to.
    type: str
    default: ""
  local_bind_address:
    description: Address that the listeners are bound to.
    type: str
    default: ""
  allow_plaintext:
    description: Whether listeners may be reachable from the network without encryption.
    type: bool
    default: false
  firewall:
    description: Whether there are to be rules of nftables.
    type: bool
    default: false
  tls:
    description: Whether listeners have the certificate of their node.
    type: bool
    default: false
  tls_missing:
    description: Files that would have to be on the control node and are not.
    type: list
    elements: str
    default: []
  tls_faults:
    description: What is wrong with certificates and keys on the control node.
    type: list
    elements: str
    default: []
  metrics_port:
    description: Port of metrics and health before an instance's C(port_offset) is added; 0 for none.
    type: int
    default: 0
  metrics_local_bind_address:
    description: Address that metrics and health are served on.
    type: str
    default: 127.0.0.1
  broadcast_groups:
    description: Broadcast groups of every instance, as in the role P(mqops.cluster.broker#role).
    type: list
    elements: dict
    default: []
  discovery_groups:
    description: Discovery groups of every instance, as in the role P(mqops.cluster.broker#role).
    type: list
    elements: dict
    default: []
  os_unsupported:
    description: Whether an operating system that is not a tested one is only a warning.
    type: bool
    default: false
  uid:
    description: User id that the user C(mq) has to have; 0 for any.
    type: int
    default: 0
  python:
    description: Interpreter that the release is installed with.
    type: path
    default: /usr/bin/python3
  places:
    description: Directories that need space.
    type: list
    elements: path
    default: [/opt/mq, /var/lib/mq]
  disk_free_bytes_min:
    description: Bytes that each of O(places) must have free.
    type: int
    default: 1073741824
  machine_file:
    description: File with the id of the machine.
    type: path
    default: /etc/machine-id
  clock:
    description: What M(mqops.cluster.clock_offset) returned.
    type: dict
    default: {}
  clock_offset_ms_max:
    description: Milliseconds that the clock may be away from that of the control node.
    type: int
    default: 1000
attributes:
  check_mode:
    description: The module changes nothing.
    support: full
"""

EXAMPLES = r"""
- name: Look at the host
  mqops.cluster.host_findings:
    instances: [{name: default}]
    listeners: [{name: clients, port: 5672}]
  register: found
"""

RETURN = r"""
machine_id:
  description: Id of the machine; empty where there is none.
  returned: always
  type: str
findings:
  description: Each with C(level) (error or warning), C(check) and C(message); errors first.
  returned: always
  type: list
  elements: dict
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.mqops.cluster.plugins.module_utils.findings import Wishes, find
from ansible_collections.mqops.cluster.plugins.module_utils.host import MACHINE_FILE, gather
from ansible_collections.mqops.cluster.plugins.module_utils.running import quiet_runner

LOOKED_AT = ("python", "places", "machine_file")

SPEC = {
    "instances": {"type": "list", "elements": "dict", "required": True},
    "listeners": {"type": "list", "elements": "dict", "required": True},
    "manifest": {"type": "dict", "default": {}},
    "bundle": {"type": "str", "default": ""},
    "cluster_interface": {"type": "str", "default": ""},
    "local_bind_address": {"type": "str", "default": ""},
    "allow_plaintext": {"type": "bool", "default": False},
    "firewall": {"type": "bool", "default": False},
    "tls": {"type": "bool", "default": False},
    "tls_missing": {"type": "list", "elements": "str", "default": []},
    "tls_faults": {"type": "list", "elements": "str", "default": []},
    "metrics_port": {"type": "int", "default": 0},
    "metrics_local_bind_address": {"type": "str", "default": "127.0.0.1"},
    "broadcast_groups": {"type": "list", "elements": "dict", "default": []},
    "discovery_groups": {"type": "list", "elements": "dict", "default": []},
    "os_unsupported": {"type": "bool", "default": False},
    "uid": {"type": "int", "default": 0},
    "python": {"type": "path", "default": "/usr/bin/python3"},
    "places": {"type": "list", "elements": "path", "default": ["/opt/mq", "/var/lib/mq"]},
    "disk_free_bytes_min": {"type": "int", "default": 1073741824},
    "machine_file": {"type": "path", "default": MACHINE_FILE},
    "clock": {"type": "dict", "default": {}},
    "clock_offset_ms_max": {"type": "int", "default": 1000},
}


def main():
    """Entry of the module."""
    module = AnsibleModule(argument_spec=SPEC, supports_check_mode=True)
    facts = gather(quiet_runner(module), *(module.params[name] for name in LOOKED_AT))
    wishes = Wishes(**{name: value for name, value in module.params.items() if name not in LOOKED_AT})
    module.exit_json(changed=False, findings=find(facts, wishes), machine_id=facts.machine_id)


if __name__ == "__main__":
    main()
