"""A model, loaded: text in, text out, for one caller or many at once."""

from __future__ import annotations

import asyncio
import atexit
import itertools
import json
import os
import random
import weakref
from collections.abc import AsyncIterator, Callable, Generator, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Union

from . import _inferno
from .results import Result, Token
from .tools import Profile, load_options, progress_of

if TYPE_CHECKING:
    import numpy

Prompt = Union[str, Sequence[int]]
Message = Mapping[str, Any]
OnToken = Callable[[Token], Any]

# Python's threads are gone when it takes its modules apart: what still runs must end before.
_models: weakref.WeakSet[Llm] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    for model in list(_models):
        model.close()


class Generation:
    """A request that was submitted. Iterate over it, in a loop or with `async for`, or await it or ask for its result.

    It goes on when nobody looks. Leaving a loop over it does not end it; cancel() does.
    """

    def __init__(self, request: _inferno.Request):
        self._request = request
        self._ready: list[Token] = []
        self._loop: _EventLoop | None = None  # that is told of tokens, under this number
        self._number = 0

    def result(self) -> Result:
        """Waits for the end. Raises what the request ended with."""
        return Result._of(self._request.result())

    def cancel(self) -> None:
        """Ends it before its next step; what was made so far is its result."""
        self._request.cancel()

    def done(self) -> bool:
        return self._request.has_ended()

    def _keep(self, tokens: list[tuple[str, int, int, list[tuple[int, float]]]]) -> bool:
        self._ready += [Token(*token) for token in tokens]
        return bool(self._ready)

    def __iter__(self) -> Iterator[Token]:
        return self

    def __next__(self) -> Token:
        if not self._ready and not self._keep(self._request.next()):
            self._request.result()  # raises what went wrong
            raise StopIteration
        return self._ready.pop(0)

    def __aiter__(self) -> AsyncIterator[Token]:
        return self

    async def __anext__(self) -> Token:
        while not self._ready:
            ended = self._request.has_ended()  # before taking: what is taken afterwards is all there is
            if self._keep(self._request.take()):
                break
            if ended:
                self._request.result()
                raise StopAsyncIteration
            await self._change()
        return self._ready.pop(0)

    def __await__(self) -> Generator[Any, None, Result]:
        return self._finish().__await__()

    async def _finish(self) -> Result:
        while not self._request.has_ended():
            self._ready += [Token(*token) for token in self._request.take()]
            await self._change()
        return self.result()

    async def _change(self) -> None:
        """Until there is something to take. A task that is cancelled meanwhile cancels the request."""
        try:
            await _EventLoop.running().change(self)
        except asyncio.CancelledError:
            self.cancel()
            raise


class _EventLoop:
    """Wakes the tasks of one event loop: all requests they wait for share a pipe, which is watched once."""

    _of: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _EventLoop] = weakref.WeakKeyDictionary()

    def __init__(self, loop: asyncio.AbstractEventLoop):
        self._waker = _inferno.Waker()
        self._waiting: dict[int, list[asyncio.Future[None]]] = {}
        self._numbers = itertools.count()
        loop.add_reader(self._waker.descriptor(), self._wake)

    @classmethod
    def running(cls) -> _EventLoop:
        loop = asyncio.get_running_loop()
        made = cls._of.get(loop)
        if made is None:
            made = cls._of[loop] = cls(loop)
        return made

    def change(self, generation: Generation) -> asyncio.Future[None]:
        """Done when the request has something to take."""
        if generation._loop is not self:
            generation._loop, generation._number = self, next(self._numbers)
            generation._request.notify(self._waker, generation._number)
        changed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(generation._number, []).append(changed)
        return changed

    def _wake(self) -> None:
        numbers = self._waker.take()
        for number in list(self._waiting) if numbers is None else numbers:
            for changed in self._waiting.pop(number, ()):
                if not changed.done():
                    changed.set_result(None)


