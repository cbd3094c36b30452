# Copyright: mqops maintainers
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""What a running broker has loaded, against what it should run with: nothing to do, a reload, a restart, or a start.

A directory that lives as long as the process, `/run/mq/<instance>/loaded/`, says what it runs with. So the need is
found in the state of the host and not in what a playbook has just changed: a run that was cut off between a file and
its restart is completed by the next one, and a broker that came up at boot needs nothing. The first two are put there
by the unit as the process starts, the others by the process itself, which knows what it took and what it refused
(`mqbroker run --record`).

    release             link, as /opt/mq/current was
    mqbroker@.service   the unit
    started.toml        the options that it began with
    broker.toml         the options that it has taken last
    files.json          SHA-256 of every other file that is in force: users, secret, certificates and keys
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field

from ansible_collections.mqops.cluster.plugins.module_utils import command

ALIVE = ("active", "reloading", "activating")
STRENGTH = ("none", "reload", "restart", "start")
UNIT_FILE = "mqbroker@.service"
CERTIFICATES = ("server.pem", "ca.pem")


@dataclass(frozen=True)
class Places:
    """Where things are. Tests have places of their own."""

    current: str = command.CURRENT
    etc: str = "/etc/mq"
    run: str = "/run/mq"
    data: str = "/var/lib/mq"
    units: str = "/etc/systemd/system"

    def loaded(self, instance: str, name: str) -> str:
        """What the process of an instance has loaded."""
        return os.path.join(self.run, instance, "loaded", name)

    def options(self, instance: str) -> str:
        """The options of an instance."""
        return os.path.join(self.etc, instance, "broker.toml")

    def certificate(self, instance: str, name: str) -> str:
        """A file of certificates of an instance."""
        return os.path.join(self.etc, instance, "tls", name)

    def users(self, instance: str) -> str:
        """The users of an instance."""
        return os.path.join(self.data, instance, "users.json")


PLACES = Places()


@dataclass(frozen=True)
class Wanted:
    """What should run. None stands for what is installed now. `certificates`: file -> SHA-256."""

    release: str | None = None
    unit: str | None = None
    options: str | None = None
    certificates: Mapping[str, str] | None = None


@dataclass
class Due:
    """What is to be done. `needs` is for the service; `why` names every difference, also those that need nothing."""

    needs: str = "none"
    why: list[str] = field(default_factory=list)

    def add(self, needs: str, why: str) -> None:
        """Take one difference."""
        self.needs = max(self.needs, needs, key=STRENGTH.index)
        self.why.append(why)


def due(
    instance: str,
    wanted: Wanted,
    unit: Mapping[str, str],
    executable: str = command.EXECUTABLE,
    places: Places = PLACES,
) -> Due:
    """Compare. `unit`: properties of the unit. Raises CommandFault."""
    made = Due()
    _installed(made, instance, wanted, places)
    if unit.get("UnitFileState") != "enabled":
        made.add("none", "it does not start at boot")
    if unit.get("NeedDaemonReload") == "yes":
        made.add("none", "systemd has not read its unit as it is now")
    if unit.get("ActiveState") not in ALIVE:
        made.add("start", "it does not run")
        return made
    if not os.path.lexists(places.loaded(instance, "release")):
        if unit.get("ActiveState") == "activating":
            # Between two attempts to start there is no process that could have loaded anything.
            made.add("start", "it does not run yet")
        else:
            made.add("restart", "nothing says what it was started with")
        return made
    running = link_name(places.loaded(instance, "release"))
    if running != (wanted.release or link_name(places.current)):
        made.add("restart", f"it runs release {running}")
    if text_of(places.loaded(instance, UNIT_FILE)) != _unit(wanted, places):
        made.add("restart", "the unit changed")
    need, why = _options(instance, wanted, executable, places)
    if need != "none":
        made.add(need, why)
    _files(made, instance, wanted, places)
    return made


