"""`mqbroker backup create|list|verify|prune|restore` and the halves of two of them: copies of the data of a broker.

`create` copies what a running broker has into a folder of this machine, `restore` gives it back to one that does not
run. `send` and `receive`, `give` and `take` are their halves where the folder is on another machine
(app/backup/transfer.py). What is in a folder is looked at and pruned where it is. A restore that fails says last
whether anything was changed.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, Final

from mqbroker.app import admin_requests, exits, source
from mqbroker.app.backup import transfer
from mqbroker.app.backup.folder import BackupFolder
from mqbroker.app.backup.manifest import BackupManifest
from mqbroker.app.backup.restoring import KeptBackup, RestoredDirectory
from mqbroker.app.backup.running import RunningNode, Throttle
from mqbroker.app.commands.identity import unused
from mqbroker.base.errors import ConfigFault, MqError
from mqbroker.base.text import safe_json
from mqbroker.config.declarations.options import defaults
from mqbroker.io.files import cluster_secret, identity

HOLD_MINUTES: Final = 60
HOLD_MINUTES_MAX: Final = 7 * 24 * 60
MS_PER_MINUTE: Final = 60_000
GIVES_WAY: Final = 10  # of 19
GONE: Final = (
    "is not there: make it for the broker's own user (install -d -o mq -g mq -m 0700 {0}), and where it was lost "
    "restore with --keep-node-id, since nothing in there says which node it is"
)
NO_SECRET: Final = "the broker does not start without it; mqctl rollout, or mqbroker secret set, puts it there"
NO_USERS: Final = "nobody can log in with a password; mqctl rollout, or mqbroker users, puts it there"


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare `backup` and its actions."""
    parser = subparsers.add_parser("backup", help="copy a running broker's data, look into copies, and give them back")
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    create = actions.add_parser("create", help="copy what a running broker has on disk at this moment into a folder")
    send = actions.add_parser("send", help="the same, to `receive` at the other end of standard input and output")
    receive = actions.add_parser("receive", help="take into a folder what `send` sends")
    list_ = actions.add_parser("list", help=f"which backups are in a folder (exit code {exits.FAILED}: one is bad)")
    verify = actions.add_parser("verify", help=f"read backups as a start would (exit code {exits.FAILED}: one is bad)")
    restore = actions.add_parser("restore", help="give a backup to a broker that does not run")
    give = actions.add_parser("give", help="the same, to `take` at the other end of standard input and output")
    take = actions.add_parser("take", help="restore what `give` gives")
    prune = actions.add_parser("prune", help="delete all backups of each node but the newest")
    for action in (create, receive, list_, verify, prune, restore, give):
        action.add_argument("folder", type=Path, metavar="DIRECTORY", help="folder of backups")
    for action in (create, send):
        admin_requests.add_arguments(action)
        action.add_argument(
            "--bytes-per-second", type=_count, default=0, metavar="N", help="read no faster (0: at will)"
        )
        action.add_argument(
            "--hold-minutes", type=_minutes, default=HOLD_MINUTES, metavar="N",
            help="the broker keeps its files for so long, then the backup fails (default: %(default)s)",
        )  # fmt: skip
    verify.add_argument("ids", nargs="*", metavar="ID", help="which backups (else all)")
    for action in (restore, give):
        action.add_argument("id", metavar="ID", help="which backup")
    ends = restore.add_mutually_exclusive_group()
    ends.add_argument(
        "--wait-for-word", action="store_true",
        help='print {"ready": true} when all is copied, and go on by {"end": true} on standard input (implies --json)',
    )  # fmt: skip
    ends.add_argument(
        "--while-same", type=Path, metavar="FILE", help="fail if this file is another one when all is copied"
    )
    for action in (restore, take):
        action.add_argument("--data-directory", type=Path, metavar="PATH", help="directory (else as the options say)")
        whose = action.add_mutually_exclusive_group()
        whose.add_argument(
            "--keep-node-id", action="store_true",
            help="the node that was backed up is gone for good, and this one is it from now on",
        )  # fmt: skip
        whose.add_argument(
            "--as-another-node", action="store_true",
            help="the backup is of another node, whose messages this one gets under its own id",
        )  # fmt: skip
        source.add_arguments(action)
    prune.add_argument("--keep", type=_kept, required=True, metavar="N", help="so many of each node stay")
    for action in (create, receive, list_, verify, prune, restore, take):
        action.add_argument("--json", action="store_true", help="print JSON")


