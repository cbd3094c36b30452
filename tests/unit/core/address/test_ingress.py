"""What says when a message came: an annotation, and nothing else of the message is another one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mqbroker.core.address.ingress import INGRESS_TIME, stamped
from mqbroker.wire.composites import encode_composite
from mqbroker.wire.run import Run, encode_payloads, heading, parse_run, single
from mqbroker.wire.scan import DELIVERY_ANNOTATIONS, MESSAGE_ANNOTATIONS, scan_sections
from mqbroker.wire.sections import Header, decode_annotations, encode_section
from mqbroker.wire.values import Long, Symbol

from tests.golden.conversation import Conversation, ScriptStage

NOW_MS = 1_700_000_000_123
HEADER = encode_composite(Header(durable=True, priority=7, ttl=5000))
DELIVERY = encode_section(DELIVERY_ANNOTATIONS, {Symbol("x-opt-hop"): 1})
MINE = encode_section(MESSAGE_ANNOTATIONS, {Symbol("x-opt-mine"): 1, INGRESS_TIME: Long(5)})
BODY = bytes.fromhex("005375a00161")
# Properties that are spelt out as hardly anybody does: they are passed on as they came.
BARE = bytes.fromhex("005373d00000000800000001a1026d31") + BODY


def run_of(*payloads: bytes) -> Run:
    frames = encode_payloads(payloads, heading(3, 4, False), 7)
    parsed = parse_run(frames, 0, len(frames), len(payloads), 1 << 30)
    assert parsed is not None
    assert parsed.run.count == len(payloads)
    return parsed.run


def annotations(payload: bytes) -> dict[object, object]:
    return dict(
        decode_annotations(payload, scan_sections(payload, 0, len(payload)).message_annotations, len(payload))[0]
    )


@pytest.mark.parametrize("before", [b"", HEADER, DELIVERY, HEADER + DELIVERY])
@pytest.mark.parametrize(("own", "rest"), [(b"", {}), (MINE, {Symbol("x-opt-mine"): 1})])
def test_all_else_stays_byte_for_byte(before: bytes, own: bytes, rest: dict[object, object]) -> None:
    (found,) = stamped(single(before + own + BARE), NOW_MS)
    payload = bytes(found.payload(0))
    assert payload.startswith(before)
    assert payload.endswith(BARE)
    assert annotations(payload) == {**rest, INGRESS_TIME: NOW_MS}
    assert found.section == single(before + BARE).section


@given(st.lists(st.binary(min_size=1, max_size=40), min_size=1, max_size=80), st.booleans())
def test_a_run_stays_a_run(bodies: list[bytes], is_durable: bool) -> None:
    head = encode_composite(Header(durable=is_durable))
    payloads = [head + b"\x00\x53\x75\xa0" + bytes([len(body)]) + body for body in bodies]
    found = stamped(run_of(*payloads), NOW_MS)
    assert len(found) == 1
    said = [bytes(found[0].payload(index)) for index in range(found[0].count)]
    assert [payload[len(head) :].endswith(one[len(head) :]) for payload, one in zip(said, payloads, strict=True)] == [
        True
    ] * len(bodies)
    assert all(annotations(payload)[INGRESS_TIME] == NOW_MS for payload in said)


def test_what_cannot_be_read_is_passed_on() -> None:
    broken = bytes.fromhex("005372c10302a301") + BODY
    assert [bytes(one.payload(0)) for one in stamped(single(broken), NOW_MS)] == [broken]


def test_messages_of_several_shapes_keep_their_order() -> None:
    payloads = [BODY, HEADER + BODY, HEADER + BODY, BODY]
    runs = [run for one in payloads for run in stamped(single(one), NOW_MS)]
    assert [bytes(run.payload(0)).startswith(HEADER) for run in runs] == [False, True, True, False]


@pytest.mark.option("address-settings.enable-ingress-timestamp")
@pytest.mark.parametrize("is_on", [True, False])
def test_the_setting(is_on: bool) -> None:
    script = Conversation()
    script.stage = ScriptStage(script, address_settings={"orders": {"enable_ingress_timestamp": is_on}})
    for command in ("connect c", "attach c to orders", "publish c orders count=3 color=red", "declare c t",
                    "publish c orders txn=t", "commit c t"):  # fmt: skip
        script.run(command)
    request = script.stage.ask("receive", address="orders", count_max=9, wait_ms=1)
    script.stage.wait(2)
    rows = script.stage.replies[request].result["messages"]
    stamps = [row.get("message_annotations", {}).get("x-opt-ingress-time") for row in rows]
    assert len(stamps) == 4
    assert (
        all(isinstance(each, int) and each > 1_600_000_000_000 for each in stamps) if is_on else set(stamps) == {None}
    )
    assert [row["application_properties"] for row in rows[:3]] == [{"color": "red"}] * 3


def test_what_the_broker_moves_says_when_it_came_first() -> None:
    script = Conversation()
    said = {"#": {"enable_ingress_timestamp": True, "dead_letter_address": "dead"}}
    script.stage = ScriptStage(script, address_settings=said)
    for command in ("connect p", "attach p to orders", "connect c", "attach c from orders credit=1"):
        script.run(command)
    came_ms = script.stage.at.wall_ms
    script.run("publish p orders")
    script.stage.wait(5_000)
    script.run("reject c m1")
    request = script.stage.ask("receive", address="dead", count_max=9, wait_ms=1)
    script.stage.wait(2)
    (row,) = script.stage.replies[request].result["messages"]
    assert row["message_annotations"]["x-opt-ingress-time"] == came_ms
