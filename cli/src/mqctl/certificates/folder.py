"""The folder of a cluster's certificates, beside its inventory: what is in it, and how it is changed.

    tls/<cluster>/ca.pem, ca.key        the CA that signs
    tls/<cluster>/ca-next.pem, .key     while the CA is changed: the one that will sign
    tls/<cluster>/ca-previous.pem       while the CA is changed: the one that signed
    tls/<cluster>/trust.pem             all of these: what nodes and clients trust
    tls/<cluster>/nodes/<host>/<instance>.pem, .key

Invariants: keys have mode 0600 from their first byte; a file is replaced by a rename, so it is whole at any moment; a
key is written before its certificate, so a pair that was cut off does not match and counts as missing.
"""

from __future__ import annotations

import enum
import os
import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)

from mqctl.ansible_cli import program
from mqctl.certificates.authority import Issuer
from mqctl.errors import CommandError, UsageError

PLAIN_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*")
VAULT_TIME_S_MAX = 60.0


class Phase(enum.StrEnum):
    """Where a change of the CA has got to."""

    STABLE = "stable"
    TRUSTED = "trusted"
    SIGNING = "signing"


class Step(enum.StrEnum):
    """What `mqctl tls rotate --ca` is told."""

    BEGIN = "begin"
    SWITCH = "switch"
    FINISH = "finish"


NEXT = {
    (Phase.STABLE, Step.BEGIN): Phase.TRUSTED,
    (Phase.TRUSTED, Step.SWITCH): Phase.SIGNING,
    (Phase.SIGNING, Step.FINISH): Phase.STABLE,
}


