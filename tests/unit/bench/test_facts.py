"""Parsing of /proc, mounts and configurations of peers; the cache of distributions; order of the brokers; the command
line's refusals."""

import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from xml.etree import ElementTree

import pytest

from bench import disk, peers, prerequisites, run, usage
from bench.faults import BenchFault
from bench.peers import cache, classic, debian, rabbitmq
from bench.peers.artemis import CORE, configure
from bench.rounds import turned

BROKER_XML = """<?xml version='1.0'?>
<configuration xmlns="urn:activemq"><core xmlns="urn:activemq:core">
<journal-type>ASYNCIO</journal-type><max-disk-usage>90</max-disk-usage>
<acceptors><acceptor name="artemis">tcp://127.0.0.1:61616</acceptor>
<acceptor name="mqtt">tcp://x:1883</acceptor></acceptors>
<address-settings>
<address-setting match="#"><address-full-policy>BLOCK</address-full-policy></address-setting>
</address-settings>
</core></configuration>"""


def test_cpu_of_a_process_whose_name_has_blanks_and_brackets() -> None:
    stat = "42 (mq (x) 1) S 1 42 42 0 -1 4194304 100 0 0 0 250 150 7 7 20 0 3 0 1 2 3"
    assert usage.parse_cpu_s(stat) == 400 / usage.TICKS_PER_S


def test_memory_is_in_megabytes() -> None:
    assert usage.parse_rss_mb("Name:\tx\nVmRSS:\t  10000 kB\nThreads:\t1\n") == 10.24
    assert usage.parse_rss_mb("VmHWM:\t  20000 kB\nVmRSS:\t  10000 kB\n", "VmHWM") == 20.48


def test_memory_of_an_ended_process_is_an_error() -> None:
    with pytest.raises(ValueError, match="has ended"):
        usage.parse_rss_mb("Name:\tx\nState:\tZ (zombie)\n")


def test_file_system_is_that_of_the_longest_mount_point() -> None:
    mounts = "/dev/a / ext4 rw 0 0\ntmpfs /tmp tmpfs rw 0 0\n/dev/b /tmp/disk xfs rw 0 0\n"
    found = [disk.file_system(Path(path), mounts) for path in ("/home/x", "/tmp", "/tmp/y", "/tmp/disk/z", "/tmpfile")]
    assert found == ["ext4", "tmpfs", "tmpfs", "xfs", "ext4"]


def test_sync_probe_leaves_nothing_behind(tmp_path: Path) -> None:
    median_us, p99_us = disk.sync_us(tmp_path)
    assert 0 < median_us <= p99_us
    assert list(tmp_path.iterdir()) == []


def test_artemis_gets_one_acceptor_on_loopback() -> None:
    root = ElementTree.fromstring(configure(BROKER_XML, 12345))
    acceptors = root.findall(f".//{CORE}acceptor")
    assert len(acceptors) == 1
    text = acceptors[0].text or ""
    assert text.startswith("tcp://127.0.0.1:12345?protocols=AMQP;")
    assert "tcpNoDelay=true" in text


def test_artemis_makes_queues_not_topics_and_keeps_the_rest() -> None:
    root = ElementTree.fromstring(configure(BROKER_XML, 1))
    setting = root.find(f".//{CORE}address-setting")
    assert setting is not None
    found = {child.tag.removeprefix(CORE): child.text for child in setting}
    assert found["default-address-routing-type"] == found["default-queue-routing-type"] == "ANYCAST"
    assert found["address-full-policy"] == "BLOCK"
    assert root.findtext(f".//{CORE}journal-type") == "ASYNCIO"


def test_an_unknown_layout_of_artemis_is_said() -> None:
    with pytest.raises(BenchFault, match="a new layout"):
        configure("<configuration xmlns='urn:activemq'/>", 1)


def test_classic_speaks_native_amqp_without_delay_and_checks_users() -> None:
    root = ElementTree.fromstring(classic.configure(Path("/work/a&b"), 12345, "bench", 'se"cret<'))
    core = "{http://activemq.apache.org/schema/core}"
    uri = root.find(f".//{core}transportConnector")
    user = root.find(f".//{core}authenticationUser")
    assert uri is not None
    assert user is not None
    assert uri.attrib["uri"].startswith("amqp://127.0.0.1:12345?")
    assert {"transport.tcpNoDelay=true", "transport.transformer=native"} <= set(uri.attrib["uri"].split("&"))
    assert (user.attrib["username"], user.attrib["password"]) == ("bench", 'se"cret<')
    store = root.find(f".//{core}kahaDB")
    assert store is not None
    assert store.attrib["directory"] == "/work/a&b/data/kahadb"


def test_an_archive_with_another_checksum_is_removed(tmp_path: Path) -> None:
    archive = tmp_path / "apache-artemis-2.33.0-bin.tar.gz"
    archive.write_bytes(b"something else")
    with pytest.raises(BenchFault, match="another SHA-512"):
        cache.verify(archive)
    assert not archive.exists()


def test_every_default_version_has_a_checksum() -> None:
    artifacts = {"artemis": "apache-artemis", "classic": "apache-activemq"}
    versioned = [name.split("-") for name in peers.DEFAULT_PEERS if not name.startswith("rabbitmq")]  # apt's signatures
    assert {f"{artifacts[kind]}-{version}-bin.tar.gz" for kind, version in versioned} == set(cache.SHA512)


def test_needed_packages_are_those_that_stand_at_the_beginnings_of_lines() -> None:
    depends = (
        "rabbitmq-server\n  Depends: adduser\n |Depends: erlang-base\n  Depends: <erlang-base-hipe>\n    erlang-base\n"
    )
    depends += "adduser\nerlang-base\n  Depends: libc6\nerlang-ssl\n<erlang-base-hipe>\nerlang-base-hipe\nsocat\n"
    found = debian.depended(depends)
    assert found == ["adduser", "erlang-base", "erlang-base-hipe", "erlang-ssl", "rabbitmq-server", "socat"]
    assert rabbitmq.erlang(found) == ["erlang-base", "erlang-ssl"]


