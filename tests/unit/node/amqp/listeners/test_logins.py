"""Checks of passwords: how many key derivations logins cost, and that saving some lets nobody in or learn more."""

from __future__ import annotations

import hashlib

import pytest
from mqbroker.config.users import UserVerifier, make_verifier
from mqbroker.node.values import inputs as given
from mqbroker.node.values.effects import Derive
from mqbroker.node.values.login_delays import DELAY_MS
from mqbroker.wire.performatives import SaslOutcome

from tests.support import frames
from tests.support.stage import Stage, options_with

SALT = b"0123456789abcdef"
USERS: dict[str, UserVerifier] = {
    "app": make_verifier("right", SALT, ("client",)),
    "link": make_verifier("right", b"fedcba9876543210", ("cluster",)),
}
GOOD, REFUSED = [0], [1]


class Site:
    """A node, and how many key derivations it has asked for."""

    def __init__(self, kind: str = "client") -> None:
        self.stage = Stage(options_with({"sasl_mechanisms": ("PLAIN",), "kind": kind}), USERS)
        self.derived = 0

    def say(self, password: str, user: str = "app", peer: str = "192.0.2.1:1") -> int:
        """A connection has said its password."""
        conn = self.stage.accept(peer=peer)
        self.stage.talk(conn, frames.plain(user, password))
        return conn

    def derive(self) -> None:
        """The threads are through with all that was asked for."""
        asked, self.stage.derives = self.stage.derives, []
        self.derived += len(asked)
        for each in asked:
            self.stage.give(given.Done(each.id, _key(each)))
        self.stage.run()

    def codes(self, conn: int) -> list[int]:
        return [each.code for each in frames.of_kind(bytes(self.stage.sent[conn]), SaslOutcome)]

    def login(self, password: str, user: str = "app", peer: str = "192.0.2.1:1") -> list[int]:
        """The outcome of a login, at once or a little later."""
        conn = self.say(password, user, peer)
        self.derive()
        self.stage.wait(60_000)
        return self.codes(conn)


def _key(effect: Derive) -> bytes:
    return hashlib.pbkdf2_hmac(effect.hash_name, effect.password, effect.salt, effect.iterations)


@pytest.mark.slow
def test_a_thousand_equal_logins_cost_one_key_derivation() -> None:
    site = Site()
    for number in range(1000):
        conn = site.say("right", peer=f"192.0.2.1:{number}")
        site.derive()
        assert site.codes(conn) == GOOD
        site.stage.drop_bare(conn)
    assert site.derived == 1


@pytest.mark.slow
def test_a_thousand_that_come_together_cost_one_as_well() -> None:
    site = Site()
    conns = [site.say("right", peer=f"192.0.2.1:{number}") for number in range(1000)]
    site.derive()
    assert site.derived == 1
    assert [site.codes(conn) for conn in conns] == [GOOD] * 1000


def test_other_passwords_that_come_at_the_same_time_are_checked_each() -> None:
    site = Site()
    conns = {
        word: site.say(word, peer=f"192.0.2.{number}:1") for number, word in enumerate(("right", "wrong", "Right"))
    }
    unknown = site.say("right", user="nobody", peer="192.0.2.9:1")
    site.derive()
    site.stage.wait(DELAY_MS)
    assert site.derived == 4
    assert {word: site.codes(conn) for word, conn in conns.items()} == {
        "right": GOOD,
        "wrong": REFUSED,
        "Right": REFUSED,
    }
    assert site.codes(unknown) == REFUSED


def test_a_wrong_password_costs_its_derivation_and_its_delay_each_time() -> None:
    site = Site()
    assert site.login("right") == GOOD
    for count in range(2, 5):
        conn = site.say("wrong", peer=f"192.0.2.{count}:1")
        site.derive()
        assert site.derived == count
        site.stage.wait(DELAY_MS - 1)
        assert site.codes(conn) == []
        site.stage.wait(1)
        assert site.codes(conn) == REFUSED


def test_after_a_failure_a_right_password_is_derived_and_waits_as_a_wrong_one_does() -> None:
    """Else it could be told from a wrong one by its time, also where all outcomes are held back."""
    site = Site()
    assert site.login("right") == GOOD
    site.say("wrong")
    site.derive()
    for password in ("right", "right", "wrong"):
        conn = site.say(password)
        assert len(site.stage.derives) == 1, "not even equal ones share"
        asked = site.stage.derives.pop()
        assert site.codes(conn) == []
        site.stage.give(given.Done(asked.id, _key(asked)))
        site.stage.run()
        assert site.codes(conn) == []
    conn = site.say("right", peer="192.0.2.2:1")
    assert site.codes(conn) == GOOD, "others wait for nobody"


