"""Says as one JSON document what is on this host: sent to it by `mqctl plan`, run as root, changes nothing.

Standard library only, and of Python 3.9 at that: it runs before anything of ours is installed.
"""

from __future__ import annotations

import base64
import glob
import grp
import hashlib
import json
import os
import pwd
import re
import stat
import subprocess
import sys
from typing import Any

CERTIFICATES = ("server.pem", "ca.pem")
# release_files.py looks for the same ones before it looks into them.
RELEASE_FILES = ("complete", "bundle/manifest.json", "bin/python", "bin/mqbroker")
# Where there is something of an instance, by its name.
TRACES = (
    re.compile(r"/etc/mq/([^/]+)"),
    re.compile(r"/var/lib/mq/([^/]+)"),
    re.compile(r"/etc/systemd/system/mqbroker@([^/]+)\.service\.d"),
    re.compile(r"/etc/systemd/system/[^/]+\.wants/mqbroker@([^/]+)\.service"),
)
# The root of a file system, as /var/lib/mq may be, has this folder; it belongs to no instance.
MADE_BY_MKFS = "lost+found"
# What roles write, as whole folders and one by one. Messages and logs are none of it.
TREES = ("/etc/mq", "/etc/mq-firewall", "/etc/systemd/system/mqbroker@*.service.d")
FILES = (
    "/etc/systemd/system/mqbroker@*.service",
    "/etc/systemd/system/mq-firewall.service",
    "/opt/mq",
    "/opt/mq/current",
    "/opt/mq/releases",
    "/opt/mq/releases/*",
    "/var/lib/mq",
    "/var/lib/mq/*",
    "/var/lib/mq/*/identity.json",
    "/var/lib/mq/*/users.json",
    "/var/lib/mq/*/cluster-secret",
)
PLACES_MAX = 20_000


def text_of(path: str) -> str | None:
    """The content of a file in base64, or None where there is none. What is no file has no content."""
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            return ""
        with open(path, "rb") as file:
            return base64.b64encode(file.read()).decode()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError:  # a link that leads to itself, a disk that fails
        return ""


def json_of(path: str) -> Any:
    """A JSON file, or None."""
    try:
        with open(path) as file:
            return json.load(file)
    except (OSError, ValueError):
        return None


def hashes_of(folder: str, names: tuple[str, ...]) -> dict[str, str]:
    """SHA-256 of those files that are there."""
    hashes = {}
    for name in names:
        try:
            with open(os.path.join(folder, name), "rb") as file:
                hashes[name] = hashlib.sha256(file.read()).hexdigest()
        except OSError:
            continue
    return hashes


def taken_by(path: str) -> dict[str, str]:
    """File -> SHA-256 of what a process has taken of it, as its record says; nothing where there is none."""
    record = json_of(path)
    files = record.get("files") if isinstance(record, dict) else None
    return {str(name): str(digest) for name, digest in files.items()} if isinstance(files, dict) else {}


def link_of(path: str) -> str | None:
    """The release that a link leads to, or None. One that leads elsewhere is said whole, whatever its name is there."""
    try:
        target = os.readlink(path)
    except OSError:
        return None
    folder, name = os.path.split(target)
    return name if folder == "releases" else target


def unit_of(name: str) -> dict[str, str]:
    """Properties of a systemd unit."""
    properties = "LoadState,ActiveState,UnitFileState,NeedDaemonReload,FragmentPath"
    command = ["systemctl", "show", name, f"--property={properties}"]
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


def user_of(name: str) -> dict[str, Any] | None:
    """The account of a user, or None."""
    try:
        account = pwd.getpwnam(name)
    except KeyError:
        return None
    return {
        "uid": account.pw_uid,
        "group": group_name(account.pw_gid),
        "home": account.pw_dir,
        "shell": account.pw_shell,
        "comment": account.pw_gecos,
    }


def gid_of(name: str) -> int | None:
    """The number of a group, or None."""
    try:
        return grp.getgrnam(name).gr_gid
    except KeyError:
        return None


def user_name(number: int) -> str:
    """Of the owner of a file; its number where it has none."""
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return str(number)


