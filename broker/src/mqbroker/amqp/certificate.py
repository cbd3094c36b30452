"""Whom a client's certificate stands for (SASL EXTERNAL, RFC 4422 appendix A; names of X.509: RFC 5280 §4.2.1.6).

TLS has verified the certificate; here is decided which user it names. Invariant: exactly one name of the chosen kind
that could be a user's, or nobody. Whatever is odd is told, never guessed.
"""

from __future__ import annotations

from dataclasses import dataclass

from mqbroker.base.errors import ConfigFault
from mqbroker.config.users import user_name

SHOWN_CHARACTERS_MAX = 60


@dataclass(frozen=True, slots=True)
class Certificate:
    """The names in a verified certificate, as they stand there. `unreadable`: why they could not be read."""

    common_names: tuple[str, ...] = ()
    alternative_names: tuple[str, ...] = ()
    unreadable: str = ""


@dataclass(frozen=True, slots=True)
class CertificateIdentity:
    """The prepared name of the user, or why there is none."""

    user: str
    fault: str = ""


def identity_in(certificate: Certificate, user_from: str) -> CertificateIdentity:
    """The user that the certificate names. `user_from`: common-name or subject-alternative-name."""
    if certificate.unreadable:
        return CertificateIdentity("", f"the names in the certificate cannot be read ({certificate.unreadable})")
    is_common = user_from == "common-name"
    names = certificate.common_names if is_common else certificate.alternative_names
    kind = "common name" if is_common else "alternative name (DNS, e-mail, URI)"
    if len(names) != 1:
        return CertificateIdentity(
            "", f"the certificate has {len(names) or 'no'} {kind}{'s' if len(names) > 1 else ''}, not one"
        )
    try:
        return CertificateIdentity(user_name(names[0]))
    except ConfigFault as fault:
        return CertificateIdentity(
            "", f"the {kind} {names[0][:SHOWN_CHARACTERS_MAX]!r} cannot be a user's: it {fault.why}"
        )
