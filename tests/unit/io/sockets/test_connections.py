"""Connections over real sockets: bytes, pressure in both directions, the ways to end, the bounds."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import resource
import socket
import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from mqbroker.base.errors import ConfigFault
from mqbroker.config.declarations.options import default_listener
from mqbroker.io.loop.loop import GATHERED_BEHIND_BYTES_MAX, GATHERED_BYTES_MAX
from mqbroker.io.sockets.connections import WRITE_HELD_BYTES
from mqbroker.io.sockets.listeners import AT_ONCE_MAX, open_listener
from mqbroker.node.values.batch import Batch
from mqbroker.node.values.effects import CloseConnection, Connect, PauseReading, Send
from mqbroker.node.values.inputs import BytesReceived, Closed, Connected, ConnectionAccepted, Input, WriteBlocked

from tests.support.broker_process import free_port
from tests.support.patience import PATIENCE_S
from tests.support.processor import undelayed
from tests.unit.io.conftest import Bench, ScriptedCore, bench, until

Runner = Callable[[Any], Any]


def echo(inputs: list[Input]) -> Batch:
    """Sends everything back, one Send for each connection."""
    chunks: dict[int, list[bytes | bytearray | memoryview]] = {}
    for item in inputs:
        if isinstance(item, BytesReceived):
            chunks.setdefault(item.conn, []).append(item.data)
    return Batch(effects=[Send(conn, parts) for conn, parts in chunks.items()])


def received_bytes(core: ScriptedCore) -> int:
    return sum(len(item.data) for item in core.of(BytesReceived))


def test_bytes_go_both_ways_in_order(run: Runner) -> None:
    async def scenario() -> None:
        core = ScriptedCore(echo)
        async with bench(core) as made:
            reader, writer = await made.client()
            sent = bytes(range(256)) * 8192
            writer.write(sent)
            assert await asyncio.wait_for(reader.readexactly(len(sent)), PATIENCE_S) == sent
            assert all(type(item.data) is bytes for item in core.of(BytesReceived))
            writer.close()
            await until(lambda: core.of(Closed))

    run(scenario())


def test_accepted_says_where_from_and_has_fresh_entropy(run: Runner) -> None:
    async def scenario() -> None:
        core = ScriptedCore()
        async with bench(core) as made:
            writers = [(await made.client())[1] for _ in range(3)]
            await until(lambda: len(core.of(ConnectionAccepted)) == 3)
            first = core.of(ConnectionAccepted)[0]
            host, port = writers[0].get_extra_info("sockname")
            assert (first.listener, first.peer, first.is_loopback) == ("clients", f"{host}:{port}", True)
            assert [item.conn for item in core.of(ConnectionAccepted)] == [1, 2, 3]
            assert len({item.entropy for item in core.of(ConnectionAccepted)}) == 3
            assert {len(item.entropy) for item in core.of(ConnectionAccepted)} == {32}
            for writer in writers:
                writer.close()

    run(scenario())


BURST = 100
STEP_S = 0.002


async def accepted_together(made: Bench, core: ScriptedCore) -> list[int]:
    """Of a burst of connections that all wait to be accepted: how many each step with some of them had."""
    core.steps.clear()
    with contextlib.ExitStack() as stack:
        for _ in range(BURST):
            stack.enter_context(socket.create_connection(("127.0.0.1", made.listener.port)))
        await until(lambda: len(core.of(ConnectionAccepted)) == BURST)
        found = [sum(isinstance(item, ConnectionAccepted) for item in step) for step in core.steps]
    await until(lambda: len(core.of(Closed)) == BURST)
    return [count for count in found if count]


def test_a_burst_is_accepted_one_by_one_while_steps_are_short_and_in_few_turns_where_they_are_long(run: Runner) -> None:
    def lingers(inputs: list[Input]) -> Batch:
        time.sleep(STEP_S)
        return Batch()

    async def scenario() -> None:
        core = ScriptedCore()
        async with bench(core) as made:
            counts = await accepted_together(made, core)
            # A process that is held up in a step has had a long one.
            assert statistics.median(counts) == 1, counts
            assert max(counts) <= AT_ONCE_MAX, counts
            core.reaction = lingers
            counts = await accepted_together(made, core)
            assert max(counts) <= AT_ONCE_MAX, counts
            assert len(counts) <= BURST // 4, counts

    run(scenario())


def test_of_two_turns_one_accepts_nobody(run: Runner) -> None:
    async def scenario() -> None:
        core = ScriptedCore()
        async with bench(core) as made, contextlib.AsyncExitStack() as stack:
            loop = asyncio.get_running_loop()
            counts: list[int] = []

            def turn() -> None:
                counts.append(len(made.connections))
                if counts[-1] < BURST:
                    loop.call_soon(turn)

            for _ in range(BURST):
                stack.enter_context(socket.create_connection(("127.0.0.1", made.listener.port)))
            turn()
            await until(lambda: len(core.of(ConnectionAccepted)) == BURST)
            came = [after > before for before, after in itertools.pairwise(counts)]
            assert not any(one and other for one, other in itertools.pairwise(came)), counts

    run(scenario())


@pytest.mark.parametrize("end", ["close", "reset"])
def test_closed_comes_once_and_last(run: Runner, end: str) -> None:
    async def scenario() -> None:
        core = ScriptedCore()
        async with bench(core) as made:
            sock = socket.create_connection(("127.0.0.1", made.listener.port))
            sock.sendall(b"last words")
            await until(lambda: received_bytes(core) == 10)
            if end == "reset":
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")
            sock.close()
            await until(lambda: core.of(Closed))
            await asyncio.sleep(0.05)
            assert len(core.of(Closed)) == 1
            assert isinstance(core.inputs[-1], Closed)
            assert len(made.connections) == 0

    run(scenario())


def test_a_peer_that_floods_us_still_reads_the_error_before_the_end(run: Runner) -> None:
    async def scenario() -> None:
        def react(inputs: list[Input]) -> Batch:
            bad = [item.conn for item in inputs if isinstance(item, BytesReceived)]
            return Batch(effects=[Send(bad[0], [b"the error"]), CloseConnection(bad[0], 3000)] if bad else [])

        core = ScriptedCore(react)
        async with bench(core) as made:
            reader, writer = await made.client()
            for _ in range(64):
                writer.write(bytes(65536))
            assert await asyncio.wait_for(reader.read(), PATIENCE_S) == b"the error"
            writer.close()
            await until(lambda: core.of(Closed))
            assert core.of(Closed)[0].why == "closed by us"
            # What came after Close was not shown to the core.
            assert isinstance(core.inputs[-1], Closed)

    run(scenario())


def test_a_peer_that_never_ends_is_cut_off_after_the_linger(run: Runner) -> None:
    async def scenario() -> None:
        core = ScriptedCore(
            lambda inputs: Batch(effects=[CloseConnection(item.conn, 100) for item in core_closes(inputs)])
        )

        def core_closes(inputs: list[Input]) -> list[ConnectionAccepted]:
            return [item for item in inputs if isinstance(item, ConnectionAccepted)]

        async with bench(core) as made:
            sock = socket.create_connection(("127.0.0.1", made.listener.port))
            start_s = time.monotonic()
            with undelayed() as seconds:
                await until(lambda: core.of(Closed))
                assert time.monotonic() - start_s >= 0.09
                assert seconds() < 2
            sock.close()

    run(scenario())


def test_a_slow_reader_blocks_and_unblocks(run: Runner) -> None:
    async def scenario() -> None:
        def react(inputs: list[Input]) -> Batch:
            return Batch(
                effects=[
                    Send(item.conn, [bytes(3 << 20)] * 4) for item in inputs if isinstance(item, ConnectionAccepted)
                ]
            )

        core = ScriptedCore(react)
        async with bench(core) as made:
            reader, writer = await made.client()
            await until(lambda: core.of(WriteBlocked))
            assert core.of(WriteBlocked) == [WriteBlocked(1, True)]
            await asyncio.wait_for(reader.readexactly(12 << 20), PATIENCE_S)
            await until(lambda: len(core.of(WriteBlocked)) == 2)
            assert core.of(WriteBlocked)[1] == WriteBlocked(1, False)
            writer.close()

    run(scenario())


@pytest.mark.slow
def test_what_is_sent_arrives_in_its_order_also_when_the_socket_takes_a_part(run: Runner) -> None:
    """Into the socket while nothing is buffered, behind what is buffered, and into the socket again."""
    sizes = (2, 9_000, 6 << 20, 3, 300_000, 17)
    pieces = [bytes([number]) * sizes[number % len(sizes)] for number in range(60)]

    async def scenario() -> None:
        core = ScriptedCore()
        async with bench(core) as made:
            sock = socket.create_connection(("127.0.0.1", made.listener.port))
            sock.setblocking(False)
            await until(lambda: core.of(ConnectionAccepted))
            got = bytearray()
            behind, direct = 0, 0

            def read(limit: int) -> None:
                with contextlib.suppress(BlockingIOError):
                    while len(got) < limit:
                        got.extend(sock.recv(limit - len(got)))

            due = 0
            for number, piece in enumerate(pieces):
                # The socket has room again before the loop could write what is buffered.
                made.connections.send(Send(1, [piece[:1], piece[1:]]))
                due += len(piece)
                read(len(got) + 3_000_000)
                behind, direct = behind + (len(got) < due), direct + (len(got) == due)
                if number % 10 == 9:
                    for _ in range(1000):
                        read(due)
                        if len(got) == due:
                            break
                        await asyncio.sleep(0.002)
            sock.close()
            assert bytes(got) == b"".join(pieces)
            assert min(behind, direct) > 10

    run(scenario())


@pytest.mark.slow
def test_a_peer_that_asks_and_never_reads_is_not_read_either(run: Runner) -> None:
    async def scenario() -> None:
        # Each received byte costs a hundred in answers, and the core ignores that writing is blocked.
        def react(inputs: list[Input]) -> Batch:
            asked = sum(len(item.data) for item in inputs if isinstance(item, BytesReceived))
            return Batch(effects=[Send(1, [bytes(asked * 100)])] if asked else [])

        core = ScriptedCore(react)
        async with bench(core) as made:
            sock = socket.create_connection(("127.0.0.1", made.listener.port))
            sock.setblocking(False)
            loop = asyncio.get_running_loop()
            asked = loop.create_task(loop.sock_sendall(sock, bytes(64 << 20)))
            await asyncio.sleep(1)
            assert not asked.done()
            # The bound, and the answer to what one turn can read.
            assert received_bytes(core) * 100 < 4 * (WRITE_HELD_BYTES + (100 * 8 << 20))
            before = received_bytes(core)
            await asyncio.sleep(0.2)
            assert received_bytes(core) == before
            asked.cancel()
            sock.close()

    run(scenario())


def test_of_one_that_was_paused_a_turn_takes_no_more_than_a_read(run: Runner) -> None:
    async def scenario() -> None:
        reads = GATHERED_BYTES_MAX // GATHERED_BEHIND_BYTES_MAX - 1  # which make no turn of a connection that keeps up
        core = ScriptedCore()
        async with bench(core) as made:
            _, writer = await made.client()
            await until(lambda: core.of(ConnectionAccepted))
            connection = made.connections._connections[1]

            async def turns_of(size_bytes: int) -> int:
                before = len(core.steps)
                for _ in range(reads):
                    connection.data_received(bytes(size_bytes))
                ran = len(core.steps) - before
                await until(lambda: sum(map(len, core.steps[before:])) == reads)
                return ran

            assert await turns_of(GATHERED_BEHIND_BYTES_MAX) == 0
            for is_paused in (True, False):
                made.connections.pause_reading(PauseReading(1, is_paused))
            assert await turns_of(GATHERED_BEHIND_BYTES_MAX) == reads
            connection.data_received(b"x")  # which was all that the kernel had
            await until(lambda: core.inputs[-1].data == b"x")
            assert await turns_of(GATHERED_BEHIND_BYTES_MAX) == 0
            writer.close()

    run(scenario())


def test_a_paused_connection_is_not_read_until_resumed(run: Runner) -> None:
    async def scenario() -> None:
        effects: list[Any] = []

        def react(inputs: list[Input]) -> Batch:
            now, effects[:] = list(effects), []
            return Batch(effects=now)

        core = ScriptedCore(react)
        async with bench(core) as made:
            _, writer = await made.client()
            await until(lambda: core.of(ConnectionAccepted))
            effects += [PauseReading(1, True), PauseReading(1, True)]
            made.node._schedule()
            await until(lambda: not effects)
            writer.write(b"hello")
            await asyncio.sleep(0.1)
            assert core.of(BytesReceived) == []
            effects += [PauseReading(1, False), PauseReading(1, False)]
            made.node._schedule()
            await until(lambda: core.of(BytesReceived))
            # A paused connection can still be closed by us, and by the peer.
            effects += [PauseReading(1, True), CloseConnection(1, 1000)]
            made.node._schedule()
            writer.close()
            await until(lambda: core.of(Closed))

    run(scenario())


def test_effects_on_a_lost_connection_do_nothing(run: Runner) -> None:
    async def scenario() -> None:
        core = ScriptedCore(
            lambda inputs: Batch(effects=[Send(99, [b"x"]), CloseConnection(99), PauseReading(99, True)])
        )
        async with bench(core) as made:
            await until(lambda: core.steps)
            assert not made.node.ended.done()

    run(scenario())


def test_connections_over_the_bound_are_closed_at_once_and_told_once(run: Runner) -> None:
    async def scenario() -> None:
        core = ScriptedCore()
        async with bench(core, connections_max=2) as made:
            kept = [await made.client() for _ in range(2)]
            await until(lambda: len(core.of(ConnectionAccepted)) == 2)
            for _ in range(3):
                reader, writer = await made.client()
                assert await asyncio.wait_for(_end_of(reader), PATIENCE_S) == b""
                writer.close()
            assert len(core.of(ConnectionAccepted)) == 2
            assert made.log_text.getvalue().count("connections-full") == 1
            kept[0][1].close()
            await until(lambda: core.of(Closed))
            _, writer = await made.client()
            await until(lambda: len(core.of(ConnectionAccepted)) == 3)
            writer.close()
            kept[1][1].close()

    run(scenario())


@pytest.mark.slow
def test_running_out_of_descriptors_is_told_once_and_heals(run: Runner) -> None:
    async def scenario() -> None:
        core = ScriptedCore()
        async with bench(core) as made:
            soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
            clients = [socket.socket() for _ in range(4)]
            free = socket.socket()
            resource.setrlimit(resource.RLIMIT_NOFILE, (free.fileno(), hard))
            try:
                for client in clients:
                    client.connect(("127.0.0.1", made.listener.port))
                await until(lambda: "accept-failed" in made.log_text.getvalue())
                await asyncio.sleep(0.6)
            finally:
                resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
                free.close()
            await until(lambda: len(core.of(ConnectionAccepted)) == 4)
            assert made.log_text.getvalue().count("accept-failed") == 1
            assert made.log_text.getvalue().count("accept-resumed") == 1
            for client in clients:
                client.close()

    run(scenario())


def test_hundreds_of_connections_at_once(run: Runner) -> None:
    async def scenario() -> None:
        core = ScriptedCore(echo)
        async with bench(core) as made:
            clients = [socket.create_connection(("127.0.0.1", made.listener.port)) for _ in range(400)]
            await until(lambda: len(core.of(ConnectionAccepted)) == 400, PATIENCE_S)
            for client in clients:
                client.close()
            await until(lambda: len(core.of(Closed)) == 400, PATIENCE_S)
            assert len(made.connections) == 0

    run(scenario())


def test_a_port_in_use_names_listener_address_port_and_remedy() -> None:
    listener = default_listener("clients", free_port())
    first = open_listener(listener, "listeners.0")
    try:
        with pytest.raises(ConfigFault) as fault:
            open_listener(listener, "listeners.1")
    finally:
        first.close()
    assert fault.value.path == "listeners.1.port"
    assert f"listener clients can't listen on 127.0.0.1 port {listener.port}: the port is in use" in str(fault.value)
    assert "ss -ltnp" in str(fault.value)


def test_an_address_of_another_host_is_named() -> None:
    listener = replace(default_listener("clients", free_port()), local_bind_address="192.0.2.77")
    with pytest.raises(ConfigFault) as fault:
        open_listener(listener, "listeners.0")
    assert fault.value.path == "listeners.0.local-bind-address"
    assert "this host does not have the address" in fault.value.why


# Outgoing connections.


def connecting(core_effects: list[Any]) -> ScriptedCore:
    def react(inputs: list[Input]) -> Batch:
        now, core_effects[:] = list(core_effects), []
        return Batch(effects=now)

    return ScriptedCore(react)


async def _serve(made: Bench, effects: list[Any]) -> None:
    made.node._schedule()
    await until(lambda: not effects)


def test_connect_comes_back_as_connected_from_the_asked_address(run: Runner) -> None:
    async def scenario() -> None:
        peers: list[Any] = []

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            peers.append(writer.get_extra_info("peername"))
            writer.write(await reader.readexactly(5))
            writer.close()

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        effects: list[Any] = [Connect(-1, "127.0.0.1", port, "127.0.0.9")]
        core = connecting(effects)
        async with bench(core) as made:
            await until(lambda: core.of(Connected))
            assert core.of(Connected)[0].conn == -1
            assert len(core.of(Connected)[0].entropy) == 32
            effects.append(Send(-1, [b"hel", b"lo"]))
            await _serve(made, effects)
            await until(lambda: core.of(Closed))
            assert core.of(BytesReceived)[0].data == b"hello"
            assert peers[0][0] == "127.0.0.9"
            assert len(core.of(Closed)) == 1
        server.close()

    run(scenario())


def test_connect_to_nobody_comes_back_as_closed_with_the_reason(run: Runner) -> None:
    async def scenario() -> None:
        port = free_port()
        effects: list[Any] = [
            Connect(-1, "127.0.0.1", port),
            Connect(-2, "127.0.0.1", port, "192.0.2.77"),
            Connect(-3, f"{'n' * 64}.example", port),
        ]
        core = connecting(effects)
        async with bench(core) as made:
            await until(lambda: len(core.of(Closed)) == 3)
            whys = [item.why for item in sorted(core.of(Closed), key=lambda item: -item.conn)]
            assert [f" port {port}: " in why for why in whys] == [True] * 3
            assert "label" in whys[2]
            assert core.of(Connected) == []
            assert len(made.connections) == 0

    run(scenario())


def test_an_attempt_is_bounded_in_time_and_can_be_closed(run: Runner) -> None:
    async def scenario() -> None:
        # A listener with a full backlog does not answer: the kernel drops further SYNs.
        full = socket.socket()
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        fillers = [socket.socket() for _ in range(4)]
        for filler in fillers:
            filler.setblocking(False)
            filler.connect_ex(full.getsockname())
        port = full.getsockname()[1]
        effects: list[Any] = [Connect(-1, "127.0.0.1", port, timeout_ms=200), Connect(-2, "127.0.0.1", port)]
        core = connecting(effects)
        async with bench(core) as made:
            await until(lambda: not effects)
            effects.append(CloseConnection(-2))
            await _serve(made, effects)
            await until(lambda: len(core.of(Closed)) == 2)
            why = {item.conn: item.why for item in core.of(Closed)}
            assert why == {-1: f"127.0.0.1 port {port}: no answer in 200 ms", -2: "closed by us while connecting"}
        for sock in (full, *fillers):
            sock.close()

    run(scenario())


def test_an_outgoing_id_that_is_taken_is_a_bug(run: Runner) -> None:
    async def scenario() -> None:
        core = connecting([Connect(5, "127.0.0.1", 1)])
        async with bench(core) as made:
            assert await made.node.ended == 70

    run(scenario())


async def _end_of(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.read()
    except ConnectionResetError:
        return b""
