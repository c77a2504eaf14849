#!/usr/bin/env python3
"""Texts of the built-in model under JSON schemas, checked by Python's jsonschema.

    tools/check_schemas.py INFERNO [--seeds 2] [--chosen 0] [--chosen-seeds 200] [--tokens 400] [--jobs 1] [--state FILE]
                           [PATH...]

A file holds a schema, {"schema": ...}, or an array of the latter (JSONSchemaBench, JSON-Schema-Test-Suite); a folder is all its
.json files; without paths the schemas of tests/data/schemas.json are used. Every schema is sampled at temperature 1 with each
seed, and as many as --chosen of those that are accepted, evenly spaced, with more seeds. A text that ended must be valid; one
that was cut by the limit says so. A schema that is refused must name what it lacks. With --jobs so many processes make texts, of
one thread each. With --state a run that was stopped goes on where it was.
"""
import argparse
import concurrent.futures
import decimal
import json
import pathlib
import subprocess
import sys

import jsonschema

BATCH = 400  # texts of one process: progress is shown, and kept, after each
AT_ONCE = 64  # texts of one step: the weights are read once for all of them
COUNTS = ("valid", "cut", "refused", "wrong", "unjudged")


def cases_of(paths):
    """Pairs of a name and a schema."""
    for path in map(pathlib.Path, paths):
        for file in sorted(path.rglob("*.json")) if path.is_dir() else [path]:
            content = json.loads(file.read_text(encoding="utf-8"))
            for i, item in enumerate(content if isinstance(content, list) else [content]):
                yield f"{file}#{i}", item["schema"] if isinstance(item, dict) and "schema" in item else item


def is_rounding(error):
    """Whether jsonschema, which divides binary fractions, only says that 37.27 is no multiple of 0.01."""
    if error.validator != "multipleOf":
        return False
    with decimal.localcontext() as context:
        context.prec = 1000
        return decimal.Decimal(str(error.instance)) % decimal.Decimal(str(error.validator_value)) == 0


def judge(answer, schema):
    """One of COUNTS, and what is to be said about it."""
    if "error" in answer:
        return "refused", answer["error"]
    if answer["stop_reason"] == "length":
        return "cut", ""
    try:
        instance = json.loads(answer["text"])
        judging = jsonschema.validators.validator_for(schema, default=jsonschema.Draft202012Validator)
        error = next((each for each in judging(schema).iter_errors(instance) if not is_rounding(each)), None)
    except json.JSONDecodeError as no_json:
        return "wrong", f"{answer['text']}: {no_json}"
    except Exception as own:  # a schema that jsonschema itself cannot use: a type or a pattern that it does not know
        return "unjudged", f"{type(own).__name__}: {str(own).splitlines()[0]}"
    return ("wrong", f"{answer['text']}: {error.message}") if error else ("valid", "")


def run(options, cases):
    """The counts of each (name, schema, seeds), and what is to be said about them."""
    lines = [json.dumps({"prompt": "Once upon a time", "n": options.tokens, "temp": 1, "seed": seed, "json_schema": schema})
             for _, schema, seeds in cases for seed in range(seeds)]
    command = [options.inferno, "generate", "--jsonl", "--quiet", "--parallel", str(AT_ONCE)]
    made = subprocess.run(command + (["--threads", "1"] if options.jobs > 1 else []), input="\n".join(lines) + "\n",
                          capture_output=True, text=True, check=False)
    # Not splitlines(): that also cuts at separators a string of JSON may hold as they are.
    answers = [json.loads(line) for line in made.stdout.split("\n") if line]
    if len(answers) != len(lines):
        raise RuntimeError(f"{len(lines)} lines in, {len(answers)} out: {made.stderr}")
    results, messages = [], []
    for name, schema, seeds in cases:
        counts, said = dict.fromkeys(COUNTS, 0), set()
        for answer in answers[:seeds]:
            kind, message = judge(answer, schema)
            counts[kind] += 1
            if message and (kind == "wrong" or kind not in said):
                messages.append(f"{kind.upper() if kind == 'wrong' else kind}: {name}: {message}")
            said.add(kind)
        del answers[:seeds]
        results.append((name, seeds, counts))
    return results, messages


def batches_of(cases):
    batch = []
    for case in cases:
        if batch and sum(seeds for _, _, seeds in batch) + case[2] > BATCH:
            yield batch
            batch = []
        batch.append(case)
    if batch:
        yield batch


def run_all(options, cases, done, keep):
    """Adds the counts of the cases to `done`, by name and seeds."""
    to_go = [case for case in cases if (case[0], case[2]) not in done]
    left = len(to_go)
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        for future in concurrent.futures.as_completed([pool.submit(run, options, batch) for batch in batches_of(to_go)]):
            try:
                results, messages = future.result()
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise
            print("".join(f"{message}\n" for message in messages), end="", flush=True)
            for name, seeds, counts in results:
                done[name, seeds] = counts
                if keep:
                    keep.write(json.dumps([name, seeds, counts]) + "\n")
            if keep:
                keep.flush()
            left -= len(results)
            if left:
                print(f"{left} schemas to go: {summary(done)}", file=sys.stderr, flush=True)


def summary(done):
    totals = {kind: sum(counts[kind] for counts in done.values()) for kind in COUNTS}
    return f"{sum(totals.values())} texts: " + ", ".join(f"{n} {kind}" for kind, n in totals.items() if n or kind != "unjudged")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("inferno")
    parser.add_argument("paths", nargs="*")
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--chosen", type=int, default=0)
    parser.add_argument("--chosen-seeds", type=int, default=200)
    parser.add_argument("--tokens", type=int, default=400)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--state", type=pathlib.Path)
    options = parser.parse_intermixed_args()
    own = pathlib.Path(__file__).resolve().parent.parent / "tests/data/schemas.json"
    cases = [(name, schema, options.seeds) for name, schema in cases_of(options.paths or [own])]
    done = {}
    if options.state and options.state.exists():
        for line in options.state.read_text(encoding="utf-8").splitlines():
            name, seeds, counts = json.loads(line)
            done[name, seeds] = counts
    keep = options.state.open("a", encoding="utf-8") if options.state else None
    run_all(options, cases, done, keep)
    accepted = [case for case in cases if not done[case[0], case[2]]["refused"]]
    if options.chosen:
        step = max(1, len(accepted) // options.chosen)
        chosen = accepted[::step][:options.chosen]
        run_all(options, [(name, schema, options.chosen_seeds) for name, schema, _ in chosen], done, keep)
    print(f"{len(cases)} schemas, {len(accepted)} accepted; {summary(done)}")
    totals = {kind: sum(counts[kind] for counts in done.values()) for kind in COUNTS}
    sys.exit(1 if totals["wrong"] or not totals["valid"] else 0)


if __name__ == "__main__":
    main()
