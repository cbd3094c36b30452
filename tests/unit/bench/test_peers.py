"""The process of a peer: it is killed as by a crash, and started again where it was."""

import sys
from pathlib import Path

import pytest

from bench.faults import BenchFault
from bench.peers.peer import Peer, accepts

LISTENER = "import socket, sys, time; s = socket.create_server(('127.0.0.1', int(sys.argv[1]))); time.sleep(60)"


class Listener(Peer):
    """The least that there is to a broker."""

    kind = "listener"

    def prepare(self) -> None:
        """Nothing."""

    def command(self) -> list[str]:
        """Takes connections, and says nothing."""
        return [sys.executable, "-c", LISTENER, str(self.port)]


def test_a_killed_peer_is_gone_and_can_be_started_again(tmp_path: Path) -> None:
    peer = Listener("listener-1", tmp_path)
    try:
        peer.launch()
        first = peer.pid
        peer.kill()
        assert not accepts(peer.port)
        with pytest.raises(BenchFault, match="listener-1 is not running"):
            peer.pid  # noqa: B018
        peer.kill()
        peer.launch()
        assert peer.pid != first
        assert accepts(peer.port)
    finally:
        peer.stop()