@dataclass(frozen=True, slots=True)
class Folder:
    """The certificates of one cluster. `vault` and `environ` open a key that is encrypted with ansible-vault."""

    path: Path
    vault: tuple[str, ...] = ()
    environ: Mapping[str, str] | None = None

    @property
    def trust_file(self) -> Path:
        """What nodes and clients trust."""
        return self.path / "trust.pem"

    @property
    def has_authority(self) -> bool:
        """Whether the folder has a CA (`ca.pem`)."""
        return (self.path / "ca.pem").exists()

    @property
    def phase(self) -> Phase:
        """Read from the files each time."""
        if (self.path / "ca-next.pem").exists():
            return Phase.TRUSTED
        return Phase.SIGNING if (self.path / "ca-previous.pem").exists() else Phase.STABLE

    def authorities(self) -> dict[str, x509.Certificate]:
        """Those that are trusted, by what they are: ca, ca-next, ca-previous."""
        by_name = {name: certificate_at(self.path / f"{name}.pem") for name in ("ca", "ca-next", "ca-previous")}
        return {name: one for name, one in by_name.items() if one is not None}

    def authority(self) -> x509.Certificate:
        """The certificate of the CA that signs; raises UsageError where there is none."""
        certificate = certificate_at(self.path / "ca.pem")
        if certificate is None:
            raise no_authority(self.path)
        return certificate

    def issuer(self) -> Issuer:
        """The CA that signs, with its key."""
        self._complete_switch()
        certificate, file = self.authority(), self.path / "ca.key"
        key = _key(self._readable(file), file)
        if not _belong(certificate, key):
            raise CommandError(f"{file} is not the key of {self.path / 'ca.pem'}", "restore both from a backup")
        return Issuer(certificate, key)

    def node_files(self, host: str, instance: str) -> tuple[Path, Path]:
        """Certificate and key of a node."""
        for one in (host, instance):
            if not PLAIN_NAME.fullmatch(one):
                raise UsageError(f"{one} cannot be the name of a file; certificates are kept by host and instance")
        place = self.path / "nodes" / host
        return place / f"{instance}.pem", place / f"{instance}.key"

    def node(self, host: str, instance: str) -> x509.Certificate | None:
        """The certificate of a node; None where there is none, or its key is not there."""
        certificate_file, key_file = self.node_files(host, instance)
        certificate = certificate_at(certificate_file)
        if certificate is None or not key_file.exists():
            return None
        content = key_file.read_bytes()
        # A key that is encrypted cannot be looked at without its password; it was whole when it was.
        is_vaulted = content.startswith(b"$ANSIBLE_VAULT")
        return certificate if is_vaulted or _belong(certificate, _key(content, key_file)) else None

    def write_authority(self, made: Issuer, name: str = "ca") -> None:
        """Keep a CA, and have it trusted."""
        self._write_pair(self.path / f"{name}.pem", self.path / f"{name}.key", made)
        _write(self.path / ".gitignore", b"*.key\n", 0o644)
        self.write_trust()

    def write_node(self, host: str, instance: str, made: Issuer) -> None:
        """Keep the certificate of a node."""
        certificate_file, key_file = self.node_files(host, instance)
        self._write_pair(certificate_file, key_file, made)

    def write_trust(self) -> None:
        """Put together what is trusted, the CA that signs first."""
        text = b"".join(_pem(one) for one in self.authorities().values())
        if not self.trust_file.exists() or self.trust_file.read_bytes() != text:
            _write(self.trust_file, text, 0o644)

    def switch(self) -> None:
        """The next CA signs from now on. The key of the previous one goes: nobody needs it any more."""
        previous = self.authority()
        _write(self.path / "ca-previous.pem", _pem(previous), 0o644)
        (self.path / "ca-next.pem").replace(self.path / "ca.pem")
        self._complete_switch()
        self.write_trust()

    def finish(self) -> None:
        """The previous CA is trusted no more."""
        (self.path / "ca-previous.pem").unlink()
        self.write_trust()

    def _complete_switch(self) -> None:
        """A switch that was cut off between certificate and key."""
        key_file = self.path / "ca-next.key"
        if key_file.exists() and not (self.path / "ca-next.pem").exists() and self.phase is Phase.SIGNING:
            key_file.replace(self.path / "ca.key")

    def _write_pair(self, certificate_file: Path, key_file: Path, made: Issuer) -> None:
        certificate_file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.path.chmod(0o700)
        text = made.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        _write(key_file, text, 0o600)
        _write(certificate_file, _pem(made.certificate), 0o644)

    def _readable(self, file: Path) -> bytes:
        try:
            content = file.read_bytes()
        except OSError as fault:
            raise CommandError(f"{file} cannot be read: {fault.strerror}", "restore it from a backup") from None
        if not content.startswith(b"$ANSIBLE_VAULT"):
            return content
        command = [program("ansible-vault"), "view", *self.vault, str(file)]
        done = subprocess.run(
            command, env=self.environ, capture_output=True, timeout=VAULT_TIME_S_MAX, check=False,
            stdin=subprocess.DEVNULL,
        )  # fmt: skip
        if done.returncode != 0:
            raise CommandError(f"{file} is encrypted and could not be opened", "--vault-password-file FILE")
        return done.stdout


def no_authority(path: Path) -> UsageError:
    """There is no CA where one is needed."""
    return UsageError(
        f"there is no CA in {path}, and mq_tls is managed: the nodes need certificates",
        "mqctl tls init, or set mq_tls: off in the inventory",
    )


def certificate_at(file: Path) -> x509.Certificate | None:
    """The first certificate in a file; None where there is no file."""
    try:
        return x509.load_pem_x509_certificate(file.read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError) as fault:
        raise CommandError(f"{file} holds no certificate: {fault}", "restore it from a backup, or remove it") from None


def _key(content: bytes, file: Path) -> ec.EllipticCurvePrivateKey:
    try:
        key = load_pem_private_key(content, None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        key = None
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise CommandError(f"{file} holds no EC key in PEM form", "restore it from a backup, or remove it")
    return key


def _belong(certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> bool:
    public = (Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return certificate.public_key().public_bytes(*public) == key.public_key().public_bytes(*public)


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(Encoding.PEM)


def _write(file: Path, content: bytes, mode: int) -> None:
    """Replace a file by a rename; the new one has its mode before it has content."""
    new = file.with_name(f".{file.name}.new")
    try:
        new.unlink(missing_ok=True)
        descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        with os.fdopen(descriptor, "wb") as stream:
            os.fchmod(descriptor, mode)
            stream.write(content)
            stream.flush()
            os.fsync(descriptor)
        new.replace(file)
    except OSError as fault:
        raise CommandError(f"{file} cannot be written: {fault.strerror}", "mqctl tls show") from None
