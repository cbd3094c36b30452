"""When a message came, said in an annotation (`enable-ingress-timestamp`). Source: Artemis's `x-opt-ingress-time`.

Header, delivery annotations and the bare message stay byte for byte. One of this name that was there gives way.
"""

from __future__ import annotations

from mqbroker.base.errors import PeerFault
from mqbroker.core.queue.moved_message import INGRESS_TIME, made
from mqbroker.wire.run import Run, runs_of
from mqbroker.wire.scan import MESSAGE_ANNOTATIONS, scan_sections
from mqbroker.wire.sections import decode_annotations, encode_section
from mqbroker.wire.values import Long


def stamped(run: Run, now_ms: int) -> list[Run]:
    """The messages of the run with that annotation, as few runs as they can be."""
    payloads = [_stamped(bytes(run.payload(index)), now_ms) for index in range(run.count)]
    if run.large is not None:
        return [made(payload, run.large) for payload in payloads]
    return runs_of(payloads)


def _stamped(payload: bytes, now_ms: int) -> bytes:
    try:
        sections = scan_sections(payload, 0, len(payload))
        annotations = {}
        end = sections.bare
        if sections.message_annotations >= 0:
            end = sections.message_annotations
            annotations = dict(decode_annotations(payload, end, sections.end)[0])
    except PeerFault:
        return payload  # what cannot be read is passed on as it is
    annotations[INGRESS_TIME] = Long(now_ms)
    said = encode_section(MESSAGE_ANNOTATIONS, annotations)
    return b"".join((payload[:end], said, payload[sections.bare :]))
