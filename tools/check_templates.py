#!/usr/bin/env python3
"""Holds the template interpreter to jinja2, run as transformers runs it.

    tools/check_templates.py RENDERER [--templates FOLDER_OR_FILE ...] [--gguf FILE ...] [--write FOLDER] [-v]

RENDERER is build/tests/template/render_templates. Every template (*.jinja, and those inside GGUF files) is rendered over
a grid of conversations by both; texts must be equal, and where jinja2 raises, ours must fail. --write stores what jinja2
gives for the templates of FOLDER as FOLDER/expected.jsonl, the vectors of template_data_test. Needs jinja2.
"""
import argparse
import datetime
import json
import struct
import subprocess
import sys
from pathlib import Path

import jinja2
import jinja2.ext
from jinja2.sandbox import ImmutableSandboxedEnvironment

GRID = json.loads((Path(__file__).resolve().parents[1] / "tests/data/templates/conversations.json").read_text("utf-8"))
NOW = GRID["now"]
CONTROL = GRID["control"]  # variables the engine gives: the text of bos and eos


def conversations():
    """Each one with and without the opening of an answer."""
    for conversation in GRID["conversations"]:
        for prompt in (True, False):
            name = conversation["name"] + (", answer opened" if prompt else "")
            variables = {"tools": None, "documents": None, **conversation["variables"], "add_generation_prompt": prompt}
            yield {"name": name, "variables": variables, "mark": GRID["mark"]}


class Generation(jinja2.ext.Extension):
    """{% generation %} as transformers has it, without the bookkeeping of positions."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_support"), [], [], body).set_lineno(line)

    @jinja2.pass_eval_context
    def _support(self, context, caller):
        return caller()


def make_environment():
    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols])
    environment.filters["tojson"] = tojson
    environment.globals["raise_exception"] = raise_exception
    environment.globals["strftime_now"] = lambda format: datetime.datetime.fromtimestamp(NOW).strftime(format)
    return environment


class Reference:
    def __init__(self, environment, source):
        self.error = None
        try:
            self.template = environment.from_string(source)
        except Exception as error:  # whatever jinja2 and Python think of
            self.error = error

    def render(self, variables):
        """(text, None) or (None, error)"""
        if self.error is not None:
            return None, self.error
        try:
            text = self.template.render(**json.loads(json.dumps(variables)), **CONTROL)
            text.encode()
            return text, None
        except Exception as error:
            return None, error


class Renderer:
    def __init__(self, program):
        self.process = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                        encoding="utf-8")

    def send(self, request):
        self.process.stdin.write(json.dumps(request, ensure_ascii=False) + "\n")
        self.process.stdin.flush()

    def define(self, name, source):
        self.send({"template": name, "define": source})

    def render(self, name, variables):
        self.send({"template": name, "variables": variables, "control": CONTROL, "now": NOW})
        line = self.process.stdout.readline()
        if not line:
            sys.exit(f"the renderer died at {name}")
        return json.loads(line)


def gguf_template(path):
    key = b"tokenizer.chat_template"
    data = Path(path).read_bytes()
    at = data.find(key)
    if at < 0:
        return ""
    kind, size = struct.unpack_from("<IQ", data, at + len(key))
    begin = at + len(key) + 12
    return data[begin:begin + size].decode() if kind == 8 else ""


def find_user_text(answer, conversation):
    """What users said that may become control tokens: a mark that no piece of control may hold."""
    mark = conversation.get("mark")
    return [text for text, control in answer.get("pieces", []) if control and mark and mark in text]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("renderer")
    parser.add_argument("--templates", nargs="*", default=[])
    parser.add_argument("--gguf", nargs="*", default=[])
    parser.add_argument("--write")
    parser.add_argument("-v", "--verbose", action="store_true")
    arguments = parser.parse_args()

    sources = {}
    for name in [*arguments.templates, *([arguments.write] if arguments.write else [])]:
        path = Path(name)
        for file in sorted(path.glob("*.jinja")) if path.is_dir() else [path]:
            sources[file.name] = file.read_text(encoding="utf-8")
    for name in arguments.gguf:
        text = gguf_template(name)
        if text:
            sources[Path(name).name] = text

    environment = make_environment()
    renderer = Renderer(arguments.renderer)
    counts = {"equal": 0, "both fail": 0, "different": 0, "only ours fails": 0, "only jinja2 fails": 0}
    leaks = 0
    vectors = []
    for name, source in sources.items():
        reference = Reference(environment, source)
        renderer.define(name, source)
        for conversation in conversations():
            expected, error = reference.render(conversation["variables"])
            answer = renderer.render(name, conversation["variables"])
            ours = "".join(text for text, _ in answer["pieces"]) if "pieces" in answer else None
            if expected is None:
                result = "both fail" if ours is None else "only jinja2 fails"
            elif ours is None:
                result = "only ours fails"
            else:
                result = "equal" if ours == expected else "different"
            counts[result] += 1
            leaked = find_user_text(answer, conversation)
            leaks += len(leaked)
            vectors.append({"template": name, "conversation": conversation["name"], "text": expected})
            if leaked:
                print(f"{name} / {conversation['name']}: user text is control: {leaked[0]!r}")
            if result not in ("equal", "both fail") or (arguments.verbose and result == "both fail"):
                print(f"{name} / {conversation['name']}: {result}")
                print(f"  jinja2: {error!r}" if expected is None else f"  jinja2: {expected!r}")
                print(f"  ours:   {answer.get('error', ours)!r}")
    total = sum(counts.values())
    print(f"{len(sources)} templates, {total} renderings: " + ", ".join(f"{v} {k}" for k, v in counts.items())
          + f"; {leaks} pieces of user text marked as control")
    if arguments.write:
        with open(Path(arguments.write) / "expected.jsonl", "w", encoding="utf-8") as file:
            for vector in vectors:
                file.write(json.dumps(vector, ensure_ascii=False) + "\n")
    sys.exit(0 if total == counts["equal"] + counts["both fail"] and leaks == 0 else 1)


if __name__ == "__main__":
    main()
