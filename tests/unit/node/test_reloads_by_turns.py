"""A reload of very much goes piece by piece: addresses, queues and links; messages of others pass in between."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from mqbroker.amqp import frame_costs
from mqbroker.base.time import NS_PER_MS
from mqbroker.config.slices import AddressOptions, BrokerOptions, QueueOptions
from mqbroker.config.users import make_verifier
from mqbroker.core.address.deployed_addresses import FORCE
from mqbroker.core.address.permissions import BROKER
from mqbroker.node.amqp.peers.turns import ALONE_WORK
from mqbroker.node.broker.reloads import AT_ONCE, WAITING_MAX
from mqbroker.node.values import inputs as given
from mqbroker.wire.composites import encode_composite
from mqbroker.wire.performatives import Attach, Detach
from mqbroker.wire.run import single
from mqbroker.wire.sections import Header, build_message

from tests.support import frames
from tests.support.bytecodes import Bytecodes
from tests.support.stage import Stage, options_with
from tests.unit.node.test_bystander_work import GO, Site
from tests.unit.node.test_flood_work import DEARER, TURN_BYTECODES, UNIT_BYTECODES

COUNT = 500
BODY = b"\x00\x53\x75\xa0\x01y"
PIECE_MAX = AT_ONCE + ALONE_WORK
EVERYTHING = {"send": ["guest"], "consume": ["guest"], "create_address": ["guest"], "create_durable_queue": ["guest"],
              "create_non_durable_queue": ["guest"]}  # fmt: skip
GUEST = {"anonymous_role": "guest"}
GO_WITH_FILE = {"config_delete_addresses": FORCE, "config_delete_queues": FORCE}


def declaring(options: BrokerOptions, count: int, **queue: object) -> BrokerOptions:
    """So many addresses, each with its queue."""
    unsaid = dict.fromkeys(QueueOptions.__slots__) | {"durable": True, "filter": ""}
    addresses = tuple(
        AddressOptions(name, ("ANYCAST",), (QueueOptions(**{**unsaid, "name": name, **queue}),), ())  # type: ignore[arg-type]
        for name in (f"declared.{number}" for number in range(count))
    )
    return replace(options, addresses=addresses)


def reloading(stage: Stage, options: BrokerOptions, request_id: int = 0) -> None:
    """It is asked for, and the files are read."""
    stage.options = options
    if request_id:
        stage.give(given.AdminRequest(request_id, 1, "config-reload", {}))
        stage.turn()
    else:
        stage.give(given.OptionsChanged(options))


def steps_of(stage: Stage) -> Iterator[None]:
    """Each step until there is nothing more to do."""
    while stage.turn().more or stage.pending:
        stage.sync()
        yield


def declared_count(stage: Stage) -> int:
    return sum(address.is_configured for address in stage.broker.store.addresses.values())


@pytest.mark.parametrize("is_asked", [True, False])
def test_addresses_and_queues_come_and_change_piece_by_piece(is_asked: bool) -> None:
    stage = Stage(options_with())
    stage.is_disk_held = True
    reloading(stage, declaring(stage.options, COUNT), 1000 * is_asked)
    before, steps = 0, 0
    for _ in steps_of(stage):
        assert declared_count(stage) - before <= PIECE_MAX // (frame_costs.DECLARED + frame_costs.DEPLOYED) + 1
        assert 1000 not in stage.replies or declared_count(stage) == COUNT
        before, steps = declared_count(stage), steps + 1
    assert (before, steps >= COUNT * (frame_costs.DECLARED + frame_costs.DEPLOYED) // PIECE_MAX) == (COUNT, True)
    stage.run()
    assert len(stage.replies[1000].result["changed"]) == COUNT if is_asked else not stage.replies
    reloading(stage, declaring(stage.options, COUNT, max_consumers=7), 2000 * is_asked)
    kinds = [queue.kind for queue in stage.broker.store.queues.values()]
    for _ in steps_of(stage):
        changed = sum(new.kind is not old for new, old in zip(stage.broker.store.queues.values(), kinds, strict=True))
        assert changed <= PIECE_MAX // frame_costs.DEPLOYED + 1
        kinds = [queue.kind for queue in stage.broker.store.queues.values()]
    assert {kind.max_consumers for kind in kinds} == {7}
    stage.crash()
    stage.start()
    assert declared_count(stage) == COUNT


def test_what_is_gone_from_the_file_goes_piece_by_piece_and_so_do_those_who_use_it() -> None:
    stage = Stage(declaring(options_with(address_settings={"#": GO_WITH_FILE}), COUNT))
    conn = stage.accept()
    stage.talk(conn, GO + b"".join(frames.receiver("declared.0", handle=handle) for handle in range(COUNT)))
    told, before, left = len(stage.sent[conn]), declared_count(stage), COUNT
    queue = stage.broker.store.queues["declared.0"]
    reloading(stage, declaring(stage.options, 0))
    for _ in steps_of(stage):
        assert before - declared_count(stage) <= PIECE_MAX // (frame_costs.DECLARED + frame_costs.DEPLOYED) + 1
        consumers = queue.consumers if not queue.is_deleted else []
        assert left - len(consumers) <= PIECE_MAX // frame_costs.REVOKED + 1
        left = len(consumers)
        before = declared_count(stage)
    assert not stage.broker.store.queues
    assert not stage.broker.store.addresses
    ends = [each for each in frames.heard(bytes(stage.sent[conn][told:])) if isinstance(each, Detach)]
    assert [each.handle for each in ends] == list(range(COUNT))


def test_who_comes_to_a_queue_that_is_about_to_go_is_told_too() -> None:
    stage = Stage(declaring(options_with(address_settings={"#": GO_WITH_FILE}), 1))
    conn, late = stage.accept(), stage.accept()
    stage.talk(conn, GO + b"".join(frames.receiver("declared.0", handle=handle) for handle in range(COUNT)))
    stage.talk(late, GO)
    reloading(stage, declaring(stage.options, 0))
    stage.turn()
    assert 0 < len(stage.broker.store.queues["declared.0"].consumers) < COUNT
    stage.give(given.BytesReceived(late, frames.receiver("declared.0", handle=0)))
    stage.run()
    assert "declared.0" not in stage.broker.store.queues
    assert frames.errors(bytes(stage.sent[late])) == [("Detach", "amqp:resource-deleted")]


def receivers(stage: Stage, conn: int, count: int) -> None:
    for number in range(count):
        stage.give(given.BytesReceived(conn, frames.receiver("orders", handle=number)))
    stage.run()


def test_links_that_may_receive_no_more_end_piece_by_piece_and_no_new_one_comes() -> None:
    stage = Stage(options_with(GUEST, security_settings={"#": EVERYTHING}))
    conn = stage.accept()
    stage.talk(conn, GO)
    receivers(stage, conn, COUNT)
    left = len(stage.broker.store.queues["orders"].consumers)
    assert left == COUNT
    reloading(
        stage, replace(stage.options, security_settings=options_with(security_settings={"#": {}}).security_settings)
    )
    stage.turn()
    stage.give(given.BytesReceived(conn, frames.receiver("orders", handle=COUNT)))
    for _ in steps_of(stage):
        assert left - len(stage.broker.store.queues["orders"].consumers) <= 2 * PIECE_MAX // frame_costs.REVOKED + 1
        left = len(stage.broker.store.queues["orders"].consumers)
    assert left == 0
    heard = frames.heard(bytes(stage.sent[conn]))
    assert sum(isinstance(each, Attach) for each in heard) == sum(isinstance(each, Detach) for each in heard)


@pytest.mark.slow
@pytest.mark.parametrize("what", ["addresses", "links"])
def test_a_bystander_waits_for_a_piece_of_it(what: str) -> None:
    site = Site(**GUEST)
    stage = site.stage
    alone = site.work_of_message(is_answered=True)
    if what == "addresses":
        reloading(stage, declaring(stage.broker.options, COUNT))
    else:
        receivers(stage, site.standing(GO), COUNT)
        granted = {"others": {"send": ["guest"], "consume": ["guest"]}, "#": {}}
        reloading(stage, replace(stage.broker.options, security_settings=options_with(
            security_settings=granted).security_settings))  # fmt: skip
    stage.turn()
    for _ in range(4):
        assert stage.broker.reloads.is_due
        assert site.work_of_message(is_answered=True) <= alone + TURN_BYTECODES
    stage.run()
    assert not stage.broker.reloads.is_due


def test_what_is_charged_is_about_what_it_costs() -> None:
    stage = Stage(options_with(address_settings={"#": GO_WITH_FILE}))
    stage.options = declaring(stage.options, COUNT)
    for options in (stage.options, stage.options, declaring(stage.options, COUNT, max_consumers=3),
                    declaring(stage.options, 0)):  # fmt: skip
        reloading(stage, options, 1)
        while stage.broker.reloads.is_due:
            counted = Bytecodes()
            counted.of(lambda: stage.broker.reloads.go_on(ALONE_WORK))
            assert counted.count <= ALONE_WORK * UNIT_BYTECODES * DEARER
        stage.run()
        stage.replies.clear()


def test_files_that_are_read_meanwhile_wait_and_the_last_ones_hold() -> None:
    stage = Stage(options_with())
    first, last = declaring(stage.options, COUNT), declaring(stage.options, COUNT + 1)
    reloading(stage, first, 1000)
    stage.turn()
    assert 0 < declared_count(stage) < COUNT
    for _ in range(5):
        stage.give(given.OptionsChanged(declaring(stage.options, 3)))
    stage.give(given.UsersChanged({"app": make_verifier("one", b"0123456789abcdef", ("client",))}))
    stage.turn()
    reloading(stage, last, 2000)
    assert 1000 not in stage.replies
    stage.run()
    assert len(stage.replies[1000].result["changed"]) == COUNT
    assert [each["new"] for each in stage.replies[2000].result["changed"]][-1] == f"declared.{COUNT}"
    assert (declared_count(stage), list(stage.broker.accounts.users)) == (COUNT + 1, [])


@pytest.mark.slow
def test_so_many_requests_wait_and_no_more() -> None:
    stage = Stage(options_with())
    stage.options = declaring(stage.options, COUNT)
    for number in range(WAITING_MAX + 1):
        stage.give(given.AdminRequest(1000 + number, 1, "config-reload", {}))
    stage.run()
    refused = [number for number, reply in stage.replies.items() if reply.error is not None]
    assert refused == [1000 + WAITING_MAX]
    assert len(stage.replies) == WAITING_MAX + 1


@pytest.mark.parametrize("faults", [[], ["broker.toml: no such option"]])
def test_those_that_are_done_or_were_in_vain_wait_no_more(faults: list[str]) -> None:
    stage = Stage(options_with())
    stage.file_faults = faults
    for _ in range(WAITING_MAX + 1):
        answer = stage.admin("config-reload")
        assert ("changed" in answer) is not bool(faults)
        assert "are under way" not in str(answer)


def test_a_stop_in_the_middle_is_told_and_the_next_start_does_the_rest() -> None:
    stage = Stage(options_with())
    reloading(stage, declaring(stage.options, COUNT), 1000)
    stage.turn()
    stage.stop()
    assert stage.replies[1000].error is not None
    assert stage.halted == 0
    stage.crash()
    stage.start()
    assert declared_count(stage) == COUNT


def test_a_stop_is_told_to_all_who_wait_also_where_other_long_work_has_the_turns() -> None:
    stage = Stage(options_with(address_settings={"orders": {"expiry_address": "expired"}}))
    store = stage.broker.store
    store.address_for("expired", BROKER)
    expiring, plain = encode_composite(Header(durable=True, ttl=1000)) + BODY, build_message(b"x", durable=True)
    for name, payload in (("orders", expiring), ("others", plain)):
        address = store.address_for(name, BROKER)
        for _ in range(5 * COUNT):
            store.publish(address, single(payload))
    stage.step()
    stage.run()
    stage.now_ns += 2000 * NS_PER_MS
    stage.options = declaring(stage.options, COUNT)
    requests = range(1000, 1003)
    for request_id in requests:
        stage.give(given.AdminRequest(request_id, 1, "config-reload", {}))
    stage.turn()
    store.purge(store.queues["others"])
    stage.stop()
    assert stage.halted == 0
    assert [each for each in requests if each not in stage.replies] == []
