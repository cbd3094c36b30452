"""Conversations as text: commands, a line of dashes, what came of them. Anyone can review one.

    connect p                            a client connects, logs in, begins a session
    attach p to orders [settled]         … and asks for a link
    attach c from orders [credit=2] [second] [queue|topic] [shared] [global] [durable] [browse] [as=LINK]
             [priority=1] [select=color='red'] [default=accepted]
                                         `temporary` asks for a temporary queue, `nobody` has no address
    publish p orders [count=3] [durable] [size=100]     messages m1, m2, … as far as credit goes
            [prio=9] [ttl=100] [to=orders] [group=g] [delay=100] [color=red]   any other name is a property
            [body=value] [jms]          a text as amqp-value; with the annotations of Qpid JMS
    credit c orders 5 | drain c orders 5
    accept | release | modify | reject c m1 m2          `settle`: without an outcome
    declare p t1 | commit p t1 | rollback p t1          a transaction, on a link to the coordinator
    publish p orders txn=t1 | accept c m1 txn=t1 [unsettled]
    detach c orders | suspend c orders | end c | close c | break c      suspended links may come back
    freeze c | thaw c                    the client stops reading, and reads again
    hold disk | sync                     nothing is synced until told
    crash | stop | start                 the node
    wait 1500                            milliseconds pass
    queues                               what the node holds
    node limits.link-credit=2 …          another node from here on
    remote B orders, take B 5, …         other nodes of a cluster: see remote.py

Lines of `#` are comments and stay where they are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mqbroker.amqp import events as told
from mqbroker.amqp.links import LinkBase, ReceiverLink, SenderLink
from mqbroker.amqp.states import LinkStateEvent
from mqbroker.base.serial import wrap
from mqbroker.wire.performatives import (
    Accepted,
    Attach,
    Declared,
    Detach,
    Error,
    Flow,
    Modified,
    Rejected,
    Released,
    Source,
    Target,
    TransactionalState,
)
from mqbroker.wire.run import single
from mqbroker.wire.scan import MESSAGE_ANNOTATIONS
from mqbroker.wire.sections import (
    Header,
    Properties,
    body_values,
    build_message,
    decode_header,
    encode_section,
    scan_sections,
)
from mqbroker.wire.types import Byte, Described, Symbol

from tests.golden import remote
from tests.support import transactions
from tests.support.stage import Stage, Talker, options_with

DASHES = "----"
OUTCOMES = {Accepted: "accepted", Rejected: "rejected", Released: "released", Modified: "modified"}
NAMED = {name: outcome() for outcome, name in OUTCOMES.items()}


NO_PROPERTIES = {"count", "size", "prio", "ttl", "to", "group", "delay", "txn", "body"}
# A text message for a queue: https://issues.apache.org/jira/browse/QPIDJMS, "JMS mapping", types and destinations.
OF_JMS = {Symbol("x-opt-jms-msg-type"): Byte(5), Symbol("x-opt-jms-dest"): Byte(0)}


def _message(body: bytes, options: dict[str, str], *, is_durable: bool, is_jms: bool) -> bytes:
    """A message with what the words of `publish` say."""
    ttl = int(options["ttl"]) if "ttl" in options else None
    header = Header(durable=is_durable, priority=int(options.get("prio", 4)), ttl=ttl)
    properties = Properties(to=options.get("to"), group_id=options.get("group"))
    named = {name: value for name, value in options.items() if name not in NO_PROPERTIES}
    message = build_message(
        body.decode() if options.get("body") == "value" else body,
        header=header,
        properties=properties if {"to", "group"} & set(options) else None,
        application_properties=named,
    )
    annotations: dict[Symbol, Any] = dict(OF_JMS) if is_jms else {}
    if "delay" in options:
        annotations[Symbol("x-opt-delivery-delay")] = int(options["delay"])
    if annotations:
        end = scan_sections(message, 0, len(message)).bare
        message = message[:end] + encode_section(MESSAGE_ANNOTATIONS, annotations) + message[end:]
    return message


class ScriptStage(Stage):
    """A stage that writes down what its clients hear."""

    def __init__(self, script: Conversation, **tables: dict[str, Any]) -> None:
        self.script = script
        super().__init__(options_with(tables.pop("listener", None), **tables))

    def heard(self, talker: Talker, event: Any) -> None:
        self.script.heard(talker, event)


class Conversation:
    """Runs commands and gathers lines."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.stage = ScriptStage(self)
        self.talkers: dict[str, Talker] = {}
        self.links: dict[tuple[str, str], LinkBase] = {}
        self.held: dict[tuple[str, str], tuple[LinkBase, int]] = {}  # (client, message) -> where it was delivered
        self.second: set[LinkBase] = set()
        self.transactions: dict[str, bytes] = {}
        self.in_doubt: dict[tuple[str, int], str] = {}
        self.count = 0
        self.others = remote.Others(self)
        self._notices = 0

    def run(self, command: str) -> list[str]:
        """The lines that come of one command."""
        self.lines = []
        verb, *words = command.split()
        VERBS[verb](self, words)
        if self.stage.is_up:
            if verb in remote.VERBS:
                self.stage.step()
            self.stage.run()
        for notice in self.stage.notices[self._notices :]:
            fields = " ".join(
                f"{name}={value}" for name, value in notice.fields.items() if name not in ("conn", "peer")
            )
            self._say(f"node: {notice.event} {fields}".rstrip())
        self._notices = len(self.stage.notices)
        if self.stage.halted is not None and verb == "stop":
            self._say(f"node: halted with {self.stage.halted}")
        return gathered(self.lines)

    def _say(self, line: str) -> None:
        self.lines.append(line)

    # -- what clients hear ---------------------------------------------------------------------------------------------

    def heard(self, talker: Talker, event: Any) -> None:
        """One line, or none."""
        who = talker.name
        match event:
            case told.Incoming():
                self._got(talker, event)
            case told.Settled(outcome=Declared()):
                name = event.taken[0].token[0]
                self.transactions[name] = event.outcome.txn_id
                self._say(f"{who} has declared {name}")
            case told.Retired():
                for _, taken in event.taken:
                    self._say(f"{who} learns provisionally {_named(event.state.outcome)}: {taken.token[0]}")
            case told.Settled():
                for taken in event.taken:
                    for name in taken.token[taken.skip : taken.skip + taken.n]:
                        self._say(f"{who} learns {_named(event.outcome)}: {name}")
            case told.SenderSettled():
                for number in range(event.first, event.last + 1):
                    name = self.in_doubt.pop((who, number), None)
                    if name is not None:
                        self._say(f"{who} may forget: {name}")
            case told.CreditGiven(link):
                self._say(f"{who} may send {link.credit} to {link.end}")
            case told.Attached(link, attach):
                is_there = (attach.target if isinstance(link, SenderLink) else attach.source) is not None
                terminus = attach.target if isinstance(link, SenderLink) else attach.source
                place = f" at {terminus.address}" if is_there and link.end in ("temporary", "nobody") else ""
                self._say(f"{who} link {link.end} {'stands' if is_there else 'is refused'}{place}")
            case told.Detached(link, error):
                self._say(f"{who} link {link.end} is gone{_why(error)}")
            case told.Ended(_, error) if error is not None:
                self._say(f"{who} session ended{_why(error)}")
            case told.Dead(condition, description):
                self._say(f"{who} is disconnected" + (f": {condition} ({description})" if condition else ""))

    def _got(self, talker: Talker, event: told.Incoming) -> None:
        for index in range(event.run.count):
            payload = bytes(event.run.payload(index))
            sections = scan_sections(payload, 0, len(payload))
            header = decode_header(payload, 0, len(payload))[0] if sections.header >= 0 else Header()
            body = body_values(payload, sections)[1]
            name = (body[0] if isinstance(body[0], str) else b"".join(body).decode()).split("|")[0]
            again = f" (delivery count {header.delivery_count})" if header.delivery_count else ""
            self._say(f"{talker.name} gets{' settled' if event.is_settled else ''}: {name}{again}")
            self.held[talker.name, name] = event.link, event.delivery_id + index

    # -- commands ------------------------------------------------------------------------------------------------------

    def node(self, words: list[str]) -> None:
        """Another node, with these options."""
        tables: dict[str, dict[str, Any]] = {}
        for word in words:
            path, text = word.split("=")
            *where, name = path.replace("-", "_").split(".")
            value: Any = {"true": True, "false": False}.get(text, int(text) if text.isdigit() else text)
            if where[0] == "address_settings":
                tables.setdefault(where[0], {}).setdefault(".".join(where[1:]), {})[name] = value
            else:
                tables.setdefault(where[0], {})[name] = value
        self.stage = ScriptStage(self, **tables)
        self.talkers.clear()
        self.links.clear()
        self.transactions.clear()
        self._notices = 0

    def connect(self, words: list[str]) -> None:
        for name in words:
            self.talkers[name] = self.stage.connect(name)

    def attach(self, words: list[str]) -> None:
        who, direction, address, *rest = words
        talker = self.talkers[who]
        assert talker.session is not None
        options = dict(word.split("=", 1) for word in rest if "=" in word)
        name = options.get("as", f"{who}-{direction}-{address}")
        capabilities = tuple(Symbol(word) for word in ("queue", "topic", "shared", "global") if word in rest) or None
        is_nobody = address == "nobody"
        is_dynamic = address == "temporary"
        place = None if is_nobody or is_dynamic else address
        if direction == "to":
            settled = "settled" in rest
            target = Target(address=place, dynamic=is_dynamic, capabilities=capabilities)
            attach = Attach(name=name, handle=0, role=False, snd_settle_mode=int(settled), source=Source(),
                            target=target, initial_delivery_count=0)  # fmt: skip
            sender = talker.session.attach_sender(attach)
            sender.send_settled = settled
            sender.end = address
            self.links[who, address] = sender
            return
        mode = int("second" in rest)
        size = int(options["size"]) if "size" in options else None
        selector = Described(Symbol("apache.org:selector-filter:string"), options.get("select", ""))
        source = Source(
            address=place, dynamic=is_dynamic, capabilities=capabilities, durable=2 if "durable" in rest else 0,
            distribution_mode=Symbol("copy") if "browse" in rest else None,
            expiry_policy=Symbol("never" if "durable" in rest else "session-end"),
            filter={Symbol("selector"): selector} if "select" in options else None,
            default_outcome=NAMED[options["default"]] if "default" in options else None,
        )  # fmt: skip
        priority = {Symbol("priority"): int(options["priority"])} if "priority" in options else None
        receiver = talker.session.attach_receiver(
            Attach(name=name, handle=0, role=True, snd_settle_mode=1 if "settled" in rest else 2, rcv_settle_mode=mode,
                   source=None if is_nobody else source, target=Target(), max_message_size=size, properties=priority)
        )  # fmt: skip
        receiver.max_message_size = 0
        receiver.end = address
        self.links[who, address] = receiver
        if mode:
            self.second.add(receiver)
        self.stage.run()
        if "credit" in options and receiver.is_attached:
            receiver.grant(int(options["credit"]))

    def publish(self, words: list[str]) -> None:
        who, address, *rest = words
        options = dict(word.split("=", 1) for word in rest if "=" in word)
        link = self.links[who, address]
        assert isinstance(link, SenderLink)
        count = int(options.get("count", 1))
        for number in range(count):
            if not link.is_attached or link.credit <= 0:
                self._say(f"{who} has no credit for {count - number} of {count}")
                return
            self.count += 1
            name = f"m{self.count}"
            body = f"{name}|".ljust(int(options.get("size", 0)), "x").encode()
            run = single(_message(body, options, is_durable="durable" in rest, is_jms="jms" in rest))
            if "txn" in options:
                txn_id = self.transactions.get(options["txn"], b"?")
                transactions.post(link, bytes(run.payload(0)), [name], txn_id)
            else:
                link.session.send_run(link, run, 0, 1, [name])

    def _coordinator(self, who: str) -> SenderLink:
        """The client's link to the coordinator, made when it is first used."""
        link = self.links.get((who, transactions.NAME))
        if link is None or not link.is_attached:
            session = self.talkers[who].session
            assert session is not None
            link = self.links[who, transactions.NAME] = session.attach_sender(transactions.coordinator_attach())
            link.end = transactions.NAME
            self.stage.run()
        assert isinstance(link, SenderLink)
        return link

    def declare(self, words: list[str]) -> None:
        who, name = words
        transactions.declare(self._coordinator(who), [name])

    def discharge(self, words: list[str], *, fail: bool) -> None:
        who, name = words
        transactions.discharge(self._coordinator(who), self.transactions.get(name, b"?"), [name], fail=fail)

    def credit(self, words: list[str]) -> None:
        who, address, count = words
        link = self.links[who, address]
        assert isinstance(link, ReceiverLink)
        link.grant(int(count))

    def drain(self, words: list[str]) -> None:
        who, address, count = words
        link = self.links[who, address]
        assert isinstance(link, ReceiverLink)
        link.credit = int(count)
        session = link.session
        session.send(
            Flow(next_incoming_id=wrap(session.next_incoming_id), incoming_window=2048, next_outgoing_id=0,
                 outgoing_window=2048, handle=link.handle, delivery_count=link.delivery_count, link_credit=link.credit,
                 drain=True)
        )  # fmt: skip
        self.stage.run()
        self._say(f"{who} has credit {link.credit} left on {address}")

    def outcome(self, words: list[str], state: Any) -> None:
        who, *names = words
        names = [name for name in names if name.startswith("m")]
        if len(names) + 1 < len(words):
            self._retire(who, names, words[-1] == "unsettled", _in_transaction(self.transactions, words, state))
            return
        for name in names:
            link, delivery_id = self.held.pop((who, name))
            if link in self.second:
                self.in_doubt[who, delivery_id] = name
                link.session.outcome(delivery_id, delivery_id, state)
            else:
                link.session.dispose(delivery_id, delivery_id, state, as_receiver=True)

    def _retire(self, who: str, names: list[str], is_unsettled: bool, state: TransactionalState) -> None:
        for name in names:
            link, delivery_id = self.held[who, name]
            if is_unsettled:
                self.in_doubt[who, delivery_id] = name
                link.session.outcome(delivery_id, delivery_id, state)
            else:
                link.session.dispose(delivery_id, delivery_id, state, as_receiver=True)

    def detach(self, words: list[str]) -> None:
        self.links[words[0], words[1]].detach()

    def suspend(self, words: list[str]) -> None:
        """Detach for now: what a durable subscription keeps is kept."""
        link = self.links[words[0], words[1]]
        link.move(LinkStateEvent.SENT_DETACH)
        link.session.send(Detach(handle=link.handle, closed=False))
        link.session.link_closed_here(link)

    def end(self, words: list[str]) -> None:
        session = self.talkers[words[0]].session
        assert session is not None
        session.end()

    def close(self, words: list[str]) -> None:
        self.talkers[words[0]].connection.close()

    def cut(self, words: list[str]) -> None:
        self.stage.drop(self.talkers[words[0]])

    def freeze(self, words: list[str]) -> None:
        self.talkers[words[0]].is_reading = False

    def thaw(self, words: list[str]) -> None:
        self.talkers[words[0]].read_again()

    def hold(self, words: list[str]) -> None:
        assert words == ["disk"]
        self.stage.is_disk_held = True

    def sync(self, words: list[str]) -> None:
        self.stage.is_disk_held = False

    def wait(self, words: list[str]) -> None:
        self.stage.wait(int(words[0]))

    def queues(self, words: list[str]) -> None:
        rows = self.stage.admin("queues")["queues"]
        for row in rows:
            self._say(
                f"queue {row['name']}: {row['message_count']} messages, {row['delivering_count']} in delivery, "
                f"{row['consumer_count']} consumers"
            )
        if not rows:
            self._say("no queues")


