"""To which room a sample belongs: stacks as `perf script` prints them."""

import pytest

from bench.rooms import OTHERS, PROJECT, TURNS, Profile, Share, main, modules, shares, table

SCRIPT = """\
   77
\tffffffff81e2e171 tcp_sendmsg ([kernel.kallsyms])
\t          10afa8 __send (/usr/lib/libc.so.6)
\t          1050a1 CPyDef_connections___Connection___send (/x/mqbroker_native__mypyc.so)
\t          1050a2 CPyDef_loop___NodeLoop____turn (/x/mqbroker_native__mypyc.so)

   77
\t          13acbb PyList_Append (/usr/bin/python3.11)
\t          1050a3 CPyDef_queue___Queue___dispatch (/x/mqbroker_native__mypyc.so)
\t          1050a2 CPyDef_loop___NodeLoop____turn (/x/mqbroker_native__mypyc.so)

   77
\t          112a48 uv__io_poll (/x/uvloop/loop.so)

   78
\tffffffff81e2e172 vfs_write ([kernel.kallsyms])
\t          10afa9 pwrite (/usr/lib/libc.so.6)

   78
\tffffffff81e2e173 ext4_write ([kernel.kallsyms])
\t          1050a4 CPyDef_writes____write_all (/x/mqbroker_native__mypyc.so)
"""
ROOMS = {"connections": "io", "loop": "io", "writes": "io", "queue": "core"}


def test_a_sample_belongs_to_the_innermost_function_of_ours() -> None:
    assert shares(SCRIPT.splitlines(), 77, ROOMS) == [
        Share("io", 0.4, 0.4),
        Share("core", 0.2, 0.0),
        Share(TURNS, 0.2, 0.0),
        Share(OTHERS, 0.2, 0.2),
    ]


def test_each_compiled_module_has_a_room_and_a_name_of_its_own() -> None:
    found = modules(PROJECT.read_text())
    assert {"wire", "amqp", "journal", "core", "node", "io/loop/loop", "io/disk/disk"} <= set(found.values())
    assert (found["run"], found["store"], found["broker"]) == ("wire", "core", "node")


def test_two_modules_of_one_name_are_refused() -> None:
    hook = '[tool.hatch.build.targets.wheel.hooks.custom]\nmodules = ["core/run", "wire/run"]'
    with pytest.raises(ValueError, match=r"wire/run: another compiled module is called run"):
        modules(hook)


def test_a_table_has_a_column_for_each_load_with_the_time_in_the_kernel() -> None:
    loads = [Profile("one", 20.0, [Share("io", 0.4, 0.3)]), Profile("many", 2.0, [Share("core", 1.0, 0.0)])]
    assert table(loads).splitlines() == [
        "| room | one | many |",
        "| --- | --- | --- |",
        "| core |  | 2.00 (0.00) |",
        "| io | 8.0 (6.0) |  |",
        "| all | 20.0 | 2.00 |",
    ]


@pytest.mark.parametrize("row", ["cluster-2", "connections", "start", "speed"])
def test_rows_that_are_no_load_on_one_node_are_refused(row: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["--rows", f"latency,{row}"])
    assert row in capsys.readouterr().err
