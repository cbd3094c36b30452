"""The table of rows and what becomes of it on the load generator's command line."""

import pytest
from mqbroker.config.declarations.options import defaults

from bench import load, peers, rows
from bench.applications import APPLICATIONS
from bench.peers.artemis import LARGE_SIZE_MIN_BYTES
from bench.peers.rabbitmq import Rabbitmq


def _row(name: str) -> rows.Row:
    return next(row for row in rows.ROWS if row.name == name)


def test_names_are_distinct() -> None:
    names = [row.name for row in rows.EVERYTHING.all()] + [rows.START]
    assert len(set(names)) == len(names)
    assert list(rows.EVERYTHING.titles()) == names


def test_no_names_choose_everything() -> None:
    fresh = (*rows.MANY, *rows.BESIDE, *rows.FLOODED, *rows.AMONG, *rows.RECOVERY, *rows.DEPARTURES)
    assert rows.chosen([]) == rows.Choice(rows.ROWS, APPLICATIONS, fresh, starts=True)


def test_names_choose_in_the_order_of_the_table() -> None:
    found = rows.chosen(["queues", "jms-queue", "latency", "durable-1"])
    assert [row.name for row in found.all()] == ["durable-1", "latency", "jms-queue", "queues"]
    assert not found.starts


def test_start_alone_has_no_loads() -> None:
    assert rows.chosen(["start"]) == rows.Choice(starts=True)


def test_an_unknown_name_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"no row is called speed; there are .*durable-1000-consumer"):
        rows.chosen(["speed"])


@pytest.mark.parametrize("row", rows.ROWS, ids=lambda row: row.name)
def test_short_rows_differ_in_count_only_and_feed_every_producer(row: rows.Row) -> None:
    short = row.short()
    assert 100 <= short.count < row.count
    assert short.count >= short.producers * 4
    assert (short.name, short.size, short.in_flight) == (row.name, row.size, row.in_flight)
    assert short.nodes == min(row.nodes, 2)
    assert set(short.receive_at) <= set(range(short.nodes))


def test_sizes_settlement_producers_and_windows_are_covered() -> None:
    wanted = {(size, settled) for size in (100, 1024) for settled in (True, False)}
    plain = [row for row in rows.ROWS if row.name.startswith("plain")]
    assert wanted <= {(row.size, row.settled) for row in plain}
    assert {100, 1024, 10_240, 102_400} <= {row.size for row in plain if not row.settled and not row.mix}
    durable = {(row.producers, row.in_flight, row.consumer) for row in rows.ROWS if row.durable}
    assert {(1, 1, False), (16, 1, False), (256, 1, False), (1, 1000, False), (1, 1000, True)} <= durable
    assert _row("latency").rate == 5000


def test_one_row_is_above_what_brokers_keep_in_memory_and_the_plain_ones_are_below() -> None:
    plain = [row for row in rows.ROWS if row.name.startswith("plain")]
    assert max(max(row.sizes) for row in plain) + 1000 < LARGE_SIZE_MIN_BYTES
    large = _row("large-1MiB")
    assert large.size >= defaults().limits.large_message_in_memory_max_size_bytes > LARGE_SIZE_MIN_BYTES
    assert not large.durable
    assert not large.settled


def test_warm_up_is_long_enough_for_a_jvm() -> None:
    assert sum(row.count for row in rows.WARM_UP) >= 400_000


def test_arguments_of_a_settled_row() -> None:
    row = _row("plain-100B-settled")
    assert "--settled" in load.send_arguments(row, "q")
    assert "--settled" in load.receive_arguments(row, "q")
    assert "--durable" not in load.send_arguments(row, "q")


def test_arguments_of_a_durable_row_with_many_producers() -> None:
    sending = load.send_arguments(_row("durable-16-consumer"), "orders")
    receiving = load.receive_arguments(_row("durable-16-consumer"), "orders")
    assert sending[sending.index("--connections") + 1] == "16"
    assert sending[sending.index("--in-flight") + 1] == "1"
    assert "--durable" in sending
    assert receiving[receiving.index("--producers") + 1] == "16"
    assert receiving[receiving.index("--address") + 1] == "orders"


def test_latency_is_stamped_and_measured_by_both_ends() -> None:
    row = _row("latency")
    assert {"--stamp", "--rate"} <= set(load.send_arguments(row, "q"))
    assert "--stamp" in load.receive_arguments(row, "q")


