"""What a running broker needs, found by the real `mqbroker config diff` on files like those of a host."""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from ansible_collections.mqops.cluster.plugins.module_utils import loaded
from ansible_collections.mqops.cluster.plugins.module_utils.command import CommandFault
from ansible_collections.mqops.cluster.plugins.module_utils.loaded import Places, Wanted

pytestmark = pytest.mark.slow  # each test starts programs

MQBROKER = str(Path(sys.executable).parent / "mqbroker")
RUNS = {"ActiveState": "active", "UnitFileState": "enabled"}
OPTIONS = '[node]\nname = "default"\n\n[limits]\nlink-credit = 5\n'
RELOADABLE = OPTIONS.replace("[node]\n", "[node]\nstop-timeout-ms = 400\n")
RESTARTING = OPTIONS.replace("link-credit = 5", "link-credit = 7")
COMMENTED = "# hello\n" + OPTIONS


def sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


@dataclass(frozen=True)
class Host:
    """A host on which one broker runs exactly what is installed."""

    root: Path
    places: Places

    def taken(self, **files: str) -> None:
        """What the process has recorded: what it took of the users, and of certificates by their names."""
        paths = {"users": self.places.users("default")}
        digests = {
            paths.get(name) or self.places.certificate("default", name.replace("_", ".")): sha256(text)
            for name, text in files.items()
        }
        self.write("run/default/loaded/files.json", json.dumps({"schema": 1, "files": digests}))

    def write(self, path: str, text: str) -> None:
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        (self.root / path).write_text(text)

    def link(self, path: str, target: str) -> None:
        (self.root / path).unlink(missing_ok=True)
        (self.root / path).symlink_to(target)

    def due(self, wanted: Wanted = Wanted(), **unit: str) -> tuple[str, list[str]]:  # noqa: B008
        made = loaded.due("default", wanted, {**RUNS, **unit}, MQBROKER, self.places)
        return made.needs, made.why


@pytest.fixture
def host(tmp_path: Path) -> Host:
    places = Places(*(str(tmp_path / name) for name in ("current", "etc", "run", "data", "units")))
    made = Host(tmp_path, places)
    for file in ("etc/default/broker.toml", "run/default/loaded/broker.toml", "run/default/loaded/started.toml"):
        made.write(file, OPTIONS)
    made.write("data/default/users.json", "{}")
    made.taken(users="{}")
    for folder in ("units", "run/default/loaded"):
        made.write(f"{folder}/mqbroker@.service", "[Unit]\n")
    made.link("current", "releases/1.0.0-aaaaaaaa")
    made.link("run/default/loaded/release", "releases/1.0.0-aaaaaaaa")
    return made


def test_nothing_differs(host: Host) -> None:
    assert host.due() == ("none", [])
    assert host.due(Wanted("1.0.0-aaaaaaaa", "[Unit]\n", OPTIONS)) == ("none", [])


