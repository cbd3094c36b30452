"""An announcement as the content of a file: a datagram, written so that people and `jq` can read it.

    {"version":1,"mac":"…","announcement":{…}}

The announcement stands in it byte for byte as in the datagram, since the MAC is over these bytes. Whatever else a file
holds becomes a datagram that its reader drops, with the reason that fits. Source: ADR 0010.
"""

from __future__ import annotations

import re
import struct
from typing import Final

from mqbroker.cluster.discovery.announcement import from_json
from mqbroker.cluster.discovery.datagram import DATAGRAM_BYTES_MAX, MAC_BYTES, MAGIC

NOTE_BYTES_MAX: Final = DATAGRAM_BYTES_MAX + 200
NAME: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\.json")
_HEAD: Final = struct.Struct(">4sBH")
_FORM: Final = re.compile(rb'\{"version":([0-9]{1,3}),"mac":"([0-9a-f]{64})","announcement":(\{.*\})\}\n', re.DOTALL)


def file_name(datagram: bytes) -> str:
    """The file of whom a good datagram announces."""
    return f"{from_json(datagram[_HEAD.size : -MAC_BYTES]).node_id}.json"


def to_note(datagram: bytes) -> bytes:
    """The content of the file that says what a good datagram says."""
    _, version, _ = _HEAD.unpack_from(datagram)
    said, mac = datagram[_HEAD.size : -MAC_BYTES], datagram[-MAC_BYTES:]
    return b'{"version":%d,"mac":"%s","announcement":%s}\n' % (version, mac.hex().encode(), said)


def to_datagram(note: bytes) -> bytes:
    """The way back. Nothing is checked here: the datagram is, as all are."""
    parts = _FORM.fullmatch(note)
    if parts is None:
        return note
    version, said = int(parts[1]), parts[3]
    if version > 255 or len(said) > 0xFFFF:
        return note
    return _HEAD.pack(MAGIC, version, len(said)) + said + bytes.fromhex(parts[2].decode())
