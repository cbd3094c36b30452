"""`mqctl backup restore`.

A restore to a host of an inventory is an operation of its cluster (docs/adr/0028-one-operation-at-a-time.md): a rollout
that ran meanwhile would start the broker. Where it is not known what became of it, the cluster stays held.
"""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Annotated, Any, Final

import typer

from mqctl import confirmation, operation
from mqctl.brokers import backups
from mqctl.brokers.backups import BackupFolderOptions, BackupStream, FolderArgument
from mqctl.brokers.requests import only
from mqctl.errors import CommandError, UsageError
from mqctl.exits import Exit
from mqctl.fanout import on_each
from mqctl.inventory import InventoryCluster
from mqctl.inventory_faults import checked
from mqctl.nodes import Node, nodes_in, nodes_of, open_admin
from mqctl.operation import HeldCluster, OperationScope, Resume, code_of, holding
from mqctl.output import Column, Rows
from mqctl.playbook.rollout import untouched
from mqctl.remote import operation as noting
from mqctl.world import World

COMMAND: Final = "mqctl backup restore"

COLUMNS = (
    Column("instance"),
    Column("queue"),
    Column("in_backup", is_number=True),
    Column("restored", is_number=True),
    Column("balances"),
    Column("in_backup_digest", wide_only=True),
    Column("restored_digest", wide_only=True),
)


@dataclass(frozen=True, kw_only=True)
class Options(BackupFolderOptions):
    """Which backup, and to which node."""

    folder: FolderArgument
    backup: Annotated[str, typer.Argument(help="The id of the backup, of `mqctl backup list`.")]
    keep_node_id: Annotated[
        bool,
        typer.Option("--keep-node-id", help="The node of the backup is gone for good, and this one is it from now on."),
    ] = False
    as_another_node: Annotated[
        bool,
        typer.Option("--as-another-node", help="The backup is of another node; this one gets its messages."),
    ] = False
    resume: Resume = False
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False

    @property
    def is_as_another(self) -> list[str]:
        """What `mqbroker backup` is told of whose the messages are from now on."""
        said = {"--keep-node-id": self.keep_node_id, "--as-another-node": self.as_another_node}
        return [word for word, is_said in said.items() if is_said]


def run(world: World, options: Options) -> int:
    """Give a backup to a node whose broker does not run; what it has is put aside. Shows a receipt: each queue.

    The node of the backup goes on under its id, beyond all ids that it gave out since. Another node is refused unless
    it is to get the messages under its own id (--as-another-node) or to be that node (--keep-node-id), which is refused
    while another one runs as that. Exit code 3 if what is there is not what the backup had, or if a host could not be
    given back.

    No other operation changes the cluster meanwhile. One that was cut off is done again by --resume, for the same node
    and from any backup.
    """
    if options.keep_node_id and options.as_another_node:
        raise UsageError("--keep-node-id and --as-another-node exclude each other", "mqctl backup restore --help")
    if options.dev:
        nodes = nodes_of(world, options)
        node = only(nodes, options.host)
        _ask(world, options, node, nodes)
        return _written(world, options, node, _Restore(world, options, node, nodes).receipt())
    with untouched(world):
        cluster = checked(world, options)
        nodes = nodes_in(cluster)
        node = only(nodes, options.host)
        scope, was_held = _scope(world, options, cluster, node)
        _ask(world, options, node, nodes)
    command = _command(options, node)
    with holding(world, cluster, command, is_resumed=options.resume, scope=scope) as own:
        receipt = _Restore(world, options, node, nodes, own, was_held=was_held).receipt()
        _end(own, is_balanced=receipt["balances"])
    return code_of(own, _written(world, options, node, receipt))


def _end(own: HeldCluster, *, is_balanced: bool) -> None:
    """There is a receipt. To do it again would put aside what has come since."""
    own.is_done = True
    if not is_balanced:
        own.ways = (
            "the receipt does not balance: mqctl operation release gives it back with what is there, "
            f"{noting.again(own.note['what'])} restores again and puts aside what is there and what has come since"
        )


def _command(options: Options, node: Node) -> str:
    words = [options.folder, options.backup, *(["--on-hosts"] if options.on_hosts else []), *options.is_as_another]
    return f"{COMMAND} {shlex.join(words)} --host {node.name}"


