"""The operation of this run: one at a time in a cluster, by a number that the hosts keep and that only grows.

Each host is asked, and all that can be reached are taken; where one cannot be had, those that were taken are given
back. What is done on a host under the operation goes through `nodes.guarded`, with the number, and playbooks are handed
it as `mq_operation`. So one that was given up, or that somebody goes on with elsewhere, comes to its end at its next
step. Nothing ends it by itself: where mqctl is killed it stays. Source: docs/adr/0028-one-operation-at-a-time.md.
"""

from __future__ import annotations

import contextlib
import json
import platform
import secrets
import shlex
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from getpass import getuser
from importlib import resources
from typing import Annotated, Any, Final

import typer

from mqctl.errors import CommandError
from mqctl.exits import Exit
from mqctl.fanout import on_each
from mqctl.inventory import Host, InventoryCluster
from mqctl.nodes import shell
from mqctl.remote import operation as noting
from mqctl.ssh import shell as remote
from mqctl.world import World

IDLE_S: Final = 10.0
QUIET_S: Final = 5.0  # longer than Ansible takes between two tasks
LOOKS_MAX: Final = 3
WAITS_MAX: Final = 4  # so many times these looks, until what ran before has come to its end
TIME_S: Final = 30.0
SINCE: Final = "%Y-%m-%d %H:%M:%S UTC"
SHOW: Final = "mqctl operation show"
Resume = Annotated[
    bool,
    typer.Option("--resume", help="Go on in the place of a run of this command that holds the cluster and is gone."),
]


@dataclass(slots=True)
class HeldCluster:
    """`note`: as it stands on hosts; `hosts`: those that have it; `busy`: where a task may still be under way.

    `away`: those that did not have it at the beginning; a playbook may have come to one of them since.
    `stays`: it is not over where this run ends, so that the hosts stay held. `follows`: on a run that was gone on with
    or given up, and of which a task of a playbook may still be under way. `came_to`: hosts that a playbook has reached.
    `is_done`: nothing is left to do again; `ways`: what leads out of hosts that stay held, where that is something else
    than of any operation. `left_held`: hosts that were not given back at its end, or of which nobody knows it.
    """

    note: dict[str, Any]
    hosts: list[Host]
    away: list[Host] = field(default_factory=list)
    busy: set[str] = field(default_factory=set)
    stays: bool = False
    follows: bool = False
    came_to: set[str] = field(default_factory=set)
    is_done: bool = False
    ways: str = ""
    left_held: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class OperationScope:
    """`changed`: the hosts that an operation changes, None for all; `seen`: host -> its number before the plan.

    `goal`: the release that it brings or takes back; `instead_of`: commands in whose place it may come, where it goes
    on, too.
    """

    changed: Collection[str] | None = None
    seen: Mapping[str, int] = field(default_factory=dict)
    goal: str = ""
    instead_of: Collection[str] = ()


ALL: Final = OperationScope()


@contextlib.contextmanager
def holding(
    world: World, cluster: InventoryCluster, what: str, *, is_resumed: bool = False, scope: OperationScope = ALL
) -> Iterator[HeldCluster]:
    """Hold the cluster for `what`, a command that goes on as `noting.again` says. Raises CommandError where another
    operation does, or has done since the plan was made, or where tasks of the one before do not come to their end."""
    own = begin(world, cluster, what, is_resumed=is_resumed, scope=scope)
    world.operation = own
    try:
        require_over(world, own)
        yield own
    finally:
        world.operation = None
        if not own.stays:
            end(world, own)


def code_of(own: HeldCluster, code: Exit) -> Exit:
    """The exit code of a command that came to `code` and is over: nobody takes it for done where a host stays held."""
    return Exit.DEGRADED if own.left_held and code is Exit.DONE else code


def give_back(world: World, cluster: InventoryCluster, what: str, scope: OperationScope) -> HeldCluster:
    """Go on in the place of `what`, of which nothing is left to do, and let go of the cluster. Raises CommandError."""
    with holding(world, cluster, what, is_resumed=True, scope=scope) as own:
        own.is_done = True  # the end of it gives the hosts back
    return own


