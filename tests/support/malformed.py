"""What is sent as a message and is none, as the bytes behind its header section; and odd ones that are messages."""

from __future__ import annotations

from mqbroker.wire.composites import encode_composite
from mqbroker.wire.scan import SECTION_COUNT_MAX
from mqbroker.wire.sections import Header

HEADERS = {"durable": encode_composite(Header(durable=True)), "not durable": b""}


def section(code: int, value: bytes) -> bytes:
    """A section around an encoded value."""
    return bytes((0, 0x53, code)) + value


def composed(code: int, count: int, content: bytes) -> bytes:
    """A list, map or array of this format code, which is one of the wide ones."""
    return bytes((code,)) + (len(content) + 4).to_bytes(4, "big") + count.to_bytes(4, "big") + content


def listed(*values: bytes) -> bytes:
    """A list of encoded values."""
    return composed(0xD0, len(values), b"".join(values))


def mapped(*values: bytes) -> bytes:
    """A map of encoded keys and values, by turns."""
    return composed(0xD1, len(values), b"".join(values))


def nested(depth: int) -> bytes:
    """Lists in lists, `depth` of them."""
    value = b"\x45"
    for _ in range(depth - 1):
        value = listed(value)
    return value


BODY = section(0x75, b"\xa0\x04body")
PROPERTIES = section(0x73, listed(b"\xa1\x02id", b"\x40", b"\xa1\x06orders"))
NAMED = section(0x74, mapped(b"\xa1\x01k", b"\xa1\x01v"))
ANNOTATED = section(0x72, mapped(b"\xa3\x01k", b"\xa1\x01v"))
FOOTER = section(0x78, mapped(b"\xa3\x01k", b"\xa1\x01v"))
ONE = b"\0" * 7 + b"\1"  # of 64 bits
SYMBOL_80 = b"\xa3\x01\xc3"

# Maps that no dict can hold.
HELD_AS_BYTES = {
    "keys equal but for their type": mapped(b"\x54\x01", b"\x40", b"\x55\x01", b"\x41"),
    "true and 1": mapped(b"\x41", b"\x40", b"\x52\x01", b"\x41"),
    "1 and 1.0": b"\xc1\x0e\x04\x55\x01\x40\x82\x3f\xf0\0\0\0\0\0\0\x41",
    "text and a symbol": mapped(b"\xa1\x01k", b"\x40", b"\xa3\x01k", b"\x41"),
    "binary and a uuid": mapped(b"\xa0\x10" + bytes(16), b"\x40", b"\x98" + bytes(16), b"\x41"),
    "a list as key": mapped(b"\x45", b"\x40"),
    "a map as key": mapped(mapped(b"\x41", b"\x40"), b"\x40"),
    "a described value as key": b"\xc1\x06\x02\x00\x53\x01\x40\x40",
    "keys that are no dict's, further in": listed(mapped(b"\xa1\x01k", mapped(b"\x41", b"\x40", b"\x52\x01", b"\x41"))),
}  # fmt: skip