VERBS: dict[str, Callable[[Conversation, list[str]], None]] = {
    name: getattr(Conversation, name)
    for name in ("node", "connect", "attach", "publish", "credit", "drain", "detach", "suspend", "end", "close",
                 "freeze", "thaw", "hold", "sync", "wait", "queues", "declare")
}  # fmt: skip
VERBS |= {
    "accept": lambda talk, words: talk.outcome(words, Accepted()),
    "release": lambda talk, words: talk.outcome(words, Released()),
    "modify": lambda talk, words: talk.outcome(words, Modified(delivery_failed=True)),
    "reject": lambda talk, words: talk.outcome(words, Rejected(error=Error(condition=Symbol("amqp:decode-error")))),
    "settle": lambda talk, words: talk.outcome(words, None),
    "commit": lambda talk, words: talk.discharge(words, fail=False),
    "rollback": lambda talk, words: talk.discharge(words, fail=True),
    **remote.VERBS,
    "break": Conversation.cut,
    "crash": lambda talk, words: talk.stage.crash(),
    "start": lambda talk, words: talk.stage.start(),
    "stop": lambda talk, words: talk.stage.stop(),
}


def _named(outcome: Any) -> str:
    why = f" ({outcome.error.condition})" if isinstance(outcome, Rejected) and outcome.error else ""
    return f"{OUTCOMES[type(outcome)]}{why}"


