"""Verifiers: the published vector, matching, and the form of the file."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mqbroker.base.errors import ConfigFault
from mqbroker.config.users import (
    UserVerifier,
    check_roles,
    completed,
    make_verifier,
    new_password,
    password_matches,
    users_from_text,
    users_to_text,
)

SALT = b"0123456789abcdef"

# RFC 7677 section 3: user "user", password "pencil".
VECTOR_SALT = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
VECTOR_MESSAGE = (
    b"n=user,r=rOprNGfwEbeRWgbNEkqO,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
    b"s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096,c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
)
VECTOR_PROOF = base64.b64decode("dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=")
VECTOR_SIGNATURE = base64.b64decode("6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=")


def test_verifier_of_the_published_vector() -> None:
    verifier = make_verifier("pencil", VECTOR_SALT, ("client",))
    signature = hmac.digest(verifier.stored_key, VECTOR_MESSAGE, "sha256")
    client_key = bytes(one ^ other for one, other in zip(VECTOR_PROOF, signature, strict=True))
    assert hashlib.sha256(client_key).digest() == verifier.stored_key
    assert hmac.digest(verifier.server_key, VECTOR_MESSAGE, "sha256") == VECTOR_SIGNATURE


@settings(max_examples=20, deadline=None)
@given(
    st.text(alphabet=st.characters(codec="ascii", categories=["L", "N", "P"]), min_size=1, max_size=30),
    st.binary(min_size=8, max_size=32),
)
def test_only_the_password_matches(password: str, salt: bytes) -> None:
    verifier = make_verifier(password, salt, ("client",))
    assert password_matches(verifier, password)
    assert not password_matches(verifier, password + "x")


def test_what_looks_the_same_matches_and_what_cannot_be_prepared_does_not() -> None:
    verifier = make_verifier("pass\u00adword\u2168", SALT, ("client",))
    assert password_matches(verifier, "passwordIX")
    assert not password_matches(verifier, "")
    assert not password_matches(verifier, "a\nb")


@pytest.mark.parametrize("iterations", [0, 4095, 1_000_001])
def test_iterations_are_bounded(iterations: int) -> None:
    with pytest.raises(ConfigFault, match="iterations"):
        make_verifier("pencil", SALT, ("client",), iterations)


@pytest.mark.parametrize("password", ["CHANGE ME!!", "changeme", "admin", " Guest "])
def test_well_known_passwords_are_refused(password: str) -> None:
    with pytest.raises(ConfigFault, match="well-known"):
        new_password(password)


@pytest.mark.parametrize(
    "roles", [(), ("Admin",), ("",), ("a b",), ("cluster", "client"), tuple(f"r{n}" for n in range(33))]
)
def test_roles_that_are_none(roles: tuple[str, ...]) -> None:
    with pytest.raises(ConfigFault, match="roles"):
        check_roles(roles)


def test_roles_are_sorted_and_distinct() -> None:
    assert check_roles(("b", "a", "b")) == ("a", "b")


def test_secrets_do_not_show_in_reprs() -> None:
    verifier = make_verifier("pencil", SALT, ("client",))
    assert repr(verifier) == "UserVerifier(iterations=4096, roles=('client',))"


def two_users() -> dict[str, UserVerifier]:
    return {"zoë": make_verifier("pw-1", SALT, ("client",)), "app": make_verifier("pw-2", SALT, ("cluster",))}


def test_file_round_trip() -> None:
    users = two_users()
    assert users_from_text(users_to_text(users)) == users
    assert "pw-1" not in users_to_text(users)


def of_an_older_release() -> str:
    raw = json.loads(users_to_text(two_users()))
    for row in raw["users"].values():
        del row["sha512"]
    return json.dumps(raw)


def test_files_of_older_releases_load_and_are_completed() -> None:
    users = users_from_text(of_an_older_release())
    assert all(user.sha512 is None for user in users.values())
    assert all(user.keys("sha512") is None for user in users.values())
    assert password_matches(users["app"], "pw-2")
    assert completed(users["app"], "pw-2") == two_users()["app"]
    assert completed(two_users()["app"], "pw-2") == two_users()["app"]
    assert users_from_text(users_to_text(users)) == users


def broken(**changes: Any) -> str:
    raw = json.loads(users_to_text(two_users()))
    raw["users"]["app"].update(changes)
    return json.dumps(raw)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[" * 100_000,
        "[]",
        "{}",
        '{"format": 2, "users": {}}',
        '{"format": 1, "users": []}',
        '{"format": 1, "users": {"": {}}}',
        '{"format": 1, "users": {"a": 5}}',
        broken(mechanism="MD5"),
        broken(iterations=True),
        broken(iterations=1),
        broken(iterations="4096"),
        broken(roles="client"),
        broken(roles=[["x"]]),
        broken(salt="AA=="),
        broken(salt="###"),
        broken(stored_key="AAAA"),
        broken(server_key=5),
        broken(sha512=None),
        broken(sha512="x"),
        broken(sha512={}),
        broken(sha512={"stored_key": "AAAA", "server_key": "AAAA"}),
    ],
)
def test_damaged_files_are_faults(text: str) -> None:
    with pytest.raises(ConfigFault):
        users_from_text(text)
