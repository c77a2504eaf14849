"""Models that go away, processes that fork, interpreters that end."""

import contextlib
import ctypes
import os
import pickle
import resource
import signal
import subprocess
import sys

import pytest

import inferno


def run(program, **options):
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False,
                          **options)


def test_a_closed_model_ends_its_requests_and_refuses_new_ones():
    llm = inferno.Llm.builtin(context=512)
    generation = llm.submit("Once upon a time", max_tokens=-1)
    llm.close()
    assert generation.result().reason == "cancelled"
    with pytest.raises(inferno.Error, match="closed"):
        llm.generate("Once")
    assert "closed" in repr(llm)


def test_models_and_requests_cannot_be_pickled_and_results_can(llm):
    generation = llm.submit("Once", max_tokens=2)
    for value in (llm, generation):
        with pytest.raises(inferno.Error, match="pickled"):
            pickle.dumps(value)
    result = generation.result()
    assert pickle.loads(pickle.dumps(result)) == result
    for token in llm.stream("Once", max_tokens=2, logprobs=1):
        again = pickle.loads(pickle.dumps(token))
        assert (again, again.id, again.sample, again.logprobs) == (token, token.id, token.sample, token.logprobs)


def test_a_child_of_fork_gets_an_error_and_does_not_hang():
    done = run("""
import inferno, os, sys
llm = inferno.Llm.builtin(context=256)
generation = llm.submit("Once", max_tokens=4)
generation.result()
if os.fork() == 0:
    for call in (lambda: llm.generate("Once"), generation.result, generation.done):
        try:
            call()
        except inferno.Error:
            print("error", flush=True)
    os._exit(0)
os.wait()
print(llm.generate("Once", max_tokens=2).reason)
""")
    assert done.stdout.split() == ["error"] * 3 + ["length"], done.stderr


def test_the_interpreter_ends_during_a_generation():
    done = run("""
import inferno
llm = inferno.Llm.builtin(context=1024)
llm.submit("Once upon a time", max_tokens=-1)
llm.submit("Once upon a time", max_tokens=-1, on_token=lambda token: True)
print("end")
""")
    assert (done.returncode, done.stdout, done.stderr) == (0, "end\n", "")


def test_the_interpreter_ends_while_threads_and_event_loops_wait():
    done = run("""
import asyncio, inferno, threading, time
llm = inferno.Llm.builtin(context=1024)

async def follow():
    async for token in llm.submit("Once upon a time", max_tokens=-1, stop_at_end=False):
        pass

for wait in (lambda: llm.generate("Once", max_tokens=-1, stop_at_end=False), lambda: asyncio.run(follow())):
    threading.Thread(target=wait, daemon=True).start()
while llm.stats()["running"] < 2:
    time.sleep(0.01)
print("end")
""")
    assert (done.returncode, done.stdout, done.stderr) == (0, "end\n", "")


def test_a_child_of_fork_ends_by_itself_while_its_parent_computes():
    done = run("""
import inferno, os, sys, threading, time
llm = inferno.Llm.builtin(context=1024)
threading.Thread(target=lambda: llm.generate("Once", max_tokens=-1, stop_at_end=False), daemon=True).start()
while inferno._inferno.threads_inside() == 0 or llm.stats()["running"] == 0:
    time.sleep(0.001)
if os.fork() == 0:
    print(inferno._inferno.threads_inside(), flush=True)
    sys.exit(0)
print(os.wait()[1])
""")
    assert (done.returncode, done.stdout, done.stderr) == (0, "0\n0\n", "")


@pytest.mark.parametrize("call", ["llm.generate({})", "list(llm.stream({}))", "llm.submit({}).result()"])
def test_ctrl_c_cancels_and_is_a_keyboard_interrupt(call):
    # Jobs in the background of a shell begin with SIGINT ignored.
    program = f"""
import inferno, signal
signal.signal(signal.SIGINT, signal.default_int_handler)
llm = inferno.Llm.builtin(context=1024)
try:
    print("ready", flush=True)
    while True:
        {call.format('"Once upon a time", max_tokens=-1, stop_at_end=False')}
except KeyboardInterrupt:
    print("interrupted", llm.generate("Once", max_tokens=2).reason)
"""
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout.readline() == "ready\n"
        child.send_signal(signal.SIGINT)
        try:
            assert child.communicate(timeout=60)[0] == "interrupted length\n"
        finally:
            child.kill()


def memory():
    """In use, not what the allocator keeps of what was freed."""
    with contextlib.suppress(AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


@pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="no /proc/self/statm")
@pytest.mark.skipif("INFERNO_PYTHON_SANITIZED" in os.environ, reason="a sanitizer keeps memory that was freed")
def test_models_and_cancelled_streams_leak_nothing():
    # INFERNO_PYTHON_CYCLES=1000 is the long form.
    cycles = int(os.environ.get("INFERNO_PYTHON_CYCLES", "20"))

    def cycle(streams):
        with inferno.Llm.builtin(context=256, threads=1) as llm:
            for _ in range(streams):
                for _ in llm.stream("Once", max_tokens=-1):
                    break

    for _ in range(5):
        cycle(10)
    before = memory()
    for _ in range(cycles):
        cycle(10)
    assert memory() - before < 20 << 20
