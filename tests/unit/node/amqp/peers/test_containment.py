"""Bugs that are planted where bytes of a peer are looked at: before anything was touched, and behind each mutator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from mqbroker.amqp import connection as amqp_connection
from mqbroker.amqp import incoming as amqp_incoming
from mqbroker.amqp import session as amqp_session
from mqbroker.amqp.links import Partial
from mqbroker.base.errors import Bug, PeerFault, Refused, StorageFault
from mqbroker.base.look import LOOK
from mqbroker.base.notice import Level, Notice
from mqbroker.cluster.discovery import group
from mqbroker.core.address.settings import Settings
from mqbroker.core.store.store import Store
from mqbroker.node.amqp.listeners import accepted_peer
from mqbroker.node.amqp.peers.containment import CONDITION, TOLD_MAX, TOLD_NS, place_of
from mqbroker.node.amqp.peers.turns import STEP_WORK
from mqbroker.node.broker import termini
from mqbroker.node.values.inputs import BytesReceived, Datagram, Slipped
from mqbroker.node.values.timers import Timers
from mqbroker.wire.performatives import Accepted, Attach, Begin, Disposition, SaslInit
from mqbroker.wire.types import Symbol

from tests.support import frames
from tests.support.stage import Stage
from tests.unit.node.cluster.discovery.test_discovery import Air

SECRET = b"not-for-the-log"
LOGIN = frames.anonymous()
OPEN = LOGIN + frames.opened()
SESSION = OPEN + frames.begun()
SENDER = SESSION + frames.sender("mine")
RECEIVER = SESSION + frames.receiver("mine", credit=10)


class Planted:
    """Raises instead of calling, once after it was armed; `error` is what."""

    def __init__(self, place: Any, name: str, monkeypatch: pytest.MonkeyPatch, error: Callable[[], Exception]) -> None:
        self.is_armed = False
        self.raised = 0
        original = getattr(place, name)

        def planted(*arguments: Any, **named: Any) -> Any:
            if self.is_armed:
                self.is_armed = False
                self.raised += 1
                raise error()
            return original(*arguments, **named)

        monkeypatch.setattr(place, name, planted)


# What stands when the bug shows, the frame that brings it to light, and where it is.
STATES: dict[str, tuple[bytes, bytes, Any, str]] = {
    "before login": (frames.SASL_HEADER, frames.sasl(SaslInit(mechanism=Symbol("ANONYMOUS"))),
                     amqp_connection, "decode_performative"),
    "before open": (LOGIN, frames.opened(), amqp_connection, "decode_performative"),
    "before begin": (OPEN, frames.begun(), amqp_connection, "decode_performative"),
    "attach, as it is read": (SESSION, frames.sender("mine"), amqp_connection, "decode_performative"),
    "attach, as it is answered": (SESSION, frames.receiver("mine"), termini, "_filters"),
    "flow": (RECEIVER, frames.flow(1, 5), amqp_connection, "decode_performative"),
    "disposition": (RECEIVER, frames.disposition(0, 0, Accepted()), amqp_session, "decode_disposition_flat"),
    "transfer, as it is read": (SENDER, frames.transfer(0, SECRET), amqp_incoming, "parse_run"),
    "transfer, as it is taken in": (SENDER, frames.transfer(0, SECRET, durable=True), Settings, "of"),
    "detach": (SENDER, frames.detach(), amqp_connection, "decode_performative"),
    "end": (SESSION, frames.end(), amqp_connection, "decode_performative"),
    "close": (SESSION, frames.close(), amqp_connection, "decode_performative"),
}  # fmt: skip
ERRORS: dict[str, Callable[[], Exception]] = {
    "IndexError": lambda: IndexError(SECRET.decode()), "Bug": lambda: Bug("ours"), "RecursionError": RecursionError,
}  # fmt: skip


def contained(stage: Stage) -> list[Notice]:
    return [notice for notice in stage.notices if notice.event == "bug-contained"]


def bystander(stage: Stage) -> Callable[[], None]:
    """Somebody with a message that is delivered; calling it shows that the connection still works."""
    conn = stage.accept()
    stage.talk(conn, SESSION + frames.sender("theirs") + frames.receiver("theirs", credit=100))
    numbers = iter(range(100))

    def works() -> None:
        number = next(numbers)
        said = stage.talk(conn, frames.transfer(number, b"still here", durable=True))
        assert [each for each in frames.heard(said) if isinstance(each, tuple) and b"still here" in each[1]]
        assert frames.of_kind(said, Disposition), "its message was accepted"
        stage.talk(conn, frames.disposition(number, number, Accepted()))

    works()
    return works


@pytest.mark.slow
@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("error", ERRORS)
def test_an_untouched_bug_ends_that_connection_alone(state: str, error: str, monkeypatch: pytest.MonkeyPatch) -> None:
    before, frame, place, name = STATES[state]
    stage = Stage()
    works = bystander(stage)
    conn = stage.accept()
    if state == "disposition":
        stage.talk(conn, SESSION + frames.sender("mine") + frames.receiver("mine", credit=10))
        stage.talk(conn, frames.transfer(0))
    else:
        stage.talk(conn, before)
    bug = Planted(place, name, monkeypatch, ERRORS[error])
    bug.is_armed = True
    said = stage.talk(conn, frame)
    assert bug.raised
    works()
    assert conn in stage.closed
    if len(before) > len(LOGIN):
        assert frames.errors(said)[-1] == ("Close", CONDITION)
    assert stage.broker.counters.bugs_contained == 1
    (notice,) = contained(stage)
    assert (notice.level, notice.fields["conn"]) == (Level.ERROR, conn)
    assert notice.fields["error"] == error
    assert ".py:" in str(notice.fields["place"])
    assert SECRET.decode() not in repr(notice)
    stage.drop_bare(conn)
    works()
    assert LOOK.has_touched, "nobody looks at anything"


@pytest.mark.parametrize("error", [lambda: PeerFault("a:b", "nobody answered"), lambda: Refused("a:b", "nobody told")])
def test_a_fault_that_nobody_has_answered_is_a_bug_as_well(
    error: Callable[[], Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = Stage()
    conn = stage.accept()
    stage.talk(conn, SENDER)
    bug = Planted(Settings, "of", monkeypatch, error)
    bug.is_armed = True
    stage.talk(conn, frames.transfer(0))
    assert conn in stage.closed
    assert len(contained(stage)) == 1


def test_what_the_disk_says_is_never_contained(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage()
    conn = stage.accept()
    stage.talk(conn, SENDER)
    bug = Planted(Settings, "of", monkeypatch, lambda: StorageFault("file", 1, "unreadable", "see"))
    bug.is_armed = True
    with pytest.raises(StorageFault):
        stage.talk(conn, frames.transfer(0))


def test_what_came_before_in_the_same_read_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    """A read brings a whole conversation and then the bug: what is done stays done, and is no reason to stop."""
    stage = Stage()
    works = bystander(stage)
    conn = stage.accept()
    stage.talk(conn, SESSION)
    bug = Planted(amqp_connection, "decode_performative", monkeypatch, IndexError)

    def decode(buffer: bytes, offset: int, limit: int) -> Any:
        bug.is_armed = b"BUG" in buffer[offset:limit]
        return planted(buffer, offset, limit)

    planted = vars(amqp_connection)["decode_performative"]
    monkeypatch.setattr(amqp_connection, "decode_performative", decode)
    good = frames.sender("mine") + frames.transfer(0, durable=True) + frames.receiver("mine", credit=5)
    said = stage.talk(conn, good + frames.sender("BUG", handle=3))
    assert len(contained(stage)) == 1
    assert len(frames.of_kind(said, Attach)) == 2
    assert stage.broker.store.queues["mine"].message_count == 1
    works()


@pytest.mark.parametrize("numbers", [(0, 0), (7, 9)], ids=["of ours", "of nothing"])
def test_what_was_settled_in_the_same_read_is_settled_once(
    numbers: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disposition before the frame that brings the bug to light is no reason to stop the node."""
    stage = Stage()
    works = bystander(stage)
    conn = stage.accept()
    stage.talk(conn, SESSION + frames.sender("mine") + frames.receiver("mine", credit=10))
    stage.talk(conn, frames.transfer(0, durable=True) + frames.transfer(1, durable=True))
    bug = Planted(amqp_connection, "decode_performative", monkeypatch, IndexError)
    bug.is_armed = True
    stage.talk(conn, frames.disposition(*numbers, Accepted()) + frames.sender("BUG", handle=3))
    assert bug.raised
    assert conn in stage.closed
    assert len(contained(stage)) == 1
    left = 1 if numbers == (0, 0) else 2
    assert stage.broker.store.queues["mine"].message_count == left
    works()


