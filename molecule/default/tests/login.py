"""Logs in to a broker by SASL PLAIN and prints the outcome code: 0 if it may. Fed to a host's Python after TASK.

Spoken by hand, for hosts have no AMQP client. Source: AMQP 1.0 §5.3, RFC 4616.
"""

import json
import socket
import struct

PROTOCOL = b"AMQP\x03\x01\x00\x00"
MECHANISMS, INIT, OUTCOME = 0x40, 0x41, 0x44


def read(stream, count):
    data = b""
    while len(data) < count:
        more = stream.recv(count - len(data))
        if not more:
            raise SystemExit("the broker hung up")
        data += more
    return data


def frame(stream):
    """Type of the performative, and what follows its descriptor."""
    (size,) = struct.unpack(">I", read(stream, 4))
    body = read(stream, size - 4)[4:]
    return body[2], body[3:]


task = json.loads(TASK)  # noqa: F821 - put before this text
with socket.create_connection((task["address"], task["port"]), timeout=20) as stream:
    stream.sendall(PROTOCOL)
    assert read(stream, 8) == PROTOCOL
    assert frame(stream)[0] == MECHANISMS
    response = b"\0".join([b"", task["user"].encode(), task["password"].encode()])
    fields = b"\xa3\x05PLAIN" + b"\xa0" + bytes([len(response)]) + response
    init = b"\0\x53" + bytes([INIT]) + b"\xc0" + bytes([len(fields) + 1, 2]) + fields
    stream.sendall(struct.pack(">IBBH", len(init) + 8, 2, 1, 0) + init)
    kind, rest = frame(stream)
    assert kind == OUTCOME
    # list8 of one field at least, an ubyte: 0xc0 size count 0x50 code.
    print(rest[rest.index(0x50) + 1])
