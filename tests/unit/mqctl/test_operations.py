"""Commands over the operations of brokers: rows, exit codes, questions. The brokers are real below their sockets."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from mqbroker.base.notice import Level
from mqbroker.config.file.load import parse
from mqbroker.config.lifetimes import DAY_S
from mqbroker.config.slices import BrokerOptions
from mqbroker.config.users import make_verifier
from mqbroker.node.values.inputs import CertificateExpiry, CertificatesInUse
from mqbroker.wire.performatives import Attach, Target
from mqbroker.wire.types import Symbol
from mqctl.admin import AdminClient
from mqctl.brokers.journald import of_journal
from mqctl.commands.look import events
from mqctl.commands.messages import queue_stat
from mqctl.dev.log import last_lines
from mqctl.exits import Exit
from mqctl.main import execute
from mqctl.output import Format
from mqctl.world import real_world

from tests.support.admin_stage import AdminStage
from tests.support.stage import Stage, options_with


class Cluster:
    """Two nodes and the command line."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder = folder
        self.capsys = capsys
        self.first = AdminStage(folder, "dev-1")
        self.second = AdminStage(
            folder, "dev-2", Stage(options_with(address_settings={"orders": {"dead_letter_address": "DLQ"}}))
        )

    def run(self, *words: str, code: int = 0) -> tuple[str, str]:
        """What it says on standard output and standard error."""
        self.capsys.readouterr()
        assert execute([*words, "--dev", "--directory", str(self.folder)]) == code, self.capsys.readouterr().err
        said = self.capsys.readouterr()
        return said.out, said.err

    def rows(self, *words: str, code: int = 0) -> list[dict[str, Any]]:
        document = json.loads(self.run(*words, "--json", code=code)[0])
        assert document["schema"].startswith("mqctl.")
        rows: list[dict[str, Any]] = document["rows"]
        return rows


