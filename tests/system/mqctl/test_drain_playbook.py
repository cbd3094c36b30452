"""The playbooks that drain a host, without mqctl, while the node falls out that takes the messages. Real Ansible.

Hosts are rooms on this machine (tests/support/ansible_lines), and each has a broker of the test's own.
"""

from __future__ import annotations

import json
import subprocess
import sys
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from mqctl.remote import operation as noting

from tests.support.broker_process import BrokerProcess, brokers_in
from tests.support.cluster_processes import linked
from tests.system.cluster.test_drains import COUNT, QUEUE, Balanced, count_at, fill, wait_until
from tests.system.cluster.test_scale_down import shown
from tests.system.mqctl.test_plain_playbooks import Site

pytestmark = pytest.mark.system

# The program of a host: of its broker, wherever the instance of the play has its files.
PROGRAM = f"""#!{sys.executable}
import sys
sys.path[:0] = {sys.path!r}
from mqbroker.app.main import main
words = [{{notes!r}} if word == {noting.PLACE!r} else word for word in sys.argv[1:]]
if "--instance" in words:
    at = words.index("--instance")
    words[at : at + 2] = ["--config", {{config!r}}]
sys.exit(main(words))
"""


STOP = "Stop the brokers"
BLOCKS = {"max-size-messages": COUNT // 4, "address-full-policy": "BLOCK"}
STANDS_S = 30
BLINKS = 3600  # seconds that no link is lost for in a test


class Heirs(Balanced):
    """`heir_timeout_ms` as the option."""

    heir_timeout_ms = 5_000

    def options(self, number: int) -> dict[str, Any]:
        """The first one that takes messages blocks before it has all: it is killed in the middle, however late."""
        options = {**super().options(number), "scale-down": {"heir-timeout": self.heir_timeout_ms}}
        return {**options, "address-settings": {QUEUE: BLOCKS}} if number == 1 else options


class Steadfast(Heirs):
    """Nobody takes over by itself."""

    heir_timeout_ms = -1


class Hosts(Site):
    """Three hosts, mq0 has messages."""

    def __init__(self, folder: Path, brokers: list[BrokerProcess]) -> None:
        super().__init__(folder)
        self.brokers = brokers
        self.variables = {f"mq{number}": self._host(f"mq{number}", broker) for number, broker in enumerate(brokers)}

    def _host(self, name: str, broker: BrokerProcess) -> dict[str, Any]:
        lib, program = self.folder / name, self.folder / f"mqbroker-{name}"
        lib.mkdir()
        notes = str(lib / Path(noting.PLACE).name)
        program.write_text(PROGRAM.format(config=str(broker.config_file), notes=notes))
        program.chmod(0o755)
        return {"line_lib": str(lib), "line_program": str(program)}

    def run(self, playbook: str, to: str, **variables: Any) -> subprocess.CompletedProcess[str]:
        """Of mq0."""
        said = {f"mq_{playbook}": "mq0", f"mq_{playbook}_to": to, f"mq_{playbook}_stands_s": 120, **variables}
        given = {"__mq_program": "{{ line_program }}", **said}
        return self.play(f"mqops.cluster.{playbook}", self.variables, "-e", json.dumps(given))


def three(folder: Path, made: Any, kind: type[Heirs]) -> Hosts:
    brokers = kind(made, 3).start()
    for number, broker in enumerate(brokers):
        linked(broker, *(f"mq{each}" for each in range(3) if each != number))
    fill(brokers[0])
    return Hosts(folder, brokers)


def running_to(
    hosts: Hosts, node: str, playbook: str = "drain", **variables: Any
) -> Future[subprocess.CompletedProcess[str]]:
    """The play, while the test goes on."""
    pool = ThreadPoolExecutor(1)
    running = pool.submit(hosts.run, playbook, node, **variables)
    pool.shutdown(wait=False)
    return running


def begun(hosts: Hosts, playbook: str = "drain", **variables: Any) -> Future[subprocess.CompletedProcess[str]]:
    """The play runs, and a part of what it moves has come to mq1, which is killed then."""
    running = running_to(hosts, "mq1", playbook, **variables)
    wait_until("some of it is there", lambda: running.done() or count_at(hosts.brokers[1]) > COUNT // 10)
    hosts.brokers[1].kill()
    del hosts.brokers[1].options["address-settings"]  # started again, it takes what it was sent
    return running


def changed_at(done: subprocess.CompletedProcess[str], host: str) -> str:
    (line,) = [line for line in done.stdout.splitlines() if line.startswith(f"{host} ") and "changed=" in line]
    return line.partition("changed=")[2].split()[0]


@pytest.mark.one_day_in_three(2)
def test_it_goes_on_with_the_next_node_and_a_second_time_changes_nothing(tmp_path: Path) -> None:
    with brokers_in(tmp_path) as made:
        hosts = three(tmp_path, made, Heirs)
        source, first, second = hosts.brokers
        hosts.variables["mq0"]["line_fails_at"] = STOP  # what comes then is for hosts with systemd
        running = begun(hosts, "scale_down")
        wait_until("the next one is the heir", lambda: running.done() or shown(source)["node"] == "mq2")
        wait_until("it has taken over", lambda: running.done() or count_at(second) > 0)
        first.start()
        done = running.result()
        assert f"TASK [{STOP}]" in done.stdout, done.stdout + done.stderr
        said = shown(source)
        assert (said["state"], said["node"], said["left"]) == ("moved", "mq2", 0)
        assert count_at(first) + count_at(second) == COUNT
        again = hosts.run("scale_down", "mq1", mq_resume=True)
        assert f"TASK [{STOP}]" in again.stdout, again.stdout + again.stderr
        assert changed_at(again, "mq0") == "0"
        assert shown(source)["node"] == "mq2", "what has moved to the next one is not turned"


@pytest.mark.one_day_in_three(0)
def test_it_ends_where_nobody_takes_over_and_turns_to_the_node_that_is_named_then(tmp_path: Path) -> None:
    with brokers_in(tmp_path) as made:
        hosts = three(tmp_path, made, Steadfast)
        source, first, second = hosts.brokers
        done = begun(hosts, mq_drain_stands_s=3).result()
        assert done.returncode == 2, done.stdout + done.stderr
        assert "failed, not moved: no link to it stands" in " ".join(done.stdout.split())
        blinks = {"mq_drain_stands_s": BLINKS, "mq_drain_wait_s": 1}
        again = hosts.run("drain", "mq2", mq_resume=True, **blinks)
        assert (again.returncode, "failed, not moved" in again.stdout) == (2, True), again.stdout + again.stderr
        assert shown(source)["node"] == "mq1", "what stands for a short while only is not turned"
        wait_until("it stands", lambda: shown(source)["stands_s"] >= STANDS_S)
        running = running_to(hosts, "mq2", mq_resume=True, mq_drain_stands_s=STANDS_S)
        wait_until("it turns", lambda: running.done() or shown(source)["node"] == "mq2")
        first.start()  # with what it may have had already
        turned = running.result()
        assert turned.returncode == 0, turned.stdout
        assert (shown(source)["state"], count_at(first) + count_at(second)) == ("moved", COUNT)
