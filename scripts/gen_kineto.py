#!/usr/bin/env python3
"""Writes a synthetic trace of torch.profiler, of any size, with the exact answer beside it.

It is a decode loop of an inference engine, laid out as Kineto writes it: operators, runtime calls, kernels, copies,
arrows from launches to kernels, annotations of every step. Times are integer nanoseconds, so the answer is exact.

    scripts/gen_kineto.py trace.json --events 1000000 --mode sync --graph

writes trace.json and trace.json.truth.
"""

from __future__ import annotations

import argparse
import json
import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import TextIO

US = 1000
PID = TID = 6583
COMPUTE, COPY = 7, 20  # streams
ORIGIN_NS = 1_365_627_863_000_000  # after baseTimeNanoseconds, as large as in real files

KERNELS = (  # name, mean duration in ns
    ("nvjet_tst_64x8_64x16_4x1_v_bz_TNT", 9800),
    ("sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize64x64x64_warpgroupsize1x1x1_execute_segment_k_off", 8700),
    ("void vllm::fused_add_rms_norm_kernel<c10::BFloat16, 8>(c10::BFloat16*, long, c10::BFloat16*, float)", 2300),
    ("void vllm::rotary_embedding_kernel<c10::BFloat16, true>(long const*, c10::BFloat16*, int, long, long)", 1900),
    ("void vllm::reshape_and_cache_flash_kernel<__nv_bfloat16, (vllm::Fp8KVCacheDataType)0>(long const*)", 1700),
    ("void cutlass::device_kernel<flash::FlashAttnFwdSm90<cute::tuple<cute::C<128>, cute::C<64> >, true> >", 14200),
    ("void vllm::act_and_mul_kernel<c10::BFloat16, &vllm::silu_kernel<c10::BFloat16>, true>(c10::BFloat16*)", 2600),
    ("nvjet_tst_128x16_64x8_2x1_v_bz_TNT", 21000),
    ("void at::native::elementwise_kernel<128, 2, at::native::direct_copy_kernel_cuda>" + 60 * "(lambda)", 2200),
)
OPERATORS = ("aten::linear", "aten::mm", "_C::fused_add_rms_norm", "_C::rotary_embedding", "aten::copy_")

EVENT = """\
  {{
    "ph": "X", "cat": "{cat}", "name": "{name}", "pid": {pid}, "tid": {tid},
    "ts": {ts}, "dur": {dur},
    "args": {{
      {args}
    }}
  }},
"""
ARROW = """\
  {{
    "ph": "{ph}", "id": {id}, "pid": {pid}, "tid": {tid}, "ts": {ts},
    "cat": "ac2g", "name": "ac2g"{more}
  }},
"""
END = """\
  {{
    "name": "Record Window End", "ph": "i", "s": "g",
    "pid": "", "tid": "", "ts": {ts}
  }}
  ],
  "traceName": "{name}"
}}
"""
KERNEL_ARGS = """\
"queued": 0, "device": 0, "context": 1,
      "stream": {stream}, "correlation": {correlation},
      "registers per thread": 168,
      "shared memory": 213248,
      "blocks per SM": 1.000000,
      "warps per SM": 8.000000,
      "grid": [132, 1, 1],
      "block": [256, 1, 1],
      "est. achieved occupancy %": 12"""
OPERATOR_ARGS = (
    '"External id": {id},"Record function id": 0, "Concrete Inputs": ["", "", ""], '
    '"Input type": ["c10::BFloat16", "c10::BFloat16", ""], "Input Strides": [[4096, 1], [1, 4096], []], '
    '"Input Dims": [[64, 4096], [4096, 4096], []], "Ev Idx": {id}'
)


@dataclass(frozen=True, slots=True)
class Loop:
    """What the engine does."""

    mode: str = "sync"
    graph: bool = False
    kernels_per_step: int = 300
    host_us: int = 700
    python_frames: int = 0
    seed: int = 0


