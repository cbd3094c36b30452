"""The selective way of handing out, against what must hold whatever happens."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from unittest.mock import patch

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from mqbroker.core.queue.backlog import ID_BITS, Backlog
from mqbroker.core.queue.dispatch import LOOKED_AT_MAX
from mqbroker.core.queue.message_view import MessageView
from mqbroker.core.queue.queue import Filter, Queue, QueueKind, Segment
from mqbroker.core.selector.selector import compile_selector
from mqbroker.wire.run import Run, runs_of, single
from mqbroker.wire.sections import Header, Properties, build_message, decode_application_properties, scan_sections
from mqbroker.wire.traits import Traits

from tests.support.values import replaced
from tests.unit.wire.strategies import steady


class Colour:
    """Wants messages of one colour."""

    def __init__(self, colour: str) -> None:
        self.colour = colour
        self.shown: Counter[int] = Counter()

    def matches(self, message: MessageView) -> bool:
        return bool(message.value_of("color") == self.colour)


class Taker:
    """A consumer with credit, and a colour that it wants or none."""

    client = None

    def __init__(self, colour: str | None, priority: int, *, is_browser: bool = False) -> None:
        self.priority = priority
        self.filter: Filter | None = Colour(colour) if colour else None
        self.colour = colour
        self.is_browser = is_browser
        self.credit = 0
        self.held: list[Segment] = []
        self.copies: list[int] = []
        self.unusable: set[int] = set()
        self.missed: set[int] = set()  # what came back to a place that a browser had passed

    def capacity(self) -> int:
        return self.credit

    def deliver(self, queue: Queue, segment: Segment) -> int:
        count = min(segment.n, self.credit)
        self.credit -= count
        if self.is_browser:
            self.copies += range(segment.first_id, segment.first_id + count)
        elif count:
            self.held.append(replaced(segment, n=count))
        return count


def message(first_id: int, colour: str, group: str, priority: int = 4) -> Run:
    payload = build_message(
        "x",
        header=Header(priority=priority),
        application_properties={"color": colour},
        properties=Properties(group_id=group or None),
    )
    run = single(payload)
    run.first_id = first_id
    run.traits = Traits(group_id=group)
    return run


def colour_of(run: Run) -> str:
    payload = bytes(run.payload(0))
    sections = scan_sections(payload, 0, len(payload))
    found: str = decode_application_properties(payload, sections.application_properties, sections.end)[0]["color"]
    return found


COLOURS = st.sampled_from(["red", "blue"])


class DispatchMachine(RuleBasedStateMachine):
    """Publishing, credit, settling, returning, joining and leaving in any order."""

    @initialize()
    def start(self) -> None:
        self.queue = Queue(QueueKind("orders", "orders"), 1)
        self.next_id = 1
        self.live: dict[int, tuple[str, str]] = {}
        self.takers: list[Taker] = []
        self.strays: set[int] = set()  # what was ever not for one consumer: somebody else than its group's may have it

    def dispatch(self) -> None:
        for _ in range(50):
            self.queue.dispatch(1000)
            if not self.queue.dispatcher.is_unfinished:
                break

    def put_back(self, segment: Segment) -> None:
        """Browsers miss what comes back to a place that they have passed."""
        for taker in self.takers:
            if taker.is_browser and self.queue.dispatcher._copied[taker][segment.rank >> ID_BITS] > segment.rank:
                taker.missed.add(segment.first_id)
        self.queue.put_back(segment)

    @rule(colour=COLOURS, group=st.sampled_from(["", "", "a", "b"]), priority=st.sampled_from([4, 4, 9]))
    def publish(self, colour: str, group: str, priority: int) -> None:
        run = message(self.next_id, colour, group, priority)
        if group:
            self.queue.dispatcher.grouped()
        self.live[self.next_id] = (colour, group)
        self.next_id += 1
        self.queue.add(Segment(run, 0, 1, 0))
        self.dispatch()

    @rule(colour=st.one_of(st.none(), COLOURS), priority=st.integers(0, 1), is_browser=st.booleans())
    def join(self, colour: str | None, priority: int, is_browser: bool) -> None:
        if len(self.takers) < 4:
            taker = Taker(colour, priority, is_browser=is_browser)
            self.takers.append(taker)
            self.queue.join(taker)

    @precondition(lambda self: self.takers)
    @rule(data=st.data(), credit=st.integers(1, 4))
    def give_credit(self, data: st.DataObject, credit: int) -> None:
        data.draw(st.sampled_from(self.takers)).credit += credit
        self.dispatch()

    @precondition(lambda self: any(taker.held for taker in self.takers))
    @rule(data=st.data(), is_done=st.booleans())
    def settle(self, data: st.DataObject, is_done: bool) -> None:
        taker = data.draw(st.sampled_from([each for each in self.takers if each.held]))
        segment = taker.held.pop(data.draw(st.integers(0, len(taker.held) - 1)))
        if is_done:
            self.queue.dispatcher.forget(segment)
            self.queue.settled(segment)
            del self.live[segment.first_id]
        else:
            self.put_back(segment)
        self.dispatch()

    @precondition(lambda self: any(taker.held for taker in self.takers))
    @rule(data=st.data())
    def cannot_use(self, data: st.DataObject) -> None:
        taker = data.draw(st.sampled_from([each for each in self.takers if each.held]))
        segment = taker.held.pop(0)
        taker.unusable.add(segment.first_id)
        self.strays.add(segment.first_id)
        self.queue.dispatcher.bar(segment, taker)
        self.put_back(segment)
        self.dispatch()

    @precondition(lambda self: self.takers)
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        taker = data.draw(st.sampled_from(self.takers))
        self.takers.remove(taker)
        self.queue.leave(taker)
        for segment in taker.held:
            self.put_back(segment)
        self.dispatch()

    @invariant()
    def every_message_is_in_one_place(self) -> None:
        held = [segment.first_id for taker in self.takers for segment in taker.held]
        here = [segment.first_id for segment in self.queue.backlog]
        assert sorted(held + here) == sorted(self.live)
        ranks = [segment.rank for segment in self.queue.backlog]
        assert ranks == sorted(ranks)
        assert self.queue.delivering_count == len(held)

    @invariant()
    def everybody_has_what_he_wants(self) -> None:
        for taker in self.takers:
            wrong = [segment for segment in taker.held if taker.colour and colour_of(segment.run) != taker.colour]
            assert not wrong
            assert not taker.unusable & {segment.first_id for segment in taker.held}

    @invariant()
    def nothing_waits_that_somebody_wants(self) -> None:
        for segment in self.queue.backlog:
            colour, group = self.live[segment.first_id]
            pinned = self.queue.dispatcher.groups.get(group) if group else None
            for taker in self.takers:
                may = taker.credit and not taker.is_browser and taker.colour in (None, colour)
                may = may and segment.first_id not in taker.unusable
                if pinned is not None and segment.first_id in pinned.unusable:
                    pinned = None
                assert not (may and (pinned is None or pinned is taker)), (segment.first_id, taker.colour)

    @invariant()
    def a_group_is_with_one_consumer(self) -> None:
        for group in ("a", "b"):
            holders = [
                taker for taker in self.takers
                if any(s.run.traits.group_id == group and s.first_id not in self.strays for s in taker.held)
            ]  # fmt: skip
            assert len(holders) <= 1

    @invariant()
    def browsers_see_each_message_once(self) -> None:
        for taker in self.takers:
            assert len(set(taker.copies)) == len(taker.copies)
            if taker.is_browser and taker.credit:
                wanted = [s.first_id for s in self.queue.backlog if taker.colour in (None, colour_of(s.run))]
                assert set(wanted) - taker.missed <= set(taker.copies)


TestDispatchMachine = DispatchMachine.TestCase
TestDispatchMachine.settings = steady


def test_a_higher_priority_reaches_whom_a_lower_one_was_shown_to() -> None:
    queue = Queue(QueueKind("orders", "orders"), 1)
    taker, browser = Taker("red", 0), Taker(None, 0, is_browser=True)
    for each in (taker, browser):
        each.credit = 10
        queue.join(each)
    for first_id, colour, priority in ((1, "blue", 4), (2, "red", 9), (3, "red", 5)):
        queue.add(Segment(message(first_id, colour, "", priority), 0, 1, 0))
        queue.dispatch(10)
    assert [segment.first_id for segment in taker.held] == [2, 3]
    assert browser.copies == [1, 2, 3]


def test_browsers_are_shown_nothing_that_has_expired() -> None:
    queue = Queue(QueueKind("orders", "orders"), 1)
    browser = Taker(None, 0, is_browser=True)
    browser.credit = 10
    for first_id, expires_ms in ((1, 500), (2, 0), (3, 501)):
        run = message(first_id, "red", "")
        run.expires_ms = expires_ms
        queue.add(Segment(run, 0, 1, 0))
    queue.join(browser)
    queue.dispatch(10, 500)
    assert browser.copies == [2, 3]


def grouped(groups: list[str], *takers: Taker) -> Queue:
    """A queue with a message of each of these groups, and its consumers."""
    queue = Queue(QueueKind("orders", "orders"), 1)
    for first_id, group in enumerate(groups, start=1):
        queue.dispatcher.grouped()
        queue.add(Segment(message(first_id, "red", group), 0, 1, 0))
    for each in takers:
        queue.join(each)
    return queue


def test_a_consumer_gets_past_any_number_of_messages_of_a_group_that_another_one_has() -> None:
    slow, idle = Taker(None, 0), Taker(None, 0)
    slow.credit, idle.credit = 1, 0
    queue = grouped(["a"] * (LOOKED_AT_MAX + 1_000) + ["b"], slow, idle)
    assert queue.dispatch(20_000) == 1
    idle.credit = 5
    work = [queue.dispatch(20_000) for _ in range(1_000 // LOOKED_AT_MAX + 2)]
    assert [segment.first_id for segment in idle.held] == [LOOKED_AT_MAX + 1_001]
    assert sum(work) <= LOOKED_AT_MAX + 1_000
    assert not queue.dispatcher.is_unfinished
    slow.credit = 1
    assert queue.dispatch(20_000) == 1, "what one has passed is not looked at again for the other"


def test_what_was_passed_is_handed_out_when_its_group_is_free() -> None:
    slow, idle = Taker(None, 0), Taker(None, 0)
    slow.credit = 1
    queue = grouped(["a"] * 4, slow, idle)
    queue.dispatch(100)
    idle.credit = 10
    queue.dispatch(100)
    assert idle.held == []
    queue.leave(slow)
    queue.put_back(slow.held.pop())
    queue.dispatch(100)
    assert [segment.first_id for segment in idle.held] == [1, 2, 3, 4]


def test_what_was_passed_is_handed_out_when_its_group_is_closed() -> None:
    slow, idle = Taker(None, 0), Taker(None, 0)
    slow.credit = 1
    queue = grouped(["a"] * 3, slow, idle)
    queue.dispatch(100)
    idle.credit = 10
    queue.dispatch(100)
    closing = message(4, "red", "a", priority=9)
    closing.traits = Traits(group_id="a", group_sequence=-1)
    queue.add(Segment(closing, 0, 1, 0))
    slow.credit = 1
    queue.dispatch(100)
    queue.dispatch(100)
    assert [segment.first_id for segment in slow.held] == [1, 4]
    assert [segment.first_id for segment in idle.held] == [2, 3]


def test_what_was_passed_just_before_its_group_is_closed_is_looked_at_again() -> None:
    red, idle = Taker("red", 0), Taker(None, 0)
    red.credit = 1
    queue = grouped(["a"], red, idle)
    queue.dispatch(100)
    closing = message(3, "red", "a")
    closing.traits = Traits(group_id="a", group_sequence=-1)
    for run in (message(2, "blue", "a"), closing):
        queue.add(Segment(run, 0, 1, 0))
    red.credit, idle.credit = 1, 10
    queue.dispatch(100)
    queue.dispatch(100)
    assert [segment.first_id for segment in red.held] == [1, 3]
    assert [segment.first_id for segment in idle.held] == [2]


def test_who_cannot_take_anything_costs_next_to_nothing_where_others_look_on() -> None:
    """Of a thousand who do not read nobody looks for their places in the queue at each piece that goes to another."""
    queue = Queue(QueueKind("orders", "orders"), 1)
    for taker in [Taker(None, 0, is_browser=True) for _ in range(1000)]:
        queue.join(taker)
    for first_id in range(1, 21):
        queue.add(Segment(message(first_id, "red", ""), 0, 1, 0))
    calls = 0
    find = Backlog.from_rank

    def counted(backlog: Backlog, rank: int) -> Iterator[Segment]:
        nonlocal calls
        calls += 1
        return find(backlog, rank)

    with patch.object(Backlog, "from_rank", counted):
        queue.dispatch(1000)
        assert calls == 0
        for taker in queue.consumers:
            assert isinstance(taker, Taker)
            taker.credit = 1000
        queue.dispatch(10)
    assert calls < 10
    assert queue.dispatcher.is_unfinished


def test_what_a_closed_group_leaves_is_not_passed_by_who_goes_on_looking() -> None:
    """The group is closed in the middle of a run: what was its other consumer's is for all who look further."""
    red, blue = Taker("red", 0), Taker("blue", 0)
    red.credit = 1
    queue = grouped(["a"], red, blue)
    queue.dispatch(100)
    closing = message(3, "red", "a")
    closing.traits = Traits(group_id="a", group_sequence=-1)
    for run in (message(2, "blue", "a"), closing, message(4, "red", ""), message(5, "green", "")):
        queue.add(Segment(run, 0, 1, 0))
    red.credit, blue.credit = 1, 10
    queue.dispatch(100)
    assert queue.dispatcher.is_unfinished, "nobody else says that there is more to look at"
    queue.dispatch(100)
    assert [segment.first_id for segment in red.held] == [1, 3]
    assert [segment.first_id for segment in blue.held] == [2]
    queue.dispatch(100)
    assert not queue.dispatcher.is_unfinished


