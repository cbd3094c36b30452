"""What the output of `ssh -G` means, and what a jump host is asked with."""

from __future__ import annotations

import pytest
from mqctl.errors import UsageError
from mqctl.ssh.settings import KEEPALIVE_S, hop_of, jump_arguments, parse

PLAIN = """\
host mq1
user deploy
hostname 192.0.2.11
port 2222
stricthostkeychecking true
userknownhostsfile /k/known_hosts /k/known_hosts2
globalknownhostsfile /etc/ssh/ssh_known_hosts
identityfile ~/.ssh/a
identityfile "/k/b c"
identitiesonly yes
passwordauthentication no
serveraliveinterval 7
ciphers aes128-ctr,aes256-ctr
proxyjump none
"""


def test_a_plain_host() -> None:
    hop = hop_of("mq1", parse(PLAIN))
    assert (hop.user, hop.host, hop.port, hop.keepalive_s) == ("deploy", "192.0.2.11", 2222, 7)
    assert hop.host_keys == "yes"
    assert hop.identity_files == ("~/.ssh/a", "/k/b c")
    assert hop.identities_only
    assert hop.known_hosts_files == ("/k/known_hosts", "/k/known_hosts2", "/etc/ssh/ssh_known_hosts")
    assert hop.known_hosts_name == "[192.0.2.11]:2222"
    assert hop.methods == ("publickey", "keyboard-interactive")
    assert hop.algorithms == (("ciphers", ("aes128-ctr", "aes256-ctr")),)
    assert jump_arguments(hop, ["mq1"]) is None


def test_a_host_that_falls_silent_is_noticed_without_a_setting() -> None:
    """ssh says 0 where nobody said anything. Who waits for hours for an answer sends nothing himself."""
    assert hop_of("mq1", parse(PLAIN.replace("interval 7", "interval 0"))).keepalive_s == KEEPALIVE_S


def test_the_alias_of_a_host_key_has_no_port() -> None:
    assert hop_of("mq1", parse(PLAIN + "hostkeyalias rack-1\n")).known_hosts_name == "rack-1"


def test_tokens_of_a_proxy_command_are_filled_in() -> None:
    hop = hop_of("mq1", parse(PLAIN + "proxycommand nc -X 5 %h %p %r %n 100%%\n"))
    assert hop.proxy_command == "nc -X 5 192.0.2.11 2222 deploy mq1 100%"


def test_an_unknown_token_is_refused() -> None:
    with pytest.raises(UsageError, match="token %C in ProxyCommand"):
        hop_of("mq1", parse(PLAIN + "proxycommand nc %C\n"))


@pytest.mark.parametrize(
    ("jump", "arguments", "asked"),
    [
        ("bastion", [], ["bastion"]),
        ("ops@bastion:2200", ["-F", "/k/cfg", "-o", "Port=1"], ["-F", "/k/cfg", "-l", "ops", "-p", "2200", "bastion"]),
        (
            "one,two@[2001:db8::1]:22",
            ["-F/k/cfg"],
            ["-F", "/k/cfg", "-J", "one", "-l", "two", "-p", "22", "2001:db8::1"],
        ),
        ("ssh://ops@bastion:2200/", [], ["-l", "ops", "-p", "2200", "bastion"]),
        ("2001:db8::1", [], ["2001:db8::1"]),
    ],
)
def test_jump_hosts_are_asked_as_openssh_would_start_them(jump: str, arguments: list[str], asked: list[str]) -> None:
    hop = hop_of("mq1", parse(PLAIN.replace("proxyjump none", f"proxyjump {jump}")))
    assert jump_arguments(hop, arguments) == asked


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("pkcs11provider /usr/lib/x.so", "PKCS11Provider"),
        ("knownhostscommand /bin/x", "KnownHostsCommand"),
        ("proxyusefdpass yes", "ProxyUseFdpass"),
        ("revokedhostkeys /k/revoked", "RevokedHostKeys"),
        ("verifyhostkeydns ask", "VerifyHostKeyDNS"),
        ("remotecommand top", "RemoteCommand"),
    ],
)
def test_what_paramiko_cannot_honour_is_named(line: str, named: str) -> None:
    with pytest.raises(UsageError) as caught:
        hop_of("mq1", parse(PLAIN + line + "\n"))
    assert named in caught.value.what
    hop_of("mq1", parse(PLAIN + line.split()[0] + " none\n"))


def test_preferred_authentications_choose_and_order() -> None:
    hop = hop_of(
        "mq1", parse(PLAIN.replace("passwordauthentication no", "preferredauthentications password,publickey"))
    )
    assert hop.methods == ("password", "publickey")