def require_over(world: World, own: HeldCluster) -> None:
    """Nothing of a run that was gone on with or given up is under way any more; that is waited for, for about a minute.

    What it has not begun is refused by its number. Where this fails, or is interrupted, the hosts stay held, so that
    whoever comes next waits as well. Raises CommandError.
    """
    if not own.follows:
        return
    own.stays, found = True, ""
    try:
        for _ in range(WAITS_MAX):
            found = told_busy(busy(world, own.hosts))
            if not found:
                own.stays = False
                return
            world.note(f"{found}; waiting for their end")
    except KeyboardInterrupt:
        world.note(f"interrupted: nothing was changed, and the hosts stay held; {_remedy(own)}")
        raise
    again = noting.again(own.note["what"])
    raise CommandError(
        f"{found}; nothing was changed, and the hosts stay held",
        f"{again}, when they have ended; where they are of something else, {noting.UNAWAITED} and begin anew",
    )


def told_busy(found: Mapping[str, str]) -> str:
    """What is under way where, in words; empty where nothing is. Whose they are a task does not say."""
    if not found:
        return ""
    return f"{', '.join(found)}: tasks of Ansible's are still under way ({'; '.join(map(': '.join, found.items()))})"


def typed(command: str, limit: str, *more: str) -> str:
    """A command as it is noted, and is said to go on: for no other hosts than it was begun for."""
    return shlex.join([*command.split(), *(["--limit", limit] if limit else []), *more])


def is_of(what: str, command: str) -> bool:
    """Whether what is noted is this command, for all hosts or for some."""
    return what == command or what.startswith(f"{command} --limit ")


def limit_of(found: Mapping[str, Mapping[str, Any] | None]) -> str:
    """The hosts to which the release is brought that the newest of these notes is about, as --limit takes them; empty
    for all, and where no command that was typed brings it."""
    last = _newest(found)
    try:
        words = [] if last is None else shlex.split(_about(last))
        return words[words.index("--limit") + 1]
    except (ValueError, IndexError):
        return ""


def hosts_of(
    cluster: InventoryCluster,
    notes: Mapping[str, Mapping[str, Any] | None],
    command: str,
    limit: str,
    *,
    is_resumed: bool,
) -> list[Host]:
    """The hosts of a command with this `--limit`. Who goes on with what the newest of these notes is says the limit as
    it is noted, and goes on without those that have left since: another text would be another operation. Raises
    CommandError where none is left, and UsageError where another limit names one that is not there."""
    last = _newest(notes)
    if not is_resumed or last is None or command not in (last["what"], _about(last)):
        return cluster.limited(limit)
    known = cluster.known(limit)
    if limit and not known:
        raise CommandError(
            f"{command} was begun for hosts of which none is in the inventory any more; nothing was changed",
            "mqctl operation release, where that holds the cluster; then the command without --resume, for other hosts",
        )
    return cluster.limited(known)


def require_free(world: World, cluster: InventoryCluster) -> None:
    """No operation is under way, of those that are noted where hosts can be reached. Raises CommandError."""
    require_none_but(look(world, cluster.hosts)[0], ())


def numbers(world: World, cluster: InventoryCluster) -> dict[str, int]:
    """Host -> the number that is noted there, 0 for none; asked before a plan is made, so that it still holds later."""
    return numbers_of(look(world, cluster.hosts)[0])


def numbers_of(found: Mapping[str, Mapping[str, Any] | None]) -> dict[str, int]:
    """Host -> the number of its note, 0 for none."""
    return {name: int(note["number"]) if note else 0 for name, note in found.items()}


def goal_of(found: Mapping[str, Mapping[str, Any] | None], what: str = "") -> str:
    """The release that the newest of these notes is about; empty where it is about none, or another command than
    `what` has made it so."""
    last = _newest(found)
    return str(last.get("goal", "")) if last is not None and (not what or is_of(_about(last), what)) else ""


def _about(note: Mapping[str, Any]) -> str:
    """The command by which a note is about its release: that of the note, or one of before, as what is about no release
    keeps that (so `mqctl upgrade stop`, or a drain). Earlier releases do not say it."""
    return str(note.get("goal_by") or note["what"])


