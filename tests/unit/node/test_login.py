"""Who may log in where, by which mechanism, and what is written down of those who may not."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import replace

import pytest
from mqbroker.amqp import events as told
from mqbroker.amqp.certificate import Certificate
from mqbroker.amqp.sasl import SaslClient
from mqbroker.config.users import UserVerifier, make_verifier
from mqbroker.node.values import inputs as given
from mqbroker.node.values.login_delays import DELAY_MS, WAITING_MAX
from mqbroker.wire.performatives import Begin, Open, SaslChallenge, SaslInit, SaslMechanisms, SaslOutcome, SaslResponse
from mqbroker.wire.types import Symbol

from tests.support import frames
from tests.support.stage import Stage, Talker, options_with

USERS: dict[str, UserVerifier] = {
    "app": make_verifier("right", b"0123456789abcdef", ("client",)),
    "link": make_verifier("right", b"fedcba9876543210", ("cluster",)),
}
BOTH = ("SCRAM-SHA-256", "PLAIN")


def offered(stage: Stage, *, is_loopback: bool = True) -> tuple[str, ...]:
    said = frames.heard(stage.talk(stage.accept(is_loopback=is_loopback), frames.SASL_HEADER))
    (mechanisms,) = [each for each in said if isinstance(each, SaslMechanisms)]
    return tuple(map(str, mechanisms.sasl_server_mechanisms))


def logged_in(talker: Talker) -> bool:
    return any(isinstance(event, told.LoggedIn) for event in talker.events)


@pytest.mark.option("listeners.sasl-mechanisms")
@pytest.mark.parametrize("mechanisms", [("PLAIN",), ("ANONYMOUS",), ("SCRAM-SHA-256",), BOTH])
def test_only_what_the_listener_allows_is_offered(mechanisms: tuple[str, ...]) -> None:
    stage = Stage(options_with({"sasl_mechanisms": mechanisms}), USERS)
    assert offered(stage) == mechanisms
    assert logged_in(stage.connect("c", SaslClient(None, "", b"n" * 32))) == ("ANONYMOUS" in mechanisms)
    assert logged_in(stage.connect("c", SaslClient("app", "right", b"n" * 32))) == ("SCRAM-SHA-256" in mechanisms)


@pytest.mark.option("listeners.allow-plaintext")
@pytest.mark.parametrize("is_allowed", [False, True])
def test_plain_is_not_offered_where_others_can_listen(is_allowed: bool) -> None:
    stage = Stage(options_with({"sasl_mechanisms": BOTH, "allow_plaintext": is_allowed}), USERS)
    assert offered(stage) == BOTH
    assert ("PLAIN" in offered(stage, is_loopback=False)) == is_allowed


@pytest.mark.option("listeners.kind")
@pytest.mark.parametrize(("kind", "user"), [("client", "app"), ("cluster", "link")])
def test_users_of_the_cluster_log_in_on_cluster_listeners_and_nobody_else_does(kind: str, user: str) -> None:
    stage = Stage(options_with({"sasl_mechanisms": BOTH, "kind": kind}), USERS)
    for name in USERS:
        assert logged_in(stage.connect(name, SaslClient(name, "right", b"n" * 32))) == (name == user)
    assert [notice.fields["user"] for notice in stage.notices if notice.event == "login-failed"] == [
        name for name in USERS if name != user
    ]


@pytest.mark.parametrize(("old", "is_offered"), [("", True), ("app", False), ("link", True)])
def test_sha_512_is_offered_where_everybody_can_use_it(old: str, is_offered: bool) -> None:
    """A user whose password an older release set is not offered what it cannot do; those elsewhere do not count."""
    users = {name: replace(user, sha512=None) if name == old else user for name, user in USERS.items()}
    stage = Stage(options_with({"sasl_mechanisms": ("SCRAM-SHA-512", *BOTH)}), users)
    assert ("SCRAM-SHA-512" in offered(stage)) == is_offered
    assert logged_in(stage.connect("c", SaslClient("app", "right", b"n" * 32)))
    stage.give(given.UsersChanged(USERS))
    assert "SCRAM-SHA-512" in offered(stage)


EXTERNAL = ("EXTERNAL", "SCRAM-SHA-256")


@pytest.mark.parametrize("has_certificate", [False, True])
def test_external_is_offered_to_those_who_presented_a_certificate(has_certificate: bool) -> None:
    stage = Stage(options_with({"sasl_mechanisms": EXTERNAL}), USERS)
    conn = stage.accept(certificate=Certificate(("app",)) if has_certificate else None)
    said = frames.heard(stage.talk(conn, frames.SASL_HEADER))
    (mechanisms,) = [each for each in said if isinstance(each, SaslMechanisms)]
    assert tuple(map(str, mechanisms.sasl_server_mechanisms)) == EXTERNAL[not has_certificate :]


@pytest.mark.option("listeners.tls-user-from")
@pytest.mark.parametrize(("user_from", "code"), [("common-name", 0), ("subject-alternative-name", 1)])
def test_the_user_is_in_that_part_of_the_certificate(user_from: str, code: int) -> None:
    stage = Stage(options_with({"sasl_mechanisms": EXTERNAL, "tls_user_from": user_from}), USERS)
    conn = stage.accept(certificate=Certificate(("app",), ("stranger",)))
    stage.talk(conn, frames.external())
    stage.wait(DELAY_MS)
    assert [outcome.code for outcome in frames.of_kind(bytes(stage.sent[conn]), SaslOutcome)] == [code]
    told_users = [(each.fields["user"], each.fields["why"]) for each in stage.notices if each.event == "login-failed"]
    assert told_users == ([("stranger", "the certificate is good, but there is no such user here")] if code else [])


def test_a_certificate_of_a_user_of_the_cluster_is_nobodys_on_a_client_listener() -> None:
    stage = Stage(options_with({"sasl_mechanisms": EXTERNAL}), USERS)
    conn = stage.accept(certificate=Certificate(("link",)))
    stage.talk(conn, frames.external())
    stage.wait(DELAY_MS)
    assert [each.code for each in frames.of_kind(bytes(stage.sent[conn]), SaslOutcome)] == [1]


def test_what_is_logged_of_a_failed_login_holds_no_password() -> None:
    stage = Stage(options_with({"sasl_mechanisms": BOTH}), USERS)
    conn = stage.accept()
    stage.talk(conn, frames.plain("app", "my-secret-password"))
    asked = stage.derives.pop()
    assert "my-secret" not in repr(asked)
    stage.give(given.Done(asked.id, hashlib.pbkdf2_hmac("sha256", asked.password, asked.salt, asked.iterations)))
    stage.run()
    stage.wait(DELAY_MS)
    assert conn in stage.closed
    assert [notice.event for notice in stage.notices] == ["login-failed", "connection-failed"]
    assert "my-secret" not in repr(stage.notices)


def test_a_derivation_that_fails_ends_the_connection() -> None:
    stage = Stage(options_with({"sasl_mechanisms": BOTH}), USERS)
    conn = stage.accept()
    stage.talk(conn, frames.plain("app", "right"))
    stage.give(given.Failed(stage.derives.pop().id, "pool is full"))
    stage.run()
    assert conn in stage.closed
    assert stage.broker.peers == {}


def test_a_key_for_a_connection_that_is_gone_is_nobodys() -> None:
    stage = Stage(options_with({"sasl_mechanisms": BOTH}), USERS)
    conn = stage.accept()
    stage.talk(conn, frames.plain("app", "right"))
    stage.drop_bare(conn)
    stage.give(given.Done(stage.derives.pop().id, b"k" * 32))
    stage.run()
    assert stage.broker.peers == {}


def test_users_that_were_read_again_count_for_new_connections() -> None:
    stage = Stage(options_with({"sasl_mechanisms": BOTH}), USERS)
    stage.give(given.UsersChanged({"new": make_verifier("other", b"0123456789abcdef", ("client",))}))
    stage.run()
    assert not logged_in(stage.connect("app", SaslClient("app", "right", b"n" * 32)))
    assert logged_in(stage.connect("new", SaslClient("new", "other", b"n" * 32)))


# -- guessing ---------------------------------------------------------------------------------------------------------


def attempt(stage: Stage, password: str, user: str = "app", peer: str = "192.0.2.1:1") -> int:
    """A bare connection that has said its password, and whose key is derived, where one is asked for."""
    conn = stage.accept(peer=peer)
    stage.talk(conn, frames.plain(user, password))
    while stage.derives:
        asked = stage.derives.pop()
        stage.give(given.Done(asked.id, hashlib.pbkdf2_hmac("sha256", asked.password, asked.salt, asked.iterations)))
    stage.run()
    return conn


def codes(stage: Stage, conn: int) -> list[int]:
    return [each.code for each in frames.of_kind(bytes(stage.sent[conn]), SaslOutcome)]


def guessed(failures: int, **listener: int) -> Stage:
    """A stage on which somebody has guessed wrong as many times, one after the other."""
    stage = Stage(options_with({"sasl_mechanisms": BOTH, "login_timeout_ms": 60_000, **listener}), USERS)
    for _ in range(failures):
        conn = attempt(stage, "wrong")
        stage.wait(6000)
        assert codes(stage, conn) == [1]
    return stage


@pytest.mark.parametrize(("failures", "delay_ms"), [(1, 200), (3, 800), (6, 5000), (9, 5000)])
@pytest.mark.parametrize("password", ["right", "wrong"])
def test_after_failures_right_and_wrong_take_the_same_longer_time(failures: int, delay_ms: int, password: str) -> None:
    stage = guessed(failures)
    conn = attempt(stage, password)
    stage.wait(delay_ms - 1)
    assert codes(stage, conn) == []
    stage.wait(1)
    assert codes(stage, conn) == [0 if password == "right" else 1]


def test_others_wait_for_nobody() -> None:
    stage = guessed(5)
    assert codes(stage, attempt(stage, "right", peer="192.0.2.2:1")) == [0]
    assert codes(stage, attempt(stage, "right", peer="192.0.2.2:1")) == [0]


def test_a_good_login_that_was_told_forgives() -> None:
    stage = guessed(5)
    attempt(stage, "right")
    stage.wait(5000)
    assert codes(stage, attempt(stage, "right")) == [0]


def test_failures_are_forgotten_after_a_minute() -> None:
    stage = guessed(5)
    stage.wait(60_000)
    assert codes(stage, attempt(stage, "right")) == [0]


def test_guesses_at_the_same_time_are_refused_unseen() -> None:
    stage = guessed(6)
    conns = [attempt(stage, "wrong") for _ in range(WAITING_MAX)]
    for password in ("right", "wrong"):
        assert codes(stage, conn := attempt(stage, password)) == [4]
        assert conn in stage.closed
    assert all(codes(stage, conn) == [] for conn in conns)
    stage.wait(5000)
    assert all(codes(stage, conn) == [1] for conn in conns)
    assert stage.broker.peers == {}


def test_hanging_up_early_tells_nothing_and_is_a_failure_in_the_log() -> None:
    stage = guessed(1)
    for password in ("wrong", "wrong", "right"):
        conn = attempt(stage, password)
        stage.drop_bare(conn)
        assert codes(stage, conn) == []
    assert [notice.event for notice in stage.notices].count("login-failed") == 3
    conn = attempt(stage, "right")
    stage.wait(799)
    assert codes(stage, conn) == []
    stage.wait(1)
    assert codes(stage, conn) == [0]


def test_the_time_to_log_in_is_long_enough_for_the_delay() -> None:
    stage = guessed(9, login_timeout_ms=1000)
    conn = attempt(stage, "right")
    stage.wait(500)
    assert codes(stage, conn) == [0]


def test_what_is_sent_ahead_waits_with_the_outcome() -> None:
    stage = guessed(1)
    conn = attempt(stage, "right")
    said = stage.talk(conn, frames.opened() + frames.begun())
    assert said == b""
    stage.wait(200)
    assert [type(each) for each in frames.heard(bytes(stage.sent[conn]))[-2:]] == [Open, Begin]
    stage.wait(59_000)
    assert conn not in stage.closed


ENDS_OF_LOGINS: dict[str, tuple[int, Callable[[Stage, int], object]]] = {
    "it took too long": (4, lambda stage, _: stage.wait(60_000)),
    "an administrator": (4, lambda stage, conn: stage.admin("connection-close", connection=conn)),
    "the broker stops": (4, lambda stage, _: stage.stop()),
    "a frame that may not come": (1, lambda stage, conn: stage.talk(conn, frames.sasl(SaslOutcome(code=0)))),
    "no frame at all": (1, lambda stage, conn: stage.talk(conn, b"GET / HTTP/1.1\r\n\r\n")),
}


@pytest.mark.parametrize(("code", "end"), ENDS_OF_LOGINS.values(), ids=ENDS_OF_LOGINS)
def test_a_login_that_is_cut_short_says_whether_it_may_be_tried_again(
    code: int, end: Callable[[Stage, int], object]
) -> None:
    """§5.3.3.6: 1 is a fault of the peer's, 4 one that may pass. Once, whatever ends it."""
    stage = Stage(options_with({"sasl_mechanisms": BOTH}), USERS)
    conn = stage.accept()
    stage.talk(conn, frames.SASL_HEADER)
    end(stage, conn)
    assert conn in stage.closed
    assert codes(stage, conn) == [code]