@dataclass(slots=True)
class Writer:
    """Writes events and remembers when the device was busy. Times are nanoseconds from the origin."""

    file: TextIO
    n_events: int = 0
    last_id: int = 100
    busy: list[tuple[int, int]] = field(default_factory=list)

    def host(self, cat: str, name: str, start: int, dur: int, args: str) -> None:
        self._span(cat, name, PID, TID, start, dur, args)

    def call(self, name: str, start: int, dur: int, *, arrow: bool = True) -> int:
        """A call of the runtime, with the beginning of an arrow to what it launches; its correlation id."""
        self.last_id += 1
        args = f'"External id": {self.last_id},"cbid": 211,"correlation": {self.last_id}'
        self.host("cuda_runtime", name, start, dur, args)
        if arrow:
            self._arrow("s", self.last_id, PID, TID, start)
        return self.last_id

    def device(self, cat: str, name: str, stream: int, start: int, dur: int, correlation: int) -> None:
        """Something that ran on the device, with an arrow from what launched it."""
        args = KERNEL_ARGS.format(stream=stream, correlation=correlation)
        self._span(cat, name, 0, stream, start, dur, args)
        self._arrow("f", correlation, 0, stream, start)
        self.busy.append((start, start + dur))

    def _span(self, cat: str, name: str, pid: int, tid: int, start: int, dur: int, args: str) -> None:
        place = {"pid": pid, "tid": tid, "ts": us(ORIGIN_NS + start), "dur": us(dur)}
        self.file.write(EVENT.format(cat=cat, name=name, args=args, **place))
        self.n_events += 1

    def _arrow(self, phase: str, correlation: int, pid: int, tid: int, start: int) -> None:
        more = ', "bp": "e"' if phase == "f" else ""
        time = us(ORIGIN_NS + start)
        self.file.write(ARROW.format(ph=phase, id=correlation, pid=pid, tid=tid, ts=time, more=more))
        self.n_events += 1


def us(ns: int) -> str:
    return f"{ns // 1000}.{ns % 1000:03d}"


