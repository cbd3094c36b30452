"""As in tests/system/mqctl: what mqctl asks Ansible is answered by a fork, where the environment is as it began in."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from mqctl import ansible_cli

from tests.support import forks  # noqa: F401, its end is that of what is forked off
from tests.support.ansible_forks import PROGRAMS, put_before


@pytest.fixture(autouse=True, scope="package")
def _ansible_is_imported() -> Iterator[None]:
    put_back = put_before(ansible_cli, PROGRAMS.folder())
    yield
    put_back()
