"""`mqbroker journal` on real directories: what it prints, what it refuses, and that it changes nothing."""

from __future__ import annotations

import io
import json
import os
import random
import resource
import signal
import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from mqbroker.app import exits
from mqbroker.app.commands import journal as command
from mqbroker.app.main import main
from mqbroker.base.errors import StorageFault
from mqbroker.config.declarations.options import defaults
from mqbroker.io.disk.disk import Disk
from mqbroker.io.disk.journal_directory import JournalDirectory
from mqbroker.io.disk.large_directory import LargeDirectory
from mqbroker.io.files import identity
from mqbroker.io.files.data_lock import DataLock
from mqbroker.journal.format import FILE_HEADER_BYTES
from mqbroker.journal.plan import Journal
from mqbroker.journal.records import encode_attributes
from mqbroker.wire.large import large_run
from mqbroker.wire.large_file import Large
from mqbroker.wire.run import Run, single
from mqbroker.wire.sections import build_message

FILE = "journal-0000000001.mqj"


def made(
    directory: Path, count: int = 3, *, is_clean: bool = True, large: Run | None = None, name: str = "orders"
) -> Path:
    """A data directory with an identity and, in its journal, one queue with messages."""
    owner, _ = identity.init(directory, identity.machine_id())
    options = replace(defaults().journal, journal_file_size_bytes=1 << 20)
    place = JournalDirectory(directory / "journal", owner.node_id_bytes, options)
    recovered = place.load()
    journal = Journal(options, recovered)
    faults: list[StorageFault] = []
    disk = Disk(place, recovered, lambda done: None, faults.append)
    journal.declare(1, encode_attributes({"name": name, "address": "orders", "routing": "anycast", "ring_size": 9}))
    for number in range(1, count + 1):
        run = large or single(build_message(f"m{number}", durable=True))
        journal.store(number, 1, (1,), run.buffer, 1_700_000_000_000)
        append = journal.take(sync=True)
        assert append is not None
        disk.submit(append)
    journal.count(1, 1, 1, 4, 1_800_000_000_000)
    if is_clean:
        journal.stop()
    append = journal.take(sync=True)
    assert append is not None
    disk.submit(append)
    assert disk.close()
    assert faults == []
    return directory


def contents(directory: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in sorted((directory / "journal").iterdir())}


def test_info_and_check_change_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = made(tmp_path / "d")
    before = contents(data)
    assert main(["journal", "info", "--json", "--data-directory", str(data)]) == exits.DONE
    row = json.loads(capsys.readouterr().out)
    assert row["queues"] == [{"id": 1, "name": "orders", "address": "orders", "messages": 3}]
    assert (row["messages"], row["files"], row["was_clean"], row["next_id"]) == (3, 1, True, 4)
    assert main(["journal", "info", "--data-directory", str(data)]) == exits.DONE
    assert "queue 1: orders at orders: 3 messages" in capsys.readouterr().out
    assert main(["journal", "check", "--data-directory", str(data)]) == exits.DONE
    assert capsys.readouterr().out == "good: 1 files, 1 queues, 3 messages\n"
    assert contents(data) == before