@pytest.mark.parametrize("password", ["right", "wrong"])
def test_a_key_that_comes_while_the_outcome_waits_changes_nothing(password: str) -> None:
    stage = guessed(3)
    conn = attempt(stage, password)
    failed = stage.broker.counters.logins_failed
    stage.broker.peers[conn].derived(b"\0" * 32)
    stage.wait(800)
    assert codes(stage, conn) == [0 if password == "right" else 1]
    assert stage.broker.counters.logins_failed == failed


CHANGED = USERS | {"app": make_verifier("another", b"ABCDEFGHIJKLMNOP", ("client",))}


def outcomes(stage: Stage, conn: int) -> list[int]:
    """What it is told of its login, once the keys that were asked for are there and a failure may be told."""
    while stage.derives:
        asked = stage.derives.pop()
        stage.give(given.Done(asked.id, hashlib.pbkdf2_hmac("sha256", asked.password, asked.salt, asked.iterations)))
    stage.run()
    stage.wait(DELAY_MS)
    return [each.code for each in frames.of_kind(bytes(stage.sent[conn]), SaslOutcome)]


@pytest.mark.parametrize("when", ["before its first word", "while the key is derived"])
@pytest.mark.parametrize(("password", "codes"), [("right", [1]), ("another", [0])])
def test_a_changed_password_counts_on_a_connection_that_is_there_already(
    when: str, password: str, codes: list[int]
) -> None:
    stage = Stage(options_with({"sasl_mechanisms": BOTH}), USERS)
    conn = stage.accept()
    stage.talk(conn, frames.SASL_HEADER)
    said = frames.plain("app", password).removeprefix(frames.SASL_HEADER)
    if when == "before its first word":
        stage.give(given.UsersChanged(CHANGED))
        stage.run()
        stage.talk(conn, said)
    else:
        stage.talk(conn, said)
        stage.give(given.UsersChanged(CHANGED))
        stage.run()
        codes = [1 - code for code in codes]  # it had begun before
    assert outcomes(stage, conn) == codes


