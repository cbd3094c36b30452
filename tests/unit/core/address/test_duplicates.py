"""Messages that are sent twice are there once: also after a crash, and only if the first one is there."""

from __future__ import annotations

import random
from copy import deepcopy
from typing import Any

import pytest
from mqbroker.base.errors import Refused
from mqbroker.base.time import NS_PER_MS
from mqbroker.core.address.permissions import BROKER

from tests.support.stage import Stage, options_with


def stage_with(journal: dict[str, Any] | None = None, **settings: Any) -> Stage:
    return Stage(options_with(journal=journal or {}, address_settings={"#": settings} if settings else {}))


def send(stage: Stage, *ids: object, to: str = "orders", durable: bool = True) -> int:
    """One message with each id as its body too; the id of the request."""
    messages = [{"body": f"m{one}", "durable": durable, "application_properties": {"_AMQ_DUPL_ID": one}} for one in ids]
    return stage.ask("send", address=to, messages=messages)


def count(stage: Stage, queue: str = "orders") -> int:
    return sum(row["message_count"] for row in stage.admin("queues")["queues"] if row["name"] == queue)


def take_all(stage: Stage, queue: str = "orders") -> list[str]:
    answer = stage.admin("receive", address=queue, count_max=100, wait_ms=1)
    assert stage.admin("settle", tag=answer["tag"]) == {}
    return [message["body"] for message in answer["messages"]]


def restart(stage: Stage) -> None:
    stage.crash()
    stage.start()


def test_a_message_that_was_seen_is_accepted_and_dropped() -> None:
    stage = stage_with()
    request = send(stage, "a", "b", "a")
    assert stage.replies[request].result == {"accepted": 3}
    send(stage, "b", "c")
    assert take_all(stage) == ["ma", "mb", "mc"]
    assert stage.broker.store.duplicates.dropped_total == 2
    assert stage.broker.store.received_total == 3


def test_each_address_has_ids_of_its_own_and_messages_without_one_are_never_the_same() -> None:
    stage = stage_with()
    send(stage, "a", to="orders")
    send(stage, "a", to="prices")
    send(stage, "", "", None, None, to="plain")
    assert [count(stage, name) for name in ("orders", "prices", "plain")] == [1, 1, 4]


def test_long_ids_that_begin_alike_are_two() -> None:
    stage = stage_with()
    send(stage, "x" * 2000 + "a", "x" * 2000 + "b", "x" * 2000 + "a")
    assert count(stage) == 2


@pytest.mark.option("address-settings.id-cache-size")
@pytest.mark.parametrize(("size", "left"), [(0, 5), (1, 5), (2, 4), (20_000, 3)])
def test_so_many_ids_are_remembered(size: int, left: int) -> None:
    stage = stage_with(id_cache_size=size)
    send(stage, "a", "b", "a", "c", "a")
    assert count(stage) == left


@pytest.mark.option("address-settings.id-cache-size")
def test_the_oldest_id_makes_room_also_across_a_crash() -> None:
    stage = stage_with(id_cache_size=2)
    send(stage, "a", "b", "c")
    restart(stage)
    send(stage, "b", "c")
    assert count(stage) == 3
    send(stage, "a")
    restart(stage)
    send(stage, "c", "a", "b")
    assert count(stage) == 5


def test_a_smaller_cache_after_a_restart_keeps_the_newest() -> None:
    stage = stage_with(id_cache_size=10)
    send(stage, "a", "b", "c")
    stage.crash()
    stage.options = options_with(address_settings={"#": {"id_cache_size": 1}})
    stage.start()
    send(stage, "c")
    assert count(stage) == 3
    send(stage, "b")
    assert count(stage) == 4


def test_an_acknowledged_message_is_still_known_after_a_crash() -> None:
    stage = stage_with()
    send(stage, "a")
    assert take_all(stage) == ["ma"]
    restart(stage)
    send(stage, "a", "b")
    assert take_all(stage) == ["mb"]


def test_a_message_whose_append_was_lost_may_come_again() -> None:
    stage = stage_with()
    send(stage, "a")
    stage.is_disk_held = True
    send(stage, "b")
    restart(stage)
    stage.is_disk_held = False
    send(stage, "a", "b")
    assert take_all(stage) == ["ma", "mb"]


def test_the_second_is_not_accepted_before_the_first_is_on_disk() -> None:
    stage = stage_with()
    send(stage, "first of all")
    stage.is_disk_held = True
    requests = [send(stage, "a"), send(stage, "a")]
    assert not any(request in stage.replies for request in requests)
    stage.is_disk_held = False
    stage.run()
    assert [stage.replies[request].result for request in requests] == [{"accepted": 1}] * 2
    assert count(stage) == 2


