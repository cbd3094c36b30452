"""Commands of conversations about other nodes, whose part is played by hand.

balancing STRICT                      message-load-balancing; ON_DEMAND where nothing is said
remote B orders [topic] [address=A] [consumers=2] [wants=color='red'] [select=color='red'] [distance=2]
                                      node B has a queue, and so many consumers; `select` is the queue's own filter
gone B orders                         it has it no more
more B orders [wants=…] | less B orders [wants=…]        one consumer more, or less
unreachable B | reachable B           the link to node B
forwarded                             what waits for other nodes
take B 5                              node B's link takes so many; `refuse B`: no such queue
arrive B 7 orders [to=orders,news] [count=3] [durable]   node B forwards messages that it has numbered from 7 on
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mqbroker.core.cluster.remote_binding import RemoteBinding, cluster_name_of
from mqbroker.core.queue.queue import Queue, Segment
from mqbroker.wire.run import single
from mqbroker.wire.sections import Header, build_message, describe_message

if TYPE_CHECKING:
    from tests.golden.conversation import Conversation

HERE = "0" * 36


def node_id(name: str) -> str:
    return name.rjust(36, "-")


class Others:
    """What the other nodes of a conversation have."""

    def __init__(self, talk: Conversation) -> None:
        self._talk = talk
        self._mode = "ON_DEMAND"
        self._known: dict[tuple[str, str], RemoteBinding] = {}
        self._links: dict[str, list[tuple[Queue, Segment]]] = {}

    @property
    def _store(self) -> Any:
        store = self._talk.stage.broker.store
        store.arrivals.node_id = HERE
        return store

    @property
    def _bindings(self) -> Any:
        return self._store.remotes.connection("c", self._mode)

    def _say(self, line: str) -> None:
        self._talk.lines.append(line)

    def balancing(self, words: list[str]) -> None:
        self._mode = words[0]

    def remote(self, words: list[str]) -> None:
        who, queue, *rest = words
        options = dict(word.split("=", 1) for word in rest if "=" in word)
        routing = "multicast" if "topic" in rest else "anycast"
        binding = self._known[who, queue] = RemoteBinding(
            queue, options.get("address", queue), routing, options.get("select", ""), node_id(who), node_id(who),
            int(options.get("distance", 1)),
        )  # fmt: skip
        for _ in range(int(options.get("consumers", 1))):
            binding.consumer_created(options.get("wants", ""))
        self._bindings.add(binding)

    def gone(self, words: list[str]) -> None:
        self._bindings.remove(self._known.pop((words[0], words[1])))

    def consumer(self, words: list[str], *, comes: bool) -> None:
        binding = self._known[words[0], words[1]]
        wants = next((word.split("=", 1)[1] for word in words[2:]), "")
        (binding.consumer_created if comes else binding.consumer_closed)(wants)
        self._bindings.changed(binding)

    def reachable(self, words: list[str], *, is_connected: bool) -> None:
        for (who, _), binding in self._known.items():
            if who == words[0]:
                binding.is_connected = is_connected
                self._bindings.changed(binding)

    def forwarded(self, words: list[str]) -> None:
        assert not words
        queues = self._store.remotes.queues.values()
        for queue in sorted(queues, key=lambda each: each.kind.name):
            to = ",".join(name[:-36] for name in queue.kind.route)
            names = [_name(segment, index) for segment in queue.segments() for index in range(segment.n)]
            self._talk.lines.append(f"for {queue.kind.forwards_to.lstrip('-')} {to}: {' '.join(names) or 'nothing'}")

    # -- links ---------------------------------------------------------------------------------------------------------

    def take(self, words: list[str]) -> None:
        """The link takes messages in the order of their queues and settles them."""
        left = int(words[1])
        for queue in self._store.remotes.queues_of(node_id(words[0])):
            while left and queue.ready_count:
                segment = queue.take(left)
                left -= segment.n
                self._talk.lines += [f"{words[0]} takes: {_name(segment, index)}" for index in range(segment.n)]
                self._store.settle(queue, segment)

    def refuse(self, words: list[str]) -> None:
        """The other node has no such queue any more."""
        for queue in self._store.remotes.queues_of(node_id(words[0])):
            while queue.ready_count:
                self._store.remotes.reroute(queue, queue.take(1 << 30))
        self._known = {key: each for key, each in self._known.items() if key[0] != words[0]}

    def arrive(self, words: list[str]) -> None:
        who, first_id, address, *rest = words
        options = dict(word.split("=", 1) for word in rest if "=" in word)
        names = tuple(cluster_name_of(name, HERE) for name in options.get("to", address).split(","))
        arrival = self._store.arrivals.address_for(address, f"{node_id(who)}.1", names)
        if arrival is None:
            self._talk.lines.append(f"{who} is refused: no such queue")
            return
        for number in range(int(first_id), int(first_id) + int(options.get("count", 1))):
            body = f"m{number}".encode()
            run = single(build_message(body, header=Header(durable="durable" in rest)))
            waits = self._store.arrivals.publish(arrival, run, number)
            outcome = {None: "refused", True: "taken when it is on disk", False: "taken"}[waits]
            if waits:
                self._store.decisions.wait(self._say, f"{who} learns taken: m{number}")
            self._talk.lines.append(f"{who} forwards, {outcome}: m{number}")


def _name(segment: Segment, index: int) -> str:
    body: str = describe_message(segment.run.payload(segment.start + index))["body"]
    return body.split("|")[0]


VERBS = {
    "balancing": lambda talk, words: talk.others.balancing(words),
    "remote": lambda talk, words: talk.others.remote(words),
    "gone": lambda talk, words: talk.others.gone(words),
    "more": lambda talk, words: talk.others.consumer(words, comes=True),
    "less": lambda talk, words: talk.others.consumer(words, comes=False),
    "unreachable": lambda talk, words: talk.others.reachable(words, is_connected=False),
    "reachable": lambda talk, words: talk.others.reachable(words, is_connected=True),
    "forwarded": lambda talk, words: talk.others.forwarded(words),
    "take": lambda talk, words: talk.others.take(words),
    "refuse": lambda talk, words: talk.others.refuse(words),
    "arrive": lambda talk, words: talk.others.arrive(words),
}
