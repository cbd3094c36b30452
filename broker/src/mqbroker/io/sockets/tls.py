"""TLS contexts of listeners and of connections to other nodes, and what a peer's certificate says.

Owns how files become a context. Invariant: a context is whole or not made at all; what is wrong is said with the
option, the file and the remedy, and no key is ever shown or asked for. Source: RFC 8446, RFC 5246; ssl of Python.
"""

from __future__ import annotations

import re
import ssl
from operator import itemgetter
from pathlib import Path
from typing import Any

from mqbroker.admin.certificates import lives_in
from mqbroker.amqp.certificate import Certificate
from mqbroker.base.errors import ConfigFault
from mqbroker.config.slices import BrokerOptions, ListenerOptions
from mqbroker.io.files import regular_files
from mqbroker.node.values.inputs import CertificateExpiry

FILE_BYTES_MAX = 1 << 20
ALTERNATIVE_NAMES = ("DNS", "email", "URI")
CLIENT_AUTH = {"none": ssl.CERT_NONE, "optional": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}
_BEGIN = re.compile(rb"-----BEGIN ((?:[A-Z0-9]+ )?CERTIFICATE)-----")


def context_of(listener: ListenerOptions, path: str) -> ssl.SSLContext | None:
    """The context of one listener, None where it has no TLS. Raises ConfigFault below `path` (`listeners.0`)."""
    if not listener.has_tls:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    # Connections live long: resuming sessions would win little, and would outlive a change of certificates.
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_TICKET | ssl.OP_CIPHER_SERVER_PREFERENCE
    context.num_tickets = 0
    context.sni_callback = _remember_name
    _load_own(context, listener, path)
    if listener.tls_client_ca_file:
        _load_ca(context, listener.tls_client_ca_file, f"{path}.tls-client-ca-file")
    context.verify_mode = CLIENT_AUTH[listener.tls_client_auth]
    if listener.tls_ciphers:
        try:
            context.set_ciphers(listener.tls_ciphers)
        except ssl.SSLError:
            why = f"{listener.tls_ciphers!r} names no cipher of this OpenSSL; see `openssl ciphers -v`"
            raise ConfigFault(f"{path}.tls-ciphers", why) from None
    return context


def endings_of(listener: ListenerOptions, path: str) -> tuple[CertificateExpiry, ...]:
    """When what `context_of` loads ends; connections that we open show and trust the same. Raises ConfigFault.

    A chain ends with the first of its certificates. Of several CAs the last one counts: those of the past may stay in
    the file, and each certificate that they signed has an end of its own.
    """
    if not listener.has_tls:
        return ()
    files = [("tls-certificate-file", listener.tls_certificate_file, min)]
    if listener.tls_client_ca_file:
        files.append(("tls-client-ca-file", listener.tls_client_ca_file, max))
    endings = []
    for option, file, choose in files:
        lives = lives_in(_certificates(file, f"{path}.{option}"))
        if lives:
            endings.append(CertificateExpiry(listener.name, option, file, *choose(lives, key=itemgetter(1))))
    return tuple(endings)


def files_of(listener: ListenerOptions) -> list[str]:
    """The files that `context_of` loads."""
    if not listener.has_tls:
        return []
    return [listener.tls_certificate_file, listener.tls_key_file, *filter(None, [listener.tls_client_ca_file])]


