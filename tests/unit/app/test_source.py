"""What a file of options must hold before a broker starts with it, and before one that runs takes it."""

from __future__ import annotations

from pathlib import Path

import pytest
from mqbroker.app import source

DIVERT = '[[diverts]]\nname = "d"\naddress = "orders"\nforwarding-address = "audit"\nfilter = "{}"\n'


@pytest.mark.parametrize("read", [source.sound, source.checked])
def test_a_filter_that_is_no_selector_is_found_before_a_reload_by_a_signal_too(tmp_path: Path, read: object) -> None:
    assert callable(read)
    file = tmp_path / "broker.toml"
    file.write_text(DIVERT.format("color ="))
    with pytest.raises(source.UnusableOptions) as found:
        read(file, file.read_text())
    assert [fault.path for fault in found.value.faults] == ["diverts.0.filter"]
    file.write_text(DIVERT.format("color = 'red'"))
    assert [one.filter for one in read(file, file.read_text()).diverts] == ["color = 'red'"]
