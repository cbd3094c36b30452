"""Certificates and keys that do not go together are told before they are on a host."""

from __future__ import annotations

import datetime
import re
import ssl
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.mqops.cluster.plugins.filter.certificate_faults import certificate_faults
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)

from tests.support.certificates import Authority


def pair(authority: Authority, **changes: Any) -> dict[str, Any]:
    return {
        "certificate_file": "server.pem", "certificate": authority.certificate_file.read_text(),
        "key_file": "server.key", "key": authority.key_file.read_text(), **changes,
    }  # fmt: skip


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "one")


def test_those_that_go_together_are_good(authority: Authority) -> None:
    assert certificate_faults([]) == []
    assert certificate_faults([pair(authority), pair(authority, is_managed=True)]) == []


@pytest.mark.parametrize("is_managed", [True, False])
def test_a_key_of_another_certificate(authority: Authority, tmp_path: Path, is_managed: bool) -> None:
    other = Authority(tmp_path / "other").key_file.read_text()
    wrong = pair(authority, key=other, is_managed=is_managed)
    said = "server.key is not the key of the certificate in server.pem; set the two that belong together"
    assert certificate_faults([wrong, pair(authority), wrong]) == [said]


def on_another_curve(text: str) -> str:
    """The same in PEM form, on a curve that OpenSSL knows and the library of the control node does not."""
    kind = re.findall("-----BEGIN (.*)-----", text)[0]
    content = ssl.PEM_cert_to_DER_cert(re.sub("(BEGIN|END) .*-----", r"\1 CERTIFICATE-----", text))
    # ANSI X9.62: prime256v1 and prime239v3.
    changed = content.replace(bytes.fromhex("06082a8648ce3d030107"), bytes.fromhex("06082a8648ce3d030106"))
    assert changed != content
    return ssl.DER_cert_to_PEM_cert(changed).replace("CERTIFICATE", kind)


def test_keys_of_a_kind_that_is_unknown_here_are_left_to_the_broker(authority: Authority) -> None:
    good = pair(authority)
    key, certificate = on_another_curve(good["key"]), on_another_curve(good["certificate"])
    for changes in ({"key": key, "certificate": certificate}, {"key": key}, {"certificate": certificate}):
        assert certificate_faults([good | changes]) == []


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("certificate", "", "server.pem holds no certificate in PEM form"),
        (
            "certificate",
            "-----BEGIN CERTIFICATE-----\\nAA\\n-----END CERTIFICATE-----\\n",
            "server.pem holds no certificate",
        ),
        ("key", "canary", "server.key holds no private key in PEM form"),
    ],
)
def test_what_is_none(authority: Authority, name: str, text: str, said: str) -> None:
    (found,) = certificate_faults([pair(authority, **{name: text})])
    assert found.startswith(said)
    assert "canary" not in found


@pytest.mark.parametrize("kind", ["TRUSTED CERTIFICATE", "X509 CERTIFICATE"])
@pytest.mark.parametrize("is_first", [True, False])
def test_forms_that_only_openssl_knows(authority: Authority, kind: str, is_first: bool) -> None:
    text = authority.certificate_file.read_text()
    odd = text.replace(" CERTIFICATE-----", f" {kind}-----")
    said = f" begins with a {kind}, a form that only OpenSSL knows; convert each in it: openssl x509 -in "
    (found,) = certificate_faults([pair(authority, certificate=odd + text if is_first else odd)])
    assert found == f"server.pem{said}server.pem -out NEW-FILE"
    (found,) = certificate_faults([pair(authority, ca_file="ca.pem", ca=odd + authority.ca_file.read_text())])
    assert found == f"ca.pem{said}ca.pem -out NEW-FILE"


def test_certificates_of_a_ca(authority: Authority) -> None:
    assert certificate_faults([pair(authority, ca_file="ca.pem", ca=authority.ca_file.read_text())]) == []
    assert certificate_faults([pair(authority, ca_file="ca.pem", ca=None)]) == []
    (found,) = certificate_faults([pair(authority, ca_file="ca.pem", ca="canary")])
    assert found == "ca.pem holds no certificate in PEM form; convert or replace it"


def test_a_key_that_nobody_can_open_on_a_host(authority: Authority) -> None:
    key = load_pem_private_key(authority.key_file.read_bytes(), None)
    locked = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"secret")).decode()
    (found,) = certificate_faults([pair(authority, key=locked)])
    assert found.startswith("server.key is encrypted")


def test_when_one_has_ended_or_not_begun(authority: Authority) -> None:
    authority.renew(not_after=datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=1))
    (found,) = certificate_faults([pair(authority)])
    assert found.startswith("the certificate in server.pem ended on ")
    # A rollout by mqctl makes it anew.
    assert certificate_faults([pair(authority, is_managed=True)]) == []
