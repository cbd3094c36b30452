"""The rack against real hosts: what each command promises is looked for inside the hosts or on the machine."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
import yaml

from tests.support.patience import PATIENCE_S

from .conftest import ENTRY, Rack

pytestmark = pytest.mark.system

MULTICAST_RECEIVER = f"""
import socket, struct
receiver = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
receiver.bind(("239.1.2.3", 9876))
member = socket.inet_aton("239.1.2.3") + socket.inet_aton("198.51.100.12")
receiver.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, member)
receiver.settimeout({PATIENCE_S})
print("listening", flush=True)
print(*receiver.recvfrom(100))
"""
MULTICAST_SENDER = """
import socket
sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
sender.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton("198.51.100.11"))
sender.sendto(b"anyone there?", ("239.1.2.3", 9876))
"""
VICTIM = """
import socket, time
connection, _ = socket.create_server(("0.0.0.0", 7000)).accept()
time.sleep(300)
"""
PEER = """
import socket
connection = socket.create_connection(("198.51.100.11", 7000))
print("connected", flush=True)
connection.settimeout(3)
try:
    print("heard", connection.recv(1))
except TimeoutError:
    print("silence")
"""


def until(what: str, holds: Callable[[], bool], wait_s: float = PATIENCE_S) -> None:
    deadline = time.monotonic() + wait_s
    while not holds():
        assert time.monotonic() < deadline, f"not within {wait_s} s: {what}"
        time.sleep(0.05)


def lost_percent(summary: str) -> float:
    match = re.search(r"([\d.]+)% packet loss", summary)
    assert match, summary
    return float(match[1])


def mean_ms(summary: str) -> float:
    match = re.search(r"= [\d.]+/([\d.]+)/", summary)
    assert match, summary
    return float(match[1])


def test_hosts_run_systemd_with_nothing_failed(rack: Rack) -> None:
    for host in ("mq1", "mq2"):
        assert rack.inside(host, "systemctl", "is-system-running").strip() == "running"
        assert rack.inside(host, "cat", "/proc/1/comm").strip() == "systemd"
        assert rack.inside(host, "hostname").strip() == host


def test_hosts_have_identities_of_their_own(rack: Rack) -> None:
    for path in ("/etc/machine-id", "/etc/ssh/ssh_host_ed25519_key.pub"):
        assert rack.inside("mq1", "cat", path).strip() != rack.inside("mq2", "cat", path).strip() != ""


def test_both_networks_carry_frames(rack: Rack) -> None:
    for address in ("192.0.2.12", "198.51.100.12", "192.0.2.1"):
        assert lost_percent(rack.ping("mq1", address)) == 0


def test_deploy_logs_in_by_ssh_and_may_become_root_without_waiting(rack: Rack) -> None:
    assert rack("ssh", "mq1", "sudo", "id", "-un").stdout.strip() == "root"
    # sshd and sudo look names up, and for a server of names that says nothing they would wait ten seconds each time.
    assert rack.inside("mq1", "cat", "/etc/resolv.conf") == ""


def test_ansible_reaches_every_host_by_the_printed_inventory(rack: Rack, tmp_path: Path) -> None:
    inventory = tmp_path / "inventory.yml"
    inventory.write_text(rack("inventory", "--group", "brokers").stdout)
    assert set(yaml.safe_load(inventory.read_text())["all"]["children"]["brokers"]["hosts"]) == {"mq1", "mq2"}
    ansible = Path(sys.executable).parent / "ansible"
    done = rack("enter", "--", str(ansible), "brokers", "-i", str(inventory), "-m", "ping", timeout_s=60)
    assert done.stdout.count("SUCCESS") == 2, done.stdout + done.stderr


def test_multicast_passes_between_hosts(rack: Rack) -> None:
    with rack.start("exec", "mq2", "--", "python3", "-c", MULTICAST_RECEIVER) as receiver:
        assert receiver.stdout is not None
        assert receiver.stdout.readline() == "listening\n"
        rack.inside("mq1", "python3", "-c", MULTICAST_SENDER)
        heard, _ = receiver.communicate(timeout=PATIENCE_S)
    assert "b'anyone there?'" in heard
    assert "198.51.100.11" in heard


def test_hosts_share_a_folder(rack: Rack) -> None:
    rack.inside("mq1", "sh", "-c", "echo from one >/srv/shared/note")
    assert rack.inside("mq2", "cat", "/srv/shared/note") == "from one\n"


def test_a_power_cut_is_silent_and_keeps_what_was_synced(rack: Rack) -> None:
    identity = rack.inside("mq1", "cat", "/etc/machine-id")
    rack.inside("mq1", "sh", "-c", "echo kept >/var/lib/kept; sync /var/lib/kept")
    with rack.start("exec", "mq1", "--", "python3", "-c", VICTIM) as victim:
        until("the victim listens", lambda: ":7000" in rack.inside("mq1", "ss", "-Hltn"))
        with rack.start("exec", "mq2", "--", "python3", "-c", PEER) as peer:
            assert peer.stdout is not None
            assert peer.stdout.readline() == "connected\n"
            rack("kill", "mq1")
            assert rack.status()["mq1"]["state"] == "off"
            # Neither a goodbye nor a reset: a peer of a dead machine hears nothing at all.
            assert peer.communicate(timeout=PATIENCE_S)[0] == "silence\n"
        assert victim.wait(timeout=PATIENCE_S) != 0
    assert lost_percent(rack.ping("mq2", "198.51.100.11", count=2)) == 100
    rack("boot", "mq1")
    assert rack.inside("mq1", "cat", "/var/lib/kept") == "kept\n"
    assert rack.inside("mq1", "cat", "/etc/machine-id") == identity
    assert lost_percent(rack.ping("mq2", "198.51.100.11")) == 0
    assert rack("ssh", "mq1", "hostname").stdout.strip() == "mq1"


def test_a_halt_stops_services_in_order(rack: Rack) -> None:
    rack.inside("mq1", "systemd-run", "--unit=goodbye", "-p", "ExecStop=/bin/touch /var/lib/stopped", "sleep", "600")
    rack("halt", "mq1")
    assert rack.status()["mq1"]["state"] == "off"
    rack("boot", "mq1")
    assert rack.inside("mq1", "ls", "/var/lib/stopped").strip() == "/var/lib/stopped"


def test_a_host_that_reboots_comes_back_by_itself(rack: Rack) -> None:
    rack.inside("mq1", "touch", "/run/before")
    rack.inside("mq1", "systemctl", "reboot", check=False)
    gone = ("exec", "mq1", "--", "test", "!", "-e", "/run/before")
    until("the host is new", lambda: rack(*gone, check=False).returncode == 0)
    rack("boot", "mq1")
    assert rack("ssh", "mq1", "systemctl", "is-system-running").stdout.strip() == "running"


def test_a_command_that_is_stopped_for_a_moment_does_not_outlive_its_end(rack: Rack) -> None:
    # What systemd does to every process of a host that goes down: it would wait for this one with its reboot.
    waiter = "echo $$ >/run/waiter.new; mv /run/waiter.new /run/waiter; exec sleep 600"
    begun = ("exec", "mq1", "--", "test", "-e", "/run/waiter")
    with rack.start("exec", "mq1", "--", "sh", "-c", waiter) as command:
        try:
            until("it runs", lambda: rack(*begun, check=False).returncode == 0)
            pid = rack.inside("mq1", "cat", "/run/waiter").strip()
            rack.inside("mq1", "kill", "-STOP", pid)
            until("it stands still", lambda: "State:\tT" in rack.inside("mq1", "cat", f"/proc/{pid}/status"))
            # As long as whoever waits for it needs to notice.
            time.sleep(0.3)
            rack.inside("mq1", "kill", "-TERM", pid)
            rack.inside("mq1", "kill", "-CONT", pid)
            assert command.wait(timeout=PATIENCE_S) == 128 + signal.SIGTERM
        finally:
            command.kill()


def test_a_paused_host_stands_still_and_goes_on(rack: Rack) -> None:
    counter = "i=0; while sleep 0.02; do i=$((i+1)); echo $i >/srv/shared/ticks; done"
    rack.inside("mq1", "systemd-run", "--unit=ticker", "sh", "-c", counter)

    def ticks() -> str:
        return rack.inside("mq2", "cat", "/srv/shared/ticks")

    until("it ticks", lambda: ticks().strip() not in ("", "1"))
    rack("pause", "mq1")
    assert rack.status()["mq1"]["state"] == "paused"
    refused = rack("exec", "mq1", "--", "true", check=False)
    assert (refused.returncode, "rack resume mq1" in refused.stderr) == (1, True)
    stalled = ticks()
    time.sleep(0.3)
    assert ticks() == stalled
    # The kernel of a stalled host is alive: only its programs are not.
    assert lost_percent(rack.ping("mq2", "198.51.100.11")) == 0
    rack("resume", "mq1")
    until("it goes on", lambda: ticks() != stalled)
    assert rack.status()["mq1"]["state"] == "running"
    rack.inside("mq1", "systemctl", "stop", "ticker")


def test_a_paused_host_can_lose_power(rack: Rack) -> None:
    rack("pause", "mq2")
    refused = rack("halt", "mq2", check=False)
    assert refused.returncode == 1
    assert "rack resume mq2" in refused.stderr
    rack("kill", "mq2")
    rack("boot", "mq2")
    assert rack.status()["mq2"]["state"] == "running"


def test_a_cut_card_loses_its_carrier_and_the_other_does_not(rack: Rack) -> None:
    rack("cut", "mq1", "eth1")
    assert "NO-CARRIER" in rack.inside("mq1", "ip", "link", "show", "eth1")
    assert "NO-CARRIER" not in rack.inside("mq1", "ip", "link", "show", "eth0")
    assert lost_percent(rack.ping("mq2", "198.51.100.11", count=2)) == 100
    assert lost_percent(rack.ping("mq2", "192.0.2.11")) == 0
    rack("heal", "mq1", "eth1")
    assert "NO-CARRIER" not in rack.inside("mq1", "ip", "link", "show", "eth1")
    until("frames pass", lambda: lost_percent(rack.ping("mq2", "198.51.100.11", count=3)) == 0)


def test_loss_is_in_each_direction(rack: Rack) -> None:
    rack("loss", "mq1", "eth1", "20")
    # 0.8 squared come back: 36 % lost. Of 500 pings less than 28 or more than 44 % is a one in five thousand event.
    assert 28 < lost_percent(rack.ping("mq2", "198.51.100.11", count=500, interval_s=0.002)) < 44
    assert lost_percent(rack.ping("mq2", "192.0.2.11")) == 0
    rack("heal", "mq1", "eth1")
    assert lost_percent(rack.ping("mq2", "198.51.100.11", count=100)) == 0


def test_delay_is_in_each_direction_and_outlasts_a_power_cut(rack: Rack) -> None:
    rack("delay", "mq1", "eth1", "20")
    assert 40 <= mean_ms(rack.ping("mq2", "198.51.100.11")) < 90
    assert mean_ms(rack.ping("mq2", "192.0.2.11")) < 20
    rack("kill", "mq1")
    assert rack.status()["mq1"]["cards"]["eth1"]["delay_ms"] == 20
    rack("boot", "mq1")
    assert 40 <= mean_ms(rack.ping("mq2", "198.51.100.11")) < 90
    rack("heal", "mq1", "eth1")
    assert mean_ms(rack.ping("mq2", "198.51.100.11")) < 20


def test_loss_and_delay_and_cut_work_together(rack: Rack) -> None:
    rack("delay", "mq2", "eth1", "5")
    rack("loss", "mq2", "eth1", "50")
    summary = rack.ping("mq1", "198.51.100.12", count=100, interval_s=0.002)
    assert 55 < lost_percent(summary) < 92
    assert 10 <= mean_ms(summary) < 60
    rack("cut", "mq2", "eth1")
    assert lost_percent(rack.ping("mq1", "198.51.100.12", count=2)) == 100
    assert "cut, loss 50 %, delay 5 ms" in rack("status").stdout
    rack("heal", "mq2", "eth1")
    until("frames pass", lambda: lost_percent(rack.ping("mq1", "198.51.100.12", count=3)) == 0)


def test_a_second_rack_is_a_world_of_its_own(rack: Rack, unique: str) -> None:
    other = Rack(f"{unique}-b")
    try:
        # Same addresses, same names, and one host behind another.
        other("up", "3", "--behind", "mq3=mq1")
        assert other("ssh", "mq3", "hostname").stdout.strip() == "mq3"
        assert other("enter", "--", "ping", "-c", "1", "-W", "1", "203.0.113.13", check=False).returncode != 0
        assert rack.inside("mq1", "cat", "/etc/machine-id") != other.inside("mq1", "cat", "/etc/machine-id")
        other("kill", "mq1")
        other("cut", "mq2", "eth1")
        assert lost_percent(rack.ping("mq2", "198.51.100.11")) == 0
        assert rack.status()["mq1"]["state"] == "running"
    finally:
        other("destroy")
    assert other.leftovers() == []
    assert rack("ssh", "mq1", "hostname").stdout.strip() == "mq1"


def test_light_hosts_answer_by_the_dozen(unique: str) -> None:
    lights = Rack(f"{unique}-l")
    try:
        lights("up-light", "12")
        names = [lights("ssh", name, "hostname").stdout.strip() for name in ("lt1", "lt12")]
        assert names == ["lt1", "lt12"]
    finally:
        lights("destroy")
    assert lights.leftovers() == []


def test_a_rack_of_another_size_does_not_replace_this_one(rack: Rack) -> None:
    refused = rack("up", "3", check=False)
    assert refused.returncode == 1
    assert "there already, with 2 hosts" in refused.stderr
    assert rack.status()["mq1"]["state"] == "running"


def test_commands_inside_the_controller_namespace_can_rebuild_their_rack(unique: str) -> None:
    inner = Rack(f"{unique}-c")
    story = f"{ENTRY} up 1 && {ENTRY} destroy && {ENTRY} up 1 && ping -q -c 1 192.0.2.11 && {ENTRY} destroy"
    inner("enter", "--", "sh", "-ec", story)
    assert inner.leftovers() == []


@pytest.mark.parametrize("after_s", [0.05, 0.15, 0.25, 0.35, 0.5, 0.7])
def test_an_up_that_was_killed_leaves_nothing_that_destroy_does_not_clear(unique: str, after_s: float) -> None:
    broken = Rack(f"{unique}-k")
    with broken.start("up", "2") as up:
        time.sleep(after_s)
        up.kill()
        up.wait()
    broken("destroy")
    assert broken.leftovers() == []


def test_an_up_that_was_killed_while_it_waited_for_ssh_leaves_nothing_that_destroy_does_not_clear(unique: str) -> None:
    broken = Rack(f"{unique}-w")
    with broken.start("up", "1") as up:
        asking = child_asking(up.pid)
        # Stopped, it ends by nobody's hand but destroy's.
        os.kill(asking, signal.SIGSTOP)
        up.kill()
        up.wait()
    broken("destroy")
    assert broken.leftovers() == []


def child_asking(parent: int) -> int:
    """The process that asks the hosts' ssh servers for an answer, as soon as it is there."""
    deadline = time.monotonic() + 60.0
    while time.monotonic() < deadline:
        for pid in Path(f"/proc/{parent}/task/{parent}/children").read_text().split():
            with suppress(OSError):
                if b"_answering" in Path(f"/proc/{pid}/cmdline").read_bytes():
                    return int(pid)
        time.sleep(0.001)
    raise AssertionError("no host was asked within 60 s")