def test_a_tail_that_a_start_would_cut_off_is_a_finding_and_stays(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = made(tmp_path / "d")
    file = data / "journal" / FILE
    content = bytearray(file.read_bytes())
    end = len(bytes(content).rstrip(b"\0"))
    content[end - 32 : end] = bytes(32)
    file.write_bytes(content)
    before = contents(data)
    assert main(["journal", "check", "--json", "--data-directory", str(data)]) == exits.DONE
    (finding,) = json.loads(capsys.readouterr().out)["findings"]
    assert (finding["event"], finding["file"]) == ("journal-tail-cut", FILE)
    assert contents(data) == before


def test_damage_is_named_by_file_and_offset(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = made(tmp_path / "d")
    file = data / "journal" / FILE
    content = bytearray(file.read_bytes())
    content[FILE_HEADER_BYTES + 40] ^= 1
    file.write_bytes(content)
    for action in ("check", "info", "export"):
        assert main(["journal", action, "--data-directory", str(data)]) == exits.FAILED
        said = capsys.readouterr()
        assert f"{file} at byte {FILE_HEADER_BYTES}: " in said.err
        assert said.out == ""
    assert file.read_bytes() == content


def test_who_wants_json_is_told_of_damage_in_json_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = made(tmp_path / "d")
    file = data / "journal" / FILE
    content = bytearray(file.read_bytes())
    content[FILE_HEADER_BYTES + 40] ^= 1
    file.write_bytes(content)
    assert main(["journal", "check", "--json", "--data-directory", str(data)]) == exits.FAILED
    said = capsys.readouterr()
    row = json.loads(said.out)
    assert (row["good"], row["file"], row["offset"]) == (False, str(file), FILE_HEADER_BYTES)
    assert f"{row['why']}; {row['remedy']}" in said.err
    lock = DataLock(data)
    assert main(["journal", "check", "--json", "--data-directory", str(data)]) == exits.FAILED
    assert capsys.readouterr().out == "", "a broker that runs is no damage"
    lock.release()


def odd(kind: str, place: Path) -> None:
    """Something that is no regular file."""
    if kind == "a FIFO":
        os.mkfifo(place)
    elif kind == "a directory":
        place.mkdir()
    elif kind == "a symbolic link":
        place.symlink_to("/dev/zero")
    else:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
            sock.bind(str(place))


KINDS = ("a FIFO", "a directory", "a symbolic link", "a socket")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("place", ["journal/journal-0000000002.mqj", "large-messages/7.msg"])
def test_what_is_no_regular_file_is_named_and_nothing_waits_for_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: str, place: str
) -> None:
    data = made(tmp_path / "d")
    (data / "large-messages").mkdir(exist_ok=True)
    odd(kind, data / place)
    assert main(["journal", "check", "--data-directory", str(data)]) == exits.FAILED
    said = capsys.readouterr()
    assert f"{data / place}: Is {kind} and no regular file; move it away" in said.err
    assert said.out == ""
    owner = identity.check(data, identity.machine_id())
    starting = JournalDirectory(data / "journal", owner.node_id_bytes, defaults().journal).load
    if place.startswith("large"):
        starting()
        starting = LargeDirectory(data / "large-messages").sizes  # type: ignore[assignment]
    with pytest.raises((StorageFault, OSError), match=f"Is {kind}"):
        starting()


def test_what_is_not_called_as_a_file_of_ours_does_not_count(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = made(tmp_path / "d")
    journal, large = data / "journal", data / "large-messages"
    large.mkdir(exist_ok=True)
    content = (journal / FILE).read_bytes()
    # Another way to write its number: it would be read twice.
    for name in (
        "journal-00000000001.mqj",
        "journal-\u0660000000001.mqj",
        "journal-1.mqj",
        "journal-0000000002.mqj.bak",
    ):
        (journal / name).write_bytes(content)
    os.mkfifo(journal / "journal-x.mqj")
    (journal / f"{FILE}.damaged-1").write_bytes(b"set aside by a start")
    for name in ("007.msg", "\u0667.msg"):
        (large / name).write_bytes(b"")
    assert main(["journal", "check", "--json", "--data-directory", str(data)]) == exits.DONE
    row = json.loads(capsys.readouterr().out)
    assert sorted(finding["file"] for finding in row["findings"]) == sorted(
        [
            "journal/journal-00000000001.mqj", "journal/journal-\u0660000000001.mqj", "journal/journal-1.mqj",
            "journal/journal-0000000002.mqj.bak", "journal/journal-x.mqj", "large-messages/007.msg",
            "large-messages/\u0667.msg",
        ]
    )  # fmt: skip
    assert main(["journal", "check", "--data-directory", str(data)]) == exits.DONE
    assert capsys.readouterr().out.splitlines()[-1] == "good: 1 files, 1 queues, 3 messages"


def test_names_drive_no_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = made(tmp_path / "d", name="a\x1b[2Jb\u202ec\nqueue 9: free at free: 0 messages\x9b1m\x7f")
    assert main(["journal", "info", "--data-directory", str(data)]) == exits.DONE
    (line,) = (line for line in capsys.readouterr().out.splitlines() if line.startswith("queue "))
    shown = "a\\x1b[2Jb\\u202ec\\nqueue 9: free at free: 0 messages\\x9b1m\\x7f"
    assert line == f"queue 1: {shown} at orders: 3 messages"
    assert main(["journal", "info", "--json", "--data-directory", str(data)]) == exits.DONE
    assert capsys.readouterr().out.rstrip("\n").isprintable()


def test_a_directory_in_which_no_broker_has_run_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    identity.init(tmp_path / "d", identity.machine_id())
    for action in ("info", "check", "export"):
        assert main(["journal", action, "--data-directory", str(tmp_path / "d")]) == exits.FAILED
        assert "has no journal: no broker has run in it yet" in capsys.readouterr().err


@pytest.mark.parametrize("is_clean", [True, False])
def test_export_and_import(
    is_clean: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = made(tmp_path / "old", 50, is_clean=is_clean), tmp_path / "new"
    assert main(["journal", "export", "--data-directory", str(old)]) == exits.DONE
    text = capsys.readouterr().out
    rows = [json.loads(line) for line in text.splitlines()]
    assert [row["due_ms"] for row in rows if "due_ms" in row] == [{"1": 1_800_000_000_000}]
    identity.init(new, identity.machine_id())
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(text.encode())))
    assert main(["journal", "import", "--data-directory", str(new)]) == exits.DONE
    assert capsys.readouterr().out == "imported: 1 queues, 50 messages\n"
    assert sorted(file.name for file in new.iterdir()) == ["identity.json", "journal", "lock"]
    assert main(["journal", "export", "--data-directory", str(new)]) == exits.DONE
    assert capsys.readouterr().out.splitlines()[1:] == text.splitlines()[1:]
    assert {(file.stat().st_mode & 0o777) for file in (new / "journal").iterdir()} == {0o600}


def test_a_file_is_private_and_overwrites_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data, file = made(tmp_path / "d"), tmp_path / "export.jsonl"
    words = ["journal", "export", str(file), "--data-directory", str(data)]
    assert main(words) == exits.DONE
    assert file.stat().st_mode & 0o777 == 0o600
    assert main(words) == exits.FAILED
    assert "name a new file" in capsys.readouterr().err
    new = tmp_path / "n"
    identity.init(new, identity.machine_id())
    assert main(["journal", "import", str(file), "--json", "--data-directory", str(new)]) == exits.DONE
    assert json.loads(capsys.readouterr().out) == {"schema": 1, "queues": 1, "messages": 3}


def test_an_export_that_fails_leaves_no_file_and_may_be_repeated(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data, file = made(tmp_path / "d", 1), tmp_path / "export.jsonl"
    words = ["journal", "export", str(file), "--data-directory", str(data)]
    bound, _ = resource.getrlimit(resource.RLIMIT_FSIZE)
    was = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (100, resource.RLIM_INFINITY))
        assert main(words) == exits.FAILED
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (bound, resource.RLIM_INFINITY))
        signal.signal(signal.SIGXFSZ, was)
    assert "cannot be written (File too large)" in capsys.readouterr().err
    assert not file.exists()
    assert main(words) == exits.DONE


