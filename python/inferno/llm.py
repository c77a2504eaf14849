"""A model, loaded: text in, text out, for one caller or many at once."""

from __future__ import annotations

import atexit
import os
import random
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from . import _inferno
from .generation import Generation
from .options import Message, Prompt, Tools, chat_of, generate_options, prompt_of
from .results import Result, Token
from .tools import Profile, load_options, progress_of

if TYPE_CHECKING:
    import numpy

OnToken = Callable[[Token], Any]

# Python's threads are gone when it takes its modules apart: what still runs must end before, and who waits for it must
# have come back from there, for 10 seconds at most.
_models: weakref.WeakSet[Llm] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    for model in list(_models):
        model.close()
    deadline = time.monotonic() + 10
    while _inferno.threads_inside() > 0 and time.monotonic() < deadline:
        time.sleep(0.001)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_inferno.forget_threads)

_EMBEDDED_AT_ONCE = 256


class Llm:
    """A model that was loaded from a .gguf file.

    Every method may be called from any thread. Requests share the machine: up to max_sequences are computed at once, the
    others wait, and on a CPU each text is, bit for bit, the one its request has alone.
    """

    def __init__(self, path: str | os.PathLike[str], *, backend: str | None = None, threads: int = 0, context: int = 0,
                 kv_type: str | None = None, kv_memory: int = 0, max_sequences: int = 8,
                 draft: str | os.PathLike[str] | None = None,
                 max_token_latency_ms: float = 0, affinity: str | None = None, numa: str | None = None,
                 profile: bool = False, all_logits: bool = False,
                 progress: bool | Callable[[int, int], Any] = False):
        """backend: "scalar", "simd", "parallel", "cuda", ...; by default the best there is. threads: 0 is as many as
        pay off. context: positions of one sequence; 0 is the model's own, at most 4096. kv_type: "f32", "f16", "bf16" or
        "q8_0". kv_memory: bytes of the cache. draft: the file of a smaller model of the same vocabulary, which guesses
        tokens ahead; the texts are the same, sooner. max_token_latency_ms: the gap between tokens that a long prompt of
        another request may cause. profile: measure every op, for profile(). all_logits: room for the logits of many
        positions, which makes logits() fast. progress: True shows a bar (with tqdm where it is installed); a function is
        called with (bytes done, bytes in all).
        """
        self._open(os.fspath(path), progress, load_options(
            backend=backend, threads=threads, context=context, kv_type=kv_type, kv_memory=kv_memory,
            max_sequences=max_sequences, draft=draft, max_token_latency_ms=max_token_latency_ms, affinity=affinity, numa=numa,
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
        likeliest), logit_bias ({id: bias}), cache_salt, reuse_prefix; and what the text must be, one of json_schema (a
        dictionary or its text), regex, grammar (GBNF) and choice (a list of texts).

        Tokens guessed ahead change no text, only the speed: lookup (True: from what followed the same words before),
        prediction (a text or ids that the result may resemble, to find guesses in), draft (False: none by the draft
        model), max_draft (15 at a time; 0: none).

        on_token is called with every Token on the thread that computes; returning False ends the sample, and what it
        raises ends the generation and is raised here. Ctrl-C cancels.
        """
        return self._begin(prompt_of(prompt), on_token, options, own_thread=False).result()

    def stream(self, prompt: Prompt, **options: Any) -> Iterator[Token]:
        """The tokens of generate() as they are made. Leaving the loop cancels the rest.

        They are computed on this thread, each when it is asked for, unless another thread computes already.
        """
        return _stream(self._begin(prompt_of(prompt), None, options, own_thread=False))

    def submit(self, prompt: Prompt, *, on_token: OnToken | None = None, **options: Any) -> Generation:
        """Returns at once, with a Generation; options as for generate()."""
        return self._begin(prompt_of(prompt), on_token, options)

    def chat(self, messages: Sequence[Message], *, on_token: OnToken | None = None, **options: Any) -> Result:
        """The next answer of a conversation, a list of {"role": ..., "content": ...} in the form of OpenAI's API.

        options: those of generate(), and tools (a list as in that API), tool_choice ("auto", "none", "required", or a
        tool's name), parallel_tool_calls, enable_thinking, chat_template (a known name or the text of one). The
        arguments of a call fit its tool's schema. The result's `message` is the answer taken apart, for the conversation's next turn: what the
        model thought, what it says, and the tools that it calls, also as `tool_calls`.
        """
        return self._begin_chat(messages, on_token, own_thread=False, **options).result()

    def stream_chat(self, messages: Sequence[Message], **options: Any) -> Iterator[Token]:
        """The tokens of chat() as they are made. Leaving the loop cancels the rest."""
        return _stream(self._begin_chat(messages, None, own_thread=False, **options))

    def submit_chat(self, messages: Sequence[Message], *, on_token: OnToken | None = None, **options: Any) -> Generation:
        """Returns at once, with a Generation; options as for chat()."""
        return self._begin_chat(messages, on_token, **options)

    def _begin_chat(self, messages: Sequence[Message], on_token: OnToken | None, *, own_thread: bool = True,
                    tools: Tools | None = None, tool_choice: str = "auto", parallel_tool_calls: bool = True,
                    enable_thinking: bool = True, chat_template: str | None = None, **options: Any) -> Generation:
        prompt = chat_of(messages, tools, enable_thinking, chat_template, True, tool_choice, parallel_tool_calls)
        ids = random.getrandbits(63)
        return self._begin(prompt, on_token, options, lambda sample: self._model.answer_reader(prompt, ids + sample),
                           own_thread)

    def _begin(self, prompt: _inferno.Prompt, on_token: OnToken | None, options: dict[str, Any],
               reader: Callable[[int], _inferno.AnswerReader] | None = None, own_thread: bool = True) -> Generation:
        if isinstance(prediction := options.get("prediction"), str):
            options = {**options, "prediction": self.tokenize(prediction, special=False)}
        called = None
        if on_token is not None:
            def called(text: str, id: int, sample: int, logprobs: list[tuple[int, float]]) -> bool:
                return on_token(Token(text, id, sample, logprobs)) is not False
        return Generation(self._model.submit(prompt, generate_options(**options), called, own_thread), reader)

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

    def apply_chat_template(self, messages: Sequence[Message], *, tools: Tools | None = None,
                            enable_thinking: bool = True, chat_template: str | None = None,
                            add_generation_prompt: bool = True, tokenize: bool = False) -> str | list[int]:
        """A conversation as the text that the model's template makes of it, or as the ids that chat() begins with."""
        prompt = chat_of(messages, tools, enable_thinking, chat_template, add_generation_prompt)
        return self._model.encode(prompt) if tokenize else self._model.render(prompt)

    def logits(self, prompt: Prompt, first: int = -1) -> numpy.ndarray:
        """A float32 array [positions, vocabulary] of the prompt's positions from `first` on; -1: of the last alone."""
        return self._model.logits(prompt_of(prompt), first)

    def logprobs(self, prompt: Prompt, first: int = 0) -> numpy.ndarray:
        """The same as log-probabilities, by default of every position."""
        import numpy

        rows = self.logits(prompt, first)
        rows -= rows.max(axis=-1, keepdims=True)
        rows -= numpy.log(numpy.exp(rows, dtype=numpy.float64).sum(axis=-1, keepdims=True)).astype(numpy.float32)
        return rows

    def embed(self, texts: str | Sequence[str], *, pooling: str | None = None, normalize: bool = True,
              dimensions: int | None = None, truncate: bool = False) -> numpy.ndarray:
        """A float32 array [texts, width], a vector per text, by a model made for it; of one text [width].

        pooling: "mean", "cls" or "last" instead of the model's own; a model that makes text has none, so one must be
        chosen. normalize: to unit length. dimensions: only the first ones, for models made for that. truncate: cut
        texts that are too long; else they are an Error."""
        import numpy

        given = [text.encode() for text in ([texts] if isinstance(texts, str) else texts)]
        # In parts, between which Ctrl+C is heard.
        parts = [self._model.embed(given[i:i + _EMBEDDED_AT_ONCE], pooling or "", normalize, dimensions or 0, truncate)
                 for i in range(0, max(len(given), 1), _EMBEDDED_AT_ONCE)]
        rows = parts[0] if len(parts) == 1 else numpy.concatenate(parts)
        return rows[0] if isinstance(texts, str) else rows

    # ---- what it is

    @property
    def context(self) -> int:
        """Positions of one sequence."""
        return self._model.context()

    @property
    def vocabulary(self) -> int:
        """How many tokens the model knows."""
        return self._model.vocabulary()

    @property
    def end_tokens(self) -> list[int]:
        """Tokens that end a text."""
        return self._model.end_tokens()

    @property
    def backend(self) -> str:
        """What computes: "parallel", "simd", "cuda", ..."""
        return self._model.backend()

    @property
    def kv_type(self) -> str:
        """Of the values in the cache: "bf16", ..."""
        return self._model.kv_type()

    @property
    def has_chat_template(self) -> bool:
        """Whether the model's file says how conversations are written; chat() needs it, or chat_template."""
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

        if self._model.is_closed():
            return html.escape(repr(self))
        rows = {"backend": self.backend, "context": self.context, "cache": self.kv_type, **self.stats()}
        cells = "".join(f"<tr><td>{name}</td><td>{html.escape(str(value))}</td></tr>" for name, value in rows.items())
        return f"<b>{html.escape(self.path or 'built-in model')}</b><table>{cells}</table>"


def _stream(generation: Generation) -> Iterator[Token]:
    try:
        yield from generation
    finally:
        generation._leave()
