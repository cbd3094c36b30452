"""A process that tests fork is for them what one is that they execute (tests/support/forks.py)."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.support.broker_process import BrokerProcess
from tests.support.forks import ROOT, may_be_forked, run_mqctl
from tests.support.networks import Networks
from tests.support.patience import PATIENCE_S

Make = Callable[..., BrokerProcess]
SAME = ("Umask", "SigIgn", "SigCgt", "SigBlk", "Groups", "NoNewPrivs")


@pytest.fixture
def surroundings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Other ones than those in which the process with the imports began: a directory, a umask and a limit."""
    with BrokerProcess(tmp_path / "before"):
        place = tmp_path / "place"
    place.mkdir()
    monkeypatch.chdir(place)
    umask, (soft, hard) = os.umask(0o027), resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (0, hard))
    yield place
    resource.setrlimit(resource.RLIMIT_CORE, (soft, hard))
    os.umask(umask)


def seen(broker: BrokerProcess) -> dict[str, object]:
    """What tells one process from another, from outside."""
    process = Path("/proc", str(broker.pid))
    status = dict(line.split(":\t", 1) for line in (process / "status").read_text().splitlines() if ":\t" in line)
    opened = {}
    for each in (process / "fd").iterdir():
        with suppress(FileNotFoundError):  # files of the journal are made beforehand, and closed
            opened[int(each.name)] = os.readlink(each).split("[")[0]
    return {
        **{name: status[name] for name in SAME},
        "limits": (process / "limits").read_text(),
        "cwd": os.readlink(process / "cwd"),
        "group": os.getpgid(broker.pid),
        "session": os.getsid(broker.pid),
        "standard": [opened[number].split("/")[-1] for number in range(3)],
        "others": sorted(place for place in opened.values() if place.endswith(":")),
    }


def test_it_is_seen_as_one_that_is_executed(make_broker: Make, surroundings: Path) -> None:
    executed, forked = make_broker(is_executed=True), make_broker()
    assert executed.environment == forked.environment
    for broker in (executed, forked):
        broker.start()
        broker.restart()
    assert isinstance(executed.process, subprocess.Popen)
    assert not isinstance(forked.process, subprocess.Popen)
    assert seen(forked) == seen(executed)
    assert seen(forked)["cwd"] == str(surroundings)


@pytest.mark.parametrize("is_executed", [False, True])
def test_how_it_ends_is_told(make_broker: Make, is_executed: bool) -> None:
    broker = make_broker(is_executed=is_executed)
    broker.start()
    assert broker.process is not None
    assert broker.process.poll() is None
    with pytest.raises(subprocess.TimeoutExpired):
        broker.process.wait(0.01)
    broker.signal(signal.SIGINT)
    assert broker.wait() == 0
    assert broker.process.poll() == broker.process.wait() == 0
    broker.signal(signal.SIGKILL)  # nobody is there, and nobody else is met
    broker.start()
    broker.kill()
    assert broker.process.returncode == -signal.SIGKILL
    broker.options = {"limits": {"link-credit": 0}}
    broker.launch()
    assert broker.wait() == 1
    assert "limits.link-credit" in broker.log


def test_it_has_the_variables_of_the_test(make_broker: Make) -> None:
    broker = make_broker(environment={"JOURNAL_STREAM": "1:2", "WATCHDOG_USEC": "150000"})
    broker.start()
    assert broker.notify.wait_for("WATCHDOG=1", 60)


def test_it_is_in_the_network_of_its_host(make_broker: Make) -> None:
    with Networks() as networks:
        host = networks.host("mq1")
        broker = make_broker(network=host.network)
        broker.start()
        assert os.stat(f"/proc/{broker.pid}/ns/net").st_ino == host.network.stat().st_ino
        assert broker.stop() == 0


# Prints what a fork of a broker would still have to import until it knows its options and a selector.
WHAT_IS_LATE = """
import sys
from pathlib import Path
from tests.support.forks import imported
imported("mqbroker")
before = set(sys.modules)
from mqbroker.app import source
from mqbroker.core.selector import grammar
source.checked(Path(sys.argv[1]), Path(sys.argv[1]).read_text())
grammar.parse("colour = 'blue'")
print(*sorted(set(sys.modules) - before))
"""


def test_forks_of_brokers_import_next_to_nothing(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path)
    broker.prepare()
    broker.close()
    command = [sys.executable, "-c", WHAT_IS_LATE, str(broker.config_file)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=PATIENCE_S)
    late = {name.split(".")[0] for name in done.stdout.split()}
    assert not late & {"lark", "mqbroker", "pydantic", "pydantic_core"}, done.stdout


INVENTORY = "brokers:\n  hosts: {mq1: {ansible_host: 127.0.0.1, mq_interface: lo}}\n"
# Data and remarks, a complaint of our own, and one about the command line.
SAID: dict[str, tuple[list[str], bool, bool]] = {
    "both": (["inventory", "check"], True, True),
    "remarks": (["plan"], False, True),
    "usage": (["plan", "--batch", "1"], False, True),
    "data": (["--help"], True, False),
}


@pytest.mark.parametrize("name", SAID)
def test_mqctl_says_what_it_says_when_it_is_executed(tmp_path: Path, name: str) -> None:
    (tmp_path / "inventory.yml").write_text(INVENTORY)
    words, has_data, has_remarks = SAID[name]
    command = [sys.executable, "-m", "mqctl.main", *words]
    executed = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=PATIENCE_S, stdin=subprocess.DEVNULL
    )
    forked = run_mqctl(words, os.environ, tmp_path, timeout_s=PATIENCE_S)
    assert (forked.returncode, forked.stdout, forked.stderr) == (executed.returncode, executed.stdout, executed.stderr)
    assert (bool(executed.stdout), bool(executed.stderr)) == (has_data, has_remarks)


def test_an_mqctl_that_does_not_end_in_time_is_killed(tmp_path: Path) -> None:
    with pytest.raises(subprocess.TimeoutExpired) as fault:
        run_mqctl(["plan"], os.environ, tmp_path, timeout_s=0)
    assert not Path("/proc", fault.value.cmd.removeprefix("process ")).exists()


def test_what_python_reads_before_anything_else_makes_another_process() -> None:
    assert may_be_forked(os.environ)
    assert may_be_forked({**os.environ, "NOTIFY_SOCKET": "/run/other"})
    assert not may_be_forked({**os.environ, "PYTHONPATH": "/elsewhere"})
    assert not may_be_forked({**os.environ, "PYTHONMALLOC": "debug"})


# Prints what its children have computed: before any, once a fork of the one with the imports has ended, and with that.
WHAT_IS_COMPUTED = """
import os, resource, sys
from tests.support.forks import Forks, Surroundings
def computed_s():
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime
found = [computed_s()]
forks = Forks("mqbroker")
with open(sys.argv[1], "wb") as log:
    process = forks.start(["version"], os.environ, Surroundings(log))
assert process.wait(float(sys.argv[2])) == 0
found.append(computed_s())
forks.close()
print(*found, computed_s())
"""


def test_the_process_with_the_imports_ends_with_the_tests(tmp_path: Path) -> None:
    """In a process of its own: in this one children of other tests may end meanwhile."""
    command = [sys.executable, "-c", WHAT_IS_COMPUTED, str(tmp_path / "log"), str(PATIENCE_S)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=2 * PATIENCE_S)
    before, between, after = map(float, done.stdout.split())
    assert before == between < after, "what was computed there is counted as ours"
