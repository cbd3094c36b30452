"""As in tests/system/mqctl: what mqctl asks Ansible is answered by a fork, where the environment is as it began in.

So is what hosts that are folders are asked to run (tests/support/python_forks.py).
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from mqctl import ansible_cli

from tests.support import forks  # noqa: F401, its end is that of what is forked off
from tests.support.ansible_forks import PROGRAMS, put_before
from tests.support.python_forks import PYTHON


@pytest.fixture(autouse=True, scope="package")
def _ansible_is_imported() -> Iterator[None]:
    put_back = put_before(ansible_cli, PROGRAMS.folder())
    PYTHON.begin()
    yield
    put_back()