def dialling_context(listener: ListenerOptions | None, path: str) -> ssl.SSLContext:
    """The context of connections that we open: the other end's certificate must be good for its name.

    `listener`: whose certificate is ours there, and whose CA signs for the others. Raises ConfigFault below `path`.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # with the check of the host's name
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_TICKET
    if listener is not None and listener.has_tls:
        _load_own(context, listener, path)
    if listener is not None and listener.tls_client_ca_file:
        _load_ca(context, listener.tls_client_ca_file, f"{path}.tls-client-ca-file")
    else:
        context.load_default_certs(ssl.Purpose.SERVER_AUTH)
    return context


def _remember_name(tls: ssl.SSLObject, name: str | None, context: ssl.SSLContext) -> None:
    """Keep what a client asked for: afterwards Python does not tell."""
    tls.asked_for = name or ""  # type: ignore[attr-defined]


def server_name_of(tls: ssl.SSLObject) -> str:
    """The name of a server that a client asked for (SNI); empty where it asked for none."""
    return str(getattr(tls, "asked_for", ""))


def faults_of(options: BrokerOptions) -> list[ConfigFault]:
    """Everything that is wrong with the files of all listeners, one fault a listener."""
    faults = []
    for number, listener in enumerate(options.listeners):
        try:
            context_of(listener, f"listeners.{number}")
        except ConfigFault as fault:
            faults.append(fault)
    return faults


def _load_own(context: ssl.SSLContext, listener: ListenerOptions, path: str) -> None:
    # OpenSSL opens both files by their names, and would wait at a FIFO: that they are none is found out before.
    certificate_file, key_file = listener.tls_certificate_file, listener.tls_key_file
    at_certificate, at_key = f"{path}.tls-certificate-file", f"{path}.tls-key-file"
    _certificates(certificate_file, at_certificate)
    key = _content(key_file, at_key)
    if b"PRIVATE KEY-----" not in key:
        raise ConfigFault(at_key, f"{key_file} holds no private key in PEM form; convert or replace it")
    if b"ENCRYPTED" in key:
        why = f"{key_file} is encrypted, and nobody can enter its password; store it with `openssl pkey` and mode 0600"
        raise ConfigFault(at_key, why)
    try:
        # The password is never asked for on a terminal, whatever the file turns out to be.
        context.load_cert_chain(certificate_file, key_file, password=lambda: b"")
    except ssl.SSLError as fault:
        if fault.reason == "KEY_VALUES_MISMATCH":
            why = (
                f"{key_file} is not the key of the certificate in {certificate_file}; set the two that belong together"
            )
            raise ConfigFault(at_key, why) from None
        why = f"{certificate_file} with key {key_file} cannot be used ({reason_of(fault)}); make them anew"
        raise ConfigFault(at_certificate, why) from None


def _load_ca(context: ssl.SSLContext, file: str, path: str) -> None:
    content = _certificates(file, path)
    try:
        context.load_verify_locations(cadata=content.decode("ascii", "ignore"))
    except ssl.SSLError as fault:
        raise ConfigFault(path, f"{file} cannot be used ({reason_of(fault)}); it must be PEM certificates") from None
    if not context.cert_store_stats()["x509_ca"]:
        raise ConfigFault(path, f"{file} holds no certificate of a CA; name the file of those that sign for clients")


def _certificates(file: str, path: str) -> bytes:
    """The content of a file of certificates, in the form of RFC 7468."""
    content = _content(file, path)
    if why := form_fault(file, content):
        raise ConfigFault(path, why)
    return content


def form_fault(file: str, content: bytes) -> str:
    """What is wrong with how a file holds certificates; empty if nothing.

    OpenSSL takes older forms and one of its own in some places and passes them over in others: it would use one
    certificate where others see the next. The collection has the same rule (plugins/filter/certificate_faults.py).
    """
    kinds = _BEGIN.findall(content)
    if not kinds:
        return f"{file} holds no certificate in PEM form; convert or replace it"
    if kinds[0] != b"CERTIFICATE":
        return (
            f"{file} begins with a {kinds[0].decode()}, a form that only OpenSSL knows; convert each in it: "
            f"openssl x509 -in {file} -out NEW-FILE"
        )
    return ""


def _content(file: str, path: str) -> bytes:
    try:
        with regular_files.opened(Path(file)) as stream:
            content = stream.read(FILE_BYTES_MAX + 1)
    except OSError as fault:
        why = f"{file} cannot be read ({fault.strerror}); it must be a file that the broker's user may read"
        raise ConfigFault(path, why) from None
    if len(content) > FILE_BYTES_MAX:
        raise ConfigFault(path, f"{file} is larger than {FILE_BYTES_MAX} bytes; name the right file")
    return content


def certificate_of(tls: ssl.SSLObject) -> Certificate | None:
    """The names in the peer's certificate; None where it presented none, or nobody verified it."""
    try:
        presented: dict[str, Any] = tls.getpeercert() or {}
    except (ssl.SSLError, ValueError) as fault:
        # Text that is not what its type says, UTF-8 that is none: Python gives up on the whole certificate.
        return Certificate(unreadable=str(fault))
    if not presented:
        return None
    subject = [pair for part in presented.get("subject", ()) for pair in part]
    common = tuple(value for name, value in subject if name == "commonName")
    alternative = tuple(value for kind, value in presented.get("subjectAltName", ()) if kind in ALTERNATIVE_NAMES)
    return Certificate(common, alternative)


REASONS = {
    "CERTIFICATE_VERIFY_FAILED": "the peer's certificate is not good",
    "HTTP_REQUEST": "the peer speaks HTTP, not TLS",
    "KEY_TOO_SMALL": "a key is too short",
    "NO_SHARED_CIPHER": "no cipher that both sides have",
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "the peer presented no certificate, and tls-client-auth is required",
    "TLSV1_ALERT_UNKNOWN_CA": "the peer does not trust our certificate (unknown CA)",
    "UNSUPPORTED_PROTOCOL": "the peer has no version of TLS from 1.2 on",
    "WRONG_VERSION_NUMBER": "what the peer sent is no TLS",
}


def reason_of(fault: ssl.SSLError) -> str:
    """What went wrong, in words."""
    reason = fault.reason or ""
    said = REASONS.get(reason) or reason.lower().replace("_", " ") or str(fault)
    detail = getattr(fault, "verify_message", None)
    return f"{said}: {detail}" if detail else said