def _scope(world: World, options: Options, cluster: InventoryCluster, node: Node) -> tuple[OperationScope, bool]:
    """What is changed, and in whose place: any restore to this node, as each of them leaves it whole; and whether one
    holds the cluster. Raises CommandError where somebody else does, or the node's host cannot be asked."""
    noted, faults = operation.look(world, cluster.hosts)
    if node.host in faults:
        raise CommandError(f"{faults[node.host]}; nothing was changed on any host", "mqctl status")
    notes = [note for note in noted.values() if note and _is_of(str(note["what"]), node)]
    before = [str(note["what"]) for note in notes]
    operation.require_none_but(noted, before if options.resume else ())
    scope = OperationScope({node.host}, operation.numbers_of(noted), instead_of=before)
    return scope, any(note["is_held"] for note in notes)


def _is_of(what: str, node: Node) -> bool:
    return what.startswith(f"{COMMAND} ") and what.endswith(f" --host {node.name}")


def _ask(world: World, options: Options, node: Node, nodes: Sequence[Node]) -> None:
    doubt = ""
    if options.keep_node_id and (silent := _unknown(world, options, node, nodes)):
        named = ", ".join(silent)
        doubt = f"{named} did not answer: whichever was the node of the backup must never start as that again. "
        if options.yes:
            world.note(f"mqctl: {doubt.strip()}")
    question = f"{doubt}Restore {options.backup} to {node.name}, and put aside what it has?"
    confirmation.yes(world, question, is_sure=options.yes)


def _unknown(world: World, options: Options, node: Node, nodes: Sequence[Node]) -> list[str]:
    """Nodes that may be the one of the backup, as they do not answer. Raises CommandError where that one runs: two of
    one id give out all that the backup has, each of them."""
    wanted, silent = _node_id(world, options, node), list[str]()
    # First the one that is to be restored: where it runs as that, others are linked with it.
    for other, answer in on_each(sorted(nodes, key=lambda each: each != node), lambda each: _said_by(world, each)):
        if isinstance(answer, CommandError):
            silent += [other.name] if other != node else []
            continue
        linked = [row["node_id"] for row in answer.get("links") or () if row["state"] == "up"]
        if wanted in (answer["node_id"], *linked):
            how, end = "is linked with", " and is not gone, or its link has not ended yet"
            if answer["node_id"] == wanted:
                how, end = "is", ": stop its broker first" if other == node else " and is not gone"
            why = f"{other.name} {how} node {wanted}, that of the backup, which runs{end}"
            raise CommandError(f"{why}; nothing was changed on any host", "mqctl status")
    return silent


def _said_by(world: World, node: Node) -> dict[str, Any]:
    with open_admin(world, node) as session:
        answer: dict[str, Any] = session.call("status")
    return answer


def _node_id(world: World, options: Options, node: Node) -> str:
    """Of the node that the backup is of. Raises CommandError where there is no such backup."""
    if options.on_hosts:
        stream = backups.at(world, node, ["list", options.folder, "--json"])
    else:
        stream = backups.here(["list", str(world.cwd / options.folder), "--json"])
    with closing(stream):
        listed = backups.said(stream, may_fail=True)
    for row in listed["backups"]:
        if row["id"] == options.backup:
            return str(row["node_id"])
    whys = {row["id"]: row["why"] for row in listed.get("bad", ())}
    why = whys.get(options.backup, "there is no such backup")
    raise CommandError(f"{stream.place}: {options.backup}: {why}; nothing was changed on any host", "mqctl backup list")


def _written(world: World, options: Options, node: Node, receipt: backups.JsonRow) -> Exit:
    rows = Rows("mqctl.backup-restore/1", COLUMNS)
    rows.rows = [{"host": node.host, "instance": node.instance, **row} for row in receipt["queues"]]
    rows.extra = {name: receipt[name] for name in ("backup", "made", "restored", "node_id", "from_node_id", "aside")}
    rows.extra |= {"balances": receipt["balances"], "notes": receipt.get("notes", [])}
    backups.written(world, options, rows, ())
    for note in receipt.get("notes", ()):  # an earlier release has none
        world.note(f"mqctl: {note}")
    world.note(f"restored as node {receipt['node_id']}; put aside: {receipt['aside'] or 'nothing was there'}")
    return Exit.DONE if receipt["balances"] else Exit.DEGRADED


