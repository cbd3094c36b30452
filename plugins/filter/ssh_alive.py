# Copyright: mqops maintainers
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Arguments of ssh with which a host that falls silent is found out."""

from __future__ import annotations

DOCUMENTATION = r"""
name: ssh_alive
short_description: Has ssh find out that a host has fallen silent
version_added: 0.1.0
description:
  - A task that waits for its result sends nothing, so TCP does not notice for hours that a cable was pulled. With these
    arguments ssh asks the host whether it is there, and gives it up after some 45 seconds without an answer.
  - What the inventory or the settings of Ansible say comes first, and so holds.
options:
  _input:
    description: What the inventory says as C(ansible_ssh_extra_args); empty where it says nothing.
    type: str
    required: true
author:
  - mqops maintainers (@mqops)
"""

EXAMPLES = r"""
- name: See the arguments
  ansible.builtin.debug:
    msg: "{{ hostvars[inventory_hostname].ansible_ssh_extra_args | default('') | mqops.cluster.ssh_alive }}"
"""

RETURN = r"""
_value:
  description: Value for C(ansible_ssh_extra_args).
  type: str
"""

from ansible import constants
from ansible.plugins.loader import connection_loader

ALIVE = "-o ServerAliveInterval=15 -o ServerAliveCountMax=3"


def ssh_alive(own):
    """The arguments that there are, and these."""
    connection_loader.get("ssh", class_only=True)  # its settings are known from then on
    given = own or constants.config.get_config_value("ssh_extra_args", plugin_type="connection", plugin_name="ssh")
    return f"{given or ''} {ALIVE}".strip()


class FilterModule:
    """Names the filter."""

    def filters(self):
        """Name -> function."""
        return {"ssh_alive": ssh_alive}
