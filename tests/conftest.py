"""What all tests share: steadiness, and the rule that a run which counts skips nothing.

With CI=true a test that cannot run here is a failure: a green run then means that everything was tested, and not that
something was missing. EXAMPLES says how many examples a property is tried with; `make test` takes more than `make
check`. They are the same ones each time, unless a seed is given (--hypothesis-seed), or SOAK=1 asks for others.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Generator

import pytest
from hypothesis import HealthCheck, settings
from pluggy import Result

from tests.support.choice import choose, pytest_addoption
from tests.support.rotation import pytest_collection_modifyitems

__all__ = ["pytest_addoption", "pytest_collection_modifyitems"]

NOTHING_IS_SKIPPED = os.environ.get("CI", "") == "true"

# The machine may be slow or shared, so no example has a deadline of its own, and none is made too slowly;
# pytest-timeout ends what hangs.
EXAMPLES = int(os.environ.get("EXAMPLES", "25"))
PATIENT = settings(deadline=None, max_examples=EXAMPLES, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("fixed", PATIENT, derandomize=True)
settings.register_profile("seeded", PATIENT)
settings.load_profile("seeded" if os.environ.get("SOAK") else "fixed")


def pytest_configure(config: pytest.Config) -> None:
    choose(config)
    if config.getoption("--hypothesis-seed") is not None:
        settings.load_profile("seeded")
    # Started in the background by a shell, this process ignores SIGINT, and so would everything that tests start.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    config.addinivalue_line("markers", "option(path): changes behaviour by this option, `limits.link-credit`")


def pytest_unconfigure() -> None:
    # Where tests have forked processes; no other run has to have what they are forked off.
    if forks := sys.modules.get("tests.support.forks"):
        forks.close()


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """What was imported and found stays to the end: Python's collector, which many tests call, need not look."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport() -> Generator[None, Result[pytest.TestReport], None]:
    outcome = yield
    _refuse_skip(outcome.get_result())


@pytest.hookimpl(hookwrapper=True)
def pytest_make_collect_report() -> Generator[None, Result[pytest.CollectReport], None]:
    outcome = yield
    _refuse_skip(outcome.get_result())


def _refuse_skip(report: pytest.TestReport | pytest.CollectReport) -> None:
    """Turn a skip, or a failure that was announced as expected, into a failure that says so."""
    if not NOTHING_IS_SKIPPED or not report.skipped:
        return
    reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    report.outcome = "failed"
    vars(report).pop("wasxfail", None)
    report.longrepr = f"{report.nodeid}: {reason}\nWith CI=true nothing may be skipped."
