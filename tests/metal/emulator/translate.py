#!/usr/bin/env python3
"""Turns a Metal source of ours into C++ for the emulator, line for line, or checks its form.

    translate.py SOURCE.metal OUTPUT.cpp     writes C++ that registers every kernel of the source
    translate.py --address-spaces SOURCE.metal OUTPUT.cl    writes C++ for OpenCL, for a compiler that checks those
    translate.py --lint SOURCE...            exits 1 when a source breaks a rule of docs/decisions/metal.md

A rule is broken for a reason: there is no Metal compiler here, so our sources keep to forms that need no proof.
"""

import pathlib
import re
import sys

ADDRESS_SPACES = ("device", "constant", "threadgroup", "thread")
POSITIONS = {
    "thread_position_in_grid": "metal::uint3{{p.group.x * p.threads.x + p.local.x, p.group.y * p.threads.y + p.local.y, "
    "p.group.z * p.threads.z + p.local.z}}",
    "threadgroup_position_in_grid": "metal::uint3{{p.group.x, p.group.y, p.group.z}}",
    "threads_per_threadgroup": "metal::uint3{{p.threads.x, p.threads.y, p.threads.z}}",
    "thread_index_in_threadgroup": "p.index()",
    "thread_index_in_simdgroup": "p.index() % 32",
    "simdgroup_index_in_threadgroup": "p.index() / 32",
    "simdgroups_per_threadgroup": "(p.threads.x * p.threads.y * p.threads.z + 31) / 32",
}  # fmt: skip
KERNEL = re.compile(r"\bkernel\s+void\s+(\w+)\s*\(")
INSTANCE = re.compile(r'template\s*\[\[host_name\("(\w+)"\)\]\]\s*kernel\s+\w+\s+((\w+)<[^;]*>)\s*;')
PARAMETER = re.compile(r"^(?P<type>.*?)(?P<name>\w+)\s*\[\[(?P<attribute>\w+)(?:\((?P<index>\d+)\))?\]\]$", re.S)
CONSTANT = re.compile(r"^constant bool (\w+) \[\[function_constant\((\d+)\)\]\];", re.M)
SHARED = re.compile(r"^(\s+)threadgroup\s+(\w+)\s+(\w+)\[([^]]+)\];", re.M)


def without_comments(text):
    """Comments as blanks: positions stay."""
    return re.sub(r"//[^\n]*", lambda comment: " " * len(comment[0]), text)


def closing(text, at, pair):
    """The index after the bracket that closes the one before `at`."""
    depth = 1
    while depth:
        depth += {pair[0]: 1, pair[1]: -1}.get(text[at], 0)
        at += 1
    return at


class SourceError(Exception):
    pass


def parameters_of(text, at, kernel):
    listed = text[at : closing(text, at, "()") - 1]
    found = []
    for parameter in listed.split(","):
        match = PARAMETER.match(parameter.strip())
        if not match:
            raise SourceError(f"{kernel}: no attribute on parameter: {' '.join(parameter.split())}")
        found.append(match)
    return found


def call_of(expression, parameters):
    arguments = []
    for parameter in parameters:
        kind = " ".join(parameter["type"].split())
        if parameter["attribute"] == "buffer":
            pointer = kind.replace("&", "*")
            pointer = " ".join(word for word in pointer.split() if word not in ADDRESS_SPACES)
            cast = f"static_cast<{'const ' if kind.startswith('constant') else ''}{pointer}>(b.at({parameter['index']}))"
            arguments.append(("*" if kind.endswith("&") else "") + cast)
        elif parameter["attribute"] in POSITIONS:
            arguments.append(POSITIONS[parameter["attribute"]].format())
        else:
            raise SourceError(f"unknown attribute {parameter['attribute']}")
    return f"{expression}({', '.join(arguments)});"


def fingerprint(data):
    """FNV-1a, as emulator.cpp has it: by this a device knows that it runs the text it was given."""
    value = 0xCBF29CE484222325
    for byte in data:
        value = (value ^ byte) * 0x100000001B3 % 2**64
    return value


