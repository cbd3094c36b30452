"""What is moved or retried over diverts: it is counted where it is, never gone, never twice."""

from __future__ import annotations

from typing import Any

import pytest
from mqbroker.admin import moves
from mqbroker.core.address import diverts
from mqbroker.core.address.address import MULTICAST
from mqbroker.core.address.permissions import BROKER
from mqbroker.core.queue.kinds import QueueKind
from mqbroker.core.queue.moved_message import ORIGIN_QUEUE
from mqbroker.node.values.inputs import AdminRequest
from mqbroker.wire.parts import ORIGIN_ADDRESS
from mqbroker.wire.run import runs_of, single
from mqbroker.wire.scan import MESSAGE_ANNOTATIONS, VALUE
from mqbroker.wire.sections import build_message, encode_section

from tests.support.large_messages import Producer, content, stage_of
from tests.support.stage import Stage
from tests.unit.core.address.test_diverts import counts, divert, held, reload, send, stage_with

KEEPS = {"default_last_value_queue": True}
DIES = {"dead_letter_address": "DLQ", "max_delivery_attempts": 1}


def value(body: str, *, durable: bool) -> dict[str, Any]:
    return {"body": body, "durable": durable, "application_properties": {"_AMQ_LVQ_NAME": "k"}}


def newer_dies_first(stage: Stage, *, durable: tuple[str, ...] = ("old", "new")) -> None:
    """Two values of one key of the queue `source`: dead letters, the newer one before the older one."""
    taken = []
    for body in ("old", "new"):
        stage.admin("send", address="source", messages=[value(body, durable=body in durable)])
        taken.append(stage.admin("receive", address="source", count_max=1, wait_ms=1))
        stage.wait(50)
    for answer in reversed(taken):
        assert stage.admin("settle", tag=answer["tag"], outcome="rejected") == {}


@pytest.mark.parametrize("durable", [("old", "new"), ("old",), ()])
def test_a_value_that_is_old_at_one_of_its_places_is_left_for_the_others(durable: tuple[str, ...]) -> None:
    """The newer one died first, and is there when the older one of the same piece is to come; where that one alone is
    durable, nothing of the piece is written."""
    stage = stage_with(address_settings={"#": DIES, "source": {**DIES, **KEEPS}, "values": KEEPS})
    for queue in ("source", "values", "log", "DLQ"):
        stage.admin("queue-create", name=queue)
    newer_dies_first(stage, durable=durable)
    reload(stage, divert("1", "source", "values", exclusive=True), divert("2", "source", "log", exclusive=True))
    assert stage.admin("dead-letters-retry", queue="DLQ") == {"retried": 1, "left": 1}
    assert held(stage) == {"values": ["new"], "log": ["new"], "DLQ": ["old"]}


@pytest.mark.parametrize("messages_max", [1, 30])
def test_an_old_value_is_left_whether_the_later_one_is_of_the_same_piece(
    monkeypatch: pytest.MonkeyPatch, messages_max: int
) -> None:
    monkeypatch.setattr(moves.Move, "bounds", (messages_max, moves.MOVED_BYTES_MAX))
    stage = stage_with(address_settings={"#": DIES, "source": {**DIES, **KEEPS}})
    for queue in ("source", "DLQ"):
        stage.admin("queue-create", name=queue)
    newer_dies_first(stage)
    assert stage.admin("dead-letters-retry", queue="DLQ") == {"retried": 1, "left": 1}
    assert held(stage) == {"source": ["new"], "DLQ": ["old"]}
    assert stage.broker.store.queues["source"].replaced_total == 0


@pytest.mark.parametrize("policy", ["FAIL", "DROP"])
def test_an_address_that_is_full_lets_nothing_in_though_its_divert_has_room(policy: str) -> None:
    bounds = {"max_size_messages": 1, "address_full_policy": policy}
    stage = stage_with(divert("d", "a", "copies"), address_settings={"a": bounds})
    for queue in ("a", "copies", "source"):
        stage.admin("queue-create", name=queue)
    send(stage, *["red"] * 5, to="source")
    assert stage.admin("messages-move", queue="source", address="a") == {"moved": 1, "left": 4}
    assert counts(stage) == {"a": 1, "copies": 1, "source": 4}


