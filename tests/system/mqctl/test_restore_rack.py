"""A host of three loses its data under traffic and gets its backup again, by mqctl and by playbooks, on real hosts.

The control node is lost in the middle of the restore. The tests are one story and run in their order. Needs root and
the rack.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.patience import wait_until
from tests.support.rack_site import RACK, Rack, Site, site_on
from tests.support.rack_traffic import OPTIONS, inside, traffic_of, uris
from tests.system.mqctl.test_plain_playbooks import ANSIBLE

pytestmark = [pytest.mark.system, pytest.mark.timeout(1500)]

rack = Rack("restore")
DATA = "/var/lib/mq/default"
OLD = 3000


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with site_on(rack, "3", folder=tmp_path_factory.mktemp("restore") / "site") as one:
        one.set_options(OPTIONS)
        one.run("rollout", "--yes")
        whole(one)
        yield one


def whole(site: Site) -> None:
    """Each is linked with both others."""
    site.run("health", "--until-healthy", "--timeout", "120")
    wait_until(lambda: {row["links_up"] for row in site.rows("status")} == {"2/2"}, "all links are up")


def on_host(*words: str) -> str:
    return rack("exec", "mq3", "--", *words)


def clients(
    site: Site, name: str, producers: tuple[str, ...], consumers: tuple[str, ...], **old: Any
) -> dict[str, Any]:
    """As rack_load wants it. `old`: the backlog."""
    uri = uris(site)
    own = {"queue": f"{name}-old", "uri": uri(producers[0]), "count": 10, "read_from": uri(producers[0])}
    return {
        "queue": name, "producers": {host: uri(host) for host in producers},
        "consumers": {host: uri(host) for host in consumers}, "backlog": {**own, **old},
    }  # fmt: skip


def nothing_violated(verdict: dict[str, Any]) -> None:
    assert verdict["violations"] == [], verdict


def counts(site: Site, queue: str) -> dict[str, int]:
    """Host -> messages in its queue of this name."""
    return {row["host"]: row["messages"] for row in site.rows("queue", "list") if row["queue"] == queue}


def read_once(site: Site, queue: str, count: int) -> None:
    """Each of the numbered messages at mq3 is there, once and in its order; they are read."""
    assert inside(site, "read", uris(site)("mq3"), queue, count) == []


def play(site: Site, playbook: str, *words: str) -> str:
    """What a playbook said that is run without mqctl."""
    command = [sys.executable, str(RACK), "enter", "--", str(ANSIBLE), f"mqops.cluster.{playbook}", "-i"]
    done = subprocess.run(
        [*command, "inventory.yml", *words], cwd=site.folder, env=site.environment, capture_output=True, text=True,
        timeout=600, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return " ".join(done.stdout.split())


def killed_while_it_copies(site: Site, *words: str) -> None:
    """A restore whose processes on the control node are all killed; a pipe in the place of a file holds it up there."""
    kept = min((site.folder / "kept" / "files").iterdir())
    aside = kept.rename(site.folder / "aside")
    os.mkfifo(kept)
    try:
        with subprocess.Popen(
            site.command(*words), cwd=site.folder, env=site.environment, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        ) as process:  # fmt: skip
            wait_until(lambda: process.poll() is not None or on_host("sh", "-c", f"ls -d {DATA}/restoring || true"))
            assert process.poll() is None
            site.kill_everything()
            process.wait(60)
    finally:
        kept.unlink()
        aside.rename(kept)
    wait_until(lambda: not on_host("sh", "-c", "pgrep -f '[b]ackup take' || true"), "the host's half has ended")


def test_a_node_that_lost_its_data_has_what_its_backup_had_and_the_cluster_goes_on(site: Site) -> None:
    with traffic_of(site, clients(site, "first", ("mq3", "mq1"), ("mq2", "mq1"), queue="old", count=OLD)) as traffic:
        (made,) = site.rows("backup", "create", "kept", "--host", "mq3")
        assert made["messages"] >= OLD
        nothing_violated(traffic.verdict())  # the broker went on, and its messages are consumed, after the backup
    with traffic_of(site, clients(site, "second", ("mq1", "mq2"), ("mq2", "mq1"))) as traffic:
        on_host("systemctl", "kill", "--signal=KILL", "mqbroker@default")
        on_host("systemctl", "stop", "mqbroker@default")
        on_host("rm", "-r", f"{DATA}/identity.json", f"{DATA}/journal")
        words = ("backup", "restore", "kept", str(made["id"]), "--host", "mq3", "--yes", "--keep-node-id")
        killed_while_it_copies(site, *words)
        site.was_killed = True
        held = site.run(*words, code=1).stderr
        assert "(mqctl backup restore kept " in held
        assert "nothing was changed on any host" in held
        assert "mqctl backup restore" in site.run("rollout", "--yes", code=1).stderr
        assert {row["state"] for row in site.rows("operation", "show")} == {"held"}
        receipt = site.document(*words, "--resume")
        assert receipt["balances"]
        assert {row["queue"]: row["restored"] for row in receipt["rows"]}["old"] == OLD
        assert {row["state"] for row in site.rows("operation", "show")} == {"free"}
        on_host("systemctl", "start", "mqbroker@default")
        whole(site)
        nothing_violated(traffic.verdict())
    with traffic_of(site, clients(site, "third", ("mq3", "mq1"), ("mq2", "mq1"))) as traffic:
        nothing_violated(traffic.verdict())  # what is new of mq3 is taken for new
    # Nobody reads there any more: what was on its way when the backup was made, and is sent again, is known there. How
    # much that is depends on the moment; tests/sim/test_old_copies.py puts back copies of many moments.
    found = counts(site, "first")
    assert {name: found.get(name, 0) for name in ("mq1", "mq2")} == {"mq1": 0, "mq2": 0}, "none of it came again"


def test_the_playbooks_do_the_same(site: Site) -> None:
    made = play(site, "backup", "-e", "mq_backup_folder=/srv/backups", "--limit", "mq3")
    (backup,) = (Path(name).stem for name in on_host("ls", "/srv/backups/backups").split())
    assert f"{backup}: " in made
    read_once(site, "old", OLD)  # comes again with the backup
    on_host("systemctl", "stop", "mqbroker@default")
    words = ("-e", "mq_restore=mq3", "-e", f"mq_restore_backup={backup}")
    play(site, "restore", "-e", "mq_backup_folder=/srv/backups", *words)
    on_host("systemctl", "start", "mqbroker@default")
    whole(site)
    read_once(site, "old", OLD)
    assert site.document("plan")["rows"] == []