def group_name(number: int) -> str:
    """Of the group of a file; its number where it has none."""
    try:
        return grp.getgrgid(number).gr_name
    except KeyError:
        return str(number)


def place_of(path: str) -> list[str | None] | None:
    """Kind, owner, group, mode and content of a path; None where it is gone meanwhile."""
    try:
        seen = os.lstat(path)
        kind, content = "other", None
        if stat.S_ISLNK(seen.st_mode):
            kind, content = "link", os.readlink(path)
        elif stat.S_ISDIR(seen.st_mode):
            kind = "folder"
        elif stat.S_ISREG(seen.st_mode):
            with open(path, "rb") as file:
                kind, content = "file", hashlib.sha256(file.read()).hexdigest()
    except OSError:
        return None
    return [kind, user_name(seen.st_uid), group_name(seen.st_gid), f"{stat.S_IMODE(seen.st_mode):04o}", content]


def places(root: str = "") -> dict[str, list[str | None]]:
    """Path -> what it is, for everything that roles write."""
    paths: set[str] = set()
    for pattern in FILES:
        paths.update(glob.glob(root + pattern))
    for pattern in TREES:
        for top in glob.glob(root + pattern):
            paths.add(top)
            for folder, folders, files in os.walk(top):
                paths.update(os.path.join(folder, name) for name in folders + files)
                if len(paths) > PLACES_MAX:
                    sys.exit(f"there are more than {PLACES_MAX} files below {top}")
    by_path = {path[len(root) :]: place_of(path) for path in sorted(paths)}
    return {path: one for path, one in by_path.items() if one is not None}


def is_whole(folder: str) -> bool:
    """Whether all is there that a release runs with. What was cut off, or has lost its Python, is not whole."""
    if not all(os.path.exists(os.path.join(folder, one)) for one in RELEASE_FILES):
        return False
    manifest = json_of(os.path.join(folder, "bundle/manifest.json"))
    return isinstance(manifest, dict) and manifest.get("release") == os.path.basename(folder)


def releases(root: str = "") -> list[list[Any]]:
    """Those that are there, the newest first, each with whether it is whole."""
    folders = [one for one in glob.glob(root + "/opt/mq/releases/*") if os.path.isdir(one) and not os.path.islink(one)]
    newest_first = sorted(folders, key=os.path.getmtime, reverse=True)
    return [[os.path.basename(one), is_whole(one)] for one in newest_first]


def before(root: str = "") -> dict[str, str]:
    """Release -> the one that this host had before it, where it has kept what it needs to go back."""
    by_release = {}
    for path in glob.glob(root + "/opt/mq/before/*.json"):
        note = json_of(path)
        if isinstance(note, dict) and isinstance(note.get("release"), str):
            by_release[os.path.basename(path)[: -len(".json")]] = note["release"]
    return by_release


def identity_of(directory: str, machine: str) -> tuple[str | None, str]:
    """The node id of a data directory, and why no broker may start there: what `mqbroker identity` says as well."""
    file = os.path.join(directory, "identity.json")
    if not os.path.lexists(file):
        journal = os.path.join(directory, "journal")
        is_used = os.path.isdir(journal) and bool(os.listdir(journal))
        return None, f"{journal} holds messages and there is no identity beside it" if is_used else ""
    identity = json_of(file)
    if not isinstance(identity, dict) or not isinstance(identity.get("node_id"), str):
        return None, f"{file} is not an identity"
    if identity.get("machine_id") != machine:
        return identity["node_id"], "it was made on another machine"
    if identity.get("data_directory") != directory:
        return identity["node_id"], f"it was made for {identity.get('data_directory')}"
    return identity["node_id"], ""


def machine_id() -> str:
    """Of this machine; as in `mqbroker identity` where it has none."""
    try:
        with open("/etc/machine-id") as file:
            text = file.read().strip()
    except (OSError, ValueError):
        return "unknown"
    return text if re.fullmatch(r"[0-9a-f]{32}", text) else "unknown"


