"""How nodes log in to each other, and where nobody else does."""

from __future__ import annotations

import hmac

from mqbroker.config.users import make_verifier, password_matches
from mqbroker.node.values.accounts import Accounts
from mqbroker.node.values.credentials import CLUSTER_USER, password_of, verifier_of

from tests.support.cluster_stage import KEY, OTHER_KEY


def test_both_ends_derive_one_password_and_each_secret_another() -> None:
    assert password_matches(verifier_of(KEY, b"one process"), password_of(KEY))
    assert password_matches(verifier_of(KEY, b"another process"), password_of(KEY))
    assert not password_matches(verifier_of(KEY, b"one process"), password_of(OTHER_KEY))


def test_each_process_has_a_salt_of_its_own() -> None:
    assert verifier_of(KEY, b"one process").salt != verifier_of(KEY, b"another process").salt


def test_the_password_is_not_the_key_of_datagrams() -> None:
    assert password_of(KEY) not in (KEY.hex(), hmac.digest(KEY, b"", "sha256").hex())
    assert len(bytes.fromhex(password_of(KEY))) == 32


def test_the_node_user_is_known_on_cluster_listeners_alone() -> None:
    client = make_verifier("one of the clients", b"0" * 16, ("client",))
    robot = make_verifier("one of the robots", b"1" * 16, ("cluster",))
    node = verifier_of(KEY, b"process")
    accounts = Accounts({"client": client, "robot": robot}, b"process", node)
    assert accounts.of("cluster") == {"robot": robot, CLUSTER_USER: node}
    assert accounts.of("client") == {"client": client}
    assert accounts.may_offer_sha512("cluster")
    assert Accounts({"robot": robot}, b"process").of("cluster") == {"robot": robot}
