"""A request that was submitted, for threads and for event loops."""

from __future__ import annotations

import asyncio
import itertools
import weakref
from collections import deque
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from typing import Any

from . import _inferno
from .results import Result, Token


class Generation:
    """A request that was submitted. Iterate over it, in a loop or with `async for`, or await it or ask for its result.

    It goes on when nobody looks. Leaving a loop over it does not end it; cancel() does.
    """

    def __init__(self, request: _inferno.Request, reader: Callable[[int], _inferno.AnswerReader] | None = None):
        self._request = request
        self._reader = reader  # of a sample of a conversation
        self._ready: deque[Token] = deque()
        # For event loops.
        self._ended = False  # and all its tokens were taken
        self._loop: _EventLoop | None = None  # that takes its tokens
        self._waiting: list[asyncio.Future[None]] = []

    def result(self) -> Result:
        """Waits for the end. Raises what the request ended with."""
        return Result._of(self._request.result(), self._reader)

    def cancel(self) -> None:
        """Ends it before its next step; what was made so far is its result."""
        self._request.cancel()

    def done(self) -> bool:
        """Whether the result is there."""
        return self._request.has_ended()

    def __iter__(self) -> Iterator[Token]:
        return self

    def __next__(self) -> Token:
        if not self._ready:
            self._ready.extend([Token(*token) for token in self._request.next()])
            if not self._ready:
                self._request.result()  # raises what went wrong
                raise StopIteration
        return self._ready.popleft()

    def __aiter__(self) -> AsyncIterator[Token]:
        return self

    async def __anext__(self) -> Token:
        while not self._ready:
            if self._ended:
                self._request.result()
                raise StopAsyncIteration
            await self._change()
        return self._ready.popleft()

    def __await__(self) -> Generator[Any, None, Result]:
        return self._finish().__await__()

    async def _finish(self) -> Result:
        while not self._ended:
            await self._change()
        return self.result()

    async def _change(self) -> None:
        """Until something was received. A task that is cancelled meanwhile cancels the request."""
        loop = asyncio.get_running_loop()
        if self._loop is None or self._loop.loop() is not loop:
            _EventLoop.of(loop).add(self)
        changed = loop.create_future()
        self._waiting.append(changed)
        try:
            await changed
        except asyncio.CancelledError:
            self.cancel()
            raise

    def _receive(self, tokens: list[tuple[str, int, int, list[tuple[int, float]]]], ended: bool) -> None:
        self._ready.extend([Token(*token) for token in tokens])
        self._ended = ended
        waiting, self._waiting = self._waiting, []
        for changed in waiting:
            if not changed.done():
                changed.set_result(None)


class _EventLoop:
    """Hands the tokens of all requests that one event loop waits for to them. It is woken once for a step's tokens."""

    _known: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _EventLoop] = weakref.WeakKeyDictionary()

    def __init__(self, loop: asyncio.AbstractEventLoop):
        self.loop = weakref.ref(loop)
        self._waker = _inferno.Waker()
        self._generations: dict[int, Generation] = {}  # that have not ended
        self._numbers = itertools.count()
        loop.add_reader(self._waker.descriptor(), self._wake)

    @classmethod
    def of(cls, loop: asyncio.AbstractEventLoop) -> _EventLoop:
        made = cls._known.get(loop)
        if made is None:
            made = cls._known[loop] = cls(loop)
        return made

    def add(self, generation: Generation) -> None:
        """From now on its tokens come here, and to no other loop."""
        number = next(self._numbers)
        generation._request.notify(self._waker, number)
        generation._loop = self
        self._generations[number] = generation

    def _wake(self) -> None:
        for number, tokens, ended in self._waker.take():
            generation = self._generations.pop(number) if ended else self._generations[number]
            generation._receive(tokens, ended)
