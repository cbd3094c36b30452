"""Certificates made with EC keys on P-256: a CA of a cluster, and what it signs for nodes.

Time is an input. A CA signs nodes and nothing else (path length 0, keyCertSign and cRLSign alone), and only names
within its name constraints, where it has some. A node's certificate is good for both ends of a connection, because
nodes connect to each other. Source: RFC 5280.
"""

from __future__ import annotations

import datetime
import ipaddress
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from mqctl.errors import CommandError, UsageError

ORGANISATION = "mqops"
COMMON_NAME_CHARACTERS_MAX = 64  # RFC 5280, ub-common-name
# Clocks of hosts may be behind that of the control node.
BACKDATED = datetime.timedelta(hours=1)
DNS_NAME = re.compile(r"(?!-)[A-Za-z0-9_-]{1,63}(\.(?!-)[A-Za-z0-9_-]{1,63})*")

SubjectName = x509.DNSName | x509.IPAddress


@dataclass(frozen=True, slots=True)
class Issuer:
    """A CA that can sign: its certificate and its key."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey = field(repr=False)


@dataclass(frozen=True, slots=True)
class Span:
    """How long a certificate is good."""

    now: datetime.datetime
    days: int

    @property
    def end(self) -> datetime.datetime:
        """The last moment at which the certificate is good."""
        return self.now + datetime.timedelta(days=self.days)


def new_authority(cluster: str, span: Span, permitted: Sequence[str] = ()) -> Issuer:
    """A CA that signs itself. `permitted`: the only domains and networks that it may sign for; none: all."""
    key = ec.generate_private_key(ec.SECP256R1())
    serial = x509.random_serial_number()
    # Two CAs of one cluster overlap while they are changed, so each has a name of its own.
    name = _subject(f"{cluster} CA {serial >> 96:016x}"[:COMMON_NAME_CHARACTERS_MAX])
    builder = (
        _builder(name, name, span.end, span, serial)
        .public_key(key.public_key())
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(is_ca=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )
    if permitted:
        builder = builder.add_extension(x509.NameConstraints([constraint(one) for one in permitted], None), True)
    return Issuer(builder.sign(key, hashes.SHA256()), key)


def issue(issuer: Issuer, common_name: str, names: Iterable[str], span: Span) -> Issuer:
    """A node's certificate with a new key. It does not outlive the CA."""
    wanted = [general_name(one) for one in names]
    for one in wanted:
        if not permits(issuer.certificate, one):
            raise CommandError(
                f"{common_name}: the CA may not sign for {one.value}; it was made with --permit",
                "mqctl tls rotate --ca begin --permit …",
            )
    key = ec.generate_private_key(ec.SECP256R1())
    end = min(span.end, issuer.certificate.not_valid_after_utc)
    subject = _subject(common_name[:COMMON_NAME_CHARACTERS_MAX])
    certificate = (
        _builder(subject, issuer.certificate.subject, end, span, x509.random_serial_number())
        .public_key(key.public_key())
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(is_ca=False), critical=True)
        .add_extension(
            x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False
        )
        .add_extension(x509.SubjectAlternativeName(wanted), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer.key.public_key()), critical=False
        )
        .sign(issuer.key, hashes.SHA256())
    )  # fmt: skip
    return Issuer(certificate, key)


def _builder(
    subject: x509.Name, issuer: x509.Name, end: datetime.datetime, span: Span, serial: int
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .serial_number(serial)
        .not_valid_before(span.now - BACKDATED)
        .not_valid_after(end)
    )


def _subject(common_name: str) -> x509.Name:
    return x509.Name(
        [
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, ORGANISATION),
            x509.NameAttribute(NameOID.COMMON_NAME, common_name),
        ]
    )


def _usage(*, is_ca: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not is_ca,
        key_cert_sign=is_ca,
        crl_sign=is_ca,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def general_name(text: str) -> SubjectName:
    """An address or a DNS name as certificates have it."""
    try:
        return x509.IPAddress(ipaddress.ip_address(text))
    except ValueError:
        if not DNS_NAME.fullmatch(text):
            raise UsageError(f"{text} is neither an IP address nor a DNS name", "mqctl inventory check") from None
        return x509.DNSName(text)


def constraint(text: str) -> SubjectName:
    """What --permit says: a network, or a domain with everything below it."""
    try:
        return x509.IPAddress(ipaddress.ip_network(text))
    except ValueError:
        domain = text.removeprefix(".")
        if "/" in text or not DNS_NAME.fullmatch(domain):
            raise UsageError(
                f"--permit {text}: is neither a network nor a domain", "--permit 192.0.2.0/24 --permit mq.example.org"
            ) from None
        return x509.DNSName(domain)


def permits(authority: x509.Certificate, name: SubjectName) -> bool:
    """Whether name constraints of the CA let it sign for a name (RFC 5280 §4.2.1.10): per kind, any one must match."""
    try:
        permitted = authority.extensions.get_extension_for_class(x509.NameConstraints).value.permitted_subtrees or []
    except x509.ExtensionNotFound:
        return True
    same_kind = [one.value for one in permitted if isinstance(one, type(name))]
    return not same_kind or any(_within(name, one) for one in same_kind)


def _within(name: SubjectName, area: object) -> bool:
    if isinstance(name, x509.DNSName):
        host, domain = name.value.lower(), str(area).lower()
        return host == domain or host.endswith(f".{domain}")
    return isinstance(area, ipaddress.IPv4Network | ipaddress.IPv6Network) and name.value in area


def names_of(certificate: x509.Certificate) -> tuple[str, ...]:
    """Its alternative names as text, in their order."""
    try:
        extension = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return ()
    return tuple(str(one.value) for one in extension)


def is_signed_by(certificate: x509.Certificate, authority: x509.Certificate) -> bool:
    """Whether that CA signed it."""
    try:
        certificate.verify_directly_issued_by(authority)
    except (InvalidSignature, ValueError, TypeError):
        return False
    return True
