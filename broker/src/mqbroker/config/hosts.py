"""Whether names of an inventory stand for hosts of their own: what leads to one place is one host, whatever its names.

Two names for one host are two nodes on one data directory, or two clusters that take each other's files away. A port of
its own is a host of its own (several may be behind one address), and so is an own way there (jump hosts may lead into
networks that use the same addresses).

The collection has a copy of this (`make gen`), so it imports nothing of ours.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

HERE = "this machine"
SSH_PORT = "22"
WAYS = ("ansible_ssh_common_args", "ansible_ssh_extra_args", "ansible_ssh_args", "ansible_paramiko_proxy_command")


class SecondName(NamedTuple):
    """A name of a host that `first` stands for already, and what to do about it."""

    host: str
    first: str
    why: str


def second_names(hosts: Mapping[str, Mapping[str, Any]]) -> Iterator[SecondName]:
    """Names that lead to a host which has one: host -> its variables."""
    first: dict[tuple[str, ...], str] = {}
    for host, variables in hosts.items():
        place = place_of(host, variables)
        if any("{{" in part or "{%" in part for part in place):
            continue
        other = first.setdefault(place, host)
        if other == host:
            continue
        clusters = [str(each.get("mq_cluster_name")) for each in (hosts[other], variables)]
        where = "" if clusters[0] == clusters[1] else f" of cluster {clusters[0]}"
        why = f"leads to {place[0]}, which is {other}{where} already; a host has one name and is in one cluster"
        yield SecondName(host, other, f"{why}: remove one of them")


def place_of(host: str, variables: Mapping[str, Any]) -> tuple[str, ...]:
    """Address, port and way of a host, as far as an inventory says them.

    What Ansible does here may be for something else that has an address of its own, where one is named.
    """
    is_here = str(variables.get("ansible_connection", "")).rpartition(".")[2] == "local"
    port = variables.get("ansible_port", variables.get("ansible_ssh_port"))
    named = variables.get("ansible_host") or variables.get("ansible_ssh_host")
    address = named or (HERE if is_here else host)
    ways = (str(variables.get(name) or "") for name in WAYS)
    return same_address(str(address)), str(port or SSH_PORT), *ways


def same_address(text: str) -> str:
    """One spelling of an address or a host's name."""
    bare = text.strip().lower().rstrip(".").removeprefix("[").removesuffix("]")
    try:
        address = ipaddress.ip_address(bare)
    except ValueError:
        return "127.0.0.1" if bare == "localhost" else bare
    mapped = getattr(address, "ipv4_mapped", None)
    return str(mapped or address)
