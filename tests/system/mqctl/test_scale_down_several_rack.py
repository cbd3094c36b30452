"""Two of three hosts leave by one command, on real hosts. Needs root and the rack."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.rack_site import Rack, Site, site_on
from tests.support.rack_traffic import OPTIONS

pytestmark = [pytest.mark.system, pytest.mark.timeout(1500)]

rack = Rack("several")
COUNT = 500


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with site_on(rack, "3", folder=tmp_path_factory.mktemp("several") / "site") as one:
        one.set_options(OPTIONS)
        one.run("rollout", "--yes")
        one.run("health", "--until-healthy", "--timeout", "120")
        yield one


def test_nothing_is_moved_to_a_host_that_leaves_as_well(site: Site) -> None:
    for host in ("mq2", "mq3"):
        site.run("send", f"of.{host}", "kept {n}", "--count", str(COUNT), "--to", host)
    assert "is named twice" in site.run("scale-down", "mq2", "mq2", code=2).stderr
    leaves_as_well = site.run("scale-down", "mq3", "mq2", "--to", "mq2", "--yes", code=1)
    assert "--to mq2: that is no other node of the cluster" in leaves_as_well.stderr
    document = site.document("scale-down", "mq3", "mq2", "--yes", "--write")
    rows = [row for row in document["rows"] if row["moved"]]
    assert {row["queue"]: (row["host"], row["moved"], row["left"], row["to"]) for row in rows} == {
        "of.mq3": ("mq3", COUNT, 0, "mq1"),
        "of.mq2": ("mq2", COUNT, 0, "mq1"),
    }
    assert [(one["host"], one["differences"]) for one in document["hosts"]] == [("mq3", []), ("mq2", [])]
    inventory = (site.folder / "inventory.yml").read_text()
    assert ("mq2" in inventory, "mq3" in inventory) == (False, False)
    assert {row["queue"]: row["messages"] for row in site.rows("queue", "list") if row["messages"]} == {
        "of.mq2": COUNT,
        "of.mq3": COUNT,
    }
    assert [(row["host"], row["state"]) for row in site.rows("operation", "show")] == [("mq1", "free")]
    assert [row["state"] for row in site.rows("status")] == ["running"]
