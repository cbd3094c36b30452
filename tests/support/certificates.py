"""Certificates of an authority that lives as long as a test, as files for a broker and as contexts for clients.

authority = Authority(tmp_path)
BrokerProcess(directory, listener=authority.listener(), tls=authority.client())
"""

from __future__ import annotations

import datetime
import ssl
import warnings
from pathlib import Path
from typing import Any

import trustme
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from cryptography.x509.oid import NameOID


class Authority:
    """A CA, the certificate of one server on loopback, and certificates of clients."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        directory.mkdir(parents=True, exist_ok=True)
        self.ca = trustme.CA()
        self.ca_file = directory / "ca.pem"
        self.certificate_file = directory / "server.pem"
        self.key_file = directory / "server.key"
        self.ca.cert_pem.write_to_path(self.ca_file)
        self.renew()

    def renew(self, common_name: str | None = None, not_after: datetime.datetime | None = None) -> None:
        """Another certificate in the same files."""
        made = self.ca.issue_cert("127.0.0.1", "localhost", common_name=common_name, not_after=not_after)
        made.cert_chain_pems[0].write_to_path(self.certificate_file)
        made.private_key_pem.write_to_path(self.key_file)

    def listener(self, client_auth: str = "none", **options: Any) -> dict[str, Any]:
        """Options of a listener."""
        made = {"tls-certificate-file": str(self.certificate_file), "tls-key-file": str(self.key_file)}
        if client_auth != "none":
            made |= {"tls-client-auth": client_auth, "tls-client-ca-file": str(self.ca_file)}
        return made | {name.replace("_", "-"): value for name, value in options.items()}

    def client(self, certificate: Path | None = None) -> ssl.SSLContext:
        """The context of a client that trusts the authority."""
        context = ssl.create_default_context(cafile=str(self.ca_file))
        if certificate is not None:
            context.load_cert_chain(certificate)
        return context

    def odd(self, *common_names: str, email: str = "x@example.org", patch: tuple[bytes, bytes] = (b"", b"")) -> Path:
        """A certificate as no proper authority makes it. `patch` replaces bytes of the same length, then signs."""
        key = load_pem_private_key(self.ca.private_key_pem.bytes(), None)
        issuer = x509.load_pem_x509_certificate(self.ca.cert_pem.bytes())
        assert isinstance(key, ec.EllipticCurvePrivateKey)
        with warnings.catch_warnings(action="ignore"):  # of names that are too short or too long
            names = [x509.NameAttribute(NameOID.COMMON_NAME, name, _validate=False) for name in common_names]
        now = datetime.datetime.now(datetime.UTC)
        made = (
            x509.CertificateBuilder().subject_name(x509.Name(names)).issuer_name(issuer.subject)
            .public_key(key.public_key()).serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(days=1)).not_valid_after(now + datetime.timedelta(days=1))
            .add_extension(x509.SubjectAlternativeName([x509.RFC822Name(email)]), critical=False)
            .sign(key, hashes.SHA256())
        )  # fmt: skip
        signed = made.tbs_certificate_bytes.replace(*patch)
        algorithm = bytes.fromhex("300a06082a8648ce3d040302")  # ecdsa-with-SHA256
        der = _der(0x30, signed + algorithm + _der(3, b"\0" + key.sign(signed, ec.ECDSA(hashes.SHA256()))))
        file = self.directory / f"odd-{len(list(self.directory.iterdir()))}.pem"
        file.write_bytes(self.ca.private_key_pem.bytes() + ssl.DER_cert_to_PEM_cert(der).encode())
        return file

    def certificate(self, *names: str, common_name: str | None = None) -> Path:
        """A client's certificate with its key, in one file. `names` are alternative names."""
        file = self.directory / f"client-{len(list(self.directory.iterdir()))}.pem"
        made = self.ca.issue_cert(*names, common_name=common_name)
        made.private_key_and_cert_chain_pem.write_to_path(file)
        return file


def _der(tag: int, content: bytes) -> bytes:
    """One value of DER."""
    size = len(content)
    if size < 128:
        return bytes([tag, size]) + content
    length = size.to_bytes((size.bit_length() + 7) // 8, "big")
    return bytes([tag, 0x80 | len(length)]) + length + content
