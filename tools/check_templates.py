#!/usr/bin/env python3
"""Holds the template interpreter to jinja2, run as transformers runs it.

    tools/check_templates.py RENDERER [--templates FOLDER_OR_FILE ...] [--gguf FILE ...] [--write] [-v]

RENDERER is build/tests/template/render_templates. Every template (our own, those named, and those inside GGUF files) is
rendered over a grid of conversations by both; texts must be equal, and where jinja2 raises, ours must fail. So must the
snippets of tests/data/templates/snippets.json. --write stores what jinja2 gives for our own templates and the snippets:
the vectors that template_data_test reads. Templates that formats.json there names (those of llama.cpp's collection) must
show the format of tool calls that it says. Needs jinja2.
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

ROOT = Path(__file__).resolve().parents[1]
DATA = ROOT / "tests/data/templates"
KNOWN = ROOT / "src/template/known"
GRID = json.loads((DATA / "conversations.json").read_text("utf-8"))
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

    def ask(self, request, name):
        self.send(request)
        line = self.process.stdout.readline()
        if not line:
            sys.exit(f"the renderer died at {name}")
        return json.loads(line)

    def render(self, name, variables):
        return self.ask({"template": name, "variables": variables, "control": CONTROL, "now": NOW}, name)

    def format_of(self, name, source):
        return self.ask({"format_of": source}, name)["format"]


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


def compare(expected, error, answer, label, counts, verbose):
    ours = "".join(text for text, _ in answer["pieces"]) if "pieces" in answer else None
    if expected is None:
        result = "both fail" if ours is None else "only jinja2 fails"
    elif ours is None:
        result = "only ours fails"
    else:
        result = "equal" if ours == expected else "different"
    counts[result] = counts.get(result, 0) + 1
    if result not in ("equal", "both fail") or (verbose and result == "both fail"):
        print(f"{label}: {result}")
        print(f"  jinja2: {error!r}" if expected is None else f"  jinja2: {expected!r}")
        print(f"  ours:   {answer.get('error', ours)!r}")


def report(what, counts, rest=""):
    order = ("equal", "both fail", "different", "only ours fails", "only jinja2 fails")
    total = sum(counts.values())
    print(f"{what}, {total} renderings: " + ", ".join(f"{counts.get(k, 0)} {k}" for k in order) + rest)
    return total == counts.get("equal", 0) + counts.get("both fail", 0)


def check_grid(renderer, environment, sources, write, verbose):
    counts, leaks, vectors = {}, 0, []
    for name, source in sources.items():
        reference = Reference(environment, source)
        renderer.define(name, source)
        for conversation in conversations():
            expected, error = reference.render(conversation["variables"])
            answer = renderer.render(name, conversation["variables"])
            compare(expected, error, answer, f"{name} / {conversation['name']}", counts, verbose)
            for leak in find_user_text(answer, conversation):
                print(f"{name} / {conversation['name']}: user text is control: {leak!r}")
                leaks += 1
            vectors.append([name, conversation["name"], expected])
    if write:
        own = {path.name for path in own_templates()}
        with open(DATA / "expected.jsonl", "w", encoding="utf-8") as file:
            for vector in vectors:
                if vector[0] in own:
                    file.write(json.dumps(vector, ensure_ascii=False) + "\n")
    return report(f"{len(sources)} templates", counts, f"; {leaks} pieces of user text marked as control") and leaks == 0


def check_snippets(renderer, environment, write, verbose):
    path = DATA / "snippets.json"
    data = json.loads(path.read_text("utf-8"))
    counts, vectors = {}, []
    for source, _ in data["snippets"]:
        expected, error = Reference(environment, source).render(data["variables"])
        renderer.define("snippet", source)
        compare(expected, error, renderer.render("snippet", data["variables"]), repr(source), counts, verbose)
        vectors.append([source, expected])
    if write:
        lines = ",\n".join("  " + json.dumps(vector, ensure_ascii=False) for vector in vectors)
        variables = json.dumps(data["variables"], ensure_ascii=False)
        path.write_text(f'{{\n "variables": {variables},\n "snippets": [\n{lines}\n ]\n}}\n', "utf-8")
    return report(f"{len(vectors)} snippets", counts)


def check_formats(renderer, sources):
    """A template that shows none of our formats gets hermes."""
    data = json.loads((DATA / "formats.json").read_text("utf-8"))
    expected = {name: kind for kind, names in data["formats"].items() for name in names}
    expected |= {name: "hermes" for name in data["others"]}
    known = [name for name in sources if name in expected]
    wrong = 0
    for name in known:
        if (got := renderer.format_of(name, sources[name])) != expected[name]:
            print(f"{name}: shows {expected[name]}, taken for {got}")
            wrong += 1
    print(f"{len(known)} templates with a known format of tool calls: {wrong} wrong")
    return wrong == 0


def own_templates():
    return [*sorted(DATA.glob("*.jinja")), *sorted(KNOWN.glob("*.jinja"))]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("renderer")
    parser.add_argument("--templates", nargs="*", default=[])
    parser.add_argument("--gguf", nargs="*", default=[])
    parser.add_argument("--write", action="store_true")
    parser.add_argument("-v", "--verbose", action="store_true")
    arguments = parser.parse_args()

    files = own_templates()
    for name in arguments.templates:
        files += sorted(Path(name).glob("*.jinja")) if Path(name).is_dir() else [Path(name)]
    sources = {file.name: file.read_text(encoding="utf-8") for file in files}
    sources |= {name: text for name in arguments.gguf if (text := gguf_template(name))}

    environment = make_environment()
    renderer = Renderer(arguments.renderer)
    equal = check_grid(renderer, environment, sources, arguments.write, arguments.verbose)
    equal = check_snippets(renderer, environment, arguments.write, arguments.verbose) and equal
    equal = check_formats(renderer, sources) and equal
    sys.exit(0 if equal else 1)


if __name__ == "__main__":
    main()
