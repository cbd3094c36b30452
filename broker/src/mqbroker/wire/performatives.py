"""Performatives, termini, delivery states, transactions and SASL frames: the table of what each of them holds.

Class bodies are the declaration (see `composites`): AMQP's field names with underscores, AMQP's order, AMQP's defaults.
Enumerations are plain values with their range checked. Source: AMQP 1.0 §2.7, §2.8, §3.4, §3.5, §4.5, §5.3.
"""

from __future__ import annotations

from typing import Annotated, Any, Final

from mqbroker.base.frozen import frozen
from mqbroker.wire.composites import (
    ANY,
    BINARY,
    BOOLEAN,
    FIELDS,
    MAP,
    STRING,
    SYMBOL,
    SYMBOLS,
    UBYTE,
    UINT,
    ULONG,
    USHORT,
    checked,
    composite,
    decode_composite,
    encode_composite,
    invalid_field,
    one_of,
)
from mqbroker.wire.decode import Buffer, decode_fault
from mqbroker.wire.frames import AMQP_FRAME, FRAME_SIZE_MAX_LOWEST, SASL_FRAME, Frame
from mqbroker.wire.values import Symbol

UINT_MAX: Final = 0xFFFFFFFF
USHORT_MAX: Final = 0xFFFF
TAG_SIZE_MAX: Final = 32

SENDER: Final = False
RECEIVER: Final = True

SETTLE_UNSETTLED: Final = 0
SETTLE_SETTLED: Final = 1
SETTLE_MIXED: Final = 2

SETTLE_FIRST: Final = 0
SETTLE_SECOND: Final = 1

_EXPIRY_POLICIES: Final = ("link-detach", "session-end", "connection-close", "never")

Bool = Annotated[bool, BOOLEAN]
OptBool = Annotated[bool | None, BOOLEAN]
UInt32 = Annotated[int, UINT]
OptUInt32 = Annotated[int | None, UINT]
Text = Annotated[str, STRING]
OptText = Annotated[str | None, STRING]
Symbols = Annotated[tuple[Symbol, ...] | None, SYMBOLS]
Blob = Annotated[bytes, BINARY]
OptBlob = Annotated[bytes | None, BINARY]
OptFields = Annotated[dict[Symbol, Any] | None, FIELDS]

_FRAME_SIZE = checked(UINT, lambda size: size >= FRAME_SIZE_MAX_LOWEST, f"be at least {FRAME_SIZE_MAX_LOWEST}")
_TAG = checked(BINARY, lambda tag: len(tag) <= TAG_SIZE_MAX, f"have at most {TAG_SIZE_MAX} bytes")
_SENDER_MODE = checked(UBYTE, lambda mode: mode <= SETTLE_MIXED, "be 0, 1 or 2")
_RECEIVER_MODE = checked(UBYTE, lambda mode: mode <= SETTLE_SECOND, "be 0 or 1")
_DURABILITY = checked(UINT, lambda level: level <= 2, "be 0, 1 or 2")
_EXPIRY = checked(SYMBOL, lambda policy: policy in _EXPIRY_POLICIES, f"be one of {', '.join(_EXPIRY_POLICIES)}")
_DISTRIBUTION = checked(SYMBOL, lambda mode: mode in ("move", "copy"), "be move or copy")
_SASL_CODE = checked(UBYTE, lambda code: code <= 4, "be at most 4")

Durability = Annotated[int, _DURABILITY]
ExpiryPolicy = Annotated[Symbol, _EXPIRY]
_SESSION_END: Final = Symbol("session-end")


@composite(0x1D, "amqp:error:list")
@frozen()
class Error:
    condition: Annotated[Symbol, SYMBOL]
    description: OptText = None
    info: OptFields = None


OptError = Annotated[Error | None, one_of("error", (Error,))]


# -- delivery states (§3.4) and those of transactions (§4.5) ----------------------------------------------------------


@composite(0x23, "amqp:received:list")
@frozen()
class Received:
    section_number: UInt32
    section_offset: Annotated[int, ULONG]


@composite(0x24, "amqp:accepted:list")
@frozen()
class Accepted:
    pass


@composite(0x25, "amqp:rejected:list")
@frozen()
class Rejected:
    error: OptError = None


@composite(0x26, "amqp:released:list")
@frozen()
class Released:
    pass


@composite(0x27, "amqp:modified:list")
@frozen()
class Modified:
    delivery_failed: Bool = False
    undeliverable_here: Bool = False
    message_annotations: OptFields = None


