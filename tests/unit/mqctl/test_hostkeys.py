"""Lines of known_hosts: patterns, hashes, markers."""

from __future__ import annotations

import paramiko
import pytest
from mqctl.ssh.hostkeys import HostKeyPolicy, HostKeyRefused, known_keys, matches
from mqctl.ssh.settings import Hop

KEY = paramiko.ECDSAKey.generate()
OTHER = paramiko.ECDSAKey.generate()
# The same in every process: it becomes part of the names of tests.
SALT = "|1|AxRbxlHJa3BQnZwYKNhY0I1j7ow="


def line(patterns: str, key: paramiko.PKey = KEY, marker: str = "") -> str:
    return f"{marker} {patterns} {key.get_name()} {key.get_base64()} comment".strip()


@pytest.mark.parametrize(
    ("patterns", "name", "is_match"),
    [
        ("mq1", "mq1", True),
        ("mq1,192.0.2.11", "192.0.2.11", True),
        ("MQ1", "mq1", True),
        ("mq?", "mq1", True),
        ("*.example.com,!db.example.com", "mq1.example.com", True),
        ("*.example.com,!db.example.com", "db.example.com", False),
        ("[192.0.2.11]:2222", "[192.0.2.11]:2222", True),
        ("[192.0.2.*]:2222", "[192.0.2.11]:2222", True),
        ("192.0.2.11", "[192.0.2.11]:2222", False),
        (paramiko.HostKeys.hash_host("mq1", SALT), "mq1", True),
        (paramiko.HostKeys.hash_host("mq1", SALT), "mq2", False),
        ("|1|broken", "mq1", False),
    ],
)
def test_matches(patterns: str, name: str, is_match: bool) -> None:
    assert matches(patterns, name) is is_match


def test_keys_of_one_server() -> None:
    known = known_keys(["# comment", "", line("mq1"), line("mq2", OTHER), "mq1 ssh-ed25519 not-base64", "mq1"], "mq1")
    assert known.keys == [KEY]


def test_a_revoked_key_is_no_key() -> None:
    known = known_keys([line("mq1"), line("*", marker="@revoked")], "mq1")
    assert known.keys == []
    hop = Hop("mq1", 22, "deploy", host_keys="no")
    with pytest.raises(HostKeyRefused, match="@revoked"):
        HostKeyPolicy(hop, known).missing_host_key(paramiko.SSHClient(), "mq1", KEY)


def test_a_certificate_authority_is_named_when_it_would_have_helped() -> None:
    known = known_keys([line("*", OTHER, "@cert-authority")], "mq1")
    with pytest.raises(HostKeyRefused, match="@cert-authority"):
        HostKeyPolicy(Hop("mq1", 22, "deploy"), known).missing_host_key(paramiko.SSHClient(), "mq1", KEY)


def test_no_password_for_a_server_whose_key_has_changed() -> None:
    policy = HostKeyPolicy(Hop("mq1", 22, "deploy", host_keys="no"), known_keys([line("mq1", OTHER)], "mq1"))
    policy.missing_host_key(paramiko.SSHClient(), "mq1", KEY)
    assert not policy.may_send_password