@pytest.fixture
def cluster(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Iterator[Cluster]:
    one = Cluster(tmp_path, capsys)
    with one.first, one.second:
        yield one


# -- lists ------------------------------------------------------------------------------------------------------------


def test_lists_have_the_rows_of_all_nodes(cluster: Cluster) -> None:
    cluster.first.stage.admin("queue-create", name="q1", address="shop")
    cluster.second.stage.admin("queue-create", name="q2")
    assert [(row["host"], row["address"], row["queues"]) for row in cluster.rows("address", "list")] == [
        ("dev-1", "shop", ["q1"]), ("dev-2", "q2", ["q2"]),
    ]  # fmt: skip
    assert [row["queue"] for row in cluster.rows("queue", "list", "--host", "dev-2")] == ["q2"]
    out, _ = cluster.run("queue", "stat", "--interval", "0", "-o", "csv")
    assert [(row["queue"], row["messages"]) for row in csv.DictReader(io.StringIO(out))] == [("q1", "0"), ("q2", "0")]


def test_a_silent_node_is_exit_code_3_and_hides_no_other(cluster: Cluster) -> None:
    cluster.first.stage.admin("queue-create", name="q1")
    (cluster.folder / "dev-2" / "admin.sock").unlink()
    out, err = cluster.run("address", "list", "--json", code=Exit.DEGRADED)
    document = json.loads(out)
    assert (document["is_whole"], [row["address"] for row in document["rows"]]) == (False, ["q1"])
    assert "no broker answers" in err


def test_clients(cluster: Cluster) -> None:
    stage = cluster.second.stage
    talker = stage.connect("alice")
    assert talker.session is not None
    (row,) = cluster.rows("connection", "list")
    assert (row["host"], row["container_id"], row["sessions"]) == ("dev-2", "alice", 1)
    assert [row["container_id"] for row in cluster.rows("session", "list", "--container-id", "alice")] == ["alice"]
    assert (row["queues"], row["addresses"], cluster.rows("quota", "list")) == (0, 0, [])
    target = Target(address="made", capabilities=(Symbol("topic"),))
    talker.session.attach_sender(Attach(name="s", handle=0, role=False, target=target, initial_delivery_count=0))
    stage.run()
    (row,) = cluster.rows("connection", "list")
    assert (row["queues"], row["addresses"]) == (0, 1)
    (row,) = cluster.rows("quota", "list", "--user", "anonymous")
    assert (row["queues"], row["queues_max"], row["addresses"], row["addresses_max"]) == (0, None, 1, None)
    assert cluster.rows("quota", "list", "--user", "bob") == []
    assert cluster.rows("session", "list", "--connection", "99") == []
    stage.admin("queue-create", name="orders")
    stage.ask("receive", 5, address="orders", wait_ms=60_000)
    (row,) = cluster.rows("consumer", "list", "--queue", "orders")
    assert (row["link"], row["lag"]) == ("admin-5", 0)
    assert [row["address"] for row in cluster.rows("producer", "list")] == ["made"]
    closed = cluster.rows("connection", "close", "--container-id", "alice", "--yes", "--host", "dev-2")
    assert closed == [{"host": "dev-2", "instance": "default", "closed": 1}]
    assert cluster.rows("connection", "list") == []


def test_settings_and_options(cluster: Cluster) -> None:
    rows = cluster.rows("address", "settings", "orders", "--host", "dev-2")
    said = {row["setting"]: (row["value"], row["match"]) for row in rows}
    assert said["dead-letter-address"] == ("DLQ", "orders")
    (row,) = cluster.rows("config", "show", "link-credit", "--host", "dev-1")
    assert row["option"] == "limits.link-credit"


def test_a_reload_says_what_changed_and_what_needs_a_restart(cluster: Cluster) -> None:
    stage = cluster.first.stage
    place = {"host": "dev-1", "instance": "default"}
    assert cluster.run("config", "reload", "--host", "dev-1") == ("", "dev-1: nothing has changed\n")
    stage.options = options_with(address_settings={"orders": {"dead_letter_address": "DLQ"}})
    stage.users = {"app": make_verifier("secret", b"0123456789abcdef", ("client",))}
    assert cluster.rows("config", "reload", "--host", "dev-1") == [
        place | {"option": "address-settings.orders", "before": None, "after": "orders", "state": "changed"},
        place | {"option": "user app", "before": None, "after": None, "state": "added"},
    ]
    stage.options = options_with(
        address_settings={"orders": {"dead_letter_address": "DLA"}}, limits={"link_credit": 33}
    )
    out, err = cluster.run("config", "reload", "--all", "-o", "csv", code=Exit.DEGRADED)
    assert [(row["host"], row["option"], row["before"], row["state"]) for row in csv.DictReader(io.StringIO(out))] == [
        ("dev-1", "address-settings.orders.dead-letter-address", '"DLQ"', "changed"),
        ("dev-1", "limits.link-credit", "2000", "needs restart"),
    ]
    assert "dev-2: nothing has changed" in err
    assert "systemctl restart" in err


ORDERS = '[[addresses]]\nname = "orders"\n[[addresses.anycast]]\nname = "q"\nring-size = {}\n'


def test_declared_addresses_are_shown_and_what_of_them_cannot_change_is_said(cluster: Cluster) -> None:
    stage = cluster.first.stage
    for size, said in ((5, ""), (6, "dev-1: queue 'q' keeps its ring-size; delete it to have it made anew\n")):
        options = parse(ORDERS.format(size))
        assert isinstance(options, BrokerOptions)
        stage.options = replace(stage.options, addresses=options.addresses)
        out, err = cluster.run("config", "reload", "--host", "dev-1", "-o", "csv")
        assert "addresses.orders" in out
        assert err == said
    stage.crash()
    stage.start()
    (row,) = cluster.rows("config", "show", "addresses.orders.anycast", "--host", "dev-1")
    assert (row["value"][0]["name"], row["value"][0]["ring_size"]) == ("q", 6)


def test_a_reload_of_faulty_files_fails_and_names_every_fault(cluster: Cluster) -> None:
    cluster.first.stage.file_faults = ["broker.toml: node.nme: unknown", "broker.toml: limits.link-credit: too small"]
    _, err = cluster.run("config", "reload", "--host", "dev-1", code=Exit.FAILED)
    assert all(fault in err for fault in cluster.first.stage.file_faults)
    cluster.second.stage.options = options_with()
    out, err = cluster.run("config", "reload", "--all", "--json", code=Exit.FAILED)
    assert {row["host"] for row in json.loads(out)["rows"]} == {"dev-2"}
    assert all(said in err for said in ("nothing was changed", "limits.link-credit", "1 of 2 nodes did not reload"))
    assert "--host" in cluster.run("config", "reload", code=Exit.USAGE)[1]
    assert "exclude" in cluster.run("config", "reload", "--all", "--host", "dev-1", code=Exit.USAGE)[1]


def test_rates_are_of_queues_that_count_from_the_same_start() -> None:
    place = {"host": "a", "instance": "default"}
    before = [
        place | {"queue": "q", "added": 10, "acknowledged": 5},
        place | {"queue": "r", "added": 9, "acknowledged": 9},
    ]
    rows = [
        place | {"queue": "q", "added": 30, "acknowledged": 5},
        place | {"queue": "r", "added": 1, "acknowledged": 0},
        place | {"queue": "new", "added": 1, "acknowledged": 0},
    ]
    queue_stat.add_rates(before, rows, 2.0)
    assert [(row.get("added_per_s"), row.get("acknowledged_per_s")) for row in rows] == [
        (10.0, 0.0), (None, None), (None, None),
    ]  # fmt: skip


def test_a_queue_that_was_made_again_between_two_looks_has_no_rate(cluster: Cluster) -> None:
    stage = cluster.first.stage
    for name in ("again", "kept"):
        stage.admin("send", address=name, messages=[{"body": "x"}])

    slept_s: list[float] = []

    def meanwhile(duration_s: float) -> None:
        slept_s.append(duration_s)
        stage.wait(round(duration_s * 1000))
        stage.admin("queue-delete", name="again", force=True)
        for name in ("again", "kept"):
            stage.admin("send", address=name, messages=[{"body": "x"}] * 3)

    world = replace(real_world(), monotonic_s=lambda: sum(slept_s), sleep_s=meanwhile)
    queue_stat.run(world, queue_stat.Options(dev=True, directory=cluster.folder, interval=2.0, json=True))
    again, kept = json.loads(cluster.capsys.readouterr().out)["rows"]
    assert (again["queue"], again["added"], again.get("added_per_s")) == ("again", 3, None)
    assert (kept["queue"], kept["added"], kept["added_per_s"]) == ("kept", 4, 1.5)


@pytest.mark.slow
def test_a_node_that_is_silent_at_both_looks_is_told_of_once(cluster: Cluster) -> None:
    lost = cluster.folder / "dev-3"
    lost.mkdir()
    (lost / "broker.toml").touch()
    _, err = cluster.run("queue", "stat", "--interval", "0.1", code=Exit.DEGRADED)
    assert err.count("dev-3") == 1


def test_queues_of_one_name_are_summed_over_the_nodes(cluster: Cluster) -> None:
    for stage, count in ((cluster.first.stage, 2), (cluster.second.stage, 3)):
        stage.admin("send", address="sums", messages=[{"body": "x"}] * count)
    stage.admin("send", address="alone", messages=[{"body": "x"}])
    alone, sums = cluster.rows("queue", "stat", "--sum", "--interval", "0")
    assert [(row["queue"], row["nodes"], row["messages"], row["added"]) for row in (alone, sums)] == [
        ("alone", 1, 1, 1), ("sums", 2, 5, 5),
    ]  # fmt: skip
    assert "host" not in sums
    per_node = cluster.rows("queue", "stat", "sums", "--interval", "0")
    assert [(row["host"], row["messages"]) for row in per_node] == [("dev-1", 2), ("dev-2", 3)]


def test_rates_are_summed_where_all_nodes_have_one() -> None:
    place = {"address": "a", "queue": "q", "paused": False, **dict.fromkeys(queue_stat.SUMMED, 1)}
    rates = {"added_per_s": 1.5, "acknowledged_per_s": 0.5}
    both = queue_stat.summed([place | rates, place | rates | {"paused": True}])
    assert (both[0]["added_per_s"], both[0]["acknowledged_per_s"], both[0]["paused"]) == (3.0, 1.0, True)
    (row,) = queue_stat.summed([place | rates, place])
    assert "added_per_s" not in row


# -- queues -----------------------------------------------------------------------------------------------------------


def test_the_life_of_a_queue(cluster: Cluster) -> None:
    there = ("--host", "dev-1")
    made = cluster.rows("queue", "create", "q", "--address", "shop", "--routing", "multicast", "--ring-size", "5",
                        "--paused", *there)  # fmt: skip
    assert (made[0]["host"], made[0]["address"], made[0]["paused"]) == ("dev-1", "shop", True)
    shown = {row["attribute"]: row["value"] for row in cluster.rows("queue", "show", "q", *there)}
    assert (shown["ring_size"], shown["exclusive"]) == (5, False)
    assert cluster.rows("queue", "resume", "q", *there)[0]["changed"] is True
    assert cluster.rows("queue", "pause", "q", *there)[0]["paused"] is True
    assert [row["queue"] for row in cluster.rows("address", "show", "shop", *there)] == ["q"]
    cluster.run("send", "shop", "a", "b", *there)
    assert cluster.rows("queue", "purge", "q", "--yes", *there)[0]["purged"] == 2
    cluster.run("send", "shop", "c", *there)
    assert cluster.rows("queue", "delete", "q", "--yes", *there)[0]["messages"] == 1
    assert cluster.rows("queue", "list") == []


def test_the_life_of_an_address(cluster: Cluster) -> None:
    there = ("--host", "dev-1")
    (made,) = cluster.rows("address", "create", "news", "--routing", "both", *there)
    assert (made["host"], made["name"], made["routing_types"]) == ("dev-1", "news", ["anycast", "multicast"])
    cluster.run("queue", "create", "q", "--address", "news", "--routing", "multicast", *there)
    (paused,) = cluster.rows("address", "pause", "news", "--no-persist", *there)
    assert (paused["paused"], paused["changed"]) == (True, True)
    assert [row["paused"] for row in cluster.rows("address", "list", *there)] == [True]
    assert [row["paused"] for row in cluster.rows("queue", "list", *there)] == [True]
    assert cluster.rows("address", "resume", "news", *there)[0]["paused"] is False
    cluster.run("send", "news", "one", *there)
    _, err = cluster.run("address", "delete", "news", "--yes", *there, code=Exit.FAILED)
    assert "1 queues and 0 producers" in err
    (gone,) = cluster.rows("address", "delete", "news", "--yes", "--force", *there)
    assert (gone["queues"], gone["messages"]) == (["q"], 1)
    assert cluster.rows("address", "list", *there) == []
    cluster.run("address", "create", "orders", *there)
    assert cluster.rows("address", "list", *there)[0]["routing_types"] == ["anycast"]
    assert cluster.rows("address", "delete", "orders", "--yes", *there)[0]["queues"] == []


@pytest.mark.parametrize(
    "words", [["queue", "delete", "q"], ["address", "delete", "q", "--force"], ["queue", "purge", "q"],
              ["message", "move", "q", "r"],
              ["message", "retry-dead-letters", "q"], ["connection", "close", "1"]],
)  # fmt: skip
def test_what_cannot_be_taken_back_asks_and_without_a_terminal_refuses(cluster: Cluster, words: list[str]) -> None:
    cluster.run("send", "q", "one", "--host", "dev-1")
    cluster.first.stage.connect("c")
    _, err = cluster.run(*words, "--host", "dev-1", code=Exit.USAGE)
    assert "the same command with --yes" in err
    assert [row["messages"] for row in cluster.rows("queue", "list")] == [1]
    assert len(cluster.rows("connection", "list")) == 1


def test_what_changes_something_wants_one_node(cluster: Cluster) -> None:
    _, err = cluster.run("queue", "create", "q", code=Exit.USAGE)
    assert "there are 2 nodes and no --host" in err
    assert cluster.rows("queue", "list") == []


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["queue", "show", "nowhere"], "there is no queue 'nowhere'"),
        (["address", "show", "nowhere"], "there is no address 'nowhere'"),
        (["address", "delete", "nowhere", "--yes"], "there is no address 'nowhere'"),
        (["address", "pause", "nowhere"], "address-pause: there is no address 'nowhere'"),
        (["address", "create", "a::b"], "not of an address"),
        (["queue", "purge", "nowhere", "--yes"], "there is no queue 'nowhere'"),
        (["queue", "create", "q", "--selector", "a ="], "column"),
        (["message", "browse", "nowhere"], "there is no queue 'nowhere'"),
        (["connection", "close", "77", "--yes"], "no connection of connection 77"),
    ],
)
def test_a_refusal_is_exit_code_1_and_says_why(cluster: Cluster, words: list[str], said: str) -> None:
    out, err = cluster.run(*words, "--host", "dev-1", code=Exit.FAILED)
    assert said in err
    assert out == ""


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (("queue", "show", "nope"), "mqctl queue list"),
        (("message", "show", "nope", "1"), "mqctl queue list"),
        (("address", "show", "nope"), "mqctl address list"),
        (("connection", "close", "77"), "mqctl connection list"),
    ],
)
def test_what_is_not_there_ends_with_the_command_that_shows_what_is(
    cluster: Cluster, words: tuple[str, ...], hint: str
) -> None:
    more = ["--yes"] if "close" in words else []
    _, err = cluster.run(*words, *more, "--host", "dev-1", code=Exit.FAILED)
    assert err.splitlines()[-1] == f"try: {hint}"


