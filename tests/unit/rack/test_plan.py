"""Names and addresses: what follows from a rack's name and size."""

from __future__ import annotations

import pytest
from mqrack.errors import RackError
from mqrack.layout import Layout
from mqrack.plan import HOSTS_MAX, LIGHTS_MAX, NETWORKS, make_plan


def test_hosts_have_a_management_and_a_cluster_card() -> None:
    host = make_plan("r", 3).host("mq3")
    assert [(card.name, card.address) for card in host.cards] == [("eth0", "192.0.2.13"), ("eth1", "198.51.100.13")]
    assert host.gateway == "192.0.2.1"


def test_the_largest_rack_has_no_address_or_hardware_address_twice() -> None:
    cards = [card for host in make_plan("r", HOSTS_MAX, LIGHTS_MAX).hosts for card in host.cards]
    addresses = [card.address for card in cards]
    assert len(set(addresses)) == len(addresses) == 2 * HOSTS_MAX + LIGHTS_MAX
    assert len({card.mac for card in cards}) == len(cards)
    assert all(1 < int(address.rpartition(".")[2]) < 255 for address in addresses)


def test_a_host_behind_another_has_no_card_where_the_controller_is() -> None:
    plan = make_plan("r", 3, behind={"mq3": "mq1"})
    assert plan.host("mq3").address == f"{NETWORKS['behind']}.13"
    assert plan.host("mq3").jump == "mq1"
    assert [card.network for card in plan.host("mq1").cards] == ["management", "cluster", "behind"]
    assert [card.name for card in plan.host("mq2").cards] == ["eth0", "eth1"]


def test_a_host_keeps_its_hardware_addresses_whatever_the_size_of_the_rack() -> None:
    assert make_plan("r", 2).host("mq2").cards == make_plan("other", 50).host("mq2").cards


@pytest.mark.parametrize("name", ["", "Rack", "1rack", "a.b", "a/b", "a" * 17, ".locks"])
def test_a_name_that_could_be_mistaken_for_another_is_refused(name: str) -> None:
    with pytest.raises(RackError, match="rack name"):
        make_plan(name, 1)


@pytest.mark.parametrize(("hosts", "lights"), [(HOSTS_MAX + 1, 0), (-1, 0), (0, LIGHTS_MAX + 1)])
def test_a_rack_has_a_size_limit(hosts: int, lights: int) -> None:
    with pytest.raises(RackError, match="a rack holds 0 to"):
        make_plan("r", hosts, lights)


def test_jump_pairs_name_hosts_that_exist_and_are_reachable() -> None:
    with pytest.raises(RackError, match="no host 'mq4'; it has mq1, mq2, mq3"):
        make_plan("r", 3, behind={"mq4": "mq1"})
    with pytest.raises(RackError, match="itself behind"):
        make_plan("r", 3, behind={"mq3": "mq2", "mq2": "mq1"})


def test_an_unknown_card_is_named_with_those_there_are() -> None:
    with pytest.raises(RackError, match="no card 'eth7'; it has eth0, eth1"):
        make_plan("r", 1).host("mq1").card("eth7")


def test_no_rack_takes_the_namespaces_of_one_whose_name_begins_alike() -> None:
    assert not Layout("a-b").netns("mq1").startswith(Layout("a").netns_prefix)


def test_the_path_of_a_control_socket_fits_into_a_unix_address() -> None:
    longest = Layout("a" * 16).control_sockets / "198.51.100.254-22-deploy"
    # ssh binds a temporary name 17 characters longer, and the kernel takes 107.
    assert len(str(longest)) + 17 <= 107