def test_programs_of_another_release_run_by_their_own_loader(tmp_path: Path) -> None:
    home, programs = tmp_path / "home", tmp_path / "home" / "usr" / "bin"
    programs.mkdir(parents=True)
    (programs / "echo").symlink_to("/bin/echo")
    for library in next(iter(Path("/usr/lib").glob("*/libc.so.6"))).parent.glob("lib[a-z]*.so.[0-9]"):
        place = home / "usr" / "lib" / library.parent.name / library.name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.symlink_to(library.resolve())
    (home / "usr/lib64").mkdir()
    (loader,) = Path("/lib64").glob("ld-linux-*.so.*")
    (home / "usr/lib64" / loader.name).symlink_to(loader)
    debian.wrap(home, programs, tmp_path / "wrapped")
    said = subprocess.run([tmp_path / "wrapped" / "echo", "two words"], capture_output=True, text=True, check=True)
    assert said.stdout == "two words\n"


def test_rabbitmq_has_everything_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "cache" / "mqops-bench" / rabbitmq.PACKAGE
    (home / "usr/lib/rabbitmq/lib/rabbitmq_server-3.10.8/plugins/rabbitmq_amqp1_0-3.10.8").mkdir(parents=True)
    (home / "usr/lib/erlang/erts-13.1.5/bin").mkdir(parents=True)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("RABBITMQ_USE_LONGNAME", "true")
    peer = peers.make("rabbitmq-3.10", tmp_path / "node")
    peer.prepare()
    found = peer.environment()
    assert "RABBITMQ_USE_LONGNAME" not in found
    assert (found["HOME"], found["ERL_EPMD_ADDRESS"]) == (str(peer.directory), "127.0.0.1")
    places = [value for name, value in found.items() if name.startswith("RABBITMQ_") and value.startswith("/")]
    assert len(places) >= 6
    assert all(Path(place).is_relative_to(peer.directory) for place in places)
    config = peer.directory / "rabbitmq.conf"
    assert f"listeners.tcp.clients = 127.0.0.1:{peer.port}\n" in config.read_text()
    assert config.stat().st_mode & 0o77 == 0
    assert peer.address("orders") == "/queue/orders"


def test_another_rabbitmq_than_the_named_one_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "mqops-bench" / rabbitmq.PACKAGE
    server = home / "usr/lib/rabbitmq/lib/rabbitmq_server-3.12.1"
    server.mkdir(parents=True)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(BenchFault, match=r"is 3\.12\.1 here, not 3\.10: say --peer rabbitmq-3\.12\.1"):
        rabbitmq.distribution("3.10")
    with pytest.raises(BenchFault, match="has no plugin rabbitmq_amqp1_0"):
        rabbitmq.distribution("3.12")


def test_half_a_distribution_is_not_taken_for_one(tmp_path: Path) -> None:
    def fails(place: Path) -> Path:
        (place / "half").touch()
        raise BenchFault("interrupted")

    with pytest.raises(BenchFault, match="interrupted"):
        cache.unpacked(tmp_path / "home", fails)
    assert [path.name for path in tmp_path.iterdir()] == [cache.LOCK]


def test_nodes_that_ask_for_it_at_the_same_time_get_one(tmp_path: Path) -> None:
    asked = threading.Barrier(4)
    made: list[Path] = []

    def fill(place: Path) -> Path:
        made.append(place)
        (place / "distribution").mkdir()
        return place / "distribution"

    def ask(number: int) -> Path:
        asked.wait()
        return cache.unpacked(tmp_path / "home", fill)

    with ThreadPoolExecutor(4) as pool:
        assert set(pool.map(ask, range(4))) == {tmp_path / "home"}
    assert len(made) == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == [cache.LOCK, "home"]


@pytest.mark.parametrize("name", ["rabbit", "artemis", "artemis-", "artemis-latest", "classic", "rabbitmq", "../x"])
def test_unknown_peers_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match=r"no peer is called .*; say "):
        peers.require_known(name)


def test_order_turns_with_the_round() -> None:
    names = ["a", "b", "c"]
    orders = [turned(names, number) for number in range(4)]
    assert orders == [["a", "b", "c"], ["b", "c", "a"], ["c", "a", "b"], ["a", "b", "c"]]


def test_all_that_is_missing_is_named_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    needs = [prerequisites.Need(name, f"{name}-dev", lambda: False) for name in ("one", "two")]
    needs.append(prerequisites.Need("three", "three-dev", lambda: True))
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    with pytest.raises(BenchFault, match=r"lacks:\n  one: package one-dev\n  two: package two-dev$"):
        prerequisites.ensure(needs, print)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--rows", "speed"], "no row is called speed"),
        (["--peer", "rabbit"], "no peer is called rabbit"),
        (["--short", "--no-ours"], "leaves no broker"),
        (["--rounds", "101"], "--rounds must be 1 to 100"),
    ],
)
def test_wrong_usage(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run.main(arguments) == run.USAGE
    assert said in capsys.readouterr().err


def test_list_names_every_row(capsys: pytest.CaptureFixture[str]) -> None:
    assert run.main(["--list"]) == run.DONE
    listed = [line.split()[0] for line in capsys.readouterr().out.splitlines()]
    assert listed[-1] == "start"
    assert {"depth", "plain-mix-acknowledged", "connections", "queues", "bystander", "among-queues"} < set(listed)
    assert {"jms-browse", "recovery"} < set(listed)
