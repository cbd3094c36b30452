"""Owns the root file system that every host starts from: its recipe, its build, its cache.

Invariant: an image folder that bears the hash of a recipe is complete, because it gets that name by one rename
after everything in it was written; what a killed build leaves has another name and is removed by the next one.
Hosts mount it as the lower layer of an overlay and never write to it.
"""

from __future__ import annotations

import ctypes
import fcntl
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from mqrack import aptsources, archives
from mqrack.command import run
from mqrack.errors import RackError
from mqrack.layout import IMAGES

SUITE = "bookworm"
PACKAGES = (
    "ca-certificates", "dbus", "iproute2", "iputils-ping", "libpam-systemd", "nftables", "openssh-server", "procps",
    "python3", "python3-apt", "python3-packaging", "python3-venv", "sudo", "systemd", "systemd-sysv",
)  # fmt: skip
# Timers that would want the network, terminals that nobody sits at, and what waits for passwords to be asked for: it
# takes two of the 128 inotify instances that a machine usually has for all hosts together.
MASKED_UNITS = (
    "apt-daily.timer", "apt-daily-upgrade.timer", "console-getty.service", "dpkg-db-backup.timer",
    "e2scrub_all.timer", "e2scrub_reap.service", "fstrim.timer", "getty@tty1.service", "getty.target",
    "systemd-ask-password-console.path", "systemd-ask-password-wall.path",
)  # fmt: skip
FILES = {
    "etc/machine-id": "",
    # A resolver copied from the machine that builds would make sudo wait for a server that no host can reach.
    "etc/resolv.conf": "",
    "etc/hostname": "",
    # Debian's own, of python3.11, has Ubuntu's reports of crashes in mind.
    "etc/python3.11/sitecustomize.py": Path(archives.__file__).read_text(),
    "etc/sudoers.d/deploy": "deploy ALL=(ALL) NOPASSWD: ALL\n",
    "etc/ssh/sshd_config.d/rack.conf": "PasswordAuthentication no\nPermitRootLogin no\nMaxStartups 100:30:200\n",
}
BUILD_TIMEOUT_S = 900.0
_PR_SET_PDEATHSIG = 1


def recipe_hash() -> str:
    """What the image is named after; anything that changes its content belongs in here."""
    recipe = [SUITE, PACKAGES, MASKED_UNITS, FILES, "deploy", 2]
    return hashlib.sha256(json.dumps(recipe).encode()).hexdigest()[:16]


def cached() -> Path | None:
    image = IMAGES / recipe_hash()
    return image if image.is_dir() else None


def ensure() -> Path:
    """The image for the present recipe, built now if it is not there yet."""
    with _lock():
        _remove_partial()
        return cached() or _build(IMAGES / recipe_hash())


def _build(image: Path) -> Path:
    partial = Path(tempfile.mkdtemp(prefix="partial-", dir=IMAGES))
    started = time.monotonic()
    print(f"rack: building the image {image.name} (once; about 40 s and 250 MB)", file=sys.stderr)
    root = partial / "root"
    try:
        _bootstrap(root, partial / "log")
        _customise(root)
        root.chmod(0o755)
        os.sync()
        root.rename(image)
    finally:
        shutil.rmtree(partial)
    print(f"rack: image built in {time.monotonic() - started:.0f} s", file=sys.stderr)
    return image


def _bootstrap(root: Path, log: Path) -> None:
    # apt drops its rights while it downloads and has to find its way through here.
    root.parent.chmod(0o755)
    sources = []
    for name, text in aptsources.for_suite(SUITE).items():
        sources.append(str(root.parent / name))
        (root.parent / name).write_text(text)
    argv = [
        "unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc",
        "mmdebstrap", "--mode=root", "--variant=minbase", "--format=directory", f"--include={','.join(PACKAGES)}",
        *(f"--aptopt={option}" for option in aptsources.transport_options()),
        SUITE, str(root), *sources,
    ]  # fmt: skip
    # Python runs in there too, and what it is told of places outside (PYTHONPYCACHEPREFIX) would be made inside.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    with log.open("wb") as sink:
        done = subprocess.run(
            argv, stdin=subprocess.DEVNULL, stdout=sink, stderr=sink, timeout=BUILD_TIMEOUT_S, env=environment,
            preexec_fn=_die_with_us,
        )  # fmt: skip
    if done.returncode != 0:
        kept = IMAGES / "failed-build.log"
        log.rename(kept)
        tail = "\n".join(kept.read_text(errors="replace").splitlines()[-8:])
        raise RackError(f"the image could not be built; the whole log is {kept}, its end:\n{tail}")


def _die_with_us() -> None:
    # A build whose command was killed must not go on writing into a folder that nobody waits for.
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _customise(root: Path) -> None:
    run(["chroot", str(root), "useradd", "--create-home", "--shell", "/bin/bash", "deploy"])
    run(["chroot", str(root), "usermod", "--password", "*", "deploy"])
    for name, text in FILES.items():
        path = root / name
        path.unlink(missing_ok=True)
        path.write_text(text)
    (root / "etc/sudoers.d/deploy").chmod(0o440)
    for unit in MASKED_UNITS:
        link = root / "etc/systemd/system" / unit
        link.unlink(missing_ok=True)
        link.symlink_to("/dev/null")
    # Each host gets host keys of its own; a shared set would hide a mix-up of hosts from ssh.
    for key in (root / "etc/ssh").glob("ssh_host_*"):
        key.unlink()
    (root / "var/log/journal").mkdir(exist_ok=True)
    (root / "srv/shared").mkdir(exist_ok=True)


@contextmanager
def _lock() -> Iterator[None]:
    IMAGES.mkdir(parents=True, exist_ok=True)
    with (IMAGES / ".lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield


def remove_partial_if_idle() -> None:
    """For destroy: clears what killed builds left, unless a build is running just now."""
    if not IMAGES.is_dir():
        return
    with (IMAGES / ".lock").open("w") as held:
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return
        _remove_partial()


def _remove_partial() -> None:
    for partial in IMAGES.glob("partial-*"):
        shutil.rmtree(partial)
