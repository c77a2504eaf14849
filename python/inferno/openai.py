"""The interface of OpenAI's Python client, in process: for code that was written against it.

    client = inferno.openai.Client(inferno.Llm("model.gguf"))
    answer = client.chat.completions.create(messages=[{"role": "user", "content": "Hello"}])
    print(answer.choices[0].message.content)

Arguments that have no meaning here are errors, never ignored.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

from . import _inferno
from ._inferno import Error
from .generation import Generation
from .llm import Llm
from .results import Completion, Result

__all__ = ["Client"]


class Record(SimpleNamespace):
    """An answer, or a part of one; attributes as in OpenAI's API."""

    def model_dump(self) -> dict[str, Any]:
        """As dictionaries and lists."""
        return {name: _plain(value) for name, value in vars(self).items()}

    def model_dump_json(self) -> str:
        """The same as JSON."""
        return json.dumps(self.model_dump())


def _plain(value: Any) -> Any:
    if isinstance(value, Record):
        return value.model_dump()
    return [_plain(item) for item in value] if isinstance(value, list) else value


_REASONS = {"end_token": "stop", "stop_token": "stop", "stop_string": "stop", "length": "length",
            "context_full": "length", "cancelled": "stop"}


class Client:
    """client.chat.completions.create, client.completions.create, client.models.list; with a model that is loaded."""

    def __init__(self, llm: Llm, model: str = "inferno"):
        self._llm, self._name = llm, model
        self.chat = SimpleNamespace(completions=_Endpoint(self, chat=True))
        self.completions = _Endpoint(self, chat=False)
        self.models = SimpleNamespace(list=lambda: Record(object="list", data=[Record(id=model, object="model")]))


class _Endpoint:
    def __init__(self, client: Client, chat: bool):
        self._client, self._chat = client, chat

    def create(self, *, model: str | None = None, messages: Sequence[Mapping[str, Any]] | None = None,
               prompt: str | Sequence[int] | None = None, stream: bool = False,
               stream_options: Mapping[str, Any] | None = None, max_tokens: int | None = None,
               max_completion_tokens: int | None = None, temperature: float | None = None,
               top_p: float | None = None, n: int | None = None, stop: str | Sequence[str] | None = None,
               seed: int | None = None, logprobs: bool | int | None = None, top_logprobs: int | None = None,
               logit_bias: Mapping[Any, float] | None = None, presence_penalty: float | None = None,
               frequency_penalty: float | None = None, tools: Sequence[Mapping[str, Any]] | None = None,
               tool_choice: str | Mapping[str, Any] | None = None, parallel_tool_calls: bool | None = None, response_format: Mapping[str, Any] | None = None,
               user: str | None = None, extra_body: Mapping[str, Any] | None = None) -> Any:
        """As in OpenAI's client; extra_body holds options of inferno's own (top_k, min_p, enable_thinking, ...)."""
        options: dict[str, Any] = dict(extra_body or {})
        limit = max_completion_tokens if max_completion_tokens is not None else max_tokens
        options["max_tokens"] = limit if limit is not None else (-1 if self._chat else 16)
        options["temperature"] = 1.0 if temperature is None else temperature
        given = {"top_p": top_p, "n": n, "stop": stop, "seed": seed, "presence_penalty": presence_penalty,
                 "frequency_penalty": frequency_penalty, "logit_bias": logit_bias}
        options |= {name: value for name, value in given.items() if value is not None}
        if logprobs is not None and logprobs is not False:
            options["logprobs"] = top_logprobs if top_logprobs is not None else logprobs
        if response_format is not None:
            options["json_schema"] = _schema(response_format)
        if self._chat:
            if messages is None or prompt is not None:
                raise Error("chat.completions takes `messages`")
            generation = self._client._llm.submit_chat(messages, tools=tools, tool_choice=_tool_choice(tool_choice),
                                                       parallel_tool_calls=parallel_tool_calls is not False, **options)
        else:
            if prompt is None or messages is not None or tools is not None:
                raise Error("completions takes `prompt`")
            generation = self._client._llm.submit(prompt, **options)
        wants_usage = bool((stream_options or {}).get("include_usage"))
        answer = _Answer(self._client._llm, model or self._client._name, self._chat)
        return answer.stream(generation, wants_usage) if stream else answer.whole(generation.result())


def _tool_choice(choice: str | Mapping[str, Any] | None) -> str:
    if isinstance(choice, Mapping):
        return str(choice["function"]["name"])
    return choice or "auto"


def _schema(response_format: Mapping[str, Any]) -> Any:
    kind = response_format.get("type")
    if kind == "text":
        return None
    if kind == "json_object":
        return {"type": "object"}
    if kind == "json_schema":
        return response_format["json_schema"]["schema"]
    raise Error(f"response_format of type {kind!r}; it is text, json_object or json_schema")


