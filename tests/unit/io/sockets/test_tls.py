"""Contexts from files: what is wrong is named with its option, its file and the remedy."""

from __future__ import annotations

import os
import ssl
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)
from mqbroker.base.errors import ConfigFault
from mqbroker.config.declarations.options import default_listener, defaults
from mqbroker.config.slices import ListenerOptions
from mqbroker.io.sockets.tls import context_of, endings_of, faults_of

from tests.support.certificates import Authority


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "ca")


def listener(authority: Authority, client_auth: str = "none", **changes: Any) -> ListenerOptions:
    values = {name.replace("-", "_"): value for name, value in authority.listener(client_auth).items()}
    return replace(default_listener(), **{**values, **changes})


def fault_of(options: ListenerOptions) -> ConfigFault:
    with pytest.raises(ConfigFault) as caught:
        context_of(options, "listeners.0")
    return caught.value


def test_a_listener_without_a_certificate_has_no_context() -> None:
    assert context_of(default_listener(), "listeners.0") is None


def test_a_context_is_strict(authority: Authority) -> None:
    context = context_of(listener(authority), "listeners.0")
    assert context is not None
    assert context.minimum_version is ssl.TLSVersion.TLSv1_2
    assert context.options & ssl.OP_NO_RENEGOTIATION
    assert context.verify_mode is ssl.CERT_NONE


@pytest.mark.parametrize(("client_auth", "mode"), [("optional", ssl.CERT_OPTIONAL), ("required", ssl.CERT_REQUIRED)])
def test_client_auth_is_the_mode_of_verification(authority: Authority, client_auth: str, mode: ssl.VerifyMode) -> None:
    context = context_of(listener(authority, client_auth), "listeners.0")
    assert context is not None
    assert context.verify_mode is mode


def encrypted(authority: Authority) -> None:
    key = load_pem_private_key(authority.key_file.read_bytes(), None)
    encryption = BestAvailableEncryption(b"canary-password")
    authority.key_file.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption))


def fifo(file: Path) -> None:
    file.unlink()
    os.mkfifo(file)


def of_another(authority: Authority) -> None:
    before = authority.certificate_file.read_bytes()
    authority.renew()
    authority.certificate_file.write_bytes(before)


def in_form(kind: str, file: Path, *, is_whole: bool = False) -> None:
    """The certificate as OpenSSL alone writes it, and behind it, if it is not all, the same as others do."""
    text = file.read_text()
    file.write_text(text.replace(" CERTIFICATE-----", f" {kind}-----") + ("" if is_whole else text))


