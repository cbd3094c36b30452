"""Host keys: which keys known_hosts files have for a server, and what to do with one that they do not have.

paramiko's own reader knows no patterns and no markers, so the lines are read here (sshd(8), SSH_KNOWN_HOSTS FILE
FORMAT). A certificate authority cannot be honoured, since paramiko checks no host certificates: it is named when a
key is unknown.
"""

from __future__ import annotations

import fnmatch
import threading
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import paramiko

from mqctl.ssh.settings import Hop

_append_lock = threading.Lock()


@dataclass(slots=True)
class KnownKeys:
    """What the files say of one server."""

    keys: list[paramiko.PKey] = field(default_factory=list)
    revoked: set[str] = field(default_factory=set)
    has_authority: bool = False


class HostKeyRefused(paramiko.SSHException):
    """The server showed a key that must not be trusted."""


def known_keys(lines: Iterable[str], name: str) -> KnownKeys:
    """Keys of the server `name` out of the lines of known_hosts files."""
    known = KnownKeys()
    for line in lines:
        fields = line.split()
        if not fields or fields[0].startswith("#"):
            continue
        marker = fields.pop(0) if fields[0].startswith("@") else ""
        if len(fields) < 3 or not matches(fields[0], name):
            continue
        if marker == "@cert-authority":
            known.has_authority = True
        elif marker == "@revoked":
            known.revoked.add(fields[2])
        else:
            entry = _entry(name, fields[1], fields[2])
            if entry is not None:
                known.keys.append(entry)
    known.keys = [key for key in known.keys if key.get_base64() not in known.revoked]
    return known


def matches(patterns: str, name: str) -> bool:
    """Whether the first field of a line stands for `name`: hashed, or a list of patterns with negations."""
    if patterns.startswith("|1|"):
        try:
            return paramiko.HostKeys.hash_host(name, patterns) == patterns
        except ValueError:
            return False
    wanted = patterns.split(",")
    if any(one.startswith("!") and _matches_one(one[1:], name) for one in wanted):
        return False
    return any(_matches_one(one, name) for one in wanted if not one.startswith("!"))


def _matches_one(pattern: str, name: str) -> bool:
    # Only * and ? are special in known_hosts; brackets are part of names with ports.
    return fnmatch.fnmatchcase(name.lower(), pattern.lower().replace("[", "[[]"))


def _entry(name: str, key_type: str, key: str) -> paramiko.PKey | None:
    try:
        entry = paramiko.hostkeys.HostKeyEntry.from_line(f"{name} {key_type} {key}")
    except (paramiko.SSHException, paramiko.hostkeys.InvalidHostKey, ValueError):
        return None
    return entry.key if entry is not None else None


def read(hop: Hop) -> KnownKeys:
    """What the files of `hop` say of it. Files that are not there say nothing."""
    lines: list[str] = []
    for name in hop.known_hosts_files:
        try:
            lines += Path(name).expanduser().read_text(errors="replace").splitlines()
        except OSError:
            continue
    return known_keys(lines, hop.known_hosts_name)


class HostKeyPolicy(paramiko.MissingHostKeyPolicy):
    """Decides on a key that the files do not have. `may_send_password` is off once a changed key was let through."""

    def __init__(self, hop: Hop, known: KnownKeys) -> None:
        self.hop = hop
        self.known = known
        self.may_send_password = True

    def missing_host_key(self, client: paramiko.SSHClient, hostname: str, key: paramiko.PKey) -> None:
        """Called by paramiko; returning means that the key is trusted."""
        fingerprint = key.fingerprint
        if key.get_base64() in self.known.revoked:
            raise HostKeyRefused(f"the host key {fingerprint} of {self.hop} is marked @revoked in known_hosts")
        if self.hop.host_keys == "no":
            self.may_send_password = not self.known.keys or key in self.known.keys
            return
        if self.hop.host_keys == "accept-new":
            self._remember(hostname, key)
            return
        why = f"the host key {fingerprint} of {self.hop} is in none of {' '.join(self.hop.known_hosts_files)}"
        if self.known.has_authority:
            why += " (their @cert-authority line cannot be honoured by mqctl)"
        raise HostKeyRefused(why)

    def _remember(self, hostname: str, key: paramiko.PKey) -> None:
        path = Path(self.hop.known_hosts_files[0]).expanduser() if self.hop.known_hosts_files else None
        if path is None or path == Path("/dev/null"):
            return
        with _append_lock:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with path.open("a") as file:
                file.write(f"{hostname} {key.get_name()} {key.get_base64()}\n")