@pytest.mark.parametrize("is_there", [False, True])
def test_what_a_divert_brings_nowhere_does_not_come_back_to_where_it_is_moved_from(is_there: bool) -> None:
    rules = {
        "auto_create_queues": False, "auto_create_addresses": False, "send_to_dla_on_no_route": True,
        "dead_letter_address": "DLQ",
    }  # fmt: skip
    stage = stage_with(divert("d", "orders", "gone"), address_settings={"#": rules})
    for queue in ("orders", "DLQ"):
        stage.admin("queue-create", name=queue)
    if is_there:
        stage.admin("address-create", name="gone", routing_types=["multicast"])
    send(stage, "red")
    assert counts(stage) == {"orders": 1, "DLQ": 1}
    assert stage.admin("messages-move", queue="DLQ", address="orders") == {"moved": 1, "left": 0}
    assert counts(stage) == {"orders": 2}
    send(stage, "red")
    assert counts(stage) == {"orders": 3, "DLQ": 1}, "of senders it is a dead letter, as before"


@pytest.mark.parametrize("target", ["a.b", "elsewhere"])
def test_what_is_in_a_queue_with_wildcards_stays_where_it_would_get_a_copy(target: str) -> None:
    stage = stage_with(divert("d", "elsewhere", "a.b", exclusive=True))
    stage.admin("queue-create", name="all", address="a.#", routing_type="multicast")
    stage.admin("queue-create", name="a.b")
    send(stage, "red", to="a.b")
    assert stage.admin("messages-move", queue="all", address=target) == {"moved": 0, "left": 1}
    assert counts(stage) == {"all": 1, "a.b": 1}


def test_its_own_queue_is_in_the_way_only_where_it_would_get_it() -> None:
    stage = stage_with(divert("d", "a", "orders", exclusive=True, routing_type="MULTICAST"))
    stage.admin("queue-create", name="orders")
    stage.admin("queue-create", name="others", address="orders", routing_type="multicast")
    send(stage, "red")
    assert stage.admin("messages-move", queue="orders", address="a") == {"moved": 1, "left": 0}
    assert counts(stage) == {"others": 2}


@pytest.mark.parametrize("has_queue", [False, True])
def test_copies_are_bounded_with_dead_letters_and_looks_on_the_way(
    monkeypatch: pytest.MonkeyPatch, has_queue: bool
) -> None:
    """Each look for a way is a walk of its own, in which a bound of its own would be a bound for each copy."""
    monkeypatch.setattr(diverts, "COPIES_MAX", 20)
    names = "abcd"
    rules = {
        "auto_create_queues": False, "auto_create_addresses": False, "send_to_dla_on_no_route": True,
        "dead_letter_address": "DLQ",
    }  # fmt: skip
    ways = [divert(one + other, one, other) for one in names for other in names if one != other]
    stage = stage_with(*ways, divert("on", "DLQ", "final", exclusive=True), address_settings={"#": rules})
    for name in names:
        stage.admin("address-create", name=name, routing_types=["multicast"])
    stage.admin("address-create", name="DLQ", routing_types=["anycast"])
    stage.admin("queue-create", name="final")
    if has_queue:
        stage.admin("queue-create", name="DLQ")
    store = stage.broker.store
    taken, own = [0], store.take_in

    def count(*arguments: Any) -> bool:
        taken[0] += 1
        assert taken[0] < 1000, "it goes on without end"
        return own(*arguments)

    monkeypatch.setattr(type(store), "take_in", lambda self, *arguments: count(*arguments))
    store.publish(store.addresses["a"], single(build_message("red")))
    assert 0 < taken[0] <= 2 * diverts.COPIES_MAX + 1, "a dead letter is one of the copies, or comes of one"


