"""Pictures of clusters: what they show, that nothing in them overlaps, and that they stay the same.

After a change that is meant: `python -m tests.unit.mqctl.test_picture` writes the golden picture anew. Look at it.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from mqctl.picture.cluster import ClusterPicture, DrawingClass, LinkPicture, NodeAnswer, NodePicture, cluster_of
from mqctl.picture.layout import Box, WantedCurve, lay_out
from mqctl.picture.svg import LABEL_HEIGHT, box_size, svg, text_width

GOLDEN = Path(__file__).parent / "pictures" / "clusters.svg"
SVG = "{http://www.w3.org/2000/svg}"


def member(number: int, **more: Any) -> dict[str, Any]:
    row = {"node_id": f"id-{number}", "node": "default", "connector": f"amqp://198.51.100.{10 + number}:5673"}
    return {"connection": "all", "boot_id": "b", "is_self": False, **row, **more}


def link(number: int, state: str = "up", **more: Any) -> dict[str, Any]:
    row = {"node_id": f"id-{number}", "connector": f"amqp://198.51.100.{10 + number}:5673", "connection": "all"}
    return {**row, "state": state, "depth": 0, "lag_ms": 0, "why": None, **more}


def answer(number: int, links: Sequence[dict[str, Any]], count: int = 3) -> NodeAnswer:
    members = [member(each, is_self=each == number) for each in range(1, count + 1)]
    clients = [{"container_id": f"id-{each}"} for each in range(1, count + 1)] + [{"container_id": "shop"}]
    status = {"version": "0.1.0", "queues": 2, "messages": 1 if number == 1 else 1200}
    topology = {"node_id": f"id-{number}", "members": members, "links": list(links)}
    return NodeAnswer(f"mq{number}", f"192.0.2.{10 + number}", "", status, topology, clients)


def whole(name: str = "main") -> ClusterPicture:
    """Three nodes, all well, but that a little waits from the second to the third."""
    second = answer(2, [link(1), link(3, depth=17, lag_ms=40)])
    return cluster_of(name, [answer(1, [link(2), link(3)]), second, answer(3, [link(1), link(2)])])


def cut(name: str = "west") -> ClusterPicture:
    """The second has lost its card, the third does not answer at all."""
    why = {"why": "silent for 30000 ms"}
    first = answer(1, [link(2, "resting", depth=1200, lag_ms=4200, **why), link(3, "dialling")])
    second = answer(2, [link(1, "resting", **why), link(3, "resting", **why)])
    return cluster_of(name, [first, second, NodeAnswer("mq3", "192.0.2.13", "mq3: no answer in time")])


def mesh(count: int, state: str = "up", broken: int | None = None) -> ClusterPicture:
    """All linked to all; the links of one of them may be broken."""
    nodes = tuple(
        NodePicture(f"id-{n}", f"host-{n}", DrawingClass.FINE, ("198.51.100.100:5673", "1,200 messages"))
        for n in range(count)
    )
    links = tuple(
        LinkPicture(
            f"id-{a}", f"id-{b}", "all", "resting" if broken in (a, b) else state, 10_000, 100, "no route to host"
        )
        for a, b in itertools.permutations(range(count), 2)
    )  # fmt: skip
    return ClusterPicture("main", nodes, links)


def boxes_of(picture: str, kind: str) -> list[Box]:
    found = []
    for panel in panels_of(picture):
        for rect in panel.iter(f"{SVG}rect"):
            if rect.get("class", "").split()[0] == kind:
                x, y, width, height = (float(rect.get(name, 0)) for name in ("x", "y", "width", "height"))
                found.append(Box(x + width / 2, y + height / 2, width, height))
    return found


def panels_of(picture: str) -> list[ElementTree.Element]:
    """The drawings of the clusters, each with its own origin."""
    return [part for panel in ElementTree.fromstring(picture).findall(f"{SVG}g") for part in panel.findall(f"{SVG}g")]


def texts_of(picture: str) -> list[str]:
    return ["".join(text.itertext()) for text in ElementTree.fromstring(picture).iter(f"{SVG}text")]


def test_nodes_have_the_names_of_the_inventory_and_what_is_on_them() -> None:
    first, second, third = whole().nodes
    assert (first.key, first.name, first.look) == ("id-1", "mq1", DrawingClass.FINE)
    assert first.lines == ("198.51.100.11:5673", "1 client, 2 queues", "1 message")
    assert second.lines[-1] == "1,200 messages"
    assert third.note == "node id-3, release 0.1.0"


def test_who_does_not_answer_is_the_one_that_others_tell_of() -> None:
    _, second, third = cut().nodes
    assert (second.look, third.look, third.key) == (DrawingClass.FINE, DrawingClass.BROKEN, "id-3")
    assert third.lines == ("198.51.100.13:5673", "does not answer")


def test_who_is_told_of_and_who_was_never_reached_are_there_too() -> None:
    """Two do not answer, so neither can be matched but by its address; a listed place has no node yet."""
    silent = [NodeAnswer("mq3", "192.0.2.13", "no"), NodeAnswer("mq4", "198.51.100.14", "no")]
    links = [link(4, "resting"), link(9, "dialling", node_id=None, connector="amqp://198.51.100.99:5673")]
    found = cluster_of("main", [answer(1, links, count=4), *silent])
    assert [(node.name, node.look.value) for node in found.nodes] == [
        ("mq1", "fine"), ("mq3", "broken"), ("mq4", "broken"),
        ("198.51.100.12:5673", "unknown"), ("198.51.100.13:5673", "unknown"), ("198.51.100.99:5673", "unknown"),
    ]  # fmt: skip
    assert [node.key for node in found.nodes if node.name == "mq4"] == ["id-4"]
    assert [each.target for each in found.links] == ["id-4", "amqp://198.51.100.99:5673"]


def test_a_place_that_is_a_member_by_now_is_no_node_of_its_own() -> None:
    found = cluster_of("main", [answer(1, [link(2, node_id=None)]), answer(2, []), answer(3, [])])
    assert [node.key for node in found.nodes] == ["id-1", "id-2", "id-3"]
    assert [each.target for each in found.links] == ["id-2"]


def test_names_are_in_the_order_of_their_numbers() -> None:
    found = cluster_of("main", [answer(number, [], count=10) for number in (10, 9, 1)])
    assert [node.name for node in found.nodes if node.look is DrawingClass.FINE] == ["mq1", "mq9", "mq10"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("count", "state"), [*((count, "up") for count in range(1, 21)), (3, "resting"), (9, "resting")]
)
def test_nothing_overlaps(count: int, state: str) -> None:
    cluster = mesh(count, state)
    picture = svg([cluster])
    boxes, labels = boxes_of(picture, "box"), boxes_of(picture, "label")
    assert len(boxes) == count
    assert len(labels) == len(cluster.links) == count * (count - 1)
    assert not [pair for pair in itertools.combinations(boxes, 2) if pair[0].meets(pair[1], 20)]
    assert not [pair for pair in itertools.combinations(labels, 2) if pair[0].meets(pair[1])]
    assert not [(box, label) for box in boxes for label in labels if box.meets(label)]


@pytest.mark.slow
@pytest.mark.parametrize("count", range(2, 21))
def test_curves_pass_no_other_box_and_end_at_theirs(count: int) -> None:
    pairs = list(itertools.permutations(range(count), 2))
    wanted = [WantedCurve(a, b, side) for a, b in pairs for side in (0, 1)]
    layout = lay_out(count, box_size(mesh(count).nodes), wanted, LABEL_HEIGHT)
    for one, curve in zip(wanted, layout.curves, strict=True):
        for point in curve.points():
            held = [number for number, box in enumerate(layout.boxes) if box.holds(point)]
            assert not held, f"{held} hold a point of {one}"
        assert layout.boxes[one.source].holds(curve.start, 0.1)
        assert layout.boxes[one.target].holds(curve.end, 0.1)


def test_all_texts_of_a_node_are_in_its_box() -> None:
    for group in (node for panel in panels_of(svg([whole(), cut()])) for node in panel.findall(f"{SVG}g")):
        rect = group.find(f"{SVG}rect")
        assert rect is not None
        left, top = float(rect.get("x", 0)), float(rect.get("y", 0))
        right, bottom = left + float(rect.get("width", 0)), top + float(rect.get("height", 0))
        for text in group.findall(f"{SVG}text"):
            x, y = float(text.get("x", 0)), float(text.get("y", 0))
            assert left < x
            assert top + 10 < y < bottom - 4
            assert x + text_width(text.text or "", is_bold=text.get("class") == "name") < right


def test_all_links_are_there_and_those_that_are_broken_look_so() -> None:
    paths = [each for panel in panels_of(svg([cut()])) for each in panel.iter(f"{SVG}path")]
    drawn = [(each.get("class"), each.findtext(f"{SVG}title")) for each in paths if "link" in each.get("class", "")]
    assert drawn == [
        ("link broken", "mq1 → mq2"), ("link broken", "mq2 → mq1"),
        ("link broken", "mq1 → mq3"), ("link broken", "mq2 → mq3"),
    ]  # fmt: skip
    said = texts_of(svg([cut()]))
    assert [one for one in said if ": " in one[:3]] == ["1: 1,200 wait", "3: resting", "2: dialling", "4: resting"]
    assert "1,200 wait, the first for 4.2 s" in said
    assert "silent for 30000 ms" in said
    assert "3 nodes, 1 not heard; of 4 links 0 stand; 1,200 messages wait" in said


def test_a_pair_where_all_is_well_is_one_line_and_one_where_messages_wait_is_two() -> None:
    paths = [each for panel in panels_of(svg([whole()])) for each in panel.iter(f"{SVG}path")]
    drawn = [(each.get("class"), each.findtext(f"{SVG}title")) for each in paths if "link" in each.get("class", "")]
    assert drawn == [
        ("link fine", "mq1 ↔ mq2"), ("link fine", "mq1 ↔ mq3"),
        ("link waiting", "mq2 → mq3"), ("link fine", "mq3 → mq2"),
    ]  # fmt: skip


def test_with_many_labels_they_say_their_numbers_alone() -> None:
    said = texts_of(svg([mesh(9, broken=4)]))
    assert "16" in said
    assert not [one for one in said if one.startswith("16: ")]


def test_several_clusters_stand_apart() -> None:
    root = ElementTree.fromstring(svg([whole("east"), cut("west"), mesh(6)]))
    corners = [each.get("transform", "")[10:-1].split(",") for each in root.findall(f"{SVG}g")]
    panels = [each.find(f"{SVG}rect") for each in root.findall(f"{SVG}g")]
    boxes = []
    for (x, y), panel in zip(corners, panels, strict=True):
        assert panel is not None
        width, height = float(panel.get("width", 0)), float(panel.get("height", 0))
        boxes.append(Box(float(x) + width / 2, float(y) + height / 2, width, height))
    assert not [pair for pair in itertools.combinations(boxes, 2) if pair[0].meets(pair[1], 20)]
    _, _, right, bottom = map(float, root.get("viewBox", "").split())
    assert all(box.x + box.width / 2 < right and box.y + box.height / 2 < bottom for box in boxes)
    assert {"east", "west", "main"} <= set(texts_of(svg([whole("east"), cut("west"), mesh(6)])))


def test_what_a_host_says_stays_text() -> None:
    evil = '</text><script>x</script>"&\x1b[31m'
    cluster = cluster_of(evil, [answer(1, [link(2, "resting", why=evil)], count=2), answer(2, [], count=2)])
    root = ElementTree.fromstring(svg([cluster]))
    assert not list(root.iter(f"{SVG}script"))
    assert '</text><script>x</script>"&\\x1b[31m' in texts_of(svg([cluster]))


def test_the_picture_stays_the_same() -> None:
    assert svg([whole("east"), cut("west")]) == GOLDEN.read_text(encoding="utf-8")


if __name__ == "__main__":
    GOLDEN.parent.mkdir(exist_ok=True)
    GOLDEN.write_text(svg([whole("east"), cut("west")]), encoding="utf-8")
