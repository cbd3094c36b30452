"""Pages: what goes in comes out in order, whatever is read, moved and dropped in between."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest
from mqbroker.core.queue.pages import PagePiece, Pages, PageShape, moved
from mqbroker.journal.places import EXTENDED_BYTES_MAX, Slice, Written

HERE, THERE, ELSEWHERE = Slice(1, 64, 100, 7), Slice(2, 64, 50, 8), Slice(3, 0, 1, 9)


def piece(first_id: int, n: int, place: Slice = HERE) -> PagePiece:
    return PagePiece(first_id, n, 3, True, place)


def ids(pieces: list[PagePiece]) -> list[int]:
    return [each for one in pieces for each in range(one.first_id, one.end)]


def written(first_id: int, count: int, segment: int = 1) -> Written:
    one = Written(first_id, 64, (1,), 1)
    one.count, one.length, one.segment = count, 10 * count, segment
    return one


@pytest.mark.parametrize(
    ("moves", "left"),
    [
        ([], [piece(10, 10)]),
        ([(0, 10, THERE), (20, 30, THERE)], [piece(10, 10)]),
        ([(10, 20, THERE)], [piece(10, 10, THERE)]),
        ([(0, 12, THERE)], [piece(10, 2, THERE), piece(12, 8)]),
        ([(18, 99, THERE)], [piece(10, 8), piece(18, 2, THERE)]),
        (
            [(0, 5, THERE), (11, 12, THERE), (12, 14, ELSEWHERE)],
            [piece(10, 1), piece(11, 1, THERE), piece(12, 2, ELSEWHERE), piece(14, 6)],
        ),
    ],
)
def test_a_piece_is_cut_where_messages_were_moved(moves: list[tuple[int, int, Slice]], left: list[PagePiece]) -> None:
    assert list(moved(piece(10, 10), moves)) == left


def test_pages_end_at_their_size_and_at_their_count_but_take_one_piece_always() -> None:
    pages = Pages(PageShape(100, 4))
    for first_id, count, size_bytes in [(1, 1, 500), (2, 3, 30), (5, 1, 30), (6, 9, 10), (15, 1, 10)]:
        pages.add(written(first_id, count), count, size_bytes, first_id)
    assert (pages.count, pages.size_bytes) == (15, 580)
    found = []
    while not pages.is_empty:
        page = pages.begin()
        assert pages.reading is page
        found.append(ids(list(page.pieces())))
        pages.finished()
    assert found == [[1], [2, 3, 4, 5], [*range(6, 15)], [15]]
    assert (pages.count, pages.size_bytes, pages.first) == (0, 0, None)


def test_a_sealed_page_takes_no_more() -> None:
    pages = Pages(PageShape(1000, 1000))
    one = written(1, 2)
    pages.add(one, 2, 20, 5)
    assert pages.ends_with(one)
    assert pages.first is not None
    pages.seal(pages.first)
    assert not pages.ends_with(one)
    pages.add(written(3, 1), 1, 10, 6)
    assert (pages.first.count, pages.first.position) == (2, 5)


def test_neighbours_of_one_append_are_one_place_up_to_a_size() -> None:
    one = Written(1, 100, (1,), 1)
    one.count, one.length = 3, 40
    assert one.is_followed_by(4, 140, (1,), 10)
    assert not one.is_followed_by(5, 140, (1,), 10), "an id is missing"
    assert not one.is_followed_by(4, 141, (1,), 10), "something lies in between"
    assert not one.is_followed_by(4, 140, (1, 2), 10), "for other queues"
    assert not one.is_followed_by(4, 140, (1,), EXTENDED_BYTES_MAX)
    one.segment = 1
    assert not one.is_followed_by(4, 140, (1,), 10), "it is of an earlier append"


@pytest.mark.slow
def test_nothing_is_lost_or_disordered_by_any_sequence_of_calls() -> None:
    rng = random.Random(8)
    for _ in range(60):
        pages, next_id, expected, got = Pages(PageShape(rng.choice((50, 400)), 30)), 1, [], []
        place_of: dict[int, Slice] = {}
        for _ in range(80):
            dice = rng.random()
            if dice < 0.5:
                next_id += rng.choice((0, 0, 3))
                one = written(next_id, rng.randrange(1, 6))
                pages.add(one, one.count, one.length, next_id)
                expected += range(next_id, next_id + one.count)
                place_of |= dict.fromkeys(range(next_id, next_id + one.count), one.slice)
                next_id += one.count
            elif dice < 0.7 and pages.first is not None:
                page = pages.begin()
                for each in page.pieces():
                    got += range(each.first_id, each.end)
                    assert all(place_of[number] == each.place for number in range(each.first_id, each.end))
                pages.finished()
            elif dice < 0.9:
                edges = sorted(rng.sample(range(next_id + 20), 4))
                moves = [
                    (first, end, Slice(9, first, 1, 1)) for first, end in list(pairwise(edges))[::2] if first < end
                ]
                before = list(pages.within(0, next_id))
                gone, new = pages.move(moves, next_id)
                assert sorted(ids(gone)) == sorted(ids(new))
                assert ids(list(pages.within(0, next_id))) == ids(before)
                for first, end, place in moves:
                    place_of |= {number: place for number in range(first, end) if number in set(ids(before))}
            elif dice < 0.95 and expected:
                first = rng.randrange(next_id)
                page = pages.page_of(first)
                if page is not None:
                    page.pack()
                    end = first + rng.randrange(1, 9)
                    gone, left = pages.take_out(page, first, end)
                    taken = set(ids(gone)) - set(ids(left))
                    assert taken == {each for each in ids(gone) if first <= each < end}
                    expected = [each for each in expected if each not in taken]
                    assert page.is_out == (not page.count)
            elif pages.first is not None:
                pages.seal(pages.first)
            assert pages.count == len(expected) - len(got)
        while pages.first is not None:
            got += ids(list(pages.begin().pieces()))
            pages.finished()
        assert got == expected
