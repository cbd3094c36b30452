"""Which build of our broker is measured, and how the output says so."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from mqbroker.base.native import IS_NATIVE

from bench import native, run


def test_the_broker_itself_is_asked_which_build_it_is() -> None:
    assert native.said() is IS_NATIVE


def test_a_native_build_comes_before_the_checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", "/checkout")
    native.use(tmp_path)
    assert os.environ["PYTHONPATH"].split(os.pathsep) == [str(tmp_path), "/checkout"]
    monkeypatch.delenv("PYTHONPATH")
    native.use(tmp_path)
    assert os.environ["PYTHONPATH"] == str(tmp_path)


@pytest.mark.parametrize(
    ("is_native", "said"), [(True, "mqops was a native build"), (False, "mqops was Python, not a native build")]
)
def test_the_output_says_which_build_it_was(is_native: bool, said: str) -> None:
    assert run.build_line(is_native) == said


def test_native_without_our_broker_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert run.main(["--native", "--no-ours", "--peer", "artemis-2.44.0"]) == run.USAGE
    assert "--no-ours leaves it out" in capsys.readouterr().err
