#!/usr/bin/env python3
"""What Python costs: the package beside the C++ program, in turns, on one model.

    bench/python/python_speed.py MODEL.gguf [--inferno build/inferno] [--package build/python] [--threads 2] [--rounds 5]

One stream: `inferno generate` beside a loop over Llm.stream(). Eight: `inferno bench --batch 8` beside eight asyncio
tasks, each with `async for` over its own request. Tokens per second of decoding, prompts not counted, while all streams
run: on both sides steps that make a token for each. The median of the rounds, and of their ratios. Needs a machine that
does nothing else.
"""

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
import time

TOKENS = 128
PROMPT = 16
STREAMS = 8
CONTEXT = 4096
SETTLE_SECONDS = 6


def prompt_ids(stream):
    return [1000 + 97 * stream + i for i in range(PROMPT)]


def program(args, *command):
    made = subprocess.run([args.inferno, *command, "--threads", str(args.threads), "-c", str(CONTEXT), "--quiet"],
                          check=True, capture_output=True, text=True)
    return json.loads(made.stdout)


def cpp_one(args):
    ids = ",".join(map(str, prompt_ids(0)))
    made = program(args, "generate", args.model, "--ids", ids, "-n", str(TOKENS), "--ignore-end", "--json")
    return made["metrics"]["decode_tokens_per_second"]


def cpp_eight(args):
    made = program(args, "bench", args.model, "--prompt", "0", "--gen", str(TOKENS), "--depth", str(PROMPT), "--batch",
                   str(STREAMS), "--repeat", "1", "--format", "json")
    return next(row for row in made if row["phase"] == "decode")["tokens_per_second"]


def speed(times):
    return (len(times) - 1) / (times[-1] - times[0])


def python_one(llm):
    return speed([time.perf_counter() for _ in llm.stream(prompt_ids(0), max_tokens=TOKENS, stop_at_end=False)])


async def python_eight(llm):
    async def follow(stream):
        return [time.perf_counter() async for _ in llm.submit(prompt_ids(stream), max_tokens=TOKENS, stop_at_end=False)]

    times = await asyncio.gather(*map(follow, range(STREAMS)))
    # From the first token of the last to begin to the last token of the first to end. The tokens of a step come one
    # after the other: each stream is measured between two tokens of its own.
    begin, end = max(t[0] for t in times), min(t[-1] for t in times)
    return sum(speed([t for t in stream if begin <= t <= end]) for stream in times)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("--inferno", default="build/inferno")
    parser.add_argument("--package", default="build/python")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    sys.path.insert(0, args.package)
    import inferno

    llm = inferno.Llm(args.model, threads=args.threads, context=CONTEXT)
    for name, cpp, python in (("1 stream", cpp_one, python_one),
                              (f"{STREAMS} streams", cpp_eight, lambda llm: asyncio.run(python_eight(llm)))):
        python(llm)  # memory that was never touched
        rows = []
        for _ in range(args.rounds):
            there = cpp(args)
            # What the program used goes back to the system, which on a virtual machine may go on for seconds and takes
            # part of the memory's speed. Then a round that does not count, for a process that slept.
            time.sleep(SETTLE_SECONDS)
            python(llm)
            rows.append((there, python(llm)))
        ratios = [here / there for there, here in rows]
        print(f"{name:10} C++ {statistics.median(r[0] for r in rows):7.1f} tok/s   Python "
              f"{statistics.median(r[1] for r in rows):7.1f} tok/s   ratio {statistics.median(ratios):.3f} "
              f"({min(ratios):.3f} to {max(ratios):.3f})", flush=True)


if __name__ == "__main__":
    main()
