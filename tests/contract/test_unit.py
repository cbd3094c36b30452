"""The unit of the brokers: what it must not lose of its sandbox. How it holds on hosts is molecule's to see."""

from __future__ import annotations

from pathlib import Path

import pytest
from mqbroker.app import exits

UNIT = Path(__file__).resolve().parents[2] / "roles" / "broker" / "templates" / "mqbroker@.service.j2"


@pytest.mark.parametrize(
    "line",
    [
        "CapabilityBoundingSet=",
        "LimitCORE=0",  # a core dump holds messages and secrets
        "NoNewPrivileges=yes",
        "PrivateTmp=yes",
        "ProtectSystem=strict",
        "StateDirectoryMode=0700",
        "UMask=0077",
        "User=mq",
    ],
)
def test_the_sandbox_holds(line: str) -> None:
    assert line in UNIT.read_text(encoding="utf-8").splitlines()


def test_what_no_further_start_would_mend_is_not_started_again() -> None:
    lines = UNIT.read_text(encoding="utf-8").splitlines()
    assert f"RestartPreventExitStatus={exits.USAGE} {exits.IDENTITY} {exits.UNUSABLE}" in lines
    assert "Restart=on-failure" in lines
