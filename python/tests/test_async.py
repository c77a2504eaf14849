"""Many requests at once, on threads and in an event loop."""

import asyncio
import sys
import threading

import pytest

import inferno


def test_texts_of_an_event_loop_are_those_of_requests_alone(llm):
    prompts = ["Once upon a time", "The old man", "In the forest", "She opened", "The sea was", "At last", "The king",
               "A little bird"]

    async def text(prompt):
        return "".join([token async for token in llm.submit(prompt, max_tokens=16)])

    async def all_of_them():
        return await asyncio.gather(*map(text, prompts))

    assert asyncio.run(all_of_them()) == [llm.generate(prompt, max_tokens=16).text for prompt in prompts]


def test_a_request_can_be_awaited_while_other_tasks_run(llm):
    async def main():
        ticks = 0

        async def tick():
            nonlocal ticks
            while True:
                ticks += 1
                await asyncio.sleep(0)

        ticker = asyncio.create_task(tick())
        result = await llm.submit("Once upon a time", max_tokens=20)
        ticker.cancel()
        return result, ticks

    result, ticks = asyncio.run(main())
    assert result.text == llm.generate("Once upon a time", max_tokens=20).text and ticks > 1


@pytest.fixture
def wakes(monkeypatch):
    """One entry for each time that an event loop was woken."""
    made = []
    wake = inferno.generation._EventLoop._wake

    def counted(self):
        made.append(None)
        wake(self)

    monkeypatch.setattr(inferno.generation._EventLoop, "_wake", counted)
    return made


def test_an_event_loop_is_woken_once_for_the_tokens_of_a_step(llm, wakes):
    async def follow(i):
        return [token.id async for token in llm.submit([100 + i, 5, 6], max_tokens=24, stop_at_end=False)]

    async def all_of_them():
        return await asyncio.gather(*map(follow, range(8)))

    before = llm.stats()["steps"]
    assert sum(map(len, asyncio.run(all_of_them()))) >= 8 * 24
    # Requests that have tokens already when they are first asked, and their ends, count too.
    assert len(wakes) <= llm.stats()["steps"] - before + 2 * 8


def test_an_event_loop_that_awaits_a_result_is_woken_at_its_end_alone(llm, wakes):
    async def main():
        generation = llm.submit("Once upon a time", max_tokens=60, stop_at_end=False)
        return await generation, "".join([token async for token in generation])

    result, streamed = asyncio.run(main())
    assert len(wakes) <= 2 and streamed == result.text


def test_one_task_awaits_a_request_whose_tokens_another_takes(llm):
    async def main():
        generation = llm.submit("Once upon a time", max_tokens=-1, stop_at_end=False)
        awaited = asyncio.ensure_future(generation._finish())
        await asyncio.sleep(0)
        made = []
        async for token in generation:
            made.append(token)
            if len(made) == 3:
                generation.cancel()
        return "".join(made), await awaited

    streamed, result = asyncio.run(main())
    assert streamed == result.text and result.reason == "cancelled"


def test_tasks_that_share_a_request_get_each_token_once(llm):
    async def main():
        generation = llm.submit("Once upon a time", max_tokens=60)

        async def take():
            return [token.id async for token in generation]

        return await asyncio.gather(take(), take(), take())

    taken = asyncio.run(main())
    assert sorted(sum(taken, [])) == sorted(llm.generate("Once upon a time", max_tokens=60).ids)
    assert all(taken)


def test_a_request_goes_from_one_event_loop_to_another(llm):
    generation = llm.submit("Once upon a time", max_tokens=20)

    async def take(most):
        made = []
        async for token in generation:
            made.append(token)
            if len(made) == most:
                break
        return made

    text = "".join(asyncio.run(take(3)) + asyncio.run(take(1000)))
    assert text == llm.generate("Once upon a time", max_tokens=20).text
    assert "".join(generation) == ""


async def awaits(generation):
    await generation


async def iterates(generation):
    async for _ in generation:
        pass


@pytest.mark.parametrize("follow", [awaits, iterates])
def test_a_task_that_is_cancelled_cancels_its_request(llm, follow):
    async def main():
        generation = llm.submit("Once upon a time", max_tokens=-1, stop_at_end=False)
        task = asyncio.ensure_future(follow(generation))
        await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return generation

    assert asyncio.run(main()).result().reason == "cancelled"


@pytest.mark.parametrize("raised, expected", [(ZeroDivisionError, ZeroDivisionError), (StopIteration, RuntimeError)])
def test_an_error_of_a_request_is_raised_in_its_loop(llm, raised, expected):
    def fails(token):
        raise raised

    async def main():
        return [token async for token in llm.submit("Once", max_tokens=4, on_token=fails)]

    with pytest.raises(expected):
        asyncio.run(main())


def test_threads_share_a_model(llm):
    expected = llm.generate("Once upon a time", max_tokens=16).text
    texts = []
    threads = [threading.Thread(target=lambda: texts.append(llm.generate("Once upon a time", max_tokens=16).text))
               for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert texts == [expected] * 8


@pytest.mark.parametrize("compute", [
    lambda llm: llm.generate("Once upon a time", max_tokens=8),
    lambda llm: list(llm.stream("Once upon a time", max_tokens=8)),
    lambda llm: llm.logits("Once upon a time"),
    lambda llm: inferno.Llm.builtin(context=128).close(),
    lambda llm: inferno.verify(backend="simd", tokens=1, prompt=[1, 2, 3]),
], ids=["generate", "stream", "logits", "load", "verify"])
def test_other_threads_run_while_the_model_computes(llm, compute):
    asked, ran = threading.Event(), threading.Event()
    other = threading.Thread(target=lambda: asked.wait() and ran.set())
    other.start()
    interval = sys.getswitchinterval()
    sys.setswitchinterval(100)  # Python itself lets no other thread run meanwhile
    try:
        asked.set()
        for _ in range(20):  # on a busy machine the other one may not get a CPU in time
            compute(llm)
            if ran.is_set():
                break
        seen = ran.is_set()
    finally:
        sys.setswitchinterval(interval)
        other.join()
    assert seen
