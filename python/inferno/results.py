"""What a generation gives back."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

from . import _inferno


class Token(str):
    """A piece of text as it was made: a str that knows which token it was.

    id is -1 where the text had been held back in case it became a stop string; logprobs are (id, log-probability) of
    the drawn token and then of the likeliest ones, where they were asked for.
    """

    __slots__ = ("id", "sample", "logprobs")
    id: int
    sample: int
    logprobs: Sequence[tuple[int, float]]

    def __new__(cls, text: str, id: int = -1, sample: int = 0, logprobs: Sequence[tuple[int, float]] = ()) -> Token:
        made = super().__new__(cls, text)
        made.id, made.sample, made.logprobs = id, sample, logprobs
        return made


@dataclasses.dataclass(frozen=True)
class Completion:
    """One sample of a prompt."""

    text: str
    ids: list[int]
    reason: str  # "length", "end_token", "stop_token", "stop_string", "context_full", "cancelled"
    logprobs: list[list[tuple[int, float]]]  # of each id, where they were asked for
    # Of a conversation: the answer as its next message, with "content", and where there are any "reasoning_content" and
    # "tool_calls" in the form of OpenAI's API.
    message: dict[str, Any] | None = None


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

    @property
    def message(self) -> dict[str, Any] | None:
        """Of a conversation: the answer as its next message; see Completion."""
        return self.samples[0].message

    @property
    def tool_calls(self) -> list[dict[str, Any]]:
        """The tools that the answer calls: {"id": ..., "type": "function", "function": {"name", "arguments"}}."""
        calls: list[dict[str, Any]] = (self.message or {}).get("tool_calls", [])
        return calls

    def __str__(self) -> str:
        return self.text

    def _repr_html_(self) -> str:
        import html

        metrics = self.metrics
        return (f"<pre>{html.escape(self.text)}</pre><small>{metrics['prompt_tokens']} prompt tokens "
                f"({metrics['reused_tokens']} reused), {metrics['generated_tokens']} generated at "
                f"{metrics['decode_tokens_per_second']:.1f} tokens/s, ended by {self.reason}</small>")

    @classmethod
    def _of(cls, made: dict[str, Any], reader: Callable[[int], _inferno.AnswerReader] | None = None) -> Result:
        samples = [Completion(**sample, message=message_of(reader(i), sample["text"]) if reader else None)
                   for i, sample in enumerate(made["samples"])]
        return cls(samples, made["metrics"])


def message_of(reader: _inferno.AnswerReader, text: str) -> dict[str, Any]:
    """An answer as a message of the assistant."""
    reasoning, content = "", ""
    calls: list[dict[str, Any]] = []
    for piece in (reader.push(text), reader.finish()):
        reasoning, content = reasoning + piece[0], content + piece[1]
        for index, id, name, arguments in piece[2]:
            if index == len(calls):
                calls.append({"id": id, "type": "function", "function": {"name": name, "arguments": ""}})
            calls[index]["function"]["arguments"] += arguments
    message: dict[str, Any] = {"role": "assistant", "content": content or (None if calls else "")}
    if reasoning:
        message["reasoning_content"] = reasoning
    if calls:
        message["tool_calls"] = calls
    return message
