"""The program `mqctl`: the table of its commands, and the one place where errors become exit codes."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence
from typing import Any

import typer
from mqbroker.base.text import printable

from mqctl import declare
from mqctl.errors import CommandError
from mqctl.exits import MEANINGS, NAGIOS_UNKNOWN, Exit, NagiosCode

EPILOG = "Exit codes: " + "; ".join(f"{code.value} {MEANINGS[code].split(';')[0]}" for code in Exit) + "."

# Words of a command -> its module below `commands`, in the order in which a cluster's life has them.
COMMANDS = {
    ("init",): "setup.init",
    ("inventory", "check"): "setup.inventory_check",
    ("inventory", "graph"): "setup.inventory_graph",
    ("bundle", "build"): "setup.bundle_build",
    ("bundle", "show"): "setup.bundle_show",
    ("tls", "init"): "setup.tls_init",
    ("tls", "issue"): "setup.tls_issue",
    ("tls", "show"): "setup.tls_show",
    ("tls", "rotate"): "setup.tls_rotate",
    ("preflight",): "rollout.preflight",
    ("plan",): "rollout.plan",
    ("rollout",): "rollout.rollout",
    ("upgrade",): "rollout.upgrade",
    ("rollback",): "rollout.rollback",
    ("scale-up",): "rollout.scale_up",
    ("scale-down",): "rollout.scale_down",
    ("drain",): "rollout.drain",
    ("undrain",): "rollout.undrain",
    ("operation", "show"): "rollout.operation_show",
    ("operation", "release"): "rollout.operation_release",
    ("status",): "look.status",
    ("health",): "look.health",
    ("check",): "look.check",
    ("address", "list"): "messages.address_list",
    ("address", "show"): "messages.address_show",
    ("address", "settings"): "messages.address_settings",
    ("address", "create"): "messages.address_create",
    ("address", "delete"): "messages.address_delete",
    ("address", "pause"): "messages.address_pause",
    ("address", "resume"): "messages.address_resume",
    ("queue", "list"): "messages.queue_list",
    ("queue", "stat"): "messages.queue_stat",
    ("queue", "show"): "messages.queue_show",
    ("queue", "create"): "messages.queue_create",
    ("queue", "delete"): "messages.queue_delete",
    ("queue", "pause"): "messages.queue_pause",
    ("queue", "resume"): "messages.queue_resume",
    ("queue", "purge"): "messages.queue_purge",
    ("message", "browse"): "messages.message_browse",
    ("message", "show"): "messages.message_show",
    ("message", "move"): "messages.message_move",
    ("message", "retry-dead-letters"): "messages.message_retry_dead_letters",
    ("connection", "list"): "look.connection_list",
    ("connection", "close"): "repair.connection_close",
    ("session", "list"): "look.session_list",
    ("consumer", "list"): "look.consumer_list",
    ("producer", "list"): "look.producer_list",
    ("quota", "list"): "look.quota_list",
    ("group", "list"): "look.group_list",
    ("discovery", "list"): "look.discovery_list",
    ("discovery", "groups"): "look.discovery_groups",
    ("topology",): "look.topology",
    ("cluster", "canary"): "look.cluster_canary",
    ("cluster", "forget"): "repair.cluster_forget",
    ("events",): "look.events",
    ("logs",): "look.logs",
    ("support-bundle",): "look.support_bundle",
    ("config", "show"): "look.config_show",
    ("config", "reload"): "rollout.config_reload",
    ("backup", "create"): "repair.backup_create",
    ("backup", "list"): "repair.backup_list",
    ("backup", "verify"): "repair.backup_verify",
    ("backup", "prune"): "repair.backup_prune",
    ("backup", "restore"): "repair.backup_restore",
    ("journal", "info"): "repair.journal_info",
    ("journal", "check"): "repair.journal_check",
    ("journal", "export"): "repair.journal_export",
    ("journal", "import"): "repair.journal_import",
    ("send",): "messages.send",
    ("receive",): "messages.receive",
    ("perf",): "messages.perf",
    ("uninstall",): "rollout.uninstall",
    ("dev", "up"): "setup.dev_up",
    ("dev", "down"): "setup.dev_down",
    ("dev", "status"): "setup.dev_status",
    ("version",): "setup.version",
}
NAGIOS = {("check",)}  # these have its exit codes
GROUPS = {
    "inventory": "The hosts and what is wanted of them.",
    "bundle": "What is copied to the hosts: the broker and its dependencies.",
    "tls": "Certificates of the nodes, and the CA that signs them.",
    "operation": "What changes the cluster: one operation at a time.",
    "address": "Addresses of the brokers: what senders name.",
    "queue": "Queues of the brokers.",
    "message": "Messages in queues.",
    "connection": "Connections of clients.",
    "session": "Sessions of clients.",
    "consumer": "Consumers of queues.",
    "producer": "Producers to addresses.",
    "quota": "What users have made, and how much they may.",
    "group": "Groups of messages that are kept together in a cluster.",
    "discovery": "How brokers find each other.",
    "cluster": "Nodes of a cluster.",
    "config": "Options of running brokers.",
    "backup": "Copies of what brokers have on disk.",
    "journal": "Journals of brokers that do not run.",
    "dev": "Brokers on loopback, for developing an application.",
}
SETTINGS: dict[str, Any] = {"no_args_is_help": True, "pretty_exceptions_enable": False, "rich_markup_mode": None}


def wanted(arguments: Sequence[str]) -> list[tuple[str, ...]]:
    """The commands that a command line may mean: the one that it names, else all, for help and completion."""
    for words in COMMANDS:
        if tuple(arguments[: len(words)]) == words:
            return [words]
    return list(COMMANDS)


def make_app(commands: Sequence[tuple[str, ...]] = tuple(COMMANDS)) -> typer.Typer:
    """A command line with these commands. Only their modules are imported: starting up is most of a short command."""
    app = typer.Typer(help="Clusters of message brokers from an inventory file.", epilog=EPILOG, **SETTINGS)
    app.callback()(lambda: None)  # keeps the name of the command in place where there is only one
    groups: dict[str, typer.Typer] = {}
    for words in commands:
        module = importlib.import_module(f"mqctl.commands.{COMMANDS[words]}")
        place = app
        if len(words) == 2:
            if words[0] not in groups:
                groups[words[0]] = typer.Typer(help=GROUPS[words[0]], **SETTINGS)
                groups[words[0]].callback()(lambda: None)
                app.add_typer(groups[words[0]], name=words[0])
            place = groups[words[0]]
        declare.add(place, words[-1], module)
    return app


def main(arguments: list[str] | None = None) -> None:
    """Run a command line and end the process with its exit code."""
    code = execute(sys.argv[1:] if arguments is None else arguments)
    if code == Exit.INTERRUPTED:
        # Threads may still wait for hosts that do not answer; everything that has to be cleaned up has been.
        sys.stdout.flush()
        os._exit(code)
    sys.exit(code)


def _unknown_to_nagios(code: int, arguments: Sequence[str]) -> int:
    """To Nagios 2 says that something is down; a mistyped command line knows nothing of that."""
    return NAGIOS_UNKNOWN if code == Exit.USAGE and tuple(arguments[:1]) in NAGIOS else code


def execute(arguments: list[str]) -> int:
    """Run a command line; its exit code. Errors that we raise on purpose are printed, all others are ours to fix."""
    try:
        make_app(wanted(arguments))(arguments, standalone_mode=True, prog_name="mqctl")
    except SystemExit as ended:
        if isinstance(ended.code, NagiosCode):
            return int(ended.code)
        code = int(ended.code or 0) if not isinstance(ended.code, str) else Exit.FAILED
        return _unknown_to_nagios(code, arguments)
    except CommandError as error:
        print(f"mqctl: {printable(error.what)}", file=sys.stderr)
        if error.attempt:
            print(f"try: {error.attempt}", file=sys.stderr)
        return _unknown_to_nagios(error.code, arguments)
    except KeyboardInterrupt:
        return Exit.INTERRUPTED
    except BrokenPipeError:
        # Whoever read our output has seen enough. Python must not complain at exit about the closed pipe.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return Exit.FAILED
    return Exit.DONE


if __name__ == "__main__":
    main()
