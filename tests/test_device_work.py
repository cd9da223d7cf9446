"""What the device spent its time on: names as people write them, groups by a documented table, sums that are exact."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
from command_line import cbprof
from kineto_samples import annotation, call, copy, kernel, write
from oracle import COMPUTE, ENGINE, trace_of

import cbprof as api
from cbprof.analysis.profiles.kernels import RULES, Group, Rule, group_of, short_kernel
from cbprof.api import Recording
from cbprof.trace import Kind

DOCUMENT = Path(__file__).parent.parent / "docs" / "device_work.md"


def rows_of(heading: str) -> list[list[str]]:
    """The rows of the first table below a heading of the document, without back-ticks."""
    lines = DOCUMENT.read_text(encoding="utf-8").partition(f"## {heading}\n")[2].partition("\n## ")[0].splitlines()
    rows = [
        [cell.strip().strip("`") for cell in line.strip("|").split(" | ")] for line in lines if line.startswith("|")
    ]
    return rows[2:]


@pytest.mark.parametrize(("name", "short"), rows_of("Short names"))
def test_short_names(name: str, short: str) -> None:
    assert short_kernel(name) == short


def test_the_document_has_every_rule_in_its_order() -> None:
    assert [(group, what) for group, what, _ in rows_of("Groups")] == [(rule.group, rule.what) for rule in RULES]


@pytest.mark.parametrize(
    ("rule", "example"), [(rule, row[2]) for rule, row in zip(RULES, rows_of("Groups"), strict=True)]
)
def test_each_rule_decides_on_its_example(rule: Rule, example: str) -> None:
    name = short_kernel(example)
    assert next(each for each in RULES if each.pattern.search(name)) is rule
    assert group_of(name, Kind.GPU_COMPUTE) is rule.group


@pytest.mark.parametrize(
    ("name", "group"),
    [
        ("triton_poi_fused__to_copy_1", Group.OTHER),  # a cast
        ("_prepare_prefill_inputs", Group.OTHER),
        ("normal_distribution", Group.OTHER),
        ("layers.0.attention: gemm", Group.GEMM),  # the kernel decides, not where it runs
        ("gatherTopK", Group.OTHER),
    ],
)
def test_names_that_only_look_like_a_group(name: str, group: Group) -> None:
    assert group_of(name, Kind.GPU_COMPUTE) is group


def test_the_kind_of_a_span_comes_before_its_name() -> None:
    assert group_of("gemm", Kind.GPU_COMM) is Group.COMMUNICATION
    assert {group_of("attention", kind) for kind in (Kind.GPU_H2D, Kind.GPU_SET)} == {Group.COPY}


EVENTS = (
    annotation(0, 100, "ProfilerStep#0"),
    call(10, 5, "cudaLaunchKernel", 1),
    kernel(20, 30, "nvjet_sm90_tst_64x32_64x16_4x1_v_bz_TNT", correlation=1),
    kernel(40, 30, "nvjet_sm90_tst_64x32_64x16_1x2_h_bz_TNT", stream=8),
    kernel(80, 10, "void pytorch_flash::flash_fwd_kernel<Traits<128, 128> >(int)"),
    annotation(100, 100, "ProfilerStep#1"),
    kernel(120, 20, "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(int)"),
    call(130, 5, "cudaLaunchKernel", 2),
    kernel(140, 30, "rope", correlation=2),
    copy(190, 2.5, "DtoH (Device -> Pinned)"),
)


def test_every_span_is_in_one_row(tmp_path: Path) -> None:
    found = api.load(write(tmp_path, *EVENTS))
    table = found.device_work().to_pandas()
    assert table[["name", "group", "total_ns", "count"]].to_numpy().tolist() == [
        ["nvjet gemm 64x32 bf16", "GEMM", 60_000, 2],
        ["rope", "other", 30_000, 1],
        ["ncclDevKernel_AllReduce_Sum_bf16_RING_LL", "communication", 20_000, 1],
        ["flash_fwd", "attention", 10_000, 1],
        ["Memcpy DtoH", "copy", 2_500, 1],
    ]
    assert (table["per_step_ns"] == table["total_ns"] / 2).all()
    assert table["share_pct"].sum() == pytest.approx(100)
    (device,) = found.summary().to_json()["devices"]
    assert device["sum_gpu_ns"] == table["total_ns"].sum()
    assert device["device_work"] == table.drop(columns="device").to_dict("records")


def test_only_the_window_counts(tmp_path: Path) -> None:
    summary = api.load(write(tmp_path, *EVENTS)).summary(window="explicit:45:85")
    (device,) = summary.full.devices
    assert [(each["name"], each["total_ns"], each["count"]) for each in device.work_to_json()] == [
        ("nvjet gemm 64x32 bf16", 30_000, 2),
        ("flash_fwd", 5_000, 1),
    ]


def test_what_is_printed(tmp_path: Path) -> None:
    write(tmp_path, *EVENTS)
    lines = cbprof("report", "--full", "--csv", "out.csv", "sample.json", cwd=tmp_path).stdout.splitlines()
    cells = [line.strip("│ ").split("  ") for line in lines]
    at = next(index for index, row in enumerate(cells) if row[0] == "device work")
    assert [[cell.strip() for cell in row if cell] for row in cells[at + 1 : at + 4]] == [
        ["GEMM", "30.00 us", "60.00 us", "2", "48.98 %"],
        ["nvjet gemm 64x32 bf16", "30.00 us", "60.00 us", "2", "48.98 %"],
        ["other", "15.00 us", "30.00 us", "1", "24.49 %"],
    ]
    with (tmp_path / "out.device_work.csv").open(encoding="utf-8", newline="") as file:
        table = list(csv.DictReader(file))
    assert [row["name"] for row in table][:2] == ["nvjet gemm 64x32 bf16", "rope"]
    assert sum(int(row["total_ns"]) for row in table) == 122_500


def test_a_long_table_names_the_largest(tmp_path: Path) -> None:
    kernels = [kernel(100 * number, 1 + number, f"gemm_{number:02}") for number in range(30)]
    write(tmp_path, *kernels)
    shown = cbprof("report", "--full", "sample.json", cwd=tmp_path).stdout
    assert ("gemm_10 " in shown, "gemm_09 " in shown, "10 others" in shown) == (True, False, True)
    assert "gemm_09 " in cbprof("report", "--full", "--all", "sample.json", cwd=tmp_path).stdout


def test_two_runs_side_by_side(tmp_path: Path) -> None:
    slower = [event | {"dur": 50} if event["name"] == "rope" else event for event in EVENTS]
    write(tmp_path, *EVENTS, name="a.json")
    write(tmp_path, *(event for event in slower if "flash" not in event["name"]), name="b.json")
    found = json.loads(cbprof("compare", "--json", "a.json", "b.json", cwd=tmp_path).stdout)
    by_name = {each["name"]: each for each in found["device_work"]}
    assert by_name["rope"] == {
        "name": "rope", "group": "other", "before_ns": 15_000, "after_ns": 25_000, "ratio": 50 / 30
    }  # fmt: skip
    assert (by_name["flash_fwd"]["after_ns"], by_name["flash_fwd"]["ratio"]) == (None, None)
    shown = cbprof("compare", "--format", "md", "a.json", "b.json", cwd=tmp_path).stdout
    assert "rope | 15.00 us | 25.00 us | 1.67x |" in shown
    assert "flash\\_fwd | 5.000 us | none | unknown |" in shown


def test_a_recording_without_kernels_has_no_table() -> None:
    rows = ((ENGINE, Kind.CPU_WORK, "launch", 0, 5, 0), (COMPUTE, Kind.GPU_COMPUTE, "compute", 5, 9, 0))
    found = Recording(trace_of(*rows, evidence="cuda_events"))
    assert (found.device_work().to_pandas().empty, found.device_work().to_markdown()) == (True, "")
    assert [device["device_work"] for device in found.summary().to_json()["devices"]] == [[]]