def selecting(count: int, *selectors: str) -> tuple[Queue, list[Taker]]:
    """A queue with messages whose numbers are their properties, and a consumer for each selector."""
    queue = Queue(QueueKind("orders", "orders"), 1)
    takers = [Taker(None, 0) for _ in selectors]
    for taker, text in zip(takers, selectors, strict=True):
        taker.filter = compile_selector(text)
        queue.join(taker)
    payloads = [build_message("x", application_properties={"n": number}) for number in range(count)]
    first_id = 1
    for run in runs_of(payloads):
        run.first_id = first_id
        first_id += run.count
        queue.add(Segment(run, 0, run.count, 0))
    return queue, takers


def dispatched(queue: Queue) -> int:
    """Runs of dispatch until all was looked at; the looks."""
    looks = 0
    for _ in range(1_000):
        queue.dispatch(20_000)
        looks += queue.dispatcher.looks
        if not queue.dispatcher.is_unfinished:
            return looks
    raise AssertionError("it does not end")


def test_a_selector_looks_at_each_message_of_a_backlog_once() -> None:
    count = LOOKED_AT_MAX * 4
    queue, (taker,) = selecting(count, "n = 100 OR n = 500")
    taker.credit = 1
    assert dispatched(queue) <= 110
    taker.credit = 100
    assert dispatched(queue) <= count - 100 + 10
    assert [segment.first_id for segment in taker.held] == [101, 501]
    queue.add(Segment(message(count + 1, "red", ""), 0, 1, 0))
    assert dispatched(queue) <= 1


