#!/usr/bin/env python3
"""What Python costs: the package beside the C++ library, in turns, on one model.

    bench/python/python_speed.py MODEL.gguf [--build build] [--threads 2] [--rounds 30]

One stream: Llm::generate() with a callback beside a loop over Llm.stream(). Eight: Llm::submit() beside eight asyncio
tasks, each with `async for` over its own request. Both sides keep their model and take turns of a second or two
(cpp_loop.cpp), so what else the machine does meets both. Last, `inferno bench --batch 8` beside the eight tasks, in turns
of a process each. Tokens per second of decoding, prompts not counted, while all streams run; medians of the rounds, and of
their ratios with the quarters around it. Needs a machine that does nothing else.
"""

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import time

TOKENS = {1: 48, 8: 24}
BENCH_TOKENS = 128
BENCH_ROUNDS = 5
PROMPT = 16
STREAMS = 8
CONTEXT = 4096
SETTLE_SECONDS = 6


def prompt_ids(stream):
    return [1000 + 97 * stream + i for i in range(PROMPT)]


class CppLoop:
    def __init__(self, args):
        program = f"{args.build}/bench/python/cpp_loop"
        if not os.path.exists(program):
            sys.exit(f"python_speed: no {program}; build it with `make benchmarks`")
        self.process = subprocess.Popen([program, args.model, str(args.threads), str(CONTEXT)],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def __call__(self, streams):
        self.process.stdin.write(f"{streams} {TOKENS[streams]}\n")
        self.process.stdin.flush()
        return float(self.process.stdout.readline())

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def bench_eight(args):
    made = subprocess.run([f"{args.build}/inferno", "bench", args.model, "--prompt", "0", "--gen", str(BENCH_TOKENS), "--depth",
                           str(PROMPT), "--batch", str(STREAMS), "--repeat", "1", "--format", "json", "--threads",
                           str(args.threads), "-c", str(CONTEXT), "--quiet"], check=True, capture_output=True, text=True)
    return next(row for row in json.loads(made.stdout) if row["phase"] == "decode")["tokens_per_second"]


def speed(times):
    return (len(times) - 1) / (times[-1] - times[0])


def python_one(llm, tokens=TOKENS[1]):
    return speed([time.perf_counter() for _ in llm.stream(prompt_ids(0), max_tokens=tokens, stop_at_end=False)])


async def follow_eight(llm, tokens):
    async def follow(stream):
        return [time.perf_counter() async for _ in llm.submit(prompt_ids(stream), max_tokens=tokens, stop_at_end=False)]

    times = await asyncio.gather(*map(follow, range(STREAMS)))
    # From the first token of the last to begin to the last token of the first to end. The tokens of a step come one
    # after the other: each stream is measured between two tokens of its own.
    begin, end = max(t[0] for t in times), min(t[-1] for t in times)
    return sum(speed([t for t in stream if begin <= t <= end]) for stream in times)


def python_eight(llm, tokens=TOKENS[8]):
    return asyncio.run(follow_eight(llm, tokens))


def show(name, rows):
    ratios = sorted(here / there for there, here in rows)
    quarter = len(ratios) // 4
    print(f"{name:24} C++ {statistics.median(r[0] for r in rows):7.1f} tok/s   Python "
          f"{statistics.median(r[1] for r in rows):7.1f} tok/s   ratio {statistics.median(ratios):.3f} "
          f"({ratios[quarter]:.3f} to {ratios[-1 - quarter]:.3f})", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("--build", default="build")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=30)
    args = parser.parse_args()
    sys.path.insert(0, f"{args.build}/python")
    import inferno

    llm = inferno.Llm(args.model, threads=args.threads, context=CONTEXT)
    cpp = CppLoop(args)
    for streams, python in ((1, python_one), (STREAMS, python_eight)):
        python(llm), cpp(streams)  # memory that was never touched
        rows = []
        for turn in range(args.rounds):  # who begins takes turns, too
            if turn % 2 == 0:
                rows.append((cpp(streams), python(llm)))
            else:
                here = python(llm)
                rows.append((cpp(streams), here))
        show(f"{streams} stream{'s' * (streams > 1)}", rows)
    cpp.close()
    rows = []
    for _ in range(BENCH_ROUNDS):
        there = bench_eight(args)
        # What the program used goes back to the system, which on a virtual machine may go on for seconds and takes
        # part of the memory's speed. Then a round that does not count, for a process that slept.
        time.sleep(SETTLE_SECONDS)
        python_eight(llm)
        rows.append((there, python_eight(llm, BENCH_TOKENS)))
    show("bench --batch 8", rows)


if __name__ == "__main__":
    main()
