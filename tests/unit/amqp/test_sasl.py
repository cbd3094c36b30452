"""Logins, both ends: the vector of RFC 7677, unknown users, wrong passwords, malformed messages."""

from __future__ import annotations

import base64
import hashlib
import hmac
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mqbroker.amqp.certificate import CertificateIdentity
from mqbroker.amqp.sasl import Challenge, KeyDerivation, LoginVerdict, SaslClient, SaslServer
from mqbroker.amqp.verified_passwords import VerifiedPasswords
from mqbroker.base.errors import PeerFault
from mqbroker.config.users import UserVerifier, make_verifier

from tests.support.derived import key_of
from tests.unit.wire.strategies import steady

SCRAMS = ("SCRAM-SHA-512", "SCRAM-SHA-256")
ALL = (*SCRAMS, "PLAIN", "ANONYMOUS")
USERS = {
    name: make_verifier(password, name.encode().ljust(16, b"."), ("client",))
    for name, password in (("app", "right"), ("a,b=c", "right"), ("Jürgen", "schlüssel"), ("IX", "right"))
}


def server(entropy: bytes = b"s" * 32, mechanisms: tuple[str, ...] = ALL) -> SaslServer:
    return SaslServer(mechanisms, USERS, entropy, VerifiedPasswords(b"node secret"))


def answer(client: SaslClient, challenge: bytes) -> bytes:
    """The client's answer to a challenge, with the key that it takes."""
    return client.derived(key_of(client.respond(challenge)))


def login(client: SaslClient, at: SaslServer) -> tuple[LoginVerdict, bytes | None]:
    """The whole exchange; also what the server proves."""
    step = at.init(*client.choose(at.mechanisms))
    for _ in range(4):
        if isinstance(step, Challenge):
            step = at.respond(answer(client, step.data))
        elif isinstance(step, KeyDerivation):
            step = at.derived(key_of(step))
        else:
            return step, step.data
    raise AssertionError("the login does not end")


# -- good ends --------------------------------------------------------------------------------------------------------


