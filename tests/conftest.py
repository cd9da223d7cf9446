"""Fixtures of several test files, and what holds for all."""

import signal
from pathlib import Path

import pytest
from browsing import browser, visit  # noqa: F401
from hypothesis import settings

from cbprof.record.garbage import GarbageCollections

# No test asserts how long something takes. `scripts/test --hypothesis-profile thorough` tries more examples.
settings.register_profile("quick", deadline=None, max_examples=40)
settings.register_profile("thorough", deadline=None, max_examples=1000)
settings.load_profile("quick")

# Under nohup, and in the background of a shell, SIGINT is ignored, and so it would be in the runs that tests interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)

# A garbage collection may strike any test, look at its clock and add a span: only test_garbage.py is to see them.
_watch_collections = GarbageCollections.begin
setattr(GarbageCollections, "begin", lambda _: None)  # noqa: B010 - for mypy, a method is not assigned to

# What `-m "not slow"` leaves out, so that the rest takes less than a minute on two cores: files most of whose tests
# start processes, torch or a fleet, and single tests of a second or more. Those in a browser are slow too.
SLOW = (
    "async_order attach attention bench_analysis cli cli_pictures convert cupti engine_cuda engine_host "
    "faults_recording files fleet foreign_code formats_damaged fuse host_device lab lab_cuda limits model_load "
    "model_refuse model_runner notebooks options placement predict_virtual record_command record_program report_page "
    "sampling static vllm xpu"
)
SLOW_FILES = {f"test_{name}.py" for name in SLOW.split()}
SLOW_TESTS = {
    "test_cache.test_a_damaged_cache_is_read_as_none_and_written_anew",
    "test_charts.test_any_trace_gives_a_figure",
    "test_run_queue.test_a_process_on_the_core_of_the_engine_is_told",
    "test_compare.test_any_two_traces_compare",
    "test_compare.test_real_runs",
    "test_fleet_analysis.test_the_heat_map_keeps_all_idle_time",
    "test_formats_chrome.test_a_trace_survives_the_round_trip",
    "test_hazards.test_the_real_runs_are_within_the_clock_error",
    "test_nsys_damaged.test_flipped_bytes_do_no_harm",
    "test_predict.test_the_real_pair_within_one_percent",
    "test_step_raster.test_the_real_runs_drift_with_context",
    "test_summary.test_a_real_run",
    "test_terminal.test_real_runs_are_as_green_as_they_were_measured",
    "test_verdict.test_real_runs",
}


@pytest.fixture
def collections_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(GarbageCollections, "begin", _watch_collections)


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """Bytes never name a test: `gzip.compress` puts the second into them, and each worker collects for itself."""
    return argname if isinstance(val, bytes) else None


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """A file of slow tests is not imported where none of them is wanted: that alone takes seconds."""
    return True if config.option.markexpr == "not slow" and collection_path.name in SLOW_FILES else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        name = f"{item.path.stem}.{item.name.partition('[')[0]}"
        if item.path.name in SLOW_FILES or name in SLOW_TESTS or item.get_closest_marker("browser"):
            item.add_marker("slow")
