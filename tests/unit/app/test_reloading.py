"""What a reload does not take: files of which a part is missing. Invariant: nothing is lost by one without a word."""

from __future__ import annotations

import hashlib
import io
import json
import os
from pathlib import Path

import pytest
from mqbroker.app import source
from mqbroker.app.main import main
from mqbroker.app.reloading import Reloading
from mqbroker.config.declarations.options import defaults
from mqbroker.config.file.completeness import BEGUN_SIZE, END, PROMISE, cut_fault_of
from mqbroker.config.file.load import parse
from mqbroker.config.users import make_verifier
from mqbroker.io.files import cluster_secret, users_file
from mqbroker.io.loop.log import Log, LogShape
from mqbroker.io.server import Reloaded

from tests.support.certificates import Authority

BODY = """
[node]
name = "mq1"
data-directory = "{directory}"

[limits]
queues-max = 7

[[listeners]]
name = "clients"
local-bind-address = "127.0.0.1"
port = 5672

[[listeners]]
name = "second"
port = 5673

[[address-settings]]
match = "#"
config-delete-queues = "FORCE"
max-delivery-attempts = 10
# what nobody may lose
[[security-settings]]
match = "#"
send = ["client"]
consume = ["client"]

[[security-settings]]
match = "payments.#"
send = ["shop"]
consume = ["ledger"]

[[addresses]]
name = "orders"
anycast = [{{name = "orders"}}]

"""


class Place:
    """A process that runs with a file, as far as reloads see it."""

    def __init__(self, directory: Path, *, is_promised: bool) -> None:
        self.file = directory / "broker.toml"
        body = BODY.format(directory=directory)
        self.text = f"{PROMISE}\n{body}{END}\n" if is_promised else body
        self.users = directory / "users.json"
        self.log = io.StringIO()
        self.file.write_text(self.text)
        self.options = source.understood(self.file, self.text)
        self.record = directory / "loaded"
        self.record.mkdir()
        self.reloading = Reloading(self.file, self.text, self.options, Log(self.log, LogShape.PLAIN), self.record)
        self.reloading.begin()

    def reload(self, text: str, *, is_whole: bool = False) -> Reloaded:
        self.file.write_text(text)
        found = self.reloading.read(is_whole)
        self.reloading.keep({})
        return found

    @property
    def in_force(self) -> tuple[str, str, dict[str, str]]:
        """The record: options that it began with, those taken last, and digests of other files."""
        files = json.loads((self.record / "files.json").read_text())
        assert files["schema"] == 1
        return (self.record / "started.toml").read_text(), (self.record / "broker.toml").read_text(), files["files"]


@pytest.fixture(params=[True, False], ids=["by the role", "by hand"])
def place(tmp_path: Path, request: pytest.FixtureRequest) -> Place:
    return Place(tmp_path, is_promised=request.param)


@pytest.mark.slow
@pytest.mark.parametrize("is_whole", [True, False])
def test_a_file_cut_off_anywhere_is_refused_or_means_the_same(place: Place, is_whole: bool) -> None:
    for cut in range(len(place.text)):
        found = place.reload(place.text[:cut], is_whole=is_whole)
        if found.options is None:
            assert found.faults, cut
            assert "reload-refused" in place.log.getvalue()
        else:
            assert found.options == place.options, cut
    assert place.reload(place.text).options == place.options


@pytest.mark.slow
def test_what_was_changed_at_its_beginning_and_cut_off_behind_is_refused(tmp_path: Path) -> None:
    """Nobody has written its end so far, and what is in force is longer."""
    place = Place(tmp_path, is_promised=False)
    text = place.text.replace("max-delivery-attempts = 10", "max-delivery-attempts = 20")
    last = text.index("[[addresses]]") + len('[[addresses]]\nname = "orders"')
    for cut in range(last):
        assert place.reload(text[:cut]).options is None, cut
    assert "lacks the last table of what is in force, addresses 'orders'" in place.log.getvalue()
    assert place.reload(text).options is not None
    # A single table has no name.
    place.reload(f"{text}\n[metrics]\nconnections-max = 9\n")
    assert place.reload(text).faults[0].startswith(f"{place.file}: file: is the beginning of what is in force")
    changed = text.replace("queues-max = 7", "queues-max = 8")
    assert "lacks the last table of what is in force, metrics ''" in place.reload(changed).faults[0]


@pytest.mark.slow
def test_a_file_that_says_in_its_middle_that_it_ends_does_not(tmp_path: Path) -> None:
    place = Place(tmp_path, is_promised=True)
    text = place.text.replace("[[addresses]]", f"{END}\n[[addresses]]")
    assert place.reload(text).options is not None
    for cut in range(text.index(END) + len(END) + 2, len(text) - 1):
        assert place.reload(text[:cut]).options is None or text[:cut].rstrip().endswith(END), cut


