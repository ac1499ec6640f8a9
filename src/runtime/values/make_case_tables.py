#!/usr/bin/env python3
"""Writes case_tables.h: to which character Unicode's simple case mappings lead, as ranges. Run it with a newer Python
for a newer Unicode."""
import pathlib
import unicodedata


def ranges(change):
    """(first, last, step, distance) of runs of characters that move equally far."""
    pairs = [(c, ord(change(chr(c)))) for c in range(0x80, 0x110000)
             if not 0xD800 <= c < 0xE000 and len(change(chr(c))) == 1 and change(chr(c)) != chr(c)]
    rows = []
    for c, to in pairs:
        if rows and to - c == rows[-1][3]:
            first, last, step, _ = rows[-1]
            if (step == 0 and c - last <= 2) or (step > 0 and c - last == step):
                rows[-1] = (first, c, step or c - last, to - c)
                continue
        rows.append((c, c, 0, to - c))
    return [(first, last, step or 1, distance) for first, last, step, distance in rows]


def table(name, rows):
    text = f"constexpr CaseRange {name}[] = {{\n"
    line = "   "
    for row in rows:
        entry = " {" + f"0x{row[0]:x}, 0x{row[1]:x}, {row[2]}, {row[3]}" + "},"
        if len(line) + len(entry) > 118:
            text += line + "\n"
            line = "   "
        line += entry
    return text + line + "\n};\n"


out = f"""// Written by make_case_tables.py from Unicode {unicodedata.unidata_version}; sorted, beyond ASCII. A character
// that becomes several stays as it is.
#pragma once

#include <stdint.h>

namespace tessera {{

// Every `step`-th character from first to last moves by `distance`.
struct CaseRange {{
  uint32_t first, last;
  int32_t step, distance;
}};

// clang-format off
{table("kToLower", ranges(str.lower))}
{table("kToUpper", ranges(str.upper))}// clang-format on

}}  // namespace tessera
"""
pathlib.Path(__file__).with_name("case_tables.h").write_text(out)