def test_a_mix_has_all_sizes_and_no_large_neighbours() -> None:
    row = _row("plain-mix-acknowledged")
    assert set(row.mix) == {100, 1024, 10_240, 102_400}
    assert row.size == sum(row.mix) // len(row.mix)
    assert all(min(pair) <= 1024 for pair in zip(row.mix, row.mix[1:] + row.mix[:1], strict=True))


def test_sizes_reach_both_ends() -> None:
    row = rows.Row("r", "r", 100, 562, mix=(100, 1024))
    assert "100,1024" in load.send_arguments(row, "q")
    assert "100,1024" in load.receive_arguments(row, "q")


def test_a_slow_peer_gets_fewer_messages_where_the_row_says_so() -> None:
    row = _row("durable-1000")
    assert row.on("artemis") == row.on("mqops") == row
    assert row.on("classic").count == row.slow_count == 10_000
    assert _row("durable-1").on("rabbitmq") == _row("durable-1")


@pytest.mark.parametrize("row", rows.ROWS, ids=lambda row: row.name)
def test_a_slow_peer_never_gets_more(row: rows.Row) -> None:
    assert row.on("classic").count <= row.count
    assert row.short().on("classic").count <= row.short().count
    assert row.short().on("classic").count >= row.producers


@pytest.mark.parametrize("row", rows.MANY, ids=lambda row: row.name)
def test_many_are_few_when_short(row: rows.Many) -> None:
    short = row.short()
    assert 2 <= short.connections * short.links <= row.connections * row.links / 20


def test_a_crowd_of_each_kind_is_beside_messages_in_runs_and_one_by_one() -> None:
    found = {(row.many.attached, row.load.in_flight == 1) for row in rows.AMONG}
    assert found == {(attached, single) for attached in (True, False) for single in (True, False)}
    assert {row.many.connections * row.many.links for row in rows.AMONG} == {1_000, 10_000}
    assert {kind for row in rows.AMONG for kind, _ in row.skips} == set(peers.VERSIONED)


@pytest.mark.parametrize("row", rows.AMONG, ids=lambda row: row.name)
def test_a_crowd_is_small_when_short(row: rows.Among) -> None:
    assert (row.short().load, row.short().many) == (row.load.short(), row.many.short())
    assert rows.chosen([row.name]) == rows.Choice(fresh=(row,))


def test_rabbitmq_is_asked_for_durable_queues() -> None:
    # Its plugin makes others by default, and accepts durable messages there before they are on disk.
    assert "--durable-queue" in Rabbitmq.load_options


def test_arguments_of_many() -> None:
    row = next(row for row in rows.MANY if row.attached)
    assert load.many_arguments(row, "attach", "q")[:7] == [
        *("attach", "--address", "q", "--connections", "1000", "--links", "1")
    ]
    assert {"--at-once", "--credit"} <= set(load.many_arguments(row, "attach", "q"))


def test_a_recovery_is_of_durable_messages_that_nobody_has_read() -> None:
    (row,) = rows.RECOVERY
    assert (row.load.count, row.load.size, row.load.durable, row.load.consumer) == (500_000, 1024, True, False)
    assert row.short().load == row.load.short()
    assert rows.chosen(["recovery"]) == rows.Choice(fresh=(row,))


def test_a_departure_is_of_durable_messages_that_are_read_at_the_other_node() -> None:
    assert [row.name for row in rows.DEPARTURES if row.pages] == ["scale-down-paged"]
    counts = {row.name: row.queues * row.load.count for row in rows.DEPARTURES}
    assert counts == {"scale-down": 50_000, "scale-down-paged": 1_000_000}


@pytest.mark.parametrize("row", rows.DEPARTURES, ids=lambda row: row.name)
def test_each_has_them_at_one_node_and_its_short_one_has_few(row: rows.Departure) -> None:
    load = row.load
    assert (load.size, load.durable, load.consumer) == (1024, True, False)
    assert (load.nodes, load.send_at, load.receive_at) == (2, 0, (1,))
    assert row.on("mqops") == row
    assert row.on("artemis").load.count == row.slow_count < load.count
    short = row.short()
    assert (short.load, short.queues) == (load.short(), 2)
    assert short.on("artemis").load.count <= short.load.count
    assert rows.chosen([row.name]) == rows.Choice(fresh=(row,))


def test_three_days_have_all_rows_and_each_has_some_of_each_kind() -> None:
    whole = rows.EVERYTHING
    days = [whole.of_day(day) for day in range(20784, 20787)]
    assert sorted(row.name for one in days for row in one.all()) == sorted(row.name for row in whole.all())
    assert all(one.rows and one.applications and one.fresh and one.starts for one in days)
