"""Passwords of PLAIN that were right, so that the same login again costs an HMAC and no key derivation.

Of each user only a tag is kept: an HMAC of the password and of the verifier that it matched, with a key that the
process made for itself. What failed is never remembered. Invariant: a tag is equal only for the same user, the same
verifier and the same password, so it ends with any of them; whoever reads users again begins with an empty one.
Source: docs/SECURITY.md, "Logging in".
"""

from __future__ import annotations

import hmac

from mqbroker.config.users import Keys

USERS_MAX = 1000
HASH_NAME = "sha256"
# Salts of unknown users are made of names, which are UTF-8, with the same secret, and everybody may see them.
LABEL = b"\xff verified passwords"


class VerifiedPasswords:
    """One tag for each user, the oldest first. `secret`: random bytes that nobody else knows."""

    def __init__(self, secret: bytes) -> None:
        self._secret = secret
        self._key = hmac.digest(secret, LABEL, HASH_NAME)
        self._tags: dict[str, bytes] = {}

    def __len__(self) -> int:
        return len(self._tags)

    def stand_in_salt(self, user: str) -> bytes:
        """The salt of a user that does not exist: always the same in one process."""
        return hmac.digest(self._secret, user.encode(), HASH_NAME)[:16]

    def tag(self, user: str, salt: bytes, iterations: int, keys: Keys, password: bytes) -> bytes:
        """What stands for this password of this user, with this verifier."""
        parts = [user.encode(), salt, iterations.to_bytes(4, "big"), keys.stored_key]
        message = b"".join(len(part).to_bytes(4, "big") + part for part in parts) + password
        return hmac.digest(self._key, message, HASH_NAME)

    def holds(self, user: str, tag: bytes) -> bool:
        """Whether it was verified. Takes the same time for a user of whom nothing is known."""
        return hmac.compare_digest(self._tags.get(user, bytes(len(tag))), tag)

    def add(self, user: str, tag: bytes) -> None:
        """It was verified just now."""
        self._tags.pop(user, None)
        if len(self._tags) >= USERS_MAX:
            del self._tags[next(iter(self._tags))]
        self._tags[user] = tag
