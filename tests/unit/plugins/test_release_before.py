"""What a host keeps of the release before, and whether a release could run with what is there."""

from __future__ import annotations

import json
import mmap
import os
import re
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from ansible_collections.mqops.cluster.plugins.module_utils import release_before, release_trial
from ansible_collections.mqops.cluster.plugins.module_utils.loaded import Places
from ansible_collections.mqops.cluster.plugins.module_utils.release_before import Before
from mqbroker.config.declarations.variables import Instance
from mqbroker.config.inventory.inventory import host_variables
from mqbroker.config.inventory.tables import render_toml
from mqbroker.core.queue.kinds import RETROACTIVE, RING_OF_PREFIX, RING_PREFIX, QueueKind
from mqbroker.io.files.identity import RESTORE_MARKER
from mqbroker.journal.entry import ENTRY, ENTRY_MARK, frame_entry
from mqbroker.journal.format import FILE_MARK, READ_VERSIONS, decode_file_header, encode_file_header
from mqbroker.journal.message_records import encode_run_head
from mqbroker.journal.records import Checkpoint, RecordKind, encode_checkpoint, encode_number, encode_queue
from mqctl.remote import kept

OLD, NEW, NEWER = "0.1.0-aaaaaaaa", "0.2.0-bbbbbbbb", "0.3.0-cccccccc"
OPTIONS = '[node]\nname = "default"\n'
MQBROKER = Path(sys.executable).parent / "mqbroker"
SAMPLES = Path(__file__).parents[1] / "journal/samples"


class Host:
    """A host as a folder, with one instance of the old release."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.places = Places(*(str(root / name) for name in ("opt/current", "etc", "run", "data", "units")))
        for release in (OLD, NEW, NEWER):
            (root / "opt/releases" / release / "bin").mkdir(parents=True)
        (root / "units").mkdir()
        (root / "units/mqbroker@.service").write_text("[Unit]\n# old\n")
        (root / "etc/default").mkdir(parents=True)
        (root / "etc/default/broker.toml").write_text(OPTIONS)
        self.point_to(OLD)

    def point_to(self, release: str) -> None:
        link = self.root / "opt/current"
        link.unlink(missing_ok=True)
        link.symlink_to(f"releases/{release}")

    def activate(self, release: str) -> bool:
        """As the role does."""
        is_due: bool = release_before.is_due(release, self.places)
        if is_due:
            release_before.note(release, self.places)
        self.point_to(release)
        return is_due

    def faults(self, release: str, options: str = OPTIONS) -> list[str]:
        found: list[str] = release_trial.faults(release, {"default": options}, self.places)
        return found

    def program(self, release: str, text: str) -> None:
        place = self.root / "opt/releases" / release / "bin/mqbroker"
        place.write_text(text)
        place.chmod(0o755)


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


def test_what_was_before_is_what_was_there_when_the_link_moved(host: Host) -> None:
    assert host.activate(NEW)
    (host.root / "units/mqbroker@.service").write_text("[Unit]\n# new\n")
    (host.root / "etc/default/broker.toml").write_text("# new\n")
    # A run that goes on where it was cut off finds the link moved, and what it has written is not what was before.
    assert not host.activate(NEW)
    assert release_before.read(NEW, host.places) == Before(OLD, "[Unit]\n# old\n", {"default": OPTIONS})
    assert host.activate(NEWER)
    assert release_before.read(NEWER, host.places) == Before(NEW, "[Unit]\n# new\n", {"default": "# new\n"})
    assert release_before.read(NEW, host.places) is not None


def test_a_bare_host_has_nothing_before(host: Host) -> None:
    (host.root / "opt/current").unlink()
    assert not host.activate(NEW)
    assert release_before.read(NEW, host.places) is None


@pytest.mark.parametrize("target", ["releases/none", "/", "elsewhere/0.1.0-aaaaaaaa"])
def test_a_link_that_leads_to_no_release_is_not_what_was_before(host: Host, target: str) -> None:
    host.activate(NEW)
    (host.root / "opt/current").unlink()
    (host.root / "opt/current").symlink_to(target)
    assert not host.activate(NEW)
    assert release_before.read(NEW, host.places) == Before(OLD, "[Unit]\n# old\n", {"default": OPTIONS})


def test_what_was_before_a_release_goes_with_it(host: Host) -> None:
    host.activate(NEW)
    host.point_to(OLD)
    shutil.rmtree(host.root / "opt/releases" / NEW)
    host.activate(NEWER)
    assert release_before.read(NEW, host.places) is None
    assert release_before.read(NEWER, host.places) is not None


@pytest.mark.parametrize(
    "changes",
    [{"schema": 2}, {"release": ""}, {"release": "../x"}, {"release": 1}, {"unit": None}, {"options": ["a"]},
     {"options": {"a": None}}],
)  # fmt: skip
def test_what_is_not_whole_is_nothing(host: Host, changes: dict[str, object], monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither for the playbook nor for mqctl, which shows what comes back."""
    host.activate(NEW)
    place = Path(release_before.place_of(NEW, host.places))
    place.write_text(json.dumps({**json.loads(place.read_text()), **changes}))
    assert release_before.read(NEW, host.places) is None
    monkeypatch.setattr(kept, "KEPT", str(place.parent))
    assert kept.kept(NEW, [])["is_whole"] is False


