"""What ``cbprof run`` serves where texts or a file say so, and the texts that came of it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from cbprof.cli.options import refuse_with
from cbprof.cli.writing import say
from cbprof.errors import UsageError
from cbprof.names import plain

if TYPE_CHECKING:
    from cbprof.engine.model.tokenizer import Tokenizer
    from cbprof.engine.workload import Listed

_DRAWN = ("requests", "prompt_len", "rate")
"""Options for requests that are drawn at random."""


class Texts:
    """The tokenizer of a model, loaded when the first text is to be encoded."""

    def __init__(self, model: str) -> None:
        self._model = model
        self._tokenizer: Tokenizer | None = None

    @property
    def tokenizer(self) -> Tokenizer:
        if self._tokenizer is None:
            from cbprof.engine.engine import check_installed
            from cbprof.engine.model.tokenizer import Tokenizer

            check_installed()
            self._tokenizer = Tokenizer(self._model)
        return self._tokenizer

    def encode(self, text: str) -> list[int]:
        return self.tokenizer.encode(text)

    def show(self, listed: tuple[Listed, ...], tokens: dict[int, list[int]]) -> None:
        """Print each prompt that was a text and what was written behind it, a line each."""
        for number, got in tokens.items():
            if isinstance(prompt := listed[number].prompt, tuple):
                asked, written = (self.tokenizer.decode(list(part)).replace("\n", "\\n") for part in (prompt, got))
                say(f"{number}: {plain(asked)} -> {plain(written)}")


def listed_requests(
    context: typer.Context,
    texts: Texts,
    *,
    prompt: list[str] | None,
    prompts: Path | None,
    requests_from: Path | None,
    new_tokens: int,
) -> tuple[Listed, ...]:
    """The requests that texts or a file name; none where they are drawn. ``new_tokens``: where the file leaves it open.

    Raises :class:`UsageError` for options that do not go together, :class:`DataError` for a file that is no such list.
    """
    given = {"--prompt": prompt, "--prompts": prompts, "--requests-from": requests_from}
    chosen = [name for name, value in given.items() if value]
    if not chosen:
        return ()
    if len(chosen) > 1:
        raise UsageError(f"{' and '.join(chosen)} do not go together: give one of them")
    refuse_with(context, chosen[0], *_DRAWN)
    from cbprof.engine.requests_file import Wanted, read_prompts, read_requests, to_list

    if prompt:
        wanted = [Wanted("--prompt", text) for text in prompt]
    else:
        wanted = read_prompts(prompts) if prompts else read_requests(requests_from or Path())
    return to_list(wanted, texts.encode, new_tokens)
