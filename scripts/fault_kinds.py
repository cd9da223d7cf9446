"""The faults that ``scripts/faults`` makes, each in a folder of its own: made for real, they say what was lost."""

from __future__ import annotations

import gzip
import json
import os
import resource
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import kineto_samples
import nsys_samples
from test_api import sync_trace

from cbprof.errors import CbprofError
from cbprof.formats import load, save

Lost = Iterator[str]
"""What a fault cost, in words; nothing where all survived."""

ROOT = Path(__file__).parents[1]
NOBODY = 65534
MEMORY = 1800 << 20  # of the address space, of which the packages take 1 GB
PATIENCE_S = 120
FINE = (0, 1)
DOCUMENTED = (0, 1, 2, 3, 130)


class NotMadeError(Exception):
    """The fault cannot be made here."""


class Fault(NamedTuple):
    """``item``: of the list of what may happen; ``short``: it is made in CI, too."""

    item: str
    name: str
    make: Callable[[Path], Lost]
    short: bool


FAULTS: list[Fault] = []


def fault(item: str, name: str, *, short: bool = False) -> Callable[[Callable[[Path], Lost]], Callable[[Path], Lost]]:
    def add(make: Callable[[Path], Lost]) -> Callable[[Path], Lost]:
        FAULTS.append(Fault(item, name, make, short))
        return make

    return add


def started(*arguments: object, cwd: Path, command: tuple[str, ...] = ("-m", "cbprof"), **options: object) -> Process:
    """A command of its own session, so that all that it starts can be found."""
    environment = {key: value for key, value in os.environ.items() if key != "DASK_SCHEDULER_ADDRESS"}
    environment |= {"PYTHONPATH": str(ROOT), "OPENBLAS_NUM_THREADS": "1", "XDG_CACHE_HOME": str(cwd / "cache")}
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "env": environment, "start_new_session": True}
    words = [sys.executable, *command, *map(str, arguments)]
    return subprocess.Popen(words, cwd=cwd, text=True, errors="replace", **(streams | options))  # type: ignore[call-overload,no-any-return]


Process = subprocess.Popen[str]


class Done(NamedTuple):
    code: int
    out: str
    err: str


