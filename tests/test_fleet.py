"""A fleet on a cluster of two worker processes: the right ranks with the right figures, whatever happens on the way."""

from __future__ import annotations

import asyncio
import gzip
import json
import os
import re
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import psutil
import pytest
from fleet_samples import BETWEEN, LATENCY, LAUNCH, US, Pace, examine_or_die, timeline, usual, write_fleet
from typer.testing import CliRunner

from cbprof.analysis.ranks.report import RanksReport
from cbprof.analysis.summary import summarize
from cbprof.cli.main import app
from cbprof.errors import CbprofError, UsageError
from cbprof.fleet import cluster, run, task
from cbprof.fleet.dataset import MARK, Dataset
from cbprof.fleet.files import TraceFile, find_files
from cbprof.fleet.run import run_fleet

pytest.importorskip("distributed")


RANKS, STEPS = 64, 40
STRAGGLER, SCHEDULER, AHEAD = 17, 23, 30
CORRUPT, TRUNCATED, EMPTY = 40, 41, 42
PACES = usual(
    RANKS,
    **{f"r{STRAGGLER}": Pace(compute=1300)},
    **{f"r{SCHEDULER}": Pace(schedule=300)},
    **{f"r{AHEAD}": Pace(ahead_us=2000, drift=1e-5)},
)
DATASET = "fleet.parquet"

Cluster = Callable[[int], AbstractContextManager[Any]]


@pytest.fixture(scope="module")
def client(moto: str) -> Iterator[Any]:
    """Two worker processes for all tests of this file; they know the environment of the object store."""
    with cluster.local_cluster(RANKS, workers=2, memory="1GB") as opened:
        yield opened


@pytest.fixture(scope="module")
def shared(client: Any) -> Cluster:
    @contextmanager
    def opened(n_files: int) -> Iterator[Any]:
        assert n_files > 0
        yield client

    return opened


@contextmanager
def no_cluster(n_files: int) -> Iterator[Any]:
    pytest.fail("a cluster was asked for")
    yield


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """64 files: one garbled, one cut, one empty, in two formats."""
    folder = tmp_path_factory.mktemp("fleet")
    files = write_fleet(folder, PACES, STEPS)
    files[CORRUPT].write_bytes(b"\x00garbled\xff" * 100)
    files[TRUNCATED].write_bytes(files[TRUNCATED].read_bytes()[:-300])
    files[EMPTY].write_bytes(b"")
    return folder


@pytest.fixture(scope="module")
def report(folder: Path, shared: Cluster) -> RanksReport:
    return run_fleet(find_files([str(folder)]), shared, out=str(folder / DATASET))


def by_rank(report: RanksReport) -> dict[int, Any]:
    return {row.rank.rank: row.rank for row in report.rows if row.rank.rank is not None}


def test_every_file_is_a_row(report: RanksReport) -> None:
    assert report.n_files == RANKS
    assert sorted(by_rank(report)) == [rank for rank in range(RANKS) if rank not in (CORRUPT, EMPTY)]
    reasons = {file.name.rpartition("/")[2]: file.reason or "" for file in report.failed}
    assert sorted(reasons) == [f"rank{rank:05d}.pt.trace.json" for rank in (CORRUPT, EMPTY)]
    corrupt, empty = (reasons[name] for name in sorted(reasons))
    assert corrupt.startswith("not a trace: it starts with")
    assert empty.startswith("the file is empty")
    cut = by_rank(report)[TRUNCATED]
    assert not cut.complete
    assert 0 < cut.n_steps < STEPS
    assert any(f"rank {TRUNCATED}: the trace is cut short" in warning for warning in report.warnings)


def test_every_figure_is_exact(report: RanksReport) -> None:
    steps = timeline(PACES, STEPS)
    for number, rank in by_rank(report).items():
        if number in (TRUNCATED, AHEAD):
            continue
        pace, mine = PACES[number], steps[number]
        overhead = BETWEEN + pace.schedule + LAUNCH + LATENCY
        assert rank.window_ns == (mine[-1].end - mine[0].compute) * US
        assert rank.idle_ns == (STEPS - 1) * overhead * US
        assert rank.gpu_ns == STEPS * pace.compute * US
        assert rank.comm_ns == sum(step.end - step.reduce for step in mine) * US
        assert rank.causes["schedule"] == (STEPS - 1) * pace.schedule * US
        assert sum(rank.causes.values()) == rank.idle_ns
        assert int(rank.idle_bins.sum()) == rank.idle_ns


