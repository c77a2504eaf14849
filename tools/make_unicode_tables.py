#!/usr/bin/env python3
"""Writes src/template/unicode_tables.inc: what Python's str methods know about characters outside ASCII.

    tools/make_unicode_tables.py > src/template/unicode_tables.inc

Ranges are packed into one number each: first character << 11 | (length - 1). Case mappings are ranges of characters with
one distance to their counterpart, and a list of those that become several characters.
"""
import sys
import unicodedata

LIMIT = 0x110000
MAX_LENGTH = 1 << 11


def ranges(predicate):
    packed, begin = [], None
    for code in range(0x80, LIMIT + 1):
        inside = code < LIMIT and predicate(chr(code))
        if inside and (begin is None or code - begin == MAX_LENGTH):
            if begin is not None:
                packed.append(begin << 11 | MAX_LENGTH - 1)
            begin = code
        elif not inside and begin is not None:
            packed.append(begin << 11 | code - begin - 1)
            begin = None
    return packed


def mappings(convert):
    """(first, last, step, distance) of characters that become one other character."""
    simple = [(c, ord(convert(chr(c))) - c) for c in range(0x80, LIMIT)
              if len(convert(chr(c))) == 1 and convert(chr(c)) != chr(c)]
    out = []
    for code, distance in simple:
        if out and out[-1][3] == distance:
            first, last, step, _ = out[-1]
            gap = code - last
            if gap in (1, 2) and (first == last or gap == step):
                out[-1] = (first, code, gap, distance)
                continue
        out.append((code, code, 1, distance))
    return out


def expansions(convert):
    return [(c, *map(ord, convert(chr(c)))) for c in range(0x80, LIMIT) if len(convert(chr(c))) > 1]


def wrap(items):
    lines, line = [], " "
    for item in items:
        if len(line) + len(item) + 2 > 118:
            lines.append(line)
            line = " "
        line += " " + item + ","
    return "\n".join([*lines, line])


def emit_ranges(name, predicate):
    print(f"constexpr uint32_t {name}[] = {{\n{wrap(hex(p) for p in ranges(predicate))}\n}};")


def title(c):
    return c.title()


print(f"// Made by tools/make_unicode_tables.py from Unicode {unicodedata.unidata_version}; not written by hand.")
print("// clang-format off")
emit_ranges("kAlpha", str.isalpha)
emit_ranges("kDecimal", str.isdecimal)
emit_ranges("kDigit", str.isdigit)
emit_ranges("kNumeric", str.isnumeric)
# Above the last ideograph only variation selectors are visible; the table ends there.
LAST_VISIBLE = max(c for c in range(0xE0000) if chr(c).isprintable())
emit_ranges("kHidden", lambda c: ord(c) <= LAST_VISIBLE and not c.isprintable() and not 0xD800 <= ord(c) < 0xE000)
print(f"constexpr char32_t kLastVisible = {LAST_VISIBLE:#x};")
for name, convert in (("kUpper", str.upper), ("kLower", str.lower)):
    rows = ("{0x%x, 0x%x, %d, %d}" % row for row in mappings(convert))
    print(f"constexpr CaseRange {name}[] = {{\n{wrap(rows)}\n}};")
for name, convert in (("kUpperExpansions", str.upper), ("kLowerExpansions", str.lower)):
    rows = ("{0x%x, {%s}}" % (row[0], ", ".join(map(hex, row[1:]))) for row in expansions(convert))
    print(f"constexpr CaseExpansion {name}[] = {{\n{wrap(rows)}\n}};")
rows = [(c, *map(ord, title(chr(c)))) for c in range(0x80, LIMIT) if title(chr(c)) != chr(c).upper()]
print("// Where the title form is not the upper one.")
print("constexpr CaseExpansion kTitle[] = {\n%s\n};" % wrap("{0x%x, {%s}}" % (r[0], ", ".join(map(hex, r[1:]))) for r in rows))
print("// clang-format on")
