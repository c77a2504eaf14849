"""What a generation gives back."""

from __future__ import annotations

import dataclasses
from typing import Any


class Token(str):
    """A piece of text as it was made: a str that knows which token it was.

    id is -1 where the text had been held back in case it became a stop string; logprobs are (id, log-probability) of
    the drawn token and then of the likeliest ones, where they were asked for.
    """

    __slots__ = ("id", "sample", "logprobs")
    id: int
    sample: int
    logprobs: list[tuple[int, float]]

    def __new__(cls, text: str, id: int = -1, sample: int = 0, logprobs: list[tuple[int, float]] | None = None) -> Token:
        made = super().__new__(cls, text)
        made.id, made.sample, made.logprobs = id, sample, logprobs or []
        return made


@dataclasses.dataclass(frozen=True)
class Completion:
    """One sample of a prompt."""

    text: str
    ids: list[int]
    reason: str  # "length", "end_token", "stop_token", "stop_string", "context_full", "cancelled"
    logprobs: list[list[tuple[int, float]]]  # of each id, where they were asked for


@dataclasses.dataclass(frozen=True)
class Result:
    """All samples of a prompt, and how they were made."""

    samples: list[Completion]
    metrics: dict[str, Any]

    @property
    def text(self) -> str:
        """Of the first sample, as the next three."""
        return self.samples[0].text

    @property
    def ids(self) -> list[int]:
        """The tokens that were made."""
        return self.samples[0].ids

    @property
    def reason(self) -> str:
        """Why it ended; see Completion."""
        return self.samples[0].reason

    @property
    def logprobs(self) -> list[list[tuple[int, float]]]:
        """Of each id, where they were asked for; see Completion."""
        return self.samples[0].logprobs

    def __str__(self) -> str:
        return self.text

    def _repr_html_(self) -> str:
        import html

        metrics = self.metrics
        return (f"<pre>{html.escape(self.text)}</pre><small>{metrics['prompt_tokens']} prompt tokens "
                f"({metrics['reused_tokens']} reused), {metrics['generated_tokens']} generated at "
                f"{metrics['decode_tokens_per_second']:.1f} tokens/s, ended by {self.reason}</small>")

    @classmethod
    def _of(cls, made: dict[str, Any]) -> Result:
        return cls([Completion(**sample) for sample in made["samples"]], made["metrics"])
