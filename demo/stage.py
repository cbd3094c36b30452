"""Where the story plays: brokers, one of which loses its power, and the way to them."""

from __future__ import annotations

import shlex
import shutil
import sys
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from demo.narrator import Call, Narrator, Said

ROOT = Path(__file__).resolve().parents[1]
MQCTL = str(Path(sys.executable).parent / "mqctl")
COMMAND_TIME_S_MAX = 120.0


@dataclass(frozen=True, slots=True)
class Login:
    """How a client reaches the node."""

    url: str
    user: str
    password: str


class Stage(ABC):
    """What the story needs of the place that it plays in."""

    node: str
    power_cut_is: str
    # Two other nodes of one cluster, for a producer and a consumer; none where brokers work alone.
    ends: tuple[str, str] | None = None
    # A node that is taken out of the cluster, and the one that gets its messages.
    leaver: tuple[str, str] | None = None

    def __init__(self, narrator: Narrator) -> None:
        self.narrator = narrator

    @abstractmethod
    def clear(self) -> None:
        """Take down what a demo before left, on purpose or not."""

    @abstractmethod
    def set_up(self) -> None:
        """Everything up to running brokers."""

    @abstractmethod
    def enter(self, words: Sequence[str]) -> list[str]:
        """The command line that runs `words` where the brokers can be reached."""

    @abstractmethod
    def login(self, node: str = "") -> Login:
        """For a client of that node; without a name, of the one that loses its power."""

    @abstractmethod
    def power_off(self) -> None:
        """Cut the node's power."""

    @abstractmethod
    def power_on(self) -> None:
        """Start it again; return when it answers."""

    @abstractmethod
    def again(self) -> None:
        """Show that setting up once more changes nothing."""

    def tear_down(self) -> None:
        """Leave nothing."""
        self.clear()
        shutil.rmtree(self.narrator.place, ignore_errors=True)

    @abstractmethod
    def how_to_reach(self) -> list[str]:
        """For whoever keeps it: what to type."""

    def where(self, command: str) -> tuple[str, ...]:
        """What a command of mqctl needs here to find the brokers."""
        del command
        return ()

    def mqctl(
        self,
        *words: str,
        codes: tuple[int, ...] = (0,),
        quiet: bool = False,
        hidden: bool = False,
        time_s_max: float = COMMAND_TIME_S_MAX,
    ) -> Said:
        """Run mqctl here. `quiet` does not show what it prints, `hidden` not even that it is run."""
        full = [*words, *self.where(words[0])]
        shown = "" if hidden else f"mqctl {shlex.join(full)}".replace(f"{ROOT}/", "")
        return self.narrator.run(Call(self.enter([MQCTL, *full]), shown, codes, "", time_s_max, quiet))