@pytest.mark.parametrize("settled", [True, False])
def test_what_was_not_acted_on_comes_to_nothing(settled: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A message before the frame that brings the bug to light: nothing was promised, and half of it may be known."""
    stage = Stage()
    works = bystander(stage)
    conn = stage.accept()
    stage.talk(conn, SENDER)
    bug = Planted(amqp_connection, "decode_performative", monkeypatch, IndexError)
    bug.is_armed = True
    stage.talk(conn, frames.transfer(0, durable=True, settled=settled) + frames.sender("BUG", handle=3))
    assert bug.raised
    assert len(contained(stage)) == 1
    assert stage.broker.store.queues["mine"].message_count == 0
    works()


def test_a_bug_gives_nobody_else_more_of_the_step(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage()
    conn = stage.accept()
    stage.talk(conn, LOGIN)
    planted = Planted(amqp_connection, "decode_performative", monkeypatch, lambda: KeyError("x"))
    planted.is_armed = True
    stage.give(BytesReceived(conn, frames.opened()))
    stage.turn()
    assert planted.raised
    assert stage.broker.turns.left <= STEP_WORK


def test_a_bug_behind_the_first_change_stops_the_node(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage()
    conn = stage.accept()
    stage.talk(conn, SENDER)
    original = Store.number

    def number(store: Store, run: Any) -> None:
        original(store, run)
        raise Bug("planted")

    monkeypatch.setattr(Store, "number", number)
    with pytest.raises(Bug, match="planted"):
        stage.talk(conn, frames.transfer(0))
    assert LOOK.has_touched
    assert not contained(stage)


def test_a_bug_in_the_end_of_the_connection_stops_the_node(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage()
    conn = stage.accept()
    stage.talk(conn, SENDER)
    bug = Planted(Settings, "of", monkeypatch, IndexError)
    end = Planted(termini.Termini, "detached", monkeypatch, lambda: Bug("at the end"))
    bug.is_armed = end.is_armed = True
    with pytest.raises(Bug, match="at the end"):
        stage.talk(conn, frames.transfer(0))


def test_a_bug_as_a_connection_comes_closes_it_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage()
    works = bystander(stage)
    bug = Planted(accepted_peer.AcceptedPeer, "_mechanisms", monkeypatch, IndexError)
    bug.is_armed = True
    conn = stage.accept()
    stage.run()
    assert bug.raised
    assert conn in stage.closed
    assert conn not in stage.broker.peers
    (notice,) = contained(stage)
    assert notice.fields["conn"] == conn
    works()
    assert frames.of_kind(stage.talk(stage.accept(), SESSION), Begin)


def test_a_bug_behind_what_a_new_connection_changes_stops_the_node(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage()
    bug = Planted(Timers, "add", monkeypatch, lambda: Bug("planted"))
    bug.is_armed = True
    stage.accept()
    with pytest.raises(Bug, match="planted"):
        stage.run()


def test_a_bug_in_a_datagram_that_nobody_believes_yet_drops_it_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    air = Air()
    stage = air.add("mq1")
    bug = Planted(group, "unseal", monkeypatch, IndexError)
    bug.is_armed = True
    stage.give(Datagram("lan", "192.0.2.7:9876", SECRET))
    stage.run()
    assert bug.raised
    (notice,) = contained(stage)
    assert (notice.fields["group"], notice.fields["source"]) == ("lan", "192.0.2.7:9876")
    air.add("mq2")
    air.wait(6000)
    assert [row["node"] for row in stage.admin("discovery")["nodes"]] == ["mq2"], "others are heard"


def test_a_bug_of_a_shell_is_told_as_all_are() -> None:
    stage = Stage()
    stage.give(Slipped("gossip", "192.0.2.7:9", "KeyError", "io/discovery/gossip.py:7"))
    stage.run()
    (notice,) = contained(stage)
    assert notice.fields["what"] == "gossip"
    assert stage.broker.counters.bugs_contained == 1


def test_a_bug_outside_of_a_look_stops_the_node(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage()
    conn = stage.accept()
    stage.talk(conn, SENDER)
    bug = Planted(termini.Termini, "detached", monkeypatch, lambda: Bug("nobody's bytes"))
    bug.is_armed = True
    with pytest.raises(Bug, match="nobody's bytes"):
        stage.drop_bare(conn)


def test_who_repeats_it_does_not_fill_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage()
    bug = Planted(amqp_connection, "decode_performative", monkeypatch, IndexError)
    for _ in range(TOLD_MAX + 7):
        bug.is_armed = True
        stage.talk(stage.accept(), LOGIN)
    assert len(contained(stage)) == TOLD_MAX
    assert stage.broker.counters.bugs_contained == TOLD_MAX + 7
    stage.now_ns += TOLD_NS
    bug.is_armed = True
    stage.talk(stage.accept(), LOGIN)
    assert contained(stage)[-1].fields["untold"] == 7
    bug.is_armed = True
    stage.talk(stage.accept(), LOGIN)
    assert "untold" not in contained(stage)[-1].fields, "they are told once"


def test_bytes_of_an_unfinished_message_are_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bug lies between the account of all connections and the delivery's own."""
    stage = Stage()
    conn = stage.accept()
    stage.talk(conn, SENDER)
    partials = stage.broker.large.partials
    bug = Planted(Partial, "add", monkeypatch, IndexError)
    bug.is_armed = True
    stage.talk(conn, frames.transfer(0, b"x" * 1000, more=True))
    assert len(contained(stage)) == 1
    assert partials.size_bytes == 0


def test_the_place_names_the_last_frames_of_ours() -> None:
    def innermost() -> None:
        Stage().broker.store.settings.of(7)  # type: ignore[arg-type]

    with pytest.raises(AttributeError) as caught:
        innermost()
    assert place_of(caught.value).startswith("core/address/settings.py:")
    assert "/" not in place_of(caught.value).split(":")[0].removeprefix("core/address/")


@pytest.mark.parametrize("is_faulty", [False, True])
def test_behind_a_look_everything_counts_as_touched_again(is_faulty: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a step does besides is no look of anybody's, and a bug in it has to stop the node."""
    stage = Stage()
    conn = stage.accept()
    stage.talk(conn, LOGIN)
    planted = Planted(amqp_connection, "decode_performative", monkeypatch, lambda: KeyError("x"))
    planted.is_armed = is_faulty
    peer = stage.broker.peers[conn]
    stage.broker.containment.look(peer, peer.connection.receive, frames.opened())
    assert planted.raised == is_faulty
    assert LOOK.has_touched
