"""Who belongs to the cluster: every combination of what is known and what is said, and who speaks for this node."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations, product

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mqbroker.base.notice import Level
from mqbroker.cluster import topology as t
from mqbroker.cluster.fields import Connector
from mqbroker.cluster.notices import VERSION_MAX, Member, MemberGone, Version, decode, encode
from mqbroker.cluster.topology import Topology, TopologyChange, TopologyChangeKind, logged

from tests.unit.cluster.neighbours import A, B, C

HERE = (Connector("own", "amqp", "192.0.2.2", 5673),)
THERE = (Connector("own", "amqp", "192.0.2.3", 5673),)
OWN = Member(A, "a" * 32, "mq1", HERE, Version(5, 3))
OTHER = Member(B, "b" * 32, "mq2", HERE, Version(5, 3))


def topology(*heard: Member | MemberGone) -> Topology:
    made = Topology(OWN)
    for notice in heard:
        made.hear(notice)
    return made


def kind_of(change: TopologyChange | None) -> TopologyChangeKind | None:
    return None if change is None else change.kind


# -- others ------------------------------------------------------------------------------------------------------------


def test_who_is_heard_of_for_the_first_time_is_added_and_spread() -> None:
    made = topology()
    assert made.hear(OTHER) == TopologyChange(TopologyChangeKind.ADDED, OTHER, OTHER)
    assert (made.members, made.others, made.get(B), made.get(C)) == ([OWN, OTHER], [OTHER], OTHER, None)
    assert made.hear(OTHER) is None


# (version, is another process, connectors) of what is said; then the kind, and the connectors from then on.
NEWER, SAME, OLDER = Version(5, 4), Version(5, 3), Version(4, 9)
SAID = [
    (NEWER, False, HERE, TopologyChangeKind.REFRESHED, HERE),
    (NEWER, False, THERE, TopologyChangeKind.CHANGED, THERE),
    (NEWER, False, (), TopologyChangeKind.REFRESHED, HERE),
    (NEWER, True, HERE, TopologyChangeKind.RESTARTED, HERE),
    (NEWER, True, THERE, TopologyChangeKind.RESTARTED, THERE),
    (NEWER, True, (), TopologyChangeKind.RESTARTED, ()),
    *[(*said, None, HERE) for said in product((SAME, OLDER), (False, True), (HERE, THERE, ()))],
]


@pytest.mark.parametrize(("version", "is_other", "connectors", "kind", "after"), SAID)
def test_what_is_newer_wins(
    version: Version,
    is_other: bool,
    connectors: tuple[Connector, ...],
    kind: TopologyChangeKind | None,
    after: tuple[Connector, ...],
) -> None:
    made = topology(OTHER)
    boot_id = "c" * 32 if is_other else OTHER.boot_id
    change = made.hear(replace(OTHER, version=version, boot_id=boot_id, connectors=connectors))
    assert kind_of(change) is kind
    (now,) = made.others
    assert now.connectors == after
    assert change is None or (change.member, change.spread) == (now, now)
    assert (now.version, now.boot_id) == ((version, boot_id) if kind else (OTHER.version, OTHER.boot_id))


@pytest.mark.parametrize(("version", "is_filled"), [(NEWER, True), (SAME, True), (OLDER, True)])
def test_how_to_reach_a_node_is_filled_in_whatever_the_version(version: Version, is_filled: bool) -> None:
    made = topology(replace(OTHER, connectors=()))
    change = made.hear(replace(OTHER, version=version))
    assert (kind_of(change), made.others[0].connectors == HERE) == (TopologyChangeKind.CHANGED, is_filled)
    assert made.others[0].version == max(version, OTHER.version)


@pytest.mark.parametrize("version", [NEWER, SAME, OLDER])
def test_where_clients_go_is_filled_in_and_kept_where_a_node_between_does_not_pass_it_on(version: Version) -> None:
    made = topology(OTHER)
    change = made.hear(replace(OTHER, version=version, clients=THERE))
    assert (kind_of(change), made.others[0].clients) == (TopologyChangeKind.CHANGED, THERE)
    made.hear(replace(OTHER, version=Version(5, 9)))
    assert made.others[0].clients == THERE
    made.hear(replace(OTHER, version=Version(6, 0), boot_id="c" * 32))
    assert made.others[0].clients == ()


@pytest.mark.parametrize("is_first", [True, False])
def test_whom_a_node_leaves_everything_to_is_kept_where_a_node_between_does_not_pass_it_on(is_first: bool) -> None:
    leaving = replace(OTHER, heir=C)
    made = topology(*((leaving, OTHER) if is_first else (OTHER, leaving)))
    assert made.get(B) == leaving
    stays = replace(OTHER, version=Version(5, 4))
    made.hear(stays)
    assert made.get(B) == stays, "it has said so itself"


@pytest.mark.parametrize("version", [NEWER, SAME, OLDER])
def test_formats_that_a_node_reads_are_filled_in_and_are_those_of_its_process(version: Version) -> None:
    made = topology(OTHER)
    change = made.hear(replace(OTHER, version=version, journal_formats=(1, 2)))
    assert (kind_of(change), made.others[0].journal_formats) == (TopologyChangeKind.CHANGED, (1, 2))
    made.hear(replace(OTHER, version=Version(5, 9)))
    assert made.others[0].journal_formats == (1, 2), "a node between does not pass them on"
    made.hear(replace(OTHER, version=Version(6, 0), boot_id="c" * 32))
    assert made.others[0].journal_formats == (), "it has gone back to a release that says none"


def test_what_an_earlier_process_was_reached_by_fills_in_nothing() -> None:
    made = topology(replace(OTHER, connectors=()))
    assert made.hear(replace(OTHER, version=OLDER, boot_id="c" * 32)) is None


def test_a_new_name_is_a_change() -> None:
    assert kind_of(topology(OTHER).hear(replace(OTHER, version=NEWER, name="mq9"))) is TopologyChangeKind.CHANGED


# -- who has left ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("version", "is_gone"), [(NEWER, True), (SAME, True), (OLDER, False)])
def test_who_has_left_is_gone_unless_newer_news_are_known(version: Version, is_gone: bool) -> None:
    made, notice = topology(OTHER), MemberGone(B, version)
    change = made.hear(notice)
    assert change == (TopologyChange(TopologyChangeKind.GONE, OTHER, notice) if is_gone else None)
    assert made.others == ([] if is_gone else [OTHER])


@pytest.mark.parametrize("is_known", [True, False])
def test_older_news_do_not_bring_back_who_has_left(is_known: bool) -> None:
    made = topology(*[OTHER] * is_known, MemberGone(B, NEWER))
    for version in (OLDER, SAME, NEWER):
        notice = replace(OTHER, version=version)
        assert made.hear(notice) == TopologyChange(TopologyChangeKind.PAST, notice, MemberGone(B, NEWER)), (
            "who tells it is told of the end"
        )
        assert made.others == []
    assert kind_of(made.hear(replace(OTHER, version=Version(6, 0)))) is TopologyChangeKind.ADDED


def test_who_listens_later_hears_first_of_the_end_of_those_who_do_not_know_it() -> None:
    made = topology(OTHER, MemberGone(B, NEWER))
    assert made.told_first == [OWN]
    made.hear(replace(OTHER, version=SAME))
    assert made.told_first == [OWN, MemberGone(B, NEWER)]
    made.hear(MemberGone(B, Version(6, 1)))
    assert made.told_first == [OWN, MemberGone(B, Version(6, 1))]
    back = replace(OTHER, version=Version(6, 2))
    made.hear(back)
    assert made.told_first == [OWN, back]


def test_of_two_ends_the_later_one_counts() -> None:
    made = topology(MemberGone(B, NEWER), MemberGone(B, OLDER))
    assert kind_of(made.hear(replace(OTHER, version=SAME))) is TopologyChangeKind.PAST


def test_who_is_given_up_comes_back_with_newer_news_only() -> None:
    made = topology(OTHER)
    assert made.remove(B) == TopologyChange(TopologyChangeKind.GONE, OTHER, MemberGone(B, SAME))
    assert made.remove(B) is None
    assert kind_of(made.hear(OTHER)) is TopologyChangeKind.PAST
    assert kind_of(made.hear(replace(OTHER, version=NEWER))) is TopologyChangeKind.ADDED


def test_those_who_left_are_remembered_within_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(t, "TOMBSTONES_MAX", 2)
    ids = [f"{number:08x}-0000-4000-8000-000000000000" for number in range(3)]
    made = topology(*[MemberGone(node_id, SAME) for node_id in ids])
    assert [kind_of(made.hear(replace(OTHER, node_id=node_id))) for node_id in ids] == [
        TopologyChangeKind.ADDED, TopologyChangeKind.PAST, TopologyChangeKind.PAST
    ]  # fmt: skip
    made.hear(MemberGone(C, SAME))
    assert made.told_first[2:] == [MemberGone(ids[2], SAME)]


def test_members_are_bounded_and_that_is_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(t, "MEMBERS_MAX", 1)
    made, more = topology(OTHER), replace(OTHER, node_id=C)
    assert made.hear(more) == TopologyChange(TopologyChangeKind.FULL, more, None)
    assert made.hear(more) is None
    made.remove(B)
    assert kind_of(made.hear(more)) is TopologyChangeKind.ADDED


# -- this node ---------------------------------------------------------------------------------------------------------


def test_this_node_says_again_what_it_says_of_itself() -> None:
    made = topology()
    assert made.again() == replace(OWN, version=Version(5, 4)) == made.own
    assert made.leave() == MemberGone(A, Version(5, 5))
    assert topology(OTHER).hear(topology(OTHER).again()) is None


def test_what_comes_back_of_ourselves_and_of_our_earlier_processes_is_no_news() -> None:
    made = topology()
    for notice in (OWN, replace(OWN, boot_id="e" * 32, version=Version(4, 99)), MemberGone(A, Version(5, 2))):
        assert made.hear(notice) is None
    assert (made.own, made.claims) == (OWN, {})


@pytest.mark.parametrize(("version", "then"), [(Version(5, 3), Version(5, 4)), (Version(5, 9), Version(5, 10))])
def test_who_says_that_we_have_left_is_told_otherwise(version: Version, then: Version) -> None:
    made = topology()
    change = made.hear(MemberGone(A, version))
    assert change is not None
    assert (change.kind, change.spread) == (TopologyChangeKind.OURS, replace(OWN, version=then))
    assert made.own == change.spread


PAST = replace(OWN, boot_id="e" * 32)


def test_what_comes_back_of_an_earlier_process_that_started_as_often_is_no_news_where_it_is_older() -> None:
    made = topology()
    assert made.hear(replace(PAST, version=Version(5, 0))) is None
    assert (made.own, made.claims) == (OWN, {})


@pytest.mark.parametrize(
    ("past", "kind"),
    [
        (PAST, TopologyChangeKind.OURS),
        (replace(PAST, version=Version(5, 9)), TopologyChangeKind.OURS),
        (replace(PAST, version=Version(9, 4)), TopologyChangeKind.BEHIND),
        (MemberGone(A, Version(9, 4)), TopologyChangeKind.BEHIND),
    ],
)
def test_what_was_said_of_us_and_is_newer_is_jumped_over(past: Member | MemberGone, kind: TopologyChangeKind) -> None:
    """Our journal was wiped, or is an old copy: it has counted fewer starts than there were, and that is told."""
    made = topology()
    change = made.hear(past)
    assert change is not None
    assert (change.kind, change.spread) == (
        kind,
        replace(OWN, version=Version(past.version.epoch + 1, 0)),
    )
    assert made.own == change.spread
    assert made.hear(past) is None
    notice = logged(change)
    assert (made.claims, None if notice is None else notice.event) == (
        {},
        "cluster-journal-is-behind" if kind is TopologyChangeKind.BEHIND else None,
    )


def test_several_earlier_processes_are_jumped_over() -> None:
    made = topology(*[replace(OWN, boot_id=f"{number:032x}", version=Version(number, 3)) for number in range(5, 500)])
    assert (made.own.version, made.claims) == (Version(500, 0), {})


def test_of_two_processes_that_live_one_tells_of_the_other_once_and_they_come_to_an_end() -> None:
    made, other = topology(), Topology(PAST)
    kinds: list[TopologyChangeKind] = []
    for _ in range(50):
        heard = made.hear(other.own), other.hear(made.own)
        kinds += [change.kind for change in heard if change is not None]
    assert kinds.count(TopologyChangeKind.SPLIT_BRAIN) == 1
    jumps = kinds.count(TopologyChangeKind.OURS) + kinds.count(TopologyChangeKind.BEHIND)
    assert jumps == 2 * t.JUMPS_MAX
    assert [*made.claims, *other.claims] in ([PAST.boot_id], [OWN.boot_id])


def test_a_version_that_nothing_is_above_is_refused_and_told_once() -> None:
    highest = replace(PAST, version=Version(VERSION_MAX, 0))
    made = topology()
    assert kind_of(made.hear(highest)) is TopologyChangeKind.SPLIT_BRAIN
    assert made.hear(highest) is None
    assert (made.own, len(made.claims)) == (OWN, 1)


@pytest.mark.parametrize("epoch", [4, 5, 6, VERSION_MAX - 1, VERSION_MAX])
@pytest.mark.parametrize("counter", [0, 4, VERSION_MAX - 1, VERSION_MAX])
@pytest.mark.parametrize("is_end", [False, True])
def test_what_we_say_after_any_news_of_us_is_something_that_neighbours_take(
    epoch: int, counter: int, *, is_end: bool
) -> None:
    version = Version(epoch, counter)
    made = topology(MemberGone(A, version) if is_end else replace(PAST, version=version))
    assert decode(encode(made.own)) == made.own
    if (version.epoch, version.counter) >= (5, 3) and version.epoch < VERSION_MAX:
        assert made.own.version > version


# -- terms -------------------------------------------------------------------------------------------------------------


def test_the_term_goes_before_starts_and_counts() -> None:
    versions = [Version(epoch, counter, term) for term in (0, 1, 7) for epoch in (0, 1, 9) for counter in (-1, 0, 5)]
    for (at, one), (other_at, other) in product(enumerate(versions), repeat=2):
        assert ((one < other), (one <= other), (one > other), (one >= other), (one == other)) == (
            at < other_at, at <= other_at, at > other_at, at >= other_at, at == other_at
        )  # fmt: skip


def test_news_of_a_higher_term_are_newer_however_often_others_were_started() -> None:
    made = topology(replace(OTHER, version=Version(900, 7)))
    promoted = replace(OTHER, boot_id="c" * 32, version=Version(1, 0, 1))
    assert kind_of(made.hear(promoted)) is TopologyChangeKind.RESTARTED
    assert made.hear(replace(OTHER, version=Version(901, 0))) is None, "who was deposed is not heard"
    assert made.others == [promoted]


def test_the_end_of_who_was_deposed_does_not_end_who_was_promoted() -> None:
    promoted = replace(OTHER, boot_id="c" * 32, version=Version(1, 0, 1))
    made = topology(promoted)
    assert made.hear(MemberGone(B, Version(900, 0))) is None
    assert made.others == [promoted]


@pytest.mark.parametrize("said", [replace(PAST, version=Version(0, 0, 3)), MemberGone(A, Version(0, 0, 3))])
def test_nobody_jumps_over_a_higher_term(said: Member | MemberGone) -> None:
    """It was given to somebody else, who has this id now."""
    made = topology()
    assert kind_of(made.hear(said)) is TopologyChangeKind.SPLIT_BRAIN
    assert made.own == OWN


def test_jumps_and_counts_stay_in_their_term() -> None:
    own = replace(OWN, version=Version(5, 3, 2))
    made = Topology(own)
    assert made.hear(replace(PAST, version=Version(900, 0, 1))) is None
    assert kind_of(made.hear(replace(PAST, version=Version(9, 4, 2)))) is TopologyChangeKind.BEHIND
    assert made.own.version == Version(10, 0, 2)
    assert made.leave() == MemberGone(A, Version(10, 1, 2))


def test_claims_and_what_was_jumped_over_are_bounded() -> None:
    high = [replace(OWN, boot_id=f"{number:032x}", version=Version(VERSION_MAX, 0)) for number in range(20)]
    assert len(topology(*high).claims) == t.CLAIMS_MAX
    made = topology(*[replace(OWN, boot_id=f"{number:032x}", version=Version(number, 0)) for number in range(6, 300)])
    assert len(made._jumps) == t.JUMPED_MAX


def test_what_the_log_says() -> None:
    notice = logged(TopologyChange(TopologyChangeKind.ADDED, OTHER, OTHER))
    assert notice is not None
    assert (notice.level, notice.event) == (Level.INFO, "cluster-member-added")
    assert notice.fields == {
        "node_id": B, "node": "mq2", "boot_id": "b" * 32, "connector": "amqp://192.0.2.2:5673"
    }  # fmt: skip
    claim = logged(TopologyChange(TopologyChangeKind.SPLIT_BRAIN, replace(OWN, connectors=()), None))
    assert claim is not None
    assert (claim.level, "identity new --even-if-original" in str(claim.fields["remedy"])) == (Level.ERROR, True)
    assert logged(TopologyChange(TopologyChangeKind.REFRESHED, OTHER, OTHER)) is None


# -- all together ------------------------------------------------------------------------------------------------------


@given(st.data())
def test_whatever_the_order_all_nodes_come_to_know_the_same(data: st.DataObject) -> None:
    versions = st.builds(Version, st.integers(1, 2), st.integers(0, 2))
    news = [
        replace(OTHER, version=version, boot_id=f"{version.epoch:032x}", name=f"n{version.counter}")
        if data.draw(st.booleans())
        else MemberGone(B, version)
        for version in sorted(data.draw(st.sets(versions, max_size=4)), key=lambda one: (one.epoch, one.counter))
    ]
    outcomes = {tuple(topology(*order).others) for order in permutations(news)}
    assert len(outcomes) == 1
    last = news[-1] if news else None
    assert outcomes == {(last,) if isinstance(last, Member) else ()}
