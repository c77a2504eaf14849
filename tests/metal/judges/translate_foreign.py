#!/usr/bin/env python3
"""Turns chosen kernels of a foreign Metal source into C++ for the emulator, line for line.

    translate_foreign.py SOURCE.metal OUTPUT.cpp KERNEL...

Where translate.py has rules, this takes what comes: buffers numbered by their order, memory in [[threadgroup(i)]]
parameters, function constants. Kernels that are not named are read and not compiled.
"""

import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "emulator"))
from translate import closing, without_comments  # noqa: E402

KERNEL = re.compile(r'(?:\[\[host_name\("(\w+)"\)\]\]\s*)?\bkernel\s+void\s+(\w+)\s*\(')
INSTANCE = re.compile(r'template\s*\[\[\s*host_name\("(\w+)"\s*\)\s*\]\]\s*kernel\s+\w+\s+((\w+)\s*<[^;]*>)\s*;')
CONSTANT = re.compile(r"^constant\s+(\w+)\s+(\w+)\s*\[\[function_constant\(([^)]*)\)\]\];", re.M)
SHARED = re.compile(r"^(\s+)threadgroup\s+(\w+)\s+(\w+)\s*((?:\[[^]]+\])+);", re.M)


def sources_of(listed):
    found, buffers = [], 0
    for parameter in listed.split(","):
        attribute = re.search(r"\[\[\s*(\w+)\s*(?:\((\d+)\))?\s*\]\]", parameter)
        kind, index = (attribute[1], int(attribute[2] or 0)) if attribute else ("buffer", buffers)
        if kind == "buffer":
            buffers = index + 1
        if kind == "threadgroup":  # a macro
            kind = "threadgroup_memory"
        found.append(f"{{emulator::Source::{kind}, {index}}}")
    return ", ".join(found)


def main():
    source, output, *wanted = sys.argv[1:]
    text = pathlib.Path(source).read_text()
    plain = without_comments(text)
    parameters, edits, seen = {}, [], set()

    def register(at, name, expression, base):
        seen.add(name)
        number = len(seen)
        edits.append((at, at, f" const emulator::Registration registration_{number}("
                      f'emulator::foreign_kernel<{expression}, parameters_of_{base}>("{name}"));'))  # fmt: skip

    for match in KERNEL.finditer(plain):
        end = closing(plain, match.end(), "()")
        parameters.setdefault(match[2], sources_of(plain[match.end() : end - 1]))
        if (match[1] or match[2]) in wanted and not plain[: match.start()].rstrip().endswith(">"):
            body = plain.index("{", end) + 1
            register(closing(plain, body, "{}"), match[1] or match[2], match[2], match[2])
    for match in INSTANCE.finditer(plain):
        edits.append((match.start(), match.end(), "\n" * match[0].count("\n")))
        if match[1] in wanted:
            register(match.end(), match[1], match[2], match[3])
    missing = sorted(set(wanted) - seen)
    if missing:
        sys.exit(f"{source}: no kernel {', '.join(missing)}")
    for match in CONSTANT.finditer(plain):
        edits.append((match.start(), match.end(), f"{match[1]} {match[2]}; "
                      f"const emulator::ConstantRegistration constant_{match[2]}({match[3]}, {match[2]});"))  # fmt: skip
    arrays = iter(range(10000))
    for match in SHARED.finditer(plain):
        kind = match[2] + match[4]
        edits.append((match.start(), match.end(), f"{match[1]}auto& {match[3]} = *static_cast<{match[2]}(*){match[4]}>("
                      f"emulator::threadgroup_memory({next(arrays)}, sizeof({kind})));"))  # fmt: skip
    for begin, end, new in sorted(edits, key=lambda edit: edit[:2], reverse=True):
        text = text[:begin] + new + text[end:]
    text = re.sub(r"\s*\[\[[^][]*\]\]", lambda m: "\n" * m[0].count("\n"), text)

    lines = ['#include "foreign.h"', "namespace {"]
    for name, sources in parameters.items():
        lines.append(f"[[maybe_unused]] constexpr emulator::Parameter parameters_of_{name}[] = {{{sources}}};")
    lines += [f'#line 1 "{source}"', text, "}  // namespace"]
    pathlib.Path(output).write_text("\n".join(lines) + "\n")


main()