@composite(0x31, "amqp:declare:list")
@frozen()
class Declare:
    global_id: Annotated[Any | None, ANY] = None


@composite(0x32, "amqp:discharge:list")
@frozen()
class Discharge:
    txn_id: Blob
    fail: Bool = False


@composite(0x33, "amqp:declared:list")
@frozen()
class Declared:
    txn_id: Blob


Outcome = Accepted | Rejected | Released | Modified
OptOutcome = Annotated[Outcome | None, one_of("outcome", (Accepted, Rejected, Released, Modified))]


@composite(0x34, "amqp:transactional-state:list")
@frozen()
class TransactionalState:
    txn_id: Blob
    outcome: OptOutcome = None


_STATES: Final = (Accepted, Rejected, Released, Modified, Received, Declared, TransactionalState)

DeliveryState = Outcome | Received | Declared | TransactionalState
OptState = Annotated[DeliveryState | None, one_of("delivery-state", _STATES)]


# -- termini (§3.5, §4.5.1) -------------------------------------------------------------------------------------------


@composite(0x28, "amqp:source:list")
@frozen()
class Source:
    """Where messages come from. To AMQP an address is of any type; here it is a string, as in practice."""

    address: OptText = None
    durable: Durability = 0
    expiry_policy: ExpiryPolicy = _SESSION_END
    timeout: UInt32 = 0
    dynamic: Bool = False
    dynamic_node_properties: OptFields = None
    distribution_mode: Annotated[Symbol | None, _DISTRIBUTION] = None
    filter: OptFields = None
    default_outcome: OptOutcome = None
    outcomes: Symbols = None
    capabilities: Symbols = None


@composite(0x29, "amqp:target:list")
@frozen()
class Target:
    address: OptText = None
    durable: Durability = 0
    expiry_policy: ExpiryPolicy = _SESSION_END
    timeout: UInt32 = 0
    dynamic: Bool = False
    dynamic_node_properties: OptFields = None
    capabilities: Symbols = None


@composite(0x30, "amqp:coordinator:list")
@frozen()
class Coordinator:
    capabilities: Symbols = None


OptSource = Annotated[Source | None, one_of("source", (Source,))]
OptTarget = Annotated[Target | Coordinator | None, one_of("target", (Target, Coordinator))]


# -- performatives (§2.7) ---------------------------------------------------------------------------------------------


@composite(0x10, "amqp:open:list")
@frozen()
class Open:
    container_id: Text
    hostname: OptText = None
    max_frame_size: Annotated[int, _FRAME_SIZE] = UINT_MAX
    channel_max: Annotated[int, USHORT] = USHORT_MAX
    idle_time_out: OptUInt32 = None
    outgoing_locales: Symbols = None
    incoming_locales: Symbols = None
    offered_capabilities: Symbols = None
    desired_capabilities: Symbols = None
    properties: OptFields = None


@composite(0x11, "amqp:begin:list")
@frozen()
class Begin:
    remote_channel: Annotated[int | None, USHORT]
    next_outgoing_id: UInt32
    incoming_window: UInt32
    outgoing_window: UInt32
    handle_max: UInt32 = UINT_MAX
    offered_capabilities: Symbols = None
    desired_capabilities: Symbols = None
    properties: OptFields = None


@composite(0x12, "amqp:attach:list")
@frozen()
class Attach:
    name: Text
    handle: UInt32
    role: Bool
    snd_settle_mode: Annotated[int, _SENDER_MODE] = SETTLE_MIXED
    rcv_settle_mode: Annotated[int, _RECEIVER_MODE] = SETTLE_FIRST
    source: OptSource = None
    target: OptTarget = None
    unsettled: Annotated[dict[Any, Any] | None, MAP] = None
    incomplete_unsettled: Bool = False
    initial_delivery_count: OptUInt32 = None
    max_message_size: Annotated[int | None, ULONG] = None
    offered_capabilities: Symbols = None
    desired_capabilities: Symbols = None
    properties: OptFields = None


@composite(0x13, "amqp:flow:list")
@frozen()
class Flow:
    next_incoming_id: OptUInt32
    incoming_window: UInt32
    next_outgoing_id: UInt32
    outgoing_window: UInt32
    handle: OptUInt32 = None
    delivery_count: OptUInt32 = None
    link_credit: OptUInt32 = None
    available: OptUInt32 = None
    drain: Bool = False
    echo: Bool = False
    properties: OptFields = None


