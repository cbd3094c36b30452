"""What a reload does not take: files of which a part is missing. Invariant: nothing is lost by one without a word."""

from __future__ import annotations

import io
import os
from pathlib import Path

import pytest
from mqbroker.app import source
from mqbroker.app.main import main
from mqbroker.app.reloading import Reloading
from mqbroker.config.users import make_verifier
from mqbroker.config.whole import END, PROMISE
from mqbroker.io import users_file
from mqbroker.io.log import Log, LogShape
from mqbroker.io.server import Reloaded

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
        self.reloading = Reloading(self.file, self.text, self.options, Log(self.log, LogShape.PLAIN))
        self.reloading.users()

    def reload(self, text: str, *, is_whole: bool = False) -> Reloaded:
        self.file.write_text(text)
        return self.reloading.read(is_whole)


@pytest.fixture(params=[True, False], ids=["by the role", "by hand"])
def place(tmp_path: Path, request: pytest.FixtureRequest) -> Place:
    return Place(tmp_path, is_promised=request.param)


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