# -- messages ---------------------------------------------------------------------------------------------------------


def test_messages_with_properties_are_found_by_selectors(cluster: Cluster) -> None:
    there = ("--host", "dev-2")
    for colour, weight in (("red", "2"), ("blue", "3"), ("red", "4")):
        cluster.run("send", "orders", f"{colour} {weight}", "-p", f"colour={colour}", "-p", f"weight={weight}",
                    "--priority", "7", "--ttl", "60", "--field", "subject=s", *there)  # fmt: skip
    out, _ = cluster.run("message", "browse", "orders", "--selector", "weight > 2", *there)
    assert out.splitlines() == ["blue 3", "red 4"]
    out, _ = cluster.run("message", "browse", "orders", "--count", "1", "-o", "json", *there)
    (message,) = [json.loads(line) for line in out.splitlines()]
    assert (message["header"]["priority"], message["header"]["ttl"]) == (7, 60_000)
    assert (message["properties"]["subject"], message["application_properties"]["weight"]) == ("s", 2)
    shown = cluster.rows("message", "show", "orders", str(message["message_id_in_queue"]), *there)
    assert {"host": "dev-2", "instance": "default", "field": "body", "value": "red 2"} in shown
    out, _ = cluster.run("receive", "orders", "--selector", "colour = 'blue'", "--count", "1", *there)
    assert out == "blue 3\n"
    assert [row["messages"] for row in cluster.rows("queue", "list", *there)] == [2]


