"""`mqbroker users set|list|remove`: the users that may log in. Passwords come on standard input only."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path

from mqbroker.app import exits, source
from mqbroker.base.errors import ConfigFault
from mqbroker.base.text import one_line
from mqbroker.config import users as rules
from mqbroker.config.users import UserVerifier
from mqbroker.io.files import users_file

INPUT_BYTES_MAX = 8192


@dataclass(frozen=True, slots=True)
class Edit:
    """What a command makes of the users. `damaged`: why those that there were could not be read."""

    name: str
    old: dict[str, UserVerifier]
    new: dict[str, UserVerifier]
    damaged: str = ""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare `users` and its actions."""
    parser = subparsers.add_parser("users", help="keep the users that may log in")
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    change = actions.add_parser(
        "set", help="add a user or change its password or roles; no change if all is so already"
    )
    change.add_argument("name", metavar="NAME")
    change.add_argument("--stdin", action="store_true", required=True, help="read the password from standard input")
    change.add_argument("--role", action="append", metavar="ROLE", help="role, may be repeated (default: client)")
    change.add_argument("--check", action="store_true", help="change nothing, only say whether it would")
    change.add_argument(
        "--set-aside", action="store_true", help="move a file that cannot be read away, and begin a new one"
    )
    show = actions.add_parser("list", help="names and roles")
    remove = actions.add_parser("remove", help="remove a user; no change if there is none")
    remove.add_argument("name", metavar="NAME")
    remove.add_argument("--check", action="store_true", help="change nothing, only say whether it would")
    for action in (change, show, remove):
        action.add_argument("--json", action="store_true", help="print JSON")
        action.add_argument("--file", type=Path, metavar="PATH", help="file of users (else as the options say)")
        source.add_arguments(action)


def run(args: argparse.Namespace) -> int:
    """Do what `args.action` names; the exit code."""
    file = args.file or Path(source.options_of(args).node.users_file)
    if args.action == "list":
        return _list(file, args.json)
    name = rules.user_name(args.name)
    if args.action == "set":
        password = rules.new_password(_password_of_stdin())
        with _lock(file, args.check):
            known, damaged = _known(file, args)
            made = _wanted(known.get(name), password, tuple(args.role or rules.DEFAULT_ROLES))
            return _finish(file, Edit(name, known, {**known, name: made}, damaged), args)
    with _lock(file, args.check):
        known = users_file.read(file)
        return _finish(file, Edit(name, known, {other: known[other] for other in known if other != name}), args)


def _lock(file: Path, only_check: bool) -> contextlib.AbstractContextManager[None]:
    """A check writes nothing, so it must not make a lock file either: its directory may not be there yet."""
    return contextlib.nullcontext() if only_check else users_file.locked(file)


def _known(file: Path, args: argparse.Namespace) -> tuple[dict[str, UserVerifier], str]:
    """All users, and what was wrong with a file that is set aside: nobody logs in by it any more."""
    try:
        return users_file.read(file), ""
    except ConfigFault as fault:
        if not args.set_aside:
            raise
        if not args.check:
            source.say(f"{fault}; it is {users_file.set_aside(file)} now", to_errors=True)
        return {}, str(fault)


def _wanted(old: UserVerifier | None, password: str, roles: tuple[str, ...]) -> UserVerifier:
    """The verifier that should stand; the old one itself if nothing differs, so that its salt stays.

    One that an older release made gets what this release adds, with the salt that it has.
    """
    if old is not None and old.roles == rules.check_roles(roles) and rules.password_matches(old, password):
        return rules.completed(old, password)
    return rules.make_verifier(password, os.urandom(rules.SALT_BYTES), roles)


def _finish(file: Path, edit: Edit, args: argparse.Namespace) -> int:
    changed = edit.old != edit.new
    if len(edit.new) > rules.USERS_MAX:
        raise ConfigFault(str(file), f"would hold more than {rules.USERS_MAX} users; remove some first")
    if changed and not args.check:
        users_file.write(file, edit.new)
    if args.json:
        print(json.dumps({"schema": 1, "name": edit.name, "changed": changed, "damaged": edit.damaged}))
    else:
        print("changed" if changed else "unchanged")
    return exits.DONE


def _list(file: Path, as_json: bool) -> int:
    known = users_file.read(file)
    rows = [{"name": name, "roles": list(known[name].roles)} for name in sorted(known)]
    if as_json:
        print(json.dumps({"schema": 1, "users": rows}))
    else:
        for name in sorted(known):
            print(f"{one_line(name)}\t{one_line(','.join(known[name].roles))}")
    return exits.DONE


def _password_of_stdin() -> str:
    """The first and only line. A trailing line end is not part of the password."""
    content = sys.stdin.buffer.read(INPUT_BYTES_MAX + 1)
    if len(content) > INPUT_BYTES_MAX:
        raise ConfigFault("password", f"on standard input is longer than {INPUT_BYTES_MAX} bytes")
    try:
        text = content.decode()
    except UnicodeDecodeError:
        raise ConfigFault("password", "on standard input is not UTF-8") from None
    return text.removesuffix("\n").removesuffix("\r")
