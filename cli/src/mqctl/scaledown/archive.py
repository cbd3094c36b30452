"""What stays on the host of a node that has left: its data directories and its receipt, in one folder.

    /var/lib/mq/.archive/scale-down-20261127T101500Z/receipt.json
    /var/lib/mq/.archive/scale-down-20261127T101500Z/default/…     put there by the role `uninstall`

The receipt is there before anything is stopped. So whoever goes on after mqctl was killed knows that this node was
drained to its end, also where its broker is gone by then: without a receipt nothing is taken away, and nobody is
forgotten.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from typing import Any, Final

from mqctl.errors import CommandError
from mqctl.inventory import Host
from mqctl.nodes import guarded, shell
from mqctl.ssh import shell as remote
from mqctl.world import World

FOLDER: Final = "/var/lib/mq/.archive"
RECEIPT: Final = "receipt.json"
# Written beside it and put in its place, so that it is whole or not there.
PUT: Final = (
    'umask 077 && mkdir -p "$1" && cat >"$1/.receipt" && sync -f "$1/.receipt" && mv "$1/.receipt" "$1/receipt.json"'
)
NEWEST: Final = (
    'for each in $(ls -r "$1"); do if [ -f "$1/$each/receipt.json" ]; then cat "$1/$each/receipt.json"; break; fi; done'
)
IDENTITIES: Final = 'for each in /var/lib/mq/*/identity.json; do if [ -f "$each" ]; then cat "$each"; echo; fi; done'
DIRECTORIES: Final = 'for each in /var/lib/mq/*/; do if [ -d "$each" ]; then basename "$each"; fi; done'
# Moved by one step of the file system, so it is at one of both places.
AWAY: Final = (
    'for each in "$1"/*/identity.json; do name=$(basename "$(dirname "$each")"); '
    'if [ -f "$each" ] && [ ! -e "/var/lib/mq/$name" ]; then echo "$name"; fi; done'
)
MADE_BY_MKFS: Final = "lost+found"
VOID: Final = 'mv "$1/receipt.json" "$1/receipt-void.json"'
PURGE: Final = 'find "$1" -mindepth 1 -maxdepth 1 -type d -exec rm -rf {} +'


def put_receipt(world: World, host: Host, name: str, document: dict[str, Any]) -> None:
    """Leave the receipt on the host, in the folder that its data directories will be moved to."""
    _run(world, host, PUT, (f"{FOLDER}/{name}",), json.dumps(document, indent=2).encode() + b"\n")


def kept_receipt(world: World, host: Host) -> dict[str, Any] | None:
    """The receipt of the last scale-down of this host, if it is of what is on the host, or was there."""
    text = _run(world, host, f'[ -d "$1" ] || exit 0; {NEWEST}', (FOLDER,))
    if not text.strip():
        return None
    document: dict[str, Any] = json.loads(text)
    is_of_these = document.get("host") == host.name and _identities(world, host) <= set(document.get("node_ids", ()))
    return document if is_of_these else None


def void_receipts(world: World, host: Host) -> None:
    """No receipt says any more what is on the host: it serves again, or messages came after it was made. Those of hosts
    that have left stay: their data lies beside them, or what is here has another identity."""
    while _identities(world, host) and (document := kept_receipt(world, host)) is not None:
        if moved_away(world, host, document["archive"]):
            return
        _run(world, host, VOID, (f"{FOLDER}/{document['archive']}",))


def moved_away(world: World, host: Host, name: str) -> set[str]:
    """Instances whose data is in the folder of this scale-down already, and nowhere else."""
    return set(_run(world, host, AWAY, (f"{FOLDER}/{name}",)).split())


def require_archived(world: World, host: Host, ids: Collection[str]) -> None:
    """No data directory of these nodes is where a broker would begin with it. Raises CommandError."""
    if _identities(world, host) & set(ids):
        raise CommandError(
            f"{host.name}: the data of its brokers is still below /var/lib/mq and not in {FOLDER}",
            "the collection there may be of another release than mqctl: mqctl version",
        )


def require_own(world: World, host: Host) -> None:
    """No data is there but that of the instances which drain: the role takes all of it away. Raises CommandError."""
    names = set(_run(world, host, DIRECTORIES, ()).splitlines())
    if strange := names - {*host.instances, MADE_BY_MKFS}:
        raise CommandError(
            f"{host.name}: /var/lib/mq has {', '.join(sorted(strange))}, of which the inventory names no instance: "
            "what is in there would not move, and go with the host",
            "mqctl plan, which shows what is left over; put it into the inventory again, or move the directory",
        )


def _identities(world: World, host: Host) -> set[str]:
    """Node ids of the data directories that are where they are used."""
    return {json.loads(line)["node_id"] for line in _documents(_run(world, host, IDENTITIES, ()))}


def _documents(text: str) -> list[str]:
    """JSON objects that stand one behind the other."""
    documents, decoder, at = [], json.JSONDecoder(), 0
    while (at := text.find("{", at)) >= 0:
        _, end = decoder.raw_decode(text, at)
        documents.append(text[at:end])
        at = end
    return documents


def purge(world: World, host: Host, name: str) -> None:
    """Delete the data directories of this scale-down; its receipt stays."""
    _run(world, host, PURGE, (f"{FOLDER}/{name}",))


def _run(world: World, host: Host, script: str, words: Sequence[str], stdin: bytes = b"") -> str:
    command = guarded(world, host.access, ["sh", "-c", script, "sh", *words])
    result = remote.run(shell(world, host.access), command, stdin, 120)
    if result.code != 0:
        raise CommandError(f"{host.name}: {FOLDER}: {result.complaint}", "mqctl status")
    return result.out.decode()