@pytest.mark.parametrize(("has_begun", "code"), [(True, 0), (False, 1)])
def test_a_changed_password_counts_for_scram_that_begins_after_it(has_begun: bool, code: int) -> None:
    stage = Stage(options_with({"sasl_mechanisms": BOTH}), USERS)
    conn, client = stage.accept(), SaslClient("app", "right", b"n" * 32)
    stage.talk(conn, frames.SASL_HEADER)
    if not has_begun:
        stage.give(given.UsersChanged(CHANGED))
        stage.run()
    mechanism, first = client.choose(("SCRAM-SHA-256",))
    said = stage.talk(conn, frames.sasl(SaslInit(mechanism=Symbol(mechanism), initial_response=first)))
    (challenge,) = frames.of_kind(said, SaslChallenge)
    asked = client.respond(challenge.challenge)
    salted = hashlib.pbkdf2_hmac("sha256", asked.password, asked.salt, asked.iterations)
    if has_begun:
        stage.give(given.UsersChanged(CHANGED))
        stage.run()
    stage.talk(conn, frames.sasl(SaslResponse(response=client.derived(salted))))
    assert outcomes(stage, conn) == [code]


@pytest.mark.parametrize(("users", "codes"), [({}, [1]), (USERS, [0])])
def test_who_is_a_user_is_asked_as_the_login_comes(users: dict[str, UserVerifier], codes: list[int]) -> None:
    stage = Stage(options_with({"sasl_mechanisms": BOTH}), {} if users else USERS)
    conn = stage.accept()
    stage.talk(conn, frames.SASL_HEADER)
    stage.give(given.UsersChanged(users))
    stage.run()
    stage.talk(conn, frames.plain("app", "right").removeprefix(frames.SASL_HEADER))
    assert outcomes(stage, conn) == codes
