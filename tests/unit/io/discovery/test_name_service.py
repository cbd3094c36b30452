"""Names that lead to places, against a name server of the test's on loopback."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from mqbroker.cluster.discovery.srv import NoAnswer
from mqbroker.config.declarations.clustering import DiscoveryGroupTable
from mqbroker.config.declarations.table_slices import slice_of
from mqbroker.io.discovery.broadcast_endpoints import EndpointUnreachable
from mqbroker.io.discovery.name_service import EMPTY_LOOKS, NameEar, ask, servers_of_host

from tests.unit.cluster.discovery.test_srv import name, target
from tests.unit.io.discovery.test_announced_files import Ears

SERVICE = "_mq._tcp.example.org"


class NameServer:
    """Answers by UDP and TCP at one port with what `records` holds; `flags` are those of its answers by UDP."""

    def __init__(self) -> None:
        self.records: list[bytes] = []
        self.flags = 0x8180
        self.asked = 0
        self._stream, self._datagrams = one_port()
        self.place: tuple[str, int] = self._stream.getsockname()
        for work in (self._by_datagram, self._by_stream):
            threading.Thread(target=work, daemon=True).start()

    def close(self) -> None:
        for sock in (self._stream, self._datagrams):
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
            sock.close()

    def _answer(self, asked: bytes, flags: int) -> bytes:
        records = [] if flags & 0x020F else self.records
        return asked[:2] + struct.pack(">5H", flags, 1, len(records), 0, 0) + asked[12:] + b"".join(records)

    def _by_datagram(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                asked, source = self._datagrams.recvfrom(4096)
                if source is None:
                    return  # it was closed
                self.asked += 1
                self._datagrams.sendto(self._answer(asked, self.flags), source)

    def _by_stream(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                conn, _ = self._stream.accept()
                with conn, conn.makefile("rwb") as stream:
                    (size,) = struct.unpack(">H", stream.read(2))
                    data = self._answer(stream.read(size), 0x8180)
                    stream.write(struct.pack(">H", len(data)) + data)


def one_port() -> tuple[socket.socket, socket.socket]:
    """A listening socket, and one for datagrams at the same port: not every port is free for both."""
    while True:
        stream = socket.create_server(("127.0.0.1", 0))
        datagrams = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        try:
            datagrams.bind(stream.getsockname())
        except OSError:
            stream.close()
            datagrams.close()
        else:
            return stream, datagrams


@pytest.fixture
def server() -> Iterator[NameServer]:
    made = NameServer()
    yield made
    made.close()


def ear(server: NameServer | None, *names: str) -> NameEar:
    fields: dict[str, Any] = {"name": "lan", "discovery": "dns", "names": list(names), "poll-period": 50}
    options = slice_of(DiscoveryGroupTable.model_validate(fields))
    servers: Callable[[], list[tuple[str, int]]] | None = None if server is None else lambda: [server.place]
    return NameEar(options, servers)


def test_a_service_leads_to_its_targets(server: NameServer) -> None:
    server.records = [target(5, 5673, name("mq1.example.org")), target(1, 5674, name("mq2.example.org"))]
    assert [(one.host, one.port) for one in ask(SERVICE, [server.place])] == [
        ("mq2.example.org", 5674), ("mq1.example.org", 5673),
    ]  # fmt: skip


def test_an_answer_that_does_not_fit_is_asked_for_by_stream(server: NameServer) -> None:
    server.flags = 0x8380
    server.records = [target(1, 5673, name(f"mq{number}.example.org")) for number in range(100)]
    assert len(ask(SERVICE, [server.place])) == 100


def test_the_next_server_is_asked_where_one_does_not_answer(server: NameServer) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as closed:
        closed.bind(("127.0.0.1", 0))
        nobody = closed.getsockname()
    assert ask(SERVICE, [nobody, server.place]) == []
    with pytest.raises(NoAnswer, match=r"name server 127\.0\.0\.1: .*refused"):
        ask(SERVICE, [nobody])
    with pytest.raises(NoAnswer, match="there is no name server"):
        ask(SERVICE, [])


def test_a_server_that_says_that_it_has_no_answer_is_believed_last(server: NameServer) -> None:
    server.flags = 0x8185
    with pytest.raises(NoAnswer, match="it refused"):
        ask(SERVICE, [server.place])
    server.flags = 0x8183
    assert ask(SERVICE, [server.place]) == [], "there is no such name"


HOST = "mq2.invalid"


@pytest.mark.parametrize(
    ("code", "is_answer"),
    [(socket.EAI_NONAME, True), (socket.EAI_NODATA, True), (socket.EAI_AGAIN, False), (socket.EAI_FAIL, False)],
)
def test_a_name_that_does_not_exist_leads_nowhere_and_one_without_an_answer_where_it_did(
    code: int, is_answer: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the resolver of the host says is put in its place: no test may depend on the names of a network."""
    says: list[int] = []
    really = socket.getaddrinfo

    def getaddrinfo(host: str, port: int, **more: Any) -> Any:
        if host == HOST and says:
            raise socket.gaierror(says[0], "said")
        return really("127.0.0.2" if host == HOST else host, port, **more)

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)

    async def work() -> None:
        ears, one = Ears(), ear(None, "127.0.0.1:5673", f"{HOST}:5673")
        await one.look(ears)
        says.append(code)
        for _ in range(EMPTY_LOOKS):
            assert set(ears.found) == {ears.found[0]}, "a moment without a name server changes nothing"
            if is_answer:
                await one.look(ears)
            else:
                with pytest.raises(EndpointUnreachable, match=HOST):
                    await one.look(ears)
        one.close()
        kept = ears.found[0][:1] if is_answer else ears.found[0]
        assert (len(ears.found[0]), ears.found[-1]) == (2, kept)

    asyncio.run(work())


