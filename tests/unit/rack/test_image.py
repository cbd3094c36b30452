"""The image's name follows its recipe, and its packages come from where this machine's do."""

from __future__ import annotations

from pathlib import Path

import pytest
from mqrack import aptsources, image
from mqrack.errors import RackError

DEB822 = """\
Types: deb
# a snapshot that is not used
URIs: http://mirror.test/debian
Suites: bookworm bookworm-updates
Components: main
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg

Types: deb-src
URIs: http://mirror.test/sources
Suites: bookworm
Components: main

Enabled: no
Types: deb
URIs: http://mirror.test/off
Suites: bookworm
Components: main

Types: deb
URIs: http://other.test/tools
Suites: bookworm
Components: stable
"""

ONE_LINE = """\
# deb http://mirror.test/commented bookworm main
deb [signed-by=/k.gpg arch=amd64] http://mirror.test/debian bookworm main contrib # why
deb-src http://mirror.test/debian bookworm main
deb http://mirror.test/security bookworm-security main
deb http://mirror.test/debian trixie main
deb http://other.test/tools bookworm stable
"""


@pytest.mark.parametrize(
    ("name", "value"),
    [("SUITE", "trixie"), ("PACKAGES", ("systemd",)), ("MASKED_UNITS", ()), ("FILES", {"etc/hostname": "x"})],
)
def test_every_part_of_the_recipe_changes_the_hash(monkeypatch: pytest.MonkeyPatch, name: str, value: object) -> None:
    before = image.recipe_hash()
    monkeypatch.setattr(image, name, value)
    assert image.recipe_hash() != before


def test_the_same_recipe_has_the_same_hash() -> None:
    assert image.recipe_hash() == image.recipe_hash()
    assert len(image.recipe_hash()) == 16


def test_stanzas_for_other_suites_sources_and_publishers_are_left_out() -> None:
    found = aptsources.deb822_entries(DEB822, "bookworm")
    assert len(found) == 1
    assert "URIs: http://mirror.test/debian" in found[0]
    assert "Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg" in found[0]
    assert aptsources.deb822_entries(DEB822, "trixie") == []


def test_lines_for_other_suites_sources_and_publishers_are_left_out() -> None:
    assert aptsources.one_line_entries(ONE_LINE, "bookworm") == [
        "deb [signed-by=/k.gpg arch=amd64] http://mirror.test/debian bookworm main contrib",
        "deb http://mirror.test/security bookworm-security main",
    ]


def test_a_given_sources_file_is_taken_whole(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    given = tmp_path / "mine.sources"
    given.write_text(DEB822)
    monkeypatch.setenv("RACK_APT_SOURCES", str(given))
    assert aptsources.for_suite("bookworm") == {"given.sources": DEB822}


def test_a_given_sources_file_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("RACK_APT_SOURCES", str(tmp_path / "absent"))
    with pytest.raises(RackError, match="absent cannot be read: No such file"):
        aptsources.for_suite("bookworm")
