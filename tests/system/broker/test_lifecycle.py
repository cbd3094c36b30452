"""`mqbroker run` from outside: start, stop, crash, and everything that must not start."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from mqbroker.wire.frames import EMPTY_FRAME

from tests.support import frames
from tests.support.broker_process import COMMAND, BrokerFailed, BrokerProcess
from tests.support.patience import PATIENCE_S, wait_until

Make = Callable[..., BrokerProcess]
JOURNAL_FILE_BYTES = 10 << 20  # the default


@pytest.fixture
def broker(make_broker: Make) -> BrokerProcess:
    """One broker that runs: a process that was executed, as a service manager does it."""
    made = make_broker(is_executed=True)
    made.start()
    return made


def failed_start(broker: BrokerProcess) -> tuple[int, str]:
    """Exit code and log of a start that must fail."""
    broker.launch()
    return broker.wait(), broker.log


def send(broker: BrokerProcess, bodies: list[str], durable: bool = True) -> None:
    messages = [{"body": body, "durable": durable} for body in bodies]
    broker.admin("send", address="orders", messages=messages)


def bodies_of(broker: BrokerProcess, count_max: int = 1000) -> list[Any]:
    """What waits on the queue, taken in one session and not settled: it returns when the session ends."""
    found = broker.admin("receive", address="orders", count_max=count_max, wait_ms=60_000)
    return [message["body"] for message in found["messages"]]


def test_start_and_graceful_stop_tell_the_service_manager(broker: BrokerProcess) -> None:
    assert broker.admin("status")["state"] == "active"
    assert broker.stop() == 0
    told = broker.notify.drain()
    assert told.index("READY=1") < told.index("STOPPING=1")
    assert "STATUS=reading the journal" in told[: told.index("READY=1")]
    assert not broker.admin_socket.exists()
    assert "Traceback" not in broker.log


def test_sigint_stops_as_well(broker: BrokerProcess) -> None:
    broker.signal(signal.SIGINT)
    assert broker.wait() == 0


def settled_rss_bytes(broker: BrokerProcess) -> int:
    """Its memory once selectors can be read, which takes some MiB and comes a moment after the start."""
    broker.admin("browse", queue="orders", selector="colour = 'blue'")
    return broker.rss_bytes()


def test_a_start_gives_back_the_memory_that_it_read_the_journal_into(broker: BrokerProcess) -> None:
    broker.admin("queue-create", name="orders")
    fresh = settled_rss_bytes(broker)
    for _ in range(2):
        # Each start leaves one file more, of which the later is read into what the earlier gave back.
        send(broker, ["x"])
        assert broker.stop() == 0
        broker.start()
    assert settled_rss_bytes(broker) - fresh < JOURNAL_FILE_BYTES // 2


def test_what_only_a_start_needs_is_not_in_the_process_that_runs(broker: BrokerProcess) -> None:
    files = Path(f"/proc/{broker.pid}/maps").read_text()
    assert "_hashlib" in files, "what is imported shows there, where it is compiled"
    assert "pydantic" not in files
    broker.admin("config-reload")
    assert "pydantic" in Path(f"/proc/{broker.pid}/maps").read_text(), "a reload reads the options where it runs"


def test_nothing_is_printed_on_standard_output(make_broker: Make) -> None:
    broker = make_broker()
    broker.prepare()
    process = subprocess.Popen(
        [*COMMAND, "run", "--config", str(broker.config_file)], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    deadline_s = time.monotonic() + PATIENCE_S
    while not broker.admin_socket.exists() and time.monotonic() < deadline_s:
        time.sleep(0.02)
    # The file of the socket is there a moment before the broker runs: an answer says that it does.
    broker.admin("status")
    process.terminate()
    out, err = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, out) == (0, b"")
    assert b"ready node=test" in err


def test_durable_messages_survive_kill_9_and_non_durable_ones_do_not(broker: BrokerProcess) -> None:
    kept = [f"kept {number}" for number in range(100)]
    send(broker, kept)
    send(broker, ["lost 1", "lost 2"], durable=False)
    assert broker.admin("status")["messages"] == 102
    broker.kill()
    broker.start()
    assert "was_clean=0" in broker.log
    assert broker.admin("status")["messages"] == 100
    assert bodies_of(broker) == kept


def test_durable_messages_survive_a_graceful_restart(broker: BrokerProcess) -> None:
    send(broker, ["one", "two"])
    broker.restart()
    assert broker.log.count("was_clean=1") == 2
    assert bodies_of(broker) == ["one", "two"]


def test_a_crash_loop_keeps_everything_and_leaves_nothing_behind(broker: BrokerProcess) -> None:
    for number in range(5):
        send(broker, [str(number)])
        broker.kill()
        broker.start()
    assert bodies_of(broker) == ["0", "1", "2", "3", "4"]
    assert "boot=6" in broker.log


def test_a_second_process_on_the_same_directory_is_refused(make_broker: Make) -> None:
    first = make_broker()
    first.start()
    second = make_broker()
    second.data_directory = first.data_directory
    second._is_prepared = True
    code, log = failed_start(second)
    assert code == 1
    assert f"another process (pid {first.pid}) uses this data directory" in log
    assert "Traceback" not in log
    send(first, ["still here"])


def test_a_port_in_use_is_named_with_the_remedy(make_broker: Make) -> None:
    broker = make_broker()
    with socket.create_server(("127.0.0.1", broker.port)):
        code, log = failed_start(broker)
    assert code == 1
    assert "listeners.0.port: listener clients can't listen on 127.0.0.1" in log
    assert f"ss -ltnp sport = :{broker.port}" in log
    assert "Traceback" not in log
    assert "READY=1" not in broker.notify.drain()
    assert not broker.admin_socket.exists()
    broker.start()


def test_an_address_that_the_host_does_not_have_is_named(make_broker: Make) -> None:
    broker = make_broker(listener={"local-bind-address": "192.0.2.77", "allow-plaintext": True})
    code, log = failed_start(broker)
    assert code == 1
    assert "this host does not have the address" in log


def test_every_fault_of_the_options_is_reported_at_once(make_broker: Make) -> None:
    broker = make_broker()
    broker.prepare()
    broker.options = {"limits": {"link-credit": 0}, "journal": {"nonsense": 1}}
    code, log = failed_start(broker)
    assert code == 1
    assert "limits.link-credit" in log
    assert "journal.nonsense" in log


def test_a_copied_data_directory_is_refused_with_both_remedies(make_broker: Make) -> None:
    broker = make_broker()
    broker.start()
    broker.stop()
    copy = make_broker()
    shutil.copytree(broker.data_directory, copy.data_directory)
    copy._is_prepared = True
    code, log = failed_start(copy)
    assert code == 5
    assert "mqbroker identity adopt" in log
    assert "mqbroker identity new" in log


def test_no_identity_no_start(make_broker: Make) -> None:
    broker = make_broker()
    broker.prepare()
    (broker.data_directory / "identity.json").unlink()
    code, log = failed_start(broker)
    assert code == 1
    assert "mqbroker identity init" in log


def test_a_damaged_journal_starts_nothing(broker: BrokerProcess) -> None:
    send(broker, [f"message {number}" for number in range(50)])
    send(broker, ["later"])
    broker.stop()
    (file,) = (broker.data_directory / "journal").glob("journal-*.mqj")
    content = bytearray(file.read_bytes())
    content[content.index(b"message 25")] ^= 1
    file.write_bytes(content)
    code, log = failed_start(broker)
    assert code == 6
    assert f"{file.name} at byte " in log
    assert "Traceback" not in log
    assert file.read_bytes() == content


@pytest.mark.parametrize("text", ["no identity", '{"format": 99}'])
def test_an_identity_that_cannot_be_read_starts_nothing(make_broker: Make, text: str) -> None:
    broker = make_broker()
    broker.prepare()
    (broker.data_directory / "identity.json").write_text(text)
    assert failed_start(broker)[0] == 6


@pytest.mark.parametrize("name", ["identity.json", "journal/journal-0000000001.mqj"])
def test_a_directory_in_the_place_of_a_file_starts_nothing(make_broker: Make, name: str) -> None:
    broker = make_broker()
    broker.prepare()
    (broker.data_directory / name).unlink(missing_ok=True)
    (broker.data_directory / name).mkdir(parents=True)
    code, log = failed_start(broker)
    assert (code, "Traceback" in log) == (6, False)
    assert "Is a directory and no regular file" in log


def test_a_disk_that_refuses_a_write_ends_the_node_and_loses_nothing_acknowledged(broker: BrokerProcess) -> None:
    send(broker, ["acknowledged 1", "acknowledged 2"])
    # From now on the kernel refuses writes beyond 64 KiB of a file, as a full disk would; the log stays below.
    resource.prlimit(broker.pid, resource.RLIMIT_FSIZE, (64 << 10, resource.RLIM_INFINITY))
    with pytest.raises((ValueError, OSError)):
        # No answer at all: the connection ends without one.
        send(broker, ["never acknowledged" * 10_000])
    resource.prlimit(broker.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    assert broker.wait() == 74
    assert "storage-failed" in broker.log
    assert "exit_code=74" in broker.log
    broker.start()
    # The write that was torn at 64 KiB is cut off.
    assert bodies_of(broker) == ["acknowledged 1", "acknowledged 2"]


def test_the_stop_does_not_wait_for_peers_that_say_nothing(make_broker: Make) -> None:
    """It may take ten minutes, for which nobody waits here."""
    broker = make_broker(options={"node": {"stop-timeout-ms": 600_000}})
    broker.start()
    with broker.connect() as silent, broker.connect() as greeted:
        greeted.sendall(b"AMQP\x03\x01\x00\x00")
        assert greeted.recv(8) == b"AMQP\x03\x01\x00\x00"
        assert broker.stop() == 0
        for sock in (silent, greeted):
            sock.settimeout(PATIENCE_S)
            while sock.recv(4096):
                pass


def test_a_low_limit_of_descriptors_is_raised_or_told(make_broker: Make) -> None:
    broker = make_broker(listener={"connections-max": 500})
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    in_use = len(os.listdir("/proc/self/fd"))
    resource.setrlimit(resource.RLIMIT_NOFILE, (in_use + 100, hard))
    try:
        broker.start()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert resource.prlimit(broker.pid, resource.RLIMIT_NOFILE)[0] == 756
    assert "descriptors-low" not in broker.log
    broker.stop()
    broker.listener = {"connections-max": 1_000_000}
    broker.start()
    told = "descriptors-low" in broker.log
    assert told == (hard < 1_000_256)


def test_the_watchdog_is_fed_and_a_stopped_process_is_silent(make_broker: Make) -> None:
    broker = make_broker(environment={"WATCHDOG_USEC": "150000"})
    broker.start()
    assert broker.notify.wait_for("WATCHDOG=1", PATIENCE_S, count=3)
    broker.signal(signal.SIGSTOP)
    time.sleep(0.2)
    broker.notify.forget()
    assert not broker.notify.wait_for("WATCHDOG=1", 0.5)
    broker.signal(signal.SIGCONT)
    assert broker.notify.wait_for("WATCHDOG=1", PATIENCE_S)


def test_reload_takes_new_users_and_refuses_a_faulty_file(broker: BrokerProcess) -> None:
    broker.set_user("second", "second-password")
    broker.signal(signal.SIGHUP)
    broker.wait_for_log("reloaded users=1 options=1")
    broker.options = {"limits": {"link-credit": 7}}
    broker.write_config()
    broker.signal(signal.SIGHUP)
    broker.wait_for_log("restart-needed option=limits.link-credit running=2000 file=7")
    broker.config_file.write_text("[node]\nnme = 'x'\n")
    broker.signal(signal.SIGHUP)
    broker.wait_for_log("reload-refused")
    broker.wait_for_log("reloaded users=1 options=0")
    assert broker.admin("status")["state"] == "active"


def test_admin_stop_ends_the_process(broker: BrokerProcess) -> None:
    assert broker.admin("stop") == {}
    assert broker.wait() == 0
    with pytest.raises(BrokerFailed, match="the broker is not running"):
        broker.command("admin", "--socket", str(broker.admin_socket), "status")


def test_admin_bridge_and_one_request(broker: BrokerProcess) -> None:
    text = broker.command("admin", "--config", str(broker.config_file), "status")
    assert '"state": "active"' in text
    text = broker.command("admin", "--socket", str(broker.admin_socket), "--stdio", stdin='{"id": 5, "op": "status"}\n')
    assert text.startswith('{"id": 5, "result": {')


@pytest.mark.system
def test_the_admin_socket_serves_only_root_and_the_user_of_the_broker(broker: BrokerProcess) -> None:
    assert os.geteuid() == 0, "this test needs root to become somebody else"
    os.chmod(broker.admin_socket, 0o666)
    os.chmod(broker.admin_socket.parent, 0o755)
    script = (
        "import socket, sys\n"
        "s = socket.socket(socket.AF_UNIX)\n"
        "s.connect(sys.argv[1])\n"
        's.sendall(b\'{"id": 1, "op": "status"}\\n\')\n'
        "print(s.makefile().readline())\n"
    )
    done = subprocess.run(
        ["/usr/bin/env", "python3", "-c", script, str(broker.admin_socket)],
        user=65534,
        group=65534,
        extra_groups=[],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert "amqp:unauthorized-access" in done.stdout, done.stderr
    assert "user id 65534" in done.stdout
    broker.wait_for_log("admin-refused uid=65534")


def test_who_goes_on_speaking_while_the_process_stands_still_stays_connected(make_broker: Make) -> None:
    broker = make_broker(listener={"idle-timeout-ms": 2000, "sasl-mechanisms": ["ANONYMOUS"]})
    broker.start()
    with socket.create_connection((broker.host, broker.port)) as client:
        client.sendall(frames.anonymous() + frames.opened() + frames.begun())
        wait_until(lambda: broker.admin("connections")["connections"], "it is connected")
        broker.signal(signal.SIGSTOP)
        for _ in range(10):
            time.sleep(0.3)
            client.sendall(EMPTY_FRAME)
        broker.signal(signal.SIGCONT)
        time.sleep(0.3)
        client.sendall(EMPTY_FRAME)
        assert len(broker.admin("connections")["connections"]) == 1
    assert "nothing was heard" not in broker.log
