"""The paged, chunked, mixed model against the same transformers model on the whole context at once."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from model_batches import LAYOUT, NUM_BLOCKS, SCRATCH, Row, pack  # noqa: E402

from cbprof.engine.model.inputs import view  # noqa: E402
from cbprof.engine.model.load import load  # noqa: E402
from cbprof.engine.model.runner import Runner  # noqa: E402
from cbprof.engine.model.spec import DtypeName, ModelSpec  # noqa: E402
from cbprof.errors import UsageError  # noqa: E402

CPU = torch.device("cpu")
SMALL: dict[str, Any] = {
    "vocab_size": 97,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "pad_token_id": None,
}
FAMILIES: dict[str, dict[str, Any]] = {
    "llama": {},
    "qwen3": {"head_dim": 16},
    "qwen2": {"tie_word_embeddings": True},
    "mistral": {"sliding_window": None},
    "gemma": {"head_dim": 16},
    "granite": {"logits_scaling": 3.0, "attention_multiplier": 0.3, "embedding_multiplier": 2.0},
    "cohere": {"logit_scale": 0.5},
    "olmo2": {},
    "phi3": {},
    "gpt_neox": {"num_key_value_heads": None},
    "starcoder2": {},
}


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Folders with small random models of each family, biases and norms included, made when first asked for."""
    from transformers import AutoConfig, AutoModelForCausalLM

    @cache
    def folder(family: str) -> Path:
        model = AutoModelForCausalLM.from_config(
            AutoConfig.for_model(family, **SMALL | FAMILIES[family]), dtype=torch.float64
        )
        generator = torch.Generator().manual_seed(3)
        for parameter in model.parameters():
            noise = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
            if parameter.dim() > 1:
                parameter.data = noise * parameter.shape[-1] ** -0.5
            else:
                parameter.data += 0.3 * noise
        path = tmp_path_factory.mktemp(family)
        model.save_pretrained(path)
        return path

    return folder


def runner_for(folder: Path, dtype: DtypeName = "float64", slots: int = 2) -> Runner:
    return Runner(ModelSpec(str(folder), dtype), LAYOUT, num_blocks=NUM_BLOCKS, slots=slots, device=CPU)


def reference_for(folder: Path) -> Any:
    """The same weights on transformers' own attention. SDPA: its eager path rounds the softmax to float32."""
    model = load(ModelSpec(str(folder), "float64"), CPU)
    model.set_attn_implementation("sdpa")
    return model


class Requests:
    """Some requests with random tokens and blocks, each a prefix of which has been fed so far."""

    def __init__(self, count: int, seed: int) -> None:
        self.random = random.Random(seed)
        blocks = self.random.sample(range(NUM_BLOCKS), NUM_BLOCKS)
        self.tokens = [[self.random.randrange(97) for _ in range(24)] for _ in range(count)]
        self.blocks = [blocks[6 * i : 6 * i + 6] for i in range(count)]
        self.fed = [0] * count

    def next_batch(self) -> dict[int, Row]:
        """One to seven more tokens for some of the requests, in rows that need not be the first ones."""
        riders = [i for i in range(len(self.tokens)) if self.fed[i] < 24 and self.random.random() < 0.8]
        places = self.random.sample(range(LAYOUT.max_requests), len(riders))
        rows = {}
        for place, i in zip(places, riders, strict=True):
            count = min(self.random.choice([1, 1, 1, 2, 4, 7]), 24 - self.fed[i])
            rows[place] = Row(self.tokens[i][self.fed[i] : self.fed[i] + count], self.fed[i], self.blocks[i])
            self.fed[i] += count
        return dict(sorted(rows.items()))


@pytest.mark.parametrize("family", FAMILIES)
def test_paged_equals_whole_context(family: str, checkpoint: Callable[[str], Path]) -> None:
    runner, reference = runner_for(checkpoint(family)), reference_for(checkpoint(family))
    requests = Requests(5, seed=len(family))
    with torch.no_grad():
        expected = [reference(torch.tensor([tokens]), use_cache=False).logits[0] for tokens in requests.tokens]
    compared = 0
    while min(requests.fed) < 24:
        rows = requests.next_batch()
        tokens = sum(len(row.tokens) for row in rows.values())
        bucket = min(tokens + requests.random.randrange(4), LAYOUT.max_tokens)
        if not bucket:
            continue
        pack(runner.inputs[0], rows, bucket)
        logits = runner.logits(0, bucket)
        for index, row in rows.items():
            request = requests.blocks.index(row.blocks)
            want = expected[request][row.start + len(row.tokens) - 1]
            torch.testing.assert_close(logits[index], want, rtol=0, atol=1e-9)
            compared += 1
    assert compared > 25


def test_carried_tokens_come_from_the_slot_before(checkpoint: Callable[[str], Path]) -> None:
    runner = runner_for(checkpoint("llama"), slots=3)
    prompts = {0: Row([5, 6, 7], 0, [3, 9]), 2: Row([8, 9], 0, [1, 30])}
    for slot, before in ((0, 2), (1, 0), (2, 1)):
        pack(runner.inputs[before], prompts, 8)
        runner.step(before, 8)
        sampled = runner.outputs[before].tolist()
        runner.outputs[slot].fill_(96)
        # Rows move: what rode in row 2 rides in row 1 now. Known ids stay as they are.
        moved = {0: Row([0], 3, [3, 9], carry=0), 1: Row([0], 2, [1, 30], carry=2), 4: Row([11, 12], 0, [20])}
        pack(runner.inputs[slot], moved, 4)
        carried = runner.logits(slot, 4)
        known = {0: Row([sampled[0]], 3, [3, 9]), 1: Row([sampled[2]], 2, [1, 30]), 4: moved[4]}
        pack(runner.inputs[slot], known, 4)
        torch.testing.assert_close(carried[[0, 1, 4]], runner.logits(slot, 4)[[0, 1, 4]], rtol=0, atol=0)


