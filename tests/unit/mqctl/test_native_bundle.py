"""What a native bundle needs of the machine that it is built on, and which wheels fit which hosts."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from typing import Any

import pytest
from mqctl.bundle.manifest import is_native, parse_target, require_fit
from mqctl.bundle.native import Builder, here, require
from mqctl.errors import CommandError, UsageError

TARGET = parse_target("3.11", "manylinux_2_36_x86_64")
BUILDER = Builder("3.11", "x86_64", 36, "gcc", True, True)


@pytest.mark.parametrize("glibc_minor", [17, 36])
def test_a_machine_like_the_hosts_or_older_may_build(glibc_minor: int) -> None:
    require(replace(BUILDER, glibc_minor=glibc_minor), TARGET)


@pytest.mark.parametrize(
    ("lack", "what", "attempt"),
    [
        ({"python": "3.12"}, "3.12, not for 3.11", "--native with an mqctl of Python 3.11"),
        ({"machine": "aarch64"}, "for aarch64 here, not for x86_64", "mqctl bundle build"),
        ({"glibc_minor": 39}, "has glibc 2.39; the hosts have 2.36", "on a machine like the hosts"),
        ({"glibc_minor": 0}, "has no glibc; the hosts have 2.36", "on a machine like the hosts"),
        ({"has_compiler": False}, "there is no gcc here", "apt-get install gcc"),
        ({"has_headers": False}, "there is no Python.h here", "apt-get install python3.11-dev"),
    ],
)
def test_what_cannot_be_compiled_is_refused_with_what_to_do(lack: dict[str, Any], what: str, attempt: str) -> None:
    with pytest.raises(CommandError) as refused:
        require(replace(BUILDER, **lack), TARGET)
    assert what in refused.value.what
    assert attempt in refused.value.attempt


def test_this_machine_is_looked_at() -> None:
    found = here(os.environ)
    assert found.python == f"{sys.version_info.major}.{sys.version_info.minor}"
    assert found.glibc_minor > 0
    assert not here({"CC": "no-such-compiler -O2", "PATH": "/nowhere"}).has_compiler
    assert here({"CC": "no-such-compiler -O2"}).compiler == "no-such-compiler"


@pytest.mark.parametrize(
    ("wheel", "said"),
    [
        ("mqbroker-0.1.0-py3-none-any.whl", False),
        ("mqbroker-0.1.0-cp311-cp311-linux_x86_64.whl", True),
        ("pydantic_core-2.0-cp311-cp311-manylinux_2_17_x86_64.whl", False),
    ],
)
def test_native_wheels_are_known_by_their_name(wheel: str, said: bool) -> None:
    assert is_native(wheel) is said
    require_fit(wheel, TARGET)


@pytest.mark.parametrize("tag", ["cp312-cp312-linux_x86_64", "cp311-cp311-linux_aarch64", "cp311-cp311-win_amd64"])
def test_a_native_wheel_for_other_hosts_is_refused(tag: str) -> None:
    with pytest.raises(UsageError, match="compiled for other hosts"):
        require_fit(f"mqbroker-0.1.0-{tag}.whl", TARGET)
