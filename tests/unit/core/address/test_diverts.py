"""Where diverted messages go, in one append, and that circles of diverts end."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from mqbroker.amqp.links import RUN_MAX
from mqbroker.config.slices import DivertOptions
from mqbroker.core.address.diverts import COPIES_MAX, faults_of
from mqbroker.core.address.permissions import BROKER
from mqbroker.node.values.inputs import BytesReceived, OptionsChanged
from mqbroker.wire.parts import DELIVERY_DELAY
from mqbroker.wire.run import runs_of, single
from mqbroker.wire.scan import MESSAGE_ANNOTATIONS, scan_sections
from mqbroker.wire.sections import build_message, encode_section
from mqbroker.wire.values import Long

from tests.support.large_messages import Producer
from tests.support.stage import Stage, options_with

DEFAULTS: dict[str, Any] = {"filter": "", "exclusive": False, "routing_type": "STRIP"}


def divert(name: str, address: str, to: str, **values: Any) -> DivertOptions:
    return DivertOptions(name, address, to, **(DEFAULTS | values))


def stage_with(*diverts: DivertOptions, **tables: Any) -> Stage:
    return Stage(replace(options_with(**tables), diverts=diverts))


def send(stage: Stage, *colors: str, to: str = "orders", durable: bool = True) -> None:
    messages = [
        {"body": f"{color}{number}", "durable": durable, "application_properties": {"color": color}}
        for number, color in enumerate(colors)
    ]
    assert stage.admin("send", address=to, messages=messages) == {"accepted": len(colors)}


def held(stage: Stage) -> dict[str, list[str]]:
    """Bodies in each queue that has any; they are gone from it then."""
    found = {}
    for row in stage.admin("queues")["queues"]:
        if row["message_count"]:
            answer = stage.admin("receive", address=row["name"], count_max=1000, wait_ms=1)
            found[row["name"]] = [message["body"] for message in answer["messages"]]
            assert stage.admin("settle", tag=answer["tag"]) == {}
    return found


@pytest.mark.option("diverts.address")
@pytest.mark.option("diverts.forwarding-address")
@pytest.mark.option("diverts.exclusive")
@pytest.mark.parametrize(
    ("is_exclusive", "wanted"), [(False, {"orders": ["red0"], "audit": ["red0"]}), (True, {"audit": ["red0"]})]
)
def test_messages_go_there_as_well_or_instead(is_exclusive: bool, wanted: dict[str, list[str]]) -> None:
    stage = stage_with(divert("d", "orders", "audit", exclusive=is_exclusive))
    send(stage, "red")
    send(stage, "blue", to="prices")
    stage.crash()
    stage.start()
    assert held(stage) == {**wanted, "prices": ["blue0"]}


@pytest.mark.parametrize(("is_exclusive", "wanted"), [(False, {"orders": ["red0"]}), (True, {"audit": ["red0"]})])
def test_what_is_for_one_queue_alone_goes_instead_but_not_as_well(
    is_exclusive: bool, wanted: dict[str, list[str]]
) -> None:
    stage = stage_with(divert("d", "orders", "audit", exclusive=is_exclusive))
    stage.admin("queue-create", name="orders")
    store = stage.broker.store
    store.publish(store.target_for("orders::orders", BROKER), single(build_message("red0")))
    stage.step()
    assert held(stage) == wanted


def test_a_dead_letter_that_goes_back_is_not_copied_again() -> None:
    stage = stage_with(divert("d", "orders", "audit"), address_settings={"#": {"dead_letter_address": "DLQ"}})
    send(stage, "red")
    answer = stage.admin("receive", address="orders", count_max=1, wait_ms=1)
    stage.admin("settle", tag=answer["tag"], outcome="rejected")
    assert stage.admin("dead-letters-retry", queue="DLQ") == {"retried": 1, "left": 0}
    assert held(stage) == {"orders": ["red0"], "audit": ["red0"]}


@pytest.mark.option("diverts.filter")
@pytest.mark.parametrize("is_exclusive", [False, True])
def test_a_filter_chooses(is_exclusive: bool) -> None:
    stage = stage_with(divert("d", "orders", "audit", filter="color = 'red'", exclusive=is_exclusive))
    send(stage, "red", "blue", "red", "red", "green")
    stay = ["blue1", "green4"] if is_exclusive else ["red0", "blue1", "red2", "red3", "green4"]
    assert held(stage) == {"orders": stay, "audit": ["red0", "red2", "red3"]}


@pytest.mark.option("diverts.name")
def test_exclusive_ones_come_first_and_all_of_them_take() -> None:
    stage = stage_with(
        divert("copy", "orders", "audit"),
        divert("one", "orders", "first", filter="color = 'red'", exclusive=True),
        divert("two", "orders", "second", filter="color IN ('red', 'blue')", exclusive=True),
    )
    send(stage, "red", "blue", "green")
    assert held(stage) == {
        "orders": ["green2"], "audit": ["green2"], "first": ["red0"], "second": ["red0", "blue1"],
    }  # fmt: skip


@pytest.mark.option("diverts.routing-type")
@pytest.mark.parametrize(
    ("routing", "reached"),
    [("STRIP", ["shared", "copy"]), ("PASS", ["shared", "copy"]), ("ANYCAST", ["shared"]), ("MULTICAST", ["copy"])],
)
def test_a_routing_type_reaches_queues_of_its_kind(routing: str, reached: list[str]) -> None:
    stage = stage_with(divert("d", "orders", "audit", routing_type=routing, exclusive=True))
    stage.admin("queue-create", name="shared", address="audit")
    stage.admin("queue-create", name="copy", address="audit", routing_type="multicast")
    send(stage, "red")
    assert held(stage) == {name: ["red0"] for name in reached}


@pytest.mark.parametrize(("routing", "made"), [("STRIP", ["audit"]), ("ANYCAST", ["audit"]), ("MULTICAST", [])])
def test_what_is_made_where_the_forwarding_address_is_new(routing: str, made: list[str]) -> None:
    stage = stage_with(divert("d", "orders", "audit", routing_type=routing))
    send(stage, "red")
    assert sorted(held(stage)) == sorted([*made, "orders"])
    assert stage.broker.store.unrouted_total == (0 if made else 1)
    assert "audit" in stage.broker.store.addresses


def test_original_and_copy_are_in_one_append() -> None:
    stage = stage_with(divert("d", "orders", "audit"))
    send(stage, "red")
    stage.is_disk_held = True
    before = len(stage.appends)
    stage.ask("send", address="orders", messages=[{"body": "blue"}])
    assert len(stage.appends) == before + 1
    stage.crash()
    stage.is_disk_held = False
    stage.start()
    assert held(stage) == {"orders": ["red0"], "audit": ["red0"]}


def test_a_copy_lives_by_the_settings_of_its_address() -> None:
    settings = {"audit": {"expiry_delay": 100}, "orders": {"expiry_delay": 500}}
    stage = stage_with(divert("d", "orders", "audit"), address_settings=settings)
    send(stage, "red")
    stage.wait(200)
    assert {row["name"]: row["message_count"] for row in stage.admin("queues")["queues"]} == {"orders": 1, "audit": 0}


def test_copies_have_the_duplicate_id_of_the_first_and_are_not_taken_for_duplicates() -> None:
    stage = stage_with(divert("one", "orders", "audit"), divert("two", "prices", "audit"))
    message = {"body": "x", "application_properties": {"_AMQ_DUPL_ID": "a"}}
    for address in ("orders", "prices", "orders"):
        stage.admin("send", address=address, messages=[message])
    assert {name: len(bodies) for name, bodies in held(stage).items()} == {"orders": 1, "prices": 1, "audit": 2}


def test_chains_are_followed_and_circles_end() -> None:
    stage = stage_with(divert("1", "a", "b"), divert("2", "b", "c", exclusive=True), divert("3", "c", "a"))
    send(stage, "red", to="a")
    assert held(stage) == {"a": ["red0", "red0"], "c": ["red0"]}


def test_a_circle_of_exclusive_diverts_loses_nothing() -> None:
    stage = stage_with(divert("1", "a", "b", exclusive=True), divert("2", "b", "a", exclusive=True))
    send(stage, "red", to="a")
    assert held(stage) == {"a": ["red0"]}


def test_copies_of_one_run_are_bounded() -> None:
    names = "abcdefgh"
    stage = stage_with(*(divert(f"{one}{other}", one, other) for one in names for other in names if one != other))
    send(stage, "red", to="a")
    store = stage.broker.store
    assert sum(queue.message_count for queue in store.queues.values()) <= COPIES_MAX + 1
    assert store.unrouted_total > 0
    send(stage, "red", to="other")
    assert held(stage)["other"] == ["red0"]


def publish_alternating(stage: Stage) -> None:
    """One run of 100 messages, red and blue by turns."""
    colors = ["red", "blue"] * 50
    whole = [build_message(color, durable=True, application_properties={"color": color}) for color in colors]
    (run,) = runs_of(whole)
    stage.broker.store.publish(stage.broker.store.addresses["orders"], run)


def test_each_message_of_a_run_that_filters_cut_has_its_own_copies(monkeypatch: pytest.MonkeyPatch) -> None:
    """As from a sender whose messages were accepted; the second divert cuts the run again behind the first."""
    monkeypatch.setattr("mqbroker.core.address.diverts.COPIES_MAX", 20)
    stage = stage_with(
        divert("1", "orders", "red", exclusive=True, filter="color = 'red'"),
        divert("2", "orders", "rest", exclusive=True, filter="color <> 'red'"),
        divert("3", "rest", "blue", exclusive=True, filter="color = 'blue'"),
    )
    for queue in ("orders", "red", "rest", "blue"):
        stage.admin("queue-create", name=queue)
    publish_alternating(stage)
    assert held(stage) == {"red": ["red"] * 50, "blue": ["blue"] * 50}
    assert stage.broker.store.unrouted_total == 0


def test_each_message_of_a_run_that_filters_cut_is_a_dead_letter_where_its_divert_leads_nowhere(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("mqbroker.core.address.diverts.COPIES_MAX", 20)
    rules = {"auto_create_queues": False, "auto_create_addresses": False, "send_to_dla_on_no_route": True}
    stage = stage_with(
        divert("1", "orders", "gone", exclusive=True, filter="color = 'red'"), divert("2", "DLQ", "audit"),
        address_settings={"#": {**rules, "dead_letter_address": "DLQ"}},
    )  # fmt: skip
    for queue in ("orders", "DLQ", "audit"):
        stage.admin("queue-create", name=queue)
    publish_alternating(stage)
    assert counts(stage) == {"orders": 50, "DLQ": 50, "audit": 50}


ELEVEN_WAYS = (
    divert("1", "orders", "red", exclusive=True, filter="color = 'red'"),
    divert("2", "orders", "rest", exclusive=True, filter="color <> 'red'"),
    *(divert(f"{name} {number}", name, f"{name}{number}") for name in ("red", "rest") for number in range(10)),
)


def most_followed(stage: Stage, producer: Producer, count: int, **said: Any) -> int:
    """So many messages in one read, red and blue by turns: how often the step that did it most followed diverts."""
    colors = ("red", "blue")
    whole = [build_message("x", application_properties={"color": colors[at % 2]}, **said) for at in range(count)]
    (run,) = runs_of(whole)
    assert producer.link.session.send_run(producer.link, run, 0, count, count) == count
    stage.give(BytesReceived(producer.talker.conn, producer.talker.take_out()))
    most, is_due = 0, True
    while is_due:
        before = stage.broker.store.diverts.followed_total
        is_due = stage.turn().more
        most = max(most, stage.broker.store.diverts.followed_total - before)
    stage.run()
    return most


@pytest.mark.parametrize("is_new", [False, True])
def test_a_step_follows_few_diverts_for_a_sender_whose_messages_go_different_ways(is_new: bool) -> None:
    stage = stage_with(*(() if is_new else ELEVEN_WAYS))
    stage.admin("queue-create", name="orders")
    producer = Producer(stage)
    if is_new:  # they come with a reload, to who sends there already
        stage.give(OptionsChanged(replace(stage.options, diverts=ELEVEN_WAYS)))
        stage.run()
    for _ in range(3):
        assert 0 < most_followed(stage, producer, 800) <= COPIES_MAX
    assert stage.broker.store.diverts.followed_total == 3 * 800 * 11
    assert counts(stage)["red9"] == counts(stage)["rest9"] == 3 * 400
    assert stage.broker.store.unrouted_total == 0


def test_a_step_follows_few_diverts_for_dead_letters_of_a_sender() -> None:
    """Their address has none, but each of them goes over those of the dead-letter address."""
    rules = {"send_to_dla_on_no_route": True, "dead_letter_address": "DLQ"}
    stage = stage_with(
        *(divert(str(number), "DLQ", f"copy{number}") for number in range(10)),
        address_settings={"orders": {**rules, "default_address_routing_type": "MULTICAST"}},
    )
    for queue in ("DLQ", *(f"copy{number}" for number in range(10))):
        stage.admin("queue-create", name=queue)
    stage.admin("address-create", name="orders", routing_types=["multicast"])
    producer = Producer(stage)
    most_followed(stage, producer, 400)
    assert counts(stage)["copy9"] == 400
    for _ in range(2):
        assert 0 < most_followed(stage, producer, 400) <= COPIES_MAX


def test_an_address_without_diverts_takes_runs_as_they_come() -> None:
    stage = stage_with(*ELEVEN_WAYS)
    producer = Producer(stage, address="other")
    assert most_followed(stage, producer, 800) == 0
    (link,) = [link for peer in stage.broker.peers.values() for link in peer.producers]
    assert (link.run_max, link.run_work) == (RUN_MAX, 0)


def test_dead_letters_of_one_message_share_its_copies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mqbroker.core.address.diverts.COPIES_MAX", 20)
    rules = {"auto_create_queues": False, "auto_create_addresses": False, "send_to_dla_on_no_route": True}
    stage = stage_with(
        *(divert(f"to nowhere {number}", "orders", f"gone{number}") for number in range(8)),
        *(divert(f"on {number}", "DLQ", "audit") for number in range(8)),
        address_settings={"#": {**rules, "dead_letter_address": "DLQ"}},
    )
    for queue in ("orders", "DLQ", "audit"):
        stage.admin("queue-create", name=queue)
    send(stage, "red")
    found = counts(stage)
    assert found["orders"] == 1
    assert 8 < found["audit"] <= 20 - found["DLQ"], "each dead letter is a copy, and what its diverts make of it"


def test_a_full_address_drops_copies_or_takes_them() -> None:
    full = {"max_size_messages": 1}
    settings = {"drops": {**full, "address_full_policy": "DROP"}, "fails": {**full, "address_full_policy": "FAIL"}}
    diverts = (divert("1", "orders", "drops"), divert("2", "orders", "fails"))
    stage = stage_with(*diverts, address_settings=settings)
    send(stage, "red", "blue")
    assert held(stage) == {"orders": ["red0", "blue1"], "drops": ["red0"], "fails": ["red0", "blue1"]}
    assert stage.broker.store.meters.dropped_total == 1


def test_an_address_that_may_not_be_made_gets_nothing() -> None:
    stage = stage_with(divert("d", "orders", "audit"), address_settings={"audit": {"auto_create_queues": False}})
    send(stage, "red")
    assert held(stage) == {"orders": ["red0"]}
    assert stage.broker.store.unrouted_total == 1


def test_filters_that_are_no_selectors_are_found() -> None:
    (fault,) = faults_of((divert("good", "a", "b", filter="x = 1"), divert("bad", "a", "b", filter="x = = 1")))
    assert fault.path == "diverts.1.filter"


def reload(stage: Stage, *diverts: DivertOptions) -> list[dict[str, Any]]:
    """What waits for a restart."""
    stage.options = replace(stage.options, diverts=diverts)
    waiting: list[dict[str, Any]] = stage.admin("config-reload")["restart"]
    return waiting


@pytest.mark.option("diverts.name")
@pytest.mark.option("address-settings.config-delete-diverts")
def test_a_reload_brings_changes_and_ends_diverts() -> None:
    stage = stage_with(address_settings={"#": {"config_delete_diverts": "FORCE"}})
    assert reload(stage, divert("d", "orders", "audit")) == []
    send(stage, "red")
    assert held(stage) == {"orders": ["red0"], "audit": ["red0"]}
    changed = divert("d", "orders", "ledger", exclusive=True, filter="color = 'red'")
    assert reload(stage, changed, divert("e", "prices", "x")) == []
    send(stage, "red", "blue")
    assert held(stage) == {"orders": ["blue1"], "ledger": ["red0"]}
    assert reload(stage) == []
    send(stage, "red")
    assert held(stage) == {"orders": ["red0"]}


@pytest.mark.option("address-settings.config-delete-diverts")
def test_a_divert_that_is_gone_from_the_file_stays_until_a_restart_and_administrators_are_told() -> None:
    first, second = divert("first", "orders", "audit"), divert("second", "orders", "ledger")
    stage = stage_with(first)
    reload(stage, first, second)
    told = [{"option": f"diverts.{name}", "running": name, "file": None} for name in ("first", "second")]
    assert reload(stage) == told
    send(stage, "red")
    assert held(stage) == {"orders": ["red0"], "audit": ["red0"], "ledger": ["red0"]}
    assert reload(stage, second) == told[:1]
    assert reload(stage) == told
    stage.crash()
    stage.start()
    send(stage, "red")
    assert held(stage) == {"orders": ["red0"]}


@pytest.mark.parametrize("has_queue", [False, True])
@pytest.mark.parametrize("ways", [["gone"], ["gone", "audit"], ["between"]])
def test_a_dead_letter_is_held_where_diverts_lead_nowhere(ways: list[str], has_queue: bool) -> None:
    rules = {"auto_create_queues": False, "auto_delete_addresses": False, "dead_letter_address": "DLQ"}
    diverts = [divert(f"to {to}", "DLQ", to, exclusive=True) for to in ways]
    diverts.append(divert("on", "between", "gone", exclusive=True))
    stage = stage_with(*diverts, address_settings={"#": rules | {"max_delivery_attempts": 1}})
    stage.admin("address-create", name="DLQ", routing_types=["anycast"])
    for name in ("orders", "audit", "between", *(["DLQ"] if has_queue else [])):
        stage.admin("queue-create", name=name)
    send(stage, "red")
    answer = stage.admin("receive", address="orders", count_max=1, wait_ms=1)
    assert stage.admin("settle", tag=answer["tag"], outcome="rejected") == {}
    queues = stage.broker.store.queues
    there = "audit" if "audit" in ways else "orders"
    assert {name: queue.message_count for name, queue in queues.items() if queue.message_count} == {there: 1}


DIVERTED = {  # the target of each exclusive divert and its filter; whether a queue gets all that they take
    "to nothing": ([("gone", "")], False),
    "some to nothing": ([("audit", ""), ("gone", "color = 'red'")], True),
    "only some, to nothing": ([("gone", "color = 'red'")], False),
    "to a queue": ([("audit", "")], True),
    "to a queue too": ([("gone", ""), ("audit", "")], True),
}


@pytest.mark.parametrize("how", ["moved", "retried to a queue", "retried to an address"])
@pytest.mark.parametrize("name", DIVERTED)
def test_nothing_is_moved_to_where_diverts_lead_nowhere(name: str, how: str) -> None:
    ways, leads_on = DIVERTED[name]
    rules = {"auto_create_queues": False, "dead_letter_address": "DLQ", "max_delivery_attempts": 1}
    tables = {"address_settings": {"#": rules}}
    stage = stage_with(**tables)
    for queue in ("orders", "audit", "DLQ"):
        stage.admin("queue-create", name=queue)
    stage.admin("queue-create", name="of orders", address="orders")
    source = "of orders" if how == "retried to an address" else "orders"
    send(stage, "red", to=f"orders::{source}")
    answer = stage.admin("receive", address=f"orders::{source}", count_max=1, wait_ms=1)
    assert stage.admin("settle", tag=answer["tag"], outcome="rejected") == {}
    stage.admin("queue-delete", name="of orders", force=True)
    diverts = [divert(f"d {to}", "orders", to, exclusive=True, filter=only) for to, only in ways]
    stage.give(OptionsChanged(replace(options_with(**tables), diverts=tuple(diverts)), None))
    stage.run()
    moving = {"address": "orders"} if how == "moved" else {}
    stage.admin("messages-move" if moving else "dead-letters-retry", queue="DLQ", **moving)
    queues = stage.broker.store.queues
    there = "audit" if leads_on else "DLQ"
    assert {name: queue.message_count for name, queue in queues.items() if queue.message_count} == {there: 1}


@pytest.mark.parametrize("comes", ["as a dead letter", "by itself"])
@pytest.mark.parametrize("further", ["", "other"])
def test_what_goes_astray_does_not_go_round_over_diverts(further: str, comes: str) -> None:
    rules = {"dead_letter_address": "DLQ", "send_to_dla_on_no_route": True, "max_delivery_attempts": 1}
    diverts = [divert("back", "DLQ", "news", exclusive=True)]
    settings = {"#": rules, **({"news": {"dead_letter_address": further}} if further else {})}
    stage = stage_with(*diverts, address_settings=settings)
    stage.admin("address-create", name="news", routing_types=["multicast"])
    for name in ("orders", "DLQ"):
        stage.admin("queue-create", name=name)
    send(stage, "red", to="orders" if comes == "as a dead letter" else "news")
    if comes == "as a dead letter":
        answer = stage.admin("receive", address="orders", count_max=1, wait_ms=1)
        assert stage.admin("settle", tag=answer["tag"], outcome="rejected") == {}
    queues = stage.broker.store.queues
    there = {further: 1} if further else {"orders": 1} if comes == "as a dead letter" else {}
    assert {name: queue.message_count for name, queue in queues.items() if queue.message_count} == there
    assert stage.broker.store.unrouted_total == (1 if further else 2)


def test_a_divert_that_two_ways_lead_to_is_one_for_both() -> None:
    stage = stage_with(
        divert("reds", "orders", "hub", exclusive=True, filter="color = 'red'"),
        divert("blues", "orders", "hub", exclusive=True, filter="color = 'blue'"),
        divert("all", "hub", "final", exclusive=True),
        address_settings={"#": {"auto_create_queues": False}},
    )
    for queue in ("orders", "hub", "final", "source"):
        stage.admin("queue-create", name=queue)
    send(stage, "red", "blue", "green", to="source")
    assert stage.admin("messages-move", queue="source", address="orders") == {"moved": 3, "left": 0}
    assert {name: queue.message_count for name, queue in stage.broker.store.queues.items()} == {
        "orders": 1, "hub": 0, "final": 2, "source": 0
    }  # fmt: skip


FULL = {  # what an address with one message and room for one does with a further one that a divert brings
    "DROP": ({"max_size_messages": 1, "address_full_policy": "DROP"}, 1, 1),  # what it has then, of a move, of a death
    "PAGE, and drop": (
        {"max_size_messages": 0, "page_limit_messages": 1, "page_full_policy": "DROP", "address_full_policy": "PAGE"},
        1, 1,
    ),
    "FAIL": ({"max_size_messages": 1, "address_full_policy": "FAIL"}, 1, 2),
    "BLOCK": ({"max_size_messages": 1, "address_full_policy": "BLOCK"}, 1, 2),
    "PAGE": ({"max_size_messages": 1, "address_full_policy": "PAGE"}, 2, 2),
}  # fmt: skip


def counts(stage: Stage) -> dict[str, int]:
    return {name: queue.message_count for name, queue in stage.broker.store.queues.items() if queue.message_count}


@pytest.mark.option("address-settings.address-full-policy")
@pytest.mark.option("address-settings.page-full-policy")
@pytest.mark.parametrize("how", ["moved", "retried", "dead"])
@pytest.mark.parametrize("policy", FULL)
def test_nothing_is_lost_where_an_exclusive_divert_leads_to_a_full_address(policy: str, how: str) -> None:
    bounds, of_moves, of_deaths = FULL[policy]
    rules = {"dead_letter_address": "DLQ", "max_delivery_attempts": 1, "config_delete_diverts": "FORCE"}
    stage = stage_with(address_settings={"#": rules, "audit": bounds}, limits={"global_max_size_bytes": 1 << 20})
    for name in ("orders", "DLQ"):
        stage.admin("queue-create", name=name)
    send(stage, "first", to="audit")
    send(stage, "red", "blue", to="orders")
    if how == "dead":
        reload(stage, divert("d", "DLQ", "audit", exclusive=True))
    for _ in range(2):
        answer = stage.admin("receive", address="orders", count_max=1, wait_ms=1)
        assert stage.admin("settle", tag=answer["tag"], outcome="rejected") == {}
    reload(stage, divert("d", "orders", "audit", exclusive=True))
    gone = 2 * ((of_deaths if how == "dead" else of_moves) - 1)
    if how == "moved":
        assert stage.admin("messages-move", queue="DLQ", address="orders") == {"moved": gone, "left": 2 - gone}
    elif how == "retried":
        assert stage.admin("dead-letters-retry", queue="DLQ") == {"retried": gone, "left": 2 - gone}
    stays = {"orders" if how == "dead" else "DLQ": 2 - gone} if gone < 2 else {}
    assert counts(stage) == {"audit": 1 + gone, **stays}


@pytest.mark.parametrize("delay_ms", [0, 60_000])
def test_nothing_is_lost_where_the_memory_is_full_before_all_of_a_piece_is_moved(delay_ms: int) -> None:
    bounds = {"page_limit_messages": 1, "page_full_policy": "DROP"}
    stage = stage_with(
        divert("d", "hub", "audit", exclusive=True),
        address_settings={"audit": bounds}, limits={"global_max_size_bytes": 100_000},
    )  # fmt: skip
    stage.admin("queue-create", name="orders")
    store = stage.broker.store
    said = encode_section(MESSAGE_ANNOTATIONS, {DELIVERY_DELAY: Long(delay_ms)}) if delay_ms else b""
    whole = [build_message(f"{number}" * 18_000) for number in range(5)]
    head = whole[0][: scan_sections(whole[0], 0, len(whole[0])).bare]
    (run,) = runs_of([head + said + each.removeprefix(head) for each in whole])
    store.publish(store.addresses["orders"], run)
    stage.step()
    assert stage.admin("messages-move", queue="orders", address="hub") == {"moved": 2, "left": 3}
    assert counts(stage) == {"audit": 2, "orders": 3}
    assert store.queues["orders"].scheduled_count == (3 if delay_ms else 0)
    stage.wait(delay_ms)
    assert [body[0] for body in held(stage)["orders"]] == ["2", "3", "4"]


@pytest.mark.parametrize("exclusive", [True, False])
def test_a_move_over_a_circle_of_diverts_goes_where_the_circle_ends(exclusive: bool) -> None:
    stage = stage_with(
        divert("1", "a", "b", exclusive=True),
        divert("2", "b", "c", exclusive=True),
        divert("3", "c", "b", exclusive=exclusive),
    )
    for queue in ("a", "b", "c", "source"):
        stage.admin("queue-create", name=queue)
    send(stage, "red", to="source")
    assert stage.admin("messages-move", queue="source", address="a") == {"moved": 1, "left": 0}
    assert counts(stage) == {"b": 1} if exclusive else {"b": 1, "c": 1}


def test_a_sender_without_a_queue_is_content_where_a_circle_of_diverts_ends_in_one() -> None:
    stage = stage_with(
        divert("1", "a", "b", exclusive=True),
        divert("2", "b", "c", exclusive=True),
        divert("3", "c", "b", exclusive=True),
        address_settings={"#": {"auto_create_queues": False}},
    )
    stage.admin("address-create", name="a", routing_types=["anycast"])
    for queue in ("b", "c"):
        stage.admin("queue-create", name=queue)
    send(stage, "red", to="a")
    assert counts(stage) == {"b": 1}
    assert stage.broker.store.unrouted_total == 0


def test_a_move_goes_to_an_address_without_a_queue_whose_divert_has_one() -> None:
    rules = {"auto_create_queues": False}
    stage = stage_with(divert("d", "a", "b", exclusive=True, filter="color = 'red'"), address_settings={"#": rules})
    stage.admin("address-create", name="a", routing_types=["multicast"])
    for queue in ("b", "source"):
        stage.admin("queue-create", name=queue)
    send(stage, "red", "blue", "red", to="source")
    assert stage.admin("messages-move", queue="source", address="a") == {"moved": 2, "left": 1}
    assert held(stage) == {"b": ["red0", "red2"], "source": ["blue1"]}


def test_what_a_divert_would_bring_back_where_it_is_stays() -> None:
    stage = stage_with(divert("d", "a", "source", exclusive=True))
    stage.admin("queue-create", name="source")
    send(stage, "red", "blue", to="source")
    assert stage.admin("messages-move", queue="source", address="a") == {"moved": 0, "left": 2}
    assert held(stage) == {"source": ["red0", "blue1"]}


def test_a_full_address_that_drops_lets_no_move_pass_and_nothing_counts_as_dropped() -> None:
    bounds = {"max_size_messages": 1, "address_full_policy": "DROP"}
    stage = stage_with(
        divert("1", "a", "hub", exclusive=True),
        divert("2", "hub", "final", exclusive=True, filter="color = 'red'"),
        address_settings={"hub": bounds},
    )
    for queue in ("hub", "source"):
        stage.admin("queue-create", name=queue)
    send(stage, "blue", "red", to="source")
    assert stage.admin("messages-move", queue="source", address="a") == {"moved": 1, "left": 1}
    assert counts(stage) == {"hub": 1, "source": 1}
    assert stage.broker.store.meters.dropped_total == 0


def test_an_older_value_that_a_divert_takes_elsewhere_is_retried() -> None:
    rules = {
        "#": {"dead_letter_address": "DLQ", "max_delivery_attempts": 1, "default_last_value_queue": True},
        "DLQ": {"default_last_value_queue": False},
    }
    stage = stage_with(address_settings=rules)
    old, new = ({"body": body, "application_properties": {"_AMQ_LVQ_NAME": "k", "of": body}} for body in ("old", "new"))
    stage.admin("send", address="orders", messages=[old])
    answer = stage.admin("receive", address="orders", count_max=1, wait_ms=1)
    assert stage.admin("settle", tag=answer["tag"], outcome="rejected") == {}
    stage.wait(5)
    stage.admin("send", address="orders", messages=[new])
    assert stage.admin("dead-letters-retry", queue="DLQ") == {"retried": 0, "left": 1}
    reload(stage, divert("d", "orders", "audit", exclusive=True, filter="of = 'old'"))
    assert stage.admin("dead-letters-retry", queue="DLQ") == {"retried": 1, "left": 0}
    assert held(stage) == {"orders": ["new"], "audit": ["old"]}


@pytest.mark.option("address-settings.send-to-dla-on-no-route")
@pytest.mark.parametrize("to", ["gone", "gone::queue", "empty", "between"])
def test_what_a_divert_brings_to_no_queue_is_a_dead_letter_of_the_address_that_it_leads_to(to: str) -> None:
    rules = {"dead_letter_address": "DLQ", "send_to_dla_on_no_route": True, "auto_create_queues": False}
    stage = stage_with(
        divert("d", "orders", to, exclusive=True),
        divert("e", "between", "gone", exclusive=True),
        address_settings={"orders": {"auto_create_queues": False}, "#": rules, "DLQ": {"auto_create_queues": True}},
    )
    for name in ("orders", "between"):
        stage.admin("queue-create", name=name)
    stage.admin("address-create", name="empty", routing_types=["multicast"])
    send(stage, "red")
    stage.crash()
    stage.start()
    (message,) = stage.admin("receive", address="DLQ", count_max=9, wait_ms=1)["messages"]
    assert message["body"] == "red0"
    assert message["message_annotations"]["x-opt-ORIG-ADDRESS"] == (
        to.partition("::")[0] if to != "between" else "gone"
    )
    assert message["message_annotations"]["x-opt-ORIG-MESSAGE-ID"] > 0
    assert stage.broker.store.unrouted_total == 0  # since the start


def test_what_is_too_many_copies_makes_no_dead_letters() -> None:
    names = "abcdefgh"
    rules = {"dead_letter_address": "DLQ", "send_to_dla_on_no_route": True}
    diverts = [divert(f"{one}{other}", one, other) for one in names for other in names if one != other]
    stage = stage_with(*diverts, address_settings={"#": rules})
    send(stage, "red", to="a")
    assert "DLQ" not in stage.broker.store.queues
    assert stage.broker.store.unrouted_total > 0


def test_copies_of_one_run_are_bounded_where_some_are_dead_letters_that_are_diverted() -> None:
    names = "abcdefg"
    rules = {"dead_letter_address": "DLQ", "send_to_dla_on_no_route": True}
    diverts = [divert(f"{one}{other}", one, other) for one in names for other in names if one != other]
    diverts += [divert(f"{one} away", one, f"gone {one}") for one in names]
    stage = stage_with(
        *diverts,
        divert("on", "DLQ", "audit"),
        address_settings={"#": rules, **{f"gone {one}": {"auto_create_queues": False} for one in names}},
    )
    send(stage, "red", to="a")
    store = stage.broker.store
    copies = sum(queue.message_count for name, queue in store.queues.items() if name in names)
    assert copies <= COPIES_MAX + 1
    assert store.queues["audit"].message_count == store.queues["DLQ"].message_count > 0