CASES: dict[str, tuple[Callable[[Host], None], tuple[str, list[str]]]] = {
    "options that are taken on reload": (
        lambda host: host.write("etc/default/broker.toml", RELOADABLE),
        ("reload", ["options changed: node.stop-timeout-ms"]),
    ),
    "options that are read at start": (
        lambda host: host.write("etc/default/broker.toml", RESTARTING),
        ("restart", ["options changed: limits.link-credit"]),
    ),
    "a comment": (lambda host: host.write("etc/default/broker.toml", COMMENTED), ("none", [])),
    "users": (lambda host: host.write("data/default/users.json", '{"a": 1}'), ("reload", ["users changed"])),
    "first users": (lambda host: host.taken(), ("reload", ["users changed"])),
    "users that are gone": (
        lambda host: (host.root / "data/default/users.json").unlink(),
        ("reload", ["users changed"]),
    ),
    "a reload that was refused": (
        lambda host: host.write("run/default/loaded/broker.toml", RELOADABLE),
        ("reload", ["options changed: node.stop-timeout-ms"]),
    ),
    "options that a reload brought and that wait for a restart": (
        lambda host: (
            host.write("etc/default/broker.toml", RESTARTING),
            host.write("run/default/loaded/broker.toml", RESTARTING),
        ),
        ("restart", ["options changed: limits.link-credit"]),
    ),
    "options that waited for a restart and were taken back": (
        lambda host: host.write("run/default/loaded/broker.toml", RESTARTING),
        ("none", []),
    ),
    "a record that nobody can read": (
        lambda host: host.write("run/default/loaded/files.json", "[1]"),
        ("reload", ["users changed"]),
    ),
    "the unit": (lambda host: host.write("units/mqbroker@.service", "[Service]\n"), ("restart", ["the unit changed"])),
    "the release": (
        lambda host: host.link("current", "releases/1.1.0-bbbbbbbb"),
        ("restart", ["it runs release 1.0.0-aaaaaaaa"]),
    ),
    "a release of the same name that lies elsewhere": (
        lambda host: host.link("run/default/loaded/release", "/tmp/1.0.0-aaaaaaaa"),
        ("restart", ["it runs release /tmp/1.0.0-aaaaaaaa"]),
    ),
    "started by another unit": (
        lambda host: (host.root / "run/default/loaded/release").unlink(),
        ("restart", ["nothing says what it was started with"]),
    ),
    "options that an older release wrote": (
        lambda host: host.write("run/default/loaded/started.toml", "[gone]\n"),
        ("restart", ["options changed: the old file cannot be used: gone: "]),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_what_is_installed_differs_from_what_runs(host: Host, case: str) -> None:
    change, (needs, why) = CASES[case]
    change(host)
    found_needs, found_why = host.due()
    assert found_needs == needs
    assert len(found_why) == len(why)
    assert all(found.startswith(expected) for found, expected in zip(found_why, why, strict=True))


def test_certificates_are_reloaded(host: Host) -> None:
    one, other = sha256("one"), sha256("other")
    host.write("etc/default/tls/server.pem", "one")
    host.taken(users="{}", server_pem="one")
    assert host.due() == ("none", [])
    assert host.due(Wanted(certificates={"server.pem": one})) == ("none", [])
    assert host.due(Wanted(certificates={"server.pem": other})) == (
        "reload", ["server.pem differs", "certificates changed"],
    )  # fmt: skip
    host.write("etc/default/tls/server.pem", "other")
    assert host.due() == ("reload", ["certificates changed"])
    assert host.due(Wanted(certificates={"server.pem": other})) == ("reload", ["certificates changed"])
    # Where there is to be no TLS, options say so, and a restart.
    assert host.due(Wanted(certificates={})) == ("none", [])
    host.write("etc/default/tls/ca.pem", "new")
    host.taken(users="{}", server_pem="other")
    assert host.due() == ("reload", ["certificates changed"])
    host.taken(users="{}", server_pem="other", ca_pem="new")
    assert host.due() == ("none", [])


def test_whatever_else_the_process_has_taken_is_compared_with_what_is_there(host: Host) -> None:
    host.write("etc/default/tls/server.key", "one")
    host.taken(users="{}", server_key="one")
    assert host.due() == ("none", [])
    host.write("etc/default/tls/server.key", "other")
    assert host.due() == ("reload", [f"{host.root}/etc/default/tls/server.key changed"])


def test_several_differences_need_the_strongest(host: Host) -> None:
    host.write("etc/default/broker.toml", RESTARTING)
    host.write("data/default/users.json", '{"a": 1}')
    assert host.due() == ("restart", ["options changed: limits.link-credit", "users changed"])


def test_what_is_wanted_and_not_yet_installed(host: Host) -> None:
    """A check says what a rollout would do, before any file is there."""
    needs, why = host.due(Wanted("1.1.0-bbbbbbbb", "[Service]\n", RELOADABLE))
    assert needs == "restart"
    assert why == [
        "release 1.1.0-bbbbbbbb is not the current one",
        "the unit file differs",
        "broker.toml differs",
        "it runs release 1.0.0-aaaaaaaa",
        "the unit changed",
        "options changed: node.stop-timeout-ms",
    ]


@pytest.mark.parametrize("state", ["inactive", "failed", "deactivating"])
def test_a_broker_that_does_not_run_needs_a_start(host: Host, state: str) -> None:
    host.write("etc/default/broker.toml", RESTARTING)
    assert host.due(ActiveState=state) == ("start", ["it does not run"])


def test_a_broker_between_two_attempts_to_start(host: Host) -> None:
    (host.root / "run/default/loaded/release").unlink()
    assert host.due(ActiveState="activating") == ("start", ["it does not run yet"])


def test_a_broker_that_does_not_start_at_boot_is_left_running(host: Host) -> None:
    assert host.due(UnitFileState="disabled") == ("none", ["it does not start at boot"])


def test_a_host_on_which_nothing_is(tmp_path: Path) -> None:
    places = Places(*(str(tmp_path / name) for name in ("current", "etc", "run", "data", "units")))
    made = loaded.due("default", Wanted("1.0.0-aaaaaaaa", "[Unit]\n", OPTIONS), {}, MQBROKER, places)
    assert made.needs == "start"
    assert made.why[-2:] == ["it does not start at boot", "it does not run"]


def test_options_that_the_broker_refuses_name_their_place(host: Host) -> None:
    host.write("etc/default/broker.toml", "[limits]\nlink-credit = 0\n")
    with pytest.raises(CommandFault, match=r"etc/default/broker\.toml: limits\.link-credit"):
        host.due()
    (host.root / "etc/default/broker.toml").unlink()
    with pytest.raises(CommandFault, match="is missing"):
        host.due()


def test_small_readers(tmp_path: Path) -> None:
    assert loaded.link_name(str(tmp_path)) == ""
    assert loaded.text_of(str(tmp_path / "nothing")) is None
    assert loaded.sha256_of(str(tmp_path / "nothing")) == ""
    os.symlink("releases/b", tmp_path / "link")
    assert loaded.link_name(str(tmp_path / "link")) == "b"
    os.symlink("/tmp/releases/b", tmp_path / "astray")
    assert loaded.link_name(str(tmp_path / "astray")) == "/tmp/releases/b"
