"""The tokenizer of a checkpoint: texts in, texts out."""

from __future__ import annotations

from typing import Any

from cbprof.engine.model.load import one_line_errors
from cbprof.engine.model.presets import PRESETS
from cbprof.engine.model.wanted import refuse_bad_path
from cbprof.errors import DataError, UsageError


class Tokenizer:
    """Of the model called ``name``, as its files say; no template of a chat is put around a text.

    Raises :class:`UsageError` for a preset, which has none, and :class:`DataError` for files that are not a tokenizer.
    """

    def __init__(self, name: str) -> None:
        if name in PRESETS:
            raise UsageError(f"{name} has random weights and no tokenizer: give --model a folder or a hub id for texts")
        refuse_bad_path(name)
        from transformers import AutoTokenizer

        try:
            with one_line_errors(name):
                self._tokenizer: Any = AutoTokenizer.from_pretrained(name, trust_remote_code=False)
        except DataError as error:
            raise DataError(f"{name}: has no tokenizer that can be read; give a folder with tokenizer.json") from error

    def encode(self, text: str) -> list[int]:
        return [int(token) for token in self._tokenizer.encode(text)]

    def decode(self, tokens: list[int]) -> str:
        """The text, without the tokens that only mark its ends."""
        return str(self._tokenizer.decode(tokens, skip_special_tokens=True))
