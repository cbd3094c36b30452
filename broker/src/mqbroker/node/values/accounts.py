"""The users that a listener may let in, sorted once for each time that they are read and not for each connection."""

from __future__ import annotations

from collections.abc import Mapping

from mqbroker.amqp.verified_passwords import VerifiedPasswords
from mqbroker.config.users import CLUSTER_ROLE, UserVerifier
from mqbroker.node.values.credentials import CLUSTER_USER


class Accounts:
    """Cluster users log in on cluster listeners only, and nobody else does there.

    Which passwords were right is remembered as long as these users hold. `secret` is the process's; `node` is what the
    other nodes of the cluster log in with, where this one has cluster connections.
    """

    def __init__(self, users: Mapping[str, UserVerifier], secret: bytes, node: UserVerifier | None = None) -> None:
        self.users = users
        self.passwords = VerifiedPasswords(secret)
        self._of_cluster = {name: user for name, user in users.items() if CLUSTER_ROLE in user.roles}
        if node is not None:
            self._of_cluster[CLUSTER_USER] = node
        self._others = {name: user for name, user in users.items() if CLUSTER_ROLE not in user.roles}
        self._has_sha512 = {
            kind: all(user.sha512 is not None for user in self.of(kind).values()) for kind in ("client", "cluster")
        }

    def of(self, kind: str) -> dict[str, UserVerifier]:
        """Those of a listener of this kind."""
        return self._of_cluster if kind == "cluster" else self._others

    def may_offer_sha512(self, kind: str) -> bool:
        """Whether everybody there can log in with it.

        Mechanisms are offered before a name is said, and clients take the best: offered to somebody whose password an
        older release set, it would lock them out; refused for their name only, it would tell who exists.
        """
        return self._has_sha512[kind]