def instance_of(name: str) -> dict[str, Any]:
    """Everything about one instance."""
    node_id, trouble = identity_of(f"/var/lib/mq/{name}", machine_id())
    taken = taken_by(f"/run/mq/{name}/loaded/files.json")
    return {
        "options": text_of(f"/etc/mq/{name}/broker.toml"),
        "users": text_of(f"/var/lib/mq/{name}/users.json"),
        "certificates": hashes_of(f"/etc/mq/{name}/tls", CERTIFICATES),
        "node_id": node_id,
        "trouble": trouble,
        "loaded": {
            "release": link_of(f"/run/mq/{name}/loaded/release"),
            "started": text_of(f"/run/mq/{name}/loaded/started.toml"),
            "options": text_of(f"/run/mq/{name}/loaded/broker.toml"),
            "unit_file": text_of(f"/run/mq/{name}/loaded/mqbroker@.service"),
            "files": taken,
        },
        "files": hashes_of("", tuple(taken)),
        "unit": unit_of(f"mqbroker@{name}.service"),
    }


def output_of(command: list[str]) -> str | None:
    """What a command says; None where it fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None


def packet_filter() -> dict[str, Any]:
    """Rules in force, and what those in the file come to: they are loaded where nothing comes through."""
    show = "/usr/sbin/nft --stateless list table inet mq"
    load = "/usr/sbin/nft -f /etc/mq-firewall/ruleset.nft"
    has_rules = os.path.exists("/etc/mq-firewall/ruleset.nft")
    unit = unit_of("mq-firewall.service")
    return {
        "loaded": output_of(show.split()),
        "meant": output_of(["unshare", "--net", "/bin/sh", "-c", load + " && " + show]) if has_rules else None,
        "active": unit.get("ActiveState", ""),
        "enabled": unit.get("UnitFileState", ""),
        "origin": origin(),
    }


def origin() -> list[str]:
    """SSH_CONNECTION of the session that this runs in. sudo does not pass it on, so its own parents are asked."""
    number = os.getpid()
    for _ in range(32):
        try:
            with open(f"/proc/{number}/environ", "rb") as file:
                entries = file.read().split(b"\0")
            with open(f"/proc/{number}/stat") as file:
                number = int(file.read().rpartition(")")[2].split()[1])
        except (OSError, ValueError, IndexError):
            return []
        for one in entries:
            if one.startswith(b"SSH_CONNECTION="):
                return one.partition(b"=")[2].decode(errors="replace").split()
    return []


def traces(root: str = "") -> dict[str, list[str]]:
    """Instance -> every place that has something of it, whoever put it there."""
    by_instance: dict[str, list[str]] = {}
    for trace in TRACES:
        pattern = trace.pattern.replace("[^/]+", "*").replace("(*)", "*").replace("\\.", ".")
        for path in sorted(glob.glob(root + pattern)):
            match = trace.fullmatch(path[len(root) :])
            if match and match.group(1) != MADE_BY_MKFS and (os.path.islink(path) or os.path.isdir(path)):
                by_instance.setdefault(match.group(1), []).append(match.group())
    return by_instance


def running() -> list[str]:
    """Names of the instances that systemd has loaded and that do something."""
    command = ["systemctl", "list-units", "--plain", "--no-legend", "--full", "--state=active,activating,reloading"]
    try:
        done = subprocess.run([*command, "mqbroker@*.service"], capture_output=True, text=True, timeout=20, check=False)
    except OSError:
        return []
    words = (line.split() for line in done.stdout.splitlines())
    return sorted(each[0][len("mqbroker@") : -len(".service")] for each in words if each)


def main() -> None:
    document = {
        "release": link_of("/opt/mq/current"),
        "releases": releases(),
        "before": before(),
        "user": user_of("mq"),
        "gid": gid_of("mq"),
        "places": places(),
        "unit_file": text_of("/etc/systemd/system/mqbroker@.service"),
        "addresses": addresses(),
        "filter": packet_filter(),
        "traces": traces(),
        "running": running(),
        "instances": {name: instance_of(name) for name in sys.argv[1:]},
    }
    json.dump(document, sys.stdout)


if __name__ == "__main__":
    main()
