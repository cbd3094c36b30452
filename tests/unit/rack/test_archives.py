"""What a host keeps of archives is run in the place of what would be compiled anew, and of nothing else."""

from __future__ import annotations

import subprocess
import sys
import zipfile
import zipimport
from collections.abc import Callable
from pathlib import Path
from types import CodeType

import pytest
from mqrack import archives, image

Look = Callable[[str, str], CodeType]


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """Paths of what was compiled while archives are kept in the folder `kept`."""
    found: list[str] = []
    own = zipimport._compile_source  # type: ignore[attr-defined]

    def compile_source(path: str, source: bytes) -> object:
        found.append(path)
        return own(path, source)

    monkeypatch.setattr(zipimport, "_compile_source", compile_source)
    archives.keep(str(tmp_path / "kept"))
    return found


@pytest.fixture
def code_in(tmp_path: Path) -> Look:
    """What Python makes of a module's text in an archive of that name."""

    def look(archive: str, text: str) -> CodeType:
        with zipfile.ZipFile(tmp_path / archive, "w") as file:
            file.writestr("one.py", text)
        code = zipimport.zipimporter(str(tmp_path / archive)).get_code("one")
        assert isinstance(code, CodeType)
        return code

    return look


def value_of(code: CodeType) -> object:
    """What `value` is where the module has run."""
    names: dict[str, object] = {}
    exec(code, names)
    return names["value"]


def test_what_lies_in_another_archive_is_not_compiled_again(tmp_path: Path, compiled: list[str], code_in: Look) -> None:
    text = "def where(): return where.__code__.co_filename\nvalue = where()"
    for name in ("a.zip", "b.zip"):
        assert value_of(code_in(name, text)) == f"{tmp_path / name}/one.py"
    assert compiled == [f"{tmp_path / 'a.zip'}/one.py"]


def test_another_text_is_compiled_though_it_has_the_same_name_and_length(compiled: list[str], code_in: Look) -> None:
    assert [value_of(code_in(f"{value}.zip", f"value = {value}")) for value in (1, 2, 1)] == [1, 2, 1]
    assert len(compiled) == 2


@pytest.mark.parametrize("share", [0.0, 0.5, 0.99])
def test_what_was_not_written_to_its_end_is_compiled_again(
    tmp_path: Path, compiled: list[str], code_in: Look, share: float
) -> None:
    text = "value = [str(each) * 2 for each in range(3)]"
    code_in("a.zip", text)
    (kept,) = (tmp_path / "kept").iterdir()
    kept.write_bytes(kept.read_bytes()[: int(kept.stat().st_size * share)])
    assert [value_of(code_in(name, text)) for name in ("b.zip", "c.zip")] == [["00", "11", "22"]] * 2
    assert len(compiled) == 2


def test_who_cannot_write_there_compiles(tmp_path: Path, compiled: list[str], code_in: Look) -> None:
    (tmp_path / "kept").write_text("in the place of the folder")
    assert [value_of(code_in(f"{number}.zip", "value = 7")) for number in range(2)] == [7, 7]
    assert len(compiled) == 2


def test_python_begins_with_it_where_it_is_called_as_on_hosts(tmp_path: Path) -> None:
    (name,) = (Path(one).name for one, text in image.FILES.items() if text == Path(archives.__file__).read_text())
    (tmp_path / name).write_text(Path(archives.__file__).read_text())
    code = "import zipimport; print(zipimport._compile_source.__module__)"
    done = subprocess.run(
        [sys.executable, "-c", code], env={"PYTHONPATH": str(tmp_path)}, capture_output=True, text=True, check=True
    )
    assert done.stdout == "sitecustomize\n"