@pytest.mark.option("journal.persist-id-cache")
@pytest.mark.parametrize(("is_on", "left"), [(True, 1), (False, 2)])
def test_ids_may_end_with_the_process(is_on: bool, left: int) -> None:
    stage = stage_with({"persist_id_cache": is_on})
    send(stage, "a", "a")
    assert count(stage) == 1
    restart(stage)
    send(stage, "a")
    assert count(stage) == left


@pytest.mark.option("journal.persist-id-cache")
def test_turning_it_off_forgets_what_is_on_disk() -> None:
    stage = stage_with()
    send(stage, "a")
    for is_on in (False, True):
        stage.crash()
        stage.options = options_with(journal={"persist_id_cache": is_on})
        stage.start()
    send(stage, "a")
    assert count(stage) == 2


def test_ids_of_messages_that_a_crash_takes_go_with_them() -> None:
    stage = stage_with()
    send(stage, "a", durable=False)
    send(stage, "a", "b")
    assert count(stage) == 2
    restart(stage)
    send(stage, "a", "b")
    assert sorted(take_all(stage)) == ["ma", "mb"]


def test_ids_that_others_pushed_out_need_no_place_on_disk() -> None:
    stage = stage_with(id_cache_size=2)
    send(stage, "a", "b")
    send(stage, "c", "d", durable=False)
    segment = stage.broker.journal._ledger.segments[-1]
    assert segment.id_bytes == 0
    send(stage, "a")
    assert segment.id_bytes > 0
    assert count(stage) == 5


def delete(stage: Stage, name: str = "orders") -> None:
    """The queue, and with it the address."""
    store = stage.broker.store
    store.delete_queue(store.queues[name], BROKER)
    stage.step()
    assert name not in store.addresses


def known(stage: Stage, address: str = "orders", one: str = "a") -> bool:
    """Whether one more message with this id is dropped."""
    dropped = stage.broker.store.duplicates.dropped_total
    send(stage, one, to=address)
    return stage.broker.store.duplicates.dropped_total > dropped


@pytest.mark.option("address-settings.id-cache-retention")
@pytest.mark.parametrize(
    ("kept_ms", "wait_ms", "is_known"), [(60_000, 59_000, True), (60_000, 61_000, False), (0, 0, False)]
)
@pytest.mark.parametrize("is_restarted", [False, True])
def test_ids_outlive_their_address_for_a_time(kept_ms: int, wait_ms: int, is_known: bool, is_restarted: bool) -> None:
    stage = stage_with(id_cache_retention=kept_ms)
    send(stage, "a")
    assert take_all(stage) == ["ma"]
    delete(stage)
    if is_restarted:
        stage.stop()
        stage.start()
    stage.wait(wait_ms)
    assert known(stage) is is_known
    restart(stage)
    assert count(stage) == (0 if is_known else 1)


def test_an_address_that_is_deleted_by_itself_remembers_who_sends_again() -> None:
    stage = stage_with()
    send(stage, "a")
    assert take_all(stage) == ["ma"]
    stage.wait(60_000)
    assert "orders" not in stage.broker.store.addresses
    assert known(stage)


def test_an_address_that_is_there_again_keeps_its_ids() -> None:
    stage = stage_with(id_cache_retention=60_000)
    send(stage, "a")
    delete(stage)
    stage.wait(30_000)
    send(stage, "b")
    stage.wait(120_000)
    assert [known(stage, one=one) for one in ("a", "b", "c")] == [True, True, False]
    delete(stage)
    stage.wait(59_000)
    assert known(stage)
    delete(stage)
    stage.wait(61_000)
    assert not known(stage)


@pytest.mark.parametrize("is_restarted", [False, True])
def test_ids_of_addresses_that_are_gone_are_bounded(monkeypatch: pytest.MonkeyPatch, is_restarted: bool) -> None:
    monkeypatch.setattr("mqbroker.core.address.duplicates.VACANT_IDS_MAX", 4)
    stage = stage_with()
    for name in ("first", "second", "third"):
        send(stage, "a", "b", to=name)
    send(stage, *range(9), to="there")
    for name in ("first", "second", "third"):
        delete(stage, name)
    if is_restarted:
        stage.stop()
        stage.start()
    assert [known(stage, name) for name in ("first", "second", "third")] == [False, True, True]
    assert known(stage, "there", 0)


def test_deadlines_of_an_address_that_comes_and_goes_do_not_pile_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mqbroker.core.address.duplicates.STALE_MAX", 10)
    stage = stage_with(id_cache_retention=60_000)
    for number in range(50):
        send(stage, number)
        delete(stage)
        stage.wait(10)
    assert len(stage.broker.store.duplicates._deadlines) <= 12
    stage.wait(59_800)
    assert known(stage, one=0)


def test_ids_are_not_kept_across_a_restart_where_they_are_not_to_outlive_their_address() -> None:
    """Nothing would ever forget them: their address is gone."""
    stage = stage_with(id_cache_retention=60_000)
    send(stage, "a")
    delete(stage)
    stage.run()
    stage.options = stage_with(id_cache_retention=0).options
    restart(stage)
    assert stage.broker.store.duplicates._seen == {}
    restart(stage)
    assert not known(stage)


