# Copyright: mqops maintainers
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Names of an inventory that lead to a host which has a name already, found on the control node."""

from __future__ import annotations

DOCUMENTATION = r"""
name: second_names
short_description: Says which names of an inventory lead to a host that has a name already
version_added: 0.1.0
description:
  - Two names for one host are two nodes on one data directory, or two clusters that take each other's files away.
  - What leads to the same address and port by the same way is one host.
positional: hosts
options:
  _input:
    description: Variables of all hosts that have brokers, of all clusters.
    type: list
    elements: dict
    required: true
  hosts:
    description: The hosts that something is about to be done with. Others are only told of together with these.
    type: list
    elements: str
    required: true
author:
  - mqops maintainers (@mqops)
"""

EXAMPLES = r"""
- name: Each host has one name
  ansible.builtin.assert:
    that: groups['all'] | map('extract', hostvars) | mqops.cluster.second_names(ansible_play_hosts_all) == ''
"""

RETURN = r"""
_value:
  description: A sentence with both names and the remedy for each; empty where each host has one name.
  type: str
"""

from ansible_collections.mqops.cluster.plugins.module_utils import hosts as names

WANTED = (
    "mq_cluster_name",
    "ansible_host",
    "ansible_ssh_host",
    "ansible_port",
    "ansible_ssh_port",
    "ansible_connection",
    *names.WAYS,
)


def second_names(known, hosts):
    """What to say of hosts that have two names; nothing where each has one."""
    variables = {
        str(one["inventory_hostname"]): {name: one[name] for name in WANTED if name in one} for one in list(known)
    }
    acted_on = {str(one) for one in hosts}
    return "; ".join(
        f"host {one.host}: ansible_host: {one.why}"
        for one in names.second_names(variables)
        if acted_on & {one.host, one.first}
    )


class FilterModule:
    """Names the filter."""

    def filters(self):
        """Name -> function."""
        return {"second_names": second_names}
