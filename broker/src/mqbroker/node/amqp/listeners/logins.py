"""Keys that are being derived of passwords, which takes milliseconds in another thread: to check one, or to log in.

A password that was right before needs no check, and equal ones that come together are checked once: a thousand clients
of one user that are back after a restart cost one key derivation. Both make a right password faster than a wrong one,
so they are for those alone to whom a good outcome would be told at once; whoever has failed lately waits for a check of
its own. Invariant: each peer that waits is told once. Source: docs/SECURITY.md, "Logging in".
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from mqbroker.amqp.events import SaslDerive
from mqbroker.base.look import LOOK
from mqbroker.node.values.effects import Derive
from mqbroker.node.values.login_delays import LoginOrigin, network_of

if TYPE_CHECKING:
    from mqbroker.node.amqp.peers.peer import Peer
    from mqbroker.node.values.base_broker import BaseBroker


def login_key(peer: Peer, user: str) -> LoginOrigin:
    """By what failures are counted."""
    return network_of(peer.far), user


class Logins:
    """Those under way. Bounded by the number of connections, each of which waits for one check at most."""

    def __init__(self, broker: BaseBroker) -> None:
        self._broker = broker
        self._shared: dict[bytes, list[Peer]] = {}  # tag of a password that is checked -> who waits for that

    def check(self, peer: Peer, event: SaslDerive) -> None:
        """Have the password checked, if that takes a key."""
        broker = self._broker
        LOOK.has_touched = True
        if not broker.login_delays.cleared(login_key(peer, event.user), broker.at.monotonic_ns):
            self.derive(peer, event)
        elif peer.connection.recall():
            return
        elif event.tag in self._shared:
            self._shared[event.tag].append(peer)
        else:
            self._shared[event.tag] = [peer]
            self._derive(event, lambda: self._shared.pop(event.tag))

    def derive(self, peer: Peer, event: SaslDerive) -> None:
        """Have the key derived for this peer alone."""
        self._derive(event, lambda: [peer])

    def _derive(self, event: SaslDerive, waiting: Callable[[], list[Peer]]) -> None:
        def came(key: Any, why: str) -> None:
            for peer in waiting():
                if why:
                    peer.close_at_once("amqp:internal-error", "the key of the login could not be derived; try again")
                else:
                    peer.derived(key)

        effect_id = self._broker.completions.expect(came)
        LOOK.has_touched = True
        self._broker.effects.append(Derive(effect_id, event.hash_name, event.password, event.salt, event.iterations))
