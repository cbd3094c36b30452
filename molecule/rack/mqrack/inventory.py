"""Owns the Ansible inventory of a rack, as YAML text.

Invariant: what it prints is a whole inventory: nothing has to be set elsewhere to reach the hosts. It works inside
`rack enter`, where the hosts' addresses exist. Strings are quoted as JSON does, which YAML reads the same.
"""

from __future__ import annotations

import json

from mqrack import ssh
from mqrack.layout import Layout
from mqrack.plan import Plan

# ssh reaches a host behind another by a command that it starts, or by settings that name the way.
JUMPS = ("ProxyCommand", "ProxyJump")


def render(layout: Layout, plan: Plan, group: str, jump_by: str = JUMPS[0]) -> str:
    lines = ["all:", "  vars:"]
    lines += [f"    {key}: {value}" for key, value in _shared(layout).items()]
    lines += ["  children:", f"    {group}:", "      hosts:" if plan.hosts else "      hosts: {}"]
    for host in plan.hosts:
        lines += [f"        {host.name}:", f"          ansible_host: {host.address}"]
        if host.jump:
            args = ssh.command_args(layout, plan, host) if jump_by == "ProxyCommand" else ssh.jump_args(layout, host)
            lines.append(f"          ansible_ssh_common_args: {json.dumps(args)}")
    return "\n".join(lines) + "\n"


def _shared(layout: Layout) -> dict[str, str]:
    return {
        "ansible_connection": "ssh",
        "ansible_user": ssh.USER,
        "ansible_python_interpreter": "/usr/bin/python3",
        "ansible_ssh_private_key_file": json.dumps(str(layout.key)),
        "ansible_ssh_common_args": json.dumps(ssh.common_args(layout)),
    }
