#!/usr/bin/env python3
"""Texts of the built-in model under JSON schemas, checked by Python's jsonschema.

    tools/check_schemas.py INFERNO [--seeds 2] [--tokens 400] [FILE...]

A file holds a schema, {"schema": ...}, or an array of the latter (JSONSchemaBench, JSON-Schema-Test-Suite); without files the
schemas of tests/data/schemas.json are used. Every schema is sampled at temperature 1 with each seed. A text that ended must
be valid; one that was cut by the limit says so. A schema that is refused must name what it lacks.
"""
import argparse
import json
import pathlib
import subprocess
import sys

import jsonschema


def schemas_of(files):
    for file in files:
        content = json.loads(pathlib.Path(file).read_text(encoding="utf-8"))
        for item in content if isinstance(content, list) else [content]:
            yield item["schema"] if isinstance(item, dict) and "schema" in item else item


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("inferno")
    parser.add_argument("files", nargs="*")
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--tokens", type=int, default=400)
    options = parser.parse_intermixed_args()
    own = pathlib.Path(__file__).resolve().parent.parent / "tests/data/schemas.json"
    schemas = list(schemas_of(options.files or [own]))
    lines = []
    for schema in schemas:
        for seed in range(options.seeds):
            lines.append(json.dumps({"prompt": "Once upon a time", "n": options.tokens, "temp": 1, "seed": seed,
                                     "json_schema": schema}))
    run = subprocess.run([options.inferno, "generate", "--jsonl", "--quiet"], input="\n".join(lines) + "\n",
                         capture_output=True, text=True, check=False)
    answers = [json.loads(line) for line in run.stdout.splitlines()]
    if len(answers) != len(lines):
        sys.exit(f"{len(lines)} lines in, {len(answers)} out: {run.stderr}")
    valid = cut = refused = wrong = 0
    for i, answer in enumerate(answers):
        schema = schemas[i // options.seeds]
        if "error" in answer:
            refused += 1
            if i % options.seeds == 0:
                print("refused:", answer["error"])
        elif answer["stop_reason"] == "length":
            cut += 1
        else:
            try:
                jsonschema.validate(json.loads(answer["text"]), schema)
                valid += 1
            except (json.JSONDecodeError, jsonschema.ValidationError) as error:
                wrong += 1
                print("WRONG:", answer["text"], json.dumps(schema), str(error).splitlines()[0])
    print(f"{len(answers)} texts: {valid} valid, {cut} cut, {refused} refused, {wrong} wrong")
    sys.exit(1 if wrong or not valid else 0)


if __name__ == "__main__":
    main()