def test_looks_at_which_a_name_leads_nowhere_count_in_a_row_alone(server: NameServer) -> None:
    async def work() -> None:
        ears, one = Ears(), ear(server, SERVICE)
        there = [target(1, 5674, name("mq2.example.org"))]
        server.records = there
        await one.look(ears)
        for between in ("a place", "no answer"):
            for _ in range(EMPTY_LOOKS - 1):
                server.records = []
                await one.look(ears)
            server.records, server.flags = there, 0x8182 if between == "no answer" else 0x8180
            if between == "no answer":
                with pytest.raises(EndpointUnreachable):
                    await one.look(ears)
            else:
                await one.look(ears)
            server.flags = 0x8180
        server.records = []
        for _ in range(EMPTY_LOOKS - 1):
            await one.look(ears)
        assert set(ears.found) == {((SERVICE, "mq2.example.org", 5674),)}
        await one.look(ears)
        assert ears.found[-1] == ()
        one.close()

    asyncio.run(work())


def test_hosts_have_name_servers() -> None:
    assert 1 <= len(servers_of_host()) <= 3


def test_addresses_and_services_together_and_a_failure_keeps_what_was_there(server: NameServer) -> None:
    async def work() -> None:
        server.records = [target(1, 5674, name("mq2.example.org"))]
        ears, one = Ears(), ear(server, "127.0.0.1:5673", "[::1]:5675", SERVICE)
        await one.join(ears)
        whole = (
            ("127.0.0.1:5673", "127.0.0.1", 5673), ("[::1]:5675", "::1", 5675), (SERVICE, "mq2.example.org", 5674),
        )  # fmt: skip
        assert ears.found == [whole]
        server.flags = 0x8182
        while not ears.whys:
            ears.news.clear()
            await ears.news.wait()
        assert f"{SERVICE} cannot be resolved: name server 127.0.0.1: it failed" in ears.whys[0]
        assert set(ears.found) == {whole}
        server.flags, server.records = 0x8180, []
        while len(ears.whys) < 2 or ears.found[-1] != whole[:2]:
            ears.news.clear()
            await ears.news.wait()
        assert ears.whys[1] == ""
        one.close()

    asyncio.run(work())


def test_names_that_never_led_anywhere_are_unreachable(server: NameServer) -> None:
    async def work() -> None:
        server.flags = 0x8182
        ears, one = Ears(), ear(server, SERVICE)
        with pytest.raises(EndpointUnreachable, match=r"it failed; see names and /etc/resolv\.conf"):
            await one.join(ears)
        assert ears.found == []
        one.close()

    asyncio.run(work())