class Llm:
    """A model that was loaded from a .gguf file.

    Every method may be called from any thread. Requests share the machine: up to max_sequences are computed at once, the
    others wait, and on a CPU each text is, bit for bit, the one its request has alone.
    """

    def __init__(self, path: str | os.PathLike[str], *, backend: str | None = None, threads: int = 0, context: int = 0,
                 kv_type: str | None = None, kv_memory: int = 0, max_sequences: int = 8,
                 max_token_latency_ms: float = 0, affinity: str | None = None, numa: str | None = None,
                 profile: bool = False, all_logits: bool = False,
                 progress: bool | Callable[[int, int], Any] = False):
        """backend: "scalar", "simd", "parallel", "cuda", ...; by default the best there is. threads: 0 is as many as
        pay off. context: positions of one sequence; 0 is the model's own, at most 4096. kv_type: "f32", "f16", "bf16" or
        "q8_0". kv_memory: bytes of the cache. max_token_latency_ms: the gap between tokens that a long prompt of
        another request may cause. profile: measure every op, for profile(). all_logits: room for the logits of many
        positions, which makes logits() fast. progress: True shows a bar (with tqdm where it is installed); a function is
        called with (bytes done, bytes in all).
        """
        self._open(os.fspath(path), progress, load_options(
            backend=backend, threads=threads, context=context, kv_type=kv_type, kv_memory=kv_memory,
            max_sequences=max_sequences, max_token_latency_ms=max_token_latency_ms, affinity=affinity, numa=numa,
            profile=profile, all_logits=all_logits))

    @classmethod
    def builtin(cls, **options: Any) -> Llm:
        """The small story-telling model that is part of the library; options as for a file."""
        made = cls.__new__(cls)
        progress = options.pop("progress", False)
        made._open(None, progress, load_options(**options))
        return made

    def _open(self, path: str | None, progress: bool | Callable[[int, int], Any], options: _inferno.LoadOptions) -> None:
        self.path = path
        with progress_of(progress, "loading") as on_progress:
            self._model = _inferno.Model(path, options, on_progress)
        _models.add(self)

    def close(self) -> None:
        """Ends what runs and frees the memory; calls after it are errors. Also: `with inferno.Llm(...) as llm`."""
        self._model.close()

    def __enter__(self) -> Llm:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> Any:
        raise _inferno.Error("a loaded model cannot be pickled; give the path to the other process and load it there")

    # ---- text

    def generate(self, prompt: Prompt, *, on_token: OnToken | None = None, **options: Any) -> Result:
        """Continues a text, or a list of token ids.

        options: max_tokens (128; -1: until the context is full), temperature (0: always the likeliest token), top_k,
        top_p, min_p, repeat_penalty, presence_penalty, frequency_penalty, penalty_window, seed (random where something
        is drawn), n (samples), stop (a string or several), stop_ids, stop_at_end, logprobs (True, or how many of the
        likeliest), logit_bias ({id: bias}), cache_salt, reuse_prefix, lookup (guess tokens from earlier text); and what the text must be, one of json_schema (a
        dictionary or its text), regex, grammar (GBNF) and choice (a list of texts).

        on_token is called with every Token on the thread that computes; returning False ends the sample, and what it
        raises ends the generation and is raised here. Ctrl-C cancels.
        """
        return self.submit(prompt, on_token=on_token, **options).result()

    def stream(self, prompt: Prompt, **options: Any) -> Iterator[Token]:
        """The tokens of generate() as they are made. Leaving the loop cancels the rest."""
        return _stream(self.submit(prompt, **options))

    def submit(self, prompt: Prompt, *, on_token: OnToken | None = None, **options: Any) -> Generation:
        """Returns at once, with a Generation; options as for generate()."""
        return self._submit(_prompt(prompt), on_token, options)

    def chat(self, messages: Sequence[Message], *, on_token: OnToken | None = None, **options: Any) -> Result:
        """The next answer of a conversation, a list of {"role": ..., "content": ...} in the form of OpenAI's API.

        options: those of generate(), and tools (a list as in that API), enable_thinking, chat_template (a known name or
        the text of one).
        """
        return self.submit_chat(messages, on_token=on_token, **options).result()

    def stream_chat(self, messages: Sequence[Message], **options: Any) -> Iterator[Token]:
        """The tokens of chat() as they are made. Leaving the loop cancels the rest."""
        return _stream(self.submit_chat(messages, **options))

    def submit_chat(self, messages: Sequence[Message], *, on_token: OnToken | None = None,
                    tools: Sequence[Mapping[str, Any]] | None = None, enable_thinking: bool = True,
                    chat_template: str | None = None, **options: Any) -> Generation:
        """Returns at once, with a Generation; options as for chat()."""
        prompt = _chat(messages, tools, enable_thinking, chat_template, True)
        return self._submit(prompt, on_token, options)

    def _submit(self, prompt: _inferno.Prompt, on_token: OnToken | None, options: dict[str, Any]) -> Generation:
        called = None
        if on_token is not None:
            def called(text: str, id: int, sample: int, logprobs: list[tuple[int, float]]) -> bool:
                return on_token(Token(text, id, sample, logprobs)) is not False
        return Generation(self._model.submit(prompt, _generate_options(**options), called))

    def cancel(self) -> None:
        """Ends all that runs or waits."""
        self._model.cancel()

    # ---- tokens and numbers

    def tokenize(self, text: str, *, special: bool = True) -> list[int]:
        """The ids of a text. Added tokens such as <|im_end|> are recognised unless special is False."""
        return self._model.tokenize(text.encode(), special)

    def detokenize(self, ids: Iterable[int]) -> str:
        """The text of ids; bytes that are no UTF-8 become replacement characters."""
        return self._model.detokenize(list(ids)).decode("utf-8", "replace")

    def apply_chat_template(self, messages: Sequence[Message], *, tools: Sequence[Mapping[str, Any]] | None = None,
                            enable_thinking: bool = True, chat_template: str | None = None,
                            add_generation_prompt: bool = True, tokenize: bool = False) -> str | list[int]:
        """A conversation as the text that the model's template makes of it, or as the ids that chat() begins with."""
        prompt = _chat(messages, tools, enable_thinking, chat_template, add_generation_prompt)
        return self._model.encode(prompt) if tokenize else self._model.render(prompt)

    def logits(self, prompt: Prompt, first: int = -1) -> numpy.ndarray:
        """A float32 array [positions, vocabulary] of the prompt's positions from `first` on; -1: of the last alone."""
        return self._model.logits(_prompt(prompt), first)

    def logprobs(self, prompt: Prompt, first: int = 0) -> numpy.ndarray:
        """The same as log-probabilities, by default of every position."""
        import numpy

        rows = self.logits(prompt, first)
        rows -= rows.max(axis=-1, keepdims=True)
        rows -= numpy.log(numpy.exp(rows, dtype=numpy.float64).sum(axis=-1, keepdims=True)).astype(numpy.float32)
        return rows

    def embed(self, texts: str | Sequence[str]) -> numpy.ndarray:
        """A vector for each text, by models that were made for it."""
        raise _inferno.Error("this version has no embedding models yet")

    # ---- what it is

    @property
    def context(self) -> int:
        """Positions of one sequence."""
        return self._model.context()

    @property
    def vocabulary(self) -> int:
        return self._model.vocabulary()

    @property
    def end_tokens(self) -> list[int]:
        return self._model.end_tokens()

    @property
    def backend(self) -> str:
        return self._model.backend()

    @property
    def kv_type(self) -> str:
        return self._model.kv_type()

    @property
    def has_chat_template(self) -> bool:
        return self._model.has_chat_template()

    def suggested_sampling(self) -> dict[str, Any] | None:
        """How the model's file says that its texts are best drawn: options of generate(); None: it does not say."""
        return self._model.suggested_sampling()

    def stats(self) -> dict[str, Any]:
        """Counts since the model was loaded, and how many requests run and wait now."""
        return self._model.stats()

    def profile(self) -> Profile:
        """Where the time went since loading; needs profile=True when the model is loaded."""
        return Profile(self._model.profile())

    def __repr__(self) -> str:
        try:
            return f"<inferno.Llm {self.path or 'built-in'}: {self.backend}, context {self.context}>"
        except _inferno.Error:
            return f"<inferno.Llm {self.path or 'built-in'}: closed>"

    def _repr_html_(self) -> str:
        import html

        rows = {"backend": self.backend, "context": self.context, "cache": self.kv_type, **self.stats()}
        cells = "".join(f"<tr><td>{name}</td><td>{html.escape(str(value))}</td></tr>" for name, value in rows.items())
        return f"<b>{html.escape(self.path or 'built-in model')}</b><table>{cells}</table>"


