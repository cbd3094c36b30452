"""A client on Debian's python3-qpid-proton, told what to do in JSON lines. Runs under /usr/bin/python3.

Owns connections, sessions and links by the names that the test gave them. One request is one line on stdin, its one
answer one line on stdout. Between requests the container goes on working, so heartbeats and flows are sent as an
application's would be. Every wait has a deadline. Source: the API of Proton 0.37.
"""

from __future__ import annotations

import base64
import json
import queue
import sys
import threading
import time
from collections import deque
from pathlib import Path

from proton import Data, Delivery, Described, Endpoint, Handler, Link, Message, SSLDomain, Terminus, Url, symbol
from proton.reactor import ApplicationEvent, Container, EventInjector

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from tests.support.checker import body_of, id_in
from tests.support.patience import PATIENCE_S

OUTCOMES = {"accept": Delivery.ACCEPTED, "reject": Delivery.REJECTED, "release": Delivery.RELEASED,
            "modify": Delivery.MODIFIED}  # fmt: skip
OUTCOME_NAMES = {Delivery.ACCEPTED: "accepted", Delivery.REJECTED: "rejected", Delivery.RELEASED: "released",
                 Delivery.MODIFIED: "modified"}  # fmt: skip
SENDER_MODES = {"unsettled": Link.SND_UNSETTLED, "settled": Link.SND_SETTLED, "mixed": Link.SND_MIXED}
RECEIVER_MODES = {"first": Link.RCV_FIRST, "second": Link.RCV_SECOND}
MODE_NAMES = ("unsettled", "settled", "mixed")
WAIT_S = PATIENCE_S


class Failed(Exception):
    """The request could not be done; the text says why."""


class Inbox:
    """What a receiver holds: deliveries that the test has not asked for yet, and those it left unsettled."""

    def __init__(self, credit: int) -> None:
        self.is_detached = False
        self.credit = credit  # what a reconnected link is given again
        self.parts: list[bytes] = []
        self.ready: deque = deque()
        self.held: list = []
        self.settled_by_peer = 0

    def lost(self) -> None:
        """The connection is gone, and all deliveries with it."""
        self.ready.clear()
        self.held.clear()
        self.parts.clear()


class Outbox:
    """What a sender waits for: deliveries without an outcome, and outcomes, by tag in the order of sending."""

    def __init__(self) -> None:
        self.is_detached = False
        self.next_tag = 0
        self.waiting: dict = {}
        self.outcomes: dict = {}

    def lost(self) -> None:
        """The connection is gone: nobody will ever tell what became of these."""
        for tag, delivery in self.waiting.items():
            self.outcomes[tag] = {"outcome": "unknown", "settled": False, "error": None}
            delivery.settle()
        self.waiting.clear()


def secured(ca: str, certificate) -> SSLDomain:
    """TLS of a client that checks the broker's name; `certificate` is a file with certificate and key."""
    domain = SSLDomain(SSLDomain.MODE_CLIENT)
    domain.set_trusted_ca_db(ca)
    if certificate is not None:
        domain.set_credentials(certificate, certificate, None)
    domain.set_peer_authentication(SSLDomain.VERIFY_PEER_NAME)
    return domain


