"""Connections for asyncio: what applications begin with."""

from __future__ import annotations

import asyncio
import os
import random
import ssl
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any, TypeVar, Unpack

from mqbroker.client import inputs
from mqbroker.client.errors import ConnectionFailed, LinkFailed, ManyFailed, UriFault
from mqbroker.client.io.driver import LOG, Driver
from mqbroker.client.io.inbox import Inbox
from mqbroker.client.io.opening import Opening
from mqbroker.client.io.outbox import Outbox
from mqbroker.client.io.patience import at_most
from mqbroker.client.io.receiver import ReceivedMessage, Receiver, ReceiverOpening
from mqbroker.client.io.requests import Requests
from mqbroker.client.io.sender import Sender
from mqbroker.client.io.signatures import with_options
from mqbroker.client.io.transaction import Transaction
from mqbroker.client.machine import Machine
from mqbroker.client.message import Message
from mqbroker.client.options import (
    ConnectOptions,
    ReceiverOptions,
    ReceiverTerms,
    SenderOptions,
    SenderTerms,
    Settings,
)
from mqbroker.client.places import REDIRECTS_MAX, Places
from mqbroker.client.policies import policy_named
from mqbroker.client.stages import Stage
from mqbroker.client.termini import checked_receiver
from mqbroker.client.uri import Endpoint, Group, Target, checked, parse_uri

if TYPE_CHECKING:
    from mqbroker.client.io.announced import Announced

T = TypeVar("T")
POLICIES_MAX = 256
OTHERS_MAX = 32  # brokers that links of one connection were redirected to
CREDIT_DEFAULT = 100

# Connections of this process to the same brokers take turns: one policy for each list, the oldest forgotten.
_policies: OrderedDict[tuple[str, tuple[Endpoint, ...]], Callable[[int], int]] = OrderedDict()


@with_options(ConnectOptions, Settings)
def connect(uri: str, **options: Unpack[ConnectOptions]) -> Opening[Connection]:
    """A connection to the broker, or to one of the brokers, that the URI names; `ConnectOptions` says what else.

        async with connect("amqp://user:password@host:5672?reconnect-attempts=-1") as connection: …

    Awaited instead, it is to be closed by `close`. Raises UriFault at once, and ConnectionFailed or LoginRefused when
    it is awaited or entered.
    """
    values: dict[str, Any] = dict(options)
    own = {name: values.pop(name, None) for name in ("tls", "policy", "on_event")}
    target = parse_uri(uri)
    known = {each.name for each in fields(Settings)}
    for name in values:
        if name not in known:
            raise UriFault(f"connect has no option {name!r}; see ConnectOptions")
    settings = checked(replace(target.settings, **values))
    has_container_id = bool(settings.container_id)
    if not has_container_id:
        settings = replace(settings, container_id=f"client-{os.urandom(8).hex()}")
    target = Target(target.endpoints, settings, target.group)
    if target.group is not None and not (settings.cluster_secret or settings.cluster_secret_file):
        raise UriFault(
            "udp:// needs the cluster's secret, cluster-secret-file=… in the URI or cluster_secret=… of connect: "
            "without it whoever is on the network could pass for a broker"
        )
    return Opening(lambda: Connection(target, own, has_container_id=has_container_id)._open())