@composite(0x14, "amqp:transfer:list")
@frozen()
class Transfer:
    """`settled` stays None where it is not said: in later frames of a delivery that differs from False (§2.7.5)."""

    handle: UInt32
    delivery_id: OptUInt32 = None
    delivery_tag: Annotated[bytes | None, _TAG] = None
    message_format: OptUInt32 = None
    settled: OptBool = None
    more: Bool = False
    rcv_settle_mode: Annotated[int | None, _RECEIVER_MODE] = None
    state: OptState = None
    resume: Bool = False
    aborted: Bool = False
    batchable: Bool = False


@composite(0x15, "amqp:disposition:list")
@frozen()
class Disposition:
    role: Bool
    first: UInt32
    last: OptUInt32 = None
    settled: Bool = False
    state: OptState = None
    batchable: Bool = False


@composite(0x16, "amqp:detach:list")
@frozen()
class Detach:
    handle: UInt32
    closed: Bool = False
    error: OptError = None


@composite(0x17, "amqp:end:list")
@frozen()
class End:
    error: OptError = None


@composite(0x18, "amqp:close:list")
@frozen()
class Close:
    error: OptError = None


# -- SASL (§5.3.3) ----------------------------------------------------------------------------------------------------


@composite(0x40, "amqp:sasl-mechanisms:list")
@frozen()
class SaslMechanisms:
    sasl_server_mechanisms: Annotated[tuple[Symbol, ...], SYMBOLS]


@composite(0x41, "amqp:sasl-init:list")
@frozen(repr=False)
class SaslInit:
    mechanism: Annotated[Symbol, SYMBOL]
    initial_response: OptBlob = None
    hostname: OptText = None


@composite(0x42, "amqp:sasl-challenge:list")
@frozen(repr=False)
class SaslChallenge:
    challenge: Blob


@composite(0x43, "amqp:sasl-response:list")
@frozen(repr=False)
class SaslResponse:
    response: Blob


@composite(0x44, "amqp:sasl-outcome:list")
@frozen(repr=False)
class SaslOutcome:
    code: Annotated[int, _SASL_CODE]
    additional_data: OptBlob = None


AmqpPerformative = Open | Begin | Attach | Flow | Transfer | Disposition | Detach | End | Close
SaslPerformative = SaslMechanisms | SaslInit | SaslChallenge | SaslResponse | SaslOutcome
Performative = AmqpPerformative | SaslPerformative
Composite = Performative | DeliveryState | Source | Target | Coordinator | Declare | Discharge | Error

_OF_AMQP: Final = (Open, Begin, Attach, Flow, Transfer, Disposition, Detach, End, Close)
_OF_SASL: Final = (SaslMechanisms, SaslInit, SaslChallenge, SaslResponse, SaslOutcome)


def encode(value: Composite) -> bytes:
    """A performative (or any other composite of this module) with its descriptor."""
    return encode_composite(value)


def decode_performative(buffer: Buffer, offset: int, end: int) -> tuple[Performative, int]:
    """The performative at `offset` and where its payload starts. Raises PeerFault with the scope of the connection."""
    performative: Performative
    performative, payload = decode_composite(buffer, offset, end, _OF_AMQP + _OF_SASL)
    return performative, payload


def decode_frame(buffer: Buffer, frame: Frame) -> tuple[Performative | None, int]:
    """The performative of a frame, None in an empty one, and where its payload starts; only what its type may carry."""
    performative: Performative
    if frame.type == AMQP_FRAME:
        if frame.body_offset == frame.end:
            return None, frame.end
        performative, payload = decode_composite(buffer, frame.body_offset, frame.end, _OF_AMQP)
        return performative, payload
    if frame.type != SASL_FRAME:
        raise decode_fault(f"unknown frame type {frame.type}", frame.body_offset)
    performative, payload = decode_composite(buffer, frame.body_offset, frame.end, _OF_SASL)
    if payload != frame.end:
        raise decode_fault("SASL frame with bytes behind its performative", payload)
    return performative, payload


def decode_coordination(buffer: Buffer, offset: int, end: int) -> Declare | Discharge:
    """What a message to a transaction coordinator asks for: the value in its amqp-value section (§4.5.2, §4.5.3)."""
    value: Declare | Discharge
    value, after = decode_composite(buffer, offset, end, (Declare, Discharge))
    if after != end:
        raise invalid_field("one value expected in a message to the coordinator", after)
    return value
