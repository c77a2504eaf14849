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

_numbers = itertools.count()  # of requests, for event loops


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
        self._loop: _EventLoop | None = None  # that it tells of its end, and with _each of its tokens
        self._each = False
        self._number = next(_numbers)
        self._waiting: deque[asyncio.Future[Token | None]] = deque()  # for a token each; None is the end
        self._finishing: list[asyncio.Future[None]] = []  # for the end

    def result(self) -> Result:
        """Waits for the end. Raises what the request ended with."""
        return Result._of(self._request.result(), self._reader)

    def cancel(self) -> None:
        """Ends it before its next step; what was made so far is its result."""
        self._request.cancel()

    def _leave(self) -> None:
        """Cancels it, and gives back what it holds where nobody else computes."""
        self._request.leave()

    def done(self) -> bool:
        """Whether the result is there."""
        return self._request.has_ended()

    def __reduce__(self) -> Any:
        raise _inferno.Error("a request cannot be pickled; give its result to the other process")

    def __iter__(self) -> Iterator[Token]:
        return self

    def __next__(self) -> Token:
        if not self._ready:
            self._ready.extend(self._request.next(Token))
            if not self._ready:
                self._request.result()  # raises what went wrong
                raise StopIteration
        return self._ready.popleft()

    def __aiter__(self) -> AsyncIterator[Token]:
        return self

    async def __anext__(self) -> Token:
        if self._ready:
            return self._ready.popleft()
        if not self._ended:
            loop = asyncio.get_running_loop()
            self._follow(loop, True)
            waiter: asyncio.Future[Token | None] = loop.create_future()
            self._waiting.append(waiter)
            try:
                token = await waiter
            except asyncio.CancelledError:
                self.cancel()
                raise
            if token is not None:
                return token
        self._request.result()  # raises what went wrong
        raise StopAsyncIteration

    def __await__(self) -> Generator[Any, None, Result]:
        return self._finish().__await__()

    async def _finish(self) -> Result:
        if not self._ended:
            loop = asyncio.get_running_loop()
            self._follow(loop, False)
            waiter: asyncio.Future[None] = loop.create_future()
            self._finishing.append(waiter)
            try:
                await waiter
            except asyncio.CancelledError:
                self.cancel()
                raise
        return self.result()

    def _follow(self, loop: asyncio.AbstractEventLoop, each: bool) -> None:
        """That loop is told of the end, and where `each` is set of every token."""
        if self._loop is None or self._loop.loop() is not loop or each > self._each:
            self._each = self._each or each
            _EventLoop.of(loop).add(self)

    def _receive(self, tokens: list[Token], ended: bool) -> None:
        self._ready.extend(tokens)
        self._ended = ended
        while self._waiting and (self._ready or ended):
            waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_result(self._ready.popleft() if self._ready else None)
        if ended:
            for finishing in self._finishing:
                if not finishing.done():
                    finishing.set_result(None)


class _EventLoop:
    """Hands the tokens of all requests that one event loop waits for to them. It is woken once for a step's tokens."""

    _known: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _EventLoop] = weakref.WeakKeyDictionary()

    def __init__(self, loop: asyncio.AbstractEventLoop):
        self.loop = weakref.ref(loop)
        self._waker = _inferno.Waker()
        self._generations: dict[int, Generation] = {}  # that have not ended
        loop.add_reader(self._waker.descriptor(), self._wake)

    @classmethod
    def of(cls, loop: asyncio.AbstractEventLoop) -> _EventLoop:
        made = cls._known.get(loop)
        if made is None:
            made = cls._known[loop] = cls(loop)
        return made

    def add(self, generation: Generation) -> None:
        """From now on its tokens come here, and to no other loop."""
        if generation._loop is not None:
            generation._loop._generations.pop(generation._number, None)
        generation._loop = self
        self._generations[generation._number] = generation
        generation._request.notify(self._waker, generation._number, generation._each)

    def _wake(self) -> None:
        for number, tokens, ended in self._waker.take(Token):
            generation = self._generations.pop(number, None) if ended else self._generations.get(number)
            if generation is not None:
                generation._receive(tokens, ended)
