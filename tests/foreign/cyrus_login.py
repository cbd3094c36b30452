"""One SASL login over AMQP 1.0 by Cyrus SASL, with the client's half of the frames written by hand.

    cyrus_login.py PORT MECHANISM USER PASSWORD

Runs under /usr/bin/python3. Debian 12 builds Proton without Cyrus, so its own mechanisms are PLAIN, ANONYMOUS and
EXTERNAL; libsasl2 with its SCRAM plugin is the foreign half of a SCRAM login here. Prints one JSON row: offered
mechanisms, code of the outcome, whether Cyrus takes the server's signature for genuine.
"""

from __future__ import annotations

import ctypes
import json
import socket
import struct
import sys

SASL_HEADER = b"AMQP\x03\x01\x00\x00"
SASL_OK, SASL_CONTINUE = 0, 1
CB_USER, CB_AUTHNAME, CB_PASS, CB_LIST_END = 0x4001, 0x4002, 0x4004, 0
SIMPLE = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_void_p, ctypes.c_int, ctypes.POINTER(ctypes.c_char_p), ctypes.POINTER(ctypes.c_uint)
)
SECRET = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int, ctypes.POINTER(ctypes.c_void_p))


class Callback(ctypes.Structure):
    _fields_ = (("id", ctypes.c_ulong), ("proc", ctypes.c_void_p), ("context", ctypes.c_void_p))


class CyrusClient:
    """sasl_client_start and sasl_client_step with the answers of one user."""

    def __init__(self, user: str, password: str) -> None:
        self.library = ctypes.CDLL("libsasl2.so.2")
        self.name = ctypes.create_string_buffer(user.encode())
        raw = password.encode()
        # sasl_secret_t: a long with the length, then the bytes.
        self.secret = ctypes.create_string_buffer(struct.pack("@L", len(raw)) + raw + b"\x00")
        self.keep = (SIMPLE(self._name), SIMPLE(self._name), SECRET(self._secret))
        ids = (CB_USER, CB_AUTHNAME, CB_PASS)
        rows = [Callback(id_, ctypes.cast(proc, ctypes.c_void_p)) for id_, proc in zip(ids, self.keep, strict=True)]
        self.callbacks = (Callback * 4)(*rows, Callback(CB_LIST_END))
        self.connection = ctypes.c_void_p()
        self._check(self.library.sasl_client_init(None))
        self._check(
            self.library.sasl_client_new(
                b"amqp", b"localhost", None, None, self.callbacks, 0, ctypes.byref(self.connection)
            )
        )

    def _name(self, context, id_, result, length) -> int:
        result[0] = ctypes.cast(self.name, ctypes.c_char_p)
        return SASL_OK

    def _secret(self, connection, context, id_, secret) -> int:
        secret[0] = ctypes.cast(self.secret, ctypes.c_void_p)
        return SASL_OK

    def _check(self, code: int) -> int:
        if code not in (SASL_OK, SASL_CONTINUE):
            self.library.sasl_errdetail.restype = ctypes.c_char_p
            raise SystemExit(f"Cyrus: {code}: {self.library.sasl_errdetail(self.connection)!r}")
        return code

    def start(self, mechanisms: str) -> tuple[str, bytes]:
        out, size, chosen = ctypes.c_void_p(), ctypes.c_uint(), ctypes.c_char_p()
        code = self.library.sasl_client_start(
            self.connection, mechanisms.encode(), None, ctypes.byref(out), ctypes.byref(size), ctypes.byref(chosen)
        )
        self._check(code)
        return (chosen.value or b"").decode(), ctypes.string_at(out, size.value) if out.value else b""

    def step(self, data: bytes) -> tuple[int, bytes]:
        out, size = ctypes.c_void_p(), ctypes.c_uint()
        code = self.library.sasl_client_step(
            self.connection, data, len(data), None, ctypes.byref(out), ctypes.byref(size)
        )
        return code, ctypes.string_at(out, size.value) if out.value else b""


def frame(code: int, *fields: bytes) -> bytes:
    body = b"".join(fields)
    described = b"\x00\x53" + bytes([code, 0xC0, len(body) + 1, len(fields)]) + body
    return struct.pack(">IBBH", len(described) + 8, 2, 1, 0) + described


def binary(data: bytes) -> bytes:
    return b"\xa0" + bytes([len(data)]) + data


def read_frame(sock: socket.socket) -> tuple[int, bytes]:
    """Code of the performative and what follows its list's head."""
    size = struct.unpack(">I", exactly(sock, 4))[0]
    body = exactly(sock, size - 4)[4:]
    return body[2], body[6:] if body[3] == 0xC0 else body[12:]


def exactly(sock: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = sock.recv(size - len(data))
        if not more:
            raise SystemExit("the broker closed the connection")
        data += more
    return data


def mechanisms_in(fields: bytes) -> list[str]:
    """The array of symbols, whose elements have a length of one byte."""
    at, count = (4, fields[2]) if fields[0] == 0xE0 else (10, int.from_bytes(fields[5:9], "big"))
    names = []
    for _ in range(count):
        end = at + 1 + fields[at]
        names.append(fields[at + 1 : end].decode())
        at = end
    return names


def main() -> None:
    port, mechanism, user, password = sys.argv[1:]
    client = CyrusClient(user, password)
    with socket.create_connection(("127.0.0.1", int(port)), 60) as sock:
        sock.sendall(SASL_HEADER)
        assert exactly(sock, 8) == SASL_HEADER
        offered = mechanisms_in(read_frame(sock)[1])
        chosen, response = client.start(mechanism)
        sock.sendall(frame(0x41, b"\xa3" + bytes([len(chosen)]) + chosen.encode(), binary(response)))
        while True:
            code, fields = read_frame(sock)
            if code == 0x44:
                break
            result, response = client.step(fields[2 : 2 + fields[1]])
            client._check(result)
            sock.sendall(frame(0x43, binary(response)))
        outcome = fields[1]
        is_genuine = None
        if outcome == 0 and len(fields) > 2 and fields[2] == 0xA0:
            is_genuine = client.step(fields[4 : 4 + fields[3]])[0] == SASL_OK
    print(json.dumps({"offered": offered, "mechanism": chosen, "code": outcome, "is_genuine": is_genuine}))


if __name__ == "__main__":
    main()
