"""Keys of logins, for tests that stand in for the threads that derive them."""

from __future__ import annotations

import hashlib
from functools import lru_cache
from typing import Protocol


class Asked(Protocol):
    """Every kind of asking for one."""

    @property
    def hash_name(self) -> str: ...
    @property
    def password(self) -> bytes: ...
    @property
    def salt(self) -> bytes: ...
    @property
    def iterations(self) -> int: ...


def key_of(asked: Asked) -> bytes:
    """The key that a login asks for."""
    return _derived(asked.hash_name, asked.password, asked.salt, asked.iterations)


@lru_cache(1000)
def _derived(hash_name: str, password: bytes, salt: bytes, iterations: int) -> bytes:
    """Each takes some milliseconds, and both ends of a login ask for the same one."""
    return hashlib.pbkdf2_hmac(hash_name, password, salt, iterations)
