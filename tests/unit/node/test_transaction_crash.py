"""A crash at every point of a transaction, with every number of its appends on disk: all of it is there, or nothing."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from mqbroker.node.values import inputs as given
from mqbroker.wire.performatives import Accepted, Attach, Source, Target, TransactionalState
from mqbroker.wire.sections import build_message

from tests.support import transactions
from tests.support.stage import Stage, options_with

SMALL_FILES = {"journal_file_size_bytes": 4096}
SENT = 6


class Story:
    """Two messages of `orders` are acknowledged and six of `invoices` and `notes` published, step by step."""

    def __init__(self) -> None:
        self.stage = stage = Stage(options_with(journal=SMALL_FILES))
        messages = [{"body": f"m{number}", "durable": True} for number in range(2)]
        stage.admin("send", address="orders", messages=messages)
        self.talker = stage.connect("c")
        assert self.talker.session is not None
        self.session = self.talker.session
        self.control = self.session.attach_sender(transactions.coordinator_attach())
        self.senders = [
            self.session.attach_sender(
                Attach(name=name, handle=0, role=False, source=Source(), target=Target(address=name),
                       initial_delivery_count=0)
            )
            for name in ("invoices", "notes")
        ]  # fmt: skip
        receiver = self.session.attach_receiver(
            Attach(name="in", handle=0, role=True, source=Source(address="orders"), target=Target())
        )
        stage.run()
        receiver.grant(10)
        transactions.declare(self.control, "declare")
        stage.run()
        self.txn_id = (1).to_bytes(8, "big")
        stage.is_disk_held = True

    def steps(self) -> list[Callable[[], None]]:
        return [
            *(lambda number=number: self._post(number) for number in range(SENT)),
            lambda: self._retire(0, settled=True),
            lambda: self._retire(1, settled=False),
            lambda: transactions.discharge(self.control, self.txn_id, "discharge"),
        ]

    def _post(self, number: int) -> None:
        payload = build_message(f"p{number}".encode().ljust(900, b"x"), durable=True)
        transactions.post(self.senders[number % 2], payload, "post", self.txn_id)

    def _retire(self, number: int, *, settled: bool) -> None:
        state = TransactionalState(txn_id=self.txn_id, outcome=Accepted())
        if settled:
            self.session.dispose(number, number, state, as_receiver=True)
        else:
            self.session.outcome(number, number, state)

    def is_answered(self) -> bool:
        return any(
            taken.token == "discharge" and isinstance(event.outcome, Accepted)
            for event in self.talker.events
            if type(event).__name__ == "Settled"
            for taken in event.taken
        )

    def counts(self) -> tuple[int, int, int]:
        rows = {row["name"]: row["message_count"] for row in self.stage.admin("queues")["queues"]}
        return rows["orders"], rows["invoices"], rows["notes"]

    def sync_some(self, count: int) -> None:
        """The disk takes so many of the appends that wait, and then the node is told."""
        for append in [self.stage.pending.pop(0) for _ in range(count)]:
            self.stage.give(given.Synced(self.stage.disk.commit([append])))
        self.stage.run()


BEFORE, AFTER = (2, 0, 0), (0, SENT // 2, SENT // 2)


@pytest.mark.parametrize("done", range(SENT + 4))
def test_crash_after_each_step(done: int) -> None:
    """With nothing more on disk, and with everything."""
    for is_synced in (False, True):
        story = Story()
        for step in story.steps()[:done]:
            step()
            story.stage.run()
        if is_synced:
            story.sync_some(len(story.stage.pending))
        is_committed = is_synced and done == SENT + 3
        assert story.is_answered() is is_committed
        story.stage.crash()
        story.stage.is_disk_held = False
        story.stage.start()
        assert story.counts() == (AFTER if is_committed else BEFORE)


def test_crash_between_the_appends_of_a_commit() -> None:
    """The commit is one of them: before it nothing, with it everything, however many others there are."""
    seen = set()
    story = Story()
    for step in story.steps():
        step()
        story.stage.run()
    total = len(story.stage.pending)
    for count in range(total + 1):
        story = Story()
        for step in story.steps():
            step()
            story.stage.run()
        assert not story.is_answered()
        story.sync_some(count)
        answered = story.is_answered()
        story.stage.crash()
        story.stage.is_disk_held = False
        story.stage.start()
        assert story.counts() == (AFTER if answered else BEFORE)
        seen.add(answered)
    assert seen == {True, False}


def test_what_a_crash_leaves_has_been_delivered_once() -> None:
    story = Story()
    for step in story.steps()[:-1]:
        step()
    story.stage.run()
    story.stage.crash()
    story.stage.is_disk_held = False
    story.stage.start()
    answer = story.stage.admin("receive", address="orders", count_max=5, wait_ms=1)
    assert [(each["body"], each["delivery_count"]) for each in answer["messages"]] == [("m0", 1), ("m1", 1)]