def translate(path):
    text = path.read_text()
    plain = without_comments(text)
    signatures = {match[1]: parameters_of(plain, match.end(), match[1]) for match in KERNEL.finditer(plain)}
    instances = [(match[1], match[2], match[3]) for match in INSTANCE.finditer(plain)]
    templates = {base for _, _, base in instances}
    instances += [(name, name, name) for name in signatures if name not in templates]

    arrays = iter(range(1000))
    text = INSTANCE.sub(lambda match: "\n" * match[0].count("\n"), text)
    text = SHARED.sub(
        lambda m: f"{m[1]}auto& {m[3]} = *static_cast<{m[2]}(*)[{m[4]}]>("
        f"emulator::threadgroup_memory({next(arrays)}, sizeof({m[2]}[{m[4]}])));",
        text,
    )
    text = CONSTANT.sub(r"const emulator::FunctionConstant \1{\2};", text)
    text = re.sub(r"\s*\[\[\w+(\(\w+\))?\]\]", "", text)

    out = ["#include <metal_stdlib>", "using namespace metal;", "namespace {", f'#line 1 "{path}"', text]
    for number, (name, expression, base) in enumerate(sorted(instances)):
        buffers = ", ".join(p["index"] for p in signatures[base] if p["attribute"] == "buffer")
        out.append(f"void run_{number}(const emulator::Buffers& b, const emulator::Position& p) {{")
        out.append(f"  (void)b, (void)p, {call_of(expression, signatures[base])}")
        out.append("}")
        out.append(f'const emulator::Registration registration_{number}({{"{name}", {{{buffers}}}, run_{number}}});')
    out.append(f"const emulator::SourceRegistration source_registration({fingerprint(path.read_bytes())}U);")
    out.append("}  // namespace")
    return "\n".join(out) + "\n"


def with_address_spaces(path):
    """Kernels as functions, which may be templates in C++ for OpenCL, every instance of them made."""
    text = path.read_text()
    text = re.sub(r"\btemplate\s*\[\[host_name[^]]*\]\]\s*kernel\b", "template", text)
    text = re.sub(r"\bkernel void\b", "void", text)
    text = CONSTANT.sub(r"constant bool \1 = true;", text)
    text = SHARED.sub(lambda m: f"{m[1]}threadgroup {m[2]}* {m[3]} = 0;", text)
    text = re.sub(r"\s*\[\[\w+(\(\w+\))?\]\]", "", text)
    return f'#include <metal_stdlib>\n#line 1 "{path}"\n{text}'


def lint(path):
    """Yields (line, message)."""
    text = without_comments(path.read_text())
    rules = [
        (r"\bdouble\b", "Metal has no double"),
        (r"\[[=&]?\]\s*\(", "no lambdas"),
        (r"\b(if|for)\s+constexpr\b|\bauto\b|\bstatic\s+inline\b", "C++14 forms that Metal has"),
        (r"(?<![\w:])(exp|exp2|log|log2|tanh|sqrt|rsqrt|sin|cos|pow|fabs|rint|round)\s*\(", "say precise:: or fast::"),
        (r"\b(new|delete|throw|try|virtual|std::\w+|goto)\b", "not in Metal"),
        (r"\d\.\d*(?:e[-+]?\d+)?(?![\d.efh])", "a literal without f is a double"),
        (r"\.(?:xy|xyz|xyzw|rgb|rgba|yz|zw)\b", "no swizzles"),
    ]
    if path.name == "args.h":  # C++ reads it, too
        rules = rules[:2]
    for pattern, message in rules:
        for match in re.finditer(pattern, text):
            yield text.count("\n", 0, match.start()) + 1, f"{message}: {match[0]}"
    # Every pointer and reference, in signatures, casts and variables, names its address space.
    types = r"\b(?:const\s+)?(?:float|int|uint|uchar|char|ushort|ulong|half|bool|[A-Z]\w*[a-z]\w*)\s*[*&](?!&)\s*[\w)]"
    for match in re.finditer(types, text):
        word = re.search(r"(\w+)\s*$", text[: match.start()])
        if not word or word[1] not in ADDRESS_SPACES:
            yield text.count("\n", 0, match.start()) + 1, f"no address space: {' '.join(match[0].split())}"
    for match in re.finditer(r"\b(\w+)\s*\([^;{}]*\)\s*\{", text):
        if match[1] in ("if", "for", "while", "switch"):
            continue
        body = text[match.end() : closing(text, match.end(), "{}")]
        if re.search(rf"(?<![\w.]){match[1]}\s*(<[^;()]*>)?\(", body):
            yield text.count("\n", 0, match.start()) + 1, f"recursion: {match[1]}"
    for match in KERNEL.finditer(text):
        try:
            parameters_of(text, match.end(), match[1])
        except SourceError as error:
            yield text.count("\n", 0, match.start()) + 1, str(error)


def main():
    if len(sys.argv) > 2 and sys.argv[1] == "--lint":
        broken = [f"{path}:{line}: {message}" for path in sys.argv[2:] for line, message in lint(pathlib.Path(path))]
        print("\n".join(broken), end="\n" if broken else "")
        sys.exit(1 if broken else 0)
    write = translate
    if len(sys.argv) > 2 and sys.argv[1] == "--address-spaces":
        del sys.argv[1]
        write = with_address_spaces
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    try:
        pathlib.Path(sys.argv[2]).write_text(write(pathlib.Path(sys.argv[1]).resolve()))
    except SourceError as error:
        sys.exit(f"{sys.argv[1]}: {error}")


if __name__ == "__main__":
    main()
