"""Owns what the machine must offer: programs, and a kernel that lets us have namespaces and control groups.

Invariant: whether hosts can be booted is found out by doing each thing that booting does, never by guessing from
names of containers or kernels. Programs are installed only by root on Debian; elsewhere the package is named.
"""

from __future__ import annotations

import ctypes
import errno
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from mqrack import cgroup
from mqrack.command import attempt
from mqrack.errors import RackError
from mqrack.layout import CGROUP_NAME

# Program -> the Debian package that has it.
PROGRAMS = {
    "systemd-nspawn": "systemd-container",
    "mmdebstrap": "mmdebstrap",
    "nft": "nftables",
    "ping": "iputils-ping",
    "ip": "iproute2",
    "ssh": "openssh-client",
    "ssh-keygen": "openssh-client",
    "nsenter": "util-linux",
    "unshare": "util-linux",
}
INSTALL_TIMEOUT_S = 600.0
WATCHERS_PER_HOST = 4  # of inotify: three of systemd (see what the image masks), one of its logind
WATCHERS_MAX = Path("/proc/sys/fs/inotify/max_user_instances")


def missing_packages() -> list[str]:
    return sorted({package for program, package in PROGRAMS.items() if shutil.which(program) is None})


def ensure() -> None:
    """Raises unless commands that boot hosts have what they need."""
    if os.geteuid() != 0:
        raise RackError("booting hosts needs root; run this with sudo.")
    missing = missing_packages()
    if not missing:
        return
    if not Path("/etc/debian_version").exists() or shutil.which("apt-get") is None:
        raise RackError(f"these are missing: {', '.join(missing)} (Debian's package names); install them first.")
    _install(missing)


def _install(packages: list[str]) -> None:
    print(f"rack: installing {' '.join(packages)}", file=sys.stderr)
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for argv in (["apt-get", "update"], ["apt-get", "install", "-y", "--no-install-recommends", *packages]):
        done = subprocess.run(argv, env=environment, capture_output=True, text=True, timeout=INSTALL_TIMEOUT_S)
        if done.returncode != 0:
            raise RackError(f"{' '.join(argv)} failed:\n{done.stderr.strip()[-800:]}")


def findings() -> list[str]:
    """Why hosts cannot be booted here, one plain sentence each; none when they can."""
    if os.geteuid() != 0:
        return ["Not root: namespaces, control groups and network cards of hosts need it."]
    missing = missing_packages()
    if missing:
        return [f"Missing Debian packages: {' '.join(missing)} (`rack up` installs them as root on Debian)."]
    return [finding for trial in (_try_cgroup, _try_network, _try_container) if (finding := trial())]


def too_few_watchers() -> str:
    """What to do where hosts have taken all of inotify(7) that one user may have; empty where there is some left.

    The kernel counts for root on all hosts of all racks together, and systemd cannot watch files then.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    made = [libc.inotify_init1(os.O_CLOEXEC) for _ in range(WATCHERS_PER_HOST)]
    is_short = -1 in made and ctypes.get_errno() == errno.EMFILE
    for each in made:
        if each >= 0:
            os.close(each)
    if not is_short:
        return ""
    allowed = WATCHERS_MAX.read_text().strip()
    return (
        f" This machine has no instances of inotify left for it: it allows {allowed}, and each host of any rack takes "
        f"{WATCHERS_PER_HOST}. Take racks down, or run `sysctl fs.inotify.max_user_instances=1024`."
    )


def _try_cgroup() -> str:
    group = None
    try:
        group = cgroup.Group(cgroup.unified_root() / CGROUP_NAME / f".trial-{os.getpid()}").make()
        with subprocess.Popen(["sleep", "60"], preexec_fn=group.joiner()) as sleeper:
            try:
                group.freeze(True)
                group.kill()
            finally:
                sleeper.kill()
    except (OSError, RackError, subprocess.SubprocessError) as error:
        return f"A control group of version 2 cannot be made, frozen and killed here: {error}."
    finally:
        if group is not None:
            group.remove()
    return ""


def _try_network() -> str:
    script = (
        "ip link add br0 type bridge && ip link add port type veth peer name eth0 && ip link set port master br0 up && "
        "nft add table netdev t && nft add chain netdev t e '{ type filter hook egress device \"port\" priority 0; }'"
    )
    done = attempt(["unshare", "--net", "sh", "-ec", script])
    if done.returncode == 0:
        return ""
    return f"A network namespace with bridge, cable and rules cannot be made here: {done.stderr.strip()}."


def _try_container() -> str:
    """Starts systemd-nspawn on this machine's own files, through an overlay that is thrown away."""
    with tempfile.TemporaryDirectory(prefix="rack-trial-", dir="/var/tmp") as scratch:
        script = (
            'mount -t tmpfs tmpfs "$1" && mkdir "$1/upper" "$1/work" "$1/root" && mkdir -p /run/systemd/nspawn && '
            "mount -t tmpfs tmpfs /run/systemd/nspawn && "
            'mount -t overlay -o "lowerdir=/,upperdir=$1/upper,workdir=$1/work" overlay "$1/root" && '
            'exec systemd-nspawn --quiet --directory="$1/root" --register=no --keep-unit --private-network '
            "--link-journal=no --resolv-conf=off --timezone=off --console=pipe --capability=all /bin/true"
        )
        argv = ["unshare", "--mount", "--propagation=slave", "sh", "-ec", script, "sh", scratch]
        group = cgroup.Group(cgroup.unified_root() / CGROUP_NAME / f".trial-{os.getpid()}")
        try:
            done = subprocess.run(
                argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=30, preexec_fn=group.joiner(),
                env={**os.environ, "SYSTEMD_NSPAWN_UNIFIED_HIERARCHY": "1"},
            )  # fmt: skip
        finally:
            group.kill()
            group.remove()
    return "" if done.returncode == 0 else f"systemd-nspawn cannot start a container here: {done.stderr.strip()}."