def cbprof(*arguments: object, cwd: Path, **options: object) -> Done:
    process = started(*arguments, cwd=cwd, **options)
    try:
        out, err = process.communicate(timeout=PATIENCE_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        return Done(124, "", f"hung for {PATIENCE_S} s\n")
    return Done(process.returncode, out or "", err or "")


def unlike(done: Done, *codes: int) -> Lost:
    """Of a command: an exit code that is not one of these, a traceback, and more than one line of an error."""
    said = [line for line in done.err.splitlines() if line.startswith("cbprof: ")]
    if done.code not in codes:
        yield f"exit code {done.code}: {done.err.strip()[-200:]}"
    if "Traceback" in done.err:
        yield f"a traceback: {done.err.strip().splitlines()[-1][:200]}"
    if done.code not in (0, 1, 130) and len(said) != 1:
        yield f"{len(said)} lines of an error"


def changed(before: dict[Path, bytes]) -> Lost:
    for path, content in before.items():
        if not path.is_file() or path.read_bytes() != content:
            yield f"{path.name} is not what it was"


def half_written(*paths: Path) -> Lost:
    """Of outputs: those that are there and are no whole trace."""
    for path in paths:
        if path.exists():
            try:
                if not load(path).complete:
                    yield f"{path.name} is half there"
            except CbprofError as error:
                yield f"{path.name}: {error}"


class Disk(NamedTuple):
    """``options``: of the processes that are to find it full."""

    folder: Path
    options: dict[str, Any]


STAND_INS: list[str] = []
"""What was made in place of the fault that is being made."""


@contextmanager
def disk_with(place: Path, room: int, *, holding: int = 0) -> Iterator[Disk]:
    """A disk that takes so many bytes more than it is to hold. Where none may be mounted, a limit on each file."""
    folder = place / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={holding + room}", "tmpfs", folder]
    if os.geteuid() or subprocess.run(mount, capture_output=True, check=False).returncode:
        STAND_INS.append("a limit on the size of files")
        limits = partial(resource.setrlimit, resource.RLIMIT_FSIZE, (room, room))
        yield Disk(folder, {"preexec_fn": limits})
        return
    try:
        yield Disk(folder, {})
    finally:
        subprocess.run(["umount", "-l", folder], check=False)


def needs_root() -> None:
    if os.geteuid():
        raise NotMadeError("only root becomes another user")


AS_NOBODY = f"""
import os, sys
from typer.testing import CliRunner
from cbprof.cli.main import app
line, ours, theirs = sys.argv[1].split(), *sys.argv[2:]
os.chdir(ours); CliRunner().invoke(app, line)  # another user may not import what is imported late
os.chdir(theirs); os.setuid({NOBODY})
error = CliRunner().invoke(app, line).exception
print(getattr(error, "exit_code", 0), error)
"""


# Data


@fault("1", "a full disk while a crashed run is salvaged", short=True)
def salvage(place: Path) -> Lost:
    whole = save(sync_trace(300), place / "t.json").read_bytes()
    with disk_with(place, 80 << 10, holding=len(whole)) as (disk, full):
        part = disk / "t.json.part"
        part.write_bytes(whole)
        yield from unlike(cbprof("convert", part.name, "t.json", cwd=disk, **full), 3)
        yield from changed({part: whole})
        yield from (f"{each.name} is left" for each in disk.iterdir() if each != part)


@fault("1", "an output that is the input: by name, by link, by hard link")
def onto_itself(place: Path) -> Lost:
    trace = save(sync_trace(), place / "t.json")
    before = {trace: trace.read_bytes()}
    (place / "soft.xml").symlink_to("t.json")
    os.link(trace, place / "hard.json")
    yield from unlike(cbprof("check", "t.json", "--max-idle", "99%", "--junit", "soft.xml", cwd=place), 2)
    yield from unlike(cbprof("convert", "t.json", "hard.json", cwd=place), 2)
    yield from changed(before)


TRACER = """
import cbprof, os, sys
def steps(tracer, first, last):
    with tracer:
        for number in range(first, last):
            with tracer.step(number), tracer.cpu("schedule"): pass
tracer = cbprof.Tracer("own.json", device="none")
"""


def steps_in(*paths: Path) -> dict[str, list[int]]:
    return {path.name: sorted(set(load(path).step.tolist()) - {-1}) for path in paths if path.exists()}


@fault("2", "two processes write one name")
def two_writers(place: Path) -> Lost:
    script = TRACER + "tracer.start(); print(flush=True); sys.stdin.read(); steps(tracer, *map(int, sys.argv[1:]))"
    both = [started(first, first + 50, cwd=place, command=("-c", script), stdin=subprocess.PIPE) for first in (0, 1000)]
    for each in both:
        assert each.stdout is not None
        each.stdout.readline()
    for each in both:
        each.communicate()
    found = steps_in(*place.glob("own*.json"))
    if sorted(found.values()) != [list(range(50)), list(range(1000, 1050))]:
        yield f"the files hold {[(name, len(steps)) for name, steps in found.items()]}"


@fault("2", "forked children of a tracer record, too")
def forked(place: Path) -> Lost:
    script = (
        TRACER
        + """
steps(tracer, 0, 20)
child = os.fork()
if not child:
    steps(tracer, 1000, 1010); os._exit(0)
os.waitpid(child, 0)
steps(tracer, 500, 520)
"""
    )
    yield from unlike(cbprof(cwd=place, command=("-c", script)), 0)
    found = steps_in(*place.glob("own*.json"))
    if any(len({step // 500 for step in steps}) > 1 for steps in found.values()):
        yield "a file holds the steps of two processes"
    if sum(map(len, found.values())) < 30:
        yield f"of 50 steps there are {sum(map(len, found.values()))}"


@fault("3", "an engine that never lets the recorder run is killed")
def starved(place: Path) -> Lost:
    script = (
        TRACER
        + """
tracer.start()
for number in range(6000):
    with tracer.step(number), tracer.cpu("schedule"): pass
os.kill(os.getpid(), 9)
"""
    )
    cbprof(cwd=place, command=("-c", script))
    there = len(load(place / "own.json.part"))
    if there < 12_000 - 8_192 - 1_024 - 1:
        yield f"{there:,} of 12,000 records are there"


@fault("4", "the disk is full before a recorded program begins", short=True)
def full_before(place: Path) -> Lost:
    with disk_with(place, 16 << 10) as (disk, full):
        program = f"open({str(place / 'ran')!r}, 'w')"
        done = cbprof("record", "-o", "t.json", "--", sys.executable, "-c", program, cwd=disk, **full)
        yield from unlike(done, 3)
        yield from (f"{each.name} is there" for each in (*disk.iterdir(), place / "ran") if each.exists())


@fault("4", "the disk fills up while a program is recorded", short=True)
def full_meanwhile(place: Path) -> Lost:
    (place / "script.py").write_text(TRACER + "steps(tracer, 0, 3000)\nprint('done')")
    with disk_with(place, 100 << 10) as (disk, full):
        done = cbprof("record", "-q", "-o", "t.json", "--", sys.executable, "../script.py", cwd=disk, **full)
        if (done.code, done.out) != (3, "done\n"):
            yield f"exit code {done.code}, and the program says {done.out!r}: {done.err[-200:]}"
        if "wrote" in done.err and not (disk / "t.json").exists():
            yield "says that it wrote what is not there"
        if not len(load(disk / "t.json.part")):
            yield "nothing of the recording is left"


@fault("4", "a folder that takes no file, of another user")
def unwritable(place: Path) -> Lost:
    needs_root()
    with tempfile.TemporaryDirectory() as theirs, tempfile.TemporaryDirectory() as ours:
        os.chmod(theirs, 0o755)
        for folder in (theirs, ours):
            save(sync_trace(), Path(folder) / "t.json").chmod(0o644)
        for line in ("record -q -o o.json -- true", "report t.json -o o.html", "convert t.json o.csv"):
            done = cbprof(line, ours, theirs, cwd=place, command=("-c", AS_NOBODY))
            if not done.out.splitlines()[-1:] or "cannot write the output: Permission denied" not in done.out:
                yield f"{line}: {done.out.strip()[-200:]} {done.err.strip()[-200:]}"
        yield from (f"{name} is left" for name in os.listdir(theirs) if name != "t.json")


@fault("4", "stderr and stdout are closed while a program is recorded")
def closed_streams(place: Path) -> Lost:
    (place / "script.py").write_text(
        TRACER + "steps(tracer, 0, 50)\nfor fd in (1, 2):\n  try: os.write(fd, b'astray')\n  except OSError: pass"
    )
    line = f"exec {sys.executable} -m cbprof record -o own.json -- {sys.executable} script.py >&- 2>&-"
    done = cbprof(cwd=place, command=("-c", f"import os; os.execv('/bin/sh', ['/bin/sh', '-c', {line!r}])"))
    if done.code:
        yield f"exit code {done.code}"
    if steps_in(place / "own.json") != {"own.json": list(range(50))} or b"astray" in (place / "own.json").read_bytes():
        yield "the trace is not whole"


@fault("4", "a recorded program replaces itself by exec")
def replaced_program(place: Path) -> Lost:
    script = (
        TRACER
        + """
steps(tracer, 0, 5)
tracer.start()
with tracer.step(5), tracer.cpu("schedule"): pass
if len(sys.argv) == 1: os.execv(sys.executable, [sys.executable, "script.py", "again"])
"""
    )
    (place / "script.py").write_text(script)
    yield from unlike(cbprof("record", "-q", "-o", "own.json", "--", sys.executable, "script.py", cwd=place), 0)
    kept = sum(len(load(path)) for path in place.glob("own*"))
    if kept < 22:
        yield f"of 24 records {kept} are there"


@fault("5", "a profile is replaced while it is read")
def replaced_file(place: Path) -> Lost:
    from gen_kineto import Loop, generate

    for number, name in enumerate(("a.json", "b.json")):
        generate(place / name, 120_000 + 20_000 * number, Loop(mode=("sync", "async")[number]))

    def idle(name: str) -> object:
        return json.loads(cbprof("report", "--json", "--no-cache", name, cwd=place).out)["devices"][0]["idle_pct"]

    true = {idle("a.json"), idle("b.json")}
    for tenth in range(1, 10):
        shutil.copy(place / "a.json", place / "t.json")
        shutil.copy(place / "b.json", place / "next.json")
        process = started("report", "--json", "--no-cache", "t.json", cwd=place)
        with suppress(subprocess.TimeoutExpired):
            process.wait(0.15 * tenth)
        (place / "next.json").replace(place / "t.json")
        out, err = process.communicate()
        if process.returncode == 0 and json.loads(out)["devices"][0]["idle_pct"] not in true:
            yield f"a report of two files, {tenth / 10} s after its begin"
        elif process.returncode:
            yield from unlike(Done(process.returncode, out, err), 3)


@fault("6", "every part of a fleet's dataset is damaged")
def damaged_dataset(place: Path) -> Lost:
    for number in range(3):
        kineto_samples.write(
            place, *kineto_samples.DECODE, kineto_samples.kernel(20_000 + number, 9), name=f"{number}.json"
        )
    fleet = partial(
        cbprof,
        "fleet",
        *(f"{n}.json" for n in range(3)),
        "--workers",
        "1",
        "-q",
        "--json",
        "--out",
        "o.parquet",
        cwd=place,
    )
    report = fleet().out
    part_of = {
        name: sorted((place / "o.parquet" / name).iterdir())[0] for name in ("_summaries", "_seen", "steps", "gaps")
    }
    damages: dict[str, Callable[[bytes], bytes]] = {
        "cut": lambda content: content[:-15],
        "flipped": lambda content: content[:20] + bytes(each ^ 0x5A for each in content[20:60]) + content[60:],
        "empty": lambda _: b"",
        "of other lists": lambda _: gzip.compress(b"[[[],{},3]]"),
        "numbers that are too large": lambda content: gzip.compress(b'{"idle_ns":1e30}' * (content[:1] == b"\x1f")),
    }
    for how, damage in damages.items():
        for part in part_of.values():
            if part.exists():
                part.write_bytes(damage(part.read_bytes()))
        done = fleet()
        yield from unlike(done, 0)
        if done.out != report:
            yield f"another report, after parts that are {how}"
        part_of = {name: sorted((place / "o.parquet" / name).iterdir())[0] for name in part_of}
    notes = place / "o.parquet" / "gaps" / "my_notes.parquet"
    notes.write_text("mine")
    precious = place / "precious"
    precious.mkdir()
    (precious / "thesis.docx").write_text("years of work")
    shutil.rmtree(place / "o.parquet" / "steps")
    (place / "o.parquet" / "steps").symlink_to(precious)
    yield from unlike(fleet(), 2)
    if not notes.exists() or [each.name for each in precious.iterdir()] != ["thesis.docx"]:
        yield "files of the user"


# Trust


@fault("7", "modules of the current folder, in front of Python's")
def traps(place: Path) -> Lost:
    from gen_kineto import Loop, generate

    for name in ("pickle", "struct", "json", "msgspec", "numpy", "selectors", "signal", "socket", "multiprocessing"):
        (place / f"{name}.py").write_text("from pathlib import Path; Path(__file__).with_suffix('.ran').touch()\n")
    generate(place / "big.json", 400_000, Loop())
    main = "from cbprof.cli.main import main; main()"
    yield from unlike(cbprof("report", "big.json", "--no-cache", cwd=place, command=("-P", "-c", main)), 0)
    yield from (f"{path.name} has run" for path in place.glob("*.ran"))


REACH = f"""
import os, sys
from distributed import Client, LocalCluster
def reach(number, address):
    try: Client(address, timeout=3, set_as_default=False).run(os.getpid)
    except Exception: return
    print(number, "reached", flush=True)
open_to_all = LocalCluster(n_workers=1, processes=False, dashboard_address=None)
reach(0, open_to_all.scheduler_address)  # another user may not import what is imported late
os.setuid({NOBODY})
reach(0, open_to_all.scheduler_address)
for kind in ("tcp", "tls"): reach(1, f"{{kind}}://{{sys.argv[1]}}")
os._exit(0)
"""


@fault("8", "another user of the machine reaches for a fleet's cluster")
def other_user(place: Path) -> Lost:
    needs_root()
    from cbprof.fleet.cluster import local_cluster

    with local_cluster(1, workers=1) as client:
        address = client.scheduler.address.partition("://")[2]
        done = cbprof(address, cwd=place, command=("-c", REACH))
    if not done.out.startswith("0 reached\n0 reached\n"):
        raise NotMadeError("another user cannot use Dask here")
    yield from (f"{line}, as user {NOBODY}" for line in done.out.splitlines()[2:])


@fault("9", "what is told of a private trace, and its cache")
def private(place: Path) -> Lost:
    trace = save(sync_trace(), place / "t.json")
    trace.chmod(0o600)
    yield from unlike(cbprof("report", "t.json", "-o", "t.html", cwd=place), 0)
    if (place / "t.html").stat().st_mode & 0o077:
        yield "others read the page"


@fault("9", "a forged cache, and a folder of caches that others may write to")
def forged_cache(place: Path) -> Lost:
    from gen_kineto import Loop, generate

    generate(place / "big.json", 120_000, Loop())
    report = partial(cbprof, "report", "--json", "big.json", cwd=place)
    true = report().out
    folder = place / "cache" / "cbprof"
    (cached,) = folder.iterdir()
    content = cached.read_bytes()
    for forged in (content[:-100], b"", content[:4000] + b"\x7f" + content[4001:], bytes(len(content))):
        cached.write_bytes(forged)
        if report().out != true:
            yield "a damaged cache was believed"
    folder.chmod(0o777)
    before = cached.read_bytes()
    if report().out != true or cached.read_bytes() != before:
        yield "a cache in a folder of everybody's was used"


@fault("10", "an unfinished SQLite export, through a link")
def through_a_link(place: Path) -> Lost:
    path = nsys_samples.write_export(place / "run.sqlite", nsys_samples.one_step())
    (place / "latest.sqlite").symlink_to("run.sqlite")
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode=wal")
        connection.execute("PRAGMA wal_autocheckpoint=0")
        connection.execute(f"INSERT INTO {nsys_samples.KERNEL} SELECT * FROM {nsys_samples.KERNEL}")
        yield from unlike(cbprof("report", "latest.sqlite", cwd=place), 3)


@fault("11", "names of files that steer a terminal, a log, a spreadsheet")
def hostile_names(place: Path) -> Lost:
    name = "=a\x1b[31m\x1b]52;c;eA==\x07\r\n::error::x"
    save(sync_trace(), place / f"{name}.json")
    done = cbprof("check", f"{name}.json", "--max-idle", "1%", "--format", "github", cwd=place)
    yield from unlike(done, 1)
    if {"\x1b", "\x07"} & set(done.out + done.err) or "\n::error::x" in done.out:
        yield "it steers"


# Limits


def packed(path: Path, head: bytes, piece: bytes, size: int) -> Path:
    pack, block = zlib.compressobj(9, wbits=31), piece * ((1 << 20) // len(piece))
    with path.open("wb") as file:
        file.write(pack.compress(head))
        for _ in range(size // len(block)):
            file.write(pack.compress(block))
        file.write(pack.flush())
    return path


def within_memory() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))


@fault("12", "small files that inflate, or whose rows are long")
def bombs(place: Path) -> Lost:
    packed(place / "ours.json.gz", b'{"cbprof":{"schema":1},"traceEvents":[', b"{},", 400 << 20)
    packed(place / "amd.json.gz", b'{"rocprofiler-sdk-tool":[{"buffer_records":{"hip_api":[', b"{},", 200 << 20)
    packed(place / "kineto.json.gz", b'{"schemaVersion":1,"traceEvents":[', b"{},", 400 << 20)
    tables = nsys_samples.one_step() | {"META_DATA_EXPORT": [("EXPORT_SCHEMA_VERSION",)] * 3000}
    nsys_samples.write_export(place / "n.sqlite", tables, columns={"META_DATA_EXPORT": "name"})
    with closing(sqlite3.connect(place / "n.sqlite")) as connection:
        connection.execute(f"ALTER TABLE META_DATA_EXPORT ADD COLUMN value DEFAULT '{'x' * (1 << 20)}'")
        connection.commit()
    for path in sorted(place.glob("*.*")):
        done = cbprof("report", "--no-cache", path.name, cwd=place, preexec_fn=within_memory)
        yield from (f"{path.name}: {lost}" for lost in unlike(done, 3))


@fault("12", "numbers that fit no column, spans that never end, a lane a span")
def limits(place: Path) -> Lost:
    span = {"ph": "X", "name": "x", "cat": "gpu.compute", "pid": 1, "tid": 1, "ts": 1.5, "dur": 2.25}
    huge = {"cbprof": {"rank": 10**30}, "traceEvents": [span, span | {"pid": 2**40}, span | {"args": {"step": 2**70}}]}
    (place / "huge.json").write_text(json.dumps(huge))
    note = {
        "ph": "X",
        "cat": "user_annotation",
        "pid": 4,
        "tid": 5,
        "ts": 0,
        "dur": 50,
        "name": f"ProfilerStep#{10**30}",
    }
    kineto_samples.write(place, *kineto_samples.DECODE, note, name="annotated.json")
    opened = ({"ph": "B", "cat": "cpu_op", "name": "x", "pid": 1, "tid": 1, "ts": n} for n in range(40_000))
    kineto_samples.write(place, *kineto_samples.DECODE, *opened, name="open.json")
    lanes = (kineto_samples.host(n, 1, "op", tid=n) for n in range(30_000))
    kineto_samples.write(place, *kineto_samples.DECODE, *lanes, name="lanes.json")
    for path in sorted(place.glob("*.json")):
        for line in ("report FILE --no-cache", "convert FILE out/t.json", "doctor FILE"):
            (place / "out").mkdir(exist_ok=True)
            done = cbprof(*line.replace("FILE", path.name).split(), cwd=place, preexec_fn=within_memory)
            yield from (f"{line.replace('FILE', path.name)}: {lost}" for lost in unlike(done, 0, 1, 3))


@fault("13", "a FIFO, a device and a link to nothing in a folder of traces")
def no_files(place: Path) -> Lost:
    kineto_samples.write(place, *kineto_samples.DECODE, name="good.json")
    os.mkfifo(place / "fifo.json")
    (place / "device.json").symlink_to("/dev/zero")
    (place / "nothing.json").symlink_to("nowhere")
    (place / "again.json").symlink_to("good.json")
    done = cbprof("report", ".", "--json", cwd=place)
    yield from unlike(done, 0)
    rows = json.loads(done.out)["ranks"] if done.out else []
    if sorted(bool(row.get("reason")) for row in rows) != [False, True, True, True]:
        yield f"{len(rows)} rows"


@fault("13", "a scheduler that is a web server, and a file that takes all memory of its worker")
def fleets(place: Path) -> Lost:
    for number in range(6):
        kineto_samples.write(place, *kineto_samples.DECODE, name=f"{number}.json")
    with started("0", "--bind", "127.0.0.1", cwd=place, command=("-u", "-m", "http.server")) as server:
        assert server.stdout is not None
        port = server.stdout.readline().split(" port ")[1].split()[0]
        yield from unlike(cbprof("fleet", "0.json", "--scheduler", f"tcp://127.0.0.1:{port}", cwd=place), 3)
        server.kill()
    lanes = (kineto_samples.host(n, 1, f"operation {n} " + "x" * 900, tid=n) for n in range(250_000))
    kineto_samples.write(place, *kineto_samples.DECODE, *lanes, name="large.json")
    done = cbprof("fleet", ".", "--workers", "1", "--memory", "350MB", "--json", "-q", cwd=place)
    yield from unlike(done, 0)
    reasons = {
        row["file"].rpartition("/")[2]: row.get("reason") for row in json.loads(done.out or '{"ranks":[]}')["ranks"]
    }
    if [name for name, reason in reasons.items() if reason] not in ([], ["large.json"]) or len(reasons) != 7:
        yield f"blamed: {reasons}"


@fault("14", "the process that plays the device is stopped, then Ctrl-C")
def stopped_device(place: Path) -> Lost:
    import psutil

    process = started("run", "-q", "--mode", "async", "--new-tokens", "900", "-o", "t.json", cwd=place)
    me = psutil.Process(process.pid)
    with suppress(psutil.TimeoutExpired):
        me.wait(20)
    children = me.children(recursive=True)
    if process.poll() is not None or not children:
        raise NotMadeError("the run ended before its device could be stopped")
    for child in children:
        child.suspend()
    process.send_signal(signal.SIGINT)
    try:
        _, err = process.communicate(timeout=60)
    except subprocess.TimeoutExpired:
        yield "the first Ctrl-C does not end it"
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        return
    yield from unlike(Done(process.returncode, "", err), 130, 3)
    if any(child.is_running() and child.status() != psutil.STATUS_ZOMBIE for child in children):
        yield "an orphan"


@fault("15", "a full disk behind stdout, and a reader that goes away")
def readers(place: Path) -> Lost:
    save(sync_trace(400), place / "t.json")
    with open("/dev/full", "w") as full:
        yield from unlike(cbprof("report", "t.json", "--json", cwd=place, stdout=full), 3)
    gone, ours = os.pipe()
    os.close(gone)
    yield from unlike(cbprof("check", "t.json", "--max-idle", "100%", cwd=place, stdout=ours), 0)
    os.close(ours)


@fault("15", "a full disk under tables, pages and recordings", short=True)
def full_outputs(place: Path) -> Lost:
    trace = save(sync_trace(400), place / "t.json")
    before = {trace: trace.read_bytes()}
    with disk_with(place, 24 << 10) as (disk, full):
        for line in ("convert t.json OUT.csv", "plot t.json --no-open -o OUT.html"):
            done = cbprof(*line.replace("OUT", str(disk / "out")).split(), cwd=place, **full)
            yield from (f"{line}: {lost}" for lost in unlike(done, 3))
            yield from (f"{each.name} is left" for each in disk.iterdir())
    yield from changed(before)
