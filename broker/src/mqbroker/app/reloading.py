"""What a running broker reads again: options, users, the secret of the cluster.

Owns what is in force of the files, and has it recorded (io/files/files_in_force.py). Invariant: a file of which a part
is missing changes nothing. A fault in one file leaves that one as it was; `Server` takes what is good of a signal, and
all or nothing of an administrator.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

from mqbroker.app import source
from mqbroker.base.errors import ConfigFault
from mqbroker.config import compare
from mqbroker.config.file import completeness
from mqbroker.config.slices import BrokerOptions
from mqbroker.config.users import UserVerifier
from mqbroker.io.files import cluster_secret, users_file
from mqbroker.io.files.files_in_force import OptionsInForce, digests_of
from mqbroker.io.loop.log import Log
from mqbroker.io.server import Reloaded
from mqbroker.io.sockets import tls

_Found = TypeVar("_Found")
Fault = tuple[str, str]  # file, why


class Reloading:
    """The files of one process. `running`: the options that it began with, which `text` said."""

    def __init__(self, file: Path, text: str, running: BrokerOptions, log: Log, record: Path | None = None) -> None:
        self._file = file
        self._text = text
        self._running = running
        self._options = running
        self._has_users = False
        self._files: dict[str, str] = {}  # of users and of the secret: digests of what is in force
        self._log = log
        self._record = OptionsInForce(record, log)

    def begin(self) -> dict[str, UserVerifier]:
        """All users, with whom the process starts; none where there is no file yet. Raises ConfigFault.

        Everything else was checked by then, or ends the start: so what it starts with is on record from here on.
        """
        node = self._running.node
        self._files = digests_of([node.users_file, *self._secrets()])
        users = dict(users_file.read(Path(node.users_file)))
        self._has_users = bool(users)
        certificates = {file for one in self._running.listeners for file in tls.files_of(one)}
        self._record.begin(self._text, {**digests_of(sorted(certificates)), **self._files})
        return users

    def keep(self, certificates: Mapping[str, str]) -> None:
        """Record what is in force. `certificates`: digests of the files that listeners have taken."""
        self._record.keep(self._text, {**certificates, **self._files})

    def _secrets(self) -> list[str]:
        return [self._running.node.cluster_secret_file] if cluster_secret.is_needed(self._running) else []

    def _users(self) -> dict[str, UserVerifier]:
        file = Path(self._running.node.users_file)
        users = dict(users_file.read(file))
        if self._has_users and not users and not file.exists():
            raise ConfigFault(str(file), "is gone, and nobody could log in; restore it, or set the users again")
        return users

    def read(self, is_whole: bool) -> Reloaded:
        """Everything again. What is faulty is logged and stays as it is.

        `is_whole`: the files of listeners are looked into as well, and one fault keeps all as it was. Without it a bad
        certificate stops its listener alone from taking it (`Acceptor.change`).
        """
        reloaded, faults = Reloaded(None, None), list[Fault]()
        node = self._running.node
        users, secret = digests_of([node.users_file]), digests_of(self._secrets())
        text = ""
        try:
            text = source.text_of(self._file, may_wait=False)
            options = (source.checked if is_whole else source.sound)(self._file, text)
            self._check(text, options)
            reloaded.options = options
        except source.UnusableOptions as error:
            faults += [(str(self._file), str(fault)) for fault in error.faults]
        reloaded.users = _tried(self._users, node.users_file, faults)
        # Some ten ms of the loop, where there are groups; nothing where there are none.
        reloaded.cluster_key = _tried(lambda: cluster_secret.key(self._running), node.cluster_secret_file, faults)
        reloaded.faults = self._told(faults)
        if is_whole and faults:
            return reloaded
        if reloaded.users is not None:
            self._has_users = bool(reloaded.users)
            self._take(node.users_file, users)
        if reloaded.cluster_key:
            self._take(node.cluster_secret_file, secret)
        if reloaded.options is not None:
            self._text, self._options = text, reloaded.options
            self._tell_restarts(reloaded.options)
        return reloaded

    def _take(self, file: str, digests: Mapping[str, str]) -> None:
        """What a file holds is in force; where there is none, that there is none."""
        self._files.pop(file, None)
        self._files |= digests

    def _check(self, text: str, options: BrokerOptions) -> None:
        """Whether the file may come into force beside what is. Raises Unusable."""
        refused = compare.refusals(self._running, self._options, options)
        cut = completeness.cut_fault_of(text, self._text)
        if cut is not None:
            refused.append(cut)
        if refused:
            raise source.UnusableOptions(self._file, refused)

    def _told(self, faults: list[Fault]) -> tuple[str, ...]:
        """The faults as an administrator reads them; each is in the log as well."""
        for path, why in faults:
            self._log.error("reload-refused", file=path, why=why)
        # One line for each, and a fault of the file of users begins with its path.
        return tuple(" ".join((why if why.startswith(path) else f"{path}: {why}").split()) for path, why in faults)

    def _tell_restarts(self, options: BrokerOptions) -> None:
        for change in compare.restarts(self._running, options):
            self._log.warning("restart-needed", option=change.path, running=str(change.old), file=str(change.new))


def _tried(read: Callable[[], _Found], path: str, faults: list[Fault]) -> _Found | None:
    try:
        return read()
    except ConfigFault as fault:
        faults.append((path, str(fault)))
        return None
