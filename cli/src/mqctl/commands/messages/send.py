"""`mqctl send`."""

from __future__ import annotations

import contextlib
import itertools
import json
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import typer

from mqctl.admin import AdminClient, AdminError, AdminLost
from mqctl.brokers import messages
from mqctl.declare import ReaderOptions
from mqctl.errors import CommandError, UsageError
from mqctl.exits import Exit
from mqctl.nodes import Node, NodeCommandOptions, choose, nodes_of, open_admin
from mqctl.output import Column, Rows, write
from mqctl.progress import counting
from mqctl.world import World

COLUMNS = (Column("host"), Column("instance"), Column("address"), Column("accepted", is_number=True))
SYNC_TIME_S = 60.0
TTL_S_MAX = 0xFFFF_FFFF // 1000  # a header counts milliseconds in 32 bits
AT_ONCE = re.compile(r"\bsend (\d+) at once$")  # how a broker ends its refusal of so many copies
NUMBER_FIELDS = ("absolute_expiry_time", "creation_time", "group_sequence")


@dataclass(frozen=True, kw_only=True)
class Options(ReaderOptions, NodeCommandOptions):
    """What to send, and to which node."""

    address: Annotated[str, typer.Argument(help="Address to send to.")]
    body: Annotated[
        list[str] | None, typer.Argument(help="Bodies, a message each; - reads them from standard input, one a line.")
    ] = None
    file: Annotated[list[Path] | None, typer.Option(help="A file as one message; may be repeated.")] = None
    count: Annotated[
        int, typer.Option(help="Send the body so many times; {n} in it becomes the number, from 1.", min=0)
    ] = 0
    durable: Annotated[bool, typer.Option(help="Durable messages survive the loss of power once accepted.")] = True
    priority: Annotated[int | None, typer.Option(help="0 to 9; messages without one have 4.", min=0, max=9)] = None
    ttl: Annotated[float, typer.Option(help="Seconds after which they expire; 0: never.", min=0, max=TTL_S_MAX)] = 0
    property_: Annotated[
        list[str] | None,
        typer.Option("--property", "-p", help="NAME=VALUE, for selectors; JSON or text; may be repeated."),
    ] = None
    field: Annotated[
        list[str] | None,
        typer.Option(help="NAME=VALUE of the message's properties (subject, group_id, …); may be repeated."),
    ] = None
    host: Annotated[
        str, typer.Option("--host", "--to", help="Node to send to: a host, or host/instance. [default: the first]")
    ] = ""


def run(world: World, options: Options) -> int:
    """Send messages to an address of one node. What is counted as sent was accepted: durable ones are on its disk.

    A body that takes over 16 MiB as JSON is refused: text with its escapes, 12 MiB of other bytes. Send it by AMQP.
    """
    bodies, total = bodies_of(world, options)
    nodes = nodes_of(world, options)
    node = choose(nodes, options.host)
    if not options.host and len(nodes) > 1:
        world.note(f"to {node.name}, the first of {len(nodes)} nodes (--host chooses another)")
    accepted = _send(world, node, options, bodies, total)
    row = {"host": node.host, "instance": node.instance, "address": options.address, "accepted": accepted}
    write(Rows("mqctl.send/1", COLUMNS, [row]), options.shape, world.data)
    return Exit.DONE


def _send(world: World, node: Node, options: Options, bodies: Iterable[bytes], total: int | None) -> int:
    chunks = messages.chunked(bodies, durable=options.durable, said=said_of(options))
    with counting(world, f"sending to {options.address}", total) as advance, open_admin(world, node) as session:
        flow = RequestWindow(session, options.address, advance)
        try:
            flow.send_all(chunks)
        except AdminLost as error:
            raise CommandError(
                f"{error.what}; {flow.accepted} messages were accepted, of {flow.unknown} more nobody knows",
                f"mqctl queue list --host {node.name}",
            ) from None
        except AdminError as error:
            raise CommandError(f"{error.what}; {flow.accepted} messages were accepted besides", error.attempt) from None
    return flow.accepted


def said_of(options: Options) -> dict[str, Any]:
    """What every message says besides its body."""
    said: dict[str, Any] = {}
    if options.priority is not None:
        said["priority"] = options.priority
    if options.ttl:
        said["ttl_ms"] = max(1, round(options.ttl * 1000))
    if options.property_:
        said["application_properties"] = dict(_pair("--property", text) for text in options.property_)
    if options.field:
        pairs = (_pair("--field", text) for text in options.field)
        said["properties"] = {name: value if name in NUMBER_FIELDS else str(value) for name, value in pairs}
    return said