def test_the_slowest_ranks_are_named_with_the_reason(report: RanksReport) -> None:
    straggler, scheduler = report.slow
    rows = [report.rows[slow.row].rank.rank for slow in report.slow]
    assert rows == [STRAGGLER, SCHEDULER]
    usual_ns = (STEPS * 1000 + (STEPS - 1) * 145) * US / STEPS
    assert report.unit == "step"
    assert report.median_row is not None
    assert report.own_ns(report.median_row) == usual_ns
    assert straggler.own_ns == usual_ns + 300 * US
    assert [(part.label, part.more_ns) for part in straggler.why] == [("GPU work", 300 * US)]
    assert scheduler.own_ns == usual_ns + 200 * US * (STEPS - 1) / STEPS
    assert [(part.label, part.more_ns) for part in scheduler.why] == [
        ("schedule", pytest.approx(200 * US * (STEPS - 1) / STEPS))
    ]
    assert report.idle is not None
    idle = {number: rank.idle_pct for number, rank in by_rank(report).items()}
    assert max(idle, key=lambda rank: idle[rank]) == SCHEDULER
    assert report.idle.max == idle[SCHEDULER]


def test_the_fleet_waits_for_the_straggler(report: RanksReport) -> None:
    (job,) = report.jobs
    assert job.n_left_out == 1
    assert job.waits is not None
    assert (job.waits.n_groups, job.waits.steps_each) == (STEPS, 1)
    first = job.waits.last[0]
    assert report.rows[job.rows[first.row]].rank.rank == STRAGGLER
    # 100 us more than the one that schedules for long, and 300 us in the last step, before which nobody schedules.
    # The clock that runs ahead takes 10 ns of it.
    assert first.n_slowest == STEPS
    assert first.alone_ns == pytest.approx((100 * (STEPS - 1) + 300) * US, abs=10)


def test_clocks_are_told_from_the_ends_of_collectives(report: RanksReport) -> None:
    (job,) = report.jobs
    skew = job.skew
    assert skew is not None
    assert (skew.n_matched, skew.n_common, skew.n_unmatched) == (STEPS, STEPS, 0)
    numbers = [report.rows[row].rank.rank for row in job.rows]
    off = skew.clocks[numbers.index(AHEAD)]
    assert off.offset_ns == pytest.approx(2000 * US, abs=2000)
    assert off.drift == pytest.approx(1e-5, abs=1e-8)
    others = [clock for number, clock in zip(numbers, skew.clocks, strict=True) if number != AHEAD]
    assert {clock.offset_ns for clock in others} == {0.0}
    assert skew.raw_start_max_ns > 2000 * US
    assert skew.start_max_ns == pytest.approx(300 * US, abs=10)
    assert skew.end_max_ns < 10
    late = dict(zip(numbers, skew.late_ns, strict=True))
    assert late[STRAGGLER] == pytest.approx(300 * US, abs=10)
    assert late[SCHEDULER] == pytest.approx(200 * US, abs=10)
    assert skew.n_last[numbers.index(STRAGGLER)] == STEPS


