"""A bystander beside bad input: which cases there are, who sends them from where, when an attack is none, and what
comes of both loads."""

import asyncio
import json
import tomllib
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from bench import attacker, peers, rows
from bench.attacker import END, FAILING_SOURCE, HOST, SOURCE, Attack, Case
from bench.measure import beside_figures
from bench.peers.cluster import Cluster
from tests.support import bad_input
from tests.support.patience import PATIENCE_S

Reply = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
CLOSED = Case("closed", b"", b"", b"bad", END)
TOLD = Case("told", b"hello", b"go on", b"bad", (b"amqp:not-allowed", b"amqp:decode-error"))
(ROW,) = rows.BESIDE


def _lists() -> list[dict[str, object]]:
    names = ("GREETINGS", "BEFORE", "BEFORE_OPEN", "AFTER", "SMALLER", "SELECTORS")
    return [getattr(bad_input, name) for name in names]


def test_each_case_of_the_list_is_sent_and_failed_logins_too() -> None:
    found = attacker.cases("bench", "secret")
    assert len({case.name for case in found}) == len(found) == sum(map(len, _lists())) + 3
    assert {case.source for case in found} == {SOURCE, FAILING_SOURCE}


def test_failed_logins_come_from_an_address_whose_delays_nobody_else_has() -> None:
    failing = [case for case in attacker.cases("bench", "secret") if case.source == FAILING_SOURCE]
    assert all(case.name.startswith("login: ") and b"secret" not in case.data for case in failing)
    assert len({HOST, SOURCE, FAILING_SOURCE}) == 3


def test_what_is_wrong_comes_after_what_is_right() -> None:
    for case in attacker.cases("bench", "secret"):
        assert bool(case.standing) == bool(case.awaited)
        assert b"secret" not in case.data
        assert case.answer or not case.name.startswith(("before open", "open"))


async def _attacked(reply: Reply, chosen: list[Case], seconds: float) -> Attack:
    server = await asyncio.start_server(reply, HOST, 0)
    async with server:
        attack = Attack(server.sockets[0].getsockname()[1], 500, chosen)
        asyncio.get_running_loop().call_later(seconds, attack.stopped.set)
        await attack.run()
    return attack


def _attack(reply: Reply, chosen: list[Case], seconds: float = 0.2) -> Attack:
    return asyncio.run(_attacked(reply, chosen, seconds))


async def _refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    if await reader.read(3) != b"bad":
        writer.write(b"go on")
        await reader.read(100)
        writer.write(b"..amqp:decode-error..")
    writer.close()


async def _close(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.close()


async def _answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read(100)
    writer.write(b"go on")
    await reader.read(100)
    writer.write(b"fine")
    writer.close()


async def _say_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read()
    writer.close()


async def _attacked_often(times: int) -> Attack:
    """Stopped after so many connections, however long they take here."""
    connections = 0

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        if connections == times:
            attack.stopped.set()
        await _refuse(reader, writer)

    async with await asyncio.start_server(refuse, HOST, 0) as server:
        attack = Attack(server.sockets[0].getsockname()[1], 500, [CLOSED, TOLD])
        async with asyncio.timeout(PATIENCE_S):
            await attack.run()
    return attack


def test_an_attack_goes_on_until_it_is_stopped(capsys: pytest.CaptureFixture[str]) -> None:
    attack = asyncio.run(_attacked_often(20))
    ready, result = map(json.loads, capsys.readouterr().out.splitlines())
    assert ready == {"ready": True}
    assert result["mode"] == "attack"
    assert result["failure"] == attack.failure == ""
    assert result["refused"] == attack.refused > 10
    assert 0 < result["per_second"] <= 1000


@pytest.mark.parametrize(
    ("reply", "why"),
    [(_close, "told: closed before its turn"), (_answer, "told: the answer was"), (_say_nothing, "told: no answer")],
)
def test_bad_input_that_is_not_refused_as_specified_is_no_attack(
    reply: Reply, why: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attacker, "ANSWER_S_MAX", 0.2)
    assert _attack(reply, [TOLD]).failure.startswith(why)
    (result,) = map(json.loads, capsys.readouterr().out.splitlines())
    assert result["failure"].startswith(why)


def test_one_whole_turn_comes_however_early_it_is_stopped() -> None:
    assert _attack(_refuse, [CLOSED, TOLD] * 10, seconds=0).refused >= 20


def test_figures_are_medians_of_the_turns_and_the_share_is_of_them() -> None:
    alone = [{"p50_us": 1.0, "p99_us": each} for each in (100.0, 200.0, 9000.0)]
    beside = [{"p50_us": 2.0, "p99_us": each} for each in (300.0, 100.0, 400.0)]
    assert beside_figures(alone, beside, [190.0, 200.0, 180.0]) == {
        "p99_share": 1.5,
        "alone_p50_us": 1.0,
        "alone_p99_us": 200.0,
        "beside_p50_us": 2.0,
        "beside_p99_us": 300.0,
        "bad_rate": 190.0,
    }


def test_the_row_is_for_ours_alone_and_short_for_once() -> None:
    assert {kind for kind, _ in ROW.skips} == set(peers.VERSIONED)
    assert (ROW.load.rate, ROW.load.times) == (5_000, "delivery")
    assert (ROW.short().turns, ROW.short().bad_per_s) == (1, ROW.bad_per_s)
    assert 100 <= ROW.short().load.count < ROW.load.count
    assert rows.chosen(["bystander"]) == rows.Choice(fresh=rows.BESIDE)


@pytest.mark.slow
@pytest.mark.parametrize("is_narrow", [False, True])
def test_only_then_has_the_broker_the_bounds_of_the_cases(is_narrow: bool, tmp_path: Path) -> None:
    peer = peers.make("mqops", tmp_path / "one")
    assert not isinstance(peer, Cluster)
    peer.is_narrow = is_narrow
    try:
        peer.prepare()
    finally:
        peer.stop()
    found = tomllib.loads((tmp_path / "one" / "broker.toml").read_text())
    bounds = {"max-frame-size-bytes": bad_input.FRAME_SIZE_MAX, "max-message-size-bytes": bad_input.MESSAGE_SIZE_MAX}
    stated = {name: value for table in (found["listeners"][0], found["limits"]) for name, value in table.items()}
    assert {name: stated.get(name) for name in bounds} == (bounds if is_narrow else dict.fromkeys(bounds))
