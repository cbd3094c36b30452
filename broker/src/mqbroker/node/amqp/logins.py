"""Keys that are being derived of passwords, which takes milliseconds in another thread: to check one, or to log in.

A password that was right before needs no check, and equal ones that come together are checked once: a thousand clients
of one user that are back after a restart cost one key derivation. Both make a right password faster than a wrong one,
so they are for those alone to whom a good outcome would be told at once; whoever has failed lately waits for a check of
its own. Invariant: each peer that waits is told once. Source: docs/SECURITY.md, "Logging in".
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mqbroker.amqp.events import SaslDerive
from mqbroker.base.look import LOOK
from mqbroker.node.values.effects import Derive
from mqbroker.node.values.login_delays import LoginOrigin, network_of

if TYPE_CHECKING:
    from mqbroker.node.amqp.accepted_peer import AcceptedPeer
    from mqbroker.node.amqp.peer import Peer
    from mqbroker.node.broker.broker import Broker


def login_key(peer: AcceptedPeer, user: str) -> LoginOrigin:
    """By what failures are counted."""
    return network_of(peer.far), user


class Logins:
    """Those under way. Bounded by the number of connections, each of which waits for one check at most."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._waiting: dict[int, list[Peer]] = {}  # by the id of their effect
        self._shared: dict[bytes, int] = {}  # tag of a password -> effect
        self._tags: dict[int, bytes] = {}

    def check(self, peer: AcceptedPeer, event: SaslDerive) -> None:
        """Have the password checked, if that takes a key."""
        broker = self._broker
        LOOK.has_touched = True
        if not broker.login_delays.is_clear(login_key(peer, event.user), broker.at.monotonic_ns):
            self.derive(peer, event)
        elif peer.connection.recall():
            return
        elif event.tag in self._shared:
            self._waiting[self._shared[event.tag]].append(peer)
        else:
            effect_id = self.derive(peer, event)
            self._shared[event.tag], self._tags[effect_id] = effect_id, event.tag

    def derive(self, peer: Peer, event: SaslDerive) -> int:
        """Have the key derived for this peer alone; the id of the effect."""
        effect_id = self._broker.next_effect_id()
        LOOK.has_touched = True
        self._waiting[effect_id] = [peer]
        self._broker.effects.append(Derive(effect_id, event.hash_name, event.password, event.salt, event.iterations))
        return effect_id

    def checked(self, effect_id: int, result: Any) -> None:
        """The key is there, if this effect was one of ours."""
        for peer in self._taken(effect_id):
            peer.derived(result)

    def failed(self, effect_id: int) -> bool:
        """There will be no key; whether this was a check."""
        peers = self._taken(effect_id)
        for peer in peers:
            peer.close("amqp:internal-error", "the key of the login could not be derived; try again")
        return bool(peers)

    def _taken(self, effect_id: int) -> list[Peer]:
        LOOK.has_touched = True
        tag = self._tags.pop(effect_id, None)
        if tag is not None:
            del self._shared[tag]
        return self._waiting.pop(effect_id, [])