@pytest.mark.parametrize(
    ("pace", "late_us", "clock_us", "slowest"),
    [(Pace(compute=2000), 1000, 0, 3), (Pace(ahead_us=1000), 0, 1000, None)],
    ids=["a late start", "a clock that is ahead"],
)
@pytest.mark.parametrize("steps", [1, 12])
def test_report_and_fleet_tell_a_late_start_from_a_clock(
    pace: Pace,
    late_us: int,
    clock_us: int,
    slowest: int | None,
    steps: int,
    shared: Cluster,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By the files alone, rank 3 starts its collectives 1 ms after the others in both."""
    monkeypatch.setattr(cluster, "local_cluster", lambda n_files, **_: shared(n_files))
    write_fleet(tmp_path, usual(4, r3=pace), steps)
    by_report, by_fleet = (CliRunner().invoke(app, [verb, str(tmp_path), "--json"]) for verb in ("report", "fleet"))
    assert by_report.exit_code == by_fleet.exit_code == 0, by_report.output + by_fleet.output
    found = json.loads(by_report.stdout)
    assert found == json.loads(by_fleet.stdout)
    skew = found["summary"]["jobs"][0]["collectives"]
    assert skew["start_skew_by_base_time_ns"]["max"] == 1000 * US
    assert skew["start_skew_ns"]["max"] == late_us * US
    assert skew["most_offset_ns"] == clock_us * US
    assert (found["slowest"] or {}).get("rank") == slowest
    texts = [CliRunner().invoke(app, [verb, str(tmp_path)]).stdout for verb in ("report", "fleet")]
    assert texts[0] == texts[1]
    assert ("The others wait for rank 3" in " ".join(texts[0].split())) == (slowest is not None)


def test_a_second_run_does_no_work(report: RanksReport, folder: Path) -> None:
    counted: list[tuple[int, int]] = []
    out = str(folder / DATASET)
    again = run_fleet(find_files([str(folder)]), no_cluster, out=out, done=lambda *each: counted.append(each))
    assert again.to_json() == report.to_json()
    assert counted == [(RANKS, RANKS)]


def test_content_is_known_by_any_name(
    report: RanksReport, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    moved = tmp_path / "moved.json"
    moved.write_bytes((folder / "rank00000.pt.trace.json").read_bytes())
    monkeypatch.setattr(task, "load", lambda *_, **__: pytest.fail("the file was analysed again"))
    (file,) = find_files([str(moved)])
    found = task.examine(file, Dataset.begin(str(folder / DATASET)))
    assert found.name == str(moved)
    assert found.ranks[0].idle_ns == by_rank(report)[0].idle_ns


def test_the_tables_hold_what_the_report_says(report: RanksReport, folder: Path) -> None:
    pd = pytest.importorskip("pandas")
    ranks = pd.read_parquet(folder / DATASET / "ranks")
    assert len(ranks) == RANKS
    assert ranks.reason.notna().sum() == 2
    good = ranks[ranks.reason.isna()]
    gaps = pd.read_parquet(folder / DATASET / "gaps").set_index("trace")
    idle = (gaps.end_ns - gaps.start_ns).groupby("trace").sum()
    assert (idle.reindex(good.trace).to_numpy() == good.idle_ns.to_numpy()).all()
    assert gaps.blame_ns.map(lambda blame: sum(dict(blame).values())).equals(gaps.end_ns - gaps.start_ns)
    steps = pd.read_parquet(folder / DATASET / "steps")
    assert steps.groupby("trace").size().reindex(good.trace).tolist() == good.n_steps.astype(int).tolist()
    assert set(steps["rank"]) == set(by_rank(report))


def test_two_fleets_at_once_are_no_matter(client: Any) -> None:
    """A second scheduler that wanted the same port would warn, and warnings are errors here."""
    with cluster.local_cluster(1, workers=1) as other:
        assert other.scheduler.address != client.scheduler.address


def test_few_tasks_are_under_way_at_a_time(
    report: RanksReport, folder: Path, shared: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "MOST_UNDER_WAY", 6)
    assert run_fleet(find_files([str(folder)]), shared).to_json() == report.to_json()


def test_a_killed_worker_changes_nothing(report: RanksReport, folder: Path, client: Any, shared: Cluster) -> None:
    killed: list[int] = []

    def kill_one(n: int, n_known: int) -> None:
        if not killed:
            killed.append(next(iter(client.run(os.getpid).values())))
            os.kill(killed[0], signal.SIGKILL)

    again = run_fleet(find_files([str(folder)]), shared, done=kill_one)
    assert killed
    assert again.to_json() == report.to_json()


def test_the_neighbours_of_a_file_that_ends_its_worker_are_read(
    tmp_path: Path, client: Any, shared: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "examine", examine_or_die)
    monkeypatch.setattr(client.cluster.scheduler, "allowed_failures", 0)  # whoever waits beside it is blamed at once
    for name in ("a", "deadly", "y", "z"):
        (tmp_path / f"{name}.json").write_text("{}")
    examined = dict(run.examine_all(client, find_files([str(tmp_path)]), None))
    reasons = {Path(file.name).name: each.reason for file, each in examined.items()}
    assert reasons.pop("deadly.json") == run.LOST
    assert reasons == {"a.json": None, "y.json": None, "z.json": None}


def test_a_file_that_ends_its_process_is_a_row_and_its_neighbours_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "WORTH_A_PROCESS", 0)
    monkeypatch.setattr(run, "cores", lambda: 2)
    for name in ("a", "deadly", "z"):
        (tmp_path / f"{name}.json").write_text("{}")
    monkeypatch.setattr(run, "compare_ranks", tuple)
    examined = run.run_local(find_files([str(tmp_path)]), examine_or_die)
    assert [(Path(each.name).name, each.reason) for each in examined] == [
        ("a.json", None),
        ("deadly.json", run.KILLED),
        ("z.json", None),
    ]


def test_files_that_are_gone_or_rewritten(folder: Path, shared: Cluster, tmp_path: Path) -> None:
    a, b = (tmp_path / f"{name}.json" for name in "ab")
    for target, source in ((a, 0), (b, 2)):
        target.write_bytes((folder / f"rank{source:05d}.pt.trace.json").read_bytes())
    out = tmp_path / "out.parquet"
    run_fleet(find_files([str(tmp_path)]), shared, out=str(out))
    assert len(list((out / "gaps").iterdir())) == 2
    b.write_bytes((folder / "rank00004.pt.trace.json").read_bytes())
    a.unlink()
    found = run_fleet(find_files([str(tmp_path)]), shared, out=str(out))
    assert [row.rank.rank for row in found.rows] == [4]
    assert [len(list((out / name).iterdir())) for name in ("gaps", "steps", "_summaries", "_seen")] == [1, 1, 1, 1]


# An object store ------------------------------------------------------------------------------------------------------

SECRET = "verysecretkey"


@pytest.fixture(scope="module")
def moto() -> Iterator[str]:
    """An S3 server on loopback; its address and the keys are in the environment, as its users have them."""
    server_of = pytest.importorskip("moto.server")
    pytest.importorskip("s3fs")
    server = server_of.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ENDPOINT_URL", f"http://{host}:{port}")
        patch.setenv("AWS_ACCESS_KEY_ID", "AKIATESTKEYID")
        patch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
        patch.setenv("AWS_DEFAULT_REGION", "us-east-1")
        yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def bucket(moto: str, folder: Path) -> Any:
    import s3fs

    fs = s3fs.S3FileSystem()
    fs.mkdir("traces")
    for rank in (0, 2, EMPTY):
        fs.put_file(str(folder / f"rank{rank:05d}.pt.trace.json"), f"traces/job/rank{rank:05d}.pt.trace.json")
    yield fs
    fs.rm("traces", recursive=True)


def invoke(*arguments: object) -> Any:
    return CliRunner().invoke(app, ["fleet", *map(str, arguments)])


def test_an_object_store(
    moto: str, bucket: Any, shared: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster, "local_cluster", lambda n_files, **_: shared(n_files))
    page, csv = tmp_path / "fleet.html", tmp_path / "fleet.csv"
    out = "s3://traces/kept.parquet"
    first = invoke("s3://traces/job", "--out", out, "-o", page, "--csv", csv, "--json")
    assert first.exit_code == 0, first.output
    ranks = json.loads(first.stdout)["ranks"]
    assert [(each["file"], each["rank"]) for each in ranks] == [
        ("s3://traces/job/rank00000.pt.trace.json", 0),
        ("s3://traces/job/rank00002.pt.trace.json", 2),
        (f"s3://traces/job/rank{EMPTY:05d}.pt.trace.json", None),
    ]
    assert ranks[2]["reason"].startswith("the file is empty")
    monkeypatch.setattr(cluster, "local_cluster", no_cluster)
    second = invoke("s3://traces/**/rank*.json", "--out", out, "--json")
    assert second.exit_code == 0, second.output
    assert json.loads(second.stdout) == json.loads(first.stdout)
    bucket.invalidate_cache()
    kept = bucket.find("traces/kept.parquet")
    assert sum(path.endswith(".parquet") for path in kept) == 5
    shown = first.output + second.output + page.read_text() + csv.read_text()
    assert not any(word.encode() in bucket.cat_file(path) for path in kept for word in (SECRET, "AKIATESTKEYID"))
    assert SECRET not in shown
    assert "AKIATESTKEYID" not in shown


def test_what_an_object_store_does_not_have(moto: str, bucket: Any) -> None:
    missing = invoke("s3://traces/nowhere/rank.json")
    assert missing.exit_code != 0
    assert "s3://traces/nowhere/rank.json" in str(missing.exception)
    assert "no such file" in str(missing.exception)


def test_a_signature_in_a_url_is_not_shown(moto: str, bucket: Any, shared: Cluster) -> None:
    url = bucket.sign("traces/job/rank00000.pt.trace.json")
    assert "Signature=" in url
    (file,) = find_files([url])
    assert file.name == f"{moto}/traces/job/rank00000.pt.trace.json"
    assert "Signature" not in repr(file)
    found = run_fleet([file], shared)
    assert [row.rank.rank for row in found.rows] == [0]
    assert "Signature" not in json.dumps(found.to_json())
    (gone,) = run_fleet([type(file)(file.name, url.replace("rank00000", "nothing"), 1, None)], shared).failed
    assert gone.reason
    assert "Signature" not in gone.reason


# What can go wrong ----------------------------------------------------------------------------------------------------


def test_an_unreachable_scheduler_is_one_line(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "PATIENCE_S", 0.2)
    result = invoke(folder, "--scheduler", "tcp://127.0.0.1:1")
    assert result.exit_code == 1
    text = str(result.exception)
    assert text == "tcp://127.0.0.1:1: cannot reach a Dask scheduler there: no answer; check --scheduler"
    assert "no answer" not in str(invoke(folder, "--scheduler", "nonsense://x").exception)


def test_what_answers_but_is_no_scheduler_is_one_line(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "PATIENCE_S", 0.3)
    with ThreadingHTTPServer(("127.0.0.1", 0), SimpleHTTPRequestHandler) as server:
        serving = threading.Thread(target=server.serve_forever)
        serving.start()
        try:
            result = invoke(folder, "--scheduler", f"tcp://127.0.0.1:{server.server_port}")
        finally:
            server.shutdown()
            serving.join()
    assert "cannot reach a Dask scheduler there: no answer" in str(result.exception)


def test_the_cluster_of_this_machine_is_closed_to_its_other_users(client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """To whoever does not have the keys: no port of its processes lets a stranger in."""
    monkeypatch.setattr(cluster, "PATIENCE_S", 0.3)
    pids = {os.getpid(), *client.run(os.getpid).values(), *client.run(os.getpid, nanny=True).values()}
    ports = {
        port.laddr.port
        for pid in pids
        for port in psutil.Process(pid).net_connections("tcp")
        if port.status == psutil.CONN_LISTEN
    }
    scheduler = int(client.scheduler.address.rpartition(":")[2])
    assert scheduler in ports
    for port in ports:
        for kind in ("tcp", "tls"):
            with pytest.raises((OSError, TypeError)):
                asyncio.run(cluster._greet(f"{kind}://127.0.0.1:{port}"))


def test_what_is_no_file_is_a_row(folder: Path, shared: Cluster, tmp_path: Path) -> None:
    good = tmp_path / "good.json"
    good.write_bytes((folder / "rank00000.pt.trace.json").read_bytes())
    os.mkfifo(tmp_path / "fifo.json")
    (tmp_path / "device.json").symlink_to("/dev/zero")
    (tmp_path / "nothing.json").symlink_to("nowhere")
    (tmp_path / "again.json").symlink_to(good)
    os.link(good, tmp_path / "third.json")
    for paths in (
        [str(tmp_path)],
        [str(tmp_path / "*.json")],
        sorted(map(str, tmp_path.iterdir())),
        [str(tmp_path)] * 2,
    ):
        for report in (
            run_fleet(find_files(paths), shared),
            run.run_local(find_files(paths), partial(task.examine_local, summarize=summarize, cached=False)),
        ):
            assert len(report.rows) == 1
            assert {(Path(file.name).name, file.reason) for file in report.failed} == {
                ("fifo.json", "a FIFO, not a file"),
                ("device.json", "a device, not a file"),
                ("nothing.json", "a link to nowhere, which is not there"),
            }


def test_a_cluster_that_is_there_is_joined(report: RanksReport, folder: Path, client: Any) -> None:
    import dask

    keys = client.security
    known = {"ca-file": keys.tls_ca_file, "client": {"cert": keys.tls_client_cert, "key": keys.tls_client_key}}
    tls = {f"distributed.comm.tls.{name}": value for name, value in known.items()}
    with dask.config.set(tls), cluster.joined_cluster(client.scheduler.address, RANKS) as joined:
        assert run_fleet(find_files([str(folder / "rank00000.pt.trace.json")]), lambda _: _as(joined)).rows
    with pytest.MonkeyPatch.context() as patch, dask.config.set(tls):
        patch.setattr(cluster, "__version__", "0.0")
        joining = cluster.joined_cluster(client.scheduler.address, RANKS)
        with pytest.raises(CbprofError, match=r"has 0\.\d+\.\d+, this is 0\.0; install the same everywhere"), joining:
            pytest.fail("a worker of another version was used")


@contextmanager
def _as(client: Any) -> Iterator[Any]:
    yield client


def test_a_dataset_that_workers_do_not_see(folder: Path, shared: Cluster, tmp_path: Path) -> None:
    out = tmp_path / "out.parquet"
    mine = Dataset.begin(str(out))
    Dataset.begin(str(out))  # another run has taken the place
    with pytest.raises(UsageError, match="a worker does not see this place"):
        list(run.examine_all(_client(shared), find_files([str(folder)]), mine))


def _client(shared: Cluster) -> Any:
    with shared(1) as client:
        return client


def damaged(content: bytes, how: str) -> bytes:
    rows = b"[[[],{},3]]"
    if how == "forged":
        return gzip.compress(re.sub(rb'"idle_ns":\d+', b'"idle_ns":1', gzip.decompress(content)), mtime=0)
    return {
        "cut": content[:-15],
        "flipped": bytes(byte ^ 0x5A if 20 <= at < 60 else byte for at, byte in enumerate(content)),
        "empty": b"",
        "other": gzip.compress(rows, mtime=0),
        "deep": gzip.compress(b"[" * 100_000, mtime=0),
        "large": gzip.compress(bytes(1 << 20) * 300, 1, mtime=0),
    }[how]


@pytest.fixture(scope="module")
def small(folder: Path, shared: Cluster, tmp_path_factory: pytest.TempPathFactory) -> tuple[list[TraceFile], Path, Any]:
    """One file, its dataset, and its report."""
    place = tmp_path_factory.mktemp("small")
    files = find_files([str(folder / "rank00000.pt.trace.json")])
    return files, place / "out.parquet", run_fleet(files, shared, out=str(place / "out.parquet")).to_json()


@pytest.mark.parametrize(
    ("part", "how"),
    [
        ("_summaries", "cut"),
        ("_summaries", "flipped"),
        ("_summaries", "other"),
        ("_summaries", "forged"),
        ("_seen", "empty"),
        ("_seen", "other"),
        ("_seen", "deep"),
        ("_seen", "large"),
        ("gaps", "cut"),
        ("gaps", "flipped"),
        ("steps", "flipped"),
    ],
)
def test_a_damaged_part_is_done_anew(small: Any, shared: Cluster, part: str, how: str) -> None:
    files, out, report = small
    (path,) = (out / part).iterdir()
    before = path.read_bytes()
    path.write_bytes(damaged(before, how))
    again = run_fleet(files, shared, out=str(out))
    assert again.to_json() == report
    if part != "_seen":
        assert (out / part / path.name).read_bytes() == before


@pytest.mark.parametrize("place", ["", "_summaries", "_seen"])
def test_what_everybody_may_write_is_not_believed(small: Any, place: str) -> None:
    files, out, _ = small
    dataset, content = Dataset.begin(str(out)), next((out / "_summaries").iterdir()).name.partition(".")[0]
    assert [known.content for _, known in dataset.known(files)] == [content]
    (out / place).chmod(0o777)
    assert (list(dataset.known(files)), dataset.read(files[0], content)) == ([], None)
    (out / place).chmod(0o755)


def test_what_is_not_ours_in_a_dataset_stays(small: Any, shared: Cluster) -> None:
    files, out, report = small
    foreign = [out / "gaps" / "my_notes.parquet", out / "steps" / ".ipynb_checkpoints" / "x", out / "_seen" / "x" / "y"]
    for path in foreign:
        path.parent.mkdir(exist_ok=True)
        path.write_text("mine")
    (out / MARK).write_text("{")
    assert run_fleet(files, shared, out=str(out)).to_json() == report
    assert all(path.read_text() == "mine" for path in foreign)
    for path in foreign:
        path.unlink()


def test_a_link_in_a_dataset_is_not_followed(folder: Path, tmp_path: Path) -> None:
    out, precious = tmp_path / "out.parquet", tmp_path / "precious"
    precious.mkdir()
    (precious / "thesis.docx").write_text("years of work")
    Dataset.begin(str(out))
    (out / "steps").symlink_to(precious)
    with pytest.raises(UsageError, match="steps: is not a folder of the dataset; remove it"):
        Dataset.begin(str(out))
    assert [path.name for path in precious.iterdir()] == ["thesis.docx"]


@pytest.mark.parametrize("forged", ["../../elsewhere/" + "0" * 40, "0" * 39, 5])
def test_a_forged_place_is_not_read(small: Any, shared: Cluster, forged: Any) -> None:
    files, out, report = small
    (path,) = (out / "_seen").glob("*.json.gz")
    rows = [[name, version, forged] for name, version, _ in json.loads(gzip.decompress(path.read_bytes()))]
    path.write_bytes(gzip.compress(json.dumps(rows).encode()))
    assert run_fleet(files, shared, out=str(out)).to_json() == report


def test_what_is_no_dataset_is_left_alone(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(UsageError, match="is no dataset of cbprof"):
        Dataset.begin(str(tmp_path))
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_whatever_happens_to_one_file_is_its_reason() -> None:
    from distributed import KilledWorker
    from distributed.scheduler import WorkerState

    (file,) = find_files([__file__])
    lost = KilledWorker("examine", WorkerState.__new__(WorkerState), 3)
    assert "raise --memory" in (run._failed(file, lost).reason or "")
    assert run._failed(file, OSError("the disk\nis gone")).reason == "the disk is gone"
    assert "memory" in (run._failed(file, MemoryError()).reason or "")
    with pytest.raises(UsageError):
        run._failed(file, UsageError("all of it is wrong"))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere.json"], "nowhere.json: cannot be read: No such file or directory"),
        (["*.nothing"], "holds no file that ends in "),
        (["ftpx://host/a.json"], "Protocol not known"),
        ([__file__, "-o", "page.pdf"], "choose a name that ends in .html"),
        ([__file__, "--csv", "no/such/folder/a.csv"], "there is no folder no/such/folder"),
        ([__file__, "--memory", "plenty"], "'plenty' is no amount of memory"),
    ],
)
def test_bad_requests_are_one_line(arguments: list[str], message: str) -> None:
    error = str(invoke(*arguments).exception)
    assert message in error
    assert "\n" not in error


def test_nothing_but_bad_files_is_an_error(shared: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "local_cluster", lambda n_files, **_: shared(n_files))
    (tmp_path / "a.json").write_text("{}")
    result = invoke(tmp_path)
    assert "none of 1 file could be used" in str(result.exception)