def test_who_has_looked_does_not_look_again_for_who_comes_later() -> None:
    count = LOOKED_AT_MAX * 2
    queue, (early, late) = selecting(count, "n = -1", "n = 7")
    early.credit = 1
    dispatched(queue)
    late.credit = 1
    assert dispatched(queue) <= 10
    assert [segment.first_id for segment in late.held] == [8]
    late.credit = 1
    assert dispatched(queue) <= count


def test_what_returns_is_shown_to_whom_it_is_for() -> None:
    queue, (taker, other) = selecting(LOOKED_AT_MAX * 2, "n = 5", "n > 390")
    taker.credit = other.credit = 1
    dispatched(queue)
    assert [segment.first_id for segment in taker.held + other.held] == [6, 392]
    queue.put_back(taker.held.pop())
    taker.credit = 1
    dispatched(queue)
    assert [segment.first_id for segment in taker.held] == [6]
    other.credit = 100
    dispatched(queue)
    assert [segment.first_id for segment in other.held] == list(range(392, 401))


def test_each_selector_is_a_look() -> None:
    """A run looks no further where many want to see each message, each by another selector; one of many asks once."""
    texts = [f"n = {-number}" for number in range(1, 101)]
    queue, takers = selecting(100, *texts)
    for taker in takers:
        taker.credit = 1
    queue.dispatch(20_000)
    assert LOOKED_AT_MAX <= queue.dispatcher.looks < LOOKED_AT_MAX + 100
    assert dispatched(queue) >= 9_000
    queue, takers = selecting(100, *["n = -1"] * 100)
    for taker in takers:
        taker.credit = 1
    assert dispatched(queue) <= 100