def test_a_receive_of_a_mistyped_name_is_an_error_and_makes_no_queue(cluster: Cluster) -> None:
    cluster.run("send", "orders", "one", "--host", "dev-1")
    out, err = cluster.run("receive", "ordres", "--host", "dev-1", code=Exit.FAILED)
    assert (out, "no queue and no address is called 'ordres'" in err, "mqctl queue list" in err) == ("", True, True)
    assert [row["queue"] for row in cluster.rows("queue", "list", "--host", "dev-1")] == ["orders"]


def test_a_queue_that_goes_when_it_is_empty_ends_a_receive(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    settle = AdminClient.call

    def settle_and_delete(session: AdminClient, operation: str, wait_s: float = 0, **arguments: Any) -> dict[str, Any]:
        answer = settle(session, operation, wait_s, **arguments)
        if operation == "settle":
            settle(session, "queue-delete", name="orders")
        return answer

    cluster.run("send", "orders", "one", "two", "--host", "dev-1")
    monkeypatch.setattr(AdminClient, "call", settle_and_delete)
    assert cluster.run("receive", "orders", "--host", "dev-1")[0] == "one\ntwo\n"


def test_move_and_retry(cluster: Cluster) -> None:
    there = ("--host", "dev-2")
    cluster.run("send", "orders", "one", "two", *there)
    stage = cluster.second.stage
    request = stage.ask("receive", 5, address="orders", count_max=1, wait_ms=1)
    stage.wait(2)
    stage.admin("settle", 5, tag=stage.replies[request].result["tag"], outcome="rejected")
    (moved,) = cluster.rows("message", "move", "orders", "parked", "--yes", *there)
    assert (moved["moved"], moved["left"]) == (1, 0)
    dead = next(
        row["queue"] for row in cluster.rows("queue", "list", *there) if row["messages"] and row["queue"] != "parked"
    )
    (retried,) = cluster.rows("message", "retry-dead-letters", dead, "--yes", *there)
    assert (retried["retried"], retried["left"]) == (1, 0)
    counts = {row["queue"]: row["messages"] for row in cluster.rows("queue", "list", *there)}
    assert (counts["orders"], counts["parked"], counts[dead]) == (1, 1, 0)


@pytest.mark.parametrize("option", [["-p", "colour"], ["--field", "=x"]])
def test_a_property_is_a_pair(cluster: Cluster, option: list[str]) -> None:
    _, err = cluster.run("send", "q", "one", *option, "--host", "dev-1", code=Exit.USAGE)
    assert "is not NAME=VALUE" in err


# -- events and logs --------------------------------------------------------------------------------------------------


def test_events_of_all_nodes_by_time(cluster: Cluster) -> None:
    cluster.second.stage.broker.notice(Level.WARNING, "login-failed", user="eve")
    cluster.first.stage.now_ns += 10**9
    cluster.first.stage.broker.at = cluster.first.stage.at
    cluster.first.stage.broker.notice(Level.INFO, "ready")
    rows = cluster.rows("events")
    assert [(row["host"], row["event"], row["fields"]) for row in rows] == [
        ("dev-2", "login-failed", {"user": "eve"}), ("dev-1", "ready", {}),
    ]  # fmt: skip
    out, _ = cluster.run("events", "--level", "warning", "-o", "csv")
    (row,) = csv.DictReader(io.StringIO(out))
    assert (row["event"], row["fields"], row["time"][-1]) == ("login-failed", "user=eve", "Z")


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("a", "a"),
        (7, "7"),
        ("ü=1", "ü=1"),
        ("", '""'),
        ("a b", '"a b"'),
        ('"', '"\\""'),
        ("a\nb", '"a\\nb"'),
        ("a\n", '"a\\n"'),
    ],
)
def test_a_followed_event_is_one_line(value: str | int, said: str) -> None:
    row = {"time_ms": 1_700_000_000_123, "level": "info", "event": "ready", "fields": {"node": value}}
    line = events.line_of("mq1", events.shown(row, Format.TABLE))
    assert line == f"2023-11-14T22:13:20.123Z mq1 info ready node={said}"


