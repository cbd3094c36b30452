"""Has all hosts of a cluster probe its multicast groups at the same time, and puts together what they heard.

Sends `remote/multicast_probe.py` to each host and keeps the stream open: a host probes from the moment it is ready, so
by the time the first is asked for its report, all that could be reached have been heard.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from mqctl.brokers.multicast_matrix import (
    GroupMatrix,
    MulticastFinding,
    ProbeOrder,
    drawn,
    findings_of,
    groups_of,
    places_of,
)
from mqctl.errors import CommandError, Unreachable
from mqctl.fanout import on_each
from mqctl.inventory import Host, InventoryCluster, variables_of
from mqctl.nodes import shell
from mqctl.progress import counting
from mqctl.remote_program import command_of
from mqctl.ssh.shell import CommandStream, open_stream
from mqctl.world import World

READY_S = 30.0
WINDOW_S = 4.0  # what a host waits for those that it does not hear
HOST_S = 10.0  # by which the life of a probe grows with each host: they are asked twenty at a time
LINE_BYTES_MAX = 16 * 2**20


@dataclass(slots=True)
class Heard:
    """The outcome: the matrix of each group, what is wrong, and why hosts could not be asked."""

    groups: list[GroupMatrix] = field(default_factory=list)
    findings: list[MulticastFinding] = field(default_factory=list)
    unreached: dict[str, CommandError] = field(default_factory=dict)


def places(host: Host) -> list[dict[str, Any]]:
    """The places of a host: what its groups are and what they are pinned to."""
    variables = variables_of(host)
    address = variables.mq_local_bind_address
    return places_of(
        variables.mq_broadcast_groups,
        variables.mq_discovery_groups,
        variables.mq_cluster_interface or "",
        str(address) if address else "",
    )


def probe(world: World, cluster: InventoryCluster, hosts: Sequence[Host], away: Container[str] = ()) -> Heard:
    """Probe all groups between the hosts; those that are away are not tried. Without groups no host is asked."""
    wanted = ProbeOrder({host.name: places(host) for host in hosts}, is_whole=len(hosts) == len(cluster.hosts))
    heard = Heard()
    if not any(wanted.hosts.values()):
        return heard
    talks: dict[str, Talk] = {}
    try:
        reports = _run(
            world, [host for host in hosts if host.name not in away], _requests(cluster, wanted), talks, heard
        )
    finally:
        for one in talks.values():
            one.close()
    try:
        heard.groups = groups_of(wanted, reports)
        heard.findings = findings_of(wanted, reports, heard.groups)
    except (LookupError, TypeError, ValueError, AttributeError) as fault:
        raise CommandError(f"what the hosts report cannot be read: {fault!r}", "mqctl preflight") from None
    return heard


def _requests(cluster: InventoryCluster, wanted: ProbeOrder) -> dict[str, dict[str, Any]]:
    """What each host is told. The name and the key are those of this run alone."""
    common = {"cluster": cluster.name, "run": secrets.token_hex(8), "key": secrets.token_hex(32)}
    life_s = READY_S + HOST_S * len(wanted.hosts)
    return {name: {**common, "life_s": life_s, "host": name, "places": some} for name, some in wanted.hosts.items()}


def _run(
    world: World, hosts: Sequence[Host], requests: dict[str, dict[str, Any]], talks: dict[str, Talk], heard: Heard
) -> dict[str, Any]:
    def start(host: Host) -> dict[str, Any]:
        talk = talks[host.name] = Talk(host.name, _open(world, host))
        return talk.ask({"request": {**requests[host.name], "instances": host.instances}}, "ready", READY_S)

    with counting(world, "hosts probe", 2 * len(hosts)) as advance:
        ready = _settled(on_each(hosts, start, lambda _: advance(1)), heard)
        said = {"report": {"peers": {name: one["peer"] for name, one in ready.items()}, "window_s": WINDOW_S}}

        def report(host: Host) -> dict[str, Any]:
            return talks[host.name].ask(said, "report", READY_S + WINDOW_S)

        asked = [host for host in hosts if host.name in ready]
        return _settled(on_each(asked, report, lambda _: advance(1)), heard)


def _settled(outcomes: Iterable[tuple[Host, dict[str, Any] | CommandError]], heard: Heard) -> dict[str, Any]:
    reports: dict[str, Any] = {}
    for host, outcome in outcomes:
        if isinstance(outcome, CommandError):
            heard.unreached[host.name] = outcome
        else:
            reports[host.name] = outcome
    return reports


def _open(world: World, host: Host) -> CommandStream:
    access = host.access
    command, program = command_of(access.python, "multicast_probe.py")
    stream = open_stream(shell(world, access), command)
    stream.settimeout(READY_S)
    stream.sendall(program)
    return stream


class Talk:
    """Lines of JSON with the program on one host."""

    def __init__(self, host: str, stream: CommandStream) -> None:
        self._host = host
        self._stream = stream
        self._buffer = bytearray()

    def ask(self, row: dict[str, Any], key: str, wait_s: float) -> dict[str, Any]:
        """Say something and read the line that answers it."""
        try:
            self._stream.settimeout(wait_s)
            self._stream.sendall(json.dumps(row).encode() + b"\n")
            line = self._line()
        except TimeoutError:
            raise Unreachable(self._host, f"the multicast probe did not answer within {wait_s:g} s") from None
        except (OSError, EOFError):
            raise Unreachable(self._host, "the connection broke") from None
        try:
            answer: dict[str, Any] = json.loads(line)[key]
        except (ValueError, LookupError, TypeError):
            raise Unreachable(self._host, f"the multicast probe failed: {self._stream.complaint()}") from None
        return answer

    def _line(self) -> bytes:
        while (end := self._buffer.find(b"\n")) < 0 and len(self._buffer) <= LINE_BYTES_MAX:
            chunk = self._stream.recv(1 << 16)
            if not chunk:
                return b""
            self._buffer += chunk
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 1]
        return line

    def close(self) -> None:
        """The program ends when it hears nothing more."""
        self._stream.close()


def draw(heard: Heard, out: Any) -> None:
    """The matrix of each group, below the findings. `out` is a text file."""
    is_ascii = not (getattr(out, "encoding", None) or "").lower().replace("-", "").startswith("utf8")
    for group in heard.groups:
        out.write("\n" + "\n".join(drawn(group, is_ascii)) + "\n")
