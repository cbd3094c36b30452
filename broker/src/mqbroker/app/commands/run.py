"""`mqbroker run`: one broker node in the foreground, until a signal or a failure ends it.

Owns the order of the start: options, identity, users, the lock of the data directory, the journal, the core, the
sockets. Whatever fails before READY is one plain sentence and an exit code; nothing is printed on standard output,
the log goes to standard error. Source: docs/ARCHITECTURE.md; exit codes in app/exits.py.
"""

from __future__ import annotations

import argparse
import os
import resource
import signal
import sys
import time
from pathlib import Path

from mqbroker.admin.operations import perform
from mqbroker.app import exits, source
from mqbroker.app.forked_work import apart
from mqbroker.app.reloading import Reloading
from mqbroker.base.errors import ConfigFault, StorageFault, Unusable
from mqbroker.base.time import NS_PER_MS, At
from mqbroker.config.slices import BrokerOptions
from mqbroker.config.users import UserVerifier
from mqbroker.core.address.settings import Settings
from mqbroker.core.paging.paging import leave_of
from mqbroker.io.disk.disk import Disk
from mqbroker.io.disk.journal_directory import JournalDirectory, fault_of
from mqbroker.io.files import cluster_secret, identity
from mqbroker.io.files.data_lock import DataLock
from mqbroker.io.files.identity import IdentityMismatch, NodeIdentity
from mqbroker.io.loop.log import Log, shape_for
from mqbroker.io.server import Server, new_event_loop
from mqbroker.io.service_manager import Notifier
from mqbroker.node.broker.broker import Broker, Setup

# Journal files, admin sessions, outgoing connections and whatever libraries open.
DESCRIPTORS_SPARE = 256
Told = tuple[str, str]  # of an option: its path, why


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the sub-command `run` and its arguments."""
    parser = subparsers.add_parser(
        "run",
        help="run a broker in the foreground",
        description="Run a broker in the foreground. SIGTERM stops it gracefully, a second one at once; SIGHUP reloads "
        "the users and those options that may change while it runs.",
        epilog=exits.EXPLAINED,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    source.add_arguments(parser)
    parser.add_argument(
        "--record",
        metavar="DIRECTORY",
        type=Path,
        help="keep there what is in force of the files: for those who look whether a reload or a restart is due",
    )


def run(args: argparse.Namespace) -> int:
    """Run until the end; the result is the exit code."""
    # Until the loop has its own handlers: a reload that comes too early must not end the process.
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        code = _run_node(source.path_of(args), args.record)
    except IdentityMismatch as fault:
        source.complain(fault)
        return exits.IDENTITY
    except Unusable as fault:
        source.complain(fault)
        return exits.UNUSABLE
    except StorageFault as fault:
        source.complain(fault)
        return exits.DISK
    if code != exits.DONE:
        # A thread that hangs in a sync must not hold up the end, and nothing may be written any more.
        sys.stderr.flush()
        os._exit(code)
    return code


def _run_node(file: Path, record: Path | None) -> int:
    text = source.text_of(file)
    options, doubts = _options_of(file, text)
    log = Log(sys.stderr, shape_for(sys.stderr, dict(os.environ)))
    log.change(options.node.log_format)
    for path, why in doubts:
        log.warning("option-doubtful", option=path, why=why)
    _allow_descriptors(options, log)
    directory = Path(options.node.data_directory)
    machine = identity.machine_id()
    identity.check(directory, machine)
    lock = _lock(directory)
    loop = new_event_loop()
    try:
        # Once more under the lock: `identity new` may have come between, and holds it while it works.
        owner = identity.check(directory, machine)
        reloading = Reloading(file, text, options, log, record)
        return loop.run_until_complete(_serve(reloading, options, owner, log))
    finally:
        loop.close()
        lock.release()


def _options_of(file: Path, text: str) -> tuple[BrokerOptions, list[Told]]:
    """The options of the text, and what is doubtful about them. Raises UnusableOptions."""
    options, told = apart(lambda: _read(file, text))
    if options is None:
        raise source.UnusableOptions(file, [ConfigFault(path, why) for path, why in told])
    return options, told


def _read(file: Path, text: str) -> tuple[BrokerOptions | None, list[Told]]:
    """With no options what is wrong with them. Runs in a process of its own, and so imports what only it needs."""
    from mqbroker.config.declarations import clustering

    try:
        options = source.checked(file, text)
    except source.UnusableOptions as error:
        return None, [(fault.path, fault.why) for fault in error.faults]
    return options, [(doubt.path, doubt.why) for doubt in clustering.doubts(options)]


def _allow_descriptors(options: BrokerOptions, log: Log) -> None:
    """Each connection needs a descriptor, and the usual soft limit of 1024 is far below what listeners may accept."""
    served = sum(listener.connections_max for listener in options.listeners)
    wanted = served + (options.metrics.connections_max if options.metrics.port else 0) + DESCRIPTORS_SPARE
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    allowed = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if allowed > soft != resource.RLIM_INFINITY:
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
    if allowed < wanted:
        remedy = f"raise LimitNOFILE of the unit to {wanted} or lower connections-max"
        log.warning("descriptors-low", allowed=allowed, wanted=wanted, remedy=remedy)


def _lock(directory: Path) -> DataLock:
    try:
        return DataLock(directory)
    except StorageFault as fault:
        # Nothing is wrong with what is stored: the operator has started a second one.
        raise ConfigFault("node.data-directory", str(fault)) from None


async def _serve(reloading: Reloading, options: BrokerOptions, owner: NodeIdentity, log: Log) -> int:
    notifier = Notifier(os.environ)
    server = Server(options, log, notifier)
    try:
        with notifier.more_time("reading the journal"):
            core, disk = _assemble(server, options, owner, log, reloading.begin())
        await server.open()
        code = await server.run(core, disk, reloading.read, reloading.keep)
        if code == exits.DONE and not disk.close():
            code = exits.DISK
        return code
    finally:
        server.close()
        notifier.close()


def _assemble(
    server: Server, options: BrokerOptions, owner: NodeIdentity, log: Log, users: dict[str, UserVerifier]
) -> tuple[Broker, Disk]:
    """The core and its disk. What recovery returned stays in here: it would keep whole journal files in memory."""
    journal = JournalDirectory(
        Path(options.node.data_directory) / identity.JOURNAL_NAME, owner.node_id_bytes, options.journal
    )
    started_s = time.monotonic()
    recovered = journal.load(leave_of(Settings(options.address_settings), options.limits.global_max_size_bytes))
    for finding in recovered.findings:
        log.emit(finding)
    now = At(time.monotonic_ns(), time.time_ns() // NS_PER_MS)
    large_files = _large_files(server)
    key, boot_id = cluster_secret.key(options), os.urandom(16).hex()
    setup = Setup(owner.node_id, users, perform, os.urandom(32), large_files, key, boot_id)
    core = Broker(options, recovered, setup, now)
    disk = Disk(journal, recovered, server.node.post_from_thread, server.node.storage_failed)
    log.info(
        "recovered",
        node_id=owner.node_id,
        boot=recovered.boot + 1,
        was_clean=int(recovered.was_clean),
        queues=len(recovered.queues),
        segments=len(recovered.segments),
        took_ms=int((time.monotonic() - started_s) * 1000),
    )
    return core, disk


def _large_files(server: Server) -> dict[int, int]:
    directory = server.large.directory
    try:
        return directory.sizes()
    except OSError as error:
        raise fault_of(error, directory.path) from error
