"""Users and their SCRAM-SHA-256 verifiers (RFC 5802 section 3, RFC 7677). Passwords are never kept.

A verifier can check a password and take part in SCRAM; it cannot log in anywhere by itself. The form of `users.json`
is made and read here; the file itself is `io/users_file.py`.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from mqbroker.base.errors import ConfigFault
from mqbroker.config.saslprep import saslprep

FORMAT = 1
HASH_NAME = "sha256"
KEY_BYTES = 32
SALT_BYTES = 16
ITERATIONS = 4096
ITERATIONS_MAX = 1_000_000
USERS_MAX = 10_000
ROLES_MAX = 32
CLUSTER_ROLE = "cluster"
DEFAULT_ROLES = ("client",)
ROLE_PATTERN = re.compile(r"[a-z][a-z0-9_-]{0,62}")

WELL_KNOWN_PASSWORDS = frozenset(
    {"change me!!", "changeme", "change-me", "change_me", "admin", "artemis", "guest", "password", "secret"}
)


@dataclass(frozen=True, slots=True)
class Verifier:
    """What is kept of one user."""

    salt: bytes = field(repr=False)
    iterations: int
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)
    roles: tuple[str, ...]


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


def _salted(password: str, salt: bytes, iterations: int) -> bytes:
    return hashlib.pbkdf2_hmac(HASH_NAME, password_bytes(password), salt, iterations)


def make_verifier(password: str, salt: bytes, roles: tuple[str, ...], iterations: int = ITERATIONS) -> Verifier:
    """A verifier for `password`; `salt` must be random. Raises ConfigFault."""
    if not ITERATIONS <= iterations <= ITERATIONS_MAX:
        raise ConfigFault("iterations", f"must be {ITERATIONS} to {ITERATIONS_MAX}, is {iterations}")
    salted = _salted(password, salt, iterations)
    server_key = hmac.digest(salted, b"Server Key", HASH_NAME)
    return Verifier(salt, iterations, _stored_key(salted), server_key, check_roles(roles))


def _stored_key(salted: bytes) -> bytes:
    client_key = hmac.digest(salted, b"Client Key", HASH_NAME)
    return hashlib.sha256(client_key).digest()


def password_matches(verifier: Verifier, password: str) -> bool:
    """Whether this is the password, in constant time for one number of iterations, which is what it costs."""
    try:
        salted = _salted(password, verifier.salt, verifier.iterations)
    except ConfigFault:
        return False
    return hmac.compare_digest(_stored_key(salted), verifier.stored_key)


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


def users_to_text(users: Mapping[str, Verifier]) -> str:
    """Content of `users.json`."""
    rows = {name: _verifier_to_json(users[name]) for name in sorted(users)}
    return json.dumps({"format": FORMAT, "users": rows}, indent=2, ensure_ascii=False) + "\n"


def users_from_text(text: str) -> dict[str, Verifier]:
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


def _verifier_to_json(verifier: Verifier) -> dict[str, Any]:
    return {
        "mechanism": "SCRAM-SHA-256",
        "salt": base64.b64encode(verifier.salt).decode(),
        "iterations": verifier.iterations,
        "stored_key": base64.b64encode(verifier.stored_key).decode(),
        "server_key": base64.b64encode(verifier.server_key).decode(),
        "roles": list(verifier.roles),
    }


def _verifier_from_json(path: str, row: object) -> Verifier:
    if not isinstance(row, dict) or row.get("mechanism") != "SCRAM-SHA-256":
        raise ConfigFault(path, "has no SCRAM-SHA-256 verifier; set the user's password again")
    iterations, roles = row.get("iterations"), row.get("roles")
    if type(iterations) is not int or not ITERATIONS <= iterations <= ITERATIONS_MAX:
        raise ConfigFault(f"{path}.iterations", f"must be {ITERATIONS} to {ITERATIONS_MAX}")
    if not isinstance(roles, list):
        raise ConfigFault(f"{path}.roles", "must be a list")
    keys = [_bytes_from_json(path, row, name) for name in ("salt", "stored_key", "server_key")]
    if len(keys[0]) < 8 or any(len(key) != KEY_BYTES for key in keys[1:]):
        raise ConfigFault(path, "has keys of a wrong length; set the user's password again")
    return Verifier(keys[0], iterations, keys[1], keys[2], check_roles(tuple(roles)))


def _bytes_from_json(path: str, row: dict[str, Any], name: str) -> bytes:
    try:
        return base64.b64decode(row.get(name, ""), validate=True)
    except (TypeError, ValueError):
        raise ConfigFault(f"{path}.{name}", "is not base64; set the user's password again") from None
