"""`mqctl logs` through real sshds: several hosts at once, followed, and the end of it.

What `journalctl` says is played by a script that stands in its place on the hosts, because a journal needs a systemd.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from support.ssh_server import SshServer

from tests.support.forks import run_mqctl
from tests.support.patience import PATIENCE_S

MQCTL = [sys.executable, "-m", "mqctl.main"]
# It says what is in `entries` and, when it is to follow, what comes; it ends when nobody listens any more.
JOURNALCTL = """#!/bin/sh
cd {place}
echo "$*" >> arguments
case "$*" in
    *--follow*) echo $$ > pid; exec tail --lines=+1 --follow entries ;;
    *) cat entries; [ ! -e fault ] || {{ cat fault >&2; exit 1; }} ;;
esac
"""


class LoggedHost:
    """A host with a journal that tests write."""

    def __init__(self, folder: Path, name: str) -> None:
        self.name = name
        self.place = folder / f"{name}-journal"
        self.place.mkdir()
        (self.place / "entries").touch()
        script = self.place / "journalctl"
        script.write_text(JOURNALCTL.format(place=self.place))
        script.chmod(0o755)
        self.server = SshServer(folder / name, f"SetEnv PATH={self.place}:/usr/bin:/bin")

    def log(self, message: str, instance: str = "default", **fields: str) -> None:
        entry = {"__REALTIME_TIMESTAMP": "1700000000000000", "_SYSTEMD_UNIT": f"mqbroker@{instance}.service"}
        with (self.place / "entries").open("a") as file:
            file.write(json.dumps(entry | {"PRIORITY": "6", "MESSAGE": message} | fields) + "\n")

    @property
    def arguments(self) -> list[str]:
        return (self.place / "arguments").read_text().splitlines()

    def is_followed(self) -> bool:
        """Whether the process that follows is still there."""
        return Path(f"/proc/{(self.place / 'pid').read_text().strip()}").exists()


@pytest.fixture
def hosts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[LoggedHost]]:
    made = [LoggedHost(tmp_path, "mq1"), LoggedHost(tmp_path, "mq2")]
    variables = {one.name: one.server.variables() for one in made}
    variables["mq2"]["mq_instances"] = [{"name": "default"}, {"name": "second", "port": 5673}]
    inventory = {"brokers": {"hosts": variables, "vars": {"mq_cluster_name": "main"}}}
    (tmp_path / "inventory.yml").write_text(json.dumps(inventory))
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    yield made
    for one in made:
        one.server.close()


def run(*words: str, code: int = 0) -> tuple[str, str]:
    done = run_mqctl(["logs", *words], os.environ, Path.cwd(), timeout_s=PATIENCE_S)
    assert done.returncode == code, (done.stdout, done.stderr)
    return done.stdout, done.stderr


class Following:
    """`mqctl logs --follow` as a process."""

    def __init__(self, *words: str) -> None:
        self.process = subprocess.Popen(
            [*MQCTL, "logs", "--follow", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    def __enter__(self) -> Following:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.communicate()

    def lines(self, count: int) -> set[str]:
        """So many more lines."""
        out: IO[str] | None = self.process.stdout
        assert out is not None
        return {out.readline().rstrip("\n") for _ in range(count)}

    def end(self) -> tuple[int, str]:
        """Ctrl-C; the exit code and what was said on standard error."""
        self.process.send_signal(signal.SIGINT)
        _, err = self.process.communicate(timeout=PATIENCE_S)
        return self.process.returncode, err


STAMP = "2023-11-14T22:13:20.000Z"


def test_hosts_are_followed_together_until_ctrl_c(hosts: list[LoggedHost]) -> None:
    first, second = hosts
    first.log("ready node=one")
    second.log("ready node=two")
    with Following("-n", "7", "--since", "-1h") as following:
        assert following.lines(2) == {f"{STAMP} mq1 info ready node=one", f"{STAMP} mq2 info ready node=two"}
        second.log("links-full", "second", PRIORITY="4")
        assert following.lines(1) == {f"{STAMP} mq2/second warning links-full"}
        first.log("\x1b[31mred")
        assert following.lines(1) == {f"{STAMP} mq1 info \\x1b[31mred"}
        code, err = following.end()
    assert (code, err) == (130, "")
    (arguments,) = second.arguments
    assert "--unit=mqbroker@default.service --unit=mqbroker@second.service --lines=14" in arguments
    assert "--since=-1h" in arguments
    for host in hosts:
        wait_until_gone(host)


def wait_until_gone(host: LoggedHost) -> None:
    """It ends with its next line at the latest: nobody is there to read it."""
    deadline_s = time.monotonic() + PATIENCE_S
    while host.is_followed():
        assert time.monotonic() < deadline_s, f"journalctl of {host.name} was left behind"
        host.log("is anybody there?")
        time.sleep(0.05)


def test_the_end_of_one_host_is_told_and_the_others_go_on(hosts: list[LoggedHost]) -> None:
    first, second = hosts
    first.log("one")
    second.log("two")
    with Following("-o", "json") as following:
        rows: list[dict[str, Any]] = [json.loads(line) for line in following.lines(2)]
        assert sorted((row["host"], row["message"]) for row in rows) == [("mq1", "one"), ("mq2", "two")]
        assert {row["schema"] for row in rows} == {"mqctl.logs/1"}
        kill(first)
        assert following.process.stderr is not None
        assert "mq1: journalctl: " in following.process.stderr.readline()
        second.log("three")
        assert [json.loads(line)["message"] for line in following.lines(1)] == ["three"]
        kill(second)
        assert following.process.wait(PATIENCE_S) == 3


def kill(host: LoggedHost) -> None:
    subprocess.run(["kill", (host.place / "pid").read_text().strip()], check=True)


def test_a_pattern_chooses_lines(hosts: list[LoggedHost]) -> None:
    first, second = hosts
    for number in range(3):
        first.log(f"login-failed number={number}")
        second.log(f"ready number={number}")
    out, _ = run("--grep", "login-.*=[12]", "-n", "1")
    assert out == f"{STAMP} mq1 info login-failed number=2\n"
    with Following("--grep", "number=[05]", "-o", "csv", "--columns", "host,message") as following:
        assert following.lines(1) == {"host,message"}
        assert following.lines(2) == {"mq1,login-failed number=0", "mq2,ready number=0"}
        first.log("ready number=4")
        first.log("ready number=5")
        assert following.lines(1) == {"mq1,ready number=5"}
        assert following.end()[0] == 130


def test_what_a_host_cannot_say_is_exit_code_3(hosts: list[LoggedHost]) -> None:
    hosts[0].log("one")
    (hosts[1].place / "fault").write_text("Failed to open the journal\n")
    out, err = run(code=3)
    assert out == f"{STAMP} mq1 info one\n"
    assert "mq2: journalctl: Failed to open the journal" in err
    (hosts[1].place / "fault").unlink()
    (hosts[1].place / "entries").write_text("no entry\n")
    assert "no entry of a journal: no entry" in run(code=3)[1]


def test_wrong_words(hosts: list[LoggedHost]) -> None:
    assert "--grep (: missing )" in run("--grep", "(", code=2)[1]
    assert "--columns: there is no column wher" in run("--follow", "--columns", "wher", code=2)[1]


def test_a_reader_that_goes_away_ends_it(hosts: list[LoggedHost]) -> None:
    hosts[0].log("one")
    with Following() as following:
        assert following.lines(1) == {f"{STAMP} mq1 info one"}
        assert following.process.stdout is not None
        following.process.stdout.close()
        hosts[0].log("two")
        assert following.process.wait(PATIENCE_S) == 1
        assert following.process.stderr is not None
        assert "Traceback" not in following.process.stderr.read()
