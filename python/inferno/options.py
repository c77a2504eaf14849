"""What Python's callers give, as the library takes it."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from typing import Any, Union

from . import _inferno

Prompt = Union[str, Sequence[int]]
Message = Mapping[str, Any]
Tools = Sequence[Mapping[str, Any]]


def prompt_of(prompt: Prompt) -> _inferno.Prompt:
    """A text, or token ids."""
    if isinstance(prompt, str):
        return _inferno.Prompt.text(prompt.encode())
    return _inferno.Prompt.ids([int(id) for id in prompt])


def _text_of(content: Any) -> str:
    """The text of a message: a string, nothing, or OpenAI's list of parts."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    for part in content:
        if not isinstance(part, Mapping) or part.get("type") != "text":
            raise _inferno.Error("a message's content may hold text only")
    return "".join(part["text"] for part in content)


def chat_of(messages: Sequence[Message], tools: Tools | None, enable_thinking: bool, chat_template: str | None,
            add_generation_prompt: bool, tool_choice: str = "auto", parallel_tool_calls: bool = True) -> _inferno.Prompt:
    """A conversation, in the form of OpenAI's API."""
    made = []
    for message in messages:
        if not isinstance(message, Mapping) or not isinstance(message.get("role"), str):
            raise _inferno.Error('a message is a dictionary with "role" and "content"')
        m = _inferno.ChatMessage()
        m.role = message["role"]
        m.content = _text_of(message.get("content"))
        m.reasoning_content = message.get("reasoning_content") or ""
        m.tool_call_id = message.get("tool_call_id") or ""
        m.name = message.get("name") or ""
        calls = []
        for call in message.get("tool_calls") or ():
            c = _inferno.ToolCall()
            c.id = call.get("id") or ""
            c.name = call["function"]["name"]
            arguments = call["function"].get("arguments", "")
            c.arguments = arguments if isinstance(arguments, str) else json.dumps(arguments)
            calls.append(c)
        m.tool_calls = calls
        made.append(m)
    options = _inferno.ChatOptions()
    options.add_generation_prompt = add_generation_prompt
    options.enable_thinking = enable_thinking
    options.tools = json.dumps(list(tools)) if tools else ""
    options.tool_choice, options.parallel_tool_calls = tool_choice, parallel_tool_calls
    options.chat_template = chat_template or ""
    return _inferno.Prompt.chat(made, options)


def generate_options(*, max_tokens: int = 128, temperature: float = 0, top_k: int = 0, top_p: float = 1,
                      min_p: float = 0, repeat_penalty: float = 1, presence_penalty: float = 0,
                      frequency_penalty: float = 0, penalty_window: int = 64, seed: int | None = None, n: int = 1,
                      stop: str | Sequence[str] = (), stop_ids: Sequence[int] = (), stop_at_end: bool = True,
                      logprobs: bool | int | None = None, logit_bias: Mapping[int, float] | None = None,
                      cache_salt: str = "", reuse_prefix: bool = True, lookup: bool = False,
                      prediction: Sequence[int] = (), draft: bool = True, max_draft: int = 15,
                      json_schema: str | Mapping[str, Any] | bool | None = None, regex: str = "", grammar: str = "",
                      choice: Sequence[str] = ()) -> _inferno.GenerateOptions:
    if max_tokens < -1:
        raise _inferno.Error(f"max_tokens is {max_tokens}, must be -1 or more")
    sampling = _inferno.SamplingSettings()
    sampling.temperature, sampling.top_k, sampling.top_p, sampling.min_p = temperature, top_k, top_p, min_p
    sampling.repeat_penalty, sampling.penalty_window = repeat_penalty, penalty_window
    sampling.presence_penalty, sampling.frequency_penalty = presence_penalty, frequency_penalty
    sampling.seed = random.getrandbits(63) if seed is None else seed
    options = _inferno.GenerateOptions()
    options.max_new_tokens, options.samples, options.sampling = max_tokens, n, sampling
    options.stop = [stop] if isinstance(stop, str) else list(stop)
    options.stop_ids, options.stop_at_end = list(stop_ids), stop_at_end
    options.cache_salt, options.reuse_prefix = cache_salt, reuse_prefix
    options.lookup, options.prediction, options.draft, options.max_draft = lookup, list(prediction), draft, max_draft
    if logprobs is not None and logprobs is not False:
        options.top_logprobs = 0 if logprobs is True else logprobs
    constraint = _inferno.Constraint()
    if json_schema is not None:
        constraint.json_schema = json_schema if isinstance(json_schema, str) else json.dumps(json_schema)
    constraint.regex, constraint.grammar, constraint.choice = regex, grammar, list(choice)
    options.constraint = constraint
    for id, bias in (logit_bias or {}).items():
        options.add_bias(int(id), bias)
    return options
