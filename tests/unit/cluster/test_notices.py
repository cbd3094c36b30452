"""Notices: what is encoded comes back, and bytes are a notice, a kind that is not known, or the fault of the link."""

from __future__ import annotations

import json
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mqbroker.base.errors import PeerFault, Scope
from mqbroker.cluster import notices as n
from mqbroker.cluster.fields import Connector
from mqbroker.cluster.notices import decode, encode

NODE = "00000002-0000-4000-8000-000000000000"
OWN = Connector("own", "amqps", "mq2.example.org", 5673)
ALL: list[tuple[n.ClusterNotice, str]] = [
    (
        n.Member(NODE, "0" * 32, "mq2", (OWN,), n.Version(7, 1)),
        f'{{"kind":"member","node_id":"{NODE}","boot_id":"{"0" * 32}","name":"mq2","connectors":[{{"name":"own",'
        '"scheme":"amqps","host":"mq2.example.org","port":5673}],"version":[7,1]}',
    ),
    (
        n.Member(NODE, "0" * 32, "mq2", (), n.Version(7, 1), "LOCAL", (OWN,)),
        f'{{"kind":"member","node_id":"{NODE}","boot_id":"{"0" * 32}","name":"mq2","connectors":[],"version":[7,1],'
        '"grouping":"LOCAL","clients":[{"name":"own","scheme":"amqps","host":"mq2.example.org","port":5673}]}',
    ),
    (n.MemberGone(NODE, n.Version(7, 2)), f'{{"kind":"member-gone","node_id":"{NODE}","version":[7,2]}}'),
    (n.Reset(), '{"kind":"reset"}'),
    (
        n.BindingAdded("orders", "sales", "anycast", "a = 'ä'", NODE, 0),
        '{"kind":"binding-added","queue":"orders","address":"sales","routing":"anycast","selector":"a = \'ä\'",'
        f'"node_id":"{NODE}","distance":0}}',
    ),
    (n.BindingRemoved("orders" + NODE), f'{{"kind":"binding-removed","cluster_name":"orders{NODE}"}}'),
    (
        n.BindingRemoved("orders" + NODE, deleted=True),
        f'{{"kind":"binding-removed","cluster_name":"orders{NODE}","deleted":true}}',
    ),
    (
        n.ConsumerCreated("orders" + NODE, ""),
        f'{{"kind":"consumer-created","cluster_name":"orders{NODE}","selector":""}}',
    ),
    (
        n.ConsumerClosed("orders" + NODE, "a = 1"),
        f'{{"kind":"consumer-closed","cluster_name":"orders{NODE}","selector":"a = 1"}}',
    ),
    (n.ResetComplete(), '{"kind":"reset-complete"}'),
    (
        n.BindingAdded("orders", "sales", "multicast", "", NODE, 1, volatile=True),
        '{"kind":"binding-added","queue":"orders","address":"sales","routing":"multicast","selector":"",'
        f'"node_id":"{NODE}","distance":1,"volatile":true}}',
    ),
    (
        n.BindingAdded("orders", "sales", "anycast", "", NODE, 1, exclusive=True),
        '{"kind":"binding-added","queue":"orders","address":"sales","routing":"anycast","selector":"",'
        f'"node_id":"{NODE}","distance":1,"exclusive":true}}',
    ),
    (
        n.BindingAdded("DLQ.orders", "dead", "multicast", "", NODE, 1, moved_from="orders"),
        '{"kind":"binding-added","queue":"DLQ.orders","address":"dead","routing":"multicast","selector":"",'
        f'"node_id":"{NODE}","distance":1,"moved_from":"orders"}}',
    ),
    (
        n.Member(NODE, "0" * 32, "mq2", (), n.Version(7, 1), scale_down_group="east"),
        f'{{"kind":"member","node_id":"{NODE}","boot_id":"{"0" * 32}","name":"mq2","connectors":[],"version":[7,1],'
        '"scale_down_group":"east"}',
    ),
    (
        n.Member(NODE, "0" * 32, "mq2", (), n.Version(7, 1), journal_formats=(1, 2)),
        f'{{"kind":"member","node_id":"{NODE}","boot_id":"{"0" * 32}","name":"mq2","connectors":[],"version":[7,1],'
        '"journal_formats":[1,2]}',
    ),
    (n.MemberGone(NODE, n.Version(7, 2, 3)), f'{{"kind":"member-gone","node_id":"{NODE}","term":3,"version":[7,2]}}'),
    (
        n.GroupClusterNotice(n.PROPOSAL, "orders", "g", "orders" + NODE, NODE, NODE, 7),
        f'{{"kind":"group","act":"proposal","queue":"orders","group_id":"g","cluster_name":"orders{NODE}",'
        f'"node_id":"{NODE}","to":"{NODE}","number":7,"distance":0}}',
    ),
    (
        n.GroupClusterNotice(n.RESPONSE, "orders", "g", "", NODE, "", 8, 1),
        f'{{"kind":"group","act":"response","queue":"orders","group_id":"g","cluster_name":"","node_id":"{NODE}",'
        '"to":"","number":8,"distance":1}',
    ),
]


@pytest.mark.parametrize(("notice", "text"), ALL)
def test_form(notice: n.ClusterNotice, text: str) -> None:
    assert encode(notice).decode() == text
    assert decode(text.encode()) == notice


def test_every_kind_is_told_and_heard() -> None:
    assert {type(notice) for notice, _ in ALL} == set(get_args(n.ClusterNotice)) == set(n.KINDS)