def run(args: argparse.Namespace) -> int:
    """Do what `args.action` names; the exit code."""
    return ACTIONS[args.action](args)


def row_of(manifest: BackupManifest) -> dict[str, Any]:
    """A backup as it is listed."""
    return {
        "id": manifest.id, "node": manifest.node, "node_id": manifest.node_id, "made": manifest.made,
        "release": manifest.release, "position": manifest.position, "messages": manifest.messages,
        "files": len(manifest.files), "used_bytes": manifest.used_bytes,
        "queues": [{"name": queue.name, "messages": queue.messages} for queue in manifest.queues or ()],
    }  # fmt: skip


def _create(args: argparse.Namespace) -> int:
    throttle = Throttle(args.bytes_per_second)
    folder = BackupFolder(args.folder, throttle.passed)  # on the host of the broker, too
    with folder.locked(), _running(args, throttle) as node:
        made, copied = transfer.copy(node, folder)
    return _made(args, made, copied)


def _send(args: argparse.Namespace) -> int:
    with _running(args, Throttle(args.bytes_per_second)) as node:
        transfer.send(node, sys.stdout.buffer, sys.stdin.buffer)
    return exits.DONE


def _receive(args: argparse.Namespace) -> int:
    folder = BackupFolder(args.folder)
    with folder.locked():
        made, copied = transfer.receive(folder, sys.stdin.buffer, sys.stdout.buffer)
    print(json.dumps({"result": row_of(made) | {"copied_bytes": copied}}))
    return exits.DONE


def _made(args: argparse.Namespace, made: BackupManifest, copied: int) -> int:
    if args.json:
        print(safe_json(json.dumps({"schema": 1, **row_of(made), "copied_bytes": copied})))
    else:
        print(f"backup {made.id}: {made.messages} messages, {made.used_bytes} bytes, of which {copied} were copied")
    return exits.DONE


def _list(args: argparse.Namespace) -> int:
    backups, faults = BackupFolder(args.folder).look()
    if args.json:
        bad = [{"id": backup_id, "why": str(fault)} for backup_id, fault in faults.items()]
        print(safe_json(json.dumps({"schema": 1, "backups": [row_of(each) for each in backups], "bad": bad})))
        return exits.FAILED if faults else exits.DONE
    for each in backups:
        source.say(
            f"{each.id}: node {each.node} at {each.made}, {each.messages} messages, {each.used_bytes} bytes in "
            f"{len(each.files)} files"
        )
    for backup_id, fault in faults.items():
        source.say(f"{backup_id}: bad: {fault}")
    return exits.FAILED if faults else exits.DONE


def _verify(args: argparse.Namespace) -> int:
    folder = BackupFolder(args.folder)
    wanted, faults = ([folder.get(each) for each in args.ids], {}) if args.ids else folder.look()
    rows: list[dict[str, Any]] = [
        {"id": backup_id, "good": False, "messages": 0, "why": str(fault)} for backup_id, fault in faults.items()
    ]
    for each in wanted:
        why = ""
        try:
            folder.verify(each)
        except MqError as fault:
            why = str(fault)
        rows.append({"id": each.id, "good": not why, "messages": each.messages, "why": why})
    if args.json:
        print(safe_json(json.dumps({"schema": 1, "backups": rows})))
    else:
        for row in rows:
            source.say(
                f"{row['id']}: " + (f"good, {row['messages']} messages" if row["good"] else f"bad: {row['why']}")
            )
    return exits.DONE if all(row["good"] for row in rows) else exits.FAILED


def _prune(args: argparse.Namespace) -> int:
    folder = BackupFolder(args.folder)
    with folder.locked(may_make=False):
        gone, freed, lacks = folder.prune(args.keep)
    if args.json:
        said = {"pruned": [each.id for each in gone], "freed_bytes": freed, "bad": [str(fault) for fault in lacks]}
        print(safe_json(json.dumps({"schema": 1, **said})))
    else:
        for each in gone:
            source.say(f"pruned: {each.id}")
        print(f"freed: {freed} bytes")
    if lacks:
        raise lacks[0]
    return exits.DONE


