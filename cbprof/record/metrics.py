"""The figures of a recording under way in Prometheus' text format, on a port of this machine.

The format (https://prometheus.io/docs/instrumenting/exposition_formats) is a line a figure, so that a client library
would be a dependency for nothing.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from http import HTTPStatus
from typing import Any, NamedTuple

from cbprof.local_http import HOST, LocalHandler, LocalServer

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
NS = 1e-9

Labels = Mapping[str, str]
Watched = Iterable[tuple[Labels, Mapping[str, Any]]]
"""Labels of a run or a process, and its :meth:`~cbprof.record.meter.Meter.figures`, empty where there are none yet."""


class _Metric(NamedTuple):
    """``label``: what the keys of the figure are, where it has several. ``scale``: from the figure to the metric."""

    name: str
    type: str
    help: str
    figure: str
    scale: float = 1
    label: str = ""


METRICS = (
    _Metric("cbprof_idle_ratio", "gauge", "Share of time in which no compute ran, last 256 steps.", "idle"),
    _Metric("cbprof_step_seconds", "gauge", "Time per step, mean of the last 256.", "step_ns", NS),
    _Metric("cbprof_tokens_per_second", "gauge", "Generated tokens a second, last 256 steps.", "tokens_per_s"),
    _Metric("cbprof_tokens_total", "counter", "Generated tokens.", "tokens"),
    _Metric("cbprof_steps_total", "counter", "Steps whose compute ran.", "steps"),
    _Metric("cbprof_device_busy_seconds_total", "counter", "Time in which compute ran.", "busy_ns", NS, "device"),
    _Metric("cbprof_device_idle_seconds_total", "counter", "Time between compute.", "idle_ns", NS, "device"),
    _Metric("cbprof_host_seconds_total", "counter", "Time of the host by phase.", "host_ns", NS, "phase"),
    _Metric(
        "cbprof_exposed_host_seconds_total",
        "counter",
        "Time of the host by phase in which no compute ran.",
        "exposed_ns",
        NS,
        "phase",
    ),
)


def exposition(watched: Watched) -> str:
    """The text. What is not known yet is left out."""
    runs = [(dict(labels), figures) for labels, figures in watched]
    lines = ["# HELP cbprof_recording Whether there is something recorded.", "# TYPE cbprof_recording gauge"]
    lines += [f"cbprof_recording{_labels(labels)} {int(bool(figures))}" for labels, figures in runs]
    for metric in METRICS:
        samples = []
        for labels, figures in runs:
            found = figures.get(metric.figure)
            parts = found if metric.label else {} if found is None else {"": found}
            for key, value in (parts or {}).items():
                named = {**labels, metric.label: key} if metric.label else labels
                samples.append(f"{metric.name}{_labels(named)} {value * metric.scale:.9g}")
        if samples:
            lines += [f"# HELP {metric.name} {metric.help}", f"# TYPE {metric.name} {metric.type}", *samples]
    return "\n".join(lines) + "\n"


def _labels(labels: Labels) -> str:
    said = ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items() if value)
    return f"{{{said}}}" if said else ""


def _escaped(value: str) -> str:
    text = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return text.encode("utf-8", "replace").decode()


class MetricsServer(LocalServer):
    """Answers ``/metrics`` on 127.0.0.1. Raises UsageError where the port is not to be had."""

    def __init__(self, port: int, watched: Callable[[], Watched]) -> None:
        self.watched = watched
        remedy = "choose another port, or 0 for one that is free"
        super().__init__(port, _Handler, told=f"--metrics {port}", remedy=remedy)

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.server_port}/metrics"


class _Handler(LocalHandler):
    server: MetricsServer

    def do_GET(self) -> None:  # noqa: N802 - the name of http.server
        status, text = HTTPStatus.OK, ""
        if not self.is_asked_by_our_name:
            status, text = HTTPStatus.FORBIDDEN, "this address is for 127.0.0.1 alone\n"
        elif self.path.partition("?")[0] != "/metrics":
            status, text = HTTPStatus.NOT_FOUND, "the metrics are at /metrics\n"
        self.send(status, text or exposition(self.server.watched()), [("Content-Type", CONTENT_TYPE)])


@contextmanager
def serving(server: MetricsServer) -> Iterator[MetricsServer]:
    """Answer while the body runs. Signals stay with the thread that waits for them."""
    thread = threading.Thread(target=server.serve_forever, name="cbprof metrics", daemon=True)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())  # a new thread inherits this
    try:
        thread.start()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
