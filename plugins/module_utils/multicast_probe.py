# Copyright: mqops maintainers
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""One host's part in finding out who hears whom: probes to the groups of a cluster, and what came of those of others.

Standard library of Python 3.8 only, and a program by itself: `mqctl` sends this file to hosts that have nothing else,
and the module `multicast_probe` keeps it running between two tasks. It changes nothing on the host.

From the moment it is ready until it is told to end, a host joins, listens, and sends a probe to each group every
quarter of a second; so hosts need not start at one moment, as long as all are ready before the first is asked for its
report. Sockets are made as the broker makes them (`io/discovery/multicast.py`): the sender bound to the card's address
with IP_MULTICAST_IF, the receiver bound to group and port with IP_MULTICAST_ALL off. A further receiver on each other
card tells what arrives where it should not. What is heard is answered by unicast, so each host also learns who heard
it, and whether it is multicast alone that is lost.

Probes go to the very port of the group, not to one beside it: a packet filter, a foreign cluster and a switch are to
meet them as they would meet announcements. SO_REUSEADDR lets them share it with brokers that run; those drop what
has not their magic. A probe names its cluster and its run, and has a MAC with a key that only this run knows.

Control: lines of JSON. In: `{"request": …}`, then `{"report": …}` as often as wanted; the end of input ends the
program. Out: `{"ready": …}`, then one `{"report": …}` for each.
"""

from __future__ import annotations

import errno
import hashlib
import hmac
import json
import os
import selectors
import socket
import struct
import subprocess
import time
from collections.abc import Callable
from typing import Any

MAGIC = b"MQPF"
VERSION = 1
ANNOUNCEMENT = b"MQDG"  # of the broker's own datagrams: magic, version, length, JSON, MAC
ANNOUNCEMENT_HEAD = struct.Struct(">4sBH")
MAC_BYTES = 32
DATAGRAM_BYTES_MAX = 2048
IP_MULTICAST_ALL = 49  # of linux/in.h; the socket module has no name for it
PERIOD_S = 0.25
LISTEN_S_MIN = 2.2  # brokers announce themselves every two seconds: who is there is heard once
ECHOES_MAX = 4  # answers to one sender
DIRECTS_MAX = 3  # unicast probes to one peer
NAMES_MAX = 256  # strangers that are remembered, of each kind
CARDS_MAX = 16
READS_MAX = 256
PROGRAM_TIME_S = 20


def ip(*words: str) -> Any:
    """What `ip -json` says, or None."""
    try:
        done = subprocess.run(
            ["ip", "-json", "-4", *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=PROGRAM_TIME_S,
            check=False,
        )
        return json.loads(done.stdout.decode() or "[]") if done.returncode == 0 else None
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return None


def cards_of(rows: Any) -> dict[str, Any]:
    """Name -> addresses and whether it is up, for each network card that has an IPv4 address or is named."""
    found: dict[str, Any] = {}
    for row in rows or []:
        if row.get("ifname"):
            flags = row.get("flags") or []
            found[row["ifname"].split("@", 1)[0]] = {
                "is_up": "UP" in flags and "NO-CARRIER" not in flags and row.get("operstate") != "DOWN",
                "addresses": [one["local"] for one in row.get("addr_info") or [] if one.get("local")],
            }
    return found


def route_to(address: str) -> dict[str, Any] | None:
    """The card that the routes choose for a group, and whether that is the default route; None without a route."""
    rows = ip("route", "get", address)
    if not rows or not rows[0].get("dev"):
        return None
    matched = ip("route", "get", "fibmatch", address) or [{}]
    return {"card": rows[0]["dev"], "is_default": matched[0].get("dst") == "default"}


def placed(pin: dict[str, Any], cards: dict[str, Any], address: str) -> dict[str, Any]:
    """Where a group is bound to on this host: address and card, the route where nothing pins it, and what is wrong."""
    local, card = pin.get("address") or "", pin.get("interface") or ""
    made: dict[str, Any] = {"pin": local, "card": card, "route": None, "trouble": ""}
    if local:
        made["card"] = next((name for name, one in cards.items() if local in one["addresses"]), "")
        if local.startswith("127."):
            made.update(card=made["card"] or "lo", trouble="loopback")
        elif not made["card"]:
            made["trouble"] = "no-address"
    elif card:
        known = cards.get(card)
        if known is None:
            made["trouble"] = "no-card"
        elif not known["addresses"]:
            made["trouble"] = "card-without-address"
        else:
            made["pin"] = known["addresses"][0]
    else:
        made["route"] = route_to(address)
        made["card"] = made["route"]["card"] if made["route"] else ""
        made["trouble"] = "" if made["route"] else "no-route"
    if not made["trouble"] and made["card"] in cards and not cards[made["card"]]["is_up"]:
        made["trouble"] = "card-down"
    return made


def trouble_of(error: OSError, what: str) -> str:
    """The name of what went wrong with a socket."""
    if error.errno in (errno.ENETUNREACH, errno.EHOSTUNREACH, errno.ENODEV):
        return "no-route"
    return f"{what}: {error.strerror or error}"


class ProbePlace:
    """A group of the cluster on this host: its sockets, and what was heard."""

    def __init__(self, wanted: dict[str, Any], cards: dict[str, Any]) -> None:
        self.group, self.address, self.port = wanted["group"], wanted["address"], int(wanted["port"])
        self.rank = int(wanted["rank"])  # of several groups with the same address and port, on different cards
        self.key = f"{self.address}:{self.port}#{self.rank}"
        self.ttl = int(wanted.get("ttl", 1))
        self.send = placed(wanted["send"], cards, self.address) if wanted.get("send") else None
        self.listen = placed(wanted["listen"], cards, self.address) if wanted.get("listen") else None
        self.talk: socket.socket | None = None  # sends probes, and all that is unicast
        self.ears: list[tuple[socket.socket, str]] = []  # (socket, card)
        self.heard: dict[str, dict[str, int]] = {}  # host -> card -> probes
        self.direct: dict[str, int] = {}  # host -> datagrams by unicast
        self.echoed: dict[str, int] = {}  # host -> answers to probes
        self.foreign: set[tuple[str, str]] = set()  # (cluster, source)
        self.announced: dict[str, dict[str, str]] = {}  # source -> node
        self.counts = {"other_runs": 0, "forged": 0, "unknown": 0}

    def open(self, cards: dict[str, Any]) -> None:
        """Make the sockets; what cannot be made is trouble of the report and no error."""
        own = self.send or self.listen
        if own is None:
            return
        if own["trouble"] in ("", "card-down", "loopback"):
            try:
                self.talk = self._talking(own["pin"])
            except OSError as error:
                own["trouble"] = own["trouble"] or trouble_of(error, "no socket")
        if self.listen is None:
            return
        try:
            if self.listen["trouble"] in ("", "card-down", "loopback"):
                self.ears.append((self._hearing(self.listen["pin"] or "0.0.0.0", 0), self.listen["card"]))
        except OSError as error:
            self.listen["trouble"] = self.listen["trouble"] or trouble_of(error, "not joined")
        for name, one in sorted(cards.items())[:CARDS_MAX]:
            if name != self.listen["card"] and name != "lo" and one["is_up"] and one["addresses"]:
                try:
                    self.ears.append((self._hearing("0.0.0.0", socket.if_nametoindex(name)), name))
                except OSError:
                    continue  # a card that cannot do multicast brings nothing that is in the wrong place

    def _talking(self, local: str) -> socket.socket:
        made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        try:
            made.setblocking(False)
            made.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, self.ttl)
            made.bind((local, 0))
            if local:
                made.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton(local))
        except OSError:
            made.close()
            raise
        return made

    def _hearing(self, local: str, index: int) -> socket.socket:
        made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        try:
            made.setblocking(False)
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            made.setsockopt(socket.IPPROTO_IP, IP_MULTICAST_ALL, 0)
            made.bind((self.address, self.port))
            membership = socket.inet_aton(self.address) + socket.inet_aton(local)
            if index:
                membership += struct.pack("@i", index)
            made.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, membership)
        except OSError:
            made.close()
            raise
        return made

    def say(self, data: bytes, where: tuple[str, int]) -> None:
        """Send; the first failure towards the group is the trouble of the place."""
        if self.talk is None:
            return
        try:
            self.talk.sendto(data, where)
        except BlockingIOError:
            pass  # the next one comes in a moment
        except OSError as error:
            if where == (self.address, self.port) and self.send and not self.send["trouble"]:
                self.send["trouble"] = trouble_of(error, "not sent")

    def report(self) -> dict[str, Any]:
        """All of it."""
        return {
            "group": self.group,
            "address": self.address,
            "port": self.port,
            "rank": self.rank,
            "send": self.send,
            "listen": self.listen,
            "heard": self.heard,
            "direct": self.direct,
            "echoed": self.echoed,
            "foreign": [{"cluster": name, "source": source} for name, source in sorted(self.foreign)],
            "announced": [dict(said, source=source) for source, said in sorted(self.announced.items())],
            **self.counts,
        }


class LineStream:
    """A line of JSON in, a line of JSON out, over two open files."""

    def __init__(self, reading: int, writing: int) -> None:
        self.reading, self.writing = reading, writing
        self._buffer = b""

    def take(self) -> list[dict[str, Any]] | None:
        """What has come; None once there is no more to come."""
        data = os.read(self.reading, 65536)
        *lines, self._buffer = (self._buffer + data).split(b"\n")
        return [json.loads(line.decode()) for line in lines if line.strip()] if data or lines else None

    def say(self, row: dict[str, Any]) -> None:
        """Write one line."""
        data = json.dumps(row).encode() + b"\n"
        while data:
            data = data[os.write(self.writing, data) :]


class MulticastProbe:
    """All places of this host. Times are of the monotonic clock."""

    def __init__(self, request: dict[str, Any]) -> None:
        self._request = request
        self._key = bytes.fromhex(request["key"])
        self._end_s = time.monotonic() + float(request["life_s"])
        self._cards: dict[str, Any] = {}
        self._places: list[ProbePlace] = []
        self._selector = selectors.DefaultSelector()
        self._opened_s = self._next_s = 0.0
        self._asked: tuple[LineStream, dict[str, Any], float] | None = None  # (stream, what it said, when)
        self._peers: dict[str, Any] = {}
        self._directs_left = 0

    def open(self) -> dict[str, Any]:
        """Make all sockets; what others need to know of this host."""
        self._cards = cards_of(ip("address"))
        self._places = [ProbePlace(one, self._cards) for one in self._request["places"]]
        for place in self._places:
            place.open(self._cards)
            for ear, card in place.ears:
                self._watch(ear, place, card)
            if place.talk is not None:
                self._watch(place.talk, place, None)
        self._opened_s = self._next_s = time.monotonic()
        peer = {place.key: self._reached(place) for place in self._places}
        return {"host": self._request["host"], "peer": peer}

    def _reached(self, place: ProbePlace) -> dict[str, Any]:
        name = place.talk.getsockname() if place.talk is not None else ("", 0)
        return {"address": name[0] if name[0] != "0.0.0.0" else "", "port": name[1], "sends": place.send is not None}

    def _watch(self, sock: socket.socket, place: ProbePlace, card: str | None) -> None:
        self._selector.register(sock, selectors.EVENT_READ, lambda: self._read(sock, place, card))

    def watch(self, fd: int, ready: Callable[[], object]) -> None:
        """Call `ready` whenever there is something to read."""
        self._selector.register(fd, selectors.EVENT_READ, ready)

    def forget(self, fd: int) -> None:
        """The end of `watch`."""
        self._selector.unregister(fd)

    def end(self) -> None:
        """Leave `serve`."""
        self._end_s = 0.0

    def obey(self, stream: LineStream) -> bool:
        """Read what the control says; false once it has said all."""
        rows = stream.take()
        for row in rows or []:
            if "report" in row:
                self._asked = (stream, row["report"], time.monotonic())
                self._peers = {key: one for key, one in row["report"]["peers"].items() if key != self._request["host"]}
                self._directs_left = DIRECTS_MAX
            elif "end" in row:
                self.end()
        return rows is not None

    def serve(self) -> None:
        """Probe, listen and answer until told to end, or until its life is over."""
        while True:
            now_s = time.monotonic()
            if now_s >= self._end_s:
                return
            if now_s >= self._next_s:
                self._send_all()
                self._next_s = now_s + PERIOD_S
            if self._asked is not None:
                stream, said, since_s = self._asked
                if self._is_enough(said, since_s, now_s):
                    self._asked = None
                    stream.say({"report": self.report()})
            for key, _ready in self._selector.select(max(0.0, self._next_s - time.monotonic())):
                key.data()

    def _send_all(self) -> None:
        for place in self._places:
            if place.talk is None:
                continue
            if place.send is not None:
                place.say(self._sealed("probe", place), (place.address, place.port))
            if self._directs_left:
                for peer in self._peers.values():
                    one = peer.get(place.key) or {}
                    if one.get("address") and one.get("port"):
                        place.say(self._sealed("direct", place), (one["address"], one["port"]))
        self._directs_left = max(0, self._directs_left - 1)

    def _is_enough(self, said: dict[str, Any], since_s: float, now_s: float) -> bool:
        if now_s - since_s >= float(said["window_s"]):
            return True
        if self._directs_left or now_s - self._opened_s < LISTEN_S_MIN or now_s - since_s < 2 * PERIOD_S:
            return False
        return all(self._has_heard(place) for place in self._places if place.listen is not None)

    def _has_heard(self, place: ProbePlace) -> bool:
        senders = [host for host, peer in self._peers.items() if (peer.get(place.key) or {}).get("sends")]
        card = place.listen["card"] if place.listen else ""
        return all(card in place.heard.get(host, {}) for host in senders)

    def _sealed(self, kind: str, place: ProbePlace) -> bytes:
        row = {"cluster": self._request["cluster"], "run": self._request["run"],
               "host": self._request["host"], "kind": kind, "rank": place.rank}  # fmt: skip
        data = MAGIC + bytes([VERSION]) + json.dumps(row).encode()
        return data + self._mac(data)

    def _mac(self, data: bytes) -> bytes:
        return hmac.new(self._key, data, hashlib.sha256).digest()

    def _read(self, sock: socket.socket, place: ProbePlace, card: str | None) -> None:
        for _turn in range(READS_MAX):
            try:
                data, source = sock.recvfrom(DATAGRAM_BYTES_MAX)
            except OSError:
                return  # there is none, or an answer of the network to something that was sent
            self._heard(place, card, data, source)

    def _heard(self, place: ProbePlace, card: str | None, data: bytes, source: tuple[str, int]) -> None:
        if data.startswith(ANNOUNCEMENT):
            if card is not None and (source[0] in place.announced or len(place.announced) < NAMES_MAX):
                place.announced[source[0]] = announcement_of(data)
            return
        row = probe_of(data)
        if row is None:
            place.counts["unknown"] += 1
        elif row["cluster"] != self._request["cluster"]:
            if len(place.foreign) < NAMES_MAX:
                place.foreign.add((row["cluster"], source[0]))
        elif row["run"] != self._request["run"]:
            place.counts["other_runs"] += 1
        elif not hmac.compare_digest(self._mac(data[:-MAC_BYTES]), data[-MAC_BYTES:]):
            place.counts["forged"] += 1
        elif row["host"] != self._request["host"] and row.get("rank") == place.rank:
            self._count(place, card, row, source)

    def _count(self, place: ProbePlace, card: str | None, row: dict[str, Any], source: tuple[str, int]) -> None:
        host = row["host"]
        if card is None:
            place.direct[host] = place.direct.get(host, 0) + 1
            if row["kind"] == "echo":
                place.echoed[host] = place.echoed.get(host, 0) + 1
        elif row["kind"] == "probe":
            cards = place.heard.setdefault(host, {})
            cards[card] = cards.get(card, 0) + 1
            if place.listen and card == place.listen["card"] and cards[card] <= ECHOES_MAX:
                place.say(self._sealed("echo", place), source)

    def report(self) -> dict[str, Any]:
        """What this host knows."""
        return {
            "host": self._request["host"],
            "addresses": [address for card in self._cards.values() for address in card["addresses"]],
            "node_ids": node_ids(self._request.get("instances") or []),
            "places": [place.report() for place in self._places],
        }


def probe_of(data: bytes) -> dict[str, Any] | None:
    """What a probe says, before its MAC is looked at; None where it is none."""
    if not data.startswith(MAGIC) or len(data) < len(MAGIC) + 1 + MAC_BYTES or data[len(MAGIC)] != VERSION:
        return None
    try:
        row = json.loads(data[len(MAGIC) + 1 : -MAC_BYTES].decode())
    except (ValueError, RecursionError):
        return None
    names = ("cluster", "run", "host", "kind")
    return row if isinstance(row, dict) and all(isinstance(row.get(name), str) for name in names) else None


def announcement_of(data: bytes) -> dict[str, str]:
    """The name and the id of a node that announces itself; its MAC is not looked at, for the secret is not here."""
    try:
        row = json.loads(data[ANNOUNCEMENT_HEAD.size : -MAC_BYTES].decode())
        return {"node": str(row["name"])[:64], "node_id": str(row["node_id"])[:64]}
    except (ValueError, RecursionError, LookupError, TypeError):
        return {"node": "", "node_id": ""}


def node_ids(instances: list[str]) -> dict[str, str]:
    """Instance -> its node id, where it has one."""
    found = {}
    for name in instances:
        try:
            with open(f"/var/lib/mq/{name}/identity.json", encoding="utf-8") as file:
                found[name] = str(json.load(file)["node_id"])
        except (OSError, ValueError, LookupError, TypeError):
            continue
    return found


def main() -> None:
    """Talk over standard input and output."""
    stream = LineStream(0, 1)
    rows: list[dict[str, Any]] | None = []
    while rows == []:
        rows = stream.take()
    if rows is None:
        raise SystemExit("there is no request")
    probe = MulticastProbe(rows[0]["request"])
    stream.say({"ready": probe.open()})

    def ready() -> None:
        if not probe.obey(stream):
            probe.end()

    probe.watch(0, ready)
    probe.serve()


if __name__ == "__main__":
    main()