MALFORMED: dict[str, bytes] = {
    # sections: which, in which order, how many
    "properties behind the body": BODY + PROPERTIES,
    "two properties sections": PROPERTIES + PROPERTIES + BODY,
    "two application properties": NAMED + NAMED + BODY,
    "annotations behind properties": PROPERTIES + ANNOTATED + BODY,
    "a header behind annotations": ANNOTATED + section(0x70, b"\x45") + BODY,
    "an unknown section": section(0x79, b"\xa0\x01x") + BODY,
    "an unknown section by its name": b"\x00\xa3\x09amqp:what\xa0\x01x" + BODY,
    "no descriptor": b"\xa0\x04body",
    "a descriptor of another type": b"\x00\x71\x00\x00\x00\x75\xa0\x01x",
    "two values": section(0x77, b"\x40") * 2,
    "data and a value": BODY + section(0x77, b"\x40"),
    "a value and data": section(0x77, b"\x40") + BODY,
    "data and a sequence": BODY + section(0x76, b"\x45"),
    "two footers": BODY + FOOTER + FOOTER,
    "data behind the footer": BODY + FOOTER + BODY,
    "10,001 data sections": section(0x75, b"\xa0\x00") * 10_001,
    "bytes behind the body": BODY + b"\x00",
    # lengths
    "a body cut short": section(0x75, b"\xa0\x09body"),
    "a wide body cut short": section(0x75, b"\xb0\x00\x00\x00\x09body"),
    "a body without its size": section(0x75, b"\xb0\x00"),
    "a section without its value": b"\x00\x53\x75",
    "half a descriptor": b"\x00\x53",
    "a map cut short": section(0x74, b"\xc1\x20\x02\xa1\x01k\x40"),
    "a list longer than its values": section(0x73, b"\xc0\x05\x01\xa1\x01i\x40") + BODY,
    "a list of fewer values": section(0x73, composed(0xD0, 3, b"\x40")) + BODY,
    "a size below its count": section(0x73, b"\xd0\x00\x00\x00\x02\x00\x00\x00\x00") + BODY,
    "a value cut short in its map": section(0x74, mapped(b"\xa1\x01k", b"\xa1\x09v")) + BODY,
    # values of bodies
    "text that is not UTF-8": section(0x77, b"\xa1\x03a\xff\xfe"),
    "text that ends in a character": section(0x77, b"\xa1\x02a\xc3"),
    "text in a list that is not UTF-8": section(0x77, listed(b"\xa1\x01\xff")),
    "a surrogate in text": section(0x77, b"\xa1\x03\xed\xa0\x80"),
    "a symbol beyond ASCII": section(0x77, SYMBOL_80),
    "a boolean of 2": section(0x77, b"\x56\x02"),
    "a character that is none": section(0x77, b"\x73\x00\x11\x00\x00"),
    "an unknown format code": section(0x77, b"\xff"),
    "lists 33 deep": section(0x77, nested(34)),
    "descriptors 10,000 deep": section(0x77, b"\x00" * 10_000),
    "a map of an odd count": section(0x77, mapped(b"\xa1\x01k", b"\x40", b"\x40")),
    "an array of 2^32-1 nothings": section(0x77, b"\xf0\x00\x00\x00\x05\xff\xff\xff\xff\x40"),
    "an array without a constructor": section(0x77, b"\xe0\x01\x00"),
    "an array cut short": section(0x77, b"\xe0\x06\x03\x71\x00\x00\x00\x01"),
    "data that is text": section(0x75, b"\xa1\x04body"),
    "data that is null": section(0x75, b"\x40"),
    "a sequence that is a map": section(0x76, mapped(b"\xa1\x01k", b"\x40")),
    # values before the body
    "an int as key of application properties": section(0x74, mapped(b"\x54\x01", b"\x40")) + BODY,
    "a symbol as key of application properties": section(0x74, mapped(b"\xa3\x01k", b"\x40")) + BODY,
    "a null as key of application properties": section(0x74, mapped(b"\x40", b"\x40")) + BODY,
    "a key twice": section(0x74, mapped(b"\xa1\x01k", b"\x40", b"\xb1\x00\x00\x00\x01k", b"\x40")) + BODY,
    "a key twice in a map": section(0x74, mapped(
        b"\xa1\x01k", mapped(b"\x54\x01", b"\x40", b"\x54\x01", b"\x41"))) + BODY,
    "a key twice in a map, spelt in two ways": section(0x72, mapped(
        b"\xa3\x01k", mapped(b"\x54\x01", b"\x40", b"\x71\0\0\0\1", b"\x41"))) + BODY,
    "a list twice as key in a map": section(0x74, mapped(
        b"\xa1\x01k", mapped(b"\x45", b"\x40", b"\x45", b"\x41"))) + BODY,
    "a key twice in a map in a list": section(0x71, mapped(
        b"\xa3\x01k", listed(mapped(b"\x41", b"\x40", b"\x56\x01", b"\x41")))) + BODY,
    "a key twice in a map of an array": section(0x74, mapped(
        b"\xa1\x01k", b"\xe0\x08\x01\xc1\x05\x04\x41\x40\x41\x40")) + BODY,
    "a key twice in a map of many": section(0x74, mapped(
        b"\xa1\x01k", mapped(*[b"\x54\x01"] * 130))) + BODY,
    "a key that is not UTF-8": section(0x74, mapped(b"\xa1\x01\xff", b"\x40")) + BODY,
    "a property that is not UTF-8": section(0x74, mapped(b"\xa1\x01k", b"\xa1\x01\xff")) + BODY,
    "application properties as a list": section(0x74, b"\x45") + BODY,
    "application properties of null": section(0x74, b"\x40") + BODY,
    "a string as key of annotations": section(0x72, mapped(b"\xa1\x01k", b"\x40")) + BODY,
    "an int as key of delivery annotations": section(0x71, mapped(b"\x54\x01", b"\x40")) + BODY,
    "a number twice as a key": section(0x72, mapped(b"\x53\x01", b"\x40", b"\x80" + ONE, b"\x40")),
    "a string as key of a footer": BODY + section(0x78, mapped(b"\xa1\x01k", b"\x40")),
    "a symbol of annotations beyond ASCII": section(0x72, mapped(SYMBOL_80, b"\x40")) + BODY,
    "properties of 14 fields": section(0x73, listed(*[b"\x40"] * 14)) + BODY,
    "properties as a map": section(0x73, mapped()) + BODY,
    "a message-id that is a long": section(0x73, listed(b"\x55\x01")) + BODY,
    "a user-id that is text": section(0x73, listed(b"\x40", b"\xa1\x01u")) + BODY,
    "a subject that is a symbol": section(0x73, listed(b"\x40", b"\x40", b"\x40", b"\xa3\x01s")) + BODY,
    "a content-type that is text": section(0x73, listed(*[b"\x40"] * 6, b"\xa1\x01t")) + BODY,
    "a creation-time that is a ulong": section(0x73, listed(*[b"\x40"] * 9, b"\x53\x01")) + BODY,
    "a group-sequence that is an int": section(0x73, listed(*[b"\x40"] * 11, b"\x54\x01")) + BODY,
    "a `to` that is not UTF-8": section(0x73, listed(b"\x40", b"\x40", b"\xa1\x01\xff")) + BODY,
    "a property section cut in its field": section(0x73, listed(b"\xa1\x09id")) + BODY,
}  # fmt: skip

