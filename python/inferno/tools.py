"""What one does with models besides running them. Every call returns plain dictionaries."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from . import _inferno
from .options import Prompt, prompt_of


def load_options(**options: Any) -> _inferno.LoadOptions:
    made = _inferno.LoadOptions()
    for name, value in options.items():
        if not hasattr(made, name):
            raise TypeError(f"there is no option {name!r}")
        if value is not None:
            setattr(made, name, os.fspath(value) if name == "draft" else value)
    return made


@contextlib.contextmanager
def progress_of(progress: bool | Callable[[int, int], Any], what: str) -> Iterator[Callable[[int, int], Any] | None]:
    """A function for (done, total) in bytes: the caller's own, or one that moves a bar."""
    if not progress:
        yield None
        return
    if callable(progress):
        yield progress
        return
    try:
        from tqdm.auto import tqdm  # type: ignore[import-untyped,unused-ignore]
    except ImportError:
        yield None
        return
    with tqdm(desc=what, unit="B", unit_scale=True) as bar:
        def move(done: int, total: int) -> None:
            bar.total = total
            bar.update(done - bar.n)
        yield move


def inspect(path: str | os.PathLike[str] = "") -> dict[str, Any]:
    """What is in a file: sizes, metadata, tensors. Loads nothing. Without a path, of the built-in model."""
    return _inferno.inspect(os.fspath(path))


def plan(path: str | os.PathLike[str] = "", *, prompt_tokens: int = 512, depth: int = 128, **options: Any) -> dict[str, Any]:
    """Whether a model fits, where its ops would run, and how fast it would be. options: those of Llm."""
    return _inferno.plan(os.fspath(path), load_options(**options), prompt_tokens, depth)


def quantize(source: str | os.PathLike[str], target: str | os.PathLike[str], type: str, *, threads: int = 0,
             imatrix: str | os.PathLike[str] = "", output_type: str = "", pure: bool = False,
             tensor_types: Mapping[str, str] | None = None,
             progress: bool | Callable[[int, int], Any] = False) -> dict[str, Any]:
    """Writes the model with weights of another type, such as "Q4_K_M". The file appears when it is complete.

    tensor_types: {regular expression: type} for tensors whose name it matches; the first that matches decides.
    """
    options = _inferno.QuantizeOptions()
    options.threads, options.imatrix, options.output_type, options.pure = threads, os.fspath(imatrix), output_type, pure
    for pattern, tensor_type in (tensor_types or {}).items():
        options.add_tensor_type(pattern, tensor_type)
    with progress_of(progress, "quantizing") as on_progress:
        return _inferno.quantize(os.fspath(source), os.fspath(target), type, options, on_progress)


def verify(path: str | os.PathLike[str] = "", *, prompt: Prompt = "Once upon a time",
           against: str = "scalar", tokens: int = 8, plant: str = "", **options: Any) -> dict[str, Any]:
    """Every op of a run on two backends, each with the reference's inputs. options: those of Llm."""
    return _inferno.verify(os.fspath(path), load_options(**options), prompt_of(prompt), against, tokens, plant)


def bench(path: str | os.PathLike[str] = "", *, prompt: int = 512, generate: int = 64, depth: int = 0,
          batches: Sequence[int] = (1,), repeat: int = 3, lookup: bool = False, max_draft: int = 15,
          **options: Any) -> list[dict[str, Any]]:
    """Speeds, and their share of the machine's limit. options: those of Llm.

    With lookup, or draft among the options, each row of decoding is followed by one with tokens guessed ahead.
    """
    what = _inferno.BenchOptions()
    what.prompt, what.generate, what.depth, what.repeat, what.batches = prompt, generate, depth, repeat, list(batches)
    what.lookup, what.max_draft = lookup, max_draft
    return _inferno.bench(os.fspath(path), load_options(**options), what)


class Profile(dict[str, Any]):
    """Where the time went: a dictionary that prints as a table and draws itself."""

    def __str__(self) -> str:
        return str(self["text"])

    def _repr_html_(self) -> str:
        import html

        return f"<pre>{html.escape(self['text'])}</pre>"

    def plot(self, phase: str | None = None) -> Any:
        """The ops of a phase as bars, with what the machine's limits allow, by matplotlib; returns its axes."""
        import matplotlib.pyplot as plt  # type: ignore[import-not-found,unused-ignore]

        phases = [p for p in self["phases"] if phase in (None, p["phase"])]
        if not phases:
            raise _inferno.Error(f"no phase {phase!r} was measured")
        ops = phases[-1]["ops"]
        _, axes = plt.subplots()
        names = [op["op"] for op in ops]
        axes.barh(names, [op["total_us"] / 1e3 for op in ops], label="measured")
        axes.barh(names, [op["least_us"] / 1e3 for op in ops], height=0.4, label="the machine's limit")
        axes.invert_yaxis()
        axes.set_xlabel("ms")
        axes.set_title(f"{phases[-1]['phase']}: {phases[-1]['summary']}")
        axes.legend()
        return axes
