#!/usr/bin/env python3
"""Takes a kernel that Apple's compiler compiled out of a .metallib, for this machine's compiler.

    apple_kernel.py LIBRARY.metallib OUTPUT KERNEL [CONSTANT=VALUE ...]

writes OUTPUT.ll, the kernel's AIR (LLVM's language for Metal) without what is Metal's alone, and OUTPUT.cpp, which registers
it with the emulator. Needs llvm-dis-19.
"""

import pathlib
import re
import struct
import subprocess
import sys

# A matrix is a vector of 64, of which a lane has the first two elements.
MULTIPLY = """
define internal <64 x float> @air.simdgroup_matrix_8x8_multiply_accumulate.v64f32.v64f32.v64f32.v64f32(<64 x float> %a,
    <64 x float> %b, <64 x float> %c) {
  %pa = alloca <2 x float>
  %pb = alloca <2 x float>
  %pc = alloca <2 x float>
  %pto = alloca <2 x float>
  %a2 = shufflevector <64 x float> %a, <64 x float> poison, <2 x i32> <i32 0, i32 1>
  %b2 = shufflevector <64 x float> %b, <64 x float> poison, <2 x i32> <i32 0, i32 1>
  %c2 = shufflevector <64 x float> %c, <64 x float> poison, <2 x i32> <i32 0, i32 1>
  store <2 x float> %a2, ptr %pa
  store <2 x float> %b2, ptr %pb
  store <2 x float> %c2, ptr %pc
  call void @inferno_matrix_multiply(ptr %pa, ptr %pb, ptr %pc, ptr %pto)
  %to = load <2 x float>, ptr %pto
  %e0 = extractelement <2 x float> %to, i32 0
  %e1 = extractelement <2 x float> %to, i32 1
  %v0 = insertelement <64 x float> poison, float %e0, i32 0
  %v1 = insertelement <64 x float> %v0, float %e1, i32 1
  ret <64 x float> %v1
}
declare void @inferno_matrix_multiply(ptr, ptr, ptr, ptr)
"""


def bitcode_of(library, kernel):
    """A library lists its functions by NAME and has, in the same order, the bitcode of each in a wrapper."""
    data = pathlib.Path(library).read_bytes()
    names = [match[1].decode() for match in re.finditer(rb"NAME..([\x20-\x7e]+)\x00", data)]
    wrappers = [match.start() for match in re.finditer(b"\xde\xc0\x17\x0b", data)]
    if kernel not in names or len(names) != len(wrappers):
        sys.exit(f"{library}: no kernel {kernel}")
    at = wrappers[names.index(kernel)]
    offset, size = struct.unpack("<II", data[at + 8 : at + 16])
    return data[at + offset : at + offset + size]


def parameters_of(text, kernel, constants):
    """[Parameter of parameters.h] from the metadata: what the host is to bind."""
    nodes = dict(re.findall(r"^(!\d+) = (?:distinct )?(!\{.*\})$", text, re.M))
    signature = nodes[re.search(r"^!air\.kernel = !\{(!\d+)\}", text, re.M)[1]]
    listed = re.findall(r"!\d+", nodes[re.findall(r"!\d+", signature)[1]])
    found = []
    for node in (nodes[reference] for reference in listed):
        kind = re.search(r'!"air\.((?:thread|simd|threads)\w*|buffer)"', node)[1]
        index = re.search(r'!"air\.location_index", i32 (\d+)', node)
        condition = re.search(r'!"air\.function_constant", (!\d+)', node)
        optional = "air.arg_unused" in node
        if condition:
            optional = constants[re.findall(r'!"(\w+)"', nodes[condition[1]])[-1]] == 0
        found.append(f"{{emulator::Source::{kind}, {index[1] if index else 0}, {'true' if optional else 'false'}}}")
    return found