CASES: dict[str, tuple[Any, str, str]] = {
    "no certificate file": (lambda a: a.certificate_file.unlink(), "tls-certificate-file", "No such file"),
    "no key file": (lambda a: a.key_file.unlink(), "tls-key-file", "No such file"),
    "no CA file": (lambda a: a.ca_file.unlink(), "tls-client-ca-file", "No such file"),
    "certificate is a directory": (
        lambda a: (a.certificate_file.unlink(), a.certificate_file.mkdir()), "tls-certificate-file", "Is a directory",
    ),
    "certificate is a FIFO": (lambda a: fifo(a.certificate_file), "tls-certificate-file", "Is a FIFO"),
    "key is a FIFO": (lambda a: fifo(a.key_file), "tls-key-file", "Is a FIFO"),
    "CA is a FIFO": (lambda a: fifo(a.ca_file), "tls-client-ca-file", "Is a FIFO"),
    "certificate is noise": (
        lambda a: a.certificate_file.write_bytes(bytes(100)), "tls-certificate-file", "no certificate in PEM form",
    ),
    "certificate is cut off": (
        lambda a: a.certificate_file.write_bytes(a.certificate_file.read_bytes()[:200]), "tls-certificate-file",
        "cannot be used",
    ),
    "certificate is for OpenSSL alone": (
        lambda a: in_form("TRUSTED CERTIFICATE", a.certificate_file, is_whole=True), "tls-certificate-file",
        "begins with a TRUSTED CERTIFICATE, a form that only OpenSSL knows; convert each in it: openssl x509 -in ",
    ),
    "certificate of an old form stands before another": (
        lambda a: in_form("X509 CERTIFICATE", a.certificate_file), "tls-certificate-file", "with a X509 CERTIFICATE",
    ),
    "CA is for OpenSSL alone": (
        lambda a: in_form("TRUSTED CERTIFICATE", a.ca_file), "tls-client-ca-file", "convert each in it",
    ),
    "key is noise": (lambda a: a.key_file.write_bytes(b"x"), "tls-key-file", "no private key in PEM form"),
    "key is encrypted": (encrypted, "tls-key-file", "is encrypted"),
    "key is of another certificate": (of_another, "tls-key-file", "is not the key of the certificate"),
    "CA is noise": (lambda a: a.ca_file.write_bytes(b"\xff" * 50), "tls-client-ca-file", "PEM form"),
    "CA is cut off": (
        lambda a: a.ca_file.write_bytes(a.ca_file.read_bytes()[:200]), "tls-client-ca-file", "must be PEM certificates",
    ),
    "CA is empty": (lambda a: a.ca_file.write_bytes(b""), "tls-client-ca-file", "PEM"),
    "CA is no CA": (
        lambda a: a.ca_file.write_bytes(a.certificate_file.read_bytes()), "tls-client-ca-file",
        "no certificate of a CA",
    ),
    "file is huge": (
        lambda a: a.key_file.write_bytes(bytes((1 << 20) + 1)), "tls-key-file", "larger than",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_what_is_wrong_names_option_file_and_remedy(authority: Authority, case: str) -> None:
    damage, option, why = CASES[case]
    options = listener(authority, "required")
    damage(authority)
    fault = fault_of(options)
    assert fault.path == f"listeners.0.{option}"
    assert why in fault.why
    assert getattr(options, option.replace("-", "_")) in fault.why
    assert "canary" not in fault.why
    assert ";" in fault.why


def pem_of(authority: Authority, *lives: tuple[datetime, datetime]) -> bytes:
    made = [authority.ca.issue_cert("x.example.org", not_before=begin, not_after=end) for begin, end in lives]
    return b"".join(one.cert_chain_pems[0].bytes() for one in made)


def test_a_chain_ends_with_its_first_certificate_and_a_file_of_cas_with_its_last(authority: Authority) -> None:
    begin, later = datetime(2030, 1, 1, tzinfo=UTC), datetime(2030, 7, 1, tzinfo=UTC)
    first, last = datetime(2031, 1, 1, tzinfo=UTC), datetime(2032, 1, 1, tzinfo=UTC)
    several = pem_of(authority, (begin, last), (later, first))
    authority.certificate_file.write_bytes(several)
    authority.ca_file.write_bytes(several)
    options = listener(authority, "required", name="clients")
    assert endings_of(options, "listeners.0") == (
        ("clients", "tls-certificate-file", str(authority.certificate_file), *map(datetime.timestamp, (later, first))),
        ("clients", "tls-client-ca-file", str(authority.ca_file), *map(datetime.timestamp, (begin, last))),
    )
    assert [each.option for each in endings_of(listener(authority), "listeners.0")] == ["tls-certificate-file"]
    assert endings_of(default_listener(), "listeners.0") == ()


@pytest.mark.option("listeners.tls-ciphers")
def test_ciphers_are_those_that_are_named(authority: Authority) -> None:
    name = "ECDHE-ECDSA-AES256-GCM-SHA384"
    context = context_of(listener(authority, tls_ciphers=name), "listeners.0")
    assert context is not None
    assert [row["name"] for row in context.get_ciphers() if row["protocol"] != "TLSv1.3"] == [name]
    assert fault_of(listener(authority, tls_ciphers="NO-SUCH")).path == "listeners.0.tls-ciphers"


def test_faults_of_all_listeners_come_at_once(authority: Authority) -> None:
    good = listener(authority)
    bad = replace(good, tls_key_file="/none")
    options = replace(defaults(), listeners=(good, bad, bad))
    assert [fault.path for fault in faults_of(options)] == ["listeners.1.tls-key-file", "listeners.2.tls-key-file"]
