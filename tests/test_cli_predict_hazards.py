"""`cbprof predict` and `cbprof hazards` as users meet them: output, exit codes, files, the examples of the help."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command_line import cbprof
from replay_oracle import Costs, trace_of_run

from cbprof.formats import load, save

SLOW_HOST = Costs(schedule=8)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    save(trace_of_run([SLOW_HOST] * 4, 1, engine="toy", device="slow machine", tokens=4), tmp_path / "trace.json")
    return tmp_path


def test_a_prediction(folder: Path) -> None:
    done = cbprof("predict", "trace.json", cwd=folder)
    assert (done.returncode, done.stderr) == (0, "")
    assert (
        done.stdout
        == """\
╭─ prediction from trace.json, slow machine ───────────────────────────────────╮
│                                               measured sync  predicted async │
│ wall time                                            148 ns            97 ns │
│   likely                                                     65 ns to 129 ns │
│ time per step                                         37 ns            24 ns │
│ tokens/s                                         27,027,027       41,237,113 │
│ GPU idle                                            45.95 %          17.53 % │
│ token to token, p99                                   37 ns            20 ns │
│ as fast                                                                1.53x │
│ steps held up by the host                                                  0 │
│                                                                              │
│ measured         ▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▚▚▚▚▚▚▚▚▚▚▚▚▚▚▚▚▚▚▚▚▚▚▚▚▚·· │
│ predicted async  ███████████████████▓▓▓▓▓▓▓▓▓▓▓▓▓▚▚▚▚▚▚▚                     │
│ █ overlap 49.48 %  ▓ GPU only 32.99 %  ▚ CPU only 16.49 %  · neither 1.03 %  │
│                                                                              │
│ the GPU would still wait for                       per step  in all  of idle │
│ schedule                                               2 ns    8 ns  47.06 % │
│ prepare                                                1 ns    3 ns  17.65 % │
│ update                                                 0 ns    2 ns  11.76 % │
│ a copy                                                 0 ns    2 ns  11.76 % │
│ h2d                                                    0 ns    1 ns   5.88 % │
│                                                                              │
│ ceiling      80 ns if the GPU never waited: at most 1.85x as fast            │
│ least sure   another run draws other durations: 23.71 % either way           │
│ predicted by replaying the measured durations in the async order             │
│ measured by  no GPU, the host plays the device                               │
╰──────────────────────────────────────────────────────────────────────── toy ─╯
"""
    )


def test_what_ifs_stand_beside_the_plain_prediction(folder: Path) -> None:
    done = cbprof("predict", "trace.json", "--gpu-speed", "2", "--scale", "schedule=0.5", "--drop", "fetch", cwd=folder)
    assert "measured sync  predicted async" in done.stdout
    assert "what if" in done.stdout
    assert "a GPU 2x as fast, schedule x 0.5, without fetch" in done.stdout


def test_json_and_a_predicted_trace(folder: Path) -> None:
    done = cbprof("predict", "trace.json", "--json", "--slots", "3", "-o", "predicted.json.gz", cwd=folder)
    report = json.loads(done.stdout)
    assert report["file"] == "trace.json"
    assert report["what_if"]["slots"] == 3
    assert report["predicted_wall_ns"] == 97
    trace = load(folder / "predicted.json.gz")
    assert (trace.evidence, trace.mode) == ("predicted", "async")
    assert set(trace.slot[trace.on_device].tolist()) == {0, 1, 2}
    reported = json.loads(cbprof("report", "predicted.json.gz", "--json", cwd=folder).stdout)
    assert reported["devices"][0]["idle_pct"] == report["predicted_idle_pct"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ("--drop", "detokenize"),
            "no phase 'detokenize': its phases are fetch, h2d, launch, prepare, schedule, update",
        ),
        (("--slots", "0"), "0 slots"),
        (("--scale", "schedule"), "'schedule' is not a phase and a factor"),
        (("--scale", "schedule=half"), "'schedule=half' is not a phase and a factor"),
        (("--gpu-speed", "-1"), "a GPU -1.0 times as fast"),
        (("-o", "nowhere/predicted.json"), "nowhere"),
    ],
)
def test_a_request_that_makes_no_sense(arguments: tuple[str, ...], message: str, folder: Path) -> None:
    done = cbprof("predict", "trace.json", *arguments, cwd=folder)
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert [path.name for path in folder.iterdir()] == ["trace.json"]


@pytest.mark.parametrize("verb", ["predict", "hazards"])
def test_a_file_that_is_no_trace(verb: str, tmp_path: Path) -> None:
    (tmp_path / "trace.json").write_text("{}")
    done = cbprof(verb, "trace.json", cwd=tmp_path)
    assert done.returncode in {2, 3}
    assert len(done.stderr.splitlines()) == 1


def test_a_run_without_hazards(folder: Path) -> None:
    done = cbprof("hazards", "trace.json", cwd=folder)
    assert (done.returncode, done.stderr) == (0, "")
    assert (
        done.stdout
        == """\
╭─ hazards of trace.json, sync ────────────────────────────────────────────────╮
│ what must come first                           pairs  least margin    hazard │
│ H2D N before compute N                             4          0 ns  not seen │
│ compute N before D2H N                             4          0 ns  not seen │
│ D2H N before update N                              4          0 ns  not seen │
│ compute N before compute N+1                       3         17 ns  not seen │
│ H2D of a slot before its next prepare              3         31 ns  not seen │
│ compute of a slot before its next H2D              3         15 ns  not seen │
│ D2H of a slot before its next compute              3         16 ns  not seen │
│                                                                              │
│ clock error  host against device 2 ns, as the file states                    │
│ clock error  device against device 1 ns, as the file states                  │
╰──────────────────────────────────────────────────────────────────────────────╯
"""
    )


def test_a_hazard_ends_with_exit_code_1(folder: Path) -> None:
    """An async loop that never waits for its H2D, although none was late."""
    trace = trace_of_run([Costs()] * 4, 2)
    edges = [edge.to_json() for edge in trace.meta.edges if edge.event != "inputs_ready"]
    save(trace_of_run([Costs()] * 4, 2, edges=edges), folder / "race.json")
    done = cbprof("hazards", "race.json", cwd=folder)
    assert done.returncode == 1
    assert "H2D N before compute N                             4          0 ns     found" in done.stdout
    assert "missing  compute N never waits for H2D N" in done.stdout
    as_json = cbprof("hazards", "race.json", "--json", cwd=folder)
    assert as_json.returncode == 1
    report = json.loads(as_json.stdout)
    assert report["file"] == "race.json"
    assert report["found"] is True
    assert report["rules"][0]["missing_edge"] == "compute N never waits for H2D N"
