"""While the program captures a graph, clocks leave the device alone."""

from __future__ import annotations

import threading

import pytest

from cbprof.record.clocks import captures


class Graph:
    def capture_begin(self, fails: bool = False) -> str:
        if fails:
            raise RuntimeError("no capture")
        return "begun"

    def capture_end(self) -> str:
        return "ended"


def others_may_query() -> bool:
    """Whether another thread gets the lock now."""
    got: list[bool] = []

    def query() -> None:
        got.append(captures.QUIET.acquire(blocking=False))
        if got[0]:
            captures.QUIET.release()

    thread = threading.Thread(target=query)
    thread.start()
    thread.join()
    return got[0]


def test_a_capture_keeps_every_clock_away() -> None:
    early = Graph()
    early.capture_begin()
    captures.watch(Graph)
    captures.watch(Graph)  # once is enough
    assert early.capture_end() == "ended"  # begun before anybody watched
    assert others_may_query()
    graph = Graph()
    assert graph.capture_begin() == "begun"
    assert not others_may_query()
    assert graph.capture_end() == "ended"
    assert others_may_query()
    with pytest.raises(RuntimeError, match="no capture"):
        graph.capture_begin(fails=True)
    assert others_may_query()


def test_without_the_cuda_runtime_there_is_nothing_to_stand_apart_from() -> None:
    captures.stand_apart()
    captures.stand_apart()
    assert others_may_query()
