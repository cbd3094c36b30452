"""When certificates end, and when that has to be said.

Owns what was said when; how much time is little is in config/lifetimes.py. Invariant: a certificate is told once a day
at most, and at once when it is another one or when it became worse. Only its life is read out of a certificate: that
it is good at all was OpenSSL's to say when it was loaded. Source: RFC 5280 §4.1 (structure), §4.1.2.5 (time), RFC 7468
(PEM).
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from mqbroker.base.notice import Level, Notice
from mqbroker.config.lifetimes import DAY_S, error_s, warning_s
from mqbroker.node.values.inputs import CertificateExpiry

REMEDY = "replace the file, as `mqctl tls rotate` and `mqctl rollout` do, and reload the broker"

_PEM = re.compile(rb"-----BEGIN CERTIFICATE-----([A-Za-z0-9+/=\s]*)-----END CERTIFICATE-----")
_VERSION, _UTC_TIME, _GENERALIZED_TIME = 0xA0, 0x17, 0x18
_SIZE_BYTES_MAX = 4


def lives_in(pem: bytes) -> list[tuple[int, int]]:
    """Begin and end of all certificates in a file, in their order and in seconds since 1970."""
    lives = (_life_of(match.group(1)) for match in _PEM.finditer(pem))
    return [life for life in lives if life is not None]


def _life_of(text: bytes) -> tuple[int, int] | None:
    """None where it is no certificate as RFC 5280 has it: what OpenSSL takes all the same has no end that we know."""
    try:
        return _validity(base64.b64decode(text))
    except (ValueError, IndexError):
        return None


def _validity(der: bytes) -> tuple[int, int]:
    _, at, _ = _value(der, 0)  # Certificate
    _, at, _ = _value(der, at)  # TBSCertificate
    tag, _, end = _value(der, at)
    at = end if tag == _VERSION else at
    for _ in ("serialNumber", "signature", "issuer"):
        _, _, at = _value(der, at)
    _, at, _ = _value(der, at)  # Validity
    not_before_s, at = _time(der, at)
    not_after_s, _ = _time(der, at)
    return not_before_s, not_after_s


def _time(der: bytes, at: int) -> tuple[int, int]:
    """Seconds since 1970, and where what follows begins."""
    tag, start, end = _value(der, at)
    if tag not in (_UTC_TIME, _GENERALIZED_TIME):
        raise ValueError("no time")
    text = der[start:end].decode("ascii")
    if tag == _UTC_TIME:
        text = ("20" if text < "50" else "19") + text
    return int(datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC).timestamp()), end


def _value(der: bytes, at: int) -> tuple[int, int, int]:
    """(tag, start of the content, its end) of the value that begins there. Raises ValueError or IndexError."""
    tag, size, start = der[at], der[at + 1], at + 2
    if size & 0x80:
        count = size & 0x7F
        if not 1 <= count <= _SIZE_BYTES_MAX:
            raise ValueError("no size of DER")
        size, start = int.from_bytes(der[start : start + count]), start + count
    if start + size > len(der):
        raise ValueError("cut off")
    return tag, start, start + size


def level_of(ending: CertificateExpiry, now_s: int) -> Level | None:
    """How bad it is; None where there is time enough."""
    left_s, life_s = ending.not_after_s - now_s, ending.not_after_s - ending.not_before_s
    if left_s < max(0, error_s(life_s)):
        return Level.ERROR
    return Level.WARNING if left_s < warning_s(life_s) else None


def row_of(ending: CertificateExpiry, now_s: int) -> dict[str, Any]:
    """What administrators are told of one."""
    level = level_of(ending, now_s)
    return {
        "listener": ending.listener,
        "option": ending.option,
        "file": ending.file,
        "not_after": f"{datetime.fromtimestamp(ending.not_after_s, UTC):%Y-%m-%dT%H:%M:%SZ}",
        "days_left": (ending.not_after_s - now_s) // DAY_S,
        "state": "ok" if level is None else level.name.lower(),
    }


class Warnings:
    """Which certificates were told of. Remembers those of the last look alone."""

    def __init__(self) -> None:
        self._told: dict[CertificateExpiry, tuple[Level, int]] = {}

    def due(self, endings: Iterable[CertificateExpiry], now_s: int) -> list[Notice]:
        """What to say of the certificates that are in use now."""
        before, self._told, notices = self._told, {}, []
        for ending in endings:
            level = level_of(ending, now_s)
            if level is None:
                continue
            told_level, told_s = before.get(ending, (None, 0))
            # A clock that was set back must not silence it until the old time comes again.
            if told_level == level and 0 <= now_s - told_s < DAY_S:
                self._told[ending] = (level, told_s)
                continue
            self._told[ending] = (level, now_s)
            notices.append(_notice(level, ending, now_s))
        return notices


def _notice(level: Level, ending: CertificateExpiry, now_s: int) -> Notice:
    fields = {name: value for name, value in row_of(ending, now_s).items() if name != "state"}
    return Notice(level, "certificate-expires", fields | {"remedy": REMEDY})