def _in_transaction(known: dict[str, bytes], words: list[str], outcome: Any) -> TransactionalState:
    name = next(word.removeprefix("txn=") for word in words if word.startswith("txn="))
    return TransactionalState(txn_id=known.get(name, b"?"), outcome=outcome)


def _why(error: Error | None) -> str:
    return "" if error is None else f": {error.condition} ({error.description})"


def gathered(lines: list[str]) -> list[str]:
    """Lines that differ in their last part only become one."""
    merged: list[str] = []
    for line in lines:
        head, colon, tail = line.partition(": ")
        before = merged[-1] if merged else ""
        if colon and tail.startswith("m") and before.startswith(f"{head}: m"):
            merged[-1] = f"{before} {tail}"
        else:
            merged.append(line)
    return merged


def play(text: str) -> str:
    """The conversation with what comes of its commands now."""
    return played(text, Conversation().run)


def played(text: str, run: Callable[[str], list[str]]) -> str:
    """The text with what `run` says to each of its commands now, in the place of what is written."""
    blocks = []
    for block in text.strip().split("\n\n"):
        lines = block.split("\n")
        commands = lines[: lines.index(DASHES)] if DASHES in lines else lines
        came = [line for command in commands if not command.startswith("#") for line in run(command)]
        is_spoken = any(not command.startswith("#") for command in commands)
        blocks.append("\n".join(commands + ([DASHES, *came] if is_spoken else [])))
    return "\n\n".join(blocks) + "\n"
