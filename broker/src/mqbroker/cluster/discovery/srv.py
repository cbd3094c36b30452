"""Questions to a name server for SRV records, and its answers: bytes and values, no sockets.

Only what SRV needs of the form of messages is here. An answer is believed as far as its bytes go: names may point back
into the message, forwards never, and a bounded number of times. Source: RFC 1035 section 4, RFC 2782.
"""

from __future__ import annotations

import enum
import struct
from dataclasses import dataclass
from typing import Final

ANSWER_BYTES_MAX: Final = 65_535
TARGETS_MAX: Final = 256
_HEAD: Final = struct.Struct(">6H")
_TYPE_AND_CLASS: Final = struct.Struct(">2H")
_RECORD: Final = struct.Struct(">2HIH")
_SRV: Final = struct.Struct(">3H")
_TYPE_SRV: Final = 33
_CLASS_IN: Final = 1
_RECURSION_WANTED: Final = 0x0100
_IS_ANSWER: Final = 0x8000
_IS_CUT: Final = 0x0200
_CODE: Final = 0x000F
_POINTER: Final = 0xC0
_LABELS_MAX: Final = 128
_NAME_CHARACTERS_MAX: Final = 253
_NO_SUCH_NAME: Final = 3  # RFC 1035: an answer, and nobody is there
CODES: Final = {1: "it did not understand", 2: "it failed", 5: "it refused"}


class NoAnswer(Exception):
    """The bytes are no answer to the question, or say that the server has none; the text says which."""


class Truncated(enum.Enum):
    """The answer is longer than a datagram: ask again by TCP."""

    CUT = "cut"


@dataclass(frozen=True, slots=True)
class ServicePlace:
    """One place where the service is. Lower priorities come first."""

    priority: int
    weight: int
    port: int
    host: str


def question(number: int, name: str) -> bytes:
    """What is sent. `number` is random, 16 bits, so that nobody can answer who has not seen it."""
    labels = b"".join(bytes([len(label)]) + label.encode() for label in name.rstrip(".").split("."))
    head = _HEAD.pack(number, _RECURSION_WANTED, 1, 0, 0, 0)
    return head + labels + b"\0" + _TYPE_AND_CLASS.pack(_TYPE_SRV, _CLASS_IN)


def targets(asked: bytes, data: bytes) -> list[ServicePlace] | Truncated:
    """What an answer to `asked` says, by priority and then as it came. Raises NoAnswer, whatever the bytes are."""
    try:
        return _targets(asked, data)
    except (struct.error, IndexError, UnicodeDecodeError):
        raise NoAnswer("its answer is not well-formed") from None


def _targets(asked: bytes, data: bytes) -> list[ServicePlace] | Truncated:
    number, flags, questions, answers, _, _ = _HEAD.unpack_from(data)
    if number != _HEAD.unpack_from(asked)[0] or not flags & _IS_ANSWER:
        raise NoAnswer("its answer is to another question")
    if flags & _IS_CUT:
        return Truncated.CUT
    code = flags & _CODE
    if code not in (0, _NO_SUCH_NAME):
        raise NoAnswer(CODES.get(code, f"it answered with code {code}"))
    if questions != 1 or data[_HEAD.size : len(asked)].lower() != asked[_HEAD.size :].lower():
        raise NoAnswer("its answer is to another question")
    if code == _NO_SUCH_NAME:
        return []
    places, offset = [], len(asked)
    for _ in range(min(answers, TARGETS_MAX)):
        _, offset = _name(data, offset)
        kind, group, _, size = _RECORD.unpack_from(data, offset)
        offset += _RECORD.size
        if (kind, group) == (_TYPE_SRV, _CLASS_IN):
            priority, weight, port = _SRV.unpack_from(data, offset)
            host, _ = _name(data, offset + _SRV.size)
            if host and port:  # a target of "." says that there is no such service
                places.append(ServicePlace(priority, weight, port, host))
        offset += size
    return sorted(places, key=lambda one: one.priority)


def _name(data: bytes, offset: int) -> tuple[str, int]:
    """A name, and where what follows it begins."""
    labels: list[str] = []
    after = 0
    for _ in range(_LABELS_MAX):
        size = data[offset]
        if size == 0:
            return _checked(".".join(labels)), after or offset + 1
        if size & _POINTER == _POINTER:
            after = after or offset + 2
            back = (size & ~_POINTER) << 8 | data[offset + 1]
            if back >= offset:
                raise NoAnswer("its answer is not well-formed")
            offset = back
        elif size & _POINTER:
            raise NoAnswer("its answer is not well-formed")
        else:
            labels.append(data[offset + 1 : offset + 1 + size].decode("ascii"))
            offset += 1 + size
    raise NoAnswer("its answer is not well-formed")


def _checked(name: str) -> str:
    if len(name) > _NAME_CHARACTERS_MAX or not all(each.isalnum() or each in "._-" for each in name):
        raise NoAnswer("its answer has a name that is none")
    return name
