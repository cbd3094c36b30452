"""What a running broker reads again: options, users, the secret of the cluster.

Owns what is in force of the files. Invariant: a file of which a part is missing changes nothing. A fault in one file
leaves that one as it was; `Server` takes what is good of a signal, and all or nothing of an administrator.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from mqbroker.app import source
from mqbroker.base.errors import ConfigFault
from mqbroker.config import compare, whole
from mqbroker.config.compare import Verdict
from mqbroker.config.slices import BrokerOptions
from mqbroker.config.users import Verifier
from mqbroker.io import cluster_secret, users_file
from mqbroker.io.log import Log
from mqbroker.io.server import Reloaded

Found = TypeVar("Found")
Fault = tuple[str, str]  # file, why


class Reloading:
    """The files of one process. `running`: the options that it began with, which `text` said."""

    def __init__(self, file: Path, text: str, running: BrokerOptions, log: Log) -> None:
        self._file = file
        self._text = text
        self._running = running
        self._options = running
        self._has_users = False
        self._log = log

    def users(self) -> dict[str, Verifier]:
        """All users; none where there was no file yet. Raises ConfigFault."""
        file = Path(self._running.node.users_file)
        found = dict(users_file.read(file))
        if self._has_users and not found and not file.exists():
            raise ConfigFault(str(file), "is gone, and nobody could log in; restore it, or set the users again")
        self._has_users = self._has_users or bool(found)
        return found

    def read(self, is_whole: bool) -> Reloaded:
        """Everything again. What is faulty is logged and stays as it is.

        `is_whole`: the files of listeners are looked into as well, and one fault keeps all as it was. Without it a bad
        certificate stops its listener alone from taking it (`Acceptor.change`).
        """
        reloaded, faults = Reloaded(None, None), list[Fault]()
        text = ""
        try:
            text = source.text_of(self._file, may_wait=False)
            options = (source.checked if is_whole else source.sound)(self._file, text)
            self._check(text, options)
            reloaded.options = options
        except source.Unusable as error:
            faults += [(str(self._file), str(fault)) for fault in error.faults]
        node = self._running.node
        reloaded.users = _tried(self.users, node.users_file, faults)
        # Some ten ms of the loop, where there are groups; nothing where there are none.
        reloaded.cluster_key = _tried(lambda: cluster_secret.key(self._running), node.cluster_secret_file, faults)
        reloaded.faults = self._told(faults)
        if reloaded.options is not None and not (is_whole and faults):
            self._text, self._options = text, reloaded.options
            self._tell_restarts(reloaded.options)
        return reloaded

    def _check(self, text: str, options: BrokerOptions) -> None:
        """Whether the file may come into force beside what is. Raises Unusable."""
        found = compare.refusals(self._running, self._options, options)
        cut = whole.cut_fault_of(text, self._text)
        if cut is not None:
            found.append(cut)
        if found:
            raise source.Unusable(self._file, found)

    def _told(self, faults: list[Fault]) -> tuple[str, ...]:
        """The faults as an administrator reads them; each is in the log as well."""
        for path, why in faults:
            self._log.error("reload-refused", file=path, why=why)
        # One line for each, and a fault of the file of users begins with its path.
        return tuple(" ".join((why if why.startswith(path) else f"{path}: {why}").split()) for path, why in faults)

    def _tell_restarts(self, options: BrokerOptions) -> None:
        for change in compare.changes(self._running, options):
            if change.needs is Verdict.RESTART:
                self._log.warning("restart-needed", option=change.path, running=str(change.old), file=str(change.new))


def _tried(read: Callable[[], Found], path: str, faults: list[Fault]) -> Found | None:
    try:
        return read()
    except ConfigFault as fault:
        faults.append((path, str(fault)))
        return None
