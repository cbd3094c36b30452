"""A fault while a cluster is changed, on real hosts: that of the day. Needs root and the rack.

tests/system/mqctl/test_whole_chaos_rack.py plays all of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
import yaml

from tests.sim.days import DAY, SHARES
from tests.support.chaos import CELLS, CELLS_OF_DAY, Cell, of_day, told
from tests.support.chaos_commands import COMMANDS, HEIR
from tests.support.chaos_hosts import HOSTS, Stage
from tests.support.chaos_stages import Stages
from tests.support.rack_site import Rack, Site
from tests.support.rack_traffic import uris

# Hosts are made and have their first rollout in it, and a busy machine takes as long for that as for the cell.
pytestmark = [pytest.mark.system, pytest.mark.timeout(4000)]


@pytest.fixture(scope="module")
def stages(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stages]:
    with Stages("chaos", tmp_path_factory.mktemp("chaos")) as found:
        yield found


@pytest.mark.one_day_in_three(2)
@pytest.mark.parametrize("cell", [of_day(DAY // SHARES)], ids=str)
def test_a_command_that_meets_a_fault_ends_as_if_there_had_been_none(stages: Stages, cell: Cell) -> None:
    stages.play(cell)


def test_each_cell_has_its_day() -> None:
    cells = [of_day(day) for day in range(len(CELLS_OF_DAY))]
    assert set(cells) == set(CELLS_OF_DAY)
    assert all(one.fault != next_one.fault for one, next_one in pairwise([*cells, *cells]))


def test_the_backlog_is_where_the_fault_comes_to_and_is_read_elsewhere(tmp_path: Path) -> None:
    """Else a node that lost its journal there would have nothing to lose."""
    hosts = {host: {"ansible_host": f"192.0.2.{number}"} for number, host in enumerate(HOSTS, 11)}
    (tmp_path / "inventory.yml").write_text(yaml.safe_dump({"all": {"hosts": hosts}}))
    secrets = tmp_path / "group_vars/brokers/secrets.yml"
    secrets.parent.mkdir(parents=True)
    secrets.write_text(yaml.safe_dump({"mq_users": [{"name": "app", "password": "canary"}]}))
    stage = Stage(Site(tmp_path, Rack("nowhere")), Rack("nowhere"), "", "")
    uri = uris(stage.site)
    assert len(CELLS) > len(CELLS_OF_DAY) > 0
    for cell in CELLS:
        command, backlog = COMMANDS[cell.step.command], told(stage, cell)["backlog"]
        assert backlog["uri"] == uri(HEIR if command.is_away else command.leaver or cell.step.host), cell
        assert backlog["read_from"] in {uri(host) for host in HOSTS} - {backlog["uri"]}, cell