def _newest(found: Mapping[str, Mapping[str, Any] | None]) -> Mapping[str, Any] | None:
    return max((one for one in found.values() if one), key=lambda one: int(one["number"]), default=None)


def is_paused(world: World, hosts: Sequence[Host]) -> bool:
    """Whether somebody paused the operation that holds one of these hosts."""
    found = look(world, hosts)[0].values()
    return any(note is not None and note["is_held"] and note.get("wish") == noting.PAUSE for note in found)


def is_unawaited(found: Mapping[str, Mapping[str, Any] | None]) -> bool:
    """Whether the last that happened is that somebody said that what still runs on the hosts is not waited for."""
    last = _newest(found)
    return last is not None and last["what"] == noting.UNAWAITED


def is_held_by(world: World, cluster: InventoryCluster, what: str) -> bool:
    """Whether a run of this command, for whichever hosts, holds one that can be reached."""
    return bool(held_by(look(world, cluster.hosts)[0], [what]))


def held_by(found: Mapping[str, Mapping[str, Any] | None], commands: Collection[str]) -> set[str]:
    """What holds hosts by these notes and is one of these commands, as it is noted."""
    held = (str(note["what"]) for note in found.values() if note and note["is_held"])
    return {what for what in held if any(is_of(what, one) for one in commands)}


def begin(
    world: World, cluster: InventoryCluster, what: str, *, is_resumed: bool = False, scope: OperationScope = ALL
) -> HeldCluster:
    """Take all hosts that can be reached. Raises CommandError where one cannot be had: held is then what was before."""
    found, faults = look(world, cluster.hosts)
    require_none_but(found, {what, *scope.instead_of} if is_resumed else set())
    _require_none_since(found, scope.seen)
    for fault in faults.values():
        world.note(f"{fault}; nobody is kept from changing that host meanwhile")
    after = [str(note["what"]) for note in found.values() if note and noting.may_have_tasks(note)]
    own = HeldCluster(note_of(world, what, found, goal=scope.goal), [one for one in cluster.hosts if one.name in found])
    own.note |= {"after": after[0]} if after else {}
    own.away = [one for one in cluster.hosts if one.name in faults]
    held = {name: str(note["token"]) for name, note in found.items() if note and note["is_held"]}
    own.follows = bool(after)
    # What was held before, by what is gone on with, is held after it too, also where this fails: brokers may drain.
    fresh = HeldCluster(own.note, [one for one in own.hosts if one.name not in held])
    try:
        refusals = _take_all(world, own, held, scope.changed)
    except BaseException:
        end(world, fresh)
        raise
    if refusals:
        end(world, fresh)
        raise CommandError(f"{'; '.join(refusals)}; nothing was changed on any host", SHOW)
    return own


def _take_all(world: World, own: HeldCluster, held: Mapping[str, str], changed: Collection[str] | None) -> list[str]:
    """Why hosts cannot be had. One that nothing is changed on and that can note nothing is as one that is not reached.

    `held`: host -> token of the operation in whose place this one is to be there.
    """
    refusals = []
    for host, answer in list(on_each(own.hosts, lambda one: _take(world, one, own.note, held.get(one.name, "")))):
        if isinstance(answer, CommandError):
            if changed is None or host.name in changed or not _is_untaken(world, host, own.note):
                refusals.append(answer.what)
                continue
            own.hosts.remove(host)
            own.away.append(host)
            world.note(f"{answer.what}; nobody is kept from changing that host meanwhile")
        elif answer is not None:
            refusals.append(f"{host.name}: {noting.sentence(answer)}")
    return refusals


def _is_untaken(world: World, host: Host, own: Mapping[str, Any]) -> bool:
    """Whether nobody holds a host where no answer came: also not this operation, whose answer may be what was lost."""
    found, faults = look(world, [host])
    note = found.get(host.name)
    return not faults and not (note and note["is_held"]) and (note is None or note["number"] < own["number"])


