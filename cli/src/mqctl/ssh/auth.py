"""Logging in: which keys and passwords are offered to a server, in the order in which OpenSSH offers them.

Keys of the agent that the options name come first, then the agent's other keys, then key files, then the password. A
server counts every key as an attempt, so IdentitiesOnly keeps the agent's other keys back.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import paramiko
from paramiko.auth_strategy import (
    AuthFailure,
    AuthResult,
    AuthSource,
    AuthStrategy,
    InMemoryPrivateKey,
    Password,
    SourceResult,
)
from paramiko.pkey import PublicBlob, UnknownKeyType

from mqctl.errors import UsageError
from mqctl.ssh.hostkeys import HostKeyPolicy
from mqctl.ssh.settings import Hop
from mqctl.ssh.shell import NO_ANSWER

TIMED_OUT = "Authentication timeout."  # by its text alone paramiko tells a server that is silent from one that refuses


class Answers(AuthSource):
    """keyboard-interactive with the password as the answer to a single question that hides what is typed."""

    def __init__(self, username: str, password: str) -> None:
        super().__init__(username=username)
        self._password = password

    def __repr__(self) -> str:
        return "Answers()"

    def authenticate(self, transport: paramiko.Transport) -> Any:
        """Answer the questions of the server; paramiko calls it."""
        return transport.auth_interactive(self.username, self._answer)

    def _answer(self, title: str, instructions: str, prompts: list[tuple[str, bool]]) -> list[str]:
        return [self._password if not echo else "" for _, echo in prompts]


class Strategy(AuthStrategy):
    """Everything that `hop` allows to offer. `timeout_s`: for the agent to name its keys."""

    def __init__(self, hop: Hop, password: str, passphrase: str, policy: HostKeyPolicy, timeout_s: float) -> None:
        super().__init__(ssh_config=paramiko.SSHConfig())
        self.hop = hop
        self.notes: list[str] = []
        self._password = password
        self._passphrase = passphrase
        self._policy = policy
        self._timeout_s = timeout_s

    def authenticate(self, transport: paramiko.Transport) -> AuthResult:
        """Offer one after another until one is taken; paramiko calls it.

        Raises AuthFailure, or SSHException where the server does not answer: a silent one has refused nothing.
        """
        result = AuthResult(strategy=self)
        for source in self.get_sources():
            try:
                outcome = source.authenticate(transport)
            except Exception as fault:  # whatever one key meets, the next is offered
                if isinstance(fault, paramiko.AuthenticationException) and str(fault) == TIMED_OUT:
                    raise paramiko.SSHException(NO_ANSWER) from fault
                result.append(SourceResult(source, fault))
            else:
                result.append(SourceResult(source, outcome))
                return result
        raise AuthFailure(result=result)

    def get_sources(self) -> Iterator[AuthSource]:
        """In the order in which they are offered, each made when its turn comes."""
        user = self.hop.user
        for method in self.hop.methods:
            if method == "publickey":
                for key in self._keys():
                    yield InMemoryPrivateKey(user, key)
            elif self._password and self._policy.may_send_password:
                if method == "password":
                    yield Password(user, lambda: self._password)
                else:
                    yield Answers(user, self._password)

    def _keys(self) -> Iterator[Any]:
        agent = self._agent_keys()
        named = {blob for path in self.hop.identity_files if (blob := public_part(path))}
        yield from (key for key in agent if key.asbytes() in named)
        if not self.hop.identities_only:
            yield from (key for key in agent if key.asbytes() not in named)
        have = {key.asbytes() for key in agent}
        for path in self.hop.identity_files:
            yield from self._key_of_file(Path(path).expanduser(), have)

    def _agent_keys(self) -> list[Any]:
        if self.hop.agent == "none":
            return []
        if self.hop.agent not in {"SSH_AUTH_SOCK", os.environ.get("SSH_AUTH_SOCK", "")}:
            raise UsageError(
                f"the SSH option IdentityAgent {self.hop.agent} cannot be honoured by mqctl",
                f"SSH_AUTH_SOCK={self.hop.agent} mqctl …",
            )
        held: list[Any] = []
        faults: list[str] = []

        def ask() -> None:
            try:
                held.extend(paramiko.Agent().get_keys())
            except Exception as fault:  # whatever it answers, the keys in files are offered
                faults.append(str(fault) or type(fault).__name__)

        # paramiko waits for it without a limit: one that was passed on from elsewhere may be silent.
        asking = threading.Thread(target=ask, daemon=True)
        asking.start()
        asking.join(self._timeout_s)
        if asking.is_alive():
            faults.append(NO_ANSWER)
        self.notes += [f"the agent cannot be used ({fault})" for fault in faults]
        return list(held)

    def _key_of_file(self, path: Path, have: set[bytes]) -> Iterator[Any]:
        try:
            key = paramiko.PKey.from_path(path, self._passphrase.encode() or None)  # type: ignore[arg-type]
        except FileNotFoundError:
            return
        except (OSError, ValueError, TypeError, UnknownKeyType, paramiko.SSHException) as fault:
            self.notes.append(f"{path} cannot be used ({fault or type(fault).__name__})")
            return
        for certificate in self.hop.certificate_files:
            signed = certificate_for(key, Path(certificate).expanduser())
            if signed:
                key.load_certificate(str(Path(certificate).expanduser()))
                break
        if key.public_blob is not None or key.asbytes() not in have:
            yield key


def public_part(path: str) -> bytes | None:
    """The public key beside a key file; None where there is none."""
    try:
        return bytes(PublicBlob.from_file(str(Path(path).expanduser()) + ".pub").key_blob)
    except (OSError, ValueError):
        return None


def certificate_for(key: paramiko.PKey, path: Path) -> bool:
    """Whether the certificate at `path` is for `key`: the key without its type name stands inside the certificate."""
    try:
        blob = PublicBlob.from_file(str(path)).key_blob
    except (OSError, ValueError):
        return False
    plain = key.asbytes()
    return plain[4 + int.from_bytes(plain[:4], "big") :] in blob
