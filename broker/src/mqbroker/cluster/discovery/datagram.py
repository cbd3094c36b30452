"""A datagram of discovery: head, announcement, MAC.

    magic 4 | version 1 | length of the JSON 2 | JSON, at most 1400 | HMAC-SHA256 over all before it, 32

Nothing of a datagram is believed before its length, its version and its MAC are right, in this order: a multicast
group hears whoever is on the wire. Source: docs/adr/0010-discovery.md.
"""

from __future__ import annotations

import enum
import hashlib
import hmac
import struct
from typing import Final

from mqbroker.base.errors import Bug
from mqbroker.cluster.discovery.announcement import JSON_BYTES_MAX, Announcement, MalformedField, from_json, to_json

MAGIC: Final = b"MQDG"
PROBE_MAGIC: Final = b"MQPF"  # `mqctl preflight` looks who hears whom, also while brokers run
VERSION: Final = 1
_HEAD: Final = struct.Struct(">4sBH")
MAC_BYTES: Final = 32
DATAGRAM_BYTES_MAX: Final = _HEAD.size + JSON_BYTES_MAX + MAC_BYTES

# What the secret is stretched with: whoever records datagrams can try secrets against their MACs.
_SALT: Final = b"mqbroker discovery 1"
_ITERATIONS: Final = 100_000


class Drop(enum.Enum):
    """Why a datagram was dropped; the values are those of the metrics' label `reason`."""

    LENGTH = "length"
    MAGIC = "magic"
    VERSION = "version"
    MAC = "mac"
    CONTENT = "content"
    OWN = "own"
    OWN_ID = "own-id"
    REPLAYED = "replayed"
    EARLIER_BOOT = "earlier-boot"
    YIELDED = "yielded"
    FULL = "full"
    PROBE = "probe"


def derive_key(secret: str) -> bytes:
    """The key of all MACs of a cluster. Takes some ten ms, once a process."""
    return hashlib.pbkdf2_hmac("sha256", secret.encode(), _SALT, _ITERATIONS)


def seal(announcement: Announcement, key: bytes) -> bytes:
    """The datagram that says this."""
    text = to_json(announcement)
    if len(text) > JSON_BYTES_MAX:
        raise Bug(f"an announcement has {len(text)} bytes, and a datagram holds {JSON_BYTES_MAX}")
    head = _HEAD.pack(MAGIC, VERSION, len(text))
    return head + text + hmac.digest(key, head + text, "sha256")


def unseal(data: bytes, key: bytes) -> Announcement | Drop:
    """What a datagram says, or why it is dropped. Never raises."""
    if len(data) < _HEAD.size:
        return Drop.LENGTH
    magic, version, length = _HEAD.unpack_from(data)
    if magic != MAGIC:
        return Drop.PROBE if magic == PROBE_MAGIC else Drop.MAGIC
    if version != VERSION:
        return Drop.VERSION
    if length > JSON_BYTES_MAX or len(data) != _HEAD.size + length + MAC_BYTES:
        return Drop.LENGTH
    signed, mac = data[:-MAC_BYTES], data[-MAC_BYTES:]
    if not hmac.compare_digest(hmac.digest(key, signed, "sha256"), mac):
        return Drop.MAC
    try:
        return from_json(signed[_HEAD.size :])
    except MalformedField:
        return Drop.CONTENT
