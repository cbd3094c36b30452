# Copyright: mqops maintainers
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""How many hosts are changed at a time."""

from __future__ import annotations

DOCUMENTATION = r"""
name: batches
short_description: Cuts hosts into batches that have no two hosts of one rack
version_added: 0.1.0
description:
  - The hosts are sorted by name, as the order C(sorted) of a play has them, and a batch ends before a host whose rack
    it has already.
positional: hostvars, size, is_canary_first
options:
  _input:
    description: Names of the hosts.
    type: list
    elements: str
    required: true
  hostvars:
    description: Variables of all hosts, of which C(mq_rack) is read.
    type: dict
    required: true
  size:
    description: Hosts in a batch at most, a number or a percentage of all; empty for one.
    type: str
    default: ""
  is_canary_first:
    description: Whether the first host is a batch of its own, whatever the size.
    type: bool
    default: false
author:
  - mqops maintainers (@mqops)
"""

EXAMPLES = r"""
- name: Restart brokers
  hosts: brokers
  order: sorted
  serial: "{{ groups['brokers'] | mqops.cluster.batches(hostvars, '50%') }}"
"""

RETURN = r"""
_value:
  description: How many hosts are in each batch, sorted by name.
  type: list
  elements: int
"""

from ansible.module_utils.parsing.convert_bool import boolean
from ansible_collections.mqops.cluster.plugins.module_utils import batches as cutting


def batches(hosts, hostvars, size="", is_canary_first=False):
    """How many hosts are in each batch."""
    racks = {name: str(hostvars[name].get("mq_rack") or "") for name in hosts}
    return cutting.batches(list(hosts), racks, size, is_canary_first=boolean(is_canary_first))


class FilterModule:
    """Names the filter."""

    def filters(self):
        """Name -> function."""
        return {"batches": batches}
