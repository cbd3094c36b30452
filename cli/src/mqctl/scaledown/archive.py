"""What stays on the host of a node that has left: its data directories and its receipt, in one folder.

    /var/lib/mq/.archive/scale-down-20261127T101500Z/receipt.json
    /var/lib/mq/.archive/scale-down-20261127T101500Z/default/…     put there by the role `uninstall`

The receipt is there before anything is stopped. So whoever goes on after mqctl was killed knows that this node was
drained to its end, also where its broker is gone by then: without a receipt nothing is taken away, and nobody is
forgotten.

Where functions take an instance, it is the only one that leaves of a host that has others; without one it is the host.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Sequence
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
NEWEST_FIRST: Final = (
    'for each in $(ls -r "$1"); do if [ -f "$1/$each/receipt.json" ]; then cat "$1/$each/receipt.json"; fi; done'
)
# The only word is a pattern.
IDENTITIES: Final = 'for each in /var/lib/mq/$1/identity.json; do if [ -f "$each" ]; then cat "$each"; echo; fi; done'
ANYTHING: Final = 'if [ -e "/etc/mq/$1" ] || [ -e "/var/lib/mq/$1" ]; then echo there; fi'
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


def kept_receipt(world: World, host: Host, instance: str = "") -> dict[str, Any] | None:
    """The receipt of the last scale-down of this host, if it is of what is on the host, or was there."""
    text = _run(world, host, f'[ -d "$1" ] || exit 0; {NEWEST_FIRST}', (FOLDER,))
    instances = [instance] if instance else []
    document = next((one for one in _documents(text) if one.get("instances", []) == instances), None)
    if document is None or document.get("host") != host.name:
        return None
    return document if _identities(world, host, instance) <= set(document.get("node_ids", ())) else None


def void_receipts(world: World, host: Host, instance: str = "") -> None:
    """No receipt says any more what is on the host: it serves again, or messages came after it was made. Those of hosts
    that have left stay: their data lies beside them, or what is here has another identity. One of all instances says no
    more where one of them serves, and the other way round."""
    others = host.instances if len(host.instances) > 1 and not instance else []
    for one in dict.fromkeys((instance, "", *others)):
        while _identities(world, host, one) and (document := kept_receipt(world, host, one)) is not None:
            if moved_away(world, host, document["archive"]):
                break
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


def is_removed(world: World, host: Host, instance: str) -> bool:
    """Whether the role has removed this instance: its options go when its data is aside."""
    return not _run(world, host, ANYTHING, (instance,)).strip()


def require_own(world: World, host: Host, instance: str = "") -> None:
    """No data is there but that of the instances which drain: the role takes all of it away, where it is not told of
    one instance. Raises CommandError."""
    if instance:
        return
    names = set(_run(world, host, DIRECTORIES, ()).splitlines())
    if strange := names - {*host.instances, MADE_BY_MKFS}:
        raise CommandError(
            f"{host.name}: /var/lib/mq has {', '.join(sorted(strange))}, of which the inventory names no instance: "
            "what is in there would not move, and go with the host",
            "mqctl plan, which shows what is left over; put it into the inventory again, or move the directory",
        )


def _identities(world: World, host: Host, instance: str = "") -> set[str]:
    """Node ids of the data directories that are where they are used."""
    return {one["node_id"] for one in _documents(_run(world, host, IDENTITIES, (instance or "*",)))}


def _documents(text: str) -> Iterator[dict[str, Any]]:
    """JSON objects that stand one behind the other; of no more is looked whether they are whole than are taken."""
    decoder, at = json.JSONDecoder(), 0
    while (at := text.find("{", at)) >= 0:
        document, at = decoder.raw_decode(text, at)
        yield document


def purge(world: World, host: Host, name: str) -> None:
    """Delete the data directories of this scale-down; its receipt stays."""
    _run(world, host, PURGE, (f"{FOLDER}/{name}",))


def _run(world: World, host: Host, script: str, words: Sequence[str], stdin: bytes = b"") -> str:
    command = guarded(world, host.access, ["sh", "-c", script, "sh", *words])
    result = remote.run(shell(world, host.access), command, stdin, 120)
    if result.code != 0:
        raise CommandError(f"{host.name}: {FOLDER}: {result.complaint}", "mqctl status")
    return result.out.decode()
