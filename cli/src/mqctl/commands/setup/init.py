"""`mqctl init`."""

from __future__ import annotations

import os
import re
import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from mqctl import ansible_cli
from mqctl.certificates.folder import Folder
from mqctl.certificates.issuing import AUTHORITY_DAYS, make_authority
from mqctl.declare import CommonOptions
from mqctl.errors import CommandError, UsageError
from mqctl.exits import Exit
from mqctl.world import World

NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,31}")
HOST = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]*)(?:=([A-Za-z0-9.:_-]+))?")
SECRET_BYTES = 24


@dataclass(frozen=True, kw_only=True)
class Options(CommonOptions):
    """What the first inventory says."""

    hosts: Annotated[list[str] | None, typer.Argument(help="Hosts, as NAME or NAME=ADDRESS.")] = None
    inventory: Annotated[Path, typer.Option("--inventory", "-i", help="File to write, or the one that is there.")] = (
        Path("inventory.yml")
    )
    cluster: Annotated[str, typer.Option(help="Name of the cluster.")] = "main"
    group: Annotated[str, typer.Option(help="Group of the inventory that is the cluster.")] = "brokers"
    user: Annotated[str, typer.Option(help="User for applications, with a random password.")] = "app"
    interface: Annotated[str, typer.Option(help="Network card that the brokers listen on.")] = ""
    allow_plaintext: Annotated[
        bool, typer.Option("--allow-plaintext", help="Let them listen beyond loopback without encryption.")
    ] = False


def run(world: World, options: Options) -> int:
    """Write a first inventory, random passwords into a file of its own, and a CA for the certificates of the nodes.

    Files that are there stay as they are.
    """
    if not NAME.fullmatch(options.cluster):
        raise UsageError(
            f"--cluster {options.cluster}: must be lower-case letters, digits and dashes", "--cluster main"
        )
    path = world.cwd / options.inventory
    have = _known(path, options, world)
    folder = path.parent / "group_vars" / options.group
    secrets_file = folder / "secrets.yml"
    if not path.exists():
        _write(world, path, inventory_text(options.group, options.hosts or []), 0o644)
    else:
        world.note(f"kept {path}")
    if "mq_cluster_name" in have:
        world.note(f"kept mq_cluster_name {have['mq_cluster_name']}")
    else:
        _write(world, folder / "cluster.yml", cluster_text(options), 0o644)
        if not options.allow_plaintext:
            place = Folder(path.parent / "tls" / options.cluster, (), world.environ)
            make_authority(world, place, options.cluster, AUTHORITY_DAYS, [])
    if {"mq_users", "mq_cluster_secret"} <= set(have):
        world.note("kept mq_users and mq_cluster_secret")
    else:
        _write(world, secrets_file, secrets_text(options.user), 0o600)
    world.note(f"the passwords are in {secrets_file}; encrypt it with: ansible-vault encrypt {secrets_file}")
    world.note(f"next: mqctl inventory check -i {options.inventory}")
    return Exit.DONE


def _known(path: Path, options: Options, world: World) -> dict[str, Any]:
    """The mq_* variables that an existing inventory gives to the hosts of the group."""
    if not path.exists():
        return {}
    if options.hosts:
        raise UsageError(
            f"{path} is there already; hosts are added to it by hand", f"mqctl init -i {options.inventory}"
        )
    listing, _ = ansible_cli.read_all([path], (), world.environ)
    if options.group not in listing:
        groups = ", ".join(sorted(set(listing) - {"_meta", "all", "ungrouped"})) or "no group"
        raise UsageError(f"{path} has no group {options.group}; it has {groups}", "mqctl init --group GROUP")
    members = listing[options.group].get("hosts", [])
    variables: dict[str, Any] = {}
    for host in members:
        variables |= listing.get("_meta", {}).get("hostvars", {}).get(host, {})
    return {name: value for name, value in variables.items() if name.startswith("mq_")}


def _write(world: World, path: Path, text: str, mode: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    except FileExistsError:
        world.note(f"kept {path}")
        return
    except OSError as fault:
        raise CommandError(
            f"{path} cannot be written: {fault.strerror}", "mqctl init -i ELSEWHERE/inventory.yml"
        ) from None
    with os.fdopen(descriptor, "w") as file:
        os.fchmod(descriptor, mode)
        file.write(text)
    world.note(f"wrote {path}")


def inventory_text(group: str, hosts: list[str]) -> str:
    """Hosts and how to reach them. Without hosts, one to be replaced."""
    lines = ["# Hosts of the cluster. Everything that Ansible understands may stand here.", f"{group}:", "  hosts:"]
    for one in hosts or ["mq1=192.0.2.11"]:
        matched = HOST.fullmatch(one)
        if matched is None:
            raise UsageError(f"{one} is not a host", "mqctl init mq1=192.0.2.11 mq2=192.0.2.12")
        lines.append(f"    {matched[1]}:")
        if matched[2]:
            lines.append(f'      ansible_host: "{matched[2]}"')
    lines += ["  vars:", "    ansible_python_interpreter: /usr/bin/python3", ""]
    return "\n".join(lines)


def cluster_text(options: Options) -> str:
    """What makes the group a cluster."""
    interface = f"mq_cluster_interface: {options.interface}" if options.interface else "# mq_cluster_interface: eth1"
    secured = [
        "# Listeners have TLS, with certificates that `mqctl tls` makes and a rollout puts on the hosts.",
        "mq_tls: managed",
    ]
    plain = [
        "# Nothing is encrypted: beyond loopback passwords and messages cross the network as they are.",
        'mq_tls: "off"',
        "mq_allow_plaintext: true",
    ]
    return "\n".join(
        [
            "# What is the same on all hosts of the cluster. All variables: docs/reference/variables.md",
            f"mq_cluster_name: {options.cluster}",
            "",
            "# Network card whose address the brokers listen on. Without it they listen on loopback only.",
            interface,
            "",
            *(plain if options.allow_plaintext else secured),
            "",
        ]
    )


def secrets_text(user: str) -> str:
    """The content of the file of secrets: a random password for the user and for the cluster."""
    return "\n".join(
        [
            "# Passwords. Keep this file out of version control, or encrypt it with ansible-vault.",
            f'mq_cluster_secret: "{secrets.token_urlsafe(SECRET_BYTES)}"',
            "mq_users:",
            f"  - name: {user}",
            f'    password: "{secrets.token_urlsafe(SECRET_BYTES)}"',
            "",
        ]
    )