def test_a_look_at_what_is_long_before_its_body_is_many() -> None:
    """A run ends sooner over such messages: else the two hundred of it take as long as those are."""
    for is_browser in (False, True):
        queue, taker = Queue(QueueKind("orders", "orders"), 1), Taker(None, 0, is_browser=is_browser)
        taker.filter = compile_selector("color = 'red'")
        queue.join(taker)
        for number in range(1, 31):
            queue.add(Segment(message(number, "x" * 10_240, ""), 0, 1, 0))
        taker.credit = 1
        queue.dispatch(20_000)
        assert LOOKED_AT_MAX <= queue.dispatcher.looks < LOOKED_AT_MAX + 20
        assert queue.dispatcher.is_unfinished


def test_who_has_seen_all_is_not_asked_for_capacity() -> None:
    """Where thousands of consumers pick by selectors, each step of any of them would ask all the others."""
    queue = Queue(QueueKind("q", "q"), 1)
    asked: list[str] = []

    class Asked(Taker):
        def capacity(self) -> int:
            asked.append(self.colour or "")
            return super().capacity()

    takers = [Asked(colour, 4) for colour in ("red", "green", "blue")]
    for taker in takers:
        taker.credit = 10
        queue.join(taker)
    for first_id in (1, 2):
        queue.add(Segment(message(first_id, "white", ""), 0, 1, 0))
        queue.dispatch(100)
        assert set(asked) == {"red", "green", "blue"}
        asked.clear()
        queue.dispatch(100)
        assert asked == []
    queue.add(Segment(message(3, "green", ""), 0, 1, 0))
    queue.dispatch(100)
    assert [len(taker.held) for taker in takers] == [0, 1, 0]
