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
    ("init",): "init",
    ("inventory", "check"): "inventory_check",
    ("inventory", "graph"): "inventory_graph",
    ("bundle", "build"): "bundle_build",
    ("bundle", "show"): "bundle_show",
    ("tls", "init"): "tls_init",
    ("tls", "issue"): "tls_issue",
    ("tls", "show"): "tls_show",
    ("tls", "rotate"): "tls_rotate",
    ("preflight",): "preflight",
    ("plan",): "plan",
    ("rollout",): "rollout",
    ("upgrade",): "upgrade",
    ("rollback",): "rollback",
    ("scale-up",): "scale_up",
    ("scale-down",): "scale_down",
    ("drain",): "drain",
    ("undrain",): "undrain",
    ("operation", "show"): "operation_show",
    ("operation", "release"): "operation_release",
    ("status",): "status",
    ("health",): "health",
    ("check",): "check",
    ("address", "list"): "address_list",
    ("address", "show"): "address_show",
    ("address", "settings"): "address_settings",
    ("address", "create"): "address_create",
    ("address", "delete"): "address_delete",
    ("address", "pause"): "address_pause",
    ("address", "resume"): "address_resume",
    ("queue", "list"): "queue_list",
    ("queue", "stat"): "queue_stat",
    ("queue", "show"): "queue_show",
    ("queue", "create"): "queue_create",
    ("queue", "delete"): "queue_delete",
    ("queue", "pause"): "queue_pause",
    ("queue", "resume"): "queue_resume",
    ("queue", "purge"): "queue_purge",
    ("message", "browse"): "message_browse",
    ("message", "show"): "message_show",
    ("message", "move"): "message_move",
    ("message", "retry-dead-letters"): "message_retry_dead_letters",
    ("connection", "list"): "connection_list",
    ("connection", "close"): "connection_close",
    ("session", "list"): "session_list",
    ("consumer", "list"): "consumer_list",
    ("producer", "list"): "producer_list",
    ("quota", "list"): "quota_list",
    ("group", "list"): "group_list",
    ("discovery", "list"): "discovery_list",
    ("discovery", "groups"): "discovery_groups",
    ("topology",): "topology",
    ("cluster", "canary"): "cluster_canary",
    ("cluster", "forget"): "cluster_forget",
    ("events",): "events",
    ("logs",): "logs",
    ("support-bundle",): "support_bundle",
    ("config", "show"): "config_show",
    ("config", "reload"): "config_reload",
    ("backup", "create"): "backup_create",
    ("backup", "list"): "backup_list",
    ("backup", "verify"): "backup_verify",
    ("backup", "prune"): "backup_prune",
    ("backup", "restore"): "backup_restore",
    ("journal", "info"): "journal_info",
    ("journal", "check"): "journal_check",
    ("journal", "export"): "journal_export",
    ("journal", "import"): "journal_import",
    ("send",): "send",
    ("receive",): "receive",
    ("perf",): "perf",
    ("uninstall",): "uninstall",
    ("dev", "up"): "dev_up",
    ("dev", "down"): "dev_down",
    ("dev", "status"): "dev_status",
    ("version",): "version",
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
