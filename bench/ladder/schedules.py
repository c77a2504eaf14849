#!/usr/bin/env python3
"""bench/ladder/schedules.py: instruction schedules of the Arm assembly kernels, from order data to headers.

A schedule is data: the order in which the instructions of a listing (below) are issued, the pipeline stage of each, and
the register of each value, with the core and the toolchain it was found on. NAME.json of
src/backend/cpu/kernels/arm/schedules holds the data; NAME.h, the assembly that kernels include, is generated from it.

  bench/ladder/schedules.py           checks that every schedule is legal and every header is exactly what its data gives
  bench/ladder/schedules.py --write   writes the headers

bench/ladder/order_search finds schedules.
"""

import argparse
import dataclasses
import json
import pathlib
import re
import sys

FOLDER = pathlib.Path(__file__).resolve().parents[2] / "src/backend/cpu/kernels/arm/schedules"


# ---- listings: what is scheduled


class Listing:
    """Instructions of one block with virtual registers: (written, read, text); {r} in the text is the number of r."""

    def __init__(self, operands, strides, fixed):
        self.lines = []
        self.operands = operands  # names of the addresses x0, x1, x2 in the asm statement
        self.strides = strides  # bytes from block to block of each
        self.fixed = fixed  # registers that are given; those that live from block to block are called r0, r1, ...
        self.names = 0

    def new(self):
        self.names += 1
        return f"t{self.names}"

    def add(self, written, read, text):
        self.lines.append((written, read, text))
        return written

    def load(self, base, at, kind="q"):
        r = self.new()
        return self.add(r, [], f"ldr {kind}{{{r}}}, [x{base}, #{at}]")

    def zero(self, r):
        self.add(r, [], f"movi v{{{r}}}.2d, #0")

    def smmla(self, total, row, token):
        self.add(total, [total, row, token], f"smmla v{{{total}}}.4s, v{{{row}}}.16b, v{{{token}}}.16b")

    def scale(self, total, running, rows, tokens):
        """running += float(total) * (rows * tokens)"""
        p = self.new()
        self.add(p, [rows, tokens], f"fmul v{{{p}}}.4s, v{{{rows}}}.4s, v{{{tokens}}}.4s")
        self.add(total, [total], f"scvtf v{{{total}}}.4s, v{{{total}}}.4s")
        self.add(running, [running, total, p], f"fmla v{{{running}}}.4s, v{{{total}}}.4s, v{{{p}}}.4s")


def smmla_8x6():
    """8 rows x 6 tokens x 32 columns with a scale per block: a panel (gemm.h) times a tile (gemm_activations.h)."""
    fixed = {f"s{c}": c for c in range(12)} | {f"r{c}": 12 + c for c in range(12)}
    code = Listing("wx", (320, 240), fixed)
    for c in range(12):
        code.zero(f"s{c}")
    for step in range(4):
        x = [code.load(1, 48 * step + 16 * j) for j in range(3)]
        for i in range(4):
            w = code.load(0, 64 * step + 16 * i)
            for j in range(3):
                code.smmla(f"s{3 * i + j}", w, x[j])
    dx = [code.load(1, 192 + 16 * j) for j in range(3)]
    for i in range(4):
        d = code.load(0, 256 + 16 * i)
        for j in range(3):
            code.scale(f"s{3 * i + j}", f"r{3 * i + j}", d, dx[j])
    return code


def smmla_8x8():
    """8 rows x 8 tokens x 32 columns of Q8_0 by row pairs, straight from the weights; two tiles of two token pairs."""
    code = Listing("wxy", (272, 160, 160), {f"r{c}": 8 + c for c in range(16)})
    for half in range(2):
        s = [f"h{half}s{c}" for c in range(8)]
        for c in s:
            code.zero(c)
        for step in range(4):
            w = [code.load(0, 16 + 128 * half + 32 * step + 16 * i) for i in range(2)]
            x = [code.load(base, 32 * step + at) for base in (1, 2) for at in (0, 16)]
            for i in range(2):
                for j in range(4):
                    code.smmla(s[4 * i + j], w[i], x[j])
        f16 = code.load(0, 8 * half, "d")
        f32 = code.new()
        code.add(f32, [f16], f"fcvtl v{{{f32}}}.4s, v{{{f16}}}.4h")
        d = []
        for zip_ in ("zip1", "zip2"):
            r = code.new()
            d.append(code.add(r, [f32], f"{zip_} v{{{r}}}.4s, v{{{f32}}}.4s, v{{{f32}}}.4s"))
        dx = [code.load(base, at) for base in (1, 2) for at in (128, 144)]
        for i in range(2):
            for j in range(4):
                code.scale(s[4 * i + j], f"r{8 * half + 4 * i + j}", d[i], dx[j])
    return code