def require_none_but(found: Mapping[str, dict[str, Any] | None], followed: Collection[str]) -> None:
    """Nothing is held, or by commands that are followed: what is asked for goes on in their place. Raises
    CommandError."""
    held = {name: note for name, note in found.items() if note and note["is_held"] and note["what"] not in followed}
    if held:
        name, note = max(held.items(), key=lambda one: int(one[1]["number"]))
        raise CommandError(f"{name}: {noting.sentence(note)}; nothing was changed on any host", SHOW)


def _require_none_since(found: Mapping[str, dict[str, Any] | None], seen: Mapping[str, int]) -> None:
    """What was looked at and agreed to is as it was."""
    for name, note in found.items():
        if note and note["number"] > seen.get(name, note["number"]):
            raise CommandError(
                f"{name}: {noting.told(note)} has been there since the plan was made; nothing was changed on any host",
                "the same command again, which makes a new plan",
            )


def note_of(
    world: World, what: str, found: Mapping[str, dict[str, Any] | None], *, is_held: bool = True, goal: str = ""
) -> dict[str, Any]:
    """The next operation after those that were found. One that is about no release keeps what the one before was about:
    a way back needs it, whatever came in between. Raises CommandError where no number is left."""
    by, last = what, _newest(found)
    if not goal and last is not None and last.get("goal"):
        goal, by = str(last["goal"]), _about(last)
    number = max((int(note["number"]) for note in found.values() if note), default=0) + 1
    if number >= noting.NUMBER_MAX:
        raise CommandError(f"operation {number - 1} has the last number there is, so none follows it; it is noted in "
                           f"{noting.PLACE}; nothing was changed on any host", SHOW)  # fmt: skip
    return {
        "number": number,
        "is_held": is_held,
        "token": secrets.token_hex(8),
        "user": _user(),
        "machine": platform.node(),
        "what": what,
        "since": world.now().strftime(SINCE),
        **({"goal": goal, "goal_by": by} if goal else {}),
    }


def _user() -> str:
    """Containers often run with a number that belongs to no account."""
    try:
        return getuser()
    except (KeyError, OSError):
        return "somebody"


told = noting.told


def look(world: World, hosts: Sequence[Host]) -> tuple[dict[str, dict[str, Any] | None], dict[str, str]]:
    """Host -> what is noted there; and host -> why it could not be asked."""
    found: dict[str, dict[str, Any] | None] = {}
    faults: dict[str, str] = {}
    for host, answer in on_each(hosts, lambda one: ask_host(world, one, "operation.py", "look")):
        if isinstance(answer, CommandError):
            faults[host.name] = answer.what
        else:
            found[host.name] = answer["found"]
    return found, faults


def wish(
    world: World, hosts: Sequence[Host], shown: Mapping[str, dict[str, Any] | None], what: str
) -> tuple[list[str], dict[str, str]]:
    """Note on the hosts what is wished of the operation that was shown to hold them: where it is noted, and why not."""
    held = {name: note for name, note in shown.items() if note and note["is_held"]}
    noted, faults = [], {}
    asked = [one for one in hosts if one.name in held]
    for host, answer in on_each(asked, lambda one: _wish(world, one, held[one.name], what)):
        if isinstance(answer, CommandError):
            faults[host.name] = answer.what
        elif not answer:
            faults[host.name] = f"{host.name}: another operation has come there since"
        else:
            noted.append(host.name)
    return noted, faults


def _wish(world: World, host: Host, note: Mapping[str, Any], what: str) -> bool:
    answer = ask_host(world, host, "operation.py", "wish", "--note", json.dumps(note), "--wish", what)
    return answer["found"] is not None


def busy(world: World, hosts: Sequence[Host]) -> dict[str, str]:
    """Hosts on which tasks of a playbook follow one another for a while, or that do not say -> what was seen there.

    All are looked at for the same seconds, three times at most: in a batch a host that waits for another one has
    nothing under way, but the other one has.
    """
    words = ("--wait", "0", "--quiet", str(QUIET_S))
    found: dict[str, str] = {}
    for _ in range(LOOKS_MAX):
        answers = on_each(hosts, lambda one: str(ask_host(world, one, "idle.py", *words)["task"]))
        found = {host.name: "it does not say" if isinstance(answer, CommandError) else answer
                 for host, answer in answers if answer}  # fmt: skip
        if not found:
            break
    return found