class Connection:
    """One connection to a broker, perhaps another one after a reconnect. For the tasks of the loop that made it."""

    def __init__(self, target: Target, own: dict[str, Any], *, has_container_id: bool) -> None:
        settings = target.settings
        policy = own["policy"] or _shared_policy(settings.connection_load_balancing_policy, target.endpoints)
        self._has_container_id = has_container_id
        self._on_event: Callable[[str], None] | None = own["on_event"]
        self._tls: ssl.SSLContext | None = own["tls"]
        self._driver = Driver(Machine(settings, Places(target.endpoints, policy, settings)), self._context, self._told)
        self._driver.has_certificate = bool(settings.tls_certificate_file) or (
            self._tls is not None and settings.user is None
        )
        self._target = target
        self._own = own
        self._others: dict[Endpoint, Connection] = {}  # that links were redirected to
        self._others_lock = asyncio.Lock()
        self._announced: Announced | None = None
        self._senders: dict[Sender, None] = {}
        self._requests = Requests(self)

    def __repr__(self) -> str:
        return f"<Connection of {self.container_id!r}: {self._driver.machine.stage.value}, {self.broker or 'nowhere'}>"

    async def _open(self) -> Connection:
        settings = self._driver.machine.settings
        if settings.tls_ca_file or settings.tls_certificate_file:
            self._context()  # a file that cannot be read is no reason to try again and again
        try:
            if self._target.group is not None:
                await self._discover(self._target.group)
            await self._driver.ask(inputs.Start)
        except BaseException as error:
            if self._announced is not None:
                self._announced.close()
            if isinstance(error, asyncio.CancelledError):
                self._driver.put(inputs.Shut(self._driver.loop.create_future(), waits=False))
            raise
        return self

    async def _discover(self, group: Group) -> None:
        # What announcements look like is of no use to connections that have addresses.
        from mqbroker.client.io.announced import Announced

        self._announced = Announced(group, self._target.settings, self._found)
        await self._announced.start()

    def _found(self, endpoints: tuple[Endpoint, ...]) -> None:
        self._driver.put(inputs.Discovered(endpoints))

    @property
    def is_connected(self) -> bool:
        """Whether a broker is connected right now."""
        return self._driver.is_up

    @property
    def broker(self) -> Endpoint | None:
        """Where it is connected, or tries to be."""
        return self._driver.machine.endpoint

    @property
    def container_id(self) -> str:
        """How this application calls itself."""
        return self._driver.machine.settings.container_id

    @with_options(SenderOptions, SenderTerms)
    def sender(self, address: str = "", **options: Unpack[SenderOptions]) -> Opening[Sender]:
        """A sender to an address, to `address::queue`, or without one: then each message says in `to` where it goes."""
        return Opening(lambda: self._open_sender(SenderTerms(address=address, **options)))

    async def _open_sender(self, terms: SenderTerms) -> Sender:
        async def make(at: Connection, address: str) -> Sender:
            outbox = Outbox(at._driver, replace(terms, address=address))
            await outbox.open()
            return Sender(outbox)

        sender = await self._followed(make, terms.address)
        self._senders = {each: None for each in self._senders if each._outbox.error is None}
        self._senders[sender] = None
        return sender

    @with_options(ReceiverOptions, ReceiverTerms)
    def receiver(self, address: str, **options: Unpack[ReceiverOptions]) -> ReceiverOpening:
        """A receiver of a queue, of a topic, or of `address::queue`. Raises UriFault for options that contradict."""
        return self._receiver(ReceiverTerms(address=address, **options))

    def browse(self, address: str, selector: str = "", credit: int = CREDIT_DEFAULT) -> ReceiverOpening:
        """Copies of what is in a queue now; iterating over it ends where the queue ends."""
        return self._receiver(ReceiverTerms(address=address, selector=selector, credit=credit, browse=True))

    def temporary_queue(self, credit: int = CREDIT_DEFAULT) -> ReceiverOpening:
        """A receiver of a queue of its own, which ends with it; `address` is what others send to."""
        return self._receiver(ReceiverTerms(credit=credit, temporary=True))

    def _receiver(self, terms: ReceiverTerms) -> ReceiverOpening:
        terms = checked_receiver(terms, has_container_id=self._has_container_id)

        async def make(at: Connection, address: str) -> Receiver:
            inbox = Inbox(at._driver, replace(terms, address=address), ReceivedMessage)
            await inbox.open()
            return Receiver(inbox)

        return ReceiverOpening(lambda: self._followed(make, terms.address))

    async def _followed(self, make: Callable[[Connection, str], Awaitable[T]], address: str) -> T:
        """What `make` makes here, or where brokers send it, over a connection to there that is kept for others."""
        at, hops = self, 0
        while True:
            try:
                return await make(at, address)
            except LinkFailed as error:
                if error.place is None:
                    raise
                hops += 1
                if hops > REDIRECTS_MAX:
                    why = (
                        f"{address!r}: brokers sent us on {REDIRECTS_MAX} times; check redirect-to of address-settings"
                    )
                    raise LinkFailed(why, error.condition) from None
                assert at.broker is not None
                at = await self._at(Endpoint(error.place.host, error.place.port, at.broker.has_tls))
                address = error.place.address or address

    async def _at(self, endpoint: Endpoint) -> Connection:
        """This connection or another one, to that broker."""
        if endpoint == self.broker:
            return self
        async with self._others_lock:
            other = self._others.get(endpoint)
            if other is None or other._driver.machine.stage is Stage.ENDED:
                if len(self._others) >= OTHERS_MAX:
                    raise ConnectionFailed(f"links were sent to {OTHERS_MAX} other brokers already")
                target = Target((endpoint,), self._target.settings)
                made = Connection(target, {**self._own, "policy": None}, has_container_id=self._has_container_id)
                other = self._others[endpoint] = await made._open()
        return other

    def transaction(self) -> Transaction:
        """A transaction, to be entered with `async with`."""
        return Transaction(self._driver)

    async def request(self, address: str, message: Message | bytes | str, timeout: float | None = 30.0) -> Message:
        """Send a request and wait for its reply. Raises TimeoutError after `timeout` seconds, and as `Sender.send`."""
        whole = message if isinstance(message, Message) else Message(message)
        return await self._requests.request(address, whole, timeout)

    async def reply(self, request: Message, message: Message | bytes | str) -> None:
        """Send the reply to a request that was received."""
        await self._requests.reply(request, message if isinstance(message, Message) else Message(message))

    async def close(self, timeout: float | None = None) -> None:
        """Wait for what senders have under way, then close. Raises ManyFailed if something posted was not accepted.

        After `timeout` seconds what is under way is abandoned, and TimeoutError is raised.
        """
        try:
            async with at_most(timeout, self._in_vain):
                await self._close()
        except TimeoutError:
            await self.abandon()
            raise

    def _in_vain(self) -> str:
        count = sum(each.pending_count for each in self._senders)
        return f"{self.broker} did not give {count} messages their outcomes, or did not answer the close,"

    async def _close(self) -> None:
        failed: list[ManyFailed] = []
        under_way: list[Sender | Connection] = [*self._senders, *self._others.values()]
        try:
            for each in under_way:
                try:
                    await each.close()
                except ManyFailed as error:  # what others have under way is to get its outcome all the same
                    failed.append(error)
        finally:
            await self._shut(waits=True)
        if failed:
            raise failed[0] if len(failed) == 1 else ManyFailed.of(failed)

    async def abandon(self) -> None:
        """Close without waiting: for outcomes, or for the broker's answer."""
        await self._shut(waits=False)

    async def _shut(self, *, waits: bool) -> None:
        if self._announced is not None:
            self._announced.close()
        await self._requests.close()
        for other in self._others.values():
            await other.abandon()
        if self._driver.fault is None:
            await self._driver.ask(lambda token: inputs.Shut(token, waits))

    def _context(self) -> ssl.SSLContext:
        if self._tls is None:
            settings = self._driver.machine.settings
            try:
                self._tls = ssl.create_default_context(cafile=settings.tls_ca_file or None)
                if settings.tls_certificate_file:
                    self._tls.load_cert_chain(
                        settings.tls_certificate_file, settings.tls_key_file or None, settings.tls_key_password or None
                    )
            except (OSError, ssl.SSLError) as error:
                files = ", ".join(filter(None, (settings.tls_ca_file, settings.tls_certificate_file)))
                raise ConnectionFailed(f"TLS: a file cannot be used ({files}): {error}") from None
        return self._tls

    def _told(self, text: str) -> None:
        LOG.info("%s", text)
        if self._on_event is not None:
            try:
                self._on_event(text)
            except Exception:  # the application's, which must not end the connection
                LOG.exception("on_event failed")


def _shared_policy(name: str, endpoints: tuple[Endpoint, ...]) -> Callable[[int], int]:
    key = name, endpoints
    policy = _policies.get(key)
    if policy is None:  # several threads may come here at once
        policy = _policies.setdefault(key, policy_named(name, random.randrange))
        if len(_policies) > POLICIES_MAX:
            _policies.popitem(last=False)
    return policy