class Client(Handler):
    """All requests, and the events of Proton that they wait for."""

    def __init__(self) -> None:
        self.container = Container(self)
        self.container.start()
        # Wakes the container when a request comes, and keeps it from ending while there is no connection.
        self.bell = EventInjector()
        self.container.selectable(self.bell)
        self.connections: dict = {}
        self.sessions: dict = {}
        self.links: dict = {}
        self.lost: dict = {}  # why a connection ended, the last time that it did
        self.down: set = set()
        self.reconnecting: set = set()
        self.opened: dict = {}

    # -- events --------------------------------------------------------------------------------------------------------

    def on_connection_remote_open(self, event) -> None:
        name = event.connection.name_of_test
        self.opened[name] = self.opened.get(name, 0) + 1
        self.down.discard(name)

    def on_connection_remote_close(self, event) -> None:
        error = error_of(event.connection.remote_condition)
        if error:
            self.lost[event.connection.name_of_test] = error
        # As Proton's own MessagingHandler does: a connection that is forced to close is connected again.
        if not error or error["condition"] != "amqp:connection:forced":
            event.connection.close()

    def on_session_remote_close(self, event) -> None:
        event.session.close()

    def on_link_remote_open(self, event) -> None:
        link = event.link
        box = getattr(link, "box", None)
        if isinstance(box, Inbox) and self.opened.get(link.connection.name_of_test, 0) > 1:
            link.flow(box.credit - link.credit)

    def on_link_remote_close(self, event) -> None:
        event.link.close()

    def on_link_remote_detach(self, event) -> None:
        # Proton's state of a link knows closes only.
        event.link.box.is_detached = True
        event.link.detach()

    def on_transport_error(self, event) -> None:
        if event.connection is not None:  # else it is one that was given up already
            error = error_of(event.transport.condition)
            self.lost.setdefault(event.connection.name_of_test, error or {"condition": "unknown"})

    def on_transport_closed(self, event) -> None:
        if event.connection is None:
            return
        name = event.connection.name_of_test
        self.lost.setdefault(name, {"condition": "closed"})
        self.down.add(name)
        for link in self.links.values():
            if link.connection.name_of_test == name:
                link.box.lost()

    def on_delivery(self, event) -> None:
        delivery, link = event.delivery, event.link
        if link.is_sender:
            if delivery.updated and (delivery.settled or delivery.remote_state in OUTCOME_NAMES):
                self._outcome(link, delivery)
        elif delivery.readable:
            self._part(link, delivery)
        elif delivery.updated and delivery.settled:
            link.box.settled_by_peer += 1
            delivery.settle()

    def _outcome(self, link, delivery) -> None:
        name = OUTCOME_NAMES.get(delivery.remote_state, "settled")
        error = error_of(delivery.remote.condition) if name == "rejected" else None
        link.box.waiting.pop(delivery.tag, None)
        link.box.outcomes[delivery.tag] = {"outcome": name, "settled": delivery.settled, "error": error}
        delivery.settle()

    def _part(self, link, delivery) -> None:
        box = link.box
        box.parts.append(link.recv(delivery.pending) or b"")
        if delivery.partial:
            return
        raw = b"".join(box.parts)
        box.parts.clear()
        link.advance()
        box.ready.append((delivery, raw, delivery.settled))

    # -- waiting -------------------------------------------------------------------------------------------------------

    def work(self, timeout_s: float) -> None:
        self.container.do_work(timeout_s)

    def wait(self, is_done, what: str, timeout_s: float = WAIT_S) -> None:
        deadline_s = time.monotonic() + timeout_s
        while not is_done():
            if time.monotonic() > deadline_s:
                raise Failed(f"{what}: not after {timeout_s} s")
            self.work(0.05)

    # -- requests: connections -----------------------------------------------------------------------------------------

    def do_connect(self, name: str, port: int, user=None, password=None, mechanisms=None, heartbeat_s=None,
                   frame_size=None, reconnect=False, container=None, is_waiting=True, ca=None,
                   certificate=None) -> dict:  # fmt: skip
        self.container.container_id = container
        self.lost.pop(name, None)
        self.opened.pop(name, None)
        self.down.discard(name)
        if reconnect:
            self.reconnecting.add(name)
        secure = {} if ca is None else {"ssl_domain": secured(ca, certificate), "virtual_host": "localhost"}
        connection = self.container.connect(
            Url(f"{'amqps' if secure else 'amqp'}://127.0.0.1:{port}"),
            reconnect=[0.05] * 400 if reconnect else False, user=user, password=password, allowed_mechs=mechanisms,
            heartbeat=heartbeat_s, max_frame_size=frame_size, **secure,
        )  # fmt: skip
        connection.name_of_test = name
        self.connections[name] = connection
        self.sessions[name, ""] = connection.session()
        self.sessions[name, ""].open()
        if not is_waiting:
            return {}
        self.wait(lambda: self.opened.get(name) or name in self.down, f"connect {name}")
        if not self.opened.get(name):
            return {"failed": self.lost[name]}
        return self._opened(connection)

    def _opened(self, connection) -> dict:
        transport = connection.transport
        properties = connection.remote_properties or {}
        return {
            "container": connection.remote_container,
            "frame_size": transport.remote_max_frame_size,
            "idle_timeout_s": transport.remote_idle_timeout,
            "channel_max": transport.remote_channel_max,
            "properties": {str(key): str(value) for key, value in properties.items()},
            "capabilities": [str(each) for each in connection.remote_offered_capabilities or ()],
            "mechanism": transport.sasl().mech,
        }

    def do_wait_lost(self, name: str, timeout_s: float = WAIT_S) -> dict:
        """Why the connection ended: the condition of the peer's close, else of the transport."""
        self.wait(lambda: name in self.lost, f"end of {name}", timeout_s)
        return {"lost": self.lost[name]}

    def do_is_lost(self, name: str) -> dict:
        return {"lost": self.lost.get(name)}

    def do_wait_opened(self, name: str, count: int) -> dict:
        self.wait(lambda: self.opened.get(name, 0) >= count, f"open number {count} of {name}")
        return {}

    def do_work(self, time_s: float) -> dict:
        deadline_s = time.monotonic() + time_s
        while time.monotonic() < deadline_s:
            self.work(0.02)
        return {}

    def do_close(self, name: str) -> dict:
        connection = self.connections.pop(name)
        connection.close()
        self.wait(lambda: bool(connection.state & Endpoint.REMOTE_CLOSED) or name in self.down, f"close of {name}")
        return {"error": error_of(connection.remote_condition)}

    # -- requests: sessions and links ----------------------------------------------------------------------------------

    def do_session(self, connection: str, name: str, capacity_bytes=None) -> dict:
        session = self.sessions[connection, name] = self.connections[connection].session()
        if capacity_bytes is not None:
            session.incoming_capacity = capacity_bytes
        session.open()
        self.wait(lambda: bool(session.state & Endpoint.REMOTE_ACTIVE), f"session {name}")
        return {}

    def do_end(self, connection: str, name: str) -> dict:
        session = self.sessions.pop((connection, name))
        session.close()
        self.wait(lambda: bool(session.state & Endpoint.REMOTE_CLOSED), f"end of {name}")
        return {}

    def do_sender(self, connection: str, name: str, address, session="", snd="unsettled", rcv="first", **more) -> dict:
        link = self.sessions[connection, session].sender(more.get("link_name", name))
        link.target.address = address
        link.source.address = name
        if more.get("is_dynamic"):
            link.target.dynamic = True
        if more.get("capabilities"):
            put_symbols(link.target.capabilities, more["capabilities"])
        link.box = Outbox()
        return self._attach(name, link, snd, rcv)

    def do_receiver(self, connection: str, name: str, address, session="", snd="unsettled", rcv="first",
                    credit=0, **more) -> dict:  # fmt: skip
        link = self.sessions[connection, session].receiver(more.get("link_name", name))
        link.source.address = address
        link.target.address = name
        if more.get("is_dynamic"):
            link.source.dynamic = True
        if more.get("is_copy"):
            link.source.distribution_mode = Terminus.DIST_MODE_COPY
        if more.get("selector"):
            put_selector(link.source.filter, more["selector"])
        if more.get("capabilities"):
            put_symbols(link.source.capabilities, more["capabilities"])
        if more.get("size_max"):
            link.max_message_size = more["size_max"]
        link.box = Inbox(credit)
        if credit:
            link.flow(credit)
        return self._attach(name, link, snd, rcv)

    def _attach(self, name: str, link, snd: str, rcv: str) -> dict:
        link.snd_settle_mode = SENDER_MODES[snd]
        link.rcv_settle_mode = RECEIVER_MODES[rcv]
        self.links[name] = link
        link.open()
        self.wait(lambda: bool(link.state & Endpoint.REMOTE_ACTIVE) or self._is_over(link), f"attach {name}")
        terminus = link.remote_target if link.is_sender else link.remote_source
        if link.state & Endpoint.REMOTE_ACTIVE and terminus.type != Terminus.UNSPECIFIED:
            return {
                "snd": MODE_NAMES[link.remote_snd_settle_mode],
                "rcv": ("first", "second")[link.remote_rcv_settle_mode],
                "size_max": link.remote_max_message_size,
                "address": terminus.address,
            }
        self.wait(lambda: self._is_over(link), f"detach of {name}, whose terminus is null")
        why = error_of(link.remote_condition) or error_of(link.session.remote_condition)
        is_null = terminus.type == Terminus.UNSPECIFIED
        return {"refused": why or self.lost.get(link.connection.name_of_test), "is_null": is_null}

    def _is_over(self, link) -> bool:
        ended = link.box.is_detached or (link.state | link.session.state) & Endpoint.REMOTE_CLOSED
        name = link.connection.name_of_test
        return bool(ended) or (name in self.down and name not in self.reconnecting)

    def do_close_link(self, name: str, is_detach: bool = False) -> dict:
        link = self.links.pop(name)
        if is_detach:
            link.detach()
        else:
            link.close()
        self.wait(lambda: self._is_over(link), f"detach of {name}")
        return {"error": error_of(link.remote_condition)}

    def do_wait_detached(self, name: str, timeout_s: float = WAIT_S) -> dict:
        link = self.links[name]
        self.wait(lambda: self._is_over(link), f"detach of {name}", timeout_s)
        return {"error": error_of(link.remote_condition) or error_of(link.session.remote_condition)}

    # -- requests: messages --------------------------------------------------------------------------------------------

    def do_send(self, link: str, ids=(), size: int = 100, durable: bool = True, raw=(), settled: bool = False,
                is_waiting: bool = True, **fields) -> dict:  # fmt: skip
        """Send messages with a body each that is made from its id, or encoded ones; the outcomes in their order.

        `fields` are Proton's own of a message: address, priority, ttl (s), properties, group_id, …
        """
        sender, box = self.links[link], self.links[link].box
        encoded = [base64.b64decode(each) for each in raw]
        encoded += [Message(body=body_of(each, size), durable=durable, **fields).encode() for each in ids]
        tags = []
        for data in encoded:
            self.wait(lambda: sender.credit > 0 or self._is_over(sender), f"credit on {link}")
            if self._is_over(sender):
                break
            box.next_tag += 1
            tags.append(str(box.next_tag))
            delivery = sender.delivery(tags[-1])
            sender.stream(data)
            sender.advance()
            if settled or sender.snd_settle_mode == Link.SND_SETTLED:
                delivery.settle()
                box.outcomes[tags[-1]] = {"outcome": "unknown", "settled": True, "error": None}
            else:
                box.waiting[tags[-1]] = delivery
        if not is_waiting:
            self.wait(lambda: not sender.queued or self._is_over(sender), f"sending on {link}")
            self.work(0.05)
            return {"sent": len(tags)}
        self.wait(lambda: all(tag in box.outcomes for tag in tags) or self._is_over(sender), f"outcomes on {link}")
        return {"outcomes": [box.outcomes.get(tag) for tag in tags]}

    def do_credit(self, link: str) -> dict:
        return {"credit": self.links[link].credit}

    def do_wait_credit(self, link: str, at_least: int, timeout_s: float = WAIT_S) -> dict:
        self.wait(lambda: self.links[link].credit >= at_least, f"{at_least} credit on {link}", timeout_s)
        return {"credit": self.links[link].credit}

    def do_flow(self, link: str, credit: int) -> dict:
        self.links[link].flow(credit)
        self.work(0.0)
        return {}

    def do_drain(self, link: str, credit: int) -> dict:
        """Ask for what is there: how many came although more credit was given, and what credit is left."""
        receiver = self.links[link]
        before = len(receiver.box.ready)
        receiver.drain(credit)
        self.wait(lambda: not receiver.draining(), f"drain of {link}")
        return {"came": len(receiver.box.ready) - before, "credit": receiver.credit, "unused": receiver.drained()}

    def do_receive(self, link: str, count: int = 1, outcome="accept", settle: bool = True, timeout_s: float = WAIT_S,
                   is_raw: bool = False, more_credit: int = 0) -> dict:  # fmt: skip
        """Take messages that came and give them an outcome. Fewer than `count` is not an error: what came, came."""
        receiver, box = self.links[link], self.links[link].box
        if more_credit:
            receiver.flow(more_credit)
        found = []
        deadline_s = time.monotonic() + timeout_s
        while len(found) < count and (box.ready or time.monotonic() < deadline_s):
            if not box.ready:
                self.work(0.02)
                continue
            delivery, raw, settled = box.ready.popleft()
            found.append(described(delivery, raw, settled, is_raw))
            self._dispose(box, delivery, outcome, settle)
        self.work(0.0)
        return {"messages": found}

    def _dispose(self, box: Inbox, delivery, outcome, settle: bool) -> None:
        if outcome is None:
            box.held.append(delivery)
            return
        if outcome == "modify-failed":
            delivery.local.failed = True
        if outcome == "modify-undeliverable":
            delivery.local.undeliverable = True
        if outcome != "none":
            delivery.update(OUTCOMES[outcome.partition("-")[0]])
        if settle:
            delivery.settle()

    def do_dispose(self, link: str, outcome: str, settle: bool = True, positions=None) -> dict:
        """Give an outcome to those that were left without one, all or at these positions."""
        box = self.links[link].box
        chosen = range(len(box.held)) if positions is None else positions
        for each in chosen:
            self._dispose(box, box.held[each], outcome, settle)
        box.held = [each for at, each in enumerate(box.held) if at not in set(chosen)]
        self.do_work(0.05)
        return {}

    def do_wait_settled(self, link: str, count: int) -> dict:
        """Until the peer has settled so many deliveries whose outcome we told without settling."""
        box = self.links[link].box
        self.wait(lambda: box.settled_by_peer >= count, f"{count} settlements on {link}, {box.settled_by_peer} came")
        return {"settled": box.settled_by_peer}