@pytest.mark.slow
def test_an_export_is_utf8_whatever_the_locale_says(tmp_path: Path) -> None:
    data = made(tmp_path / "d", name="ünïcode")
    environment = {**os.environ, "PYTHONIOENCODING": "latin-1", "PYTHONPATH": os.pathsep.join(sys.path)}
    for words in (["export"], ["info", "--json"]):
        done = subprocess.run(
            [sys.executable, "-m", "mqbroker.app.main", "journal", *words, "--data-directory", str(data)],
            env=environment, capture_output=True, timeout=60, check=True,
        )  # fmt: skip
        rows = [json.loads(line) for line in done.stdout.decode().splitlines()]
        assert "ünïcode" in str(rows)


@pytest.mark.parametrize(
    ("text", "said"),
    [(b"{", "line 1: is not JSON"), (b"", "the export is cut off"), (b'{"type": "end"}\n', "begins with one row")],
)
def test_a_faulty_import_leaves_nothing(
    text: bytes, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "in").write_bytes(text)
    data = tmp_path / "d"
    identity.init(data, identity.machine_id())
    assert main(["journal", "import", str(tmp_path / "in"), "--data-directory", str(data)]) == exits.FAILED
    assert said in capsys.readouterr().err
    assert sorted(file.name for file in data.iterdir()) == ["identity.json", "lock"]