def _message(message: Mapping[str, Any]) -> Record:
    made = Record(**{**message, "tool_calls": None})
    if message.get("tool_calls"):
        made.tool_calls = [Record(**{**call, "function": Record(**call["function"])}) for call in message["tool_calls"]]
    return made


def _reason(sample: Completion) -> str:
    reason = _REASONS[sample.reason]
    return "tool_calls" if reason == "stop" and sample.message and "tool_calls" in sample.message else reason


class _Answer:
    def __init__(self, llm: Llm, model: str, chat: bool):
        self._llm, self._chat = llm, chat
        self._head = {"id": ("chatcmpl-" if chat else "cmpl-") + uuid.uuid4().hex, "created": int(time.time()),
                      "model": model}

    def _object(self, chunk: bool) -> str:
        return ("chat.completion.chunk" if chunk else "chat.completion") if self._chat else "text_completion"

    def _logprobs(self, tokens: Sequence[Sequence[tuple[int, float]]]) -> Record | None:
        if not any(tokens):
            return None

        def entry(pair: tuple[int, float]) -> dict[str, Any]:
            text = self._llm.detokenize([pair[0]])
            return {"token": text, "logprob": pair[1], "bytes": list(text.encode())}

        content = [Record(**entry(token[0]), top_logprobs=[Record(**entry(pair)) for pair in token[1:]])
                   for token in tokens if token]
        return Record(content=content)

    def _choice(self, index: int, sample: Completion) -> Record:
        text = {"message": _message(sample.message or {})} if self._chat else {"text": sample.text}
        return Record(index=index, **text, logprobs=self._logprobs(sample.logprobs), finish_reason=_reason(sample))

    @staticmethod
    def _usage(result: Result) -> Record:
        prompt, generated = result.metrics["prompt_tokens"], result.metrics["generated_tokens"]
        return Record(prompt_tokens=prompt, completion_tokens=generated, total_tokens=prompt + generated,
                      prompt_tokens_details=Record(cached_tokens=result.metrics["reused_tokens"]))

    def whole(self, result: Result) -> Record:
        return Record(object=self._object(False), **self._head, usage=self._usage(result),
                      choices=[self._choice(i, sample) for i, sample in enumerate(result.samples)])

    def _chunk(self, index: int, text: str | Record, reason: str | None = None,
               logprobs: Record | None = None) -> Record:
        held = {"delta": text} if self._chat else {"text": text}
        choice = Record(index=index, **held, logprobs=logprobs, finish_reason=reason)
        return Record(object=self._object(True), **self._head, choices=[choice])

    def stream(self, generation: Generation, wants_usage: bool) -> Iterator[Record]:
        """One chunk for each token that has something to show, then the reasons, then what was asked for of usage."""
        deltas: dict[int, _Deltas] = {}
        try:
            for token in generation:
                logprobs = self._logprobs([token.logprobs])
                text: str | Record | None = str(token)
                if self._chat:
                    if token.sample not in deltas:
                        assert generation._reader is not None
                        deltas[token.sample] = _Deltas(generation._reader(token.sample))
                    text = deltas[token.sample].push(token)
                if text is not None or logprobs is not None:
                    yield self._chunk(token.sample, Record() if text is None else text, logprobs=logprobs)
            result = generation.result()
            for i, sample in enumerate(result.samples):
                last = deltas[i].finish() if i in deltas else None
                if last is not None:
                    yield self._chunk(i, last)
                yield self._chunk(i, Record() if self._chat else "", _reason(sample))
            if wants_usage:
                yield Record(object=self._object(True), **self._head, choices=[], usage=self._usage(result))
        finally:
            generation.cancel()


class _Deltas:
    """The pieces of one sample's answer, as deltas of messages."""

    def __init__(self, reader: _inferno.AnswerReader):
        self._reader = reader
        self._begun = False

    def push(self, text: str) -> Record | None:
        return self._delta(*self._reader.push(text))

    def finish(self) -> Record | None:
        return self._delta(*self._reader.finish())

    def _delta(self, reasoning: str, content: str, calls: list[tuple[int, str, str, str]]) -> Record | None:
        held: dict[str, Any] = {}
        if reasoning:
            held["reasoning_content"] = reasoning
        if content:
            held["content"] = content
        if calls:
            held["tool_calls"] = [
                Record(index=index, id=id, type="function", function=Record(name=name, arguments=arguments))
                if name else Record(index=index, function=Record(arguments=arguments))
                for index, id, name, arguments in calls]
        if not held:
            return None
        if not self._begun:
            held = {"role": "assistant", **held}
            self._begun = True
        return Record(**held)
