"""When certificates end: what is read out of them, and when it is told."""

from __future__ import annotations

import base64
from datetime import UTC, datetime

import pytest
import trustme
from hypothesis import given
from hypothesis import strategies as some
from mqbroker.admin.certificates import Warnings, level_of, lives_in
from mqbroker.base.notice import Level
from mqbroker.config.lifetimes import DAY_S
from mqbroker.node.values.inputs import CertificateExpiry

NOW_S = 1_800_000_000
UTC_TIME, GENERALIZED_TIME = 0x17, 0x18


def der(tag: int, content: bytes) -> bytes:
    size = len(content)
    if size < 0x80:
        return bytes([tag, size]) + content
    length = size.to_bytes((size.bit_length() + 7) // 8, "big")
    return bytes([tag, 0x80 | len(length)]) + length + content


def pem(content: bytes) -> bytes:
    return b"-----BEGIN CERTIFICATE-----\n" + base64.encodebytes(content) + b"-----END CERTIFICATE-----\n"


def certificate(tag: int, text: bytes, version: bytes = b"") -> bytes:
    """As much of one as stands around its end."""
    validity = der(0x30, der(UTC_TIME, b"200101000000Z") + der(tag, text))
    before = der(0x02, b"\x01") + der(0x30, b"") + der(0x30, bytes(300))
    return der(0x30, der(0x30, version + before + validity) + bytes(4))


def seconds(*parts: int) -> int:
    return int(datetime(*parts, tzinfo=UTC).timestamp())  # type: ignore[arg-type,misc]


def test_the_lives_of_a_file_come_in_their_order_whatever_stands_between() -> None:
    # From 2050 on a certificate says its times in another form.
    begins = [datetime(2048, 2, 29, 1, 2, 3, tzinfo=UTC), datetime(2050, 1, 1, tzinfo=UTC)]
    ends = [datetime(2049, 12, 31, 23, 59, 59, tzinfo=UTC), datetime(2050, 1, 2, tzinfo=UTC)]
    ca = trustme.CA()
    lives = list(zip(begins, ends, strict=True))
    made = [ca.issue_cert("x.example.org", not_before=begin, not_after=end) for begin, end in lives]
    file = b"# mine\n".join([made[0].private_key_and_cert_chain_pem.bytes(), made[1].cert_chain_pems[0].bytes()])
    assert lives_in(file) == [(int(begin.timestamp()), int(end.timestamp())) for begin, end in lives]


BEGIN = seconds(2020, 1, 1)
VERSION_3 = der(0xA0, der(0x02, b"\x02"))


@pytest.mark.parametrize(
    ("content", "end"),
    [
        (certificate(UTC_TIME, b"310203040506Z", VERSION_3), seconds(2031, 2, 3, 4, 5, 6)),
        (certificate(UTC_TIME, b"310203040506Z"), seconds(2031, 2, 3, 4, 5, 6)),  # version 1 is not written down
        (certificate(UTC_TIME, b"500101000000Z"), seconds(1950, 1, 1)),
        (certificate(GENERALIZED_TIME, b"99991231235959Z"), seconds(9999, 12, 31, 23, 59, 59)),
    ],
)
def test_ends(content: bytes, end: int) -> None:
    assert lives_in(pem(content)) == [(BEGIN, end)]


@pytest.mark.parametrize(
    "content",
    [
        b"", b"\x30", b"\x30\x80", b"\x30\x85\x01\x01\x01\x01\x01", b"\x30\x82\x01",
        certificate(UTC_TIME, b"311303040506Z"), certificate(UTC_TIME, b"31020304050\xff"),
        certificate(0x04, b"310203040506Z"), certificate(UTC_TIME, b"310203040506Z")[:-5],
    ],
)  # fmt: skip
def test_what_is_no_certificate_has_no_end_and_hides_no_other(content: bytes) -> None:
    good = pem(certificate(UTC_TIME, b"310203040506Z"))
    assert lives_in(pem(content)) == []
    assert lives_in(good + pem(content) + good) == [(BEGIN, seconds(2031, 2, 3, 4, 5, 6))] * 2


@pytest.mark.slow
@given(some.binary(max_size=400), some.integers(0, 340), some.binary(max_size=4))
def test_any_bytes_are_an_end_or_none(noise: bytes, at: int, patch: bytes) -> None:
    good = certificate(UTC_TIME, b"310203040506Z", VERSION_3)
    for content in (noise, good[:at] + patch + good[at + len(patch) :], good[:at]):
        assert len(lives_in(pem(content))) <= 1


@pytest.mark.parametrize("life_days", [90, 365, 36_500])
@pytest.mark.parametrize(
    ("left_s", "level"),
    [
        (30 * DAY_S, None), (30 * DAY_S - 1, Level.WARNING), (7 * DAY_S, Level.WARNING),
        (7 * DAY_S - 1, Level.ERROR), (0, Level.ERROR), (-1, Level.ERROR), (-400 * DAY_S, Level.ERROR),
    ],
)  # fmt: skip
def test_levels_of_a_long_life_go_by_days(life_days: int, left_s: int, level: Level | None) -> None:
    assert level_of(life(life_days, left_s), NOW_S) is level


@pytest.mark.parametrize("life_days", [1, 6, 24, 72])
def test_levels_of_a_short_life_go_by_what_part_of_it_is_left(life_days: int) -> None:
    third_s, twelfth_s = life_days * DAY_S // 3, life_days * DAY_S // 12
    looked = {left_s: level_of(life(life_days, left_s), NOW_S) for left_s in (
        life_days * DAY_S, third_s, third_s - 1, twelfth_s, twelfth_s - 1, 0, -1
    )}  # fmt: skip
    assert list(looked.values()) == [None, None, Level.WARNING, Level.WARNING, Level.ERROR, Level.ERROR, Level.ERROR]


def life(days: int, left_s: int, listener: str = "clients") -> CertificateExpiry:
    end_s = NOW_S + left_s
    return CertificateExpiry(listener, "tls-certificate-file", "/c.pem", end_s - days * DAY_S, end_s)


def test_what_ended_before_it_began_has_ended() -> None:
    assert level_of(life(-10, -1), NOW_S) is Level.ERROR


def ending(days: int, listener: str = "clients") -> CertificateExpiry:
    return life(365, days * DAY_S, listener)


def test_a_notice_says_which_file_when_and_what_to_do() -> None:
    (notice,) = Warnings().due([ending(5)], NOW_S)
    assert (notice.level, notice.event) == (Level.ERROR, "certificate-expires")
    assert notice.fields | {"remedy": ""} == {
        "listener": "clients",
        "option": "tls-certificate-file",
        "file": "/c.pem",
        "not_after": "2027-01-20T08:00:00Z",
        "days_left": 5,
        "remedy": "",
    }
    assert "mqctl tls rotate" in str(notice.fields["remedy"])


def test_it_is_told_once_a_day_however_often_it_is_looked_at() -> None:
    warnings = Warnings()
    told = [at for at in range(0, 3 * DAY_S, 3600) if warnings.due([ending(20), ending(90)], NOW_S + at)]
    assert told == [0, DAY_S, 2 * DAY_S]


def test_what_became_worse_is_told_at_once() -> None:
    warnings = Warnings()
    levels = [[one.level for one in warnings.due([ending(8)], NOW_S + at)] for at in (0, DAY_S, DAY_S + 1, DAY_S + 2)]
    assert levels == [[Level.WARNING], [Level.WARNING], [Level.ERROR], []]


def test_another_certificate_is_told_at_once_and_one_that_is_good_ends_it() -> None:
    warnings = Warnings()
    assert len(warnings.due([ending(20), ending(20, "cluster")], NOW_S)) == 2
    assert len(warnings.due([ending(21), ending(20, "cluster")], NOW_S)) == 1
    assert warnings.due([ending(400), ending(400, "cluster")], NOW_S) == []
    assert len(warnings.due([ending(20)], NOW_S)) == 1, "the old one is back"


def test_a_clock_that_is_set_back_does_not_silence_it() -> None:
    warnings = Warnings()
    warnings.due([ending(0)], NOW_S)
    assert len(warnings.due([ending(0)], NOW_S - 100 * DAY_S)) == 0, "there is time enough again"
    warnings.due([ending(0)], NOW_S)
    assert len(warnings.due([ending(0)], NOW_S - DAY_S)) == 1
