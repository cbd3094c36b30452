"""A router by itself: keys, quorum, cache, targets that come and go."""

from __future__ import annotations

from dataclasses import replace

import pytest
from mqbroker.base.notice import Level
from mqbroker.cluster.routing.policies import RoutingTarget
from mqbroker.cluster.routing.router import CACHED_MAX, STAY, Pool, Router
from mqbroker.config.declarations.routing import ConnectionRouterTable
from mqbroker.config.declarations.table_slices import slice_of

MS = 1_000_000
A, B = TWO = (RoutingTarget("a:1", "a", 1), RoutingTarget("b:2", "b", 2))
DEFAULTS = slice_of(ConnectionRouterTable.model_validate({"name": "r"}))


class Spy:
    """A World that writes down what it is asked for."""

    def __init__(self) -> None:
        self.probes: list[str] = []
        self.told: list[tuple[Level, str, dict[str, str | int]]] = []
        self.kept: dict[str, str] = {}
        self.keeps = 0

    def probe(self, router: str, target: RoutingTarget) -> None:
        self.probes.append(target.id)

    def tell(self, level: Level, event: str, **fields: str | int) -> None:
        self.told.append((level, event, fields))

    def keep(self, router: str, key: str, target_id: str) -> None:
        self.kept[key] = target_id
        self.keeps += 1

    def drop(self, router: str, key: str) -> None:
        del self.kept[key]


def router(pool: Pool | None = None, **options: object) -> tuple[Router, Spy]:
    spy = Spy()
    made = Router(replace(DEFAULTS, **options), pool or Pool(TWO), spy, MS)  # type: ignore[arg-type]
    return made, spy


def ready(pool: Pool | None = None, **options: object) -> Router:
    """One whose targets all answer."""
    made, spy = router(pool, **options)
    made.on_time(MS)
    for target in TWO[: len(spy.probes)]:
        made.probed(target, "")
    return made


def host(made: Router, key: str = "k", now_ms: int = 1) -> str:
    place = made.route(key, now_ms * MS).place
    return place.host if place is not None else ""


def test_targets_are_probed_each_period_and_changes_are_told_once() -> None:
    made, spy = router(check_period=500)
    made.on_time(MS)
    assert (spy.probes, made.due_ns) == (["a:1", "b:2"], 501 * MS)
    made.probed(A, "")
    made.on_time(501 * MS)
    assert spy.probes == ["a:1", "b:2", "a:1"], "the probe of b is under way still"
    made.probed(A, "refused")
    made.probed(B, "refused")
    made.on_time(1001 * MS)
    made.probed(A, "refused")
    made.probed(B, "")
    place = {"router": "r", "target": "a:1"}
    assert spy.told == [
        (Level.INFO, "router-target-found", place),
        (Level.WARNING, "router-target-lost", {**place, "why": "refused"}),
        (Level.WARNING, "router-target-lost", {"router": "r", "target": "b:2", "why": "refused"}),
        (Level.INFO, "router-target-found", {"router": "r", "target": "b:2"}),
    ]
    assert [each.id for each in made.targets] == ["b:2"]


def test_fewer_than_the_quorum_route_nobody() -> None:
    made, _ = router(quorum_size=2)
    made.on_time(MS)
    made.probed(A, "")
    assert made.must_wait("k", MS)
    assert made.route("k", MS).why == "router 'r': 1 of 2 brokers are there; try again later"
    made.probed(B, "")
    assert not made.must_wait("k", MS)
    assert host(made) == "a"


def test_this_broker_counts_and_is_never_a_redirect() -> None:
    local = RoutingTarget("b:2", "", 0, is_local=True)
    made, _ = router(Pool(TWO, None, local), policy="FIRST_ELEMENT")
    assert made.route("k", MS) == STAY
    made.on_time(MS)
    made.probed(A, "")
    made.probed(B, "")
    assert [each.id for each in made.targets] == ["a:1", "b:2"], "by the name by which others know it"
    assert host(made) == "a"


def test_those_who_are_heard_are_targets() -> None:
    heard = list(TWO)
    made, spy = router(Pool(heard=lambda: list(heard)), policy="FIRST_ELEMENT")
    assert made.due_ns == 0
    assert host(made) == "a"
    del heard[0]
    assert host(made) == "b"
    heard.clear()
    assert made.route("k", MS).why == "router 'r': 0 of 1 brokers are there; try again later"
    assert spy.probes == []


@pytest.mark.parametrize(
    ("pattern", "values", "key"),
    [
        ("", ["abc-1"], "abc-1"),
        ("^[^-]+", ["abc-1"], "abc"),
        ("x", ["abc-1"], ""),
        ("^mq-", ["client", "mq-a", "mq-b"], "mq-"),
        ("", [], ""),
        ("", ["a" * 300], "a" * 256),
    ],
)
def test_keys(pattern: str, values: list[str], key: str) -> None:
    made, _ = router(key_filter=pattern)
    assert made.key_of(values) == key


def test_whose_key_is_of_this_broker_stays_and_without_others_everybody_else_is_refused() -> None:
    made, _ = router(Pool(), local_target_filter="a|b")
    assert not made.must_wait("c", MS)
    assert (made.route("a", MS), made.route("b", MS)) == (STAY, STAY)
    assert made.route("ab", MS).why == "router 'r': the key 'ab' is not for this broker, and no other is known"
    assert ready(local_target_filter="a").route("a", MS) == STAY


@pytest.mark.parametrize(("timeout_ms", "hosts"), [(-1, "abab"), (0, "aaaa"), (1000, "aaab")])
def test_a_key_keeps_its_broker_as_long_as_it_is_cached(timeout_ms: int, hosts: str) -> None:
    made = ready(policy="ROUND_ROBIN", cache_timeout=timeout_ms)
    assert "".join(host(made, now_ms=at) for at in (1, 900, 1800, 2900)) == hosts


