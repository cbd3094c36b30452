"""Which user a certificate names, and which names are nobody's."""

from __future__ import annotations

import pytest
from mqbroker.amqp.certificate import Certificate, CertificateIdentity, identity_in

COMMON, ALTERNATIVE = "common-name", "subject-alternative-name"


@pytest.mark.parametrize(
    ("certificate", "user_from", "user"),
    [
        (Certificate(("app",), ("other", "one more")), COMMON, "app"),
        (Certificate(("a", "b"), ("app@example.org",)), ALTERNATIVE, "app@example.org"),
        (Certificate(("Jürgen",)), COMMON, "Jürgen"),
        (Certificate(("\u2168",)), COMMON, "IX"),
    ],
)
def test_exactly_one_name_of_the_chosen_kind_is_the_user(certificate: Certificate, user_from: str, user: str) -> None:
    assert identity_in(certificate, user_from) == CertificateIdentity(user)


@pytest.mark.parametrize(
    ("certificate", "user_from", "why"),
    [
        (Certificate((), ("app",)), COMMON, "has no common name, not one"),
        (Certificate(("app", "admin")), COMMON, "has 2 common names, not one"),
        (Certificate(("app",)), ALTERNATIVE, "has no alternative name (DNS, e-mail, URI), not one"),
        (Certificate((), ("a", "b", "c")), ALTERNATIVE, "has 3 alternative name"),
        (Certificate(("",)), COMMON, "is empty"),
        (Certificate(("app\x00.example.org",)), COMMON, "holds a control character"),
        (Certificate(("app\u202e",)), COMMON, "holds a character that changes display"),
        (Certificate(("x" * 5000,)), COMMON, "is longer than 1024 characters"),
        (Certificate(("app",), unreadable="invalid utf-8"), COMMON, "cannot be read (invalid utf-8)"),
    ],
)
def test_odd_names_are_nobodys_and_the_reason_is_short(certificate: Certificate, user_from: str, why: str) -> None:
    identity = identity_in(certificate, user_from)
    assert identity.user == ""
    assert why in identity.fault
    assert len(identity.fault) < 200