def test_mqctl_shows_what_was_noted(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """With its ends of lines, and with what is no text; a file that has not changed since is no other one."""
    unit = host.root / "units/mqbroker@.service"
    unit.write_bytes(b"[Unit]\r\n# \xff\r\n")
    host.activate(NEW)
    for name, place in (("KEPT", release_before.folder_of(host.places)), ("UNIT", str(unit)), ("ETC", host.places.etc)):
        monkeypatch.setattr(kept, name, place)
    found = kept.kept(NEW, ["default", "added"])
    assert found == {
        "is_whole": True, "unit": ["[Unit]\r\n# \ufffd\r\n"] * 2,
        "options": {"default": [OPTIONS] * 2, "added": [None, None]},
    }  # fmt: skip
    Path(release_before.place_of(NEW, host.places)).write_text("{")
    assert kept.note_of(NEW) is None


@pytest.mark.slow
def test_a_release_says_itself_what_it_cannot_run_with(host: Host) -> None:
    host.program(NEW, f'#!/bin/sh\nexec {MQBROKER} "$@"\n')
    assert host.faults(NEW) == []
    (said,) = host.faults(NEW, OPTIONS + "[limits]\nlink-credt = 5\n")
    assert said.startswith(f"release {NEW} refuses the options of default: ")
    assert "link-credt" in said
    assert "etc/default/broker.toml" in said
    assert host.faults(OLD)[0].startswith(f"release {OLD} does not run here: ")


PLAIN = QueueKind("held", "held", "anycast")
HELD = replace(PLAIN, forwards_to="b", route=("b",), drains_as="drain.1").encoded()
# A broker that has no such operation, and a folder without one; whatever else is asked is answered well.
NO_DRAINS = '[ "$1" != admin ] || { echo "unknown operation" >&2; exit 1; }\n'
GONE = "the broker is not running"
DRAINS = [
    ({"state": "none"}, [], []),
    ({"state": "moved"}, [], ["and default leaves (moved): take that back"]),
    ({"state": "ends"}, ["orders"], ["and queue orders of default does: take that back and wait until it is over"]),
    ({"state": "none"}, ["orders"], ["and queue orders of default does: take that back"]),
    ({"state": "cordoned"}, [], ["does not know that default is cordoned, and would let clients in"]),
    ("unknown operation 'scale-down-show'", [], []),
    (GONE, [], ["by the journal of default, whose broker does not answer, held does: have it run"]),
    ([], [], ["by the journal of default, whose broker does not answer, held does"]),
]


@pytest.mark.parametrize(("shown", "queues", "said"), DRAINS)
def test_a_release_that_refuses_queues_that_drain_is_not_gone_back_to_while_one_does(
    host: Host, shown: object, queues: list[str], said: list[str]
) -> None:
    """The broker says so where it answers; else the last word of the journal. A release in use refuses nothing."""
    host.point_to(NEW)
    answers(host, shown, queues)
    assert host.faults(OLD) == []  # no broker has written anything there
    journal = host.root / "data/default/journal"
    journal.mkdir(parents=True)
    (journal / "journal-0000000001.mqj").write_bytes(segment(opened(q1=HELD)))
    found = host.faults(OLD)
    assert len(found) == len(said)
    assert all(part in one for one, part in zip(found, said, strict=True)), found
    host.point_to(OLD)
    assert host.faults(OLD) == []
    running = Path(host.places.loaded("default", "release"))
    running.parent.mkdir(parents=True)
    running.symlink_to(f"releases/{NEW}")  # the link has moved, and the broker was not restarted yet
    assert len(host.faults(OLD)) == len(said)


def answers(host: Host, shown: object, queues: list[str]) -> None:
    """The old release's client says this of the broker; it reads no journal for a trial."""
    answer = f'echo "{shown}" >&2; exit 1' if isinstance(shown, str) else f"echo '{json.dumps(shown)}'"
    drains = json.dumps({"drains": [{"queue": one} for one in queues]})
    host.program(
        OLD,
        f"""#!/bin/sh
case "$1 $4" in
"admin scale-down-show") {answer};;
"admin drain-show") echo '{drains}';;
journal*) exit 1;;
esac
""",
    )


def test_a_release_that_would_start_where_a_restore_was_cut_off_is_not_gone_back_to(host: Host) -> None:
    """What the journal says that is half restored is no second reason."""
    host.point_to(NEW)
    answers(host, GONE, [])
    host.program(NEW, f"#!/bin/sh\necho '{json.dumps({release_trial.KNOWS_RESTORES: True})}'\n")
    journal = host.root / "data/default/journal"
    journal.mkdir(parents=True)
    assert host.faults(OLD) == []
    (journal / "journal-0000000001.mqj").write_bytes(segment(opened(q1=HELD)))
    (host.root / "data/default" / RESTORE_MARKER).touch()
    (said,) = host.faults(OLD)
    assert "does not know that a restore of default was cut off" in said
    assert host.faults(NEW) == []  # its broker does not start, and says why


@pytest.mark.slow
def test_a_release_that_takes_what_came_of_other_nodes_for_its_own_is_not_gone_back_to(host: Host) -> None:
    host.program(NEW, f'#!/bin/sh\nexec {MQBROKER} "$@"\n')
    without = "sed 's/knows_moved_rings/knew/'"
    host.program(
        OLD, f'#!/bin/sh\n[ "$2" != --json ] || exec sh -c "{MQBROKER} $* | {without}"\nexec {MQBROKER} "$@"\n'
    )
    journal = host.root / "data/default/journal"
    shutil.copytree(SAMPLES / "format-1", journal)
    assert host.faults(OLD) == []
    last = max(journal.glob("journal-*.mqj"))
    own = QueueKind(f"{RING_PREFIX}news", "news", RETROACTIVE)
    ring = replace(own, name=f"{RING_OF_PREFIX}id-of-a.1.2.id-of-b.news")
    last.write_bytes(segment(encode_queue(1, own.encoded()), message_that_says(ring)))
    assert host.faults(OLD) == []
    last.write_bytes(segment(message_that_says(ring), encode_queue(2, ring.encoded())))
    (said,) = host.faults(OLD)
    assert f"and the journal of default has {ring.name}: it would start once, and then not again" in said
    assert host.faults(NEW) == []


ZEROS = 100
NAME = re.compile(rb'"name":"([^"]*)"')
RING = QueueKind(f"{RING_OF_PREFIX}id-of-a.1.2.id-of-b.news", "news", RETROACTIVE)


def message_that_says(kind: QueueKind) -> bytes:
    """A record of a message with the attributes of a queue in its body."""
    said = kind.encoded()
    return encode_run_head(7, 1, [1], len(said)) + said


def segment(*records: bytes) -> bytes:
    """A journal file with an entry for each of these payloads, and zeros."""
    text = header = encode_file_header(1, 1 << 20, bytes(16))
    decoded = decode_file_header(header)
    assert decoded is not None
    for position, record in enumerate(records, 1):
        before, behind = frame_entry([record], len(record), (position, 0), decoded.seed)
        text += before + record + behind
    return text + bytes(ZEROS)


DECLARED, MESSAGE = encode_queue(2, RING.encoded()), message_that_says(RING)
FILTERED = replace(RING, name="x", selector=f"a = '{RING.encoded().decode()}'")
SAID = {
    "a queue": ([DECLARED], True),
    "a checkpoint": ([encode_checkpoint(Checkpoint(1, 9, 0, {2: (RING.encoded(), False)}))], True),
    "behind others of one append": ([encode_queue(1, b"{}") + MESSAGE + DECLARED], True),
    "behind other appends": ([*(MESSAGE for _ in range(40)), DECLARED], True),
    "a message": ([MESSAGE], False),
    "a filter": ([encode_queue(2, FILTERED.encoded())], False),
    "nothing": ([], False),
}


@pytest.mark.parametrize("what", SAID)
def test_a_ring_is_found_where_a_journal_declares_it_and_not_in_messages(what: str, tmp_path: Path) -> None:
    records, is_there = SAID[what]
    (tmp_path / "journal-0000000001.mqj").write_bytes(segment(*records))
    assert release_trial.ring_in(str(tmp_path)) == (RING.name if is_there else "")


def opened(**queues: bytes) -> bytes:
    """A checkpoint with these queues, `q1` for number 1."""
    return encode_checkpoint(Checkpoint(1, 9, 0, {int(name[1:]): (said, False) for name, said in queues.items()}))


SAYS_SO = encode_run_head(7, 1, [1], len(HELD)) + HELD
LAST_WORDS = {
    "a checkpoint": ([segment(opened(q1=PLAIN.encoded(), q2=HELD))], True),
    "a queue": ([segment(opened(), SAYS_SO, encode_queue(1, HELD))], True),
    "one that ends": ([segment(opened(q1=replace(PLAIN, drain_ends=True).encoded()))], True),
    "one that is over": ([segment(opened(q1=HELD), encode_queue(1, PLAIN.encoded()))], False),
    "one of two": ([segment(opened(q1=HELD, q2=HELD), encode_queue(2, PLAIN.encoded()))], True),
    "one that is gone": ([segment(opened(q1=HELD), encode_number(RecordKind.QUEUE_DROP, 1))], False),
    "a file before": ([segment(opened(q1=HELD)), segment(opened(q1=PLAIN.encoded()))], False),
    "a file that was just made": ([segment(opened(q1=HELD)), segment()], True),
    "an empty file": ([segment(opened(q1=HELD)), b""], True),
    "a file without its beginning": ([segment(opened(q1=HELD)), segment(encode_queue(1, PLAIN.encoded()))], True),
    "a message": ([segment(opened(), SAYS_SO)], False),
    "damage": ([segment(opened(q1=HELD)).replace(ENTRY_MARK, b"none")], False),
    "what was there before": ([segment(opened())[:-ZEROS] + segment(opened(q1=HELD))[64:]], False),
}


@pytest.mark.parametrize("what", LAST_WORDS)
def test_of_each_queue_the_last_word_says_whether_it_drains(what: str, tmp_path: Path) -> None:
    files, does_drain = LAST_WORDS[what]
    for number, text in enumerate(files, 1):
        (tmp_path / f"journal-{number:010d}.mqj").write_bytes(text)
    assert release_trial.drains_in(str(tmp_path)) == (["held"] if does_drain else [])


@pytest.mark.slow
def test_a_file_that_was_cut_anywhere_is_read_to_there(tmp_path: Path) -> None:
    records = [message_that_says(RING), encode_queue(2, RING.encoded()), message_that_says(RING)]
    file = tmp_path / "journal-0000000001.mqj"
    begin = len(segment(records[0])) - ZEROS
    text = segment(*records)[:-ZEROS]
    file.write_bytes(text)
    for left in reversed(range(1, len(text))):
        os.truncate(file, left)
        is_there = release_trial.RING_OF.search(text[begin:left]) is not None
        assert release_trial.ring_in(str(tmp_path)) == (RING.name if is_there else ""), left


def test_what_lies_behind_the_last_entry_is_not_read(tmp_path: Path) -> None:
    whole = segment(MESSAGE)[:-ZEROS]
    former = ENTRY.pack(b"gone", len(DECLARED), 1, 0, 0) + bytes(4) + DECLARED + bytes(ZEROS)
    (tmp_path / "journal-0000000001.mqj").write_bytes(whole + former)
    assert release_trial.ring_in(str(tmp_path)) == ""


@pytest.mark.parametrize("version", READ_VERSIONS)
def test_files_that_a_broker_wrote_are_read(version: int) -> None:
    names = set()
    for path in (SAMPLES / f"format-{version}").rglob("journal-*.mqj"):
        with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as text:
            names |= {name for span in release_trial.declarations(text) for name in NAME.findall(text[slice(*span)])}
    assert names == {b"q1", b"q2", b"q3", b"q4", b"q5"}


def test_layouts_are_those_of_the_broker() -> None:
    assert release_trial.FILE_MARK == FILE_MARK
    assert release_trial.ENTRY_MARK == ENTRY_MARK
    assert release_trial.RESTORE_MARKER == RESTORE_MARKER
    assert release_trial.DECLARES_QUEUES == (RecordKind.QUEUE, RecordKind.CHECKPOINT)
    assert release_trial.QUEUE_DROP == RecordKind.QUEUE_DROP


@pytest.mark.slow
@pytest.mark.parametrize("version", READ_VERSIONS)
def test_a_release_that_does_not_say_which_formats_it_reads_reads_the_first(host: Host, version: int) -> None:
    host.program(NEW, f'#!/bin/sh\nexec {MQBROKER} "$@"\n')
    host.program(OLD, f'#!/bin/sh\n[ "$2" != --json ] || exit 2\n{NO_DRAINS}exec {MQBROKER} "$@"\n')
    shutil.copytree(SAMPLES / f"format-{version}", host.root / "data/default/journal")
    assert release_trial.formats_in(str(host.root / "data/default/journal")) == {version}
    assert host.faults(NEW) == []
    said = host.faults(OLD)
    assert said == ([] if version == 1 else [
        f"release {OLD} reads journals of format 1, and that of default has files of format 2, which a later one has "
        "written: there is no way back to it with this data"
    ])  # fmt: skip


def test_what_options_of_then_need_has_to_be_there(host: Host) -> None:
    key = host.root / "key.pem"
    options = f'{OPTIONS}[[listeners]]\ntls-key-file = "{key}"\n[[cluster-connections]]\nname = "c"\n'
    secret = host.root / "data/default/cluster-secret"
    gone = [host.root / "data/default", key, secret]
    said = [f"instance default needs {path}, which is gone" for path in gone]
    assert release_trial.missing({"default": options}, host.places) == said
    secret.parent.mkdir(parents=True)
    secret.touch()
    assert release_trial.missing({"default": options}, host.places) == said[1:2]
    key.touch()
    assert release_trial.missing({"default": options}, host.places) == []
    shutil.rmtree(host.root / "etc/default")  # somebody removed the instance
    assert release_trial.missing({"default": OPTIONS}, host.places) == [
        f"instance default needs {host.root}/etc/default, which is gone"
    ]


FORCE = '[[address-settings]]\nmatch = "#"\nconfig-delete-addresses = "FORCE"\n'
ORDERS = '[[addresses]]\nname = "orders"\n[[addresses.anycast]]\nname = "first"\n'
SINCE = '[[addresses.anycast]]\nname = "second"\n[[addresses]]\nname = "new"\n'


@pytest.mark.slow
@pytest.mark.parametrize(
    ("then", "now", "said"),
    [
        (FORCE + ORDERS, FORCE + ORDERS + SINCE, ["default: queue second", "default: address new"]),
        (FORCE + ORDERS + SINCE, FORCE + ORDERS, []),
        (ORDERS, FORCE + ORDERS + SINCE, []),
        (FORCE + ORDERS, ORDERS, ["default: whatever was ever declared and is not among its options of then"]),
        (FORCE + ORDERS, FORCE + ORDERS + "[strange]\na = 1\n", ["default: nobody can say what (the old file"]),
    ],
)
def test_what_a_start_with_options_of_then_deletes_is_named(host: Host, then: str, now: str, said: list[str]) -> None:
    head = OPTIONS + '[[listeners]]\nname = "clients"\nport = 5672\n'
    host.program(OLD, f'#!/bin/sh\nexec {MQBROKER} "$@"\n')
    (host.root / "etc/default/broker.toml").write_text(head + now)
    found = release_trial.deletions({"default": head + then}, host.places)
    assert [one[: len(start)] for one, start in zip(found, said, strict=True)] == said


def test_options_as_they_are_written_are_seen_to_delete() -> None:
    """The pattern against what the role writes, which comes from the same rows."""
    variables = host_variables({
        "mq_cluster_name": "orders", "mq_cluster_secret": "0123456789abcdef", "mq_tls": "managed",
        "mq_address_settings": [{"match": "#", "config_delete_queues": "FORCE"}],
        "mq_connectors": [{"name": "own", "port": 5673}],
        "mq_cluster_connections": [{"name": "all", "connector_ref": "own", "discovery_group_ref": "found"}],
        "mq_discovery_groups": [{"name": "found", "group_address": "239.1.2.3", "group_port": 9876}],
    })  # fmt: skip
    text = render_toml(variables, Instance(name="default"), "mq1", None)
    assert release_trial.DELETION.search(text)
    assert release_trial.CLUSTERED.search(text)
    assert "/etc/mq/default/tls/server.key" in release_trial.NAMED_FILE.findall(text)