def test_vector_of_rfc_7677() -> None:
    """Its nonces are texts; ours are made of random bytes, so they are put in from outside."""
    salt = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
    at = SaslServer(("SCRAM-SHA-256",), {"user": make_verifier("pencil", salt, ("client",))}, b"s" * 32)
    client = SaslClient("user", "pencil", b"c" * 32)
    client._nonce = "rOprNGfwEbeRWgbNEkqO"
    mechanism, first = client.choose(at.mechanisms)
    assert first == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    assert at.init(mechanism, None) == Challenge(b"")
    assert at._scram is not None
    at._scram._server_nonce = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    step = at.respond(first)
    nonce = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    assert step == Challenge(nonce + b",s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096")
    final = answer(client, step.data)
    assert final == b"c=biws," + nonce + b",p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    verdict = at.respond(final)
    assert verdict == LoginVerdict(True, "user", b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=")
    assert client.is_server_genuine(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=")
    assert not client.is_server_genuine(b"v=7rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=")
    assert not client.is_server_genuine(None)


@pytest.mark.parametrize(("user", "password"), [("app", "right"), ("a,b=c", "right"), ("Jürgen", "schlüssel"),
                                                ("\u2168", "right")])  # fmt: skip
@pytest.mark.parametrize("mechanism", [*SCRAMS, "PLAIN"])
def test_good_logins(mechanism: str, user: str, password: str) -> None:
    """The last one is ROMAN NUMERAL NINE, which SASLprep makes the letters I and X."""
    client = SaslClient(user, password, b"c" * 32)
    verdict, data = login(client, server(mechanisms=(mechanism,)))
    assert (verdict.is_good, verdict.user) == (True, "IX" if user == "\u2168" else user)
    assert client.is_server_genuine(data)


def test_sha_512_by_the_formulas_of_rfc_5802() -> None:
    """No vector of it is published by an RFC: section 3 once more, written out."""
    at, client = server(), SaslClient("app", "right", b"c" * 32)
    first = client.choose(ALL)[1]
    step = at.init("SCRAM-SHA-512", first)
    assert isinstance(step, Challenge)
    assert first is not None
    final = answer(client, step.data)
    without_proof, _, proof = final.rpartition(b",p=")
    message = first.removeprefix(b"n,,") + b"," + step.data + b"," + without_proof
    salted = hashlib.pbkdf2_hmac("sha512", b"right", b"app".ljust(16, b"."), 4096)
    client_key = hmac.new(salted, b"Client Key", "sha512").digest()
    signature = hmac.new(hashlib.sha512(client_key).digest(), message, "sha512").digest()
    assert base64.b64decode(proof) == bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
    server_key = hmac.new(salted, b"Server Key", "sha512").digest()
    said = base64.b64encode(hmac.new(server_key, message, "sha512").digest())
    assert at.respond(final) == LoginVerdict(True, "app", b"v=" + said)


def test_a_user_of_an_older_release_has_no_keys_for_sha_512() -> None:
    """It is refused with the salt that it has: the same as for SHA-256, and nothing tells it from an unknown user."""
    old = {"app": replace(USERS["app"], sha512=None)}
    client = SaslClient("app", "right", b"c" * 32)
    verdict, data = login(client, SaslServer(("SCRAM-SHA-512",), old, b"s" * 32))
    assert (verdict.is_good, data) == (False, None)
    assert login(SaslClient("app", "right", b"c" * 32), SaslServer(("SCRAM-SHA-256",), old, b"s" * 32))[0].is_good


@pytest.mark.parametrize("user", ["app", "nobody"])
def test_both_hashes_have_one_salt(user: str) -> None:
    salts = set()
    for mechanism in SCRAMS:
        step = server().init(mechanism, f"n,,n={user},r=abc".encode())
        assert isinstance(step, Challenge)
        salts.add(step.data.split(b",")[1])
    assert len(salts) == 1


def test_anonymous() -> None:
    verdict, _ = login(SaslClient(None, "", b"c" * 32), server())
    assert verdict == LoginVerdict(True, None)


def with_certificate(identity: CertificateIdentity | None) -> SaslServer:
    return SaslServer(("EXTERNAL", *ALL), USERS, b"s" * 32, VerifiedPasswords(b"node secret"), identity)


def test_external_lets_in_whom_the_certificate_names() -> None:
    client = SaslClient("app", "", b"c" * 32, has_certificate=True)
    verdict, data = login(client, with_certificate(CertificateIdentity("app")))
    assert (verdict, client.mechanism) == (LoginVerdict(True, "app"), "EXTERNAL")
    assert client.is_server_genuine(data)


def test_external_without_an_initial_response() -> None:
    """RFC 4422 §5: an empty challenge asks for what was left out."""
    at = with_certificate(CertificateIdentity("app"))
    assert at.init("EXTERNAL", None) == Challenge(b"")
    assert at.respond(b"") == LoginVerdict(True, "app")


@pytest.mark.parametrize(("authzid", "is_good"), [(b"", True), (b"app", True), (b"IX", False), (b"ap", False)])
def test_external_acts_as_nobody_else(authzid: bytes, is_good: bool) -> None:
    verdict = with_certificate(CertificateIdentity("app")).init("EXTERNAL", authzid)
    assert isinstance(verdict, LoginVerdict)
    assert (verdict.is_good, verdict.user, bool(verdict.why)) == (is_good, "app", not is_good)


@pytest.mark.parametrize(
    ("identity", "why"),
    [
        (None, "presented no certificate"),
        (CertificateIdentity("", "the certificate has no common name, not one"), "no common name"),
        (CertificateIdentity("nobody"), "no such user here"),
    ],
)
def test_external_for_nobody(identity: CertificateIdentity | None, why: str) -> None:
    verdict = with_certificate(identity).init("EXTERNAL", b"")
    assert isinstance(verdict, LoginVerdict)
    assert not verdict.is_good
    assert why in verdict.why


def test_external_with_noise() -> None:
    with pytest.raises(PeerFault, match="amqp:decode-error"):
        with_certificate(CertificateIdentity("app")).init("EXTERNAL", b"\xff")


def test_plain_without_an_initial_response() -> None:
    at = server()
    assert at.init("PLAIN", None) == Challenge(b"")
    assert isinstance(at.respond(b"\0app\0right"), KeyDerivation)


def test_scram_without_an_initial_response() -> None:
    at, client = server(), SaslClient("app", "right", b"c" * 32)
    _, first = client.choose(ALL)
    assert at.init("SCRAM-SHA-512", None) == Challenge(b"")
    assert first is not None
    step = at.respond(first)
    assert isinstance(step, Challenge)
    verdict = at.respond(answer(client, step.data))
    assert isinstance(verdict, LoginVerdict)
    assert verdict.is_good


def test_an_authzid_that_is_the_user_is_fine_and_any_other_is_not() -> None:
    at = server()
    assert isinstance(at.init("PLAIN", b"app\0app\0right"), KeyDerivation)
    assert server().init("PLAIN", b"admin\0app\0right") == LoginVerdict(False, "app")
    assert isinstance(server().init("SCRAM-SHA-256", b"n,a=app,n=app,r=abc"), Challenge)
    assert server().init("SCRAM-SHA-256", b"n,a=admin,n=app,r=abc") == LoginVerdict(False, "app")


def plain(passwords: VerifiedPasswords, user: str, password: str, users: dict[str, UserVerifier] = USERS) -> SaslServer:
    """A login by PLAIN that waits for its key."""
    at = SaslServer(("PLAIN",), users, b"s" * 32, passwords)
    assert isinstance(at.init("PLAIN", f"\0{user}\0{password}".encode()), KeyDerivation)
    return at


def test_a_password_that_was_right_is_recalled_and_no_other() -> None:
    passwords = VerifiedPasswords(b"secret")
    assert plain(passwords, "app", "right").recalled() is None
    assert login(SaslClient("app", "right", b"c" * 32), SaslServer(("PLAIN",), USERS, b"s" * 32, passwords))[0].is_good
    assert plain(passwords, "app", "right").recalled() == LoginVerdict(True, "app")
    for user, password in (("app", "wrong"), ("IX", "right"), ("nobody", "right")):
        assert plain(passwords, user, password).recalled() is None
        assert plain(VerifiedPasswords(b"secret"), user, password).recalled() is None


def test_what_failed_is_not_remembered() -> None:
    passwords = VerifiedPasswords(b"secret")
    for user in ("app", "nobody"):
        assert not login(SaslClient(user, "wrong", b"c" * 32), SaslServer(("PLAIN",), USERS, b"s" * 32, passwords))[
            0
        ].is_good
    assert len(passwords) == 0


@pytest.mark.parametrize("salt", [b"app".ljust(16, b"."), b"another salt ..."])
def test_a_password_of_before_is_not_recalled_with_another_verifier(salt: bytes) -> None:
    passwords = VerifiedPasswords(b"secret")
    login(SaslClient("app", "right", b"c" * 32), SaslServer(("PLAIN",), USERS, b"s" * 32, passwords))
    changed = {"app": make_verifier("other", salt, ("client",))}
    assert plain(passwords, "app", "right", changed).recalled() is None
    assert plain(passwords, "app", "right", {}).recalled() is None


# -- bad ends ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mechanism", [*SCRAMS, "PLAIN"])
@pytest.mark.parametrize(("user", "password"), [("app", "wrong"), ("nobody", "right"), ("app", "RIGHT")])
def test_wrong_password_and_unknown_user_go_the_same_way(mechanism: str, user: str, password: str) -> None:
    verdict, data = login(SaslClient(user, password, b"c" * 32), server(mechanisms=(mechanism,)))
    assert (verdict.is_good, data) == (False, None)


def test_an_unknown_user_has_one_salt_whoever_asks_and_whenever() -> None:
    challenges = [server(entropy).init("SCRAM-SHA-256", b"n,,n=nobody,r=abc") for entropy in (b"a" * 32, b"b" * 32)]
    salts = [challenge.data.split(b",")[1] for challenge in challenges if isinstance(challenge, Challenge)]
    assert len(salts) == 2
    assert salts[0] == salts[1]
    known = server().init("SCRAM-SHA-256", b"n,,n=app,r=abc")
    assert isinstance(known, Challenge)
    assert [part[:2] for part in known.data.split(b",")] == [b"r=", b"s=", b"i="]


def test_a_key_of_zeros_lets_nobody_in_as_an_unknown_user() -> None:
    """The stand-in's keys are zeros: a proof against them must not count either."""
    at = server()
    at.init("SCRAM-SHA-256", b"n,,n=nobody,r=abc")
    assert at._scram is not None
    assert at.derived(b"x") == LoginVerdict(False, "nobody")


@pytest.mark.parametrize("mechanism", ["EXTERNAL", "", "scram-sha-256", "SCRAM-SHA-1"])
def test_a_mechanism_that_was_not_offered(mechanism: str) -> None:
    assert server().init(mechanism, b"x") == LoginVerdict(False, None)


def test_only_what_is_offered_counts() -> None:
    assert server(mechanisms=("PLAIN",)).init("ANONYMOUS", None) == LoginVerdict(False, None)


def test_an_empty_password_is_wrong_without_a_derivation() -> None:
    assert server().init("PLAIN", b"\0app\0") == LoginVerdict(False, "app")


@pytest.mark.parametrize("response", [b"", b"app", b"\0app", b"\0app\0a\0b", b"\0\xff\0x", b"\0app\0\xff",
                                      b"\0" + b"x" * 1100 + b"\0y", b"\0a\0" + b"x" * 5000])  # fmt: skip
def test_malformed_plain(response: bytes) -> None:
    with pytest.raises(PeerFault, match="amqp:decode-error"):
        server().init("PLAIN", response)


@pytest.mark.parametrize("response", [b"x", b"n,,", b"n,,n=app", b"n,,r=abc", b"p=tls-unique,,n=app,r=abc", b"\xff",
                                      b"n,,m=ext,n=app,r=abc", b"n,,n=app,r=",
                                      b"n,,n=" + b"x" * 2000 + b",r=abc"])  # fmt: skip
def test_malformed_first_message(response: bytes) -> None:
    with pytest.raises(PeerFault, match="amqp:decode-error"):
        server().init("SCRAM-SHA-256", response)


def _final(change: str) -> bytes:
    at, client = server(), SaslClient("app", "right", b"c" * 32)
    step = at.init(*client.choose(at.mechanisms))
    assert isinstance(step, Challenge)
    good = answer(client, step.data).decode()
    channel, nonce, proof = good.split(",", 2)
    return {
        "good": good, "no proof": f"{channel},{nonce}", "no nonce": f"{channel},{proof}",
        "no channel": f"{nonce},{proof}",
        "other nonce": f"{channel},{nonce}x,{proof}", "other channel": f"c=eSws,{nonce},{proof}",
        "proof not base64": f"{channel},{nonce},p=!", "empty proof": f"{channel},{nonce},p=",
        "short proof": f"{channel},{nonce},p=AAAA", "channel not base64": f"c=!,{nonce},{proof}", "empty": "",
    }[change].encode()  # fmt: skip


@pytest.mark.parametrize("change", ["good", "other nonce", "other channel", "empty proof", "short proof"])
def test_final_messages(change: str) -> None:
    at = server()
    at.init("SCRAM-SHA-512", SaslClient("app", "right", b"c" * 32).choose(ALL)[1])
    verdict = at.respond(_final(change))
    assert isinstance(verdict, LoginVerdict)
    assert verdict.is_good == (change == "good")


@pytest.mark.parametrize(
    "change", ["no proof", "no nonce", "no channel", "proof not base64", "channel not base64", "empty"]
)
def test_malformed_final_messages(change: str) -> None:
    at = server()
    at.init("SCRAM-SHA-512", SaslClient("app", "right", b"c" * 32).choose(ALL)[1])
    with pytest.raises(PeerFault, match="amqp:decode-error"):
        at.respond(_final(change))


@steady
@given(st.sampled_from(ALL), st.binary(max_size=60), st.binary(max_size=60))
def test_noise_is_a_fault_or_a_verdict(mechanism: str, first: bytes, second: bytes) -> None:
    at = server()
    try:
        step = at.init(mechanism, first)
        if isinstance(step, Challenge):
            step = at.respond(second)
    except PeerFault:
        return
    assert not (isinstance(step, LoginVerdict) and step.is_good) or mechanism == "ANONYMOUS"


# -- the client's side ------------------------------------------------------------------------------------------------


def test_a_client_takes_the_best_that_is_offered() -> None:
    assert SaslClient("app", "x", b"c" * 32).choose(("PLAIN", "SCRAM-SHA-256"))[0] == "SCRAM-SHA-256"
    assert SaslClient("app", "x", b"c" * 32).choose(("SCRAM-SHA-256", *ALL))[0] == "SCRAM-SHA-512"
    assert SaslClient("app", "x", b"c" * 32).choose(("PLAIN",)) == ("PLAIN", b"\0app\0x")
    with pytest.raises(PeerFault, match="none of"):
        SaslClient("app", "x", b"c" * 32, allow_plain=False).choose(("PLAIN", "ANONYMOUS"))
    with pytest.raises(PeerFault, match="none of"):
        SaslClient(None, "", b"c" * 32).choose(("PLAIN",))


@pytest.mark.parametrize(
    "challenge",
    [b"", b"\xff", b"r=other,s=AAAA,i=4096", b"r=NONCE,s=!,i=4096", b"r=NONCE,s=AAAA,i=many", b"r=NONCE,s=AAAA",
     b"r=NONCE,s=AAAA,i=1", b"r=NONCE,s=AAAA,i=99999999", b"r=NONCE,s=AAAA,i=" + b"9" * 5000,
     b"r=NONCEx,s=AAAA,i=4095", b"r=NONCEx,s=AAAA,i=65537", b"r=NONCEx,s=AAAA,i=-4096", b"r=NONCEx,s=AAAA,i=4096.0",
     b"r=NONCE,s=AAAA,i=4096", b"r=NONCEx,s=,i=4096", b"s=AAAA,r=NONCEx,i=4096", b"m=ext,r=NONCEx,s=AAAA,i=4096",
     b"r=NONCEx,r=NONCEy,s=AAAA,i=4096", b"r=NONCEx,s=AAAA,i=4096," + b"x" * 1024],
)  # fmt: skip
def test_a_server_that_talks_nonsense_or_asks_for_too_little_or_too_much(challenge: bytes) -> None:
    client = SaslClient("app", "right", b"c" * 32)
    first = client.choose(ALL)[1]
    assert first is not None
    nonce = first.rpartition(b"r=")[2]
    with pytest.raises(PeerFault):
        client.respond(challenge.replace(b"NONCE", nonce))


@pytest.mark.parametrize("iterations", [4096, 65_536])
def test_how_much_work_a_login_may_cost(iterations: int) -> None:
    client = SaslClient("app", "right", b"c" * 32)
    first = client.choose(ALL)[1]
    assert first is not None
    nonce = first.rpartition(b"r=")[2]
    asked = client.respond(b"r=" + nonce + b"x,s=c2FsdA==,i=%d" % iterations)
    assert asked == KeyDerivation(b"", b"right", b"salt", iterations, "sha512")


def test_one_challenge_in_a_login() -> None:
    at, client = server(), SaslClient("app", "right", b"c" * 32)
    step = at.init(*client.choose(at.mechanisms))
    assert isinstance(step, Challenge)
    asked = client.respond(step.data)
    with pytest.raises(PeerFault, match="amqp:not-allowed"):
        client.respond(step.data)
    client.derived(key_of(asked))
    with pytest.raises(PeerFault, match="amqp:not-allowed"):
        client.respond(step.data)


def test_mechanisms_are_offered_once() -> None:
    client = SaslClient("app", "right", b"c" * 32)
    client.choose(ALL)
    with pytest.raises(PeerFault, match="amqp:not-allowed"):
        client.choose(ALL)


@pytest.mark.parametrize("mechanism", ["PLAIN", "ANONYMOUS"])
def test_no_challenge_where_the_mechanism_has_none(mechanism: str) -> None:
    client = SaslClient("app" if mechanism == "PLAIN" else None, "right", b"c" * 32)
    client.choose((mechanism,))
    with pytest.raises(PeerFault, match="amqp:not-allowed"):
        client.respond(b"r=x,s=AAAA,i=4096")


def test_an_outcome_before_the_login_proves_nothing() -> None:
    with pytest.raises(PeerFault, match="amqp:not-allowed"):
        SaslClient("app", "right", b"c" * 32).is_server_genuine(None)


def test_a_password_that_cannot_be_one_is_refused_by_the_client_itself() -> None:
    at, client = server(mechanisms=("SCRAM-SHA-256",)), SaslClient("app", "bell\a", b"c" * 32)
    step = at.init(*client.choose(at.mechanisms))
    assert isinstance(step, Challenge)
    with pytest.raises(PeerFault, match="password"):
        client.respond(step.data)


def test_a_server_that_skips_the_proof_is_not_genuine() -> None:
    client = SaslClient("app", "right", b"c" * 32)
    client.choose(ALL)
    assert not client.is_server_genuine(None)
    assert not client.is_server_genuine(b"v=")


def test_a_server_that_knows_another_key_is_not_genuine() -> None:
    verifier = USERS["app"]
    wrong = replace(verifier, server_key=hmac.digest(b"other", b"Server Key", "sha256"))
    assert isinstance(wrong, UserVerifier)
    client = SaslClient("app", "right", b"c" * 32)
    verdict, data = login(client, SaslServer(("SCRAM-SHA-256",), {"app": wrong}, b"s" * 32))
    assert verdict.is_good
    assert not client.is_server_genuine(data)
