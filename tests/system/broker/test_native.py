"""The native build: its wheel is made for real, and what holds for Python's modules is shown of the compiled ones.

All modules are compiled once and untrained, as what they do is the same; that a build is guided by its training is
shown of some of them. A wheel with all of it, as hosts have it, is what `make bench` measures.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from mqbroker.client import Message, sync
from mqctl.bundle import native

from tests.support.broker_process import BrokerProcess

ROOT = Path(__file__).resolve().parents[3]
BUILD_TIME_S_MAX = 900
RUN_TIME_S_MAX = 300
COLD_PARTS_MIN = 20  # of these, trained; none where they are not
# No class of these has others derived from it, which would have to be compiled as well.
SOME = tuple(f"wire/{name}" for name in ("header_section", "parts", "scan", "walk"))
BUILD = """
import sys
from pathlib import Path
import native_build
print(*native_build.compile_modules(Path(sys.argv[1]), sys.argv[2:]))
"""
# Some of each kind of history; what they come to is compared with what Python's modules come to.
HISTORIES = """
import hashlib
from mqbroker.base.native import NATIVE
from tests.sim.histories import FEATURES, LARGE_FROM, PAGING_FROM, TRANSACTIONS, Simulation, seeds_of
print(NATIVE)
for seed in [*range(6), *seeds_of(TRANSACTIONS, 3), *seeds_of(FEATURES, 3), PAGING_FROM, PAGING_FROM + 1, LARGE_FROM]:
    verdict = Simulation(seed).run()
    digest = hashlib.sha256(repr(verdict.trace).encode()).hexdigest()
    print(seed, verdict.violations, verdict.accepted, verdict.received, digest)
"""
GOLDEN = """
import sys
import pytest
from mqbroker.base.native import IS_NATIVE
assert IS_NATIVE
sys.exit(pytest.main(["-q", "-p", "no:cacheprovider", "tests/golden"]))
"""

pytestmark = [pytest.mark.slow, pytest.mark.timeout(BUILD_TIME_S_MAX + RUN_TIME_S_MAX)]


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the content of the native wheel, out of a native bundle without dependencies."""
    out = tmp_path_factory.mktemp("native")
    (out / "empty.lock").write_text("# nothing\n")
    words = ["bundle", "build", "--native", "--lock", "empty.lock", "--wheels", ".", "--output", "dist"]
    subprocess.run(
        [sys.executable, "-m", "mqctl.main", *words, "--source", ROOT, "--platform", hosts_like_this()],
        cwd=out, env={**os.environ, "MQBROKER_NATIVE_TRAINED": "0"}, check=True, timeout=BUILD_TIME_S_MAX,
    )  # fmt: skip
    (bundle,) = (out / "dist").iterdir()
    (wheel,) = (bundle / "wheels").glob("mqbroker-*.whl")
    manifest = json.loads((bundle / "manifest.json").read_text())
    assert manifest["native"] is True
    assert wheel.name.endswith(f"-{manifest['abi']}-{manifest['abi']}-linux_{manifest['machine']}.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(out / "content")
    return out / "content"


def hosts_like_this() -> str:
    builder = native.here(os.environ)
    return f"manylinux_2_{builder.glibc_minor}_{builder.machine}"


def printed(code: str, first: Path | None, *arguments: str) -> str:
    """What Python code prints, with `first` before all other places that modules are found in."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    places = [*([str(first)] if first else []), environ.get("PYTHONPATH", ""), str(ROOT)]
    environ["PYTHONPATH"] = os.pathsep.join(place for place in places if place)
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], cwd=ROOT, env=environ, capture_output=True, text=True,
        timeout=RUN_TIME_S_MAX, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_histories_come_to_the_same_as_with_pythons_modules(installed: Path) -> None:
    compiled, python = printed(HISTORIES, installed).splitlines(), printed(HISTORIES, None).splitlines()
    assert (compiled[0], python[0]) == ("yes", "no")
    assert compiled[1:] == python[1:]
    assert len(compiled) > 10


def test_it_is_guided_by_a_profile(tmp_path: Path) -> None:
    # What a profile says is never reached gcc moves out of the way, under names with this ending. Without one it does
    # so with places that lead to calls marked as cold, of which these modules have none.
    shutil.copytree(ROOT / "broker/src/mqbroker", tmp_path / "mqbroker")
    modules = tomllib.loads((ROOT / "broker/pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    names = [name for name in modules["hooks"]["custom"]["modules"] if name in SOME]
    environ = {**os.environ, "PYTHONPATH": str(ROOT / "broker")}
    done = subprocess.run(
        [sys.executable, "-c", BUILD, tmp_path, *(f"mqbroker/{name}.py" for name in names)], env=environ,
        stdout=subprocess.PIPE, text=True, check=True, timeout=BUILD_TIME_S_MAX,
    )  # fmt: skip
    built = [Path(word) for word in done.stdout.split() if word.endswith(".so")]
    assert len(built) == len(names) + 1
    (library,) = (one for one in built if one.name.startswith("mqbroker_native__mypyc."))
    assert library.read_bytes().count(b".cold\0") > COLD_PARTS_MIN


def test_golden_conversations_hold(installed: Path) -> None:
    assert " passed" in printed(GOLDEN, installed)


def test_durable_messages_survive_kill_9(installed: Path, make_broker: Callable[..., BrokerProcess]) -> None:
    path = os.pathsep.join(filter(None, (str(installed), os.environ.get("PYTHONPATH"))))
    broker = make_broker(environment={"PYTHONPATH": path})
    broker.start()
    assert broker.admin("status")["native"] is True
    uri = f"amqp://{broker.user}:{broker.password}@{broker.host}:{broker.port}"
    sent = [f"message {number}" for number in range(500)]
    with sync.connect(uri) as connection, connection.sender("orders") as sender:
        for text in sent:
            sender.send(Message(text, durable=True))
    broker.kill()
    broker.start()
    found = []
    with sync.connect(uri) as connection:
        for message in connection.receiver("orders", credit=100):
            found.append(message.text)
            message.accept()
            if len(found) == len(sent):
                break
    assert found == sent
    assert broker.stop() == 0
    assert "Traceback" not in broker.log
    # A journal that is only looked at is read by mapping its files.
    code = "import sys; from mqbroker.app.main import main; sys.exit(main(sys.argv[1:]))"
    assert "good" in printed(code, installed, "journal", "check", "--data-directory", str(broker.data_directory))