def _restore(args: argparse.Namespace) -> int:
    folder = BackupFolder(args.folder)
    kept = KeptBackup(folder, folder.get(args.id))
    may_end = _word(args)
    with _restored(args) as target:
        receipt, _ = transfer.copy(kept, target, may_end)
    if args.json or args.wait_for_word:
        print(safe_json(json.dumps(receipt.document())))
        return exits.DONE if receipt.balances else exits.FAILED
    for row in receipt.queues:
        said = "" if row["balances"] else ": THEY DIFFER"
        source.say(f"queue {row['queue']}: {row['in_backup']} in the backup, {row['restored']} restored{said}")
    for note in receipt.notes:
        source.say(f"note: {note}")
    print(f"restored {receipt.backup} as node {receipt.node_id}; put aside: {receipt.aside or 'nothing was there'}")
    return exits.DONE if receipt.balances else exits.FAILED


def _give(args: argparse.Namespace) -> int:
    folder = BackupFolder(args.folder)
    transfer.send(KeptBackup(folder, folder.get(args.id)), sys.stdout.buffer, sys.stdin.buffer)
    return exits.DONE


def _take(args: argparse.Namespace) -> int:
    with _restored(args) as target:
        receipt, _ = transfer.receive(target, _come(), sys.stdout.buffer)
    print(json.dumps({"result": receipt.document()}))
    return exits.DONE if receipt.balances else exits.FAILED


def _come() -> BinaryIO:
    """What is sent by whoever has the node restored, for whom it is not locked for ever."""
    return io.BufferedReader(transfer.Bounded(sys.stdin.buffer))


def _word(args: argparse.Namespace) -> Callable[[], object]:
    """What is asked before a restore counts."""
    if args.wait_for_word:
        return lambda: transfer.wait_for_word(_come(), sys.stdout.buffer)
    file: Path | None = args.while_same
    if file is None:
        return lambda: None
    before = _content(file)

    def check() -> None:
        if _content(file) != before:
            raise ConfigFault(str(file), "has changed since the restore began")

    return check


def _content(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise ConfigFault(str(file), f"cannot be read: {error.strerror}") from None


@contextlib.contextmanager
def _restored(args: argparse.Namespace) -> Iterator[RestoredDirectory]:
    options = defaults().journal
    directory: Path | None = args.data_directory
    needed: dict[Path, str] = {}
    if directory is None:
        whole = source.options_of(args)
        options, directory = whole.journal, Path(whole.node.data_directory)
        if cluster_secret.is_needed(whole):
            needed[Path(whole.node.cluster_secret_file)] = NO_SECRET
        if not (directory / identity.FILE_NAME).exists():  # a node that was there may have had no users
            needed[Path(whole.node.users_file)] = NO_USERS
        _check_owner(directory, source.path_of(args).parent)
    if not directory.exists():
        raise ConfigFault(str(directory), GONE.format(directory))
    with unused(directory):
        target = RestoredDirectory(
            directory, options, keeps_node_id=args.keep_node_id, as_another=args.as_another_node, needed=needed
        )
        try:
            yield target
        except MqError as fault:
            fault.args = (f"{fault}; {target.left}",)  # of whatever kind it is, which is its exit code
            raise
        finally:
            target.close()


def _check_owner(directory: Path, options: Path) -> None:
    """Root gives what it restores to the owner of the directory, who has to be the broker's own user. Raises
    ConfigFault."""
    with contextlib.suppress(FileNotFoundError):
        if os.geteuid() == 0 == directory.stat().st_uid and options.stat().st_gid != 0:
            why = f"belongs to root, and the broker with the options in {options} runs as another user"
            raise ConfigFault(str(directory), f"{why}: chown -R mq:mq {directory}")


@contextlib.contextmanager
def _running(args: argparse.Namespace, throttle: Throttle) -> Iterator[RunningNode]:
    os.nice(GIVES_WAY)  # the broker is on this machine, and goes on
    session = admin_requests.LocalAdmin(args)
    try:
        yield RunningNode(session, args.hold_minutes * MS_PER_MINUTE, throttle)
    finally:
        session.close()


def _count(text: str) -> int:
    return _number(text, 0, 1 << 50)


def _kept(text: str) -> int:
    return _number(text, 1, 1 << 30)


def _minutes(text: str) -> int:
    return _number(text, 1, HOLD_MINUTES_MAX)


def _number(text: str, least: int, most: int) -> int:
    try:
        number = int(text)
    except ValueError:
        number = least - 1
    if not least <= number <= most:
        raise argparse.ArgumentTypeError(f"is a whole number from {least} to {most}, not {text!r}")
    return number


ACTIONS: Final[dict[str, Callable[[argparse.Namespace], int]]] = {
    "create": _create, "send": _send, "receive": _receive, "list": _list, "verify": _verify, "prune": _prune,
    "restore": _restore, "give": _give, "take": _take,
}  # fmt: skip