def test_a_cached_broker_that_is_gone_is_replaced() -> None:
    made = ready(policy="FIRST_ELEMENT", cache_timeout=0)
    assert host(made) == "a"
    made.on_time(501 * MS)
    made.probed(A, "gone")
    assert host(made) == "b"
    assert host(made) == "b"


def test_the_cache_is_bounded() -> None:
    made = ready(policy="ROUND_ROBIN", cache_timeout=0)
    assert host(made, "first") == "a"
    for number in range(CACHED_MAX):
        made.route(f"key-{number}", MS)
    assert host(made, "second") != host(made, "first"), "it was the oldest, and takes its turn anew"


def test_who_comes_back_begins_to_count_anew() -> None:
    made = ready(policy="LEAST_CONNECTIONS")
    assert [host(made) for _ in range(4)] == ["a", "b", "a", "b"]
    made.on_time(501 * MS)
    made.probed(A, "gone")
    assert host(made) == "b"
    made.on_time(1001 * MS)
    made.probed(A, "")
    assert [host(made) for _ in range(4)] == ["a", "a", "a", "a"]


def test_a_probe_that_is_over_after_its_member_left_says_nothing() -> None:
    members = list(TWO)
    made, spy = router(Pool(members=lambda: list(members)))
    made.look()
    made.look()
    made.on_time(MS)
    assert spy.probes == ["a:1", "b:2"], "each is under way once"
    del members[0]
    made.look()
    made.probed(A, "")
    made.probed(B, "")
    assert [(event, fields["target"]) for _, event, fields in spy.told] == [("router-target-found", "b:2")]
    assert made.targets == [B]
    members[:] = [A]
    made.look()
    assert (made.targets, spy.probes[2:]) == ([], ["a:1"])
    why = "it has left the cluster, or is reached elsewhere"
    assert spy.told[-1][1:] == ("router-target-lost", {"router": "r", "target": "b:2", "why": why})


# -- a cache that is persisted -----------------------------------------------------------------------------------------


def kept(timeout_ms: int = 0, **options: object) -> tuple[Router, Spy]:
    """One that keeps keys, whose targets answer."""
    made, spy = router(cache_persisted=True, cache_timeout=timeout_ms, **options)
    made.on_time(MS)
    for target in TWO:
        made.probed(target, "")
    return made, spy


def test_only_what_is_new_is_kept_where_nobody_asks_when_a_key_was_used() -> None:
    made, spy = kept()
    assert [host(made, now_ms=at) for at in (1, 2, 3)] == ["a"] * 3
    assert (spy.kept, spy.keeps) == ({"k": "a:1"}, 1)
    made.on_time(MS)
    made.probed(A, "gone")
    assert (host(made), spy.kept, spy.keeps) == ("b", {"k": "b:2"}, 2)


def test_each_use_is_kept_where_there_is_a_timeout_and_what_is_over_is_dropped() -> None:
    made, spy = kept(1000)
    assert [host(made, now_ms=at) for at in (1, 1, 500)] == ["a"] * 3
    assert spy.keeps == 2, "two connections of one step are one"
    host(made, "other", 1499)
    assert list(spy.kept) == ["k", "other"]
    host(made, "third", 1500)
    assert list(spy.kept) == ["other", "third"]


def test_a_cache_that_is_not_persisted_keeps_nothing_and_what_is_too_much_is_dropped() -> None:
    made, spy = kept()
    plain, unused = router(cache_timeout=0)
    plain.on_time(MS)
    plain.probed(A, "")
    host(plain)
    assert unused.kept == {}
    for number in range(CACHED_MAX + 3):
        made.route(f"key-{number}", MS)
    assert (len(spy.kept), next(iter(spy.kept))) == (CACHED_MAX, "key-3")


def test_what_was_kept_waits_for_its_broker_after_a_start_and_not_longer_than_others_for_the_quorum() -> None:
    made, spy = router(cache_persisted=True, cache_timeout=0, quorum_timeout=3000)
    made.restore("k", "b:2", 0, MS)
    made.on_time(MS)
    made.probed(A, "")
    assert made.must_wait("k", 2999 * MS)
    assert not made.must_wait("other", 2999 * MS)
    made.probed(B, "")
    assert not made.must_wait("k", 2999 * MS)
    assert (host(made), spy.keeps) == ("b", 0)
    made.on_time(MS)
    made.probed(B, "gone")
    assert made.must_wait("k", 3000 * MS)
    assert not made.must_wait("k", 3001 * MS)
    assert (host(made, now_ms=3001), spy.kept) == ("a", {"k": "a:1"})


def test_what_stays_here_waits_for_nobody() -> None:
    made, _ = router(cache_persisted=True, cache_timeout=0, local_target_filter="k")
    made.restore("k", "b:2", 0, MS)
    assert not made.must_wait("k", MS)
    assert made.must_wait("other", MS)


@pytest.mark.parametrize(("now_ms", "place"), [(399, "b"), (400, "a")])
def test_what_is_over_at_the_start_is_dropped_and_the_rest_has_its_remaining_time(now_ms: int, place: str) -> None:
    made, spy = router(cache_persisted=True, cache_timeout=1000)
    spy.kept = {"old": "b:2", "k": "b:2"}
    made.restore("old", "b:2", -1000 * MS, 0)
    made.restore("k", "b:2", -600 * MS, 0)
    assert spy.kept == {"k": "b:2"}
    made.on_time(MS)
    made.probed(A, "")
    assert not made.must_wait("old", MS)
    assert made.must_wait("k", now_ms * MS) is (place == "b")
    made.probed(B, "")
    assert host(made, "k", now_ms) == place
