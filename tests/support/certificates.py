"""Certificates of an authority that lives as long as a test, as files for a broker and as contexts for clients.

authority = Authority(tmp_path)
BrokerProcess(directory, listener=authority.listener(), tls=authority.client())
"""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Any

import trustme


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

    def renew(self, common_name: str | None = None) -> None:
        """Another certificate in the same files."""
        made = self.ca.issue_cert("127.0.0.1", "localhost", common_name=common_name)
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

    def certificate(self, *names: str, common_name: str | None = None) -> Path:
        """A client's certificate with its key, in one file. `names` are alternative names."""
        file = self.directory / f"client-{len(list(self.directory.iterdir()))}.pem"
        made = self.ca.issue_cert(*names, common_name=common_name)
        made.private_key_and_cert_chain_pem.write_to_path(file)
        return file
