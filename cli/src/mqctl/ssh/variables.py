"""From the variables of a host to what Ansible would ask of ssh and sudo. Pure.

Invariant: every connection variable of Ansible's `ssh` plugin and `sudo` plugin is honoured, known to be irrelevant
(transfer, pipelining, multiplexing: we copy nothing and keep one connection), or refused by name.
Source: the documentation of the plugins `ansible.builtin.ssh` and `ansible.builtin.sudo`.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from mqctl.errors import UsageError

CONNECTIONS_SSH = {"ssh", "ansible.builtin.ssh", "smart", "paramiko", "paramiko_ssh", "ansible.netcommon.paramiko_ssh"}
CONNECTIONS_LOCAL = {"local", "ansible.builtin.local"}
SUDO = {"sudo", "ansible.builtin.sudo"}
# Option of the ssh plugin -> variables that set it, the last one wins less: Ansible takes the first that is defined.
VARIABLES = {
    "host": ("ansible_host", "ansible_ssh_host"),
    "port": ("ansible_port", "ansible_ssh_port"),
    "remote_user": ("ansible_user", "ansible_ssh_user"),
    "password": ("ansible_password", "ansible_ssh_pass", "ansible_ssh_password"),
    "private_key_file": ("ansible_private_key_file", "ansible_ssh_private_key_file"),
    "private_key_passphrase": ("ansible_private_key_passphrase", "ansible_ssh_private_key_passphrase"),
    "host_key_checking": ("ansible_host_key_checking", "ansible_ssh_host_key_checking"),
    "ssh_args": ("ansible_ssh_args",),
    "ssh_common_args": ("ansible_ssh_common_args",),
    "ssh_extra_args": ("ansible_ssh_extra_args",),
    "ssh_executable": ("ansible_ssh_executable",),
    "timeout": ("ansible_ssh_timeout", "ansible_timeout"),
}
REFUSED = {
    "pkcs11_provider": ("ansible_ssh_pkcs11_provider",),
    "private_key": ("ansible_private_key", "ansible_ssh_private_key"),
}
BECOME_VARIABLES = {
    "become_user": ("ansible_become_user", "ansible_sudo_user"),
    "become_exe": ("ansible_become_exe", "ansible_sudo_exe"),
    "become_password": ("ansible_become_password", "ansible_become_pass", "ansible_sudo_pass"),
}


@dataclass(frozen=True, slots=True)
class Become:
    """How a command gets its rights on the host. `user` is who it runs as."""

    is_on: bool = True
    user: str = "root"
    program: str = "sudo"
    password: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True)
class Access:
    """How to reach a host. `arguments` are for `ssh -G`; the host is their last. Empty: the control node itself."""

    name: str
    is_local: bool = False
    program: str = "ssh"
    arguments: tuple[str, ...] = ()
    password: str = field(default="", repr=False)
    passphrase: str = field(default="", repr=False)
    timeout_s: int = 10
    python: str = "/usr/bin/python3"
    become: Become = field(default_factory=Become)


def access_of(name: str, variables: Mapping[str, Any], settings: Mapping[str, Any]) -> Access:
    """How Ansible would reach the host `name`. `settings` are options of the ssh plugin from ansible.cfg."""
    connection = str(variables.get("ansible_connection", settings.get("connection", "ssh")))
    python = _python(variables)
    if connection in CONNECTIONS_LOCAL:
        return Access(name, is_local=True, python=python, become=_become(name, variables))
    if connection not in CONNECTIONS_SSH:
        raise UsageError(f"{name}: ansible_connection={connection} is not supported by mqctl, only ssh and local are")
    for option, names in REFUSED.items():
        if _first(name, names, variables, settings.get(option)):
            raise UsageError(f"{name}: {names[0]} cannot be honoured by mqctl", "ssh-add the key and use the agent")
    values = {option: _first(name, names, variables, settings.get(option)) for option, names in VARIABLES.items()}
    return Access(
        name,
        program=str(values["ssh_executable"] or "ssh"),
        arguments=tuple(_arguments(name, values)),
        password=str(values["password"] or ""),
        passphrase=str(values["private_key_passphrase"] or ""),
        timeout_s=_seconds(name, values["timeout"]),
        python=python,
        become=_become(name, variables),
    )


def _arguments(name: str, values: Mapping[str, Any]) -> list[str]:
    """The order is that of Ansible: ssh takes the first value that it sees for an option."""
    arguments = _split(name, "ansible_ssh_args", values["ssh_args"])
    if values["host_key_checking"] is not None and not truth(values["host_key_checking"]):
        arguments += ["-o", "StrictHostKeyChecking=no"]
    if values["port"]:
        arguments += ["-o", f"Port={values['port']}"]
    if values["private_key_file"]:
        arguments += ["-o", f'IdentityFile="{values["private_key_file"]}"']
    if values["remote_user"]:
        arguments += ["-o", f'User="{values["remote_user"]}"']
    arguments += _split(name, "ansible_ssh_common_args", values["ssh_common_args"])
    arguments += _split(name, "ansible_ssh_extra_args", values["ssh_extra_args"])
    return [*arguments, str(values["host"] or name)]


def _split(name: str, variable: str, value: Any) -> list[str]:
    try:
        return shlex.split(str(value or ""))
    except ValueError as fault:
        raise UsageError(f"{name}: {variable} is not a command line: {fault}") from None


def _first(name: str, names: tuple[str, ...], variables: Mapping[str, Any], default: Any) -> Any:
    for variable in names:
        value = variables.get(variable)
        if value is None:
            continue
        return value
    return default


def _become(name: str, variables: Mapping[str, Any]) -> Become:
    method = str(variables.get("ansible_become_method", "sudo"))
    if method not in SUDO:
        raise UsageError(f"{name}: ansible_become_method={method} is not supported by mqctl, only sudo is")
    values = {option: _first(name, names, variables, None) for option, names in BECOME_VARIABLES.items()}
    return Become(
        is_on=truth(variables.get("ansible_become", True)),
        user=str(values["become_user"] or "root"),
        program=str(values["become_exe"] or "sudo"),
        password=str(values["become_password"] or ""),
    )


def _python(variables: Mapping[str, Any]) -> str:
    named = str(variables.get("ansible_python_interpreter", ""))
    return named if named.startswith("/") else "/usr/bin/python3"


def _seconds(name: str, value: Any) -> int:
    try:
        return max(1, int(value)) if value is not None else 10
    except (TypeError, ValueError):
        raise UsageError(f"{name}: ansible_ssh_timeout={value!r} is not a number of seconds") from None


def truth(value: Any) -> bool:
    """As Ansible reads a boolean: yes, on, true and 1 in any case."""
    return value if isinstance(value, bool) else str(value).strip().lower() in {"yes", "on", "true", "1", "y", "t"}