def reload(stage: Stage, **settings: Any) -> None:
    stage.options = stage_with(**settings).options
    stage.admin("config-reload")


@pytest.mark.parametrize(
    ("kept_ms", "wait_ms", "is_known"),
    [(0, 0, False), (30_000, 0, True), (30_000, 11_000, False), (120_000, 90_000, True), (120_000, 101_000, False)],
)
def test_a_reload_says_how_long_ids_of_addresses_that_are_gone_are_kept(
    kept_ms: int, wait_ms: int, *, is_known: bool
) -> None:
    stage = stage_with(id_cache_retention=60_000)
    send(stage, "a")
    delete(stage)
    stage.wait(20_000)
    reload(stage, id_cache_retention=kept_ms)
    stage.wait(wait_ms)
    assert known(stage) is is_known


def test_addresses_whose_time_is_over_together_are_forgotten_some_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mqbroker.core.address.duplicates.ENDED_MAX", 2)
    stage = stage_with(id_cache_retention=60_000)
    names = [f"orders-{number}" for number in range(7)]
    for name in names:
        send(stage, "a", to=name)
        delete(stage, name)
    duplicates = stage.broker.store.duplicates
    stage.now_ns += 60_000 * NS_PER_MS
    duplicates.on_time(stage.now_ns)
    assert (len(duplicates._seen), duplicates.due_ns <= stage.now_ns) == (5, True)
    stage.wait(1)
    assert (duplicates._seen, duplicates.due_ns) == ({}, 0)


@pytest.mark.parametrize("is_restarted", [False, True])
def test_of_an_address_with_more_ids_than_are_kept_in_all_the_newest_are(
    monkeypatch: pytest.MonkeyPatch, *, is_restarted: bool
) -> None:
    monkeypatch.setattr("mqbroker.core.address.duplicates.VACANT_IDS_MAX", 4)
    stage = stage_with()
    send(stage, *range(9))
    delete(stage)
    stage.run()
    if is_restarted:
        restart(stage)
    assert [known(stage, one=one) for one in (4, 5, 8)] == [False, True, True]


def test_the_address_of_one_connection_is_not_remembered() -> None:
    stage = stage_with()
    store = stage.broker.store
    name = "temporary.1"
    stage.admin("queue-create", name=name)
    send(stage, "a", to=name)
    delete(stage, name)
    stage.admin("queue-create", name=name)
    assert not known(stage, name)
    assert store.duplicates.due_ns == 0


def test_dead_letters_of_two_addresses_may_have_one_id() -> None:
    stage = stage_with(dead_letter_address="dead", max_delivery_attempts=1)
    for address in ("orders", "prices"):
        send(stage, "a", to=address)
        answer = stage.admin("receive", address=address, wait_ms=1)
        assert stage.admin("settle", tag=answer["tag"], outcome="rejected") == {}
    assert count(stage, "dead") == 2


def test_what_is_refused_was_not_seen() -> None:
    stage = stage_with(auto_create_queues=False)
    with pytest.raises(Refused):
        stage.broker.store.address_for("orders", BROKER)
    send(stage, "a")
    stage.admin("queue-create", name="orders")
    send(stage, "a")
    assert count(stage) == 1


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_any_history_is_that_of_a_plain_cache(seed: int) -> None:
    """Sends, crashes that lose what was not synced, and enough traffic beside it that segments come and go."""
    rng = random.Random(seed)
    sizes = {"orders": 5, "prices": 60}
    settings = {name: {"id_cache_size": size} for name, size in sizes.items()}
    stage = Stage(options_with(journal={"journal_file_size_bytes": 65536}, address_settings=settings))
    seen: dict[str, list[int]] = {name: [] for name in sizes}
    synced = deepcopy(seen)
    for _ in range(400):
        name, one = rng.choice(list(sizes)), rng.randrange(90)
        if not stage.is_disk_held:
            stage.run()
        before = stage.broker.store.received_total
        send(stage, one, to=name)
        assert (stage.broker.store.received_total == before) == (one in seen[name])
        if one not in seen[name]:
            seen[name] = [*seen[name], one][-sizes[name] :]
        if rng.random() < 0.3:
            stage.admin("send", address="other", messages=[{"body": "x" * 20_000}])
            for queue in stage.broker.store.queues.values():
                stage.broker.store.purge(queue)
        if not stage.is_disk_held:
            synced = deepcopy(seen)
        stage.is_disk_held = rng.random() < 0.3
        if rng.random() < 0.05:
            stage.crash()
            stage.is_disk_held = False
            stage.start()
            seen = deepcopy(synced)
    assert stage.broker.journal._ledger.segments[0].number > 5