@dataclass(slots=True)
class _Restore:
    """One restore. `nodes`: all of the cluster; `own`: the operation that it is, None for a broker of this machine;
    `was_held`: it goes on with one that may have left the node half restored, so only a receipt gives the cluster back;
    `may_count`: the node may have been changed."""

    world: World
    options: Options
    node: Node
    nodes: Sequence[Node]
    own: HeldCluster | None = None
    was_held: bool = False
    may_count: bool = False

    def receipt(self) -> backups.JsonRow:
        """What became of it. Raises CommandError."""
        self._hold(is_held=self.was_held)
        receipt = self._on_host() if self.options.on_hosts else self._from_here()
        self._hold(is_held=False)
        return receipt

    def _on_host(self) -> backups.JsonRow:
        words = ["restore", self.options.folder, self.options.backup, "--wait-for-word", *self._words]
        with self._known(backups.at(self.world, self.node, words)) as target:
            if target.line() != backups.READY:
                raise CommandError(f"{target.place}: {target.end() or 'it said nothing'}", "mqctl backup list")
            self._before_end()
            target.write(backups.END)
            return backups.said(target, may_fail=True)

    def _from_here(self) -> backups.JsonRow:
        with (
            self._known(backups.at(self.world, self.node, ["take", *self._words])) as target,
            closing(backups.here(["give", str(self.world.cwd / self.options.folder), self.options.backup])) as source,
        ):
            begun = backups.copying(self.world, f"given to {self.node.name}")
            return backups.carried(source, target, begun, self._before_end, self.world.note)

    @property
    def _words(self) -> list[str]:
        return [*backups.instance_words(self.node), "--json", *self.options.is_as_another]

    def _before_end(self) -> None:
        """To copy takes hours: this operation may be given up meanwhile, and the node of the backup started."""
        if self.own is not None:
            operation.require_kept(self.world, self.own, self.node.host)
        if self.options.keep_node_id:
            _unknown(self.world, self.options, self.node, self.nodes)
        self.may_count = True
        self._hold(is_held=True)
        # What comes now is done in silence, and for as long as it takes to read all of it twice.
        self.world.note(f"{self.node.name}: all of it is there, and is read before it takes the place of what was")

    def _hold(self, *, is_held: bool) -> None:
        """Whether the cluster stays held where this ends here."""
        if self.own is not None:
            self.own.stays = is_held

    @contextlib.contextmanager
    def _known(self, target: BackupStream) -> Iterator[BackupStream]:
        """What became of it at the node is known where this ends, or is said not to be, and the cluster stays held."""
        try:
            yield target
        except CommandError as error:
            self._look(target)
            raise CommandError(f"{error.what}{self._left(target)}", "mqctl status") from None
        except KeyboardInterrupt:
            self._interrupted(target)
            raise
        finally:
            target.close()

    def _look(self, target: BackupStream) -> None:
        """The node's own word that it was not changed takes back that it may have been."""
        if target.is_unchanged:
            self.may_count = False
            self._hold(is_held=self.was_held)

    def _interrupted(self, target: BackupStream) -> None:
        """What has all of it goes on to its end; another Ctrl-C waits for that no longer."""
        why = "nothing was changed"
        if self.may_count:
            self.world.note(f"interrupted: waiting for what {self.node.name} does; Ctrl-C again waits no longer")
            with contextlib.suppress(CommandError, KeyboardInterrupt):
                why = target.end()
            self._look(target)
        if target.is_done:
            self._hold(is_held=False)
            if self.own is not None:
                _end(self.own, is_balanced=True)
            why = "it is restored, and restored.json in its data directory is the receipt"
        else:
            why += self._left(target)
        self.world.note(f"interrupted: {self.node.name}: {why}")

    def _left(self, target: BackupStream) -> str:
        """What is to be known of one that has no receipt."""
        said = ""
        if self.may_count and target.is_lost:
            said = "; whether it is restored is not known: restored.json in its data directory names the last"
        if self.own is not None and self.own.stays:
            said += f"; the cluster stays held, {self.own.note['what']} --resume does it again"
        return said