def _files(made: Due, instance: str, wanted: Wanted, places: Places) -> None:
    """What is in force of files beside the options, against what they hold now."""
    taken = files_of(places.loaded(instance, "files.json"))
    users = places.users(instance)
    if taken.get(users, "") != sha256_of(users):
        made.add("reload", "users changed")
    certificates = [(places.certificate(instance, name), one) for name, one in _certificates(instance, wanted, places)]
    if any(taken.get(path, "") != digest for path, digest in certificates):
        made.add("reload", "certificates changed")
    told = {users, *(places.certificate(instance, name) for name in CERTIFICATES)}
    for path, digest in taken.items():
        if path not in told and digest != sha256_of(path):
            made.add("reload", f"{path} changed")


def _installed(made: Due, instance: str, wanted: Wanted, places: Places) -> None:
    """Differences between what is wanted and what is on the disk. What needs more than writing it is found later."""
    if wanted.release is not None and link_name(places.current) != wanted.release:
        made.add("none", f"release {wanted.release} is not the current one")
    if wanted.unit is not None and text_of(os.path.join(places.units, UNIT_FILE)) != wanted.unit:
        made.add("none", "the unit file differs")
    if wanted.options is not None and text_of(places.options(instance)) != wanted.options:
        made.add("none", "broker.toml differs")
    for name, digest in (wanted.certificates or {}).items():
        if sha256_of(places.certificate(instance, name)) != digest:
            made.add("none", f"{name} differs")


def _certificates(instance: str, wanted: Wanted, places: Places) -> list[tuple[str, str]]:
    """(file, SHA-256) of those that a process of the instance is to have read."""
    if wanted.certificates is not None:
        return list(wanted.certificates.items())
    found = [(name, sha256_of(places.certificate(instance, name))) for name in CERTIFICATES]
    return [(name, digest) for name, digest in found if digest]


def _unit(wanted: Wanted, places: Places) -> str | None:
    return wanted.unit if wanted.unit is not None else text_of(os.path.join(places.units, UNIT_FILE))


def _options(instance: str, wanted: Wanted, executable: str, places: Places) -> tuple[str, str]:
    before, started = places.loaded(instance, "broker.toml"), places.loaded(instance, "started.toml")
    after = wanted.options if wanted.options is not None else text_of(places.options(instance))
    if after is None:
        raise command.CommandFault(f"{places.options(instance)} is missing; roll out again")
    if text_of(before) == text_of(started) == after:
        return "none", ""
    with tempfile.NamedTemporaryFile("w", suffix=".toml", encoding="utf-8") as file:
        file.write(after)
        file.flush()
        answer = command.run(["config", "diff", "--json", "--started", started, before, file.name], executable)
    if answer.code not in (command.DONE, command.DIFFERENT):
        raise command.CommandFault(answer.complaint.replace(file.name, places.options(instance)))
    found = answer.json()
    names = ", ".join(row["option"] for row in found["changes"]) or found["note"]
    return found["verdict"], f"options changed: {names}"


def files_of(path: str) -> dict[str, str]:
    """File -> SHA-256 of what a process has taken of it, as its record says; nothing where there is none."""
    try:
        found = json.loads(text_of(path) or "{}")["files"]
    except (ValueError, LookupError, TypeError):
        return {}
    return {str(name): str(digest) for name, digest in found.items()} if isinstance(found, dict) else {}


def link_name(path: str) -> str:
    """The release that a link leads to; "" where there is no link. One that leads elsewhere is said whole."""
    try:
        target = os.readlink(path)
    except OSError:
        return ""
    folder, name = os.path.split(target)
    return name if folder == "releases" else target


def text_of(path: str) -> str | None:
    """The content of a file, None where there is none."""
    try:
        with open(path, encoding="utf-8", errors="replace", newline="") as file:
            return file.read()
    except OSError:
        return None


def sha256_of(path: str) -> str:
    """Of a file; "" where there is none."""
    try:
        with open(path, "rb") as file:
            return hashlib.sha256(file.read()).hexdigest()
    except OSError:
        return ""