def test_of_one_that_says_how_it_ends_a_start_takes_no_part_either(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = Place(tmp_path, is_promised=True)
    lines = place.text.splitlines(keepends=True)
    # Other content than what is in force: nothing but the last line tells.
    text = place.text.replace("5672", "5674")
    assert place.reload(text).options is not None
    for count in range(1, len(lines)):
        place.file.write_text("".join(lines[:count]))
        assert main(["config", "check", str(place.file)]) == 1, count
        assert "the file is cut off" in capsys.readouterr().err


@pytest.mark.parametrize("head", ["", "# Made by somebody\n\n"])
def test_a_start_takes_no_file_that_was_about_to_say_how_it_ends(head: str) -> None:
    """All defaults may open to everybody what the rest of it closes."""
    begin = len(head) + BEGUN_SIZE
    text = f"{head}{PROMISE}\n{BODY}{END}\n"
    for cut in range(begin + 1, len(text) - 1):
        found = parse(text[:cut])
        assert isinstance(found, list), cut
        assert "the file is cut off" in found[0].why, cut
    assert parse(text[:begin]) == defaults(), "only a file that says nothing by now is one that says nothing"


def test_a_reload_takes_no_beginning_of_what_sets_options_that_may_be_taken_away() -> None:
    text = f"{PROMISE}\n[limits]\nqueues-max = 7\n{END}\n"
    for cut in range(len(text) - 1):
        taken = not isinstance(parse(text[:cut]), list) and cut_fault_of(text[:cut], text) is None
        assert not taken, cut


@pytest.mark.parametrize(
    ("old", "new", "word"),
    [
        ('"mq1"', '"mq2"', "node.name: is 'mq2' and this broker runs with 'mq1'"),
        ('data-directory = "', 'data-directory = "/elsewhere', "node.data-directory: is '/elsewhere"),
        ('"second"', '"third"', "listeners.second: is in use and missing"),
        (BODY[BODY.index("[[security") : BODY.index("[[addresses")], "", "security-settings: are all missing"),
    ],
)
def test_what_another_nodes_file_would_say_is_refused(place: Place, old: str, new: str, word: str) -> None:
    found = place.reload(place.text.replace(old, new))
    assert found.options is None
    assert word in " ".join(found.faults)
    assert "restart the broker if that is meant" in place.log.getvalue()
    assert place.reload(place.text).options == place.options


def test_what_is_taken_away_on_purpose_goes(place: Place) -> None:
    """From the middle, or from the end with a word that this is the end."""
    text = place.text.replace(BODY[BODY.index('[[security-settings]]\nmatch = "pay') : BODY.index("[[addresses")], "")
    found = place.reload(text)
    assert found.options is not None
    assert len(found.options.security_settings) == 1
    shorter = text[: text.index("[[addresses")]
    assert place.reload(shorter).options is None
    found = place.reload(f"{shorter}{END}\n")
    assert found.options is not None
    assert found.options.addresses == ()
    # What was taken last is what counts from now on.
    assert place.reload(f"{shorter}# as it is\n{END}\n").options == found.options


@pytest.mark.slow
def test_users_stay_where_their_file_is_gone_or_not_whole(place: Place) -> None:
    users = {"bob": make_verifier("a long password", b"0123456789abcdef", ("client",))}
    users_file.write(place.users, users)
    assert place.reload(place.text).users == users
    whole = place.users.read_bytes()
    for cut in range(len(whole) - 1):  # without its last line end it is the same
        place.users.write_bytes(whole[:cut])
        assert place.reload(place.text).users is None, cut
    place.users.unlink()
    found = place.reload(place.text)
    assert found.users is None
    assert "is gone, and nobody could log in" in " ".join(found.faults)
    for make in (os.mkfifo, Path.mkdir):
        make(place.users)
        assert place.reload(place.text).users is None
        place.users.rename(place.users.with_suffix(f".{make.__name__}"))
    users_file.write(place.users, {})
    assert place.reload(place.text).users == {}, "whoever removes the last user means it"


BOB = {"bob": make_verifier("a long password", b"0123456789abcdef", ("client",))}


def digest(path: Path) -> dict[str, str]:
    return {str(path): hashlib.sha256(path.read_bytes()).hexdigest()}


def test_what_is_in_force_is_on_record_and_never_what_was_refused(place: Place) -> None:
    assert place.in_force == (place.text, place.text, {})
    users_file.write(place.users, BOB)
    taken = place.text.replace("max-delivery-attempts = 10", "max-delivery-attempts = 20")
    for refused in (taken.replace("5672", '"no port"'), place.text.replace('"mq1"', '"mq2"')):
        assert place.reload(refused, is_whole=True).faults
        assert place.in_force == (place.text, place.text, {})
    # By a signal the users are taken alone.
    place.reload(place.text.replace('"mq1"', '"mq2"'))
    assert place.in_force == (place.text, place.text, digest(place.users))
    place.reload(taken, is_whole=True)
    assert place.in_force == (place.text, taken, digest(place.users))
    whole = digest(place.users)
    place.users.write_text("{")
    assert place.reload(place.text, is_whole=True).faults
    assert place.in_force == (place.text, taken, whole)
    # And of a signal the options, where nobody can read the users.
    place.reload(place.text)
    assert place.in_force == (place.text, place.text, whole)


def test_the_record_has_the_files_of_listeners_and_the_secret(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "authority")
    secret = tmp_path / "cluster-secret"
    cluster_secret.write(secret, "a secret of the test")
    names = ("tls-certificate-file", "tls-key-file", "tls-client-ca-file", "tls-client-auth")
    rows = [f'{name} = "{authority.listener("optional")[name]}"' for name in names]
    body = BODY.format(directory=tmp_path).replace("port = 5672\n", "\n".join(["port = 5672", *rows, ""]))
    group = 'name = "lan"\ngroup-address = "231.7.7.7"\ngroup-port = 9876\n'
    text = f"{body}[[discovery-groups]]\n{group}"
    file, record = tmp_path / "broker.toml", tmp_path / "loaded"
    file.write_text(text)
    record.mkdir()
    reloading = Reloading(file, text, source.understood(file, text), Log(io.StringIO(), LogShape.PLAIN), record)
    reloading.begin()
    found = json.loads((record / "files.json").read_text())["files"]
    wanted = {}
    for each in (authority.certificate_file, authority.key_file, authority.ca_file, secret):
        wanted |= digest(each)
    assert found == wanted
    cluster_secret.write(secret, "another secret of it")
    assert reloading.read(True).cluster_key
    reloading.keep({"/one.pem": "digest"})
    assert json.loads((record / "files.json").read_text())["files"] == {"/one.pem": "digest", **digest(secret)}


def test_a_record_that_cannot_be_written_is_told_and_holds_up_nothing(place: Place) -> None:
    users_file.write(place.users, BOB)
    place.record.rename(place.record.with_name("elsewhere"))
    assert place.reload(place.text).users == BOB
    assert "record-failed" in place.log.getvalue()


def test_users_that_were_never_in_force_may_go_again(place: Place) -> None:
    """Whether there are any is what was taken last, not what was once read."""
    users_file.write(place.users, BOB)
    assert place.reload(place.text.replace("5672", '"no port"'), is_whole=True).faults
    place.users.unlink()
    assert place.reload(place.text, is_whole=True).users == {}
    users_file.write(place.users, BOB)
    assert place.reload(place.text).users == BOB
    users_file.write(place.users, {})
    assert place.reload(place.text).users == {}
    place.users.unlink()
    assert place.reload(place.text).users == {}
    users_file.write(place.users, BOB)
    assert place.reload(place.text).users == BOB
    place.users.unlink()
    assert place.reload(place.text).users is None


def test_users_that_a_process_began_with_are_in_force(tmp_path: Path) -> None:
    users_file.write(tmp_path / "users.json", BOB)
    place = Place(tmp_path, is_promised=False)
    place.users.unlink()
    assert place.reload(place.text).users is None


def test_a_refused_reload_does_not_become_what_is_in_force(tmp_path: Path) -> None:
    """What comes after it is held against what holds, which it would be a beginning of what was refused."""
    place = Place(tmp_path, is_promised=False)
    place.users.write_text("{")
    longer = f'{place.text}[[addresses]]\nname = "more"\nanycast = [{{name = "more"}}]\n'
    assert place.reload(longer, is_whole=True).faults
    place.users.unlink()
    found = place.reload(place.text, is_whole=True)
    assert (found.faults, found.options) == ((), place.options)


def test_what_a_reload_brought_may_not_all_be_missing_in_the_next(tmp_path: Path) -> None:
    """Permissions are those that were taken last, listeners those of the start."""
    security = BODY[BODY.index("[[security-settings]]") : BODY.index("[[addresses]]")]
    (tmp_path / "one").mkdir()
    place = Place(tmp_path / "one", is_promised=False)
    without = f"{place.text.replace(security, '')}{END}\n"
    start = source.understood(place.file, without)
    reloading = Reloading(place.file, without, start, Log(io.StringIO(), LogShape.PLAIN))
    reloading.begin()
    place.file.write_text(f"{place.text}{END}\n")
    assert reloading.read(True).faults == ()
    place.file.write_text(without)
    assert "security-settings: are all missing" in " ".join(reloading.read(True).faults)
    # A listener that waits for a restart is not in use.
    third = f'{place.text}[[listeners]]\nname = "third"\nport = 5675\n{END}\n'
    place.file.write_text(third)
    assert reloading.read(True).faults == ()
    place.file.write_text(f"{place.text}{END}\n")
    assert reloading.read(True).faults == ()
