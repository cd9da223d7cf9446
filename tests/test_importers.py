"""Every row of the table of formats keeps the same contract; what is no trace says what it is and what to type."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import tarfile
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from kineto_samples import DECODE, text_of
from kineto_samples import write as write_kineto
from nsys_samples import one_step, write_export
from rocm_samples import write_rocpd, write_rocprofv3

from cbprof.errors import DataError
from cbprof.fleet.files import find_files
from cbprof.formats import load, save
from cbprof.formats.chrome import read as chrome_read
from cbprof.formats.importers import IMPORTERS, SUFFIXES, Importer, ReadOptions, importer_of
from cbprof.meta import Meta
from cbprof.trace import Kind, Lane, Trace, TraceBuilder


def native(folder: Path) -> Path:
    builder = TraceBuilder()
    builder.span(builder.lane(Lane("engine")), Kind.CPU_WORK, "launch", 0, 10, step=0, link=0)
    builder.span(builder.lane(Lane("compute", 0)), Kind.GPU_COMPUTE, "compute", 20, 30, step=0, link=0)
    path = folder / "native.json"
    save(builder.build(Meta(evidence="emulated", complete=True)), path)
    return path


# A small file of each format, whole: a new row needs a new one.
SAMPLES: dict[str, Callable[[Path], Path]] = {
    "rocpd": lambda folder: write_rocpd(folder / "41_results.db"),
    "rocprofv3": lambda folder: write_rocprofv3(folder / "41_results.json"),
    "Nsight Systems": lambda folder: write_export(folder / "export.sqlite", one_step()),
    "cbprof": native,
    "Chrome trace, such as torch.profiler's": lambda folder: write_kineto(folder, *DECODE),
}
every_importer = pytest.mark.parametrize("importer", IMPORTERS, ids=lambda importer: importer.name)


@every_importer
def test_a_sample_is_known_by_its_content_and_by_its_row_alone(importer: Importer, tmp_path: Path) -> None:
    sample = SAMPLES[importer.name](tmp_path)
    other = tmp_path / "some name"
    other.write_bytes(sample.read_bytes())
    assert importer_of(other) is importer
    head = sample.read_bytes()
    assert [each for each in IMPORTERS[:-1] if each.recognises(head)] in ([importer], [])


@every_importer
@pytest.mark.parametrize("how", ["replaced", "written to", "damaged"])
def test_a_file_that_changes_while_it_is_read(
    importer: Importer, how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sample = SAMPLES[importer.name](tmp_path)

    def meanwhile(path: Path, options: ReadOptions) -> Trace:
        trace = importer.load(path, options)
        if how == "replaced":
            path.with_name("other").write_bytes(path.read_bytes())
            path.with_name("other").replace(path)
        else:
            path.write_bytes(path.read_bytes() if how == "written to" else path.read_bytes()[:100])
        return importer.load(path, options) if how == "damaged" else trace

    watched = [replace(each, load=meanwhile) if each is importer else each for each in IMPORTERS]
    monkeypatch.setattr("cbprof.formats.importers.IMPORTERS", watched)
    with pytest.raises(DataError, match="was replaced or written to while it was read") as error:
        load(sample)
    assert str(error.value).startswith(f"{sample}: ")


def test_a_recording_may_go_on_while_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    part = native(tmp_path).rename(tmp_path / "native.json.part")
    read = chrome_read.load

    def meanwhile(path: Path) -> Trace:
        with path.open("a") as file:
            file.write(" ")
        return read(path)

    monkeypatch.setattr(chrome_read, "load", meanwhile)
    assert len(load(part)) == 2

    def ended(path: Path) -> Trace:
        trace = read(path)
        path.rename(tmp_path / "native.json")
        return trace

    monkeypatch.setattr(chrome_read, "load", ended)
    assert len(load(part)) == 2


@every_importer
def test_a_file_that_needs_more_memory_than_there_is(
    importer: Importer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sample = SAMPLES[importer.name](tmp_path)

    def starved(*_: object) -> Trace:
        raise MemoryError

    watched = [replace(each, load=starved) if each is importer else each for each in IMPORTERS]
    monkeypatch.setattr("cbprof.formats.importers.IMPORTERS", watched)
    with pytest.raises(DataError, match="reading it takes more memory than there is") as error:
        load(sample)
    assert str(error.value).startswith(f"{sample}: ")


@every_importer
def test_a_sample_is_found_in_a_folder(importer: Importer, tmp_path: Path) -> None:
    sample = SAMPLES[importer.name](tmp_path)
    assert sample.name.endswith(importer.suffixes)
    assert [file.name for file in find_files([str(tmp_path)])] == [str(sample)]


def test_what_sglang_merged_of_the_ranks_beside_it_does_not_count_twice(tmp_path: Path) -> None:
    """Its names: the profile, then the rank; the merged file of another profile has no ranks beside it."""
    names = [
        "1764-TP-0.trace.json.gz",
        "1764-TP-1-DP-0.trace.json.gz",
        "merged-1764.trace.json.gz",
        "merged-176.trace.json.gz",
        "other/merged-1764.trace.json.gz",
    ]
    for name in names:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"")
    for folder in (str(tmp_path), f"file://{tmp_path}/"):
        found = [file.name.rpartition(f"{tmp_path}/")[2] for file in find_files([folder])]
        assert sorted(found) == sorted(set(names) - {"merged-1764.trace.json.gz"})
    assert len(find_files([str(tmp_path / "merged-1764.trace.json.gz")])) == 1


@every_importer
def test_a_sample_converts_and_stays_the_same(importer: Importer, tmp_path: Path) -> None:
    trace = load(SAMPLES[importer.name](tmp_path))
    save(trace, tmp_path / "converted.json.gz")
    again = load(tmp_path / "converted.json.gz")
    assert len(trace) > 1
    for column in ("start_ns", "dur_ns", "step", "kind"):
        assert np.array_equal(getattr(trace, column), getattr(again, column)), column
    assert [trace.name_of(row) for row in range(len(trace))] == [again.name_of(row) for row in range(len(again))]
    assert again.evidence == trace.evidence


@every_importer
@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.9, 0.99])
def test_a_cut_sample_is_read_in_part_or_refused_in_a_line(importer: Importer, share: float, tmp_path: Path) -> None:
    whole = SAMPLES[importer.name](tmp_path).read_bytes()
    cut = tmp_path / "cut"
    cut.write_bytes(whole[: int(share * len(whole))])
    said = refusal(cut)
    assert load(cut).complete is False if said is None else said.startswith(f"{cut}: ")
    assert "\n" not in (said or "")


def refusal(path: Path) -> str | None:
    try:
        load(path)
    except DataError as error:
        return str(error)
    return None


def tar(data: bytes) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        info = tarfile.TarInfo("profiles/rank0.pt.trace.json")
        info.size = len(data)
        archive.addfile(info, io.BytesIO(data))
    return buffer.getvalue()


def zipped(data: bytes) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("rank0.pt.trace.json", data)
    return buffer.getvalue()


TRACE = text_of(*DECODE).encode()


@pytest.mark.parametrize(
    ("content", "what", "advice"),
    [
        (zipped(TRACE), "a zip archive", "unzip"),
        (tar(TRACE), "a tar archive", "tar xf"),
        (gzip.compress(tar(TRACE)), "a tar archive inside gzip", "tar xf"),
        (gzip.compress(gzip.compress(TRACE)), "gzip inside gzip", "gunzip"),
        (gzip.compress(b"SQLite format 3\0" + bytes(99)), "an SQLite database inside gzip", "gunzip"),
        (b"\x28\xb5\x2f\xfd" + bytes(99), "packed with zstd", "zstd -d"),
        (bz2.compress(TRACE), "packed with bzip2", "bunzip2"),
        (lzma.compress(TRACE), "packed with xz", "unxz"),
        (TRACE.decode().encode("utf-16"), "text in UTF-16", "iconv"),
        (b"\xfe\xff" + TRACE.decode().encode("utf-16-be"), "text in UTF-16", "iconv"),
        (b"\x0a\x04\x08\x01\x50\x00" * 20, "a Perfetto trace in protobuf", "traceconv"),
        (b"\x0a\xb2\x01\x1a\x60" + bytes(400), "a Perfetto trace in protobuf", "traceconv"),
        (b'{"Type":48,"CudaEvent":{"startNs":"1"}}\n{"Type":79}\n', "as JSON lines", "--type sqlite"),
        (b"PAR1" + bytes(99), "a Parquet table", "--type sqlite"),
        (b"\x80\x05\x95" + bytes(99), "a Python pickle", "torch.profiler"),
        (b'{"segments": [{"device": 0}], "device_traces": []}', "a memory snapshot of torch", "torch.profiler"),
        (b'{\n "device_traces": [[]]}', "a memory snapshot of torch", "torch.profiler"),
        (b'[{"children":[],"frame":{"name":"ROOT"},"metrics":{}}, {"CUDA":{}}]', "a profile of Proton", 'data="trace"'),
        (b"\x80\x04\x95" + bytes(99), "a Python pickle", "torch.profiler"),
    ],
)
def test_what_holds_a_trace_says_what_it_is_and_what_to_type(
    content: bytes, what: str, advice: str, tmp_path: Path
) -> None:
    path = tmp_path / "it's one.bin"
    path.write_bytes(content)
    with pytest.raises(DataError) as refusal:
        load(path)
    text = str(refusal.value)
    assert text.startswith(f"{path}: ")
    assert what in text
    assert advice in text
    assert "\n" not in text


def test_the_last_row_takes_the_rest() -> None:
    assert IMPORTERS[-1].recognises(b"anything")
    assert SUFFIXES == (".db", ".json", ".json.gz", ".rocpd", ".sqlite")
