"""Passwords that were right: what a tag stands for, how many are kept."""

from __future__ import annotations

import hmac

import pytest
from mqbroker.amqp.verified_passwords import LABEL, USERS_MAX, VerifiedPasswords
from mqbroker.config.users import Keys

SALT = b"0123456789abcdef"
KEYS = Keys(b"s" * 32, b"k" * 32)
OTHERS = {
    "user": ("ap", SALT, 4096, KEYS, b"right"),
    "salt": ("app", SALT[::-1], 4096, KEYS, b"right"),
    "iterations": ("app", SALT, 4097, KEYS, b"right"),
    "keys": ("app", SALT, 4096, Keys(b"t" * 32, b"k" * 32), b"right"),
    "password": ("app", SALT, 4096, KEYS, b"Right"),
    "a longer name": ("app0", SALT[1:], 4096, KEYS, b"right"),
    "a longer key": ("app", SALT, 4096, Keys(b"s" * 32 + b"r", b"k" * 32), b"ight"),
}


@pytest.mark.parametrize("other", OTHERS)
def test_a_tag_is_of_one_user_one_verifier_one_password(other: str) -> None:
    passwords = VerifiedPasswords(b"secret")
    tag = passwords.tag("app", SALT, 4096, KEYS, b"right")
    assert tag == passwords.tag("app", SALT, 4096, KEYS, b"right")
    assert tag != passwords.tag(*OTHERS[other])
    passwords.add("app", tag)
    assert passwords.holds("app", tag)
    assert not passwords.holds("app", passwords.tag(*OTHERS[other]))
    assert not passwords.holds("ap", tag)


def test_another_process_makes_other_tags() -> None:
    one, other = VerifiedPasswords(b"one"), VerifiedPasswords(b"other")
    assert one.tag("app", SALT, 4096, KEYS, b"right") != other.tag("app", SALT, 4096, KEYS, b"right")


def test_nothing_holds_before_it_was_added_not_even_zeros() -> None:
    """What an unknown user's tag is compared with must not be what anybody can present."""
    passwords = VerifiedPasswords(b"secret")
    assert not passwords.holds("app", passwords.tag("app", SALT, 4096, KEYS, b"right"))
    assert len(passwords) == 0


def test_a_user_has_one_tag_and_the_oldest_is_forgotten() -> None:
    passwords = VerifiedPasswords(b"secret")
    for number in range(USERS_MAX):
        passwords.add(str(number), b"%032d" % number)
    passwords.add("0", b"n" * 32)
    assert len(passwords) == USERS_MAX
    assert not passwords.holds("0", b"%032d" % 0)
    passwords.add("one more", b"m" * 32)
    assert len(passwords) == USERS_MAX
    assert not passwords.holds("1", b"%032d" % 1), "the oldest by now"
    assert passwords.holds("0", b"n" * 32)
    assert passwords.holds("2", b"%032d" % 2)
    assert passwords.holds("one more", b"m" * 32)


def test_no_salt_that_is_shown_says_anything_of_the_key_of_tags() -> None:
    """Salts of unknown users are made with the same secret, of what anybody may say that is UTF-8."""
    with pytest.raises(UnicodeDecodeError):
        LABEL.decode()
    passwords = VerifiedPasswords(b"secret")
    assert passwords.stand_in_salt("nobody") == hmac.digest(b"secret", b"nobody", "sha256")[:16]
    assert passwords.stand_in_salt("nobody") == VerifiedPasswords(b"secret").stand_in_salt("nobody")