def bfmmla_8x8():
    """8 x 8 results x 8 values of bf16: scores (queries x positions) or outputs (queries x dimensions) of attention."""
    code = Listing("ab", (128, 128), {f"r{c}": c for c in range(16)})
    for step in range(2):
        a = [code.load(0, 64 * step + 16 * i) for i in range(4)]
        for j in range(4):
            b = code.load(1, 64 * step + 16 * j)
            for i in range(4) if j % 2 == 0 else (3, 2, 1, 0):
                r = f"r{4 * i + j}"
                code.add(r, [r, a[i], b], f"bfmmla v{{{r}}}.4s, v{{{a[i]}}}.8h, v{{{b}}}.8h")
    return code


LISTINGS = {listing.__name__: listing for listing in (smmla_8x6, smmla_8x8, bfmmla_8x8)}


# ---- schedules: in which order


class Rules:
    """What a schedule of a listing must keep: the order of instructions that touch the same register."""

    def __init__(self, listing):
        self.listing = listing
        self.count = len(listing.lines)
        # Instructions that touch a register, in the sequence of a block.
        self.touching = {}
        for k, (written, read, _) in enumerate(listing.lines):
            for r in {written, *read}:
                self.touching.setdefault(r, []).append(k)
        # (j, blocks): instruction k of a block must come before j, `blocks` blocks later.
        self.after = [set() for _ in range(self.count)]
        self.before = [set() for _ in range(self.count)]
        for r, touching in self.touching.items():
            for n, k in enumerate(touching):
                later = [(j, 0) for j in touching[n + 1 :]]
                later += [(j, 1) for j in touching[:n]] if r in listing.fixed else []
                for j, blocks in later:
                    if r in (listing.lines[k][0], listing.lines[j][0]):
                        self.after[k].add((j, blocks))
                        self.before[j].add((k, blocks))

    def times(self, order):
        """When each instruction of a block is issued, counted from the start of the iteration that starts the block."""
        time_of = [0] * self.count
        for at, (k, stage) in enumerate(order):
            time_of[k] = at + self.count * stage
        return time_of

    def allowed(self, k, time_of):
        return all(time_of[j] + self.count * blocks > time_of[k] for j, blocks in self.after[k]) and all(
            time_of[k] + self.count * blocks > time_of[j] for j, blocks in self.before[k]
        )

    def lifetimes(self, order):
        """(register, first, length) in issue slots for each value that an order's registers have to hold."""
        time_of = self.times(order)
        for r, touching in self.touching.items():
            if r not in self.listing.fixed:
                first, last = min(time_of[k] for k in touching), max(time_of[k] for k in touching)
                yield r, first, last - first

    def problem(self, order, registers):
        """Why an order with these registers would compute something else; None if it is legal."""
        if sorted(k for k, _ in order) != list(range(self.count)):
            return "the order is no permutation of the listing"
        time_of = self.times(order)
        for k in range(self.count):
            if not self.allowed(k, time_of):
                return f"instruction {k} is issued before one it depends on"
        holder = {}
        for r, first, length in self.lifetimes(order):
            number = registers.get(r)
            if number not in range(32) or number in self.listing.fixed.values() or length >= self.count:
                return f"value {r} has no register"
            for slot in range(first, first + length):
                other = holder.setdefault((number, slot % self.count), r)
                if other != r:
                    return f"values {other} and {r} share v{number}"
        if any(at < -256 for _, at in self.addresses(order)):
            return "a load is out of reach"
        return None

    def addresses(self, order):
        """(base, offset) of each load as issued; addresses have moved on by a block when stage 1 runs."""
        for k, stage in order:
            if load := re.search(r"\[x(\d), #(\d+)\]", self.listing.lines[k][2]):
                base = int(load[1])
                yield base, int(load[2]) - stage * self.listing.strides[base]

    def text(self, order, registers):
        """The instructions as issued, addresses in x0, x1, x2."""
        number = registers | self.listing.fixed
        addresses = self.addresses(order)
        text = []
        for k, _ in order:
            line = re.sub(r"\{(\w+)\}", lambda m: str(number[m[1]]), self.listing.lines[k][2])
            if line.startswith("ldr"):
                base, at = next(addresses)
                line = re.sub(r"\[.*\]", f"[x{base}, #{at}]", line)
            text.append(line)
        return text


