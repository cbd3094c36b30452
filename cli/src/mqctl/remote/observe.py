"""Says as one JSON document what is on this host: sent to it by `mqctl plan`, run as root, changes nothing.

Standard library only, and of Python 3.9 at that: it runs before anything of ours is installed.
"""

from __future__ import annotations

import base64
import glob
import hashlib
import json
import os
import pwd
import re
import subprocess
import sys
from typing import Any

CERTIFICATES = ("server.pem", "ca.pem")
# The role release looks for the same ones before it leaves a release as it is.
RELEASE_FILES = ("complete", "bundle/manifest.json", "bin/python", "bin/mqbroker")
# Where there is something of an instance, by its name.
TRACES = (
    re.compile(r"/etc/mq/([^/]+)"),
    re.compile(r"/var/lib/mq/([^/]+)"),
    re.compile(r"/etc/systemd/system/mqbroker@([^/]+)\.service\.d"),
    re.compile(r"/etc/systemd/system/[^/]+\.wants/mqbroker@([^/]+)\.service"),
)


def text_of(path: str) -> str | None:
    """The content of a file in base64, or None where there is none."""
    try:
        with open(path, "rb") as file:
            return base64.b64encode(file.read()).decode()
    except (FileNotFoundError, NotADirectoryError):
        return None


def json_of(path: str) -> Any:
    """A JSON file, or None."""
    try:
        with open(path) as file:
            return json.load(file)
    except (OSError, ValueError):
        return None


def hashes_of(folder: str, names: tuple[str, ...]) -> dict[str, str]:
    """SHA-256 of those files that are there."""
    found = {}
    for name in names:
        try:
            with open(os.path.join(folder, name), "rb") as file:
                found[name] = hashlib.sha256(file.read()).hexdigest()
        except OSError:
            continue
    return found


def link_of(path: str) -> str | None:
    """The last part of what a link points to, or None."""
    try:
        return os.path.basename(os.readlink(path))
    except OSError:
        return None


def unit_of(name: str) -> dict[str, str]:
    """Properties of a systemd unit."""
    command = ["systemctl", "show", name, "--property=LoadState,ActiveState,UnitFileState,NeedDaemonReload"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    except OSError:
        return {}
    return dict(line.split("=", 1) for line in done.stdout.splitlines() if "=" in line)


def addresses() -> dict[str, list[str]]:
    """Network card -> its IPv4 addresses."""
    try:
        done = subprocess.run(["ip", "-json", "-4", "address"], capture_output=True, text=True, timeout=20, check=False)
        cards = json.loads(done.stdout or "[]")
    except (OSError, ValueError):
        return {}
    return {
        card["ifname"].split("@")[0]: [one["local"] for one in card.get("addr_info", []) if one.get("local")]
        for card in cards
        if card.get("ifname")
    }


def user_of(name: str) -> int | None:
    """The uid of a user, or None."""
    try:
        return pwd.getpwnam(name).pw_uid
    except KeyError:
        return None


def instance_of(name: str) -> dict[str, Any]:
    """Everything about one instance."""
    identity = json_of(f"/var/lib/mq/{name}/identity.json")
    return {
        "options": text_of(f"/etc/mq/{name}/broker.toml"),
        "users": text_of(f"/var/lib/mq/{name}/users.json"),
        "certificates": hashes_of(f"/etc/mq/{name}/tls", CERTIFICATES),
        "node_id": identity.get("node_id") if isinstance(identity, dict) else None,
        "loaded": {
            "release": link_of(f"/run/mq/{name}/loaded/release"),
            "options": text_of(f"/run/mq/{name}/loaded/broker.toml"),
            "users": text_of(f"/run/mq/{name}/loaded/users.json"),
            "unit_file": text_of(f"/run/mq/{name}/loaded/mqbroker@.service"),
            "certificates": hashes_of(f"/run/mq/{name}/loaded", CERTIFICATES),
        },
        "unit": unit_of(f"mqbroker@{name}.service"),
    }


def traces(root: str = "") -> dict[str, list[str]]:
    """Instance -> every place that has something of it, whoever put it there."""
    found: dict[str, list[str]] = {}
    for trace in TRACES:
        pattern = trace.pattern.replace("[^/]+", "*").replace("(*)", "*").replace("\\.", ".")
        for path in sorted(glob.glob(root + pattern)):
            match = trace.fullmatch(path[len(root) :])
            if match and os.path.lexists(path):
                found.setdefault(match.group(1), []).append(match.group())
    return found


def running() -> list[str]:
    """Names of the instances that systemd has loaded and that do something."""
    command = ["systemctl", "list-units", "--plain", "--no-legend", "--full", "--state=active,activating,reloading"]
    try:
        done = subprocess.run([*command, "mqbroker@*.service"], capture_output=True, text=True, timeout=20, check=False)
    except OSError:
        return []
    words = (line.split() for line in done.stdout.splitlines())
    return sorted(each[0][len("mqbroker@") : -len(".service")] for each in words if each)


def release_of(current: str = "/opt/mq/current") -> str | None:
    """The current release, where all is there that it runs with: what was cut off, or has lost its Python, is none."""
    if not all(os.path.exists(os.path.join(current, one)) for one in RELEASE_FILES):
        return None
    manifest = json_of(os.path.join(current, "bundle/manifest.json"))
    name = link_of(current)
    return name if isinstance(manifest, dict) and manifest.get("release") == name else None


def main() -> None:
    found = {
        "release": release_of(),
        "uid": user_of("mq"),
        "unit_file": text_of("/etc/systemd/system/mqbroker@.service"),
        "addresses": addresses(),
        "traces": traces(),
        "running": running(),
        "instances": {name: instance_of(name) for name in sys.argv[1:]},
    }
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main()
