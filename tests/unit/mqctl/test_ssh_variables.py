"""What Ansible would ask of ssh for a host, option by option."""

from __future__ import annotations

import pytest
from mqctl.errors import UsageError
from mqctl.ssh.variables import access_of


def test_nothing_set_means_the_name_of_the_host() -> None:
    access = access_of("mq1", {}, {})
    assert access.arguments == ("mq1",)
    assert (access.timeout_s, access.become.user, access.become.is_on) == (10, "root", True)


def test_the_order_is_that_of_ansible_because_ssh_takes_the_first_value() -> None:
    variables = {
        "ansible_host": "192.0.2.11",
        "ansible_port": 2222,
        "ansible_user": "deploy",
        "ansible_ssh_private_key_file": "/k/id",
        "ansible_ssh_common_args": "-o ProxyJump=jump -o 'UserKnownHostsFile=/k/a b'",
        "ansible_ssh_extra_args": "-v",
        "ansible_ssh_args": "-C",
        "ansible_host_key_checking": "no",
    }
    assert access_of("mq1", variables, {}).arguments == (
        "-C", "-o", "StrictHostKeyChecking=no", "-o", "Port=2222", "-o", 'IdentityFile="/k/id"', "-o", 'User="deploy"',
        "-o", "ProxyJump=jump", "-o", "UserKnownHostsFile=/k/a b", "-v", "192.0.2.11",
    )  # fmt: skip


def test_settings_of_ansible_cfg_count_where_no_variable_does() -> None:
    settings = {"remote_user": "ops", "timeout": 42, "host_key_checking": False}
    access = access_of("mq1", {"ansible_user": "deploy"}, settings)
    assert access.timeout_s == 42
    assert 'User="deploy"' in access.arguments
    assert "StrictHostKeyChecking=no" in access.arguments


def test_become() -> None:
    variables = {"ansible_become": "false", "ansible_become_user": "mq", "ansible_become_password": "canary"}
    become = access_of("mq1", variables, {}).become
    assert (become.is_on, become.user, become.password) == (False, "mq", "canary")
    assert "canary" not in repr(become)


def test_secrets_have_no_representation() -> None:
    variables = {"ansible_password": "canary-1", "ansible_ssh_private_key_passphrase": "canary-2"}
    access = access_of("mq1", variables, {})
    assert (access.password, access.passphrase) == ("canary-1", "canary-2")
    assert "canary" not in repr(access)


@pytest.mark.parametrize(
    ("variables", "named"),
    [
        ({"ansible_connection": "docker"}, "ansible_connection=docker"),
        ({"ansible_become_method": "doas"}, "ansible_become_method=doas"),
        ({"ansible_ssh_pkcs11_provider": "/lib/x.so"}, "ansible_ssh_pkcs11_provider"),
        ({"ansible_private_key": "-----BEGIN"}, "ansible_private_key"),
        ({"ansible_ssh_common_args": "-o 'x"}, "ansible_ssh_common_args"),
        ({"ansible_ssh_timeout": "soon"}, "ansible_ssh_timeout"),
    ],
)
def test_what_cannot_be_honoured_is_named(variables: dict[str, object], named: str) -> None:
    with pytest.raises(UsageError) as caught:
        access_of("mq1", variables, {})
    assert named in caught.value.what
    assert caught.value.what.startswith("mq1: ")


def test_local_hosts_need_no_ssh() -> None:
    assert access_of("here", {"ansible_connection": "local"}, {}).is_local