def with_constants(text, constants):
    def value(match):
        name = match[2]
        if name not in constants:
            sys.exit(f"function constant {name} has no value")
        return f"{match[1]}{constants[name]}{match[3]}"

    pattern = r"^(@_Z\d+(\w+?)\.MTL_FC_INIT_\S+ = .*constant i\d+ )undef(,)"
    return re.sub(pattern, value, text, flags=re.M)


def retargeted(text, kernel):
    text = re.sub(r"^target .*\n", "", text, flags=re.M)
    text = re.sub(r"^@llvm\.compiler\.used.*\n", "", text, flags=re.M)
    shared = re.findall(r"^(@\S+) = .*addrspace\(3\) global (.*?) undef, align", text, re.M)
    # Other code than this module's writes them.
    text = re.sub(r"^(@\S+ = )internal unnamed_addr addrspace\(3\)", r"\1hidden", text, flags=re.M)
    text = re.sub(r" addrspace\(\d+\)", "", text).replace("addrspacecast", "bitcast")
    text = re.sub(r"@llvm\.[\w.]+", lambda name: re.sub(r"\.p\d", ".p0", name[0]), text)
    text, multiplies = re.subn(r"^declare <64 x float> @air\.simdgroup_matrix_8x8_multiply_acc.*\n", "", text, flags=re.M)
    text += MULTIPLY if multiplies else ""
    # AddressSanitizer takes functions that ask for it.
    group = re.search(rf"^define .*@{kernel}\(.* #(\d+) \{{", text, re.M)[1]
    text = re.sub(rf"^(attributes #{group} = {{)", r"\1 sanitize_address", text, flags=re.M)
    return text, shared


def entry(text, kernel, shared):
    listed = re.search(rf"^define .*@{kernel}\((.*)\) \S.* \{{$", text, re.M)[1]
    types = [re.match(r"ptr|i\d+|<\d+ x i\d+>", parameter)[0] for parameter in listed.split(", ")]
    lines = [f"define void @judged_{kernel}(ptr %arguments) {{"]
    for number, (name, kind) in enumerate(shared):
        size = f"i64 ptrtoint (ptr getelementptr ({kind}, ptr null, i32 1) to i64)"
        lines.append(f"  call void @inferno_threadgroup_variable(ptr {name}, {size}, i32 {number})")
    for number, kind in enumerate(types):
        lines.append(f"  %at{number} = getelementptr ptr, ptr %arguments, i64 {number}")
        lines.append(f"  %p{number} = load ptr, ptr %at{number}")
        if kind != "ptr":
            lines.append(f"  %v{number} = load {kind}, ptr %p{number}, align 4")
    passed = ", ".join(f"{kind} %{'p' if kind == 'ptr' else 'v'}{number}" for number, kind in enumerate(types))
    lines += [f"  call void @{kernel}({passed})", "  ret void", "}"]
    lines.append("declare void @inferno_threadgroup_variable(ptr, i64, i32)")
    return "\n".join(lines) + "\n"


def main():
    library, output, kernel, *given = sys.argv[1:]
    constants = {name: int(value) for name, value in (pair.split("=") for pair in given)}
    dis = subprocess.run(["llvm-dis-19", "-o", "-"], input=bitcode_of(library, kernel), capture_output=True, check=True)
    text = with_constants(dis.stdout.decode(), constants)
    parameters = parameters_of(text, kernel, constants)
    text, shared = retargeted(text, kernel)
    pathlib.Path(output + ".ll").write_text(text + entry(text, kernel, shared))
    pathlib.Path(output + ".cpp").write_text(
        '#include "apple.h"\n'
        f'extern "C" void judged_{kernel}(void* const*);\n'
        f"namespace {{\nconstexpr emulator::Parameter parameters_of_{kernel}[] = {{{', '.join(parameters)}}};\n"
        f"const emulator::Registration registration(emulator::apple_kernel<judged_{kernel}, parameters_of_{kernel}>("
        f'"{kernel}"));\n}}  // namespace\n'
    )


main()
