"""A durable subscription is there, also after a crash, from the moment in which its subscriber is told so."""

from __future__ import annotations

from mqbroker.wire.performatives import Attach, Detach, Flow, Source, Target
from mqbroker.wire.types import Symbol

from tests.support import frames
from tests.support.stage import Stage

SUBSCRIPTION = "app.news"


def subscribe() -> bytes:
    source = Source(address="topic", durable=2, expiry_policy=Symbol("never"), capabilities=(Symbol("topic"),))
    return frames.frame(Attach(name="news", handle=0, role=True, source=source, target=Target()))


def held_stage() -> tuple[Stage, int]:
    stage = Stage()
    conn = stage.accept()
    stage.talk(conn, frames.anonymous() + frames.opened() + frames.begun())
    stage.is_disk_held = True
    return stage, conn


def subscriptions(stage: Stage) -> list[str]:
    return [name for name in stage.broker.store.queues if name.endswith(".news")]


def test_the_subscriber_is_told_when_the_subscription_is_on_disk() -> None:
    stage, conn = held_stage()
    assert frames.heard(stage.talk(conn, subscribe() + frames.flow(0, 5))) == []
    before = len(stage.sent[conn])
    stage.is_disk_held = False
    stage.run()
    (said,) = frames.heard(bytes(stage.sent[conn][before:]))
    assert isinstance(said, Attach)
    assert said.source is not None
    stage.crash()
    stage.start()
    assert len(subscriptions(stage)) == 1


def test_who_is_told_nothing_may_find_nothing() -> None:
    stage, conn = held_stage()
    assert frames.heard(stage.talk(conn, subscribe())) == []
    stage.crash()
    stage.start()
    assert subscriptions(stage) == []


def test_nothing_is_said_on_a_link_before_its_attach() -> None:
    for asked, kind in ((frames.flow(0, 0, echo=True), Flow), (frames.detach(0), Detach)):
        stage, conn = held_stage()
        said = frames.heard(stage.talk(conn, subscribe() + asked))
        assert [type(each) for each in said] == [Attach, kind]
        stage.is_disk_held = False
        stage.run()
        assert frames.of_kind(bytes(stage.sent[conn]), Attach) == said[:1], "it is said once"