def test_who_fails_to_log_in_makes_no_line_of_events(cluster: Cluster) -> None:
    cluster.first.stage.broker.notice(Level.WARNING, "login-failed", user="eve\n2026-01-01T00:00:00.000Z dev-1 error x")
    out, _ = cluster.run("events", "--host", "dev-1")
    assert out.count("\n") == 2, "a header and one row"


def test_logs_of_dev_brokers_and_of_journald(cluster: Cluster) -> None:
    log = cluster.folder / "dev-1" / "log"
    log.write_text("2026-01-01T00:00:00.000Z INFO    ready node=a\nTraceback\n")
    (cluster.folder / "dev-2" / "log").write_text("")
    assert [(row["level"], row["message"]) for row in cluster.rows("logs")] == [
        ("", "Traceback"), ("info", "ready node=a"),
    ]  # fmt: skip
    out, _ = cluster.run("logs", "-n", "5", "--host", "dev-1")
    assert "2026-01-01T00:00:00.000Z dev-1 info ready node=a" in out.splitlines()
    assert len(last_lines(log, 1)) == 1
    entry = {"__REALTIME_TIMESTAMP": "1700000000123456", "PRIORITY": "3", "MESSAGE": [111, 107]}
    assert of_journal(entry) == {"time": "2023-11-14T22:13:20.123Z", "level": "error", "message": "ok"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("life_days", "left_s", "state", "said", "code", "word"),
    [
        (365, 31 * DAY_S, "ok", "", 0, "OK"),
        (365, 30 * DAY_S - 1, "warning", "ends in 29 days", 1, "WARNING"),
        (365, 7 * DAY_S, "warning", "ends in 7 days", 1, "WARNING"),
        (365, 7 * DAY_S - 1, "error", "ends in 6 days", 2, "CRITICAL"),
        (365, DAY_S, "error", "ends in 1 day (", 2, "CRITICAL"),
        (365, 1, "error", "ends today", 2, "CRITICAL"),
        (365, -1, "error", "has ended", 2, "CRITICAL"),
        (6, 2 * DAY_S, "ok", "", 0, "OK"),
        (6, 2 * DAY_S - 1, "warning", "ends in 1 day (", 1, "WARNING"),
        (6, DAY_S // 2 - 1, "error", "ends today", 2, "CRITICAL"),
    ],
)
def test_status_and_check_judge_certificates_as_the_broker_does(
    cluster: Cluster, life_days: int, left_s: int, state: str, said: str, code: int, word: str
) -> None:
    stage = cluster.first.stage
    now_s = stage.at.wall_ms // 1000
    life_s = (now_s + left_s - life_days * DAY_S, now_s + left_s)
    stage.give(CertificatesInUse((CertificateExpiry("clients", "tls-certificate-file", "/etc/c.pem", *life_s),)))
    stage.run()
    first, second = cluster.rows("status")
    assert (second["certificates"], second["note"]) == ([], "")
    (row,) = first["certificates"]
    assert (row["listener"], row["file"], row["state"]) == ("clients", "/etc/c.pem", state)
    assert row["days_left"] == left_s // DAY_S
    told = f"tls-certificate-file of listener clients {said}" if said else ""
    assert first["note"].startswith(told)
    assert bool(first["note"]) == bool(said)
    out, _ = cluster.run("check", code=code)
    assert out.startswith(f"MQ {word} - {f'dev-1: {told}' if told else '2 nodes well'}")


# -- check ------------------------------------------------------------------------------------------------------------


def test_all_is_well(cluster: Cluster) -> None:
    out, _ = cluster.run("check", code=0)
    line, performance = out.strip().split(" | ")
    assert line == "MQ OK - 2 nodes well"
    assert "'dev-1 messages'=0;;;0" in performance
    assert "'dev-2 memory'=0B;;;0;" in performance


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["-w", "2", "-c", "5"], 1, "MQ WARNING - dev-1 full holds 3 messages"),
        (["-w", "2", "-c", "3"], 2, "MQ CRITICAL - dev-1 full holds 3 messages"),
        (["-w", "4"], 0, "MQ OK - 2 nodes well"),
        (["--queue", "full", "--consumers-min", "1"], 2, "MQ CRITICAL - dev-1 full has 0 consumers"),
        (["--queue", "nowhere"], 3, "MQ UNKNOWN - there is no queue nowhere"),
        (["--host", "dev-9"], 3, "MQ UNKNOWN - --host dev-9: there is no such node"),
        (["--consumers-min", "1"], 3, "MQ UNKNOWN - --consumers-min goes with --queue"),
    ],
)
def test_states_of_nagios(cluster: Cluster, words: list[str], code: int, said: str) -> None:
    cluster.run("send", "full", "a", "b", "c", "--host", "dev-1")
    out, _ = cluster.run("check", *words, code=code)
    assert out.startswith(said)
    assert out.count("\n") == 1


