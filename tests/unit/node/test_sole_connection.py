"""A container that wants to be the only one of its name: JMS client ids."""

from __future__ import annotations

from mqbroker.amqp.events import Dead, Opened
from mqbroker.node.values import inputs as given
from mqbroker.wire.performatives import Open
from mqbroker.wire.types import Symbol

from tests.support import frames
from tests.support.stage import Stage, Talker

SOLE = Symbol("sole-connection-for-container")


def connect(stage: Stage, name: str, *, sole: bool = True) -> Talker:
    desired = (SOLE,) if sole else None
    return stage.connect(name, open_=Open(container_id=name, desired_capabilities=desired))


def fate(talker: Talker) -> str:
    dead = [event for event in talker.events if isinstance(event, Dead)]
    return str(dead[0].condition) if dead else "open"


def test_the_second_of_a_name_is_told_so_in_its_open_and_closed() -> None:
    stage = Stage()
    first, second, other = connect(stage, "app"), connect(stage, "app"), connect(stage, "web")
    assert [fate(each) for each in (first, second, other)] == ["open", "amqp:invalid-field", "open"]
    (opened,) = [event for event in second.events if isinstance(event, Opened)]
    assert opened.open.properties[Symbol("amqp:connection-establishment-failed")] is True
    assert SOLE in opened.open.offered_capabilities


def test_the_name_is_free_when_its_owner_has_gone_and_for_those_who_do_not_care() -> None:
    stage = Stage()
    first = connect(stage, "app")
    assert fate(connect(stage, "app", sole=False)) == "open"
    stage.drop(first)
    second = connect(stage, "app")
    assert fate(second) == "open"
    second.connection.close()
    stage.run()
    assert fate(connect(stage, "app")) == "open"


def test_names_are_free_again_after_a_crash() -> None:
    stage = Stage()
    connect(stage, "app")
    stage.crash()
    stage.start()
    assert fate(connect(stage, "app")) == "open"


def test_the_name_is_free_while_what_its_owner_sent_before_it_left_is_taken_in() -> None:
    """It closed and did not wait for the answer, and is back before its last messages had their turn."""
    stage = Stage()
    greeting = frames.anonymous() + frames.AMQP_HEADER
    opened = greeting + frames.frame(Open(container_id="app", max_frame_size=65536, desired_capabilities=(SOLE,)))
    first = stage.accept()
    stage.talk(first, opened + frames.begun() + frames.sender("orders"))
    last = b"".join(frames.transfer(2 * number, settled=True) for number in range(1000))
    second = stage.accept()
    stage.step()
    stage.give(given.BytesReceived(first, last + frames.close()))
    stage.give(given.Closed(first, "closed by the peer"))
    stage.give(given.BytesReceived(second, opened))
    while not (said := frames.of_kind(bytes(stage.sent[second]), Open)):
        stage.turn()
    assert first in stage.broker.peers, "still to be worked off"
    assert not said[0].properties.get(Symbol("amqp:connection-establishment-failed"))
    stage.step()
    stage.run()
    assert stage.broker.store.queues["orders"].message_count == 1000
    assert list(stage.broker.peers) == [second]
    third = connect(stage, "app")
    assert fate(third) == "amqp:invalid-field", "and then it is not"
