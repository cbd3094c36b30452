"""Whether names of an inventory stand for hosts of their own: what leads to one place is one host, whatever its names.

Two names for one host are two nodes on one data directory, or two clusters that take each other's files away. A port of
its own is a host of its own (several may be behind one address), and so is an own way there (jump hosts may lead into
networks that use the same addresses). How somebody logs in, and how a connection is kept, leads nowhere else; an option
of ssh that nobody knows here may. What cannot be told from an inventory shows on the hosts, by their machine ids.

The collection has a copy of this (`make gen`), so it imports nothing of ours.
"""

from __future__ import annotations

import ipaddress
import shlex
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

HERE = "127.0.0.1"  # without ssh, or with it
SSH_PORT = "22"
# In the order in which ssh is given them, with the port between the first two: it takes the first value that it sees.
BEFORE, AFTER = ("ansible_ssh_args",), ("ansible_ssh_common_args", "ansible_ssh_extra_args")
PROXY = "ansible_paramiko_proxy_command"
WAYS = (*BEFORE, *AFTER, PROXY)
# Of a login, of how a connection is kept, or of what is shown.
LEAD_NOWHERE = frozenset({
    "addkeystoagent", "batchmode", "ciphers", "compression", "connectionattempts", "connecttimeout", "controlmaster",
    "controlpath", "controlpersist", "forwardagent", "globalknownhostsfile", "gssapiauthentication",
    "gssapidelegatecredentials", "hostkeyalgorithms", "hostkeyalias", "identitiesonly", "identityagent", "identityfile",
    "kbdinteractiveauthentication", "kexalgorithms", "loglevel", "macs", "passwordauthentication",
    "preferredauthentications", "pubkeyacceptedalgorithms", "pubkeyauthentication", "requesttty", "serveralivecountmax",
    "serveraliveinterval", "stricthostkeychecking", "tcpkeepalive", "updatehostkeys", "user", "userknownhostsfile",
})  # fmt: skip
FLAGS = frozenset("46AaCKkNnqTtvXxYy")  # of ssh, without an argument
LEADING = frozenset({"port", "hostname", "proxyjump"})
SHORT = {"p": "port", "l": "user", "i": "identityfile", "J": "proxyjump"}


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
    named = variables.get("ansible_host") or variables.get("ansible_ssh_host")
    if is_here and not named:
        return HERE, SSH_PORT, "", "", ""
    port = variables.get("ansible_port", variables.get("ansible_ssh_port"))
    options: dict[str, str] = {}
    rest = _take(options, variables, BEFORE)
    if port:
        options.setdefault("port", str(port))
    rest += _take(options, variables, AFTER)
    address = options.get("hostname") or str(named or host).rpartition("@")[2]
    jumps = ",".join(_hop(one) for one in options.get("proxyjump", "").split(",") if one.lower() not in {"", "none"})
    way = " ".join([*rest, *(f"{name}={options[name]}" for name in sorted(options) if name not in LEADING)])
    return same_address(address), _port(options.get("port") or SSH_PORT), jumps, way, str(variables.get(PROXY) or "")


def _take(options: dict[str, str], variables: Mapping[str, Any], names: tuple[str, ...]) -> list[str]:
    """Add what ssh is told by these variables, by its name in ssh_config(5); what is no option of ssh that is known."""
    rest: list[str] = []
    for name in names:
        text = str(variables.get(name) or "")
        try:
            words = shlex.split(text)
        except ValueError:
            words = [text]
        while words:
            word = words.pop(0)
            letter, value = word[1:2], word[2:]
            if not word.startswith("-") or letter not in {"o", *SHORT}:
                rest += [] if word.startswith("-") and word[1:] and FLAGS.issuperset(word[1:]) else [word]
                continue
            value = value or (words.pop(0) if words else "")
            option = SHORT.get(letter, "")
            if not option:
                option, _space, value = value.replace("=", " ", 1).strip().partition(" ")
            if option.lower() not in LEAD_NOWHERE:
                options.setdefault(option.lower(), value.strip().strip('"'))
    return rest


def _hop(text: str) -> str:
    """A jump host without who logs in there, and with its port."""
    place = text.strip().removeprefix("ssh://").rpartition("@")[2]
    address, mark, port = place.rpartition(":")
    is_port = mark and port.isdigit() and (address.endswith("]") or ":" not in address)
    return f"{same_address(address if is_port else place)} {_port(port if is_port else SSH_PORT)}"


def _port(text: str) -> str:
    """One spelling of a port."""
    bare = text.strip()
    return str(int(bare)) if bare.isascii() and bare.isdigit() else bare


def same_address(text: str) -> str:
    """One spelling of an address or a host's name."""
    bare = text.strip().lower().rstrip(".").removeprefix("[").removesuffix("]")
    try:
        address = ipaddress.ip_address(bare)
    except ValueError:
        return "127.0.0.1" if bare == "localhost" else bare
    mapped = getattr(address, "ipv4_mapped", None)
    return str(mapped or address)
