#!/usr/bin/python
# Copyright: mqops maintainers
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
from __future__ import annotations

DOCUMENTATION = r"""
module: multicast_matrix
short_description: Compares what the hosts of a cluster heard in its multicast groups
version_added: 0.1.0
description:
  - Puts reports of M(mqops.cluster.multicast_probe) together and says who hears whom, and why somebody does not.
  - Findings are no failure of the module.
author: mqops maintainers (@mqops)
options:
  host:
    description: The host whose findings are wanted.
    type: str
    required: true
  probes:
    description: What M(mqops.cluster.multicast_probe) returned when it was started, of all hosts.
    type: list
    elements: dict
    required: true
  reports:
    description: What it reported, of all hosts that were reached.
    type: list
    elements: dict
    required: true
  is_whole:
    description: Whether O(probes) are those of all hosts of the cluster.
    type: bool
    default: true
attributes:
  check_mode:
    description: Changes nothing.
    support: full
  action:
    description: Runs on the control node.
    support: full
"""

EXAMPLES = r"""
- name: Compare
  mqops.cluster.multicast_matrix:
    host: "{{ inventory_hostname }}"
    probes: "{{ probes }}"
    reports: "{{ reports }}"
  register: matrix
"""

RETURN = r"""
findings:
  description: Those of O(host), each with C(level), C(check) and C(message).
  returned: success
  type: list
  elements: dict
groups:
  description: For each group who hears whom.
  returned: success
  type: list
  elements: dict
drawn:
  description: The same for people, in lines.
  returned: success
  type: list
  elements: str
"""
