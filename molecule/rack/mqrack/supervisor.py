"""Owns one host's life between power on and power off, as a process of its own.

Runs in the host's network namespace and in a private mount namespace, inside the host's control group: when that
group is killed the disk is unmounted with it and nothing has to be tidied up. systemd-nspawn ends with 133 when
the guest asked for a reboot, and is then started again. Its standard output is the host's log.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import uuid
from pathlib import Path

from mqrack.command import run
from mqrack.layout import Layout
from mqrack.plan import Host, Plan

REBOOT = 133
# A guest that reboots in a loop is broken; this many in one life is beyond any test.
REBOOTS_MAX = 100
SHARED_IN_HOST = "/srv/shared"


def supervise(layout: Layout, plan: Plan, host: Host, image: Path) -> int:
    root = mount_disk(layout, host, image)
    write_identity(layout, plan, host, root)
    if host.light:
        return _serve_light(root, host)
    for _ in range(REBOOTS_MAX):
        # Rules that the guest made live in the namespace, which outlasts a reboot; a real one would drop them.
        run(["nft", "flush", "ruleset"])
        code = subprocess.run(_nspawn(layout, host, root), env=_environment(), stdin=subprocess.DEVNULL).returncode
        print(f"rack: {host.name}: systemd-nspawn ended with {code}", flush=True)
        if code != REBOOT:
            return code
    print(f"rack: {host.name}: rebooted {REBOOTS_MAX} times, giving up", flush=True)
    return 1


def mount_disk(layout: Layout, host: Host, image: Path) -> Path:
    disk = layout.disk(host.name)
    upper, work, root = (disk / name for name in ("upper", "work", "root"))
    for folder in (upper, work, root):
        folder.mkdir(parents=True, exist_ok=True)
    upper.chmod(0o755)
    run(["mount", "-t", "overlay", "-o", f"lowerdir={image},upperdir={upper},workdir={work}", "overlay", str(root)])
    # systemd-nspawn notes its machines below /run; in a mount of our own the notes end with the host.
    notes = Path("/run/systemd/nspawn")
    notes.mkdir(parents=True, exist_ok=True)
    run(["mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", str(notes)])
    return root


def write_identity(layout: Layout, plan: Plan, host: Host, root: Path) -> None:
    """What tells this host from the others. Done once: afterwards the disk belongs to the host."""
    machine_id = root / "etc/machine-id"
    if machine_id.read_text().strip():
        return
    names = [f"{other.address} {other.name}" for other in plan.hosts]
    (root / "etc/hosts").write_text("\n".join(["127.0.0.1 localhost", "::1 localhost", *names]) + "\n")
    (root / "etc/hostname").write_text(f"{host.name}\n")
    key = root / "etc/ssh/ssh_host_ed25519_key"
    shutil.copyfile(layout.host_key(host.name), key)
    key.chmod(0o600)
    shutil.copyfile(layout.host_key(host.name).with_suffix(".pub"), key.with_suffix(".pub"))
    _authorise(layout, root)
    # Last, because it marks the rest as done.
    machine_id.write_text(f"{uuid.uuid4().hex}\n")


def _authorise(layout: Layout, root: Path) -> None:
    home = root / "home/deploy"
    owner = home.stat()
    folder = home / ".ssh"
    folder.mkdir(mode=0o700, exist_ok=True)
    keys = folder / "authorized_keys"
    shutil.copyfile(layout.key.with_suffix(".pub"), keys)
    for path in (folder, keys):
        os.chown(path, owner.st_uid, owner.st_gid)


def _nspawn(layout: Layout, host: Host, root: Path) -> list[str]:
    return [
        "systemd-nspawn", "--quiet", "--boot", f"--machine={layout.name}.{host.name}", f"--hostname={host.name}",
        f"--directory={root}", f"--network-namespace-path={layout.netns_path(host.name)}", "--register=no",
        "--keep-unit", "--link-journal=no", "--resolv-conf=off", "--timezone=off", "--console=pipe",
        "--capability=all", f"--bind={layout.shared}:{SHARED_IN_HOST}",
    ]  # fmt: skip


def _environment() -> dict[str, str]:
    return {
        "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "SYSTEMD_NSPAWN_UNIFIED_HIERARCHY": "1",
        "SYSTEMD_NSPAWN_API_VFS_WRITABLE": "network",
    }


def _serve_light(root: Path, host: Host) -> int:
    """A light host: its own processes, name and disk, but an ssh server where the init would be."""
    script = (
        'hostname "$1"; mount -t proc proc "$2/proc"; mount --rbind /dev "$2/dev"; mkdir -p "$2/run/sshd"; '
        'exec chroot "$2" /usr/sbin/sshd -D -e'
    )
    argv = ["unshare", "--uts", "--pid", "--fork", "--kill-child", "sh", "-ec", script, "sh", host.name, str(root)]
    sys.stdout.flush()
    return subprocess.run(argv, env=_environment(), stdin=subprocess.DEVNULL).returncode