def _stream(generation: Generation) -> Iterator[Token]:
    try:
        yield from generation
    finally:
        generation.cancel()


def _prompt(prompt: Prompt) -> _inferno.Prompt:
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


def _chat(messages: Sequence[Message], tools: Sequence[Mapping[str, Any]] | None, enable_thinking: bool,
          chat_template: str | None, add_generation_prompt: bool) -> _inferno.Prompt:
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
    options.chat_template = chat_template or ""
    return _inferno.Prompt.chat(made, options)


def _generate_options(*, max_tokens: int = 128, temperature: float = 0, top_k: int = 0, top_p: float = 1,
                      min_p: float = 0, repeat_penalty: float = 1, presence_penalty: float = 0,
                      frequency_penalty: float = 0, penalty_window: int = 64, seed: int | None = None, n: int = 1,
                      stop: str | Sequence[str] = (), stop_ids: Sequence[int] = (), stop_at_end: bool = True,
                      logprobs: bool | int | None = None, logit_bias: Mapping[int, float] | None = None,
                      cache_salt: str = "", reuse_prefix: bool = True, lookup: bool = False,
                      json_schema: str | Mapping[str, Any] | bool | None = None, regex: str = "", grammar: str = "",
                      choice: Sequence[str] = ()) -> _inferno.GenerateOptions:
    sampling = _inferno.SamplingSettings()
    sampling.temperature, sampling.top_k, sampling.top_p, sampling.min_p = temperature, top_k, top_p, min_p
    sampling.repeat_penalty, sampling.penalty_window = repeat_penalty, penalty_window
    sampling.presence_penalty, sampling.frequency_penalty = presence_penalty, frequency_penalty
    sampling.seed = random.getrandbits(63) if seed is None else seed
    options = _inferno.GenerateOptions()
    options.max_new_tokens, options.samples, options.sampling = max_tokens, n, sampling
    options.stop = [stop] if isinstance(stop, str) else list(stop)
    options.stop_ids, options.stop_at_end = list(stop_ids), stop_at_end
    options.cache_salt, options.reuse_prefix, options.lookup = cache_salt, reuse_prefix, lookup
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
