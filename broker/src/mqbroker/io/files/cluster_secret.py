"""The file of the cluster's secret: one line, mode 0600, the same on all nodes of a cluster.

It is read where there are groups or cluster connections, and only then. What Artemis ships as its default, and other
well-known passwords, are refused.
"""

from __future__ import annotations

from pathlib import Path

from mqbroker.base.errors import ConfigFault
from mqbroker.cluster.discovery.datagram import derive_key
from mqbroker.config.patterns import SECRET_CHARACTERS_MIN
from mqbroker.config.slices import BrokerOptions
from mqbroker.config.users import WELL_KNOWN_PASSWORDS
from mqbroker.io.files import durable_files, regular_files

FILE_BYTES_MAX = 1024
OPTION = "node.cluster-secret-file"
REMEDY = "run `mqbroker secret set --stdin` with the secret of the cluster"


def checked(secret: str) -> str:
    """A secret that may be used. Raises ConfigFault, which does not show it."""
    if secret.strip().lower() in WELL_KNOWN_PASSWORDS:
        raise ConfigFault("secret", "is a well-known default; `mqctl init` makes a random one")
    if len(secret) < SECRET_CHARACTERS_MIN:
        raise ConfigFault(
            "secret", f"has less than {SECRET_CHARACTERS_MIN} characters; `mqctl init` makes a random one"
        )
    if len(secret.encode()) > FILE_BYTES_MAX - 1 or not secret.isprintable():
        raise ConfigFault("secret", f"must be one line of at most {FILE_BYTES_MAX - 1} bytes")
    return secret


def read(file: Path) -> str | None:
    """The secret, None where there is no file. Raises ConfigFault."""
    try:
        with regular_files.opened(file) as stream:
            content = stream.read(FILE_BYTES_MAX + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ConfigFault(OPTION, f"{file} cannot be read: {error.strerror}; {REMEDY}") from None
    try:
        return checked(content.decode().removesuffix("\n"))
    except UnicodeDecodeError:
        raise ConfigFault(OPTION, f"{file} is not UTF-8; {REMEDY}") from None
    except ConfigFault as fault:
        raise ConfigFault(OPTION, f"the secret in {file} {fault.why}") from None


def write(file: Path, secret: str) -> bool:
    """Put a secret in its place; whether that changed anything. Raises ConfigFault."""
    content = f"{checked(secret)}\n".encode()
    try:
        if file.is_file() and file.read_bytes() == content and file.stat().st_mode & 0o077 == 0:
            return False
        durable_files.replace(file, content)
    except OSError as error:
        raise ConfigFault(str(file), f"cannot be written: {error.strerror}") from None
    return True


def is_needed(options: BrokerOptions) -> bool:
    """Whether a node with these options has to know the secret."""
    has_signed = any(each.discovery != "dns" for each in options.discovery_groups)
    return bool(options.broadcast_groups or options.cluster_connections) or has_signed


def faults_of(options: BrokerOptions) -> list[ConfigFault]:
    """What is wrong with the file, where it is needed."""
    if not is_needed(options):
        return []
    try:
        secret = read(Path(options.node.cluster_secret_file))
    except ConfigFault as fault:
        return [fault]
    if secret is None:
        why = (
            f"there is no {options.node.cluster_secret_file}, and nodes of a cluster prove by it who they are; {REMEDY}"
        )
        return [ConfigFault(OPTION, why)]
    return []


def key(options: BrokerOptions) -> bytes:
    """The key of all datagrams; empty where none is needed. Raises ConfigFault."""
    for fault in faults_of(options):
        raise fault
    secret = read(Path(options.node.cluster_secret_file)) if is_needed(options) else None
    return b"" if secret is None else derive_key(secret)
