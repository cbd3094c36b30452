"""The mark on the first message of a group that a consumer gets: an application property, as in Artemis.

It stands in the copy that goes out and nowhere else; the message itself stays as it was sent.
"""

from __future__ import annotations

from typing import Any

from mqbroker.base.errors import PeerFault
from mqbroker.wire.scan import APPLICATION_PROPERTIES, scan_sections
from mqbroker.wire.sections import decode_application_properties, encode_section


def marked(payload: bytes, key: str) -> bytes:
    """A message with this property set; one that cannot be read stays as it is."""
    try:
        sections = scan_sections(payload, 0, len(payload))
        named: dict[str, Any] = {}
        begin = end = next((at for at in (sections.body, sections.footer) if at >= 0), sections.end)
        if sections.application_properties >= 0:
            begin = sections.application_properties
            named, end = decode_application_properties(payload, begin, sections.end)
    except PeerFault:
        return payload
    return payload[:begin] + encode_section(APPLICATION_PROPERTIES, {**named, key: True}) + payload[end:]