def test_more_logins_than_may_wait_are_refused_after_a_derivation_each() -> None:
    site = Site()
    assert site.login("right") == GOOD
    for _ in range(8):
        site.say("wrong")
        site.derive()
    before = site.derived
    for password in ("right", "wrong"):
        conn = site.say(password)
        assert site.codes(conn) == []
        site.derive()
        assert site.codes(conn) == [4]
    assert site.derived == before + 2


def test_wrong_passwords_that_come_together_fail_each() -> None:
    site = Site()
    conns = [site.say("wrong") for _ in range(4)]
    site.derive()
    assert site.derived == 1
    site.stage.wait(60_000)
    assert [site.codes(conn) for conn in conns] == [REFUSED] * 4
    assert site.stage.broker.counters.logins_failed == 4
    conn = site.say("right")
    assert site.codes(conn) == []


@pytest.mark.parametrize("is_reload", [False, True])
def test_a_changed_password_refuses_the_old_one_at_once(is_reload: bool) -> None:
    site = Site()
    assert site.login("right") == GOOD
    _change(site, {"app": make_verifier("new", SALT, ("client",))}, is_reload=is_reload)
    assert site.login("right", peer="192.0.2.2:1") == REFUSED
    assert site.login("new") == GOOD
    assert site.login("new") == GOOD
    assert site.derived == 3


@pytest.mark.parametrize("is_reload", [False, True])
def test_a_removed_user_is_nobody_at_once(is_reload: bool) -> None:
    site = Site()
    assert site.login("right") == GOOD
    _change(site, {}, is_reload=is_reload)
    assert site.login("right") == REFUSED
    assert site.derived == 2


def test_users_that_are_read_again_are_verified_again_even_if_nothing_changed() -> None:
    site = Site()
    assert site.login("right") == GOOD
    _change(site, USERS, is_reload=True)
    assert site.login("right") == GOOD
    assert site.derived == 2


def _change(site: Site, users: dict[str, UserVerifier], *, is_reload: bool) -> None:
    if is_reload:
        site.stage.users = users
        site.stage.admin("config-reload")
    else:
        site.stage.give(given.UsersChanged(users))
        site.stage.run()


def test_a_key_that_comes_after_the_users_changed_is_not_remembered_for_those() -> None:
    site = Site()
    conn = site.say("right")
    _change(site, {"app": make_verifier("new", SALT, ("client",))}, is_reload=False)
    site.derive()
    assert site.codes(conn) == GOOD, "it had begun before"
    assert len(site.stage.broker.accounts.passwords) == 0
    assert site.login("right", peer="192.0.2.2:1") == REFUSED


@pytest.mark.parametrize(("kind", "user"), [("client", "app"), ("cluster", "link")])
def test_a_password_that_is_remembered_lets_in_where_the_user_may_log_in(kind: str, user: str) -> None:
    site = Site(kind)
    for name in USERS:
        outcome = GOOD if name == user else REFUSED
        assert [site.login("right", user=name) for _ in range(2)] == [outcome] * 2
    assert site.derived == 3


def test_a_check_that_fails_ends_all_that_wait_for_it_and_the_next_is_a_new_one() -> None:
    site = Site()
    conns = [site.say("right") for _ in range(3)]
    site.stage.drop_bare(conns[1])
    site.stage.give(given.Failed(site.stage.derives.pop().id, "too many"))
    site.stage.run()
    assert site.stage.broker.peers == {}
    assert site.login("right") == GOOD


def test_whoever_shares_a_check_gets_its_outcome_though_the_first_hung_up() -> None:
    site = Site()
    conns = [site.say("right") for _ in range(3)]
    site.stage.drop_bare(conns[0])
    site.derive()
    assert [site.codes(conn) for conn in conns[1:]] == [GOOD] * 2


def test_what_is_sent_ahead_is_taken_in_after_a_password_that_is_remembered() -> None:
    site = Site()
    assert site.login("right") == GOOD
    conn = site.stage.accept(peer="192.0.2.1:2")
    site.stage.talk(conn, frames.plain("app", "right") + frames.opened() + frames.begun())
    assert site.stage.derives == []
    assert len(site.stage.broker.peers[conn].connection.sessions) == 1
