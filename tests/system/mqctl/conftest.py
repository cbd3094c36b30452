"""What mqctl in the process of the tests asks Ansible is answered by a fork (tests/support/ansible_forks.py)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from mqctl import ansible_cli
from mqctl.ssh.pool import SshConnector

from tests.support import forks  # noqa: F401, its end is that of what is forked off
from tests.support.ansible_forks import PROGRAMS, put_before


@pytest.fixture(autouse=True, scope="package")
def _ansible_is_imported() -> Iterator[None]:
    put_back = put_before(ansible_cli, PROGRAMS.folder())
    yield
    put_back()


@pytest.fixture
def connector(monkeypatch: pytest.MonkeyPatch) -> Iterator[SshConnector]:
    """Ways to hosts, without the keys of whoever runs the tests."""
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    one = SshConnector()
    yield one
    one.close()
