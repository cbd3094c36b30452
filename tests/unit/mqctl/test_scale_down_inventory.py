"""An inventory less one host, or one instance of it: comments and layout of the rest stay."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest
from mqctl.scaledown.inventory_change import ByHand, FileChange, without_host, without_instance
from mqctl.scaledown.inventory_files import changes_of

YAML = dedent("""\
    # The brokers of the shop.
    all:
      children:
        brokers:
          vars: {mq_cluster_name: main}   # one cluster
          hosts:
            mq1:   # the first
              ansible_host: 192.0.2.1
            # The second stands in the other hall.
            mq2:
            mq3:
              ansible_host: 192.0.2.3
              mq_rack: b   # the other hall

            # Nobody moves this one.
            mq30:
              ansible_host: 192.0.2.30
        canaries:
          hosts:
            mq3:
    """)


def test_only_the_lines_of_the_host_go() -> None:
    changed = without_host(YAML, "mq3", "inventory.yml")
    gone = [line for line in YAML.splitlines() if line not in changed.splitlines()]
    own = ["        mq3:", "          ansible_host: 192.0.2.3", "          mq_rack: b   # the other hall"]
    assert gone == [*own, "        mq3:"]
    assert len(changed.splitlines()) == len(YAML.splitlines()) - 4
    assert without_host(changed, "mq3", "inventory.yml") == changed


def test_hosts_without_variables_and_hosts_that_are_last() -> None:
    changed = without_host(YAML, "mq2", "inventory.yml")
    assert [line for line in YAML.splitlines() if line not in changed.splitlines()] == ["        mq2:"]
    assert "mq30" not in without_host(YAML, "mq30", "inventory.yml")
    text = "all: {hosts: }\nbrokers:\n  hosts:\n    mq1:\n      a: |\n        one\n        two"
    assert without_host(text, "mq1", "inventory.yml") == "all: {hosts: }\nbrokers:\n  hosts:\n"


def test_vaulted_values_of_others_stay() -> None:
    text = "all:\n  hosts:\n    mq1:\n      secret: !vault |\n        $ANSIBLE_VAULT;1.1\n        3132\n    mq3:\n"
    assert without_host(text, "mq3", "inventory.yml") == text.removesuffix("    mq3:\n")


@pytest.mark.parametrize("text", ["all: {hosts: {mq1: {}, mq3: {}}}\n", "all:\n  hosts: {mq3: }\n"])
def test_what_stands_in_braces_is_a_persons_to_change(text: str) -> None:
    with pytest.raises(ByHand):
        without_host(text, "mq3", "inventory.yml")


def test_what_others_refer_to_is_a_persons_to_change() -> None:
    text = "all:\n  hosts:\n    mq3: &hall\n      mq_rack: b\n    mq4: *hall\n"
    with pytest.raises(ByHand, match="would mean something else"):
        without_host(text, "mq3", "inventory.yml")


def test_lines_of_the_host_go_from_an_inventory_in_the_other_format() -> None:
    text = "; brokers\nmq3 ansible_host=192.0.2.3\n[brokers]\nmq1\nmq3\nmq30\n[brokers:vars]\nmq3 = no host\n"
    assert without_host(text, "mq3", "hosts") == "; brokers\n[brokers]\nmq1\nmq30\n[brokers:vars]\nmq3 = no host\n"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (
            "inventory.yml",
            "all:\n  children:\n    a:\n      hosts:\n        mq[1:3]:\n    b:\n      hosts:\n        mq3:\n",
        ),
        ("inventory.yml", "all:\n  children:\n    a: {hosts: {'mq[1:30:2]': }}\n    b:\n      hosts:\n        mq3:\n"),
        ("hosts", "[a]\nmq[1:3]\n[b]\nmq3\n"),
        ("hosts", "[a]\nmq[:3] ansible_port=2222\n[b]\nmq3\n"),
        ("hosts", "[a]\nm[a:z][2:4]\n[b]\nmq3\n"),
    ],
)
def test_a_host_that_a_range_makes_too_is_a_persons_to_take_out(name: str, text: str) -> None:
    """It would still be in the inventory, and the next rollout would install it again."""
    with pytest.raises(ByHand, match="makes mq3 as well"):
        without_host(text, "mq3", name)


@pytest.mark.parametrize(
    "made", ["web[1:3]", "mq[1:2]", "mq[01:30]", "mq[1:30:4]", "mq[1:9].b", "mq[1:9:0]x", "m[a:p]3"]
)
def test_ranges_of_others_hinder_nobody(made: str) -> None:
    assert without_host(f"[a]\n{made}\nmq3\n", "mq3", "hosts") == f"[a]\n{made}\n"


def test_a_program_is_a_persons_to_change() -> None:
    text = "#!/usr/bin/env python3\nmq3 = {'ansible_host': '192.0.2.3'}\nprint(mq3)\n"
    with pytest.raises(ByHand, match="is a program"):
        without_host(text, "mq3", "inventory.py")


def test_a_host_with_a_port_and_one_that_is_indented_go_too() -> None:
    assert without_host("[a]\nmq1\nmq3:2222 ansible_user=x\n[b]\n  mq3\n", "mq3", "hosts") == "[a]\nmq1\n[b]\n"


def test_a_change_is_shown_as_a_diff() -> None:
    diff = FileChange("inventory.yml", YAML, without_host(YAML, "mq2", "inventory.yml")).diff
    assert [line for line in diff.splitlines() if line.startswith(("-", "+"))] == [
        "--- inventory.yml (before)", "+++ inventory.yml (after)", "-        mq2:",
    ]  # fmt: skip


# -- an instance less -------------------------------------------------------------------------------------------------

SEVERAL = dedent("""\
    all:
      vars: {mq_cluster_name: main}
      hosts:
        mq1:
        mq2:
          ansible_host: 192.0.2.2
          mq_instances:
            # The first.
            - name: blue
              port_offset: 10   # of the shop
            - {name: green, port_offset: 20}

            # The last.
            - name: red
          mq_rack: b
        mq20:
          mq_instances: [{name: blue}, {name: green, port_offset: 20}]
      children:
        canaries:
          hosts:
            mq2:
    """)


@pytest.mark.parametrize(
    ("host", "instance", "gone", "come"),
    [
        ("mq2", "blue", ["        - name: blue", "          port_offset: 10   # of the shop"], []),
        ("mq2", "green", ["        - {name: green, port_offset: 20}"], []),
        ("mq2", "red", ["        - name: red"], []),
        (
            "mq20", "blue", ["      mq_instances: [{name: blue}, {name: green, port_offset: 20}]"],
            ["      mq_instances: [{name: green, port_offset: 20}]"],
        ),
        (
            "mq20", "green", ["      mq_instances: [{name: blue}, {name: green, port_offset: 20}]"],
            ["      mq_instances: [{name: blue}]"],
        ),
        ("mq20", "gone", [], []),
        ("mq1", "default", [], []),
    ],
)  # fmt: skip
def test_only_the_lines_of_the_instance_go(host: str, instance: str, gone: list[str], come: list[str]) -> None:
    changed = without_instance(SEVERAL, host, instance, "inventory.yml")
    before, after = SEVERAL.splitlines(), changed.splitlines()
    assert [line for line in before if line not in after] == gone
    assert [line for line in after if line not in before] == come
    assert len(after) == len(before) - len(gone) + len(come)
    assert without_instance(changed, host, instance, "inventory.yml") == changed


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        ("hosts", '[a]\nmq2 mq_instances=\'[{"name": "blue"}]\'\n', "has them on the line of mq2"),
        ("inventory.py", "#!/usr/bin/env python3\nprint({})\n", "is a program"),
        ("inventory.yml", "all: {hosts: {'mq[1:2]': {mq_instances: []}}}\n", r"mq\[1:2\] in .* makes mq2 as well"),
        ("inventory.yml", "all: {hosts: {mq2: {mq_instances: [{name: blue}]}}}\n", "no other instance than blue"),
        (
            "inventory.yml",
            "all:\n  hosts:\n    mq2: &both\n      mq_instances: [{name: blue}, {name: red}]\n    mq3: *both\n",
            "would mean something else as well",
        ),
        (
            "inventory.yml",
            "x: &list {mq_instances: [{name: blue}, {name: red}]}\nall: {hosts: {mq2: {<<: *list, a: 1}}}\n",
            "would mean something else as well",
        ),
    ],
)
def test_an_instance_that_cannot_surely_be_taken_out_is_a_persons_to(name: str, text: str, why: str) -> None:
    with pytest.raises(ByHand, match=why):
        without_instance(text, "mq2", "blue", name)


def test_lists_of_instances_of_groups_and_of_other_inventories_stay() -> None:
    """They are of other hosts as well, or of nobody."""
    for name, text in (
        ("inventory.yml", "all:\n  vars: {mq_instances: [{name: blue}, {name: red}]}\n  hosts:\n    mq2:\n"),
        ("hosts", "[a]\nmq2 ansible_host=192.0.2.2\nmq20 mq_instances=x\n"),
    ):
        assert without_instance(text, "mq2", "blue", name) == text


def test_what_stands_beside_the_inventory_changes_as_well(tmp_path: Path) -> None:
    """Ansible takes it before what stands in there; of a file that says nothing of instances nothing is told."""
    inventory, own = tmp_path / "inventory.yml", tmp_path / "host_vars/mq2"
    own.mkdir(parents=True)
    inventory.write_text("all:\n  hosts:\n    mq2:\n")
    assert changes_of([inventory], "mq2", "blue") == (
        [], ["no file of the inventory gives mq2 mq_instances of its own; take mq2/blue out by hand"],
    )  # fmt: skip
    (own / "vault.yml").write_text("$ANSIBLE_VAULT;1.1;AES256\n31323334\n3132\n")
    (own / "main.yml").write_text("mq_instances:\n  - name: blue\n  - name: green\nmq_rack: b\n")
    changes, by_hand = changes_of([inventory], "mq2", "blue")
    assert ([(one.name, one.after) for one in changes], by_hand) == (
        [(str(own / "main.yml"), "mq_instances:\n  - name: green\nmq_rack: b\n")], [],
    )  # fmt: skip
    inventory.write_text("all: {hosts: {'mq[1:2]': }}\n")
    assert changes_of([inventory], "mq2", "blue") == (changes, [])
    inventory.write_text("all: {hosts: {'mq[1:2]': {mq_instances: [{name: blue}]}}}\n")
    changes, by_hand = changes_of([inventory], "mq2", "blue")
    assert len(changes) == 1
    assert by_hand == [f"{inventory}: mq[1:2] in inventory.yml makes mq2 as well; take mq2/blue out by hand"]


@pytest.mark.parametrize("link", ["mq2", "mq2.yml", "."])
def test_what_a_link_leads_to_may_be_of_others_and_is_a_persons_to_change(tmp_path: Path, link: str) -> None:
    """Only a link of the whole folder leads to nothing but what is of the host."""
    inventory, shared, places = tmp_path / "inventory.yml", tmp_path / "shared", tmp_path / "host_vars"
    inventory.write_text("all:\n  hosts:\n    mq2:\n")
    shared.mkdir()
    text = "mq_instances:\n  - name: blue\n  - name: green\n"
    (shared / "mq2.yml").write_text(text)
    if link == ".":
        places.symlink_to(shared)
    else:
        places.mkdir()
        (places / link).symlink_to(shared if link == "mq2" else shared / "mq2.yml")
    changes, by_hand = changes_of([inventory], "mq2", "blue")
    if link == ".":
        assert (len(changes), by_hand) == (1, [])
    else:
        file = places / "mq2/mq2.yml" if link == "mq2" else places / link
        assert changes == []
        assert by_hand == [f"{file} is a link, and may be of other hosts as well; take mq2/blue out by hand"]


def test_what_ansible_does_not_read_stays(tmp_path: Path) -> None:
    own = tmp_path / "host_vars/mq2"
    own.mkdir(parents=True)
    (tmp_path / "inventory.yml").write_text("all:\n  hosts:\n    mq2:\n")
    for name in ("main.yml", "main.yml~", "main.yml.bak", ".main.yml"):
        (own / name).write_text("mq_instances:\n  - name: blue\n  - name: green\n")
    changes, _ = changes_of([tmp_path / "inventory.yml"], "mq2", "blue")
    assert [one.name for one in changes] == [str(own / "main.yml")]