def test_a_killed_controller_command_leaves_nothing_that_destroy_does_not_clear(unique: str) -> None:
    broken = Rack(f"{unique}-m")
    try:
        broken("up", "1")
        broken("ssh", "mq1", "true")
        with broken.start("enter", "--", "sh", "-c", "echo in; exec sleep 300") as entered:
            assert entered.stdout is not None
            assert entered.stdout.readline() == "in\n"
            children = Path(f"/proc/{entered.pid}/task/{entered.pid}/children").read_text().split()
            entered.kill()
            os.kill(int(children[0]), signal.SIGKILL)
    finally:
        broken("destroy")
    assert broken.leftovers() == []


def test_enter_passes_on_exit_codes_and_ends_with_its_command(unique: str) -> None:
    alone = Rack(f"{unique}-e")
    assert alone("enter", "--", "sh", "-c", "exit 7", check=False).returncode == 7
    with alone.start("enter", "--", "sh", "-c", "echo in; exec sleep 300") as entered:
        assert entered.stdout is not None
        assert entered.stdout.readline() == "in\n"
        entered.terminate()
        assert entered.wait(timeout=PATIENCE_S) == 128 + signal.SIGTERM
    assert alone.leftovers() == []


def test_destroying_what_is_not_there_is_no_failure(unique: str) -> None:
    absent = Rack(f"{unique}-z")
    absent("destroy")
    assert absent.leftovers() == []


def test_the_doctor_finds_this_machine_usable() -> None:
    done = subprocess.run([ENTRY, "doctor"], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, "Hosts can be booted here.\n")


def test_without_root_it_says_so() -> None:
    for words in (["doctor"], ["up", "1"], ["destroy"]):
        done = subprocess.run(
            ["/usr/bin/python3", ENTRY, *words],
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            user=65534,
            group=65534,
        )
        assert done.returncode == 1
        assert "root" in done.stdout + done.stderr or "sudo" in done.stdout + done.stderr
        assert "Traceback" not in done.stderr