def test_padding_changes_nothing(checkpoint: Callable[[str], Path]) -> None:
    runner = runner_for(checkpoint("llama"))
    rows = {1: Row([1, 2, 3], 0, [7]), 3: Row([4], 0, [8])}
    outcomes = []
    for bucket in (4, 5, 48):
        pack(runner.inputs[0], rows, bucket)
        outcomes.append(runner.logits(0, bucket))
        assert outcomes[-1].isfinite().all()
    for padded in outcomes[1:]:
        torch.testing.assert_close(padded[[1, 3]], outcomes[0][[1, 3]], rtol=0, atol=1e-12)


def test_padding_and_a_fresh_slot_touch_only_scratch(checkpoint: Callable[[str], Path]) -> None:
    runner = runner_for(checkpoint("llama"))
    for bucket in (1, 6, 48):
        runner.step(1, bucket)
    pack(runner.inputs[0], {}, 8)
    runner.step(0, 8)
    for layer in runner._cache._layers:
        for written in layer:
            assert written[:SCRATCH].count_nonzero() == 0
            assert written.isfinite().all()
    assert all(0 <= token < 97 for token in runner.outputs[1].tolist())


def test_no_two_tensors_of_the_cache_share_memory(checkpoint: Callable[[str], Path]) -> None:
    """Else torch.compile copies all of it whenever a part is written."""
    cache = runner_for(checkpoint("llama"))._cache
    tensors = [tensor for layer in cache._layers for tensor in layer]
    assert len({tensor.untyped_storage().data_ptr() for tensor in tensors}) == len(tensors) == 4


def test_step_samples_greedily_and_by_temperature(checkpoint: Callable[[str], Path]) -> None:
    runner = runner_for(checkpoint("qwen3"))
    pack(runner.inputs[0], {row: Row([9, 8, 7], 0, [row]) for row in range(6)}, 18)
    at = view(runner.inputs[0], LAYOUT, 18)
    at.noise_key.copy_(torch.tensor([1, 2, 3, 4, 5, 6]))
    runner.step(0, 18)
    assert runner.outputs[0].dtype == torch.int32
    assert set(runner.outputs[0].tolist()) == {int(runner.logits(0, 18)[0].argmax())}
    at.temperature[1:] = 1.0
    greedy = int(runner.outputs[0][0])
    runner.step(0, 18)
    assert int(runner.outputs[0][0]) == greedy
    assert len(set(runner.outputs[0][1:].tolist())) > 2


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_other_dtypes_agree_within_their_precision(dtype: DtypeName, checkpoint: Callable[[str], Path]) -> None:
    rows = {0: Row([1, 2, 3, 4, 5], 0, [7, 2]), 3: Row([4], 0, [8])}
    outcomes = []
    for name in ("float64", dtype):
        runner = runner_for(checkpoint("llama"), name)
        assert runner.facts.dtype == name
        pack(runner.inputs[0], rows, 8)
        outcomes.append(runner.logits(0, 8)[[0, 3]].double())
    tolerance = {"float32": 1e-4, "float16": 0.05, "bfloat16": 0.3}[dtype]
    torch.testing.assert_close(outcomes[1], outcomes[0], rtol=0, atol=tolerance)


def test_float64_is_for_the_cpu() -> None:
    with pytest.raises(UsageError, match="float64 runs on the CPU only"):
        Runner(ModelSpec("tiny", "float64"), LAYOUT, num_blocks=1, slots=1, device=torch.device("cuda"))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("bucket", [6, 30])
def test_a_captured_step_serves_every_batch_of_its_bucket(bucket: int, checkpoint: Callable[[str], Path]) -> None:
    """Captured once, on padding; then decodes, prefills and mixtures replay it. The CPU says in float64 what is due."""
    folder, cuda = checkpoint("llama"), torch.device("cuda")
    on_cpu = runner_for(folder)
    on_cuda = Runner(ModelSpec(str(folder), "float32"), LAYOUT, num_blocks=NUM_BLOCKS, slots=2, device=cuda)
    side = torch.cuda.Stream()
    graph = torch.cuda.CUDAGraph()
    torch.cuda.synchronize()
    with torch.cuda.stream(side):
        on_cuda.step(0, bucket)
        side.synchronize()
        with torch.cuda.graph(graph, stream=side):
            on_cuda.step(0, bucket)

    requests = Requests(5, seed=bucket)
    compared = 0
    while min(requests.fed) < 24:
        rows = requests.next_batch()
        tokens = sum(len(row.tokens) for row in rows.values())
        pack(on_cpu.inputs[0], rows, max(bucket, tokens))
        view(on_cpu.inputs[0], LAYOUT, bucket).temperature.fill_(1.0)
        on_cpu.step(0, max(bucket, tokens))
        with torch.cuda.stream(side):
            on_cuda.inputs[0].copy_(on_cpu.inputs[0])
            if tokens <= bucket:
                graph.replay()
                compared += len(rows)
            else:
                on_cuda.step(0, tokens)
            side.synchronize()
        for row in rows:
            assert on_cuda.outputs[0][row].item() == on_cpu.outputs[0][row].item()
    assert compared
