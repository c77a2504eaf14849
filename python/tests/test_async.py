"""Many requests at once, on threads and in an event loop."""

import asyncio
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


def test_an_event_loop_is_woken_once_for_the_tokens_of_a_step(llm, monkeypatch):
    wakes = 0
    wake = inferno.generation._EventLoop._wake

    def counted(self):
        nonlocal wakes
        wakes += 1
        wake(self)

    monkeypatch.setattr(inferno.generation._EventLoop, "_wake", counted)

    async def follow(i):
        return [token.id async for token in llm.submit([100 + i, 5, 6], max_tokens=24, stop_at_end=False)]

    async def all_of_them():
        return await asyncio.gather(*map(follow, range(8)))

    before = llm.stats()["steps"]
    assert sum(map(len, asyncio.run(all_of_them()))) >= 8 * 24
    # Requests that have tokens already when they are first asked, and their ends, count too.
    assert wakes <= llm.stats()["steps"] - before + 2 * 8


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


def test_a_task_that_is_cancelled_cancels_its_request(llm):
    async def main():
        generation = llm.submit("Once upon a time", max_tokens=-1)
        task = asyncio.ensure_future(generation._finish())
        await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return generation

    assert asyncio.run(main()).result().reason == "cancelled"


def test_an_error_of_a_request_is_raised_in_its_loop(llm):
    async def main():
        return [token async for token in llm.submit("Once", max_tokens=4, on_token=lambda token: 1 / 0)]

    with pytest.raises(ZeroDivisionError):
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