class Engine:
    """A decode loop. ``host`` and ``device`` are how far either has come."""

    def __init__(self, loop: Loop, out: Writer) -> None:
        self.loop, self.out, self.random = loop, out, random.Random(loop.seed)
        self.host = self.device = self.fetched = 0

    def step(self, number: int) -> None:
        """One batch, from its schedule to its results."""
        begin = self.host
        self.prepare()
        self.forward()
        self.wait()
        self.annotate("process_output", self.host, self.about(0.6 * self.loop.host_us * US))
        self.out.host("user_annotation", f"ProfilerStep#{number}", begin, self.host - begin, f'"Ev Idx": {number}')
        self.host += 2 * US

    def prepare(self) -> None:
        """Schedule, and copy the inputs on a stream of their own."""
        begin, duration = self.host, self.about(0.4 * self.loop.host_us * US)
        self.annotate("schedule", begin, duration - 80 * US)
        for copy in range(2):
            self.copy("HtoD (Pinned -> Device)", COPY, begin + duration - 70 * US + copy * 14 * US)
        self.host = begin + duration

    def forward(self) -> None:
        """All kernels, each with a launch of its own or all with one launch of a graph; then fetch the tokens."""
        begin, graph, ready = self.host, None, 0
        if self.loop.graph:
            duration = self.about(70 * US)
            graph = self.out.call("cudaGraphLaunch", self.host + 2 * US, duration)
            ready, self.host = self.host + duration - 6 * US, self.host + duration + 5 * US
        for kernel in range(self.loop.kernels_per_step):
            name, mean = KERNELS[(kernel * 7 + kernel // 9) % len(KERNELS)]
            launched, earliest = self.operator(kernel) if graph is None else (graph, ready)
            start, duration = max(self.device + self.about(850, 0.3), earliest), self.about(mean)
            self.out.device("kernel", name, COMPUTE, start, duration, launched)
            self.device = start + duration
        self.device = self.copy("DtoH (Device -> Pinned)", COMPUTE, self.host + US)
        self.host += 8 * US
        self.annotate("execute_context_0(0)_generation_64(64)", begin, self.host - begin)

    def operator(self, kernel: int) -> tuple[int, int]:
        """An operator that launches one kernel: the id of its launch, and when that kernel can start."""
        start, duration, frames = self.host, self.about(5500, 0.25), self.loop.python_frames
        name = OPERATORS[kernel % len(OPERATORS)]
        self.out.host("cpu_op", name, start, duration, OPERATOR_ARGS.format(id=self.out.last_id))
        for frame in range(frames):
            args = f'"Python parent id": {frame}, "Python id": {self.out.last_id}'
            name = f"vllm/v1/worker/gpu_model_runner.py({1000 + frame}): execute_model"
            self.out.host("python_function", name, start, duration - 10 * frame, args)
        launching = self.about(2800)
        launched = self.out.call("cudaLaunchKernel", start + 1300, launching)
        self.host += duration + 300
        return launched, start + 1300 + launching + 900

    def copy(self, way: str, stream: int, start: int) -> int:
        """A copy, which waits for what its stream does; its end."""
        launched, duration = self.out.call("cudaMemcpyAsync", start, 7 * US), self.about(1800)
        begin = max(start + 7500, self.device + 900 if stream == COMPUTE else 0)
        self.out.device("gpu_memcpy", f"Memcpy {way}", stream, begin, duration, launched)
        return begin + duration

    def wait(self) -> None:
        """For the tokens of this step, or of the one before."""
        awaited = self.device if self.loop.mode == "sync" else self.fetched
        duration = max(2 * US, awaited - self.host + 4 * US)
        name = "cudaStreamSynchronize" if self.loop.mode == "sync" else "cudaEventSynchronize"
        self.out.call(name, self.host, duration, arrow=False)
        self.host, self.fetched = self.host + duration, self.device

    def annotate(self, name: str, start: int, duration: int) -> None:
        self.out.host("user_annotation", name, start, duration, '"Ev Idx": 0')
        self.host = max(self.host, start + duration)

    def about(self, ns: float, spread: float = 0.15) -> int:
        return int(ns * (1 + spread * (2 * self.random.random() - 1)))


def truth(busy: list[tuple[int, int]], n_events: int) -> dict[str, float]:
    """The exact answer: the union of what ran on the device, against its span."""
    covered, (start, end) = 0, min(busy)
    for a, b in sorted(busy):
        if a > end:
            covered, start = covered + end - start, a
        end = max(end, b)
    covered += end - start
    span = end - min(busy)[0]
    return {"n_events": n_events, "n_gpu_events": len(busy), "window_ns": span, "busy_ns": covered,
            "idle_pct": 100 * (span - covered) / span}  # fmt: skip


def generate(path: Path, events: int, loop: Loop, rank: int = 0) -> dict[str, float]:
    """Write at least ``events`` events to ``path``, in whole steps; the exact answer."""
    head = {
        "schemaVersion": 1,
        "deviceProperties": [{"id": 0, "name": "Synthetic GPU"}],
        "distributedInfo": {"backend": "nccl", "rank": rank, "world_size": 1},
        "displayTimeUnit": "ms",
        "baseTimeNanoseconds": 1_767_189_312_000_000_000,
    }
    with path.open("w", encoding="utf-8", buffering=1 << 22) as file:
        file.write(json.dumps(head)[:-1] + ',\n  "traceEvents": [\n')
        out = Writer(file)
        engine, number = Engine(loop, out), 0
        while out.n_events < events:
            engine.step(number)
            number += 1
        file.write(END.format(ts=us(ORIGIN_NS + engine.host), name=path.name))
    return truth(out.busy, out.n_events + 1)


def main() -> None:
    defaults = Loop()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--events", type=int, default=100_000)
    parser.add_argument("--mode", choices=["sync", "async"], default=defaults.mode)
    parser.add_argument("--graph", action="store_true", help="one graph launch a step instead of one launch a kernel")
    parser.add_argument("--kernels-per-step", type=int, default=defaults.kernels_per_step)
    parser.add_argument("--host-us", type=int, default=defaults.host_us, help="host work a step, beside launching")
    parser.add_argument("--python-frames", type=int, default=defaults.python_frames, help="python frames a kernel")
    parser.add_argument("--seed", type=int, default=defaults.seed)
    parser.add_argument("--rank", type=int, default=0)
    options = vars(parser.parse_args())
    path, events, rank = options.pop("out"), options.pop("events"), options.pop("rank")
    answer = generate(path, events, Loop(**options), rank)
    path.with_name(path.name + ".truth").write_text(json.dumps(answer, indent=1), encoding="utf-8")
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
