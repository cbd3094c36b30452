"""Which certificates a cluster needs, and making them: what `mqctl tls issue` and a rollout have in common."""

from __future__ import annotations

import datetime
import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from mqbroker.config.declarations.variables import HostVariables
from mqbroker.config.inventory.tables import has_cluster_certificate
from mqbroker.config.lifetimes import WARNING_DAYS, warning_s

from mqctl.certificates.authority import Span, is_signed_by, issue, names_of, new_authority
from mqctl.certificates.folder import Folder, no_authority
from mqctl.certificates.names import InstanceNames
from mqctl.errors import CommandError, UsageError
from mqctl.inventory import InventoryCluster
from mqctl.output import counted
from mqctl.world import World

AUTHORITY_DAYS = 3650
NODE_DAYS = 365
DAYS_MAX = 36_500
CERTIFICATE, TRUST = "server.pem", "ca.pem"  # below /etc/mq/<instance>/tls


@dataclass(frozen=True, slots=True)
class Missing:
    """A certificate that has to be made, and why."""

    node: InstanceNames
    why: str


def folder_of(world: World, cluster: InventoryCluster) -> Folder:
    """Where the cluster's certificates are: mq_tls_directory, else tls/CLUSTER beside the inventory."""
    named = next((str(one.variables["mq_tls_directory"]) for one in cluster.hosts
                  if one.variables.get("mq_tls_directory")), "")  # fmt: skip
    beside = (world.cwd / cluster.sources[0]).parent if cluster.sources else world.cwd
    path = world.cwd / Path(named).expanduser() if named else beside / "tls" / cluster.name
    return Folder(path, cluster.vault_arguments, world.environ)


def needs_certificate(variables: HostVariables) -> bool:
    """Whether a listener of the host has the certificate of its node."""
    return any(has_cluster_certificate(row, variables.mq_tls) for row in variables.mq_listeners)


def missing_of(folder: Folder, nodes: Sequence[InstanceNames], now: datetime.datetime) -> list[Missing]:
    """Nodes whose certificate is not there, or not good for long enough, each with the reason."""
    if not folder.has_authority:
        raise no_authority(folder.path)
    authority = folder.authority()
    judged = ((one, why_not(folder.node(one.host, one.instance), one, authority, now)) for one in nodes)
    return [Missing(one, why) for one, why in judged if why]


def why_not(
    certificate: x509.Certificate | None, node: InstanceNames, authority: x509.Certificate, now: datetime.datetime
) -> str:
    """Why a certificate cannot stay as it is; empty where it can."""
    if certificate is None:
        return "there is none"
    if not is_signed_by(certificate, authority):
        return "another CA signed it"
    lacking = [one for one in node.names if one not in names_of(certificate)]
    if lacking:
        return f"it lacks {' '.join(lacking)}"
    return state_of(certificate, now).replace("ok", "")


def state_of(certificate: x509.Certificate, now: datetime.datetime, soon_days: int = WARNING_DAYS) -> str:
    """ok, expires soon, or expired."""
    end, life = certificate.not_valid_after_utc, certificate.not_valid_after_utc - certificate.not_valid_before_utc
    if now > end:
        return "expired"
    return "expires soon" if (end - now).total_seconds() < warning_s(life.total_seconds(), soon_days) else "ok"


def days_left(certificate: x509.Certificate, now: datetime.datetime) -> int:
    """Whole days; below 0 once it has expired."""
    return (certificate.not_valid_after_utc - now).days


def make(folder: Folder, missing: Sequence[Missing], span: Span, note: Callable[[str], None]) -> None:
    """Sign certificates with new keys."""
    if not missing:
        return
    issuer = folder.issuer()
    if issuer.certificate.not_valid_after_utc <= span.now:
        raise CommandError(f"the CA in {folder.path} has expired", "mqctl tls rotate --ca begin")
    if issuer.certificate.not_valid_after_utc < span.end:
        note(f"certificates end with their CA, on {issuer.certificate.not_valid_after_utc:%Y-%m-%d}")
    folder.write_trust()
    for one in missing:
        folder.write_node(one.node.host, one.node.instance, issue(issuer, one.node.common_name, one.node.names, span))


def digests(folder: Folder, host: str, instance: str) -> dict[str, str | None]:
    """SHA-256 of what belongs onto the host, by the name that it has there; None where it is not made yet."""
    certificate_file, _ = folder.node_files(host, instance)
    is_whole = folder.node(host, instance) is not None
    return {CERTIFICATE: sha256_of(certificate_file) if is_whole else None, TRUST: sha256_of(folder.trust_file)}


def sha256_of(file: Path) -> str | None:
    """Of a file; None where there is none."""
    try:
        return hashlib.sha256(file.read_bytes()).hexdigest()
    except OSError:
        return None


def key_digest(file: Path) -> str | None:
    """Of a private key as it lies on a host; None where there is none, or it is encrypted here."""
    try:
        content = file.read_bytes()
    except OSError:
        return None
    return None if content.startswith(b"$ANSIBLE_VAULT") else hashlib.sha256(content).hexdigest()


def provided_digests(variables: HostVariables) -> dict[str, str | None]:
    """SHA-256 of the certificates that the user provides, by the names that they have on a host."""
    files = {CERTIFICATE: variables.mq_tls_certificate_file, TRUST: variables.mq_tls_ca_file}
    hashes = {name: sha256_of(Path(str(file)).expanduser()) for name, file in files.items()}
    for name, digest in hashes.items():
        if digest is None:
            raise UsageError(f"{files[name]} cannot be read; mq_tls is provided", "mqctl inventory check")
    return hashes


def by_host(missing: Sequence[Missing]) -> Mapping[str, list[Missing]]:
    """Missing certificates by the host that they are for, in their order."""
    grouped: dict[str, list[Missing]] = {}
    for one in missing:
        grouped.setdefault(one.node.host, []).append(one)
    return grouped


def make_authority(world: World, folder: Folder, cluster: str, days: int, permitted: list[str]) -> None:
    """Make the CA, unless there is one."""
    if folder.has_authority:
        folder.write_trust()
        world.note(f"kept {folder.path / 'ca.pem'}; to change it: mqctl tls rotate --ca begin")
        return
    folder.write_authority(new_authority(cluster, Span(world.now(), days), permitted))
    world.note(f"wrote {folder.path / 'ca.pem'} and {folder.path / 'ca.key'}")
    world.note(f"clients trust {folder.trust_file}; keep the keys out of version control, and a backup of ca.key")


def make_missing(world: World, folder: Folder, missing: Sequence[Missing]) -> None:
    """Make these certificates, good for as long as usual, and say which and why."""
    make(folder, missing, Span(world.now(), NODE_DAYS), world.note)
    tell_made(world, missing, len(missing))


def tell_made(world: World, missing: Sequence[Missing], count: int) -> None:
    """What was made and why, and what stayed."""
    for one in missing:
        world.note(f"{one.node.common_name}: made, {one.why}")
    if count > len(missing):
        world.note(f"{counted(count - len(missing), 'certificate')} kept")