@pytest.mark.parametrize("more", [b"", b"\n", b"x" * 5000])
def test_a_line_that_no_export_writes_is_read_no_further(
    more: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may come from anywhere, without an end."""
    longest = b'{"type": "journal", "schema": "mqbroker.journal/1", "next_id": 7}'
    monkeypatch.setattr(command, "LINE_BYTES_MAX", len(longest) + 1)
    data, source = tmp_path / "d", io.BytesIO(longest + b"\n" + longest + b" " + more)
    identity.init(data, identity.machine_id())
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=source))
    assert main(["journal", "import", "--data-directory", str(data)]) == exits.FAILED
    said = capsys.readouterr().err
    assert ("line 2: is longer than 66 bytes" in said) == bool(more), said
    assert source.tell() <= 2 * len(longest) + 3
    assert sorted(file.name for file in data.iterdir()) == ["identity.json", "lock"]


def test_what_an_import_would_not_take_is_not_exported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    data, file = made(tmp_path / "d"), tmp_path / "export.jsonl"
    words = ["journal", "export", str(file), "--data-directory", str(data)]
    assert main(words) == exits.DONE
    lines = file.read_bytes().splitlines(keepends=True)
    file.unlink()
    longest = max(map(len, lines))
    monkeypatch.setattr(command, "LINE_BYTES_MAX", longest - 1)
    assert main(words) == exits.FAILED
    assert f"is longer than {longest - 1} bytes, which no import takes" in capsys.readouterr().err
    assert not file.exists()
    monkeypatch.setattr(command, "LINE_BYTES_MAX", longest)
    assert main(words) == exits.DONE


def test_what_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = made(tmp_path / "d")
    assert main(["journal", "import", "--data-directory", str(data)]) == exits.FAILED
    assert "has a journal already" in capsys.readouterr().err
    (tmp_path / "empty").mkdir()
    assert main(["journal", "info", "--data-directory", str(tmp_path / "empty")]) == exits.FAILED
    assert "has no identity" in capsys.readouterr().err
    lock = DataLock(data)
    try:
        for action in ("info", "check", "export", "import"):
            assert main(["journal", action, "--data-directory", str(data)]) == exits.FAILED
            assert "another process" in capsys.readouterr().err
    finally:
        lock.release()


def test_what_root_imports_belongs_to_the_owner_of_the_directory(tmp_path: Path) -> None:
    old, new = made(tmp_path / "old"), tmp_path / "new"
    identity.init(new, identity.machine_id())
    owner = (65534, 65534) if os.geteuid() == 0 else (os.geteuid(), os.getegid())
    os.chown(new, *owner)
    assert main(["journal", "export", str(tmp_path / "x"), "--data-directory", str(old)]) == exits.DONE
    assert main(["journal", "import", str(tmp_path / "x"), "--data-directory", str(new)]) == exits.DONE
    made_now = [new / "journal", *(new / "journal").iterdir()]
    assert {(one.stat().st_uid, one.stat().st_gid) for one in made_now} == {owner}


def test_an_import_that_was_killed_is_begun_anew(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old, new = made(tmp_path / "old"), tmp_path / "new"
    identity.init(new, identity.machine_id())
    (new / command.IMPORTING_NAME).mkdir()
    (new / command.IMPORTING_NAME / FILE).write_bytes(b"half")
    assert main(["journal", "export", str(tmp_path / "x"), "--data-directory", str(old)]) == exits.DONE
    assert main(["journal", "import", str(tmp_path / "x"), "--data-directory", str(new)]) == exits.DONE
    assert capsys.readouterr().out == "imported: 1 queues, 3 messages\n"


def test_what_a_killed_import_left_goes_also_where_a_broker_has_run_since(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = made(tmp_path / "d")
    for name in (command.IMPORTING_NAME, command.IMPORTING_LARGE_NAME):
        (data / name).mkdir()
        (data / name / FILE).write_bytes(b"half")
    before = contents(data)
    assert main(["journal", "import", "--data-directory", str(data)]) == exits.FAILED
    assert "has a journal already" in capsys.readouterr().err
    assert sorted(file.name for file in data.iterdir()) == ["identity.json", "journal", "lock"]
    assert contents(data) == before


LARGE = large_run(build_message(b"", durable=True)[:-5], Large(7, 1_200_000))
BODY = random.Random(7).randbytes(1_200_000)


def test_a_large_message_is_checked_with_its_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = made(tmp_path / "d", 1, large=LARGE)
    for action in ("check", "export"):
        assert main(["journal", action, "--data-directory", str(data)]) == exits.FAILED
        said = capsys.readouterr()
        assert said.out == ""
        assert "large-messages/7.msg" in said.err
        assert "is not there" in said.err
    (data / "large-messages").mkdir()
    (data / "large-messages" / "7.msg").write_bytes(BODY)
    assert main(["journal", "check", "--data-directory", str(data)]) == exits.DONE


def test_large_messages_are_exported_with_their_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Two messages name the same file, as a dead letter and its copy do: it goes over once."""
    old, new, text = made(tmp_path / "old", 2, large=LARGE), tmp_path / "new", tmp_path / "x"
    (old / "large-messages").mkdir()
    (old / "large-messages" / "7.msg").write_bytes(BODY)
    assert main(["journal", "export", str(text), "--data-directory", str(old)]) == exits.DONE
    assert [json.loads(line)["type"] for line in text.read_text().splitlines()].count("file") == 3
    identity.init(new, identity.machine_id())
    for left in (new / command.IMPORTING_LARGE_NAME, new / "large-messages"):  # of imports that were killed
        left.mkdir()
        (left / "9.msg").write_bytes(b"half")
    assert main(["journal", "import", str(text), "--data-directory", str(new)]) == exits.DONE
    assert capsys.readouterr().out == "imported: 1 queues, 2 messages\n"
    assert sorted(file.name for file in new.iterdir()) == ["identity.json", "journal", "large-messages", "lock"]
    (file,) = (new / "large-messages").iterdir()
    assert (file.name, file.read_bytes(), file.stat().st_mode & 0o777) == ("7.msg", BODY, 0o600)
    assert (new / "large-messages").stat().st_mode & 0o777 == 0o700
    assert main(["journal", "check", "--data-directory", str(new)]) == exits.DONE


def test_an_import_that_lacks_a_piece_leaves_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old, new, text = made(tmp_path / "old", 1, large=LARGE), tmp_path / "new", tmp_path / "x"
    (old / "large-messages").mkdir()
    (old / "large-messages" / "7.msg").write_bytes(BODY)
    assert main(["journal", "export", str(text), "--data-directory", str(old)]) == exits.DONE
    lines = text.read_text().splitlines(keepends=True)
    place = next(number for number, line in enumerate(lines) if json.loads(line)["type"] == "messages")
    text.write_text("".join(lines[: place - 1] + lines[place:]))
    identity.init(new, identity.machine_id())
    assert main(["journal", "import", str(text), "--data-directory", str(new)]) == exits.FAILED
    assert "needs 1200000 bytes of file 7, and 1048576 came before it" in capsys.readouterr().err
    assert sorted(file.name for file in new.iterdir()) == ["identity.json", "lock"]
