"""Whether a host is as the last rollout left it: any difference that a rollout could mend makes it go all the way."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from mqctl.bundle.manifest import File, Manifest
from mqctl.inventory import Host, InventoryCluster
from mqctl.remote import footprint
from mqctl.rollout.settled_hosts import RolloutInputs, inputs_of, is_skippable, tree

FILES = (
    "etc/mq/default/broker.toml", "etc/mq/default/tls/server.key", "etc/systemd/system/mqbroker@.service",
    "etc/systemd/system/mqbroker@default.service.d/stop-timeout.conf", "opt/mq/releases/1.0/complete",
    "var/lib/mq/default/identity.json", "var/lib/mq/default/users.json", "var/lib/mq/default/cluster-secret",
    "var/lib/mq/default/journal/1.log",
)  # fmt: skip


@pytest.fixture
def host(tmp_path: Path) -> Path:
    """The files of a host below a folder, with the mark of a rollout."""
    for name in FILES:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    (tmp_path / "opt/mq/current").symlink_to("releases/1.0")
    footprint.leave("digest", str(tmp_path))
    return tmp_path


def test_a_host_is_settled_once_it_is_marked_and_says_by_what(host: Path) -> None:
    assert footprint.settled(str(host)) == "digest"
    assert (host / "opt/mq/rollout.json").stat().st_mode & 0o777 == 0o600
    footprint.leave("another", str(host))
    assert footprint.settled(str(host)) == "another"


def overwrite(name: str, host: Path) -> None:
    (host / name).write_text("x")


def relink(host: Path) -> None:
    (host / "opt/mq/current").unlink()
    (host / "opt/mq/current").symlink_to("releases/0.9")


CHANGES: dict[str, Callable[[Path], Any]] = {
    **{f"content of {name}": partial(overwrite, name) for name in FILES[:-1]},
    "mode": lambda host: (host / FILES[0]).chmod(0o666),
    "mode of a folder": lambda host: (host / "etc/mq/default").chmod(0o777),
    "a new file": lambda host: (host / "etc/mq/default/tls/old.pem").write_text(""),
    "a drop-in": lambda host: (host / "etc/systemd/system/mqbroker@default.service.d/mine.conf").write_text(""),
    "a file that is gone": lambda host: (host / FILES[1]).unlink(),
    "another release": relink,
    "a release more": lambda host: (host / "opt/mq/releases/0.9").mkdir(),
    "packet filter": lambda host: (host / "etc/systemd/system/mq-firewall.service").write_text(""),
    "no mark": lambda host: (host / "opt/mq/rollout.json").unlink(),
    "a mark that is none": lambda host: (host / "opt/mq/rollout.json").write_text("[]"),
    "half a mark": lambda host: (host / "opt/mq/rollout.json").write_text('{"inputs": "digest"'),
}


@pytest.mark.parametrize("change", CHANGES)
def test_whatever_is_changed_on_a_host_unsettles_it(host: Path, change: str) -> None:
    CHANGES[change](host)
    assert footprint.settled(str(host)) == ""


def test_another_owner_unsettles_it(host: Path) -> None:
    if os.geteuid() != 0:
        before = footprint.entry_of(str(host / FILES[0]))
        assert before[2:4] == [os.geteuid(), os.getegid()]
        return
    os.chown(host / FILES[0], 4711, 4711)
    assert footprint.settled(str(host)) == ""


def test_messages_change_nothing(host: Path) -> None:
    (host / FILES[-1]).write_text("more messages")
    (host / "var/lib/mq/default/journal/2.log").write_text("")
    assert footprint.settled(str(host)) == "digest"


def test_the_program_says_it_as_json(host: Path, capsys: pytest.CaptureFixture[str], monkeypatch: Any) -> None:
    monkeypatch.setattr("sys.argv", ["footprint.py"])
    footprint.main()
    assert set(json.loads(capsys.readouterr().out)) == {"settled"}


MANIFEST = Manifest(
    "1.0", "1.0-abc", "3.11", "cp311", "linux", "x86_64", "2.36", "0" * 64, (File("a.whl", "1" * 64, 7),)
)
SECRET = {"mq_cluster_secret": "a secret of the cluster", "mq_cluster_name": "main"}


def cluster(**other: Any) -> InventoryCluster:
    hosts = (Host("mq1", "main", dict(SECRET), {}), Host("mq2", "main", SECRET | other, {}))
    return InventoryCluster("main", hosts, (), ())


def digest(of: InventoryCluster, made: RolloutInputs) -> str:
    return inputs_of(of, of.hosts[0], made)


def test_all_that_goes_into_a_rollout_counts(tmp_path: Path) -> None:
    key = tmp_path / "server.key"
    key.write_text("key")
    made = RolloutInputs(MANIFEST, "tree", [key])
    first = digest(cluster(), made)
    assert digest(cluster(), made) == first
    others = [
        inputs_of(cluster(), cluster().hosts[1], made),
        digest(cluster(mq_tls="off"), made),
        digest(cluster(), RolloutInputs(replace(MANIFEST, release="1.0-abd"), "tree", [key])),
        digest(cluster(), RolloutInputs(MANIFEST, "another tree", [key])),
        digest(cluster(), RolloutInputs(MANIFEST, "tree")),
    ]
    key.write_text("another key")
    others.append(digest(cluster(), made))
    assert len({first, *others}) == 1 + len(others)


def test_roles_playbooks_and_modules_count_and_what_python_leaves_does_not(tmp_path: Path) -> None:
    digests = []
    for name in ("roles/a.yml", "playbooks/b.yml", "plugins/c.py"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text("x")
        digests.append(tree(tmp_path))
    assert len(set(digests)) == 3
    (tmp_path / "plugins/__pycache__").mkdir()
    (tmp_path / "plugins/__pycache__/c.pyc").write_text("x")
    assert tree(tmp_path) == digests[-1]


def test_hosts_with_packet_filter_rules_always_get_the_playbook() -> None:
    plain = {"mq_cluster_name": "main", "mq_cluster_secret": "0123456789abcdef"}
    assert is_skippable(Host("mq1", "main", plain, {}))
    assert not is_skippable(Host("mq1", "main", plain | {"mq_firewall": True}, {}))
