"""Owns how the rack's hosts are reached: the key, the host keys, and the client settings that go with them.

Invariant: strict host key checking is on, with real keys known in advance, and control sockets live in the rack's
own run folder: a stale one would send the next rack's ssh to a machine that is gone. Source: ssh_config(5).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mqrack.command import attempt, run
from mqrack.layout import Layout
from mqrack.plan import Host, Plan

USER = "deploy"


def options(layout: Layout) -> Mapping[str, str]:
    return {
        "UserKnownHostsFile": str(layout.known_hosts),
        "StrictHostKeyChecking": "yes",
        "ControlPath": f"{layout.control_sockets}/%h-%p-%r",
    }


def common_args(layout: Layout) -> str:
    """What Ansible's ssh needs beyond user and key."""
    return " ".join(f"-o {key}={value}" for key, value in options(layout).items())


def jump_args(layout: Layout, host: Host) -> str:
    """The same for a host behind another, by name; only a settings file can tell the hop its key and known hosts."""
    return f"{common_args(layout)} -F {layout.ssh_config} -o ProxyJump={host.jump}"


def command_args(layout: Layout, plan: Plan, host: Host) -> str:
    """The same without a settings file: the hop is a command of its own."""
    hop = [f"-o {key}={value}" for key, value in options(layout).items() if key != "ControlPath"]
    target = f"{USER}@{plan.host(str(host.jump)).address}"
    command = f"ssh -i {layout.key} {' '.join(hop)} -W %h:%p {target}"
    return f'{common_args(layout)} -o ProxyCommand="{command}"'


def make_keys(layout: Layout, plan: Plan) -> None:
    for folder in (layout.run, layout.control_sockets, layout.run / "host_keys", layout.run / "log"):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not layout.key.exists():
        _generate(str(layout.key), f"{USER}@rack-{layout.name}")
    for host in plan.hosts:
        if not layout.host_key(host.name).exists():
            _generate(str(layout.host_key(host.name)), f"root@{host.name}")
    layout.known_hosts.write_text("".join(_known_host(layout, host) for host in plan.hosts))
    layout.ssh_config.write_text(client_config(layout, plan))


def _generate(path: str, comment: str) -> None:
    run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", comment, "-f", path])


def _known_host(layout: Layout, host: Host) -> str:
    public = layout.host_key(host.name).with_suffix(".pub").read_text().split()
    return f"{host.name},{host.address} {public[0]} {public[1]}\n"


def client_config(layout: Layout, plan: Plan) -> str:
    """A file for `ssh -F`, so that people and testinfra reach hosts by name."""
    blocks = []
    for host in plan.hosts:
        lines = [f"Host {host.name}", f"    HostName {host.address}"]
        lines += [f"    ProxyJump {host.jump}"] if host.jump else []
        blocks.append("\n".join(lines))
    shared = {"User": USER, "IdentityFile": str(layout.key), "IdentitiesOnly": "yes", **options(layout)}
    shared |= {"ControlMaster": "auto", "ControlPersist": "60s"}
    blocks.append("\n".join(["Host *", *(f"    {key} {value}" for key, value in shared.items())]))
    return "\n\n".join(blocks) + "\n"


def client(layout: Layout, host: Host, words: Sequence[str]) -> list[str]:
    return ["ssh", "-F", str(layout.ssh_config), host.name, *words]


def end_masters(layout: Layout, host: Host | None = None) -> None:
    """Ends shared connections (to one host or to all): they outlive the commands that opened them, pin the
    namespace, and after a power cut lead to a system that is gone."""
    if not layout.control_sockets.is_dir():
        return
    for socket in layout.control_sockets.glob(f"{host.address}-*" if host else "*"):
        attempt(["ssh", "-o", f"ControlPath={socket}", "-O", "exit", "rack"], timeout_s=5)
        socket.unlink(missing_ok=True)