def test_each_message_of_a_run_that_goes_astray_has_its_own_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run of a sender has up to 65,536 of them, and each becomes a dead letter by itself."""
    monkeypatch.setattr(diverts, "COPIES_MAX", 20)
    rules = {"auto_create_addresses": False, "auto_create_queues": False, "send_to_dla_on_no_route": True}
    stage = stage_with(
        divert("1", "orders", "gone", exclusive=True), divert("2", "DLQ", "final", exclusive=True),
        address_settings={"#": {**rules, "dead_letter_address": "DLQ"}},
    )  # fmt: skip
    for queue in ("orders", "DLQ", "final"):
        stage.admin("queue-create", name=queue)
    store = stage.broker.store
    (run,) = runs_of([build_message(str(number)) for number in range(50)])
    store.publish(store.addresses["orders"], run)
    assert counts(stage) == {"final": 50}


def test_a_copy_that_a_move_brings_nowhere_is_a_dead_letter_as_that_of_a_sender() -> None:
    rules = {
        "auto_create_queues": False, "auto_create_addresses": False, "send_to_dla_on_no_route": True,
        "dead_letter_address": "DLQ",
    }  # fmt: skip
    stage = stage_with(divert("d", "orders", "gone"), address_settings={"#": rules})
    for queue in ("orders", "DLQ", "source"):
        stage.admin("queue-create", name=queue)
    send(stage, "red", to="source")
    assert stage.admin("messages-move", queue="source", address="orders") == {"moved": 1, "left": 0}
    assert counts(stage) == {"orders": 1, "DLQ": 1}


ASTRAY = {
    "auto_create_queues": False, "auto_create_addresses": False, "send_to_dla_on_no_route": True,
    "dead_letter_address": "DLQ",
}  # fmt: skip


@pytest.mark.parametrize("how", ["sent", "moved"])
def test_a_copy_that_is_brought_nowhere_is_a_dead_letter_that_is_copied_elsewhere(how: str) -> None:
    stage = stage_with(divert("1", "orders", "gone"), divert("2", "DLQ", "audit"), address_settings={"#": ASTRAY})
    for queue in ("orders", "DLQ", "audit", "source"):
        stage.admin("queue-create", name=queue)
    send(stage, "red", to="orders" if how == "sent" else "source")
    if how == "moved":
        assert stage.admin("messages-move", queue="source", address="orders") == {"moved": 1, "left": 0}
    assert counts(stage) == {"orders": 1, "DLQ": 1, "audit": 1}


def test_a_copy_that_is_brought_nowhere_comes_to_the_queue_of_dead_letters_of_its_own_address() -> None:
    stage = stage_with(address_settings={"#": {**ASTRAY, **DIES, "auto_create_dead_letter_resources": True}})
    stage.admin("queue-create", name="orders")
    send(stage, "red")
    answer = stage.admin("receive", address="orders", count_max=1, wait_ms=1)
    assert stage.admin("settle", tag=answer["tag"], outcome="rejected") == {}
    assert counts(stage) == {"DLQ.orders": 1}
    reload(stage, divert("1", "orders", "gone"))
    assert stage.admin("messages-move", queue="DLQ.orders", address="orders") == {"moved": 1, "left": 0}
    assert counts(stage) == {"orders": 1, "DLQ.gone": 1}


@pytest.mark.parametrize("way", ["over a divert", "in a circle", "by a wildcard"])
def test_a_copy_that_is_brought_nowhere_does_not_come_back(way: str) -> None:
    on = {"over a divert": ["all"], "in a circle": ["audit", "DLQ"], "by a wildcard": ["a.b"]}[way]
    ways = [divert(str(n), *pair, exclusive=True) for n, pair in enumerate(zip(["DLQ", *on], on, strict=False))]
    stage = stage_with(divert("d", "orders", "gone"), *ways, address_settings={"#": ASTRAY})
    address = {"over a divert": "all", "in a circle": "DLQ", "by a wildcard": "a.#"}[way]
    stage.admin("address-create", name="DLQ", routing_types=["anycast", "multicast"])
    for queue in ("orders", "audit", "a.b"):
        stage.admin("queue-create", name=queue)
    stage.admin("queue-create", name="all", address=address, routing_type="multicast")
    send(stage, "red", to={"by a wildcard": "a.b"}.get(way, address))
    before = counts(stage)
    assert before["all"] == 1
    assert stage.admin("messages-move", queue="all", address="orders") == {"moved": 1, "left": 0}
    before.pop("all")
    assert counts(stage) == {**before, "orders": 1}


def test_a_copy_that_is_brought_nowhere_is_a_dead_letter_where_the_filter_of_the_queue_keeps_it_out() -> None:
    stage = stage_with(address_settings={"#": {**ASTRAY, **DIES}})
    for queue in ("orders", "DLQ"):
        stage.admin("queue-create", name=queue)
    of_orders = "\"m.x-opt-ORIG-ADDRESS\" = 'orders'"
    stage.broker.store.create_queue(QueueKind("kept", "DLQ", MULTICAST, selector=of_orders), BROKER)
    send(stage, "red")
    answer = stage.admin("receive", address="orders", count_max=1, wait_ms=1)
    assert stage.admin("settle", tag=answer["tag"], outcome="rejected") == {}
    assert counts(stage) == {"DLQ": 1, "kept": 1}
    reload(stage, divert("d", "orders", "gone"))
    assert stage.admin("messages-move", queue="kept", address="orders") == {"moved": 1, "left": 0}
    assert counts(stage) == {"orders": 1, "DLQ": 2}


@pytest.mark.parametrize("operation", [{"name": "messages-move", "address": "orders"}, {"name": "dead-letters-retry"}])
def test_what_an_address_keeps_for_later_queues_is_moved_nowhere(operation: dict[str, str]) -> None:
    stage = stage_with(address_settings={"orders": {"retroactive_message_count": 100}})
    stage.admin("queue-create", name="orders")
    send(stage, "red", "blue")
    name, *rest = operation.values()
    said = stage.admin(name, queue="$.retroactive.orders", **({"address": rest[0]} if rest else {}))
    assert said["condition"] == "amqp:not-allowed"
    assert counts(stage) == {"orders": 2, "$.retroactive.orders": 2}


@pytest.mark.parametrize("bounds", [{}, {"max_size_messages": 1, "address_full_policy": "PAGE"}])
def test_a_step_follows_few_diverts(bounds: dict[str, Any]) -> None:
    """Each costs what a look at a message does, so that who waits for the next step does not wait for 30 times 60."""
    ways = [divert(str(number), "orders", f"copies{number}") for number in range(60)]
    stage = stage_with(*ways, address_settings={"source": bounds})
    for queue in ("orders", "source"):
        stage.admin("queue-create", name=queue)
    send(stage, *["red"] * 30, to="source")
    stage.give(AdminRequest(901, 1, "messages-move", {"queue": "source", "address": "orders"}))
    steps = 0
    while stage.broker.store.queues["source"].message_count:
        before = stage.broker.store.queues["orders"].message_count
        stage.turn()
        stage.sync()
        stage.read_pages()
        assert stage.broker.store.queues["orders"].message_count - before <= moves.LOOKS_MAX // 120 + 1
        steps += 1
        assert steps < 100
    stage.run()
    assert stage.replies[901].result == {"moved": 30, "left": 0}


@pytest.mark.parametrize("names", ["ab", "abcd"])
def test_a_step_of_a_retry_follows_few_diverts_to_find_out_that_none_is_a_way(names: str) -> None:
    """Each subscription that is gone is another origin; all are of one address, which is looked at once in a step."""
    rules = {**DIES, "auto_delete_addresses": False, "auto_delete_queues": False, "auto_create_queues": False}
    stage = stage_with(address_settings={"#": rules})
    stage.admin("queue-create", name="DLQ")
    for name in names:
        stage.admin("address-create", name=name, routing_types=["multicast"])
    for number in range(6):
        stage.admin("queue-create", name=f"s{number}", address="a", routing_type="multicast")
    send(stage, "red", to="a")
    for number in range(6):
        reject(stage, f"s{number}")
        stage.admin("queue-delete", name=f"s{number}")
    reload(stage, *(divert(x + y, x, y, exclusive=True) for x in names for y in names if x != y))
    all_diverts = stage.broker.store.diverts
    all_diverts.find_way("a")
    once = all_diverts.followed_total
    stage.give(AdminRequest(901, 1, "dead-letters-retry", {"queue": "DLQ"}))
    steps = 0
    while 901 not in stage.replies:
        before = all_diverts.followed_total
        stage.turn()
        stage.sync()
        assert all_diverts.followed_total - before <= once
        steps += 1
    assert steps == 1 if once < moves.LOOKS_MAX else steps >= 6
    assert stage.replies[901].result == {"retried": 0, "left": 6}


def test_what_is_left_needs_no_room_elsewhere() -> None:
    bounds = {"address_full_policy": "FAIL"}
    stage = stage_with(
        divert("1", "a", "copies"),
        divert("2", "a", "copies", exclusive=True, filter="color = 'blue'"),
        address_settings={"a": {**bounds, "max_size_messages": 1}, "copies": {**bounds, "max_size_messages": 5}},
    )
    for queue in ("a", "copies", "source"):
        stage.admin("queue-create", name=queue)
    send(stage, "green", to="a")
    assert counts(stage) == {"a": 1, "copies": 1}
    send(stage, *["red"] * 6, *["blue"] * 3, to="source")
    assert stage.admin("messages-move", queue="source", address="a") == {"moved": 3, "left": 6}


def test_a_value_that_is_old_at_its_place_is_left_for_a_queue_with_wildcards() -> None:
    stage = stage_with(address_settings={"#": DIES, "source": {**DIES, **KEEPS}, "v.alues": KEEPS})
    for queue in ("source", "v.alues", "DLQ"):
        stage.admin("queue-create", name=queue)
    stage.admin("queue-create", name="all", address="v.#", routing_type="multicast")
    newer_dies_first(stage)
    reload(stage, divert("1", "source", "v.alues", exclusive=True))
    assert stage.admin("dead-letters-retry", queue="DLQ") == {"retried": 1, "left": 1}


def test_what_is_retried_goes_where_a_divert_leads_though_its_queue_is_gone_and_none_is_made() -> None:
    stage = stage_with(address_settings={"#": {**DIES, "auto_create_queues": False, "auto_delete_queues": False}})
    stage.admin("address-create", name="orders", routing_types=["anycast"])
    for queue in ("orders", "DLQ", "audit"):
        stage.admin("queue-create", name=queue)
    send(stage, "red")
    answer = stage.admin("receive", address="orders", count_max=1, wait_ms=1)
    assert stage.admin("settle", tag=answer["tag"], outcome="rejected") == {}
    stage.admin("queue-delete", name="orders")
    reload(stage, divert("d", "orders", "audit", exclusive=True))
    assert stage.admin("dead-letters-retry", queue="DLQ") == {"retried": 1, "left": 0}
    assert counts(stage) == {"audit": 1}


def test_a_dead_letter_of_a_subscription_with_wildcards_is_retried_to_its_address() -> None:
    stage = stage_with(address_settings={"#": {**DIES, "auto_delete_queues": False}})
    stage.admin("queue-create", name="DLQ")
    for queue in ("s1", "s2"):
        stage.admin("queue-create", name=queue, address="news.#", routing_type="multicast")
    stage.admin("address-create", name="news.a", routing_types=["multicast"])
    send(stage, "red", to="news.a")
    answer = stage.admin("receive", address="s1", count_max=1, wait_ms=1)
    assert stage.admin("settle", tag=answer["tag"], outcome="rejected") == {}
    stage.admin("queue-delete", name="s1")
    assert stage.admin("dead-letters-retry", queue="DLQ") == {"retried": 0, "left": 1}
    assert stage.admin("dead-letters-retry", queue="DLQ", to_address=True) == {"retried": 1, "left": 0}
    assert counts(stage) == {"s2": 2}


def reject(stage: Stage, queue: str) -> None:
    answer = stage.admin("receive", address=queue, count_max=1, wait_ms=1)
    assert stage.admin("settle", tag=answer["tag"], outcome="rejected") == {}


@pytest.mark.parametrize("to_address", [False, True])
def test_who_had_a_copy_gets_none_of_a_retry_though_the_queue_is_gone(to_address: bool) -> None:
    """The queue is made again, as of a sender, whose message it is where the person says so."""
    stage = stage_with(divert("d", "news.a", "audit"), address_settings={"#": {**DIES, "auto_delete_queues": False}})
    for queue in ("news.a", "audit", "DLQ"):
        stage.admin("queue-create", name=queue)
    stage.admin("queue-create", name="all", address="news.#", routing_type="multicast")
    send(stage, "red", to="news.a")
    reject(stage, "news.a")
    stage.admin("queue-delete", name="news.a")
    assert stage.admin("dead-letters-retry", queue="DLQ", to_address=to_address) == {"retried": 1, "left": 0}
    copies = 2 if to_address else 1
    assert counts(stage) == {"news.a": 1, "audit": copies, "all": copies}


def test_a_queue_that_went_by_itself_is_made_again_by_a_retry_and_a_divert_gets_no_second_copy() -> None:
    stage = stage_with(divert("d", "orders", "audit"), address_settings={"#": DIES})
    for queue in ("audit", "DLQ"):
        stage.admin("queue-create", name=queue)
    send(stage, "red")
    reject(stage, "orders")
    stage.wait(60_000)
    assert "orders" not in stage.broker.store.queues
    assert stage.admin("dead-letters-retry", queue="DLQ") == {"retried": 1, "left": 0}
    assert counts(stage) == {"orders": 1, "audit": 1}


@pytest.mark.parametrize("others", ["", "color = 'green'"])
def test_queues_of_an_address_share_what_comes_back_to_it(others: str) -> None:
    """They take turns, also where each piece is of one message, but for what their filters reject."""
    stage = stage_with(divert("d", "orders", "audit"), address_settings={"#": {**DIES, "auto_delete_queues": False}})
    for queue in ("audit", "DLQ"):
        stage.admin("queue-create", name=queue)
    for queue, selector in {"gone": "", "one": others and "color = 'red'", "two": others}.items():
        stage.admin("queue-create", name=queue, address="orders", selector=selector)
    send(stage, *["red"] * 4, "blue", to="orders::gone")
    for _ in range(5):
        reject(stage, "gone")
    stage.admin("queue-delete", name="gone")
    for _ in range(4):
        assert stage.admin("dead-letters-retry", queue="DLQ", count_max=1) == {"retried": 1, "left": 0}
    assert counts(stage) == {**({"one": 4} if others else {"one": 2, "two": 2}), "DLQ": 1}
    last = {"retried": 0, "left": 1} if others else {"retried": 1, "left": 0}
    assert stage.admin("dead-letters-retry", queue="DLQ") == last


def test_what_no_queue_took_comes_to_those_made_later_but_not_again_over_diverts_or_to_be_kept() -> None:
    """Nor does it go back while a divert alone is there, which had it."""
    rules = {**DIES, "auto_create_queues": False, "auto_delete_queues": False, "send_to_dla_on_no_route": True}
    stage = stage_with(
        divert("d", "news.a", "audit"), address_settings={"#": rules, "news.a": {"retroactive_message_count": 10}}
    )
    stage.admin("address-create", name="news.a", routing_types=["multicast"])
    for queue in ("audit", "DLQ"):
        stage.admin("queue-create", name=queue)
    send(stage, "red", to="news.a")
    ring = {"$.retroactive.news.a": 1}
    assert counts(stage) == {"audit": 1, "DLQ": 1, **ring}
    assert stage.admin("dead-letters-retry", queue="DLQ") == {"retried": 0, "left": 1}
    stage.admin("queue-create", name="all", address="news.#", routing_type="multicast")
    assert stage.admin("dead-letters-retry", queue="DLQ") == {"retried": 1, "left": 0}
    assert counts(stage) == {"audit": 1, "all": 1, **ring}


@pytest.mark.parametrize("routing", ["STRIP", "ANYCAST", "MULTICAST"])
def test_what_a_divert_led_to_no_address_comes_to_all_of_it_once_it_is_there(routing: str) -> None:
    """Its diverts, those with wildcards and what it keeps for later queues: none of them had it."""
    stage = stage_with(
        divert("1", "orders", "hub", routing_type=routing), divert("2", "hub", "audit"),
        address_settings={"#": ASTRAY, "hub": {**ASTRAY, "retroactive_message_count": 5}},
    )  # fmt: skip
    for queue in ("orders", "audit", "DLQ"):
        stage.admin("queue-create", name=queue)
    send(stage, "red", "blue")
    assert counts(stage) == {"orders": 2, "DLQ": 2}
    stage.admin("queue-create", name="all", address="hub.#", routing_type="multicast")
    stage.admin("queue-create", name="hub", routing_type="multicast" if routing == "MULTICAST" else "anycast")
    assert stage.admin("dead-letters-retry", queue="DLQ") == {"retried": 2, "left": 0}
    assert counts(stage) == {"orders": 2, "audit": 2, "hub": 2, "all": 2, "$.retroactive.hub": 2}


@pytest.mark.parametrize("why", ["no queue is there", "its filter rejects it"])
def test_what_was_for_one_queue_of_an_address_alone_comes_to_no_other(why: str) -> None:
    """Neither to those of its address nor by wildcards: it was not sent to these."""
    stage = stage_with(divert("1", "orders", "hub::q"), address_settings={"#": ASTRAY})
    for queue in ("orders", "DLQ", "hub"):
        stage.admin("queue-create", name=queue)
    for queue, address in (("all", "hub.#"), ("sub", "hub")):
        stage.admin("queue-create", name=queue, address=address, routing_type="multicast")
    if why == "no queue is there":
        send(stage, "red")
        before = {"orders": 1}
    else:
        stage.admin("queue-create", name="q", address="hub", selector="color = 'blue'")
        send(stage, "red", to="hub::q")
        before = {}
    assert counts(stage) == {**before, "DLQ": 1}
    assert stage.admin("dead-letters-retry", queue="DLQ") == {"retried": 0, "left": 1}
    stage.admin("queue-delete", name="q")
    stage.admin("queue-create", name="q", address="hub")
    assert stage.admin("dead-letters-retry", queue="DLQ") == {"retried": 1, "left": 0}
    assert counts(stage) == {**before, "q": 1}


@pytest.mark.parametrize("routing", ["anycast", "multicast"])
def test_a_queue_that_was_there_and_rejected_it_is_not_made_anew_for_it(routing: str) -> None:
    """Nobody would read it, and it would take its share of what is sent."""
    rules = {"dead_letter_address": "DLQ", "send_to_dla_on_no_route": True}
    stage = stage_with(address_settings={"#": rules})
    for queue in ("DLQ", "hub"):
        stage.admin("queue-create", name=queue)
    stage.admin("queue-create", name="q", address="hub", routing_type=routing, selector="color = 'blue'")
    send(stage, "red", to="hub::q")
    stage.admin("queue-delete", name="q")
    assert stage.admin("dead-letters-retry", queue="DLQ") == {"retried": 0, "left": 1}
    assert "q" not in stage.broker.store.queues
    send(stage, *["red"] * 4, to="hub")
    assert counts(stage) == {"DLQ": 1, "hub": 4}


@pytest.mark.parametrize("may_make", [False, True])
def test_what_was_for_one_queue_goes_where_an_exclusive_divert_takes_it_and_none_is_made(may_make: bool) -> None:
    rules = {**ASTRAY, "auto_create_queues": may_make}
    stage = stage_with(address_settings={"#": rules})
    for queue in ("DLQ", "hub", "audit"):
        stage.admin("queue-create", name=queue)
    stage.admin("queue-create", name="q", address="hub", selector="color = 'blue'")
    send(stage, "red", to="hub::q")
    stage.admin("queue-delete", name="q")
    reload(stage, divert("d", "hub", "audit", exclusive=True))
    assert stage.admin("dead-letters-retry", queue="DLQ") == {"retried": 1, "left": 0}
    assert counts(stage) == {"audit": 1}
    assert "q" not in stage.broker.store.queues


def test_what_was_for_a_queue_of_one_routing_type_does_not_go_to_one_of_the_other() -> None:
    """Its divert brings none there either."""
    stage = stage_with(divert("1", "orders", "hub::q", routing_type="MULTICAST"), address_settings={"#": ASTRAY})
    for queue in ("orders", "DLQ"):
        stage.admin("queue-create", name=queue)
    stage.admin("queue-create", name="q", address="hub")
    send(stage, "red")
    assert stage.admin("dead-letters-retry", queue="DLQ") == {"retried": 0, "left": 1}
    assert counts(stage) == {"orders": 1, "DLQ": 1}


def test_what_was_for_one_queue_comes_to_all_of_its_address_where_the_request_says_so() -> None:
    stage = stage_with(divert("1", "orders", "hub::q"), address_settings={"#": ASTRAY})
    for queue in ("orders", "DLQ", "hub"):
        stage.admin("queue-create", name=queue)
    send(stage, "red")
    assert stage.admin("dead-letters-retry", queue="DLQ", to_address=True) == {"retried": 1, "left": 0}
    assert counts(stage) == {"orders": 1, "hub": 1}


@pytest.mark.parametrize("is_there", [False, True])
@pytest.mark.parametrize("routing", ["ANYCAST", "MULTICAST"])
def test_what_was_for_queues_of_one_routing_type_comes_to_no_other(routing: str, is_there: bool) -> None:
    """Diverts of the address, and those with wildcards, get theirs where it could not be made before."""
    rejected = "color = 'blue'" if is_there else ""
    stage = stage_with(
        divert("1", "orders", "hub", routing_type=routing), divert("2", "hub", "audit"), address_settings={"#": ASTRAY}
    )
    for queue in ("orders", "DLQ", "audit"):
        stage.admin("queue-create", name=queue)
    wanted, other = ("q", "sub") if routing == "ANYCAST" else ("sub", "q")
    kinds = {"q": "anycast", "sub": "multicast"}
    if is_there:
        stage.admin("queue-create", name=wanted, address="hub", routing_type=kinds[wanted], selector=rejected)
    send(stage, "red")
    before = {"orders": 1, **({"audit": 1} if is_there else {})}
    assert counts(stage) == {**before, "DLQ": 1}
    stage.admin("queue-create", name=other, address="hub", routing_type=kinds[other])
    stage.admin("queue-create", name="all", address="hub.#", routing_type="multicast", selector=rejected)
    if is_there:
        assert stage.admin("dead-letters-retry", queue="DLQ") == {"retried": 0, "left": 1}
    stage.admin("queue-create", name="late", address="hub", routing_type=routing.lower())
    assert stage.admin("dead-letters-retry", queue="DLQ") == {"retried": 1, "left": 0}
    assert counts(stage) == {**before, "late": 1, "audit": 1, **({} if is_there else {"all": 1})}


@pytest.mark.parametrize("policy", ["", "DROP", "FAIL"])
def test_where_wildcards_alone_take_it_it_is_moved_if_there_is_room(policy: str) -> None:
    rules = {"auto_create_queues": False}
    bounds = {"max_size_messages": 1, "address_full_policy": policy} if policy else {}
    stage = stage_with(address_settings={"#": rules, "news.#": bounds})
    stage.admin("address-create", name="news.a", routing_types=["multicast"])
    stage.admin("queue-create", name="source")
    stage.admin("queue-create", name="reds", address="news.#", routing_type="multicast", selector="color = 'red'")
    send(stage, "red", "blue", "red", to="source")
    moved = 1 if policy else 2
    said = stage.admin("messages-move", queue="source", address="news.a")
    assert said == {"moved": moved, "left": 3 - moved}
    assert counts(stage) == {"reds": moved, "source": 3 - moved}
    assert stage.broker.store.meters.dropped_total == 0


def test_where_wildcards_have_no_queue_a_move_says_so() -> None:
    stage = stage_with(address_settings={"#": {"auto_create_queues": False}})
    for name in ("news.a", "news.#"):
        stage.admin("address-create", name=name, routing_types=["multicast"])
    stage.admin("queue-create", name="source")
    said = stage.admin("messages-move", queue="source", address="news.a")
    assert said["description"] == "no queue gets what is sent to address 'news.a'"


def test_a_filter_by_size_knows_how_large_a_message_is_that_is_moved() -> None:
    stage = stage_of()
    stage.admin("queue-create", name="source")
    stage.admin("queue-create", name="large", address="sorted", routing_type="multicast", selector="AMQSize > 10000")
    Producer(stage, address="source").publish(content(1))
    assert counts(stage) == {"source": 1}
    assert stage.admin("messages-move", queue="source", address="sorted") == {"moved": 1, "left": 0}
    assert counts(stage) == {"large": 1}


@pytest.mark.parametrize("exclusive", [False, True])
def test_a_copy_whose_topic_has_no_queue_any_more_goes_where_an_exclusive_divert_takes_it(exclusive: bool) -> None:
    """A divert that is not exclusive had its copy, and a queue would be made on the topic that nobody reads."""
    stage = stage_with(address_settings={"#": {**DIES, "auto_delete_addresses": False}})
    for queue in ("DLQ", "audit"):
        stage.admin("queue-create", name=queue)
    stage.admin("queue-create", name="s", address="news", routing_type="multicast")
    send(stage, "x", to="news")
    answer = stage.admin("receive", address="s", count_max=1, wait_ms=1)
    assert stage.admin("settle", tag=answer["tag"], outcome="rejected") == {}
    stage.admin("queue-delete", name="s")
    reload(stage, divert("d", "news", "audit", exclusive=exclusive))
    said = stage.admin("dead-letters-retry", queue="DLQ")
    assert said == {"retried": int(exclusive), "left": int(not exclusive)}
    assert counts(stage) == {"audit" if exclusive else "DLQ": 1}
    assert "news" not in stage.broker.store.queues


@pytest.mark.parametrize("to_address", [False, True])
@pytest.mark.parametrize("routing", ["multicast", "anycast"])
def test_a_copy_of_a_subscription_that_is_gone_goes_to_no_shared_queue_which_had_the_message(
    routing: str, to_address: bool
) -> None:
    """What the queue shared does, as nobody else had it; one made of the name of an address is not the first for it."""
    stage = stage_with(address_settings={"#": {**DIES, "auto_delete_queues": False}})
    for queue in ("DLQ", "news"):
        stage.admin("queue-create", name=queue)
    stage.admin("queue-create", name="s", address="news", routing_type=routing)
    send(stage, "red", to="news" if routing == "multicast" else "news::s")
    reject(stage, "s")
    stage.admin("queue-delete", name="s")
    before = counts(stage).get("news", 0)
    goes = to_address or routing == "anycast"
    said = stage.admin("dead-letters-retry", queue="DLQ", to_address=to_address)
    assert said == {"retried": int(goes), "left": int(not goes)}
    assert counts(stage).get("news", 0) == before + goes


def test_what_a_queue_shared_that_is_gone_goes_to_no_subscription_beside_it() -> None:
    stage = stage_with(address_settings={"#": {**DIES, "auto_delete_queues": False}})
    for queue in ("DLQ", "gone"):
        stage.admin("queue-create", name=queue, address="DLQ" if queue == "DLQ" else "news")
    stage.admin("queue-create", name="s", address="news", routing_type="multicast")
    send(stage, "red", to="news")
    reject(stage, "gone")
    stage.admin("queue-delete", name="gone")
    assert stage.admin("dead-letters-retry", queue="DLQ") == {"retried": 0, "left": 1}
    stage.admin("queue-create", name="other", address="news")
    assert stage.admin("dead-letters-retry", queue="DLQ") == {"retried": 1, "left": 0}
    assert counts(stage) == {"s": 1, "other": 1}


def test_what_a_queue_shared_that_is_gone_with_all_others_goes_to_a_new_one() -> None:
    """Of another name than its address it might have been a subscription, but that the message says what it was."""
    stage = stage_with(address_settings={"#": {**DIES, "auto_delete_queues": False, "auto_delete_addresses": False}})
    for queue, address in (("DLQ", "DLQ"), ("q", "orders")):
        stage.admin("queue-create", name=queue, address=address)
    send(stage, "red")
    reject(stage, "q")
    stage.admin("queue-delete", name="q")
    assert stage.admin("dead-letters-retry", queue="DLQ") == {"retried": 1, "left": 0}
    assert counts(stage) == {"orders": 1}


@pytest.mark.parametrize("queue", ["news", "s"])
def test_dead_letters_of_an_older_release_go_where_they_can_be_no_copies(queue: str) -> None:
    """They do not say what their queue was: of another name than its address it may have been a subscription."""
    stage = stage_with(address_settings={"#": DIES})
    stage.admin("queue-create", name="DLQ")
    notes = encode_section(MESSAGE_ANNOTATIONS, {ORIGIN_ADDRESS: "news", ORIGIN_QUEUE: queue})
    stage.broker.store.publish(stage.broker.store.addresses["DLQ"], single(notes + encode_section(VALUE, "x")))
    stage.step()
    goes = queue == "news"
    assert stage.admin("dead-letters-retry", queue="DLQ") == {"retried": int(goes), "left": int(not goes)}
