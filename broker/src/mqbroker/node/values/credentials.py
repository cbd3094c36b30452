"""How nodes of a cluster log in to each other: one user, whose password only those know who know the secret.

Password and MACs of datagrams come from one key (cluster/discovery/datagram.py), each under a label of its own, so
neither says anything of the other. Source: docs/adr/0012-cluster-connections.md.
"""

from __future__ import annotations

import hmac
from typing import Final

from mqbroker.config.users import CLUSTER_ROLE, SALT_BYTES, UserVerifier, make_verifier

CLUSTER_USER: Final = "mq-cluster"
_PASSWORD_LABEL: Final = b"mqbroker cluster login 1"
_SALT_LABEL: Final = b"mqbroker cluster salt 1"


def password_of(cluster_key: bytes) -> str:
    """The password of the cluster's user."""
    return hmac.digest(cluster_key, _PASSWORD_LABEL, "sha256").hex()


def verifier_of(cluster_key: bytes, node_secret: bytes) -> UserVerifier:
    """What a node checks it by, with a salt of this process. Takes some ms."""
    salt = hmac.digest(node_secret, _SALT_LABEL, "sha256")[:SALT_BYTES]
    return make_verifier(password_of(cluster_key), salt, (CLUSTER_ROLE,))