@pytest.mark.parametrize(
    ("bounds", "code", "word"),
    [((2, 3), 0, "OK"), ((1, 2), 1, "WARNING"), ((1, 1), 2, "CRITICAL"), ((2, 1), 2, "CRITICAL")],
)
def test_memory_is_critical_from_its_bound_on_wherever_the_warning_begins(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], bounds: tuple[int, int], code: int, word: str
) -> None:
    with AdminStage(tmp_path, stage=Stage(options_with(limits={"global_max_size_bytes": 1 << 20}))) as node:
        node.stage.admin("send", address="full", messages=[{"body": "x" * 10_600}])
        words = ["check", "--memory-warning", str(bounds[0]), "--memory-critical", str(bounds[1])]
        assert execute([*words, "--dev", "--directory", str(tmp_path)]) == code
    assert capsys.readouterr().out.startswith(f"MQ {word} - ")


def test_a_name_ends_neither_the_line_nor_its_text_nor_a_label(cluster: Cluster) -> None:
    name = "o'x|y\nMQ OK"
    cluster.run("send", name, "a", "--host", "dev-1")
    out, _ = cluster.run("check", "--queue", name, "-w", "1", code=1)
    assert out.startswith("MQ WARNING - dev-1 o'x/y\\nMQ OK holds 1 message | ")
    assert out.endswith(" 'dev-1 o''x|y\\nMQ OK'=1;1;;0\n")
    assert out.count("\n") == 1