def _pair(option: str, text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise UsageError(f"{option} {text}: that is not NAME=VALUE", f"{option} colour=red")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value


@dataclass(slots=True)
class RequestWindow:
    """Requests in flight, oldest first. `accepted` counts messages that the broker answered for.

    What is taken behind a request that is refused is a tail without its head, so the first one is alone until it is
    answered. Where diverts and subscriptions make its messages dear, the broker says how many it takes at once.
    """

    session: AdminClient
    address: str
    advance: Callable[[int], None]
    accepted: int = 0
    at_once: int = messages.CHUNK_COUNT_MAX
    in_flight_max: int = 1
    waiting: deque[list[dict[str, Any]]] = field(default_factory=deque)
    in_flight: deque[tuple[int, list[dict[str, Any]]]] = field(default_factory=deque)

    @property
    def unknown(self) -> int:
        """Messages that were sent and not answered for."""
        return sum(len(chunk) for _, chunk in self.in_flight)

    def send_all(self, chunks: Iterable[list[dict[str, Any]]]) -> None:
        """Send every chunk in its order and wait for every answer."""
        source = iter(chunks)
        try:
            while True:
                if not self.waiting:
                    self.waiting.extend(itertools.islice(source, 1))
                if self.waiting and len(self.in_flight) < self.in_flight_max:
                    self._submit(self.waiting.popleft())
                elif self.in_flight:
                    self._settle_oldest()
                else:
                    return
        except AdminError:
            self._settle_others()
            raise

    def _submit(self, chunk: list[dict[str, Any]]) -> None:
        now, later = chunk[: self.at_once], chunk[self.at_once :]
        if later:
            self.waiting.appendleft(later)
        request = self.session.submit("send", address=self.address, messages=now)
        self.in_flight.append((request, now))

    def _settle_oldest(self) -> None:
        asked = [chunk for _, chunk in self.in_flight]
        try:
            self._take_answer()
        except AdminError as refusal:
            fewer = at_once_of(refusal)
            accepted = self.accepted
            if not 0 < fewer < len(asked[0]):
                raise
            self._settle_others()
            if self.accepted != accepted:  # a subscription is new, and a smaller request fitted: the order is lost
                raise
            self.waiting.extendleft(reversed(asked))
            self.at_once, self.in_flight_max = fewer, 1

    def _settle_others(self) -> None:
        """One was refused, or not sent; those that were asked for besides are accepted or not, and counted."""
        while self.in_flight:
            with contextlib.suppress(AdminError):
                self._take_answer()

    def _take_answer(self) -> None:
        """Of the oldest."""
        request, chunk = self.in_flight[0]
        try:
            answer = self.session.answer(request, SYNC_TIME_S)
        except AdminError:  # not AdminLost, after which nobody knows of it
            self.in_flight.popleft()
            raise
        self.in_flight.popleft()
        accepted = int(answer["accepted"])
        self.accepted += accepted
        self.advance(accepted)
        if accepted != len(chunk):
            said = f"only {accepted} of {len(chunk)} were taken"
            why = {"condition": "amqp:resource-limit-exceeded", "description": said}
            raise AdminError(self.session.node, "send", why)
        self.in_flight_max = messages.REQUESTS_IN_FLIGHT


def at_once_of(refusal: AdminError) -> int:
    """How many messages the broker takes in a request instead; 0: it was not refused for that."""
    said = AT_ONCE.search(refusal.description)
    return int(said[1]) if said else 0


def bodies_of(world: World, options: Options) -> tuple[Iterator[bytes], int | None]:
    """Bodies in their order and how many there are, where that is known before."""
    texts, files = options.body or [], options.file or []
    sources = bool(texts) + bool(files)
    if options.count:
        if len(texts) > 1 or files:
            raise UsageError("--count takes at most one body and no --file", "mqctl send ADDRESS 'order {n}' --count 9")
        return messages.numbered(texts[0] if texts else f"message {messages.NUMBER}", options.count), options.count
    if texts == ["-"] and not files:
        return messages.lines(world.stdin_bytes), None
    if sources == 0:
        raise UsageError("there is nothing to send", f"mqctl send {options.address} 'a body'")
    missing = next((path for path in files if not (world.cwd / path).is_file()), None)
    if missing is not None:
        raise UsageError(f"--file {missing}: there is no such file")
    contents = (_content(world.cwd / path) for path in files)
    return itertools.chain(map(messages.typed, texts), contents), len(texts) + len(files)


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as fault:
        raise CommandError(f"--file {path}: {fault.strerror}") from None