MESSAGES: dict[str, bytes] = {
    "data": BODY,
    "everything": section(0x71, mapped(b"\xa3\x01d", b"\x45")) + ANNOTATED + PROPERTIES + NAMED + BODY + FOOTER,
    "no body": PROPERTIES,
    "no body but a footer": NAMED + FOOTER,
    "sections by their names": b"\x00\xa3\x14amqp:properties:list\x45" + b"\x00\xa3\x10amqp:data:binary\xa0\x01x",
    "sections by whole numbers": b"\x00\x80" + b"\0" * 7 + b"\x75\xa0\x01x",
    "as many data sections as there may be": section(0x75, b"\xa0\x00") * SECTION_COUNT_MAX,
    "sequences": section(0x76, listed(b"\x40", b"\x41")) * 3,
    "an empty list of properties": section(0x73, b"\x45") + section(0x77, b"\x40"),
    "text": section(0x77, b"\xa1\x07\xc3\xa4sch\xc3\xa4"),
    "lists 32 deep": section(0x77, nested(33)),
    "a map of numbers that are alike": section(0x77, mapped(b"\x54\x01", b"\x40", b"\x55\x01", b"\x40")),
    "a map with lists as keys": section(0x77, mapped(b"\x45", b"\x40")),
    "a body with a key twice, which is its reader's": section(0x77, mapped(b"\x41", b"\x40", b"\x41", b"\x40")),
    **{f"{name} in a map before the body": section(0x74, mapped(b"\xa1\x01k", value)) + BODY
       for name, value in HELD_AS_BYTES.items()},
    "arrays": section(0x77, listed(b"\xe0\x06\x01\x71" + ONE[4:], b"\xe0\x05\x03\x56\x01\x00\x01")),
    "an array of described values": section(0x77, b"\xe0\x07\x02\x00\x53\x05\x50\x01\x02"),
    "a described value": section(0x77, b"\x00\xa3\x01d" + listed(b"\xa1\x01x")),
    "annotations under numbers": section(0x72, mapped(b"\x53\x01", listed(b"\x40"), b"\x44", b"\x40")) + BODY,
    "all kinds of ids": section(0x73, listed(b"\x98" + b"u" * 16, *[b"\x40"] * 4, b"\x44")),
    "a list in application properties": section(0x74, mapped(b"\xa1\x01k", b"\x45")) + BODY,
    "a map in application properties": section(0x74, mapped(b"\xa1\x01k", mapped())) + BODY,
    "an array in application properties": section(0x74, mapped(b"\xa1\x01k", b"\xe0\x02\x00\x71")) + BODY,
    "a described value in application properties": section(0x74, mapped(b"\xa1\x01k", b"\x00\x53\x01\x40")) + BODY,
    "expiry and group": section(0x73, listed(*[b"\x40"] * 8, b"\x83" + b"\x0f" * 8, b"\x40", b"\xa1\x01g", b"\x43")),
}  # fmt: skip