def put_symbols(data, names) -> None:
    """Capabilities as an array of symbols."""
    data.put_array(False, Data.SYMBOL)
    data.enter()
    for name in names:
        data.put_symbol(symbol(name))
    data.exit()


def put_selector(data, selector: str) -> None:
    """A filter set of one JMS selector."""
    data.put_dict({symbol("selector"): Described(symbol("apache.org:selector-filter:string"), selector)})


def described(delivery, raw: bytes, settled: bool, is_raw: bool) -> dict:
    """What the test learns of a message."""
    message = Message()
    message.decode(raw)
    body = bytes(message.body) if isinstance(message.body, (bytes, memoryview)) else b""
    row = {
        "id": id_in(body), "size": len(body), "delivery_count": message.delivery_count, "durable": message.durable,
        "first_acquirer": message.first_acquirer, "settled": settled,
    }  # fmt: skip
    if is_raw:
        row["raw"] = base64.b64encode(raw).decode()
    return row


def error_of(condition) -> dict | None:
    """A condition as the test sees it."""
    if condition is None or not condition.name:
        return None
    info = {str(name): value for name, value in (condition.info or {}).items()}
    return {"condition": condition.name, "description": condition.description or "", "info": info}


def serve() -> None:
    """Answer until stdin ends."""
    requests: queue.SimpleQueue = queue.SimpleQueue()
    client = Client()

    def read() -> None:
        while True:
            line = sys.stdin.readline()
            requests.put(line)
            client.bell.trigger(ApplicationEvent("request"))
            if not line:
                return

    threading.Thread(target=read, daemon=True).start()
    while True:
        client.work(1.0)
        try:
            line = requests.get_nowait()
        except queue.Empty:
            continue
        if not line:
            return
        row = json.loads(line)
        try:
            answer = getattr(client, "do_" + row.pop("do"))(**row)
        except Failed as failed:
            answer = {"failed_request": str(failed)}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    serve()
