"""The host that leaves, or one instance of it: its nodes and the others, its receipt, and its way out of the cluster,
step by step.

Each step can be done again. Where a run ends in the middle, the next one finds out from the hosts how far it has come.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from mqctl.brokers import journals, node_state
from mqctl.brokers.verification import verify
from mqctl.errors import CommandError, UsageError
from mqctl.exits import Exit
from mqctl.inventory import Host, InventoryCluster, node_name
from mqctl.nodes import Node, guarded, nodes_in, shell
from mqctl.operation import is_held_by
from mqctl.output import counted
from mqctl.playbook.place import role_takes
from mqctl.playbook.run import Play, run_play, verdict
from mqctl.scaledown import archive, forgetting, receipt
from mqctl.ssh import shell as remote
from mqctl.world import World

STAMP: Final = "%Y%m%dT%H%M%SZ"
LOOK_S: Final = 15
INFO: Final = "info"  # what `mqbroker journal` is to do
STOP_S_MAX: Final = 900.0


@dataclass(frozen=True, slots=True)
class Leaver:
    """A host of a cluster, its nodes, and all others. `is_forced`: it leaves by force; `verb`: by which command of
    mqctl; `party`: the names of those that leave by the same command, in their order, where they are several. Those
    before it have left, and are none of the cluster any more; those behind it take none of its messages. `instance`:
    the only one that leaves of a host that has others, which stay."""

    cluster: InventoryCluster
    host: Host
    is_forced: bool = False
    verb: str = "scale-down"
    party: tuple[str, ...] = ()
    instance: str = ""

    @property
    def name(self) -> str:
        """As it is said on the command line."""
        return f"{self.host.name}/{self.instance}" if self.instance else self.host.name

    @property
    def later(self) -> tuple[str, ...]:
        """Those that leave after it."""
        return self.party[self.party.index(self.name) + 1 :] if self.party else ()

    @property
    def later_nodes(self) -> list[Node]:
        """The nodes of those that leave after it."""
        return [one for one in self.others if _is_of(one, self.later)]

    @property
    def heirs(self) -> list[Node]:
        """The nodes that stay: so nothing is moved twice."""
        return [one for one in self.others if not _is_of(one, self.later)]

    @property
    def nodes(self) -> list[Node]:
        return [one for one in nodes_in(self.cluster) if _is_of(one, [self.name])]

    @property
    def others(self) -> list[Node]:
        return [one for one in nodes_in(self.cluster) if not _is_of(one, [self.name])]

    @property
    def command(self) -> str:
        """What is done, as it is noted on hosts."""
        return f"mqctl {self.verb} {' '.join(self.party or (self.name,))}"

    @property
    def ways(self) -> str:
        """How to see how far it is, to go on, and to take it back."""
        if self.verb == "scale-down":
            return f"--show says so, {self.again}, or --cancel"
        return f"{self.again} follows it, {self.back} takes it back"

    @property
    def back(self) -> str:
        """The command that takes it back, as it is noted on hosts."""
        return f"{self.command} --cancel" if self.verb == "scale-down" else f"mqctl un{self.verb} {self.host.name}"

    @property
    def again(self) -> str:
        """The command that goes on."""
        return f"{self.command} --resume{' --force' if self.is_forced else ''}"


def _is_of(node: Node, names: Collection[str]) -> bool:
    """Whether these name the node, or the whole host that it is on."""
    return node.host in names or f"{node.host}/{node.instance}" in names


def leavers_of(
    cluster: InventoryCluster, names: Sequence[str], *, is_forced: bool, out: Collection[str] = ()
) -> list[Leaver]:
    """Those that leave one after the other. `out`: names that the inventory has no more. Raises UsageError where
    another one is none of the cluster, or named twice."""
    twice = sorted({one for one in names if names.count(one) > 1 or ("/" in one and one.partition("/")[0] in names)})
    if twice:
        raise UsageError(f"{', '.join(twice)} is named twice")
    party = tuple(names) if len(names) > 1 else ()
    leavers, rest = [], cluster
    for name in (one for one in names if one not in out):
        host, instance = _named(cluster, name)
        leavers.append(Leaver(rest, rest.host(host), is_forced, party=party, instance=instance))
        rest = _less(rest, host, instance)
    return leavers


def _named(cluster: InventoryCluster, name: str) -> tuple[str, str]:
    """Host and instance; that is empty where the whole host is meant. Raises UsageError."""
    host, _, instance = name.partition("/")
    instances = cluster.host(host).instances
    if instance and instance not in instances:
        known = ", ".join(instances)
        others = f"mqctl scale-down {host}/{instances[0]}"  # not the host: the others were to stay
        raise UsageError(f"{host} has no instance {instance}: it has {known}", others)
    return host, instance


def _less(cluster: InventoryCluster, host: str, instance: str) -> InventoryCluster:
    """The cluster once a host has left, or one instance of it."""
    hosts = (_without(one, instance) if one.name == host else one for one in cluster.hosts)
    return replace(cluster, hosts=tuple(one for one in hosts if one is not None))


def _without(host: Host, instance: str) -> Host | None:
    if not instance:
        return None
    rest = [one for one in host.variables["mq_instances"] if str(one.get("name", "")) != instance]
    return replace(host, variables={**host.variables, "mq_instances": rest})


def out_of(world: World, cluster: InventoryCluster, names: Sequence[str]) -> list[str]:
    """Those that the inventory has no more, where it is this scale-down that is taken back: they are told of."""
    out = [one for one in names if not _is_there(cluster, one)]
    command = f"mqctl scale-down {' '.join(names)}"
    if len(out) in (0, len(names)):
        return []
    if not any(is_held_by(world, cluster, what) for what in (command, f"{command} --cancel")):
        return []
    for name in out:
        world.note(f"{name} is out of the inventory, and is not taken back")
    return out


def _is_there(cluster: InventoryCluster, name: str) -> bool:
    host, _, instance = name.partition("/")
    return any(one.name == host and (not instance or instance in one.instances) for one in cluster.hosts)


def meant(cluster: InventoryCluster, names: Sequence[str]) -> list[str]:
    """Those that leave, by their names: where all instances of a host are named, it is the host."""
    said: list[str] = []
    for name in names:
        hosts = [one for one in cluster.hosts if one.name == name.partition("/")[0]]
        own = [f"{one.name}/{instance}" for one in hosts for instance in one.instances]
        if name not in own or not {*own} <= {*names}:
            said.append(name)
        elif name == next(one for one in names if one in own):
            said.append(hosts[0].name)
    return said


def receipt_of(
    world: World, leaver: Leaver, answers: Mapping[str, Mapping[str, Any]], ids: Sequence[str], *, is_forced: bool
) -> dict[str, Any]:
    """The whole receipt, out of what each node said at the end of its drain. `ids`: theirs."""
    at = world.now()
    rows, different, stays, others = [], [], [], []
    for node in leaver.nodes:
        answer = answers[node.name]
        own = answer.get("receipt")
        rows += receipt.rows_of(node.host, node.instance, str(answer.get("node")), own or {}, is_forced=is_forced)
        different += [f"{node.name}: {text}" for text in receipt.differences(own, is_forced=is_forced)]
        others += [{"instance": node.instance, **one} for one in (own or {}).get("others", ())]
        kept = [one for one in answer.get("hindrances", ()) if one["kind"] == "queue"]
        stays += [{"instance": node.instance, "queue": one["name"], "why": one["why"],
                   "messages": one.get("messages")} for one in kept]  # fmt: skip
    if not is_forced:
        different += [f"queue {one['queue']} stays here: {one['why']}" for one in stays]
    return {
        "schema": receipt.SCHEMA,
        "cluster": leaver.cluster.name,
        "host": leaver.host.name,
        **({"instances": [leaver.instance]} if leaver.instance else {}),
        "node_ids": sorted(ids),
        "at": at.isoformat(timespec="seconds"),
        "archive": f"scale-down-{at.strftime(STAMP)}",
        "differences": different,
        "stays": stays,
        "others": others,  # what waited to be sent to other nodes
        "rows": rows,
    }


def pauses_in(document: Mapping[str, Any]) -> dict[str, list[Mapping[str, Any]]]:
    """The rows of a receipt by the node that they are of; those of earlier releases say nothing of pauses."""
    by_node: dict[str, list[Mapping[str, Any]]] = {}
    for row in document["rows"]:
        by_node.setdefault(node_name(row["host"], row["instance"]), []).append(row)
    return by_node


def keep(world: World, folder: Path, document: Mapping[str, Any], so_far: str = "nothing was stopped") -> list[Path]:
    """The receipt as files: for programs and for people. Raises CommandError, which says what was done `so_far`."""
    name = f"{document['archive']}-{receipt.who(document).replace('/', '-')}"
    kept = [folder / f"{name}.json", folder / f"{name}.txt"]  # told as the folder was named
    as_json, as_page = (world.cwd / each for each in kept)
    try:
        as_json.parent.mkdir(parents=True, exist_ok=True)
        as_json.write_text(json.dumps(document, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
        as_page.write_text(receipt.page(document), encoding="utf-8")
    except OSError as fault:
        raise CommandError(f"{folder}: {fault.strerror}; {so_far}", "--receipts ELSEWHERE") from None
    for each in kept:
        world.note(f"wrote {each}")
    return kept


def require_balance(leaver: Leaver, document: Mapping[str, Any]) -> None:
    """Raises CommandError that names what is different; the host is left as it is then."""
    if document["differences"]:
        force = " --force" if document["stays"] and not leaver.is_forced else ""
        raise CommandError(
            f"the receipt does not balance: {'; '.join(document['differences'])}; {leaver.name} stays as it is",
            f"{leaver.again}{force}, or --cancel",
        )


def stop(
    world: World, leaver: Leaver, document: Mapping[str, Any], *, may_come_twice: bool = False
) -> tuple[list[str], list[str]]:
    """Stop the brokers that leave; the receipt is there before. What their journals hold that the receipt does not
    say, which came after it was made; and who waits for their answers by now, since what was sent to them may have come
    and moved on. Where there is anything they run again, and drain on by themselves. `may_come_twice`: whoever waits is
    only told of.
    """
    archive.require_own(world, leaver.host, leaver.instance)
    archive.put_receipt(world, leaver.host, document["archive"], dict(document))
    # A run that was killed may have moved data away and left the unit.
    away = archive.moved_away(world, leaver.host, document["archive"])
    here = [one for one in leaver.nodes if one.instance not in away]
    nodes = [one for one in here if not _is_removed(world, leaver, one)]
    _systemctl(world, leaver, "stop", nodes)
    late = [
        f"{one.name}: {text}"
        for one in nodes
        for text in receipt.unaccounted(journals.ask(world, one, INFO)["queues"], document, one.instance)
    ]
    waiting = forgetting.still_unanswered(world, leaver.others, document["node_ids"]) if nodes and not late else []
    if waiting and may_come_twice:
        world.note(f"warning: {'; '.join(waiting)}: these may come twice")
    if late or (waiting and not may_come_twice):
        _systemctl(world, leaver, "start", nodes)
        # Not before: with it the next run finds its way from here.
        archive.void_receipts(world, leaver.host, leaver.instance)
    return late, waiting


def _is_removed(world: World, leaver: Leaver, node: Node) -> bool:
    """Whether nothing of a broker is there to be stopped. Where others stay, so does the unit that all are made of."""
    if leaver.instance:
        return archive.is_removed(world, leaver.host, leaver.instance)
    return bool(node_state.look(world, node, LOOK_S)["state"] == "absent")


def _systemctl(world: World, leaver: Leaver, action: str, nodes: Sequence[Node]) -> None:
    units = [f"mqbroker@{one.instance}.service" for one in nodes]
    if units:
        command = guarded(world, leaver.host.access, ["systemctl", action, *units])
        result = remote.run(shell(world, leaver.host.access), command, timeout_s=STOP_S_MAX)
        if result.code:
            raise CommandError(f"{leaver.name}: systemctl {action}: {result.complaint}", leaver.again)


def require_removable(world: World, leavers: Sequence[Leaver]) -> None:
    """The role can take an instance away alone: that of an earlier release takes the host. Raises CommandError."""
    names = [one.name for one in leavers if one.instance]
    if names and not role_takes(world.environ, world.cwd, "uninstall", "uninstall_instances"):
        raise CommandError(
            f"the collection there takes whole hosts away, and not {' and '.join(names)} alone; nothing was changed",
            "mqctl version, and the collection of this release",
        )


def take_away(world: World, leaver: Leaver, document: Mapping[str, Any]) -> None:
    """Remove the brokers that leave, which are stopped, and move their data aside."""
    variables: dict[str, Any] = {"mq_uninstall_archive": document["archive"]}
    variables |= {"mq_uninstall_instances": [leaver.instance]} if leaver.instance else {}
    state = run_play(world, leaver.cluster, Play("uninstall", variables, leaver.host.name))
    if verdict(state) is not Exit.DONE:
        notes = "; ".join(one.note for one in state.hosts.values() if one.note)
        raise CommandError(f"{leaver.name} is drained and not taken away yet: {notes}", leaver.again)
    archive.require_archived(world, leaver.host, document["node_ids"])


def have_forgotten(world: World, leaver: Leaver, others: Sequence[Node], ids: Sequence[str]) -> None:
    """The others forget it, and none of them knows anything of it any more."""
    count = forgetting.forget(world, others, ids)
    if count:
        world.note(f"{counted(count, 'message')} that waited for {leaver.name} elsewhere were routed anew")
    forgetting.require_forgotten(world, others, ids)
    world.note(f"nothing of {leaver.name} is left at {counted(len(others), 'other node')}")


@contextlib.contextmanager
def telling_who_has_left(world: World, leaver: Leaver, left: Sequence[str]) -> Iterator[None]:
    """What ends a run of which hosts have left says that too, and that the cluster stays held: what it says of itself,
    as that nothing was changed, is of the host whose turn it is."""
    if not left:
        yield
        return
    stays = f"{' and '.join(left)} left before, so the cluster stays held by {leaver.command}"
    ways = f"{leaver.again} goes on, {leaver.back} has {leaver.name} stay, mqctl operation release gives it up"
    try:
        yield
    except CommandError as error:
        attempt = f"{error.attempt}; " if error.attempt and error.attempt != leaver.again else ""
        code = Exit.FAILED if error.code is Exit.USAGE else error.code  # something was touched
        raise CommandError(f"{stays}; {leaver.name}: {error.what}", f"{attempt}{ways}", code) from None
    except KeyboardInterrupt:
        world.note(f"{stays}; {ways}")
        raise


def look_at_rest(world: World, leaver: Leaver) -> Exit:
    """At every node that stays. The host has left by then, so what is wrong there is told and no failure of that."""
    try:
        return _verified(world, leaver)
    except CommandError as error:
        world.note(f"{error.what}; try: {error.attempt}")
        return Exit.DEGRADED


def _verified(world: World, leaver: Leaver) -> Exit:
    rest = _less(leaver.cluster, leaver.host.name, leaver.instance)
    return verify(world, leaver.cluster, rest.hosts)
