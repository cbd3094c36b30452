"""Users and their verifiers for SCRAM with SHA-256 and SHA-512 (RFC 5802 section 3, RFC 7677). No password is kept.

A verifier can check a password and take part in SCRAM; it cannot log in anywhere by itself. Both hashes share salt and
iterations, so that whoever asks for one learns nothing from the other. The form of `users.json` is made and read here;
the file itself is `io/files/users_file.py`. Verifiers of releases before SHA-512 have none for it; those releases read
files with it as well, so the number of the format has not changed.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from mqbroker.base.errors import ConfigFault
from mqbroker.config.saslprep import saslprep

FORMAT = 1
HASH_NAME = "sha256"
KEY_BYTES = {"sha256": 32, "sha512": 64}
SALT_BYTES = 16
ITERATIONS = 4096
ITERATIONS_MAX = 65_536  # 16 times what this product uses, 30 ms: clients derive no more for a server that asks for it
USERS_MAX = 10_000
ROLES_MAX = 32
CLUSTER_ROLE = "cluster"
DEFAULT_ROLES = ("client",)
ROLE_PATTERN = re.compile(r"[a-z][a-z0-9_-]{0,62}")

WELL_KNOWN_PASSWORDS = frozenset(
    {"change me!!", "changeme", "change-me", "change_me", "admin", "artemis", "guest", "password", "secret"}
)


@dataclass(frozen=True, slots=True)
class Keys:
    """What one hash makes of a password (RFC 5802 section 3)."""

    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class UserVerifier:
    """What is kept of one user. `sha512` is None where an older release set the password."""

    salt: bytes = field(repr=False)
    iterations: int
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)
    roles: tuple[str, ...]
    sha512: Keys | None = field(default=None, repr=False)

    def keys(self, hash_name: str) -> Keys | None:
        """The keys for a login with this hash."""
        return Keys(self.stored_key, self.server_key) if hash_name == HASH_NAME else self.sha512


def user_name(text: str) -> str:
    """The prepared name of a user. Raises ConfigFault."""
    return saslprep("user name", text)


def new_password(text: str) -> str:
    """The prepared form of a password that is about to be set; well-known ones are refused."""
    prepared = saslprep("password", text)
    if prepared.strip().lower() in WELL_KNOWN_PASSWORDS:
        raise ConfigFault("password", "is a well-known default; `mqctl init` makes random ones")
    return prepared


def password_bytes(password: str) -> bytes:
    """What is hashed of a password. Raises ConfigFault where it cannot be one."""
    return saslprep("password", password).encode()


def _keys(hash_name: str, password: str, salt: bytes, iterations: int) -> Keys:
    salted = hashlib.pbkdf2_hmac(hash_name, password_bytes(password), salt, iterations)
    client_key = hmac.digest(salted, b"Client Key", hash_name)
    return Keys(hashlib.new(hash_name, client_key).digest(), hmac.digest(salted, b"Server Key", hash_name))


def make_verifier(password: str, salt: bytes, roles: tuple[str, ...], iterations: int = ITERATIONS) -> UserVerifier:
    """A verifier for `password`; `salt` must be random. Raises ConfigFault."""
    if not ITERATIONS <= iterations <= ITERATIONS_MAX:
        raise ConfigFault("iterations", f"must be {ITERATIONS} to {ITERATIONS_MAX}, is {iterations}")
    keys = _keys(HASH_NAME, password, salt, iterations)
    sha512 = _keys("sha512", password, salt, iterations)
    return UserVerifier(salt, iterations, keys.stored_key, keys.server_key, check_roles(roles), sha512)


def completed(verifier: UserVerifier, password: str) -> UserVerifier:
    """With keys for every hash; the very same where it has them. `password` must be the one that matches."""
    if verifier.sha512 is not None:
        return verifier
    return replace(verifier, sha512=_keys("sha512", password, verifier.salt, verifier.iterations))


def password_matches(verifier: UserVerifier, password: str) -> bool:
    """Whether this is the password, in constant time for one number of iterations, which is what it costs."""
    try:
        keys = _keys(HASH_NAME, password, verifier.salt, verifier.iterations)
    except ConfigFault:
        return False
    return hmac.compare_digest(keys.stored_key, verifier.stored_key)


def check_roles(roles: tuple[str, ...]) -> tuple[str, ...]:
    """The roles, sorted and without doubles. Raises ConfigFault."""
    if not roles or len(roles) > ROLES_MAX:
        raise ConfigFault("roles", f"must be 1 to {ROLES_MAX}, are {len(roles)}")
    for role in roles:
        if not isinstance(role, str) or not ROLE_PATTERN.fullmatch(role):
            raise ConfigFault("roles", f"{role!r} must be lower-case letters, digits, dashes or underscores")
    if CLUSTER_ROLE in roles and len(set(roles)) > 1:
        raise ConfigFault("roles", f"{CLUSTER_ROLE} stands alone: such a user logs in on cluster listeners only")
    return tuple(sorted(set(roles)))


def users_to_text(users: Mapping[str, UserVerifier]) -> str:
    """The content of `users.json`: verifiers by name, no passwords."""
    rows = {name: _verifier_to_json(users[name]) for name in sorted(users)}
    return json.dumps({"format": FORMAT, "users": rows}, indent=2, ensure_ascii=False) + "\n"


def users_from_text(text: str) -> dict[str, UserVerifier]:
    """Users of a `users.json`. Raises ConfigFault at its first fault: nobody edits this file by hand."""
    try:
        raw = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigFault("users", f"is not JSON: {error}; restore it or set the users again") from None
    if not isinstance(raw, dict) or raw.get("format") != FORMAT or not isinstance(raw.get("users"), dict):
        raise ConfigFault("users", f"is not a file of users of format {FORMAT}")
    rows = raw["users"]
    if len(rows) > USERS_MAX:
        raise ConfigFault("users", f"has {len(rows)} users, at most {USERS_MAX} are allowed")
    return {user_name(name): _verifier_from_json(f"users.{name}", row) for name, row in rows.items()}


def _verifier_to_json(verifier: UserVerifier) -> dict[str, Any]:
    row = {
        "mechanism": "SCRAM-SHA-256",
        "salt": base64.b64encode(verifier.salt).decode(),
        "iterations": verifier.iterations,
        **_keys_to_json(Keys(verifier.stored_key, verifier.server_key)),
        "roles": list(verifier.roles),
    }
    return row if verifier.sha512 is None else {**row, "sha512": _keys_to_json(verifier.sha512)}


def _keys_to_json(keys: Keys) -> dict[str, str]:
    return {name: base64.b64encode(getattr(keys, name)).decode() for name in ("stored_key", "server_key")}


def _verifier_from_json(path: str, row: object) -> UserVerifier:
    if not isinstance(row, dict) or row.get("mechanism") != "SCRAM-SHA-256":
        raise ConfigFault(path, "has no SCRAM-SHA-256 verifier; set the user's password again")
    iterations, roles = row.get("iterations"), row.get("roles")
    if type(iterations) is not int or not ITERATIONS <= iterations <= ITERATIONS_MAX:
        raise ConfigFault(f"{path}.iterations", f"must be {ITERATIONS} to {ITERATIONS_MAX}")
    if not isinstance(roles, list):
        raise ConfigFault(f"{path}.roles", "must be a list")
    salt = _bytes_from_json(path, row, "salt")
    if len(salt) < 8:
        raise ConfigFault(path, "has a salt that is too short; set the user's password again")
    keys = _keys_from_json(path, row, HASH_NAME)
    sha512 = _keys_from_json(f"{path}.sha512", row["sha512"], "sha512") if "sha512" in row else None
    return UserVerifier(salt, iterations, keys.stored_key, keys.server_key, check_roles(tuple(roles)), sha512)


def _keys_from_json(path: str, row: object, hash_name: str) -> Keys:
    if not isinstance(row, dict):
        raise ConfigFault(path, "must hold two keys; set the user's password again")
    keys = Keys(_bytes_from_json(path, row, "stored_key"), _bytes_from_json(path, row, "server_key"))
    if {len(keys.stored_key), len(keys.server_key)} != {KEY_BYTES[hash_name]}:
        raise ConfigFault(path, "has keys of a wrong length; set the user's password again")
    return keys


def _bytes_from_json(path: str, row: dict[str, Any], name: str) -> bytes:
    try:
        return base64.b64decode(row.get(name, ""), validate=True)
    except (TypeError, ValueError):
        raise ConfigFault(f"{path}.{name}", "is not base64; set the user's password again") from None
