"""Large messages through a stage: who sends and consumes them, and what is left of them."""

from __future__ import annotations

import random
from typing import Any

from mqbroker.amqp import events as told
from mqbroker.wire.performatives import (
    Accepted,
    Attach,
    Open,
    Source,
    Target,
    Transfer,
)
from mqbroker.wire.run import single
from mqbroker.wire.sections import body_values, build_message, decode_header, scan_sections

from tests.support import frames
from tests.support.stage import Stage, options_with

SIZE_MIN = 2000
BIG = 40_000


def stage_of(frame_size: int = 1024, **tables: Any) -> Stage:
    always = {"amqp_min_large_message_size_bytes": SIZE_MIN, "large_message_in_memory_max_size_bytes": 0}
    tables["limits"] = always | tables.get("limits", {})
    return Stage(options_with(listener={"max_frame_size_bytes": frame_size}, **tables))


def content(number: int, size: int = BIG) -> bytes:
    return random.Random(number).randbytes(size)


class Producer:
    def __init__(self, stage: Stage, name: str = "producer", address: str = "orders", *, settled: bool = False) -> None:
        self.stage = stage
        self.talker = stage.connect(name)
        assert self.talker.session is not None
        self.link = self.talker.session.attach_sender(
            Attach(name=name, handle=0, role=False, snd_settle_mode=int(settled), source=Source(),
                   target=Target(address=address), initial_delivery_count=0)
        )  # fmt: skip
        self.link.send_settled = settled
        stage.run()

    def send(self, body: bytes, **said: Any) -> None:
        """Into the connection; `stage.run` brings it to the node."""
        payload = build_message(body, **{"durable": True, **said})
        assert self.link.session.send_run(self.link, single(payload), 0, 1, len(body)) == 1

    def publish(self, body: bytes, **said: Any) -> None:
        self.send(body, **said)
        self.stage.run()

    @property
    def outcomes(self) -> list[Any]:
        return [event.outcome for event in self.talker.events if isinstance(event, told.Settled) for _ in event.taken]


class Consumer:
    def __init__(self, stage: Stage, name: str = "consumer", address: str | None = "orders", credit: int = 10,
                 frame_size: int = 65536, **fields: Any) -> None:  # fmt: skip
        self.stage = stage
        self.talker = stage.connect(name, open_=Open(container_id=name, max_frame_size=frame_size))
        assert self.talker.session is not None
        filters = fields.pop("filter", None)
        self.link = self.talker.session.attach_receiver(
            Attach(name=name, handle=0, role=True, source=Source(address=address, filter=filters,
                                                                 **fields.pop("source", {})),
                   target=Target(), **fields)
        )  # fmt: skip
        stage.run()
        if credit:
            self.link.grant(credit)
            stage.run()

    @property
    def incoming(self) -> list[told.Incoming]:
        return [event for event in self.talker.events if isinstance(event, told.Incoming)]

    @property
    def bodies(self) -> list[bytes]:
        return [body_in(bytes(event.run.payload(index))) for event in self.incoming for index in range(event.run.count)]

    def settle(self, number: int, outcome: Any = None) -> None:
        delivery_id = [event.delivery_id + place for event in self.incoming for place in range(event.run.count)][number]
        self.link.session.dispose(delivery_id, delivery_id, outcome or Accepted(), as_receiver=True)
        self.stage.run()


def body_in(payload: bytes) -> bytes:
    return b"".join(body_values(payload, scan_sections(payload, 0, len(payload)))[1])


def is_clean(stage: Stage) -> bool:
    """No file, and nobody who thinks that there is one."""
    broker = stage.broker
    return not stage.large_files.sizes and not broker.store.large.count and not broker.large.downloads


def pieces(payload: bytes, size: int, *, end: int | None = None, number: int = 0, handle: int = 0) -> bytes:
    """The transfers of a message; `end`: only the first so many bytes, without the last transfer."""
    found = b""
    for at in range(0, len(payload) if end is None else end, size):
        first: dict[str, Any] = {"delivery_id": number, "delivery_tag": b"t", "message_format": 0} if not at else {}
        found += frames.frame(Transfer(handle=handle, more=at + size < len(payload), **first), payload[at : at + size])
    return found


def restart(stage: Stage) -> None:
    stage.crash()
    stage.start()


def header_of(event: told.Incoming) -> Any:
    payload = bytes(event.run.payload(0))
    return decode_header(payload, 0, len(payload))[0]
