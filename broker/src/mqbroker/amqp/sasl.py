"""SASL: who is at the other end (AMQP 1.0 §5.3; RFC 4616 PLAIN, RFC 5802 and 7677 SCRAM, RFC 4505 ANONYMOUS, RFC 4422
appendix A EXTERNAL).

Both ends as small machines: message in, message or verdict out. Passwords are compared with SCRAM verifiers only.
PLAIN at the server and SCRAM at the client need a key derivation, which is asked for as a value because it takes
milliseconds; at the server the memory that this password was right before does as well. How long it may take is not for
the other end to say: there is one challenge in a login, within bounds. An unknown user takes the same way as a known
one, with a salt made from its name, so that names cannot be probed.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from mqbroker.amqp.certificate import CertificateIdentity
from mqbroker.amqp.verified_passwords import VerifiedPasswords
from mqbroker.base.errors import ConfigFault, PeerFault
from mqbroker.config.users import HASH_NAME, ITERATIONS, ITERATIONS_MAX, KEY_BYTES, Keys, password_bytes, user_name

NAME_SIZE_MAX = 1024
SCRAM = {"SCRAM-SHA-512": "sha512", "SCRAM-SHA-256": "sha256"}
"""Mechanism -> hash, best first."""


class ScramVerifier(Protocol):
    """What is stored of a user: never the password."""

    @property
    def salt(self) -> bytes: ...
    @property
    def iterations(self) -> int: ...
    def keys(self, hash_name: str) -> Keys | None: ...


@dataclass(frozen=True, slots=True)
class Challenge:
    """Send this and wait for the answer."""

    data: bytes


@dataclass(frozen=True, slots=True)
class KeyDerivation:
    """PBKDF2-HMAC is needed; go on with `derived`, or where that may be, `recalled`. Equal `tag`, equal key."""

    tag: bytes
    password: bytes
    salt: bytes
    iterations: int
    hash_name: str = HASH_NAME


@dataclass(frozen=True, slots=True)
class LoginVerdict:
    """The end. `data` is the additional data of a good outcome (SCRAM's server signature); `why` is for the log."""

    is_good: bool
    user: str | None
    data: bytes | None = None
    why: str = ""


class SaslServer:
    """The server's half of one login. Raises PeerFault for messages that are not of the mechanism's form.

    `passwords` are of the process; `external`: whom the peer's certificate names, where it presented one that is good.
    `latest` says users and passwords as they are by now: a login goes by those of the moment in which it begins, before
    which the connection may have stood for a while.
    """

    def __init__(self, mechanisms: tuple[str, ...], users: dict[str, Any], entropy: bytes,
                 passwords: VerifiedPasswords | None = None,
                 external: CertificateIdentity | None = None) -> None:  # fmt: skip
        self.mechanisms = mechanisms
        self.mechanism = ""
        self.user = ""
        self._users: Mapping[str, Any] = users
        self.latest: Callable[[], tuple[Mapping[str, Any], VerifiedPasswords]] | None = None
        self._entropy = entropy
        self._passwords = VerifiedPasswords(entropy) if passwords is None else passwords
        self._tag = b""
        self._external = external
        self._scram: _ScramServer | None = None

    def init(self, mechanism: str, response: bytes | None) -> Challenge | KeyDerivation | LoginVerdict:
        """The client chose a mechanism."""
        if mechanism not in self.mechanisms or self.mechanism:
            return LoginVerdict(False, None)
        self.mechanism = mechanism
        if self.latest is not None:
            self._users, self._passwords = self.latest()
        if mechanism == "ANONYMOUS":
            return LoginVerdict(True, None)
        if mechanism == "PLAIN":
            return self._plain(response)
        if mechanism == "EXTERNAL":
            return self._as_in_certificate(response)
        nonce = base64.b64encode(self._entropy[:18]).decode()
        self._scram = _ScramServer(nonce, SCRAM[mechanism])
        return self.respond(response) if response else Challenge(b"")

    def respond(self, response: bytes) -> Challenge | KeyDerivation | LoginVerdict:
        """The client answered a challenge."""
        if self.mechanism == "EXTERNAL":
            return self._as_in_certificate(response)
        if self._scram is None:
            return self._plain(response)
        if not self._scram.first_bare:
            self.user = self._scram.first(response)
            if self._scram.authzid not in ("", self.user):
                return LoginVerdict(False, self.user)
            verifier = self._verifier()
            return Challenge(self._scram.challenge(verifier.salt, verifier.iterations))
        keys, is_known = self._keys(self._scram.hash_name)
        signature = self._scram.final(response, keys)
        return LoginVerdict(is_known and signature is not None, self.user, signature)

    def derived(self, salted: bytes) -> LoginVerdict:
        """The key that `KeyDerivation` asked for is there."""
        stored = hashlib.sha256(hmac.digest(salted, b"Client Key", HASH_NAME)).digest()
        keys, is_known = self._keys(HASH_NAME)
        is_good = hmac.compare_digest(stored, keys.stored_key) and is_known
        if is_good:
            self._passwords.add(self.user, self._tag)
        return LoginVerdict(is_good, self.user)

    def recalled(self) -> LoginVerdict | None:
        """The verdict without the key that `KeyDerivation` asked for: a good one, where this password was right before.

        It comes sooner than a bad one can. So whoever may not tell a good one at once must not ask.
        """
        if not self._passwords.holds(self.user, self._tag) or self.user not in self._users:
            return None
        return LoginVerdict(True, self.user)

    def _as_in_certificate(self, response: bytes | None) -> Challenge | LoginVerdict:
        """The client says as whom it wants to act: nothing, or the very user that its certificate names."""
        if response is None:
            return Challenge(b"")
        authzid = _text(response)
        identity = self._external or CertificateIdentity("", "the peer presented no certificate")
        self.user = identity.user
        if identity.fault:
            return LoginVerdict(False, None, why=identity.fault)
        if authzid and _prepared(authzid) != identity.user:
            return LoginVerdict(
                False, identity.user, why="the certificate does not name the user as whom it wants to act"
            )
        if identity.user not in self._users:
            return LoginVerdict(False, identity.user, why="the certificate is good, but there is no such user here")
        return LoginVerdict(True, identity.user)

    def _plain(self, response: bytes | None) -> Challenge | KeyDerivation | LoginVerdict:
        if response is None:
            return Challenge(b"")
        parts = response.split(b"\x00")
        if len(parts) != 3 or len(response) > NAME_SIZE_MAX * 3:
            raise PeerFault("amqp:decode-error", "a PLAIN response is authzid NUL name NUL password")
        self.user = _prepared(_text(parts[1]))
        if parts[0] and parts[0] != parts[1]:
            return LoginVerdict(False, self.user)
        if not parts[2]:
            return LoginVerdict(False, self.user)
        verifier = self._verifier()
        try:
            password = password_bytes(_text(parts[2]))
        except ConfigFault:
            return LoginVerdict(False, self.user)
        keys, _ = self._keys(HASH_NAME)
        self._tag = self._passwords.tag(self.user, verifier.salt, verifier.iterations, keys, password)
        return KeyDerivation(self._tag, password, verifier.salt, verifier.iterations)

    def _verifier(self) -> ScramVerifier:
        known: ScramVerifier | None = self._users.get(self.user)
        if known is not None:
            return known
        # One salt whatever the mechanism, as those have whom we know.
        return _Unknown(self._passwords.stand_in_salt(self.user), ITERATIONS)

    def _keys(self, hash_name: str) -> tuple[Keys, bool]:
        """The user's keys and whether they count: a stand-in's let nobody in."""
        keys = self._verifier().keys(hash_name)
        zeros = bytes(KEY_BYTES[hash_name])
        return (Keys(zeros, zeros), False) if keys is None else (keys, True)


@dataclass(frozen=True, slots=True)
class _Unknown:
    salt: bytes
    iterations: int

    def keys(self, hash_name: str) -> None:
        """None, whatever the hash."""


def _text(raw: bytes) -> str:
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError:
        raise PeerFault("amqp:decode-error", "a SASL message is not UTF-8") from None
    if len(text) > NAME_SIZE_MAX:
        raise PeerFault("amqp:decode-error", f"a SASL name is over {NAME_SIZE_MAX} characters")
    return text


def _prepared(name: str) -> str:
    """The name as it is stored (RFC 4013); one that cannot be stored is nobody's."""
    try:
        return user_name(name)
    except ConfigFault:
        return name


def _unescaped(name: str) -> str:
    return name.replace("=2C", ",").replace("=3D", "=")


def _attributes(message: str) -> dict[str, str]:
    return {part[0]: part[2:] for part in message.split(",") if part[1:2] == "="}


def _leading(message: str, names: str) -> list[str]:
    """The values of the attributes with which a message must begin, in this order (RFC 5802 section 5.1): what stands
    before them may not be ignored, and what is said twice must not count twice."""
    parts = message.split(",")
    if len(parts) < len(names) or any(
        not part.startswith(f"{name}=") for name, part in zip(names, parts, strict=False)
    ):
        raise PeerFault("amqp:decode-error", f"malformed SCRAM message: it must begin with {', '.join(names)}")
    return [part[2:] for part in parts[: len(names)]]


def _decoded(value: str) -> bytes:
    try:
        return base64.b64decode(value, validate=True)
    except ValueError:
        raise PeerFault("amqp:decode-error", "a SCRAM attribute is not base64") from None


class _ScramServer:
    """One SCRAM exchange: first message, challenge, final message."""

    def __init__(self, nonce: str, hash_name: str) -> None:
        self.hash_name = hash_name
        self.first_bare = ""
        self.authzid = ""
        self._server_nonce = nonce
        self._nonce = ""
        self._gs2 = ""
        self._challenge = ""

    def first(self, response: bytes) -> str:
        """client-first-message; says the user's name."""
        message = _text(response) if len(response) < 8 * NAME_SIZE_MAX else ""
        gs2, _, rest = message.partition(",")
        authzid, _, bare = rest.partition(",")
        name, nonce = _leading(bare, "nr")
        if gs2 not in ("n", "y") or not nonce or (authzid and not authzid.startswith("a=")):
            raise PeerFault("amqp:decode-error", "malformed SCRAM client-first-message")
        self._gs2 = f"{gs2},{authzid},"
        self.first_bare = bare
        self._nonce = nonce + self._server_nonce
        self.authzid = _prepared(_unescaped(authzid.removeprefix("a="))) if authzid else ""
        return _prepared(_unescaped(name))

    def challenge(self, salt: bytes, iterations: int) -> bytes:
        """server-first-message."""
        self._challenge = f"r={self._nonce},s={base64.b64encode(salt).decode()},i={iterations}"
        return self._challenge.encode()

    def final(self, response: bytes, keys: Keys) -> bytes | None:
        """client-final-message; server-final-message where the proof holds, else None."""
        message = _text(response) if len(response) < 8 * NAME_SIZE_MAX else ""
        without_proof, _, proof = message.rpartition(",p=")
        binding, nonce = _leading(without_proof, "cr")
        if nonce != self._nonce or _decoded(binding) != self._gs2.encode():
            return None
        authentication = f"{self.first_bare},{self._challenge},{without_proof}".encode()
        signature = hmac.digest(keys.stored_key, authentication, self.hash_name)
        client_key = bytes(a ^ b for a, b in zip(_decoded(proof), signature, strict=False))
        if not hmac.compare_digest(hashlib.new(self.hash_name, client_key).digest(), keys.stored_key):
            return None
        return b"v=" + base64.b64encode(hmac.digest(keys.server_key, authentication, self.hash_name))


class SaslClient:
    """The client's half: the best that the server offers. `has_certificate`: EXTERNAL is better than a password."""

    def __init__(self, user: str | None, password: str, entropy: bytes, *, allow_plain: bool = True,
                 has_certificate: bool = False) -> None:  # fmt: skip
        self._user = user
        self._password = password
        self._nonce = base64.b64encode(entropy[:18]).decode()
        self._allow_plain = allow_plain
        self._has_certificate = has_certificate
        self._first_bare = ""
        self._challenge = ""
        self._server_signature = b""
        self.mechanism = ""

    def choose(self, offered: tuple[str, ...]) -> tuple[str, bytes | None]:
        """Mechanism and initial response. Raises PeerFault where nothing fits."""
        if self.mechanism:
            raise PeerFault("amqp:not-allowed", "the server offers its mechanisms twice")
        wanted: tuple[str, ...]
        if self._user is None:
            wanted = ("ANONYMOUS",)
        else:
            wanted = (*SCRAM, "PLAIN") if self._allow_plain else tuple(SCRAM)
        if self._has_certificate:
            wanted = ("EXTERNAL", *wanted)
        for mechanism in wanted:
            if mechanism in offered:
                self.mechanism = mechanism
                return mechanism, self._initial(mechanism)
        what = ", ".join(offered)[:200]
        raise PeerFault("amqp:unauthorized-access", f"the server offers {what}; none of {wanted} is there")

    def _initial(self, mechanism: str) -> bytes | None:
        if mechanism == "ANONYMOUS":
            return b"anonymous"
        if mechanism == "EXTERNAL":
            return b""  # as whomever the certificate names
        user = self._user or ""
        if mechanism == "PLAIN":
            return f"\x00{user}\x00{self._password}".encode()
        name = user.replace("=", "=3D").replace(",", "=2C")
        self._first_bare = f"n={name},r={self._nonce}"
        return f"n,,{self._first_bare}".encode()

    def respond(self, challenge: bytes) -> KeyDerivation:
        """The server's challenge: what has to be derived for its answer, which `derived` makes.

        Raises PeerFault for a second one, and for more work than a login may cost: whoever answers at an address need
        not know the password for either.
        """
        hash_name = SCRAM.get(self.mechanism)
        if hash_name is None or self._challenge:
            raise PeerFault("amqp:not-allowed", "a SASL challenge that is not due")
        self._challenge = _text(challenge)
        nonce, salt, count = _leading(self._challenge, "rsi")
        if not nonce.startswith(self._nonce) or nonce == self._nonce or not salt:
            raise PeerFault("amqp:decode-error", "the SCRAM challenge does not answer ours, or has no salt")
        iterations = int(count) if count.isascii() and count.isdigit() and len(count) < 10 else 0
        if not ITERATIONS <= iterations <= ITERATIONS_MAX:
            bounds = f"{ITERATIONS} to {ITERATIONS_MAX} are accepted"
            raise PeerFault("amqp:not-allowed", f"the server asks for {count[:20]} SCRAM iterations; {bounds}")
        return KeyDerivation(b"", self._password_bytes(), _decoded(salt), iterations, hash_name)

    def _password_bytes(self) -> bytes:
        try:
            return password_bytes(self._password)
        except ConfigFault as fault:
            raise PeerFault("amqp:unauthorized-access", str(fault)) from None

    def derived(self, salted: bytes) -> bytes:
        """The answer to the challenge, by the key that `KeyDerivation` asked for."""
        name = SCRAM[self.mechanism]
        client_key = hmac.digest(salted, b"Client Key", name)
        without_proof = f"c=biws,r={_leading(self._challenge, 'r')[0]}"
        authentication = f"{self._first_bare},{self._challenge},{without_proof}".encode()
        signature = hmac.digest(hashlib.new(name, client_key).digest(), authentication, name)
        self._server_signature = hmac.digest(hmac.digest(salted, b"Server Key", name), authentication, name)
        proof = base64.b64encode(bytes(a ^ b for a, b in zip(client_key, signature, strict=True))).decode()
        return f"{without_proof},p={proof}".encode()

    def is_server_genuine(self, additional: bytes | None) -> bool:
        """Whether the outcome's data proves that the server knows the verifier (true where nothing is to prove).

        Raises PeerFault for an outcome of a login that has not begun.
        """
        if not self.mechanism:
            raise PeerFault("amqp:not-allowed", "a SASL outcome before a mechanism was chosen")
        if self.mechanism not in SCRAM:
            return True
        if not self._server_signature:
            return False
        sent = _attributes(_text(additional or b"")).get("v", "")
        return hmac.compare_digest(_decoded(sent), self._server_signature)