@dataclasses.dataclass
class Schedule:
    listing: str
    core: str
    toolchain: str
    found: str
    speed: str
    order: list  # (instruction of the listing, stage)
    registers: dict

    @classmethod
    def read(cls, path):
        data = json.loads(path.read_text())
        return cls(**data | {"order": [tuple(place) for place in data["order"]]})

    def data(self):
        """The text of NAME.json."""
        fields = dataclasses.asdict(self)
        order = rows(f"[{k}, {stage}]" for k, stage in fields.pop("order"))
        registers = rows(f'"{r}": {n}' for r, n in fields.pop("registers").items())
        head = "".join(f"  {json.dumps(name)}: {json.dumps(value)},\n" for name, value in fields.items())
        return f'{{\n{head}  "order": [\n{order}\n  ],\n  "registers": {{\n{registers}\n  }}\n}}\n'

    def header(self, name):
        """The text of NAME.h."""
        rules = Rules(LISTINGS[self.listing]())
        operands = rules.listing.operands
        lines = []
        for (_, stage), line in zip(self.order, rules.text(self.order, self.registers)):
            line = re.sub(r"\[x(\d),", lambda m: f"[%[{operands[int(m[1])]}],", line)
            lines.append(f'  stage{stage}("{line}\\n")')
        body = " \\\n".join(lines)
        return HEADER.format(
            **dataclasses.asdict(self), name=name, what=LISTINGS[self.listing].__doc__, macro=self.listing.upper(), body=body
        )


HEADER = """// {what}
//
// Generated from {name}.json by bench/ladder/schedules.py; do not edit.
//   core:       {core}
//   toolchain:  {toolchain}
//   found:      {found}
//   speed:      {speed}
//
// One iteration of a software-pipelined loop (INFERNO_PIPELINED_LOOP in assembly.h): stage0 instructions belong to the
// block that the iteration starts, stage1 instructions to the previous block, which it finishes.
#pragma once

// clang-format off
#define INFERNO_{macro}(stage0, stage1) \\
{body}
// clang-format on
"""


def rows(parts, width=112):
    """The elements of a JSON list or object in rows."""
    lines = [""]
    for part in parts:
        if len(lines[-1]) + len(part) > width:
            lines.append("")
        lines[-1] += f", {part}" if lines[-1] else part
    return ",\n".join("    " + line for line in lines)


def problem_of(path):
    """What is wrong with schedule NAME.json or its header; None if nothing is."""
    schedule = Schedule.read(path)
    if problem := Rules(LISTINGS[schedule.listing]()).problem(schedule.order, schedule.registers):
        return f"{path.name}: {problem}"
    if schedule.data() != path.read_text():
        return f"{path.name} is not in the form that schedules.py writes"
    header = path.with_suffix(".h")
    want = schedule.header(path.stem).split("\n")
    got = header.read_text().split("\n") if header.exists() else []
    for number, line in enumerate(want, 1):
        if number > len(got) or got[number - 1] != line:
            return f"{header.name}:{number}: not what {path.name} gives: {line.strip()}"
    return None if len(got) == len(want) else f"{header.name}: longer than what {path.name} gives"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="write the headers instead of checking them")
    args = parser.parse_args()
    data = sorted(FOLDER.glob("*.json"))
    if args.write:
        for path in data:
            path.with_suffix(".h").write_text(Schedule.read(path).header(path.stem))
        return 0
    problems = [problem for path in data if (problem := problem_of(path))]
    problems += [f"{h.name}: no data" for h in FOLDER.glob("*.h") if not h.with_suffix(".json").exists()]
    problems += [] if data else [f"no schedules in {FOLDER}"]
    for problem in problems:
        print(problem, file=sys.stderr)
    print(f"{len(data)} schedules checked")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