texts = st.text(max_size=20)
names = texts.map(lambda name: name + NODE)
numbers = st.integers(0, n.VERSION_MAX)
versions = st.builds(n.Version, numbers, numbers, numbers)


@pytest.mark.slow
@given(
    st.one_of(
        st.builds(n.BindingAdded, texts, texts, st.sampled_from(["anycast", "multicast"]), texts, st.just(NODE),
                  st.integers(0, n.DISTANCE_MAX)),
        st.builds(n.BindingRemoved, names, st.booleans()),
        st.builds(n.ConsumerCreated, names, texts),
        st.builds(n.ConsumerClosed, names, texts),
        st.builds(n.MemberGone, st.just(NODE), versions),
        st.builds(n.Member, st.just(NODE), st.just("a" * 32), st.just("mq2"), st.sampled_from([(), (OWN,)]), versions,
                  st.sampled_from(["", "LOCAL", "REMOTE"])),
        st.builds(n.GroupClusterNotice, st.sampled_from([n.PROPOSAL, n.RESPONSE, n.UNPROPOSAL]), texts, texts, names,
                  st.just(NODE), st.sampled_from(["", NODE]), st.integers(0, n.VERSION_MAX),
                  st.integers(0, n.DISTANCE_MAX)),
    )
)  # fmt: skip
def test_what_is_encoded_comes_back(notice: n.ClusterNotice) -> None:
    assert decode(encode(notice)) == notice


@pytest.mark.parametrize("kind", ["proposal", "", "RESET"])
def test_a_kind_that_is_not_known_is_passed_over(kind: str) -> None:
    assert decode(json.dumps({"kind": kind, "x": [1]}).encode()) is None


def test_keys_that_are_not_known_are_passed_over() -> None:
    assert decode(b'{"kind":"reset","zone":"a"}') == n.Reset()


CHANGES: list[tuple[n.ClusterNotice, dict[str, Any]]] = [
    (ALL[-1][0], {"act": "other"}), (ALL[-1][0], {"to": "mq2"}), (ALL[-1][0], {"distance": n.DISTANCE_MAX + 1}),
    (ALL[-2][0], {"cluster_name": "orders"}), (ALL[0][0], {"grouping": "BOTH"}),
    (ALL[0][0], {"clients": [5]}), (ALL[0][0], {"clients": None}), (ALL[0][0], {"clients": [{}] * 9}),
    (ALL[0][0], {"node_id": "mq2"}), (ALL[0][0], {"boot_id": 5}), (ALL[0][0], {"name": ""}),
    (ALL[0][0], {"connectors": [5]}), (ALL[0][0], {"connectors": None}), (ALL[0][0], {"version": [1]}),
    (ALL[0][0], {"version": [1, -1]}), (ALL[0][0], {"version": [1, True]}), (ALL[2][0], {"version": "1.2"}),
    (ALL[0][0], {"term": -1}), (ALL[0][0], {"term": True}), (ALL[2][0], {"term": "7"}), (ALL[2][0], {"term": 2**63}),
    (ALL[0][0], {"version": [1, 2, 3]}), (ALL[0][0], {"scale_down_group": 5}), (ALL[0][0], {"scale_down_group": "a b"}),
    (ALL[4][0], {"routing": "ANYCAST"}), (ALL[4][0], {"distance": -1}), (ALL[4][0], {"distance": 65}),
    (ALL[4][0], {"queue": 5}), (ALL[4][0], {"node_id": NODE.upper() + "x"}), (ALL[5][0], {"cluster_name": "orders"}),
    (ALL[4][0], {"volatile": "yes"}), (ALL[4][0], {"exclusive": 1}), (ALL[4][0], {"moved_from": None}),
    (ALL[7][0], {"selector": None}), (ALL[8][0], {"cluster_name": NODE + "x"}), (ALL[3][0], {"kind": 5}),
]  # fmt: skip


@pytest.mark.parametrize(("notice", "change"), CHANGES)
def test_what_is_malformed_is_the_fault_of_the_link(notice: n.ClusterNotice, change: dict[str, Any]) -> None:
    row = json.loads(encode(notice)) | change
    with pytest.raises(PeerFault, match="a notice of the cluster is malformed: ") as found:
        decode(json.dumps(row).encode())
    assert found.value.scope is Scope.LINK


@pytest.mark.parametrize("data", [b"", b"[]", b"reset", b'{"kind":"reset","kind":"reset"}', b"\xff"])
def test_what_is_no_object_is_the_fault_of_the_link(data: bytes) -> None:
    with pytest.raises(PeerFault, match="a notice of the cluster is no"):
        decode(data)


def test_a_notice_has_a_bound() -> None:
    longest = encode(n.ConsumerCreated("q" + NODE, ""))
    longest = encode(n.ConsumerCreated("q" + NODE, "x" * (n.NOTICE_BYTES_MAX - len(longest))))
    assert decode(longest) is not None
    with pytest.raises(PeerFault, match="has 65537 bytes; 65536 are allowed"):
        decode(longest + b" ")


@given(st.binary(max_size=60), st.integers(0, len(ALL) - 1), st.integers(0, 60))
def test_bytes_are_a_notice_or_a_fault(noise: bytes, number: int, place: int) -> None:
    text = ALL[number][1].encode()
    scopes = {Scope.LINK}
    for data in (noise, text[:place] + noise + text[place:], text[:place]):
        try:
            decode(data)
        except PeerFault as fault:
            scopes.add(fault.scope)
    assert scopes == {Scope.LINK}
