"""The cache of a large file: it gives the same trace, holds for one content only, and never gets in the way."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cbprof.errors import DataError
from cbprof.formats import cache, load
from cbprof.formats import importers as detect
from cbprof.formats.kineto import read as kineto
from cbprof.trace import Trace

sys.path.insert(0, str(Path(__file__).parents[1] / "scripts"))
from gen_kineto import Loop, generate

EVENTS = 400


def same(a: Trace, b: Trace) -> bool:
    tables = [(a, b), (a.steps, b.steps), (a.requests, b.requests)]
    pairs = [(getattr(x, each.name), getattr(y, each.name)) for x, y in tables for each in fields(x)]
    arrays = [(x, y) for x, y in pairs if isinstance(x, np.ndarray)]
    facts = [(t.names, t.lanes, t.meta, dict(t.extra)) for t in (a, b)]
    return facts[0] == facts[1] and all(x.dtype == y.dtype and np.array_equal(x, y) for x, y in arrays)


@pytest.fixture
def reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The files that are parsed, in order; every file is large enough for a cache."""
    monkeypatch.delenv(cache.OPT_OUT, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(cache, "WORTH_FROM", 1)
    parsed: list[Path] = []
    parse: Callable[..., Trace] = kineto.load

    def watched(path: Path, **options: object) -> Trace:
        parsed.append(path)
        return parse(path, **options)

    monkeypatch.setattr(kineto, "load", watched)
    return parsed


@pytest.fixture
def trace(tmp_path: Path, reads: list[Path]) -> Path:
    path = tmp_path / "trace.json"
    generate(path, EVENTS, Loop())
    return path


def cache_of(path: Path) -> Path:
    folder = cache.cache_folder()
    assert folder is not None
    return cache.cache_of(path, folder)


def test_the_second_load_parses_nothing_and_gives_the_same(trace: Path, reads: list[Path]) -> None:
    first = load(trace)
    second = load(trace)
    assert same(first, second)
    assert len(first.steps.step) == len(second.steps.step)
    assert reads == [trace]
    assert not second.start_ns.flags.writeable
    assert [each.name for each in trace.parent.iterdir() if each.is_file()] == ["trace.json"]
    assert list(cache_of(trace).parent.iterdir()) == [cache_of(trace)]
    assert stat.S_IMODE(cache_of(trace).parent.stat().st_mode) == 0o700


def test_a_cache_is_known_by_content_and_not_by_time(trace: Path, reads: list[Path]) -> None:
    load(trace)
    os.utime(trace, (0, 0))
    load(trace)
    assert len(reads) == 1

    before = trace.stat()
    text = trace.read_text()
    trace.write_text(text.replace("aten::mm", "aten::nn"))
    os.utime(trace, ns=(before.st_atime_ns, before.st_mtime_ns))  # the same size, the same time
    changed = load(trace)
    assert len(reads) == 2
    assert "aten::nn" in changed.names
    assert same(changed, load(trace))
    assert len(reads) == 2


def test_a_cache_holds_for_one_state_of_the_readers(
    trace: Path, reads: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    load(trace)
    monkeypatch.setattr(cache, "_readers", lambda: "others")
    load(trace)
    load(trace)
    assert len(reads) == 2


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_a_damaged_cache_is_read_as_none_and_written_anew(trace: Path, reads: list[Path], data: st.DataObject) -> None:
    expected = load(trace, cached=False)
    load(trace)
    whole = cache_of(trace).read_bytes()
    place = data.draw(st.one_of(st.integers(0, 400), st.integers(0, len(whole) - 1)))
    if data.draw(st.booleans()):
        damaged = whole[:place]
    else:
        damaged = whole[:place] + bytes([whole[place] ^ (1 << data.draw(st.integers(0, 7)))]) + whole[place + 1 :]
    cache_of(trace).write_bytes(damaged)
    n_reads = len(reads)
    assert same(load(trace), expected)
    assert len(reads) == n_reads + 1
    assert cache_of(trace).read_bytes() == whole


def test_opting_out_neither_reads_nor_writes(trace: Path, reads: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    load(trace, cached=False)
    monkeypatch.setenv(cache.OPT_OUT, "1")
    load(trace)
    assert not cache_of(trace).exists()
    assert len(reads) == 2


def test_small_files_have_no_cache(trace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "WORTH_FROM", trace.stat().st_size + 1)
    load(trace)
    assert not cache_of(trace).exists()


def test_where_no_cache_can_be_written_there_is_none(trace: Path, reads: list[Path]) -> None:
    cache_of(trace).mkdir()
    first = load(trace)
    assert same(first, load(trace))
    assert len(reads) == 2
    assert list(cache_of(trace).parent.iterdir()) == [cache_of(trace)]  # nothing half-written is left


@pytest.mark.parametrize("mode", [0o777, 0o775, 0o702])
def test_a_folder_that_others_may_write_is_not_believed(trace: Path, reads: list[Path], mode: int) -> None:
    load(trace)
    folder = cache_of(trace).parent
    folder.chmod(mode)
    load(trace)
    assert len(reads) == 2
    folder.chmod(0o700)
    load(trace)
    assert len(reads) == 2


def test_a_folder_that_is_a_link_is_not_believed(trace: Path, reads: list[Path], tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "cbprof").symlink_to(tmp_path / "elsewhere")
    load(trace)
    load(trace)
    assert len(reads) == 2
    assert not list((tmp_path / "elsewhere").iterdir())


def test_files_of_one_name_have_caches_of_their_own(trace: Path, reads: list[Path], tmp_path: Path) -> None:
    other = tmp_path / "other" / trace.name
    other.parent.mkdir()
    generate(other, 4 * EVENTS, Loop())
    for _ in range(2):
        assert not same(load(trace), load(other))
    assert len(reads) == 2


def test_old_caches_make_room(trace: Path, reads: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    load(trace)
    folder, size = cache_of(trace).parent, cache_of(trace).stat().st_size
    os.utime(cache_of(trace), (0, 0))
    (folder / "not ours").write_text("stays")
    monkeypatch.setattr(cache, "MOST_BYTES", 2 * size - 1)
    other = trace.with_name("other.json")
    generate(other, EVENTS, Loop())
    load(other)
    assert sorted(each.name for each in folder.iterdir()) == sorted([cache_of(other).name, "not ours"])


def test_a_file_that_changes_while_it_is_read_is_refused_and_not_cached(
    trace: Path, reads: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    parse = detect.with_steps

    def meanwhile(found: Trace) -> Trace:
        with trace.open("a") as file:
            file.write("\n")
        return parse(found)

    monkeypatch.setattr(detect, "with_steps", meanwhile)
    with pytest.raises(DataError, match="was replaced or written to while it was read"):
        load(trace)
    assert not cache_of(trace).exists()
