"""What is on the hosts after the rollout."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

from scene import INVENTORIES, NODES, log_in

EXPOSURE_MAX = 1.5
BUNDLE = Path(os.environ["MQ_BUNDLE"])
WORDS = "/run/canary/words"


def test_runs_and_starts_at_boot(node: tuple[Any, str, int]) -> None:
    host, instance, _ = node
    service = host.service(f"mqbroker@{instance}")
    assert service.is_running
    assert service.is_enabled


def test_unit_is_hardened(node: tuple[Any, str, int]) -> None:
    host, instance, _ = node
    text = host.check_output("systemd-analyze security --no-pager mqbroker@%s", instance)
    found = re.search(r"Overall exposure level for \S+: ([0-9.]+)", text)
    assert found is not None, text
    assert float(found[1]) <= EXPOSURE_MAX, text


def test_leaves_no_core_dump(node: tuple[Any, str, int]) -> None:
    host, instance, _ = node
    pid = host.check_output("systemctl show --value --property=MainPID mqbroker@%s", instance)
    (limit,) = (line for line in host.check_output("cat /proc/%s/limits", pid).splitlines() if "core file" in line)
    assert limit.split()[4:6] == ["0", "0"]


def test_runs_as_its_own_user_from_the_current_release(node: tuple[Any, str, int]) -> None:
    host, instance, _ = node
    pid = host.check_output("systemctl show --value --property=MainPID mqbroker@%s", instance)
    assert host.check_output("stat -c %%U /proc/%s", pid) == "mq"
    release = json.loads((BUNDLE / "manifest.json").read_text())["release"]
    assert host.file("/opt/mq/current").linked_to == f"/opt/mq/releases/{release}"
    assert host.check_output("tr '\\0' ' ' </proc/%s/cmdline", pid).split()[1:] == [
        "/opt/mq/current/bin/mqbroker", "run",
        "--config", f"/etc/mq/{instance}/broker.toml",
        "--record", f"/run/mq/{instance}/loaded",
    ]  # fmt: skip


def test_files_belong_to_whom_they_should(node: tuple[Any, str, int]) -> None:
    host, instance, _ = node
    wanted = {
        "/etc/mq": "root:root 755",
        f"/etc/mq/{instance}": "root:mq 750",
        f"/etc/mq/{instance}/broker.toml": "root:mq 640",
        "/etc/systemd/system/mqbroker@.service": "root:root 644",
        "/var/lib/mq": "root:root 755",
        f"/var/lib/mq/{instance}": "mq:mq 700",
        f"/var/lib/mq/{instance}/identity.json": "mq:mq 600",
        f"/var/lib/mq/{instance}/users.json": "mq:mq 600",
        f"/var/lib/mq/{instance}/journal": "mq:mq 700",
        f"/run/mq/{instance}": "mq:mq 750",
        f"/run/mq/{instance}/loaded": "mq:mq 750",
        f"/run/mq/{instance}/admin.sock": "mq:mq 660",
    }
    lines = host.check_output(f"stat -c '%n %U:%G %a' {' '.join(wanted)}").splitlines()
    assert dict(line.split(" ", 1) for line in lines) == wanted


def test_nobody_but_root_can_change_the_release(host: Any) -> None:
    assert host.check_output("find /opt/mq ! -type l '(' ! -user root -o -perm /022 ')'") == ""


def test_listens_on_the_chosen_card_only(host: Any) -> None:
    name = host.check_output("hostname")
    address = host.interface("eth1").addresses[0]
    offsets = [offset for where, _, offset in NODES if where == name]
    wanted = {f"{address}:{port + offset}" for port in (5672, 5673) for offset in offsets}
    # Metrics and health are for this host alone.
    wanted |= {f"127.0.0.1:{9672 + offset}" for offset in offsets}
    lines = [line.split() for line in host.check_output("ss -Hltnp").splitlines()]
    pids = {
        host.check_output("systemctl show --value --property=MainPID mqbroker@%s", instance)
        for where, instance, _ in NODES
        if where == name
    }
    of_brokers = {words[3] for words in lines if any(f"pid={pid}," in words[-1] for pid in pids)}
    assert of_brokers == wanted


def test_broker_says_that_it_is_well(node: tuple[Any, str, int]) -> None:
    host, instance, _ = node
    name = host.check_output("hostname")
    status = json.loads(host.check_output("/opt/mq/current/bin/mqbroker admin --instance %s status", instance))
    identity = json.loads(host.file(f"/var/lib/mq/{instance}/identity.json").content_string)
    assert status["state"] == "active"
    assert status["node"] == (name if instance == "default" else f"{name}-{instance}")
    assert status["node_id"] == identity["node_id"]


def test_each_broker_has_an_id_of_its_own(hosts: dict[str, Any]) -> None:
    ids = {
        json.loads(hosts[name].file(f"/var/lib/mq/{instance}/identity.json").content_string)["node_id"]
        for name, instance, _ in NODES
    }
    assert len(ids) == len(NODES)


def test_users_are_those_of_the_inventory(node: tuple[Any, str, int]) -> None:
    host, instance, _ = node
    listed = host.check_output("/opt/mq/current/bin/mqbroker users list --config /etc/mq/%s/broker.toml", instance)
    users = dict(line.split("\t") for line in listed.splitlines())
    assert users.pop("app") == "client"
    assert users.pop("second") == "client"
    assert list(users.values()) == ["cluster"]


def test_nobody_saw_a_secret_in_the_list_of_processes(host: Any) -> None:
    assert host.service("canary").is_running
    host.check_output("systemctl stop canary")  # the rollouts that it was to look at are over, and nobody asks it again
    assert host.file("/run/canary/seen").content_string == "seen-anyway\n"


def test_no_secret_is_on_the_disk_or_in_the_log(host: Any) -> None:
    places = "/etc /opt /var /tmp /home /root /srv /dev/shm /run/mq /run/log /run/systemd"
    found = host.run(f"grep -r -l -a -F -f {WORDS} --devices=skip {places}")
    assert (found.rc, found.stdout) == (1, ""), found.stdout + found.stderr
    found = host.run("journalctl --no-pager --output=export | grep -a -F -f %s", WORDS)
    assert (found.rc, found.stdout) == (1, "")


def test_the_canaries_would_be_found(host: Any) -> None:
    """The two tests above see what they look for."""
    assert host.run("grep -q -F -f %s %s", WORDS, WORDS).rc == 0
    word = host.check_output("head -n 1 %s", WORDS)
    assert Path(INVENTORIES[1]).read_text().count(word) == 1


def test_nothing_is_left_in_temporary_folders(host: Any) -> None:
    places = "/tmp /var/tmp /home/deploy/.ansible /root/.ansible"
    found = host.run(f"find {places} -type f -not -path '*/systemd-private-*'")
    assert found.stdout == ""


def test_a_user_of_the_inventory_may_log_in_and_nobody_else(node: tuple[Any, str, int]) -> None:
    host, _, offset = node
    name, address = host.check_output("hostname"), host.interface("eth1").addresses[0]
    for user, password, code in (("app", "canary-of-app", 0), ("app", "wrong", 1), ("nobody", "canary-of-app", 1)):
        assert log_in(name, address, 5672 + offset, password, user) == code, user