def test_performance_data_of_one_queue_has_its_thresholds(cluster: Cluster) -> None:
    cluster.run("send", "full", "a", "--host", "dev-1")
    out, _ = cluster.run("check", "--queue", "full", "-w", "2", "-c", "3")
    assert "'dev-1 full'=1;2;3;0" in out


def test_a_node_that_does_not_answer_is_critical_and_a_wrong_command_line_unknown(cluster: Cluster) -> None:
    (cluster.folder / "dev-2" / "admin.sock").unlink()
    out, _ = cluster.run("check", code=2)
    assert out.startswith("MQ CRITICAL - no broker answers at")
    cluster.run("check", "--nonsense", code=3)


# -- brokers without a cluster -----------------------------------------------------------------------------------------


def test_status_of_a_broker_without_a_cluster_shows_no_links(cluster: Cluster) -> None:
    rows = cluster.rows("status")
    assert [(row["links_up"], row["forwarding"], row["lag_ms"], row["links"]) for row in rows] == [
        (None, None, None, []), (None, None, None, []),
    ]  # fmt: skip


def test_topology_of_brokers_without_cluster_connections_is_empty(cluster: Cluster) -> None:
    assert cluster.rows("topology") == []


@pytest.mark.slow
def test_canaries_of_brokers_without_a_cluster_are_none(cluster: Cluster) -> None:
    assert cluster.rows("cluster", "canary") == []


@pytest.mark.slow
def test_groups_of_brokers_that_keep_none_together_are_none(cluster: Cluster) -> None:
    assert cluster.rows("group", "list") == []


@pytest.mark.slow
def test_discovery_of_brokers_without_groups_is_empty(cluster: Cluster) -> None:
    assert cluster.rows("discovery", "list") == cluster.rows("discovery", "groups") == []
