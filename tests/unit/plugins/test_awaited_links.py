"""What a host notes of links that have to stand again: it outlives the run, until they do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ansible_collections.mqops.cluster.plugins.module_utils import awaited_links
from ansible_collections.mqops.cluster.plugins.module_utils.files import FileFault

OUT = {"instance": "default", "direction": "out", "connection": "all", "node_id": "2", "node": "mq2"}
IN: dict[str, Any] = {"instance": "default", "direction": "in", "connection": "", "node_id": "3", "node": None}


@pytest.fixture
def place(tmp_path: Path) -> str:
    return str(tmp_path / "mq-operation-links.json")


def test_nothing_is_noted_where_there_is_no_file(place: str) -> None:
    assert awaited_links.look(place) == []
    awaited_links.drop([OUT], place)
    awaited_links.forget(place)
    assert awaited_links.add([], place) == []
    assert not Path(place).exists()


def test_what_is_noted_stays_beside_what_comes(place: str) -> None:
    """A host that is restarted again, to mend it, has fewer links that stand than it is to have."""
    assert awaited_links.add([OUT], place) == [OUT]
    assert awaited_links.add([IN], place) == [OUT, IN]
    assert awaited_links.add([OUT | {"node": "renamed"}], place) == [OUT | {"node": "renamed"}, IN]
    assert awaited_links.look(place) == [OUT | {"node": "renamed"}, IN]


def test_a_name_that_is_known_stays_where_it_is_not_known_later(place: str) -> None:
    """Without it nobody could tell that the node has another id, or has left."""
    awaited_links.add([OUT], place)
    assert awaited_links.add([OUT | {"node": None}], place) == [OUT]
    assert awaited_links.add([IN], place) == [OUT, IN]
    assert awaited_links.add([IN | {"node": "mq3"}], place) == [OUT, IN | {"node": "mq3"}]


def test_a_note_that_cannot_be_removed_is_a_fault_by_name(place: str) -> None:
    Path(place).mkdir()
    with pytest.raises(FileFault, match=f"{place} cannot be removed"):
        awaited_links.forget(place)


def test_what_stands_is_taken_out_and_the_last_one_takes_the_file_along(place: str) -> None:
    awaited_links.add([OUT, IN], place)
    awaited_links.drop([OUT], place)
    assert awaited_links.look(place) == [IN]
    awaited_links.drop([OUT, IN], place)
    assert not Path(place).exists()


@pytest.mark.parametrize("text", ["", "{", "[]", '{"links": 1}', '{"links": [{"instance": "a"}]}', "\xff"])
def test_what_cannot_be_read_is_not_nothing(place: str, text: str) -> None:
    Path(place).write_text(text, "latin-1")
    for act in (awaited_links.look, lambda where: awaited_links.add([OUT], where)):
        with pytest.raises(FileFault, match="remove it when all do"):
            act(place)
    awaited_links.forget(place)
    assert awaited_links.look(place) == []


def test_a_link_in_words() -> None:
    assert awaited_links.name_of(OUT) == "default: the link to mq2 (2)"
    assert awaited_links.name_of(IN) == "default: the link from 3"
