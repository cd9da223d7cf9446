"""Requests from texts and files: every form, every error, and a checkpoint with a tokenizer from end to end."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command_line import cbprof

from cbprof.engine.requests_file import Wanted, read_prompts, read_requests, to_list
from cbprof.engine.workload import Listed, Workload
from cbprof.errors import DataError, UsageError
from cbprof.formats import load

AZURE = """TIMESTAMP,ContextTokens,GeneratedTokens
2023-11-16 18:15:46.6805900,374,44
2023-11-16 18:15:50.9951690,396,109
2023-11-16 18:15:51+00:00,879,55
"""
SHAREGPT = [
    {"id": "a", "conversations": [{"from": "human", "value": "one two"}, {"from": "gpt", "value": "three four five"}]},
    {"id": "b", "conversations": [{"from": "gpt", "value": "hello"}]},
    {"id": "c"},
    {
        "conversations": [
            {"from": "system", "value": "x"},
            {"from": "user", "value": "q"},
            {"from": "gpt", "value": "r"},
        ]
    },
]


def file(folder: Path, text: str) -> Path:
    path = folder / "requests"
    path.write_text(text, encoding="utf-8")
    return path


def test_an_azure_trace_to_the_nanosecond(tmp_path: Path) -> None:
    path = file(tmp_path, AZURE)
    assert read_requests(path) == [
        Wanted(f"{path}:2", 374, 44, 0),
        Wanted(f"{path}:3", 396, 109, 4_314_579_000),
        Wanted(f"{path}:4", 879, 55, 4_319_410_000),
    ]


def test_sharegpt_gives_the_first_question_that_is_answered(tmp_path: Path) -> None:
    wanted = read_requests(file(tmp_path, json.dumps(SHAREGPT)))
    assert [each[1:] for each in wanted] == [("one two", "three four five", 0), ("q", "r", 0)]
    listed = to_list(wanted, lambda text: [len(word) for word in text.split()], 99)
    assert listed == (Listed((3, 3), 3), Listed((1,), 1))


def test_json_lines_and_what_they_leave_open(tmp_path: Path) -> None:
    text = '{"prompt_tokens": 7, "arrival_s": 2.5}\n\n{"prompt": "a b", "new_tokens": 3, "arrival_s": 4}\n'
    path = file(tmp_path, text)
    assert to_list(read_requests(path), lambda text: [1] * len(text.split()), 99) == (
        Listed(7, 99, 0),
        Listed((1, 1), 3, 1_500_000_000),
    )
    assert [each.arrival_ns for each in read_prompts(path)] == [2_500_000_000, 4_000_000_000]
    assert [each.prompt for each in read_prompts(file(tmp_path, "one\n\ntwo\n"))] == ["one", "two"]


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", ": is empty; give a request a line"),
        (
            "a,b\n1,2\n",
            ":1: is no request: give JSON lines, a ShareGPT list, or a CSV with TIMESTAMP, ContextTokens, Gen",
        ),
        ("TIMESTAMP,ContextTokens,GeneratedTokens\n", ": holds no request below its header"),
        (AZURE + "yesterday,1,2\n", ":5: is not a time and two numbers: yesterday, 1, 2"),
        (AZURE + "2023-11-16 18:15:46.6,0,2\n", ":5: ContextTokens is 0: it must be a whole number, at least 1"),
        (AZURE + "2023-11-16 18:15:46.6,1\n", ":5: has no GeneratedTokens"),
        ('{"prompt_tokens": 1}\n{"prompt_tokens"\n', ":2: is not JSON: Expecting"),
        ('{"prompt_tokens": 1}\n[]\n', ":2: is no JSON object; give one a line"),
        ('{"tokens": 1}', ':1: has no prompt; give "prompt" (text) or "prompt_tokens" (a number)'),
        ('{"prompt": 5}', ':1: "prompt" is not text; give "prompt_tokens" for a length'),
        ('{"prompt_tokens": true}', ":1: prompt_tokens is True: it must be a whole number, at least 1"),
        ('{"prompt_tokens": 1, "new_tokens": 1e9}', ":1: new_tokens is 1000000000.0: it must be a whole number"),
        ('{"prompt_tokens": 1, "arrival_s": -1}', ":1: arrival_s is -1: it must be seconds, at least 0"),
        ('{"prompt_tokens": 1, "arrival_s": NaN}', ":1: arrival_s is nan: it must be seconds, at least 0"),
        ("[1, 2", ": is not JSON: Expecting"),
        ("[" * 100_000, ": is not JSON: "),
        ("[1, {}]", ': holds no conversation in which "human" is answered by "gpt", as ShareGPT has them'),
    ],
)
def test_what_is_no_list_of_requests_is_refused_with_its_line(tmp_path: Path, text: str, error: str) -> None:
    path = file(tmp_path, text)
    with pytest.raises(DataError) as caught:
        read_requests(path)
    assert str(caught.value).startswith(f"{path}{error}")
    assert "\n" not in str(caught.value)


def test_a_file_that_is_not_text_or_not_there(tmp_path: Path) -> None:
    path = tmp_path / "x"
    with pytest.raises(DataError, match="cannot be read: No such file"):
        read_requests(path)
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(DataError, match="is not UTF-8 text"):
        read_prompts(path)
    with pytest.raises(DataError, match="p:1: a request needs at least 1 token of a prompt"):
        to_list([Wanted("p:1", "text")], lambda text: [], 4)


def test_a_listed_workload_says_what_a_drawn_one_does() -> None:
    listed = (Listed(7, 4), Listed((1, 2), 9, 500_000_000), Listed(3, 1, 2_000_000_000))
    workload = Workload(requests=1, listed=listed)
    assert (workload.requests, workload.prompt_len, workload.new_tokens) == (3, (2, 7), (1, 9))
    assert (workload.rate, workload.longest, workload.most_tokens) == (1.5, 11, 14)
    requests = workload.make_requests(100)
    assert [(r.prompt_length, r.max_length, r.arrival_ns) for r in requests] == [
        (7, 11, 0), (2, 11, 500_000_000), (3, 4, 2_000_000_000),
    ]  # fmt: skip
    assert requests[1].ids[:2].tolist() == [1, 2]
    assert [r.ids.tolist() for r in requests] == [r.ids.tolist() for r in workload.make_requests(100)]
    second = Workload(listed=listed, rank=1, world_size=2)
    assert [r.id for r in second.make_requests(100)] == [1]
    assert second.most_tokens == 9
    assert workload.facts()["listed"] != Workload(listed=listed[:2]).facts()["listed"]
    assert "listed" not in Workload().facts()
    with pytest.raises(UsageError, match="request 1 has the token 2, but the model has 2 tokens"):
        workload.make_requests(2)


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--prompt", "x"], 2, "tiny has random weights and no tokenizer: give --model a folder or a hub id for texts"),
        (["--prompt", "x", "--prompts", "p"], 2, "--prompt and --prompts do not go together: give one of them"),
        (["--prompt", "x", "--rate", "3"], 2, "--rate has no effect with --prompt: leave out one of them"),
        (["--requests-from", "f", "-n", "3"], 2, "--requests has no effect with --requests-from"),
        (["--requests-from", "f"], 3, "f: cannot be read: No such file or directory; check the name"),
    ],
)
def test_options_that_cannot_be_carried_out(tmp_path: Path, arguments: list[str], code: int, message: str) -> None:
    done = cbprof("run", *arguments, cwd=tmp_path)
    assert (done.returncode, done.stderr.count("\n")) == (code, 1)
    assert message in done.stderr


def test_a_folder_without_a_tokenizer_is_refused(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    (tmp_path / "config.json").write_text('{"model_type": "llama", "vocab_size": 7}')
    done = cbprof("run", "--model", ".", "--prompt", "hi", cwd=tmp_path)
    assert done.returncode == 3
    assert done.stderr == "cbprof: .: has no tokenizer that can be read; give a folder with tokenizer.json\n"


def test_a_checkpoint_goes_on_with_texts(tmp_path: Path) -> None:
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    tokenizers = pytest.importorskip("tokenizers")
    words = {word: number for number, word in enumerate(["[UNK]", "the", "cat", "sat", "on", "a", "mat"])}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="[UNK]").save_pretrained(
        tmp_path / "model"
    )
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=7, hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2,
        num_key_value_heads=1, head_dim=8, max_position_embeddings=32, eos_token_id=None,
    )  # fmt: skip
    transformers.LlamaForCausalLM(config).save_pretrained(tmp_path / "model")
    (tmp_path / "prompts").write_text("the cat\na mat sat on\n")
    options = ("--model", "model", "--device", "host", "--mode", "sync", "--new-tokens", "5", "--quiet")
    done = cbprof("run", *options, "--prompts", "prompts", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    first, second = (line for line in done.stdout.splitlines() if " -> " in line)
    assert first.startswith("0: the cat -> ")
    assert second.startswith("1: a mat sat on -> ")
    for line in (first, second):
        written = line.partition(" -> ")[2].split()
        assert len(written) <= 5
        assert set(written) <= words.keys()
    trace = load(tmp_path / "trace.json")
    assert trace.meta.tokens == 10
    ahead = cbprof(
        "run", *options, "--mode", "async", "--slots", "3", "--prompts", "prompts", "-o", "3.json", cwd=tmp_path
    )
    assert ahead.returncode == 0, ahead.stderr
    assert [line for line in ahead.stdout.splitlines() if " -> " in line] == [first, second]
    deep = load(tmp_path / "3.json")
    assert set(deep.slot.tolist()) >= {0, 1, 2}
    assert trace.meta.workload is not None
    assert trace.meta.workload["prompt_len"] == [2, 4]
    assert len(trace.meta.workload["listed"]) == 16
