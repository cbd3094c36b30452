"""Owns the command line: parses, checks, and calls the room that acts.

Data go to standard output, progress and errors to standard error. Exit codes: 0 done, 1 failed, 2 usage; `exec`,
`enter` and `ssh` pass on that of the command they ran.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from mqrack import answering, faults, host, image, inventory, lifecycle, prerequisites, relay, report, ssh, supervisor
from mqrack.errors import RackError
from mqrack.layout import Layout
from mqrack.plan import Plan, check_name, make_plan

DEFAULT_NAME = "default"
Arguments = argparse.Namespace


def main(argv: Sequence[str]) -> int:
    if argv and argv[0] in _INTERNAL:
        return _guarded(lambda: _INTERNAL[argv[0]](argv[1:]))
    arguments = _parser().parse_args(argv)
    return _guarded(lambda: arguments.act(arguments))


def _guarded(act: Callable[[], int]) -> int:
    try:
        return act()
    except RackError as error:
        print(f"rack: {error}", file=sys.stderr)
        return 1
    except PermissionError as error:
        print(f"rack: {error.filename}: permission denied; run this with sudo.", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("rack: interrupted; `rack status` shows what there is, `rack destroy` clears it.", file=sys.stderr)
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="rack", description="Real systemd hosts on this machine, for tests.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    shared = argparse.ArgumentParser(add_help=False)
    default = os.environ.get("RACK_NAME", DEFAULT_NAME)
    shared.add_argument("--name", default=default, help=f"which rack (default: RACK_NAME or {DEFAULT_NAME})")

    def command(name: str, act: Callable[[Arguments], int], text: str) -> argparse.ArgumentParser:
        added = commands.add_parser(name, parents=[shared], help=text, description=text)
        added.set_defaults(act=act)
        return added

    _add_rack_commands(command)
    _add_host_commands(command)
    _add_reach_commands(command)
    return parser


_Command = Callable[[str, Callable[[Arguments], int], str], argparse.ArgumentParser]


def _add_rack_commands(command: _Command) -> None:
    up = command("up", _up, "put up N hosts, or switch on those that are off")
    up.add_argument("hosts", type=int, metavar="N")
    up.add_argument("--behind", action="append", default=[], metavar="HOST=JUMP",
                    help="HOST has no way to the controller but through JUMP (repeatable)")  # fmt: skip
    light = command("up-light", _up_light, "add light hosts: ssh server only, no init")
    light.add_argument("lights", type=int, metavar="N")
    destroy = command("destroy", _destroy, "take the rack down and leave nothing")
    destroy.add_argument("--all", action="store_true", help="every rack on this machine")
    status = command("status", _status, "show hosts, cards and faults")
    status.add_argument("--json", action="store_true")
    command("image", _image, "make the file system that hosts begin with, if it is not there; `up` does so too")
    command("doctor", _doctor, "find out by trying whether hosts can be booted here")


def _add_host_commands(command: _Command) -> None:
    for name, act, text in (
        ("boot", _boot, "switch a host on and wait until it is ready"),
        ("kill", _kill, "power cut: cables silent, then everything gone at once"),
        ("halt", _halt, "power button: services stop in order"),
        ("pause", _pause, "stall every process of a host"),
        ("resume", _resume, "let a stalled host go on"),
    ):
        command(name, act, text).add_argument("host")
    for name, act, text, amount in (
        ("cut", _cut, "unplug a network card", None),
        ("heal", _heal, "plug a network card in again, without loss or delay", None),
        ("loss", _loss, "lose PERCENT of a card's frames, each way", "percent"),
        ("delay", _delay, "hold a card's frames back by MS, each way", "ms"),
    ):
        added = command(name, act, text)
        added.add_argument("host")
        added.add_argument("card", help="eth0 (management) or eth1 (cluster)")
        if amount:
            added.add_argument(amount, type=float, metavar=amount.upper())


def _add_reach_commands(command: _Command) -> None:
    listing = command("inventory", _inventory, "print an Ansible inventory for use inside `rack enter`")
    listing.add_argument("--group", default="brokers")
    listing.add_argument("--jump-by", choices=inventory.JUMPS, default=inventory.JUMPS[0],
                         help="how hosts behind another are reached (default: %(default)s)")  # fmt: skip
    executing = command("exec", _exec, "run a command in a host, as root")
    executing.add_argument("host")
    executing.add_argument("command", nargs=argparse.REMAINDER, metavar="-- CMD")
    entering = command("enter", _enter, "run a command where the hosts can be reached")
    entering.add_argument("command", nargs=argparse.REMAINDER, metavar="-- CMD")
    connecting = command("ssh", _ssh, "log in to a host, or run a command there, as user deploy")
    connecting.add_argument("host")
    connecting.add_argument("command", nargs=argparse.REMAINDER, metavar="CMD")


def _rack(arguments: Arguments) -> tuple[Layout, Plan]:
    layout = Layout(check_name(arguments.name))
    return layout, lifecycle.load(layout)


def _words(arguments: Arguments) -> list[str]:
    words: list[str] = arguments.command
    return words[1:] if words[:1] == ["--"] else words


def _up(arguments: Arguments) -> int:
    behind = dict(_pair(text) for text in arguments.behind)
    return _bring_up(make_plan(arguments.name, arguments.hosts, 0, behind))


def _pair(text: str) -> tuple[str, str]:
    hidden, separator, jump = text.partition("=")
    if not separator:
        raise RackError(f"--behind {text!r} is not HOST=JUMP, for instance --behind mq3=mq1.")
    return hidden, jump


def _up_light(arguments: Arguments) -> int:
    return _bring_up(make_plan(arguments.name, 0, arguments.lights))


def _bring_up(plan: Plan) -> int:
    prerequisites.ensure()
    root = image.ensure()
    started = time.monotonic()
    try:
        plan = lifecycle.up(plan, root)
    except RackError as error:
        raise RackError(f"{error}\nrack: `rack destroy --name {plan.name}` clears what is there of it.") from None
    took_s = time.monotonic() - started
    print(f"rack: {plan.name}: {len(plan.hosts)} hosts ready in {took_s:.1f} s", file=sys.stderr)
    return 0


def _destroy(arguments: Arguments) -> int:
    names = lifecycle.names() if arguments.all else [check_name(arguments.name)]
    for name in names:
        lifecycle.destroy(Layout(name))
    return 0


def _status(arguments: Arguments) -> int:
    layout, plan = _rack(arguments)
    print(report.as_json(layout, plan) if arguments.json else report.as_table(layout, plan))
    return 0


def _image(_: Arguments) -> int:
    print(image.ensure())
    return 0


def _doctor(_: Arguments) -> int:
    found = prerequisites.findings()
    for finding in found:
        print(finding)
    if not found:
        print("Hosts can be booted here.")
    return 1 if found else 0


def _boot(arguments: Arguments) -> int:
    layout, plan = _rack(arguments)
    lifecycle.boot(layout, [plan.host(arguments.host)])
    return 0


def _kill(arguments: Arguments) -> int:
    layout, plan = _rack(arguments)
    with lifecycle.locked(layout):
        host.kill(layout, plan.host(arguments.host))
    return 0


def _halt(arguments: Arguments) -> int:
    layout, plan = _rack(arguments)
    member = plan.host(arguments.host)
    # Stopping may take a while; the other hosts' commands need not wait for it.
    host.halt(layout, member)
    with lifecycle.locked(layout):
        if host.state(layout, member) == "off":
            host.unplug(layout, member)
    return 0


def _pause(arguments: Arguments) -> int:
    layout, plan = _rack(arguments)
    host.freeze(layout, plan.host(arguments.host), True)
    return 0


def _resume(arguments: Arguments) -> int:
    layout, plan = _rack(arguments)
    host.freeze(layout, plan.host(arguments.host), False)
    return 0


def _change(arguments: Arguments, edit: Callable[[faults.Fault], faults.Fault]) -> int:
    layout, plan = _rack(arguments)
    member = plan.host(arguments.host)
    with lifecycle.locked(layout):
        faults.change(layout, member, member.card(arguments.card), edit)
    return 0


def _cut(arguments: Arguments) -> int:
    return _change(arguments, lambda fault: replace(fault, cut=True))


def _heal(arguments: Arguments) -> int:
    return _change(arguments, lambda _: faults.HEALTHY)


def _loss(arguments: Arguments) -> int:
    percent = faults.check_loss(arguments.percent)
    return _change(arguments, lambda fault: replace(fault, loss_percent=percent))


def _delay(arguments: Arguments) -> int:
    delay_ms = faults.check_delay(arguments.ms)
    return _change(arguments, lambda fault: replace(fault, delay_ms=delay_ms))


def _inventory(arguments: Arguments) -> int:
    layout, plan = _rack(arguments)
    print(inventory.render(layout, plan, arguments.group, arguments.jump_by), end="")
    return 0


def _exec(arguments: Arguments) -> int:
    layout, plan = _rack(arguments)
    return host.execute(layout, plan.host(arguments.host), _words(arguments) or ["/bin/bash", "-l"])


def _enter(arguments: Arguments) -> int:
    prerequisites.ensure()
    layout = Layout(check_name(arguments.name))
    return lifecycle.enter(layout, _words(arguments) or [os.environ.get("SHELL", "/bin/sh")])


def _ssh(arguments: Arguments) -> int:
    layout, plan = _rack(arguments)
    return lifecycle.enter(layout, ssh.client(layout, plan.host(arguments.host), _words(arguments)))


def _supervise(words: Sequence[str]) -> int:
    layout = Layout(words[0])
    plan = lifecycle.load(layout)
    return supervisor.supervise(layout, plan, plan.host(words[1]), lifecycle.image_of(layout))


def _relay(words: Sequence[str]) -> int:
    relay.relay(words[0], words[1], float(words[2]))
    return 0


def _answering(words: Sequence[str]) -> int:
    answering.wait_for_ssh(words[1:], float(words[0]))
    return 0


# Parts of the rack that run as processes of their own.
_INTERNAL: dict[str, Callable[[Sequence[str]], int]] = {
    "_supervise": _supervise,
    "_relay": _relay,
    "_answering": _answering,
}