def give_up(
    world: World,
    hosts: Sequence[Host],
    shown: Mapping[str, dict[str, Any] | None],
    what: str = noting.GIVEN_UP[0],
) -> tuple[dict[str, Any], dict[str, str]]:
    """Raise the number on all hosts that can be reached, and hold none: what is under way is refused at its next step.

    `shown`: host -> what was noted there when that was agreed to; nothing else is given up. What is noted now; and
    host -> why it is not noted there.
    """
    found, faults = look(world, hosts)
    note = note_of(world, what, found, is_held=False)
    tokens = {name: str(one["token"]) for name, one in shown.items() if one}
    asked = [one for one in hosts if one.name in found]
    for host, answer in on_each(asked, lambda one: _take(world, one, note, tokens.get(one.name, ""))):
        if isinstance(answer, CommandError):
            faults[host.name] = answer.what
        elif answer is not None:
            faults[host.name] = f"{host.name}: {noting.sentence(answer)}"
    return note, faults


def _take(world: World, host: Host, note: Mapping[str, Any], instead_of: str) -> dict[str, Any] | None:
    words = ["take", "--note", json.dumps(note), *(["--instead-of", instead_of] if instead_of else [])]
    found: dict[str, Any] | None = ask_host(world, host, "operation.py", *words)["found"]
    return found


def require_kept(world: World, own: HeldCluster, host: str) -> None:
    """This operation still has the host, before something there counts that has taken long. Raises CommandError."""
    one = next((one for one in own.hosts if one.name == host), None)
    found = None if one is None else ask_host(world, one, "operation.py", "look")["found"]
    if found is None or not noting.is_own(found, own.note):
        why = noting.sentence(found) if found else f"operation {own.note['number']} is not noted there"
        raise CommandError(f"{host}: {why}; nothing more is done there", SHOW)


def end(world: World, own: HeldCluster) -> None:
    """Give the hosts back. Another Ctrl-C ends this."""
    # One that was away is held only where a playbook has come to it since.
    came_to = [one for one in own.away if one.name in own.came_to]
    left = {one.name for one in (*own.hosts, *came_to)}
    try:
        for host, answer in on_each([*own.hosts, *own.away], lambda one: _end(world, one, own)):
            if not isinstance(answer, CommandError):
                if answer:
                    left.discard(host.name)
                    continue
                left.add(host.name)
                world.note(f"{host.name}: a task is still under way there, so it stays held; {_remedy(own)}")
            elif host.name in left:
                world.note(f"{host.name}: it stays held, as it could not be given back: {answer.what}; {_remedy(own)}")
            else:
                world.note(f"{answer.what}; if it was reached meanwhile, it stays held: {_remedy(own)}")
    except KeyboardInterrupt:
        world.note(f"interrupted: not every host was given back; {_remedy(own)}")
    own.left_held += sorted(left)


def _end(world: World, host: Host, own: HeldCluster) -> bool:
    """Whether it was given back; where a task may be under way, that is waited for."""
    if host.name in own.busy and not ask_host(world, host, "idle.py", "--wait", str(IDLE_S))["is_idle"]:
        return False
    ask_host(world, host, "operation.py", "give-back", "--note", json.dumps(own.note))
    return True


def _remedy(own: HeldCluster) -> str:
    if own.ways:
        return own.ways
    if own.is_done:
        return "all of it is done, so mqctl operation release gives it back"
    return f"{noting.again(own.note['what'])} goes on, mqctl operation release gives it up"


def ask_host(world: World, host: Host, program: str, *words: str) -> dict[str, Any]:
    """What a program says that is sent to the host. Raises CommandError where it says nothing."""
    text = resources.files("mqctl.remote").joinpath(program).read_bytes()
    result = remote.run(shell(world, host.access), [host.access.python, "-", *words], text, TIME_S)
    try:
        answer: dict[str, Any] = json.loads(result.out)
    except ValueError:
        raise CommandError(f"{host.name}: {result.complaint}") from None
    return answer
