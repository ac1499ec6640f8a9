#!/usr/bin/env python3
"""One schedule of a matrix product under every tensor intrinsic, at every level of instructions that this machine runs.

    intrinsics_test.py TESSERA [CC]

Only the line `lanes, depth = intrinsic("..")` differs. The result is compared with the naive loops in the interpreter,
and the instruction must be in the code. Declared intrinsics: a body in loop IR, a table entry's instruction, and a C
function that CC compiles. What a declaration may not be is one clear error."""

import pathlib
import shutil
import subprocess
import sys
import tempfile

TESSERA = sys.argv[1]
CC = sys.argv[2] if len(sys.argv) > 2 else "cc"
FOLDER = pathlib.Path(__file__).resolve().parents[2] / "examples" / "schedules" / "intrinsics"
TARGETS = ["x86-64-v2", "x86-64-v3", "x86-64-v4", "native"]
ARM = "aarch64-unknown-linux-gnu,+dotprod"

# intrinsic, program, what the code must contain
TABLE = [
    ("x86.avx512.fma.f32", "f32", "vfmadd"),
    ("x86.fma.f32", "f32", "vfmadd"),
    ("x86.sse.mul_add.f32", "f32", "mulps|vfmadd"),
    ("x86.avx512.dot.bf16", "bf16", "vdpbf16ps"),
    ("x86.avx512.dot.u8i8", "u8i8", "vpdpbusd"),
    ("x86.avx512vl.dot.u8i8", "u8i8", "vpdpbusd"),
    ("x86.avx.dot.u8i8", "u8i8", "vpdpbusd"),
    ("x86.avx512.dot.i16", "i16", "vpmaddwd|vpdpwssd"),
    ("x86.avx2.dot.i16", "i16", "vpmaddwd|vpdpwssd"),
    ("x86.sse.dot.i16", "i16", "pmaddwd|vpdpwssd"),
    ("x86.avx512.dot.bits", "bits", "vpopcntd"),
    ("x86.avx2.dot.bits", "bits", "pshufb|vpopcnt"),
    ("x86.sse.dot.bits", "bits", "pand"),
    ("aarch64.neon.fma.f32", "f32", "fmla"),
    ("aarch64.neon.dot.i8", "i8", "sdot"),
    ("aarch64.neon.dot.bits", "bits", "cnt\t"),
    ("user.two_halves", "f32", ""),
    ("user.weights_first", "u8i8", "vpdpbusd"),
]

# The same with matmul_tiles.sched: factors, program, instruction. Where there is no AMX its code is only compiled, and
# the tiles in plain memory run; tests/amx runs such code by an emulator.
TILES = [
    ("bf16", "bf16", "tdpbf16ps"),
    ("u8i8", "u8i8", "tdpbusd"),
    ("i8i8", "i8", "tdpbssd"),
    ("u8u8", "u8u8", "tdpbuud"),
    ("i8u8", "i8u8", "tdpbsud"),
]

failures = []


def run(*args):
    return subprocess.run([TESSERA, "schedule", *map(str, args)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True)


def expect(condition, text):
    if not condition:
        failures.append(text)
        print("FAILED", text)


def with_intrinsic(work, name, change=lambda text: text, schedule="matmul.sched"):
    path = work / "applied.sched"
    path.write_text(f'lanes, depth = intrinsic("{name}")\n' + change((FOLDER / schedule).read_text()))
    return path


def check_tiles(work):
    for factors, program, instruction in TILES:
        flags = [FOLDER / f"{program}.loop", "--apply",
                 with_intrinsic(work, f"portable.tile.dot.{factors}", schedule="matmul_tiles.sched"),
                 "--target", "x86-64-v2,+portable-tiles"]
        check = run(*flags, "--check")
        expect(check.returncode == 0 and check.stdout.count(": agrees") == 2, f"tiles {factors}: {check.stdout}")
        amx = [FOLDER / f"{program}.loop", "--apply",
               with_intrinsic(work, f"x86.amx.dot.{factors}", schedule="matmul_tiles.sched"),
               "--target", "x86-64-v4,+amx-tile,+amx-bf16,+amx-int8"]
        assembly = run(*amx, "--emit", "asm")
        expect(assembly.returncode == 0 and assembly.stdout.count(f"\t{instruction}\t") == 4,
               f"tiles {factors}: no four {instruction}: {assembly.stdout[-500:]}")
        if run(*amx, "--check").stdout.count(": agrees") != 2:
            print(f"skipped: x86.amx.dot.{factors} is only compiled: this machine has no AMX")


def check_table(work):
    for name, program, instruction in TABLE:
        ran = 0
        for target in [ARM] if name.startswith("aarch64.") else TARGETS:
            flags = [FOLDER / f"{program}.loop", "--apply", with_intrinsic(work, name), "--target", target,
                     "--intrinsics", FOLDER / "user.intrin"]
            assembly = run(*flags, "--emit", "asm")
            if "TSR-3410" in assembly.stdout and " has no " in assembly.stdout:
                print(f"skipped: {name} on {target}: {assembly.stdout.splitlines()[0]}")
                continue
            expect(assembly.returncode == 0, f"{name} {target}: {assembly.stdout}")
            expect(any(word in assembly.stdout for word in instruction.split("|")), f"{name} {target}: no {instruction}")
            if target == ARM:
                print(f"skipped: {name} is only compiled: this is no AArch64 machine")
                ran += 1
                continue
            check = run(*flags, "--check")
            if "TSR-3424" in check.stdout:
                print(f"skipped: {name} on {target}: {check.stdout.splitlines()[0]}")
                continue
            expect(check.returncode == 0 and check.stdout.count(": agrees") == 2, f"{name} {target}: {check.stdout}")
            # The recorded schedule gives the same program, byte for byte.
            recorded = work / "recorded.sched"
            recorded.write_text(run(*flags, "--emit", "trace").stdout)
            first, second = run(*flags), run(flags[0], "--apply", recorded, *flags[3:])
            expect(first.returncode == 0 and first.stdout == second.stdout, f"{name}: replay differs\n{second.stdout}")
            # ... whose text reads back, with the declarations.
            text = work / "scheduled.loop"
            text.write_text(first.stdout)
            again = run(text, *flags[3:])
            expect(again.stdout == first.stdout, f"{name}: the text does not read back:\n{again.stdout[:500]}")
            ran += 1
        if ran == 0:
            print(f"skipped: {name}: no target that this machine runs has it")


def check_blocks(work):
    """A block is moved as one piece and gives way to the intrinsic."""
    schedule = with_intrinsic(work, "x86.sse.dot.i16", lambda text: text.replace("tensorize(j1)", "blockize(j1)"))
    blocked = run(FOLDER / "i16.loop", "--apply", schedule, "--check")
    expect(blocked.returncode == 0 and ": agrees" in blocked.stdout, f"blockize: {blocked.stdout}")
    inside = with_intrinsic(work, "x86.sse.dot.i16", lambda text: text.replace("tensorize(j1)", "blockize(j1)\nunroll(i1)"))
    refused = run(FOLDER / "i16.loop", "--apply", inside)
    expect(refused.returncode == 1 and "TSR-34" in refused.stdout, f"inside of a block: {refused.stdout}")
    then = with_intrinsic(work, "x86.sse.dot.i16", lambda text: text.replace("tensorize(j1)", "blockize(j1)\ntensorize(j1)"))
    taken = run(FOLDER / "i16.loop", "--apply", then)
    expect(taken.returncode == 0 and 'tensorized "x86.sse.dot.i16"' in taken.stdout and '"block"' not in taken.stdout,
           f"tensorize of a block: {taken.stdout}")


def check_call(work):
    if not shutil.which(CC):
        print(f"skipped: no {CC} to compile a C function with")
        return
    for file in ("called.intrin", "update.c"):
        shutil.copy(FOLDER / file, work)
    subprocess.run([CC, "-c", "-O2", "-fPIC", work / "update.c", "-o", work / "update.o"], check=True)
    # A function gets pointers: sums are kept in memory.
    schedule = with_intrinsic(work, "user.called", lambda text: text.replace("set_scope(C_acc, register)\n", ""))
    flags = ["--apply", schedule, "--intrinsics", work / "called.intrin"]
    called = run(FOLDER / "f32.loop", *flags, "--check")
    expect(called.returncode == 0 and called.stdout.count(": agrees") == 2, f"call: {called.stdout}")
    assembly = run(FOLDER / "f32.loop", *flags, "--emit", "asm").stdout
    expect("update16" in assembly, "the function is not called")
    registers = run(FOLDER / "f32.loop", "--apply", with_intrinsic(work, "user.called"), "--intrinsics",
                    work / "called.intrin")
    expect(registers.returncode == 1 and "in registers" in registers.stdout, f"registers: {registers.stdout}")
    # A symbol that the object does not have.
    (work / "called.intrin").write_text((FOLDER / "called.intrin").read_text().replace('call "update16"', 'call "other"'))
    with_intrinsic(work, "user.called", lambda text: text.replace("set_scope(C_acc, register)\n", ""))
    missing = run(FOLDER / "f32.loop", *flags, "--check")
    expect(missing.returncode == 1 and "TSR-6110" in missing.stdout and "other" in missing.stdout and
           missing.stdout.count("error TSR") == 1, f"missing symbol: {missing.stdout}")


PATTERN = "pattern kernel @p(a: f32[], b: f32[8]) -> (c: f32[8]) { for l in 0..8 { c[l] = (c[l] + (a[] * b[l])) } }"
BODY = "body kernel @p(a: f32[], b: f32[8]) -> (c: f32[8]) { for l in 0..8 { c[l] = (c[l] + (a[] * b[l])) } }"
BAD = [
    (f'intrinsic "u" {{ {PATTERN} }}', "TSR-3130", "nothing that stands for it"),
    (f'intrinsic "u" {{ {BODY} }}', "TSR-3130", "no pattern"),
    (f'intrinsic "x86.fma.f32" {{ {PATTERN} {BODY} }}', "TSR-3130", "cannot be the name"),
    (f'intrinsic "u" {{ {PATTERN} {PATTERN} {BODY} }}', "TSR-3130", "second pattern"),
    (f'intrinsic "u" {{ {PATTERN} {BODY} call "f" from "none.o" }}', "TSR-3130", "second implementation"),
    (f'intrinsic "u" {{ {PATTERN} call "f" from "none.o" }}', "TSR-3131", "none.o"),
    (f'intrinsic "u" {{ {PATTERN} call "no name" from "none.o" }}', "TSR-3130", "no name of a function"),
    ('intrinsic "u" { pattern kernel @p(x: i4[8]) -> (y: i4[8]) { for l in 0..8 { y[l] = x[l] } } call "f" from "update.c" }',
     "TSR-3130", "a pointer cannot mean half of a byte"),
    (f'intrinsic "u" {{ {PATTERN} emit "x86.nothing" }}', "TSR-3130", "x86.nothing"),
    (f'intrinsic "u" {{ {PATTERN} emit "x86.avx512.dot.u8i8" }}', "TSR-3130", "is not that of"),
    (f'intrinsic "u" {{ {PATTERN} {BODY.replace("(c[l] + (", "(c[l] - (")} }}', "TSR-3132", "does not compute"),
    (f'intrinsic "u" {{ {PATTERN} {BODY.replace("f32[8]", "f32[9]")} }}', "TSR-3130", "other parameters"),
    (f'intrinsic "u" {{ {PATTERN.replace("c[l] =", "c[(l * l)] =")} {BODY} }}', "TSR-31", ""),
    (f'intrinsic "u" {{ shape [0, 1] {PATTERN} {BODY} }}', "TSR-3130", "lanes and depth"),
    (f'intrinsic "u" {{ {PATTERN} {BODY} }} intrinsic "u" {{ {PATTERN} {BODY} }}', "TSR-3130", "twice"),
    ('intrinsic "u" {', "TSR-3001", ""),
    ("", "TSR-3001", ""),
]


def check_ranges(work):
    """Lanes that begin at what a loop chooses, and a range that is loaded from what the nest stores to."""
    loops, schedule, declared = work / "ranges.loop", work / "ranges.sched", work / "ranges.intrin"
    loops.write_text("kernel @k(x: u8[5,4], w: i8[32,4]) -> (y: i32[5,32]) { for i in 0..5 { for l in 0..32 { y[i,l] = 3:i32 } }\n"
                     "for i in 0..5 { for h in 0..2 { for l in (h * 16)..+16 { for q in 0..4 { "
                     "y[i,l] = y[i,l] + cast:i32(w[l, q]) * cast:i32(x[i, q]) } } } } }")
    schedule.write_text('tensorize(l_1, "x86.avx512.dot.u8i8")')
    for target in ("native", "x86-64-v4,+avx512vnni"):
        got = run(loops, "--apply", schedule, "--check", "--target", target)
        legal = "has no x86.avx512.dot.u8i8" in got.stdout or "TSR-3424" in got.stdout
        expect(legal or got.returncode == 0 and "DIFFERS" not in got.stdout, f"lanes from a loop: {target}: {got.stdout}")
    sums = "for l in 0..8 { y[l] = y[l] + floormod(x[l], 2) + 1 } }"
    head = "kernel @p(x: i64[8]) -> (y: i64[8]) { "
    declared.write_text(f'intrinsic "my.i" {{ pattern {head}{sums} body {head}unrolled {sums} }}')
    loops.write_text("kernel @k(x: i64[16]) -> (y: i64[24]) { for i in 0..24 { y[i] = floormod(x[0], 3) } "
                     "for l in y[2]..+8 { y[l] = y[l] + floormod(x[l], 2) + 1 } }")
    schedule.write_text('tensorize(l, "my.i")')
    got = run(loops, "--apply", schedule, "--intrinsics", declared, "--check")
    expect(got.returncode == 0 and "DIFFERS" not in got.stdout, f"a loaded range: {got.stdout}")


def check_overlaps(work):
    """Places of a pattern are different elements: nests in which they meet are others."""
    loops, schedule, declared = work / "overlaps.loop", work / "overlaps.sched", work / "overlaps.intrin"
    tile = "for r in 0..2 { for l in 0..8 { y[r, l] = y[r, l] + x[r, l] } } }"
    declared.write_text(f'intrinsic "my.o" {{ pattern kernel @p<st>(x: f32[2,8]) -> (y: f32[2,st]) {{ {tile}\n'
                        f'body kernel @p<st>(x: f32[2,8]) -> (y: f32[2,st]) {{ {tile} }}')
    schedule.write_text('tensorize(r, "my.o")')
    for step, words in ((8, "agrees"), (11, "agrees"), (4, "places of y would meet")):
        loops.write_text("kernel @k(x: f32[2,8]) -> (y: f32[19]) { for i in 0..19 { y[i] = 0:f32 }\n"
                         f"for r in 0..2 {{ for l in 0..8 {{ y[(r * {step} + l)] = y[(r * {step} + l)] + x[r, l] }} }} }}")
        got = run(loops, "--apply", schedule, "--intrinsics", declared, "--check")
        expect(words in got.stdout and "DIFFERS" not in got.stdout, f"steps of {step}: {got.stdout}")
    schedule.write_text('tensorize(s, "portable.tile.dot.i8i8")')
    flags = ("--apply", schedule, "--check", "--target", "x86-64-v2,+portable-tiles")
    for down, rows, sums, first, words in ((2, "A[p, r, ", "C[r, c]", 0, "places of c would meet"),
                                           (1, "A[p, r, ", "C[floordiv((r + c), 16), floormod((r + c), 16)]", 0, "places of c would meet"),
                                           (1, "A[p, (15 - r), ", "C[(15 - r), c]", 0, "agrees"),
                                           (1, "A[floordiv(s, 4), r, ", "C[r, c]", 3, "agrees")):
        loops.write_text(f"kernel @k(A: i8[2,16,64], B: i8[16,16,4]) -> (C: i32[16,16]) {{\n"
                         f"for i in 0..16 {{ for j in 0..16 {{ C[i, j] = 1:i32 }} }}\n"
                         f"for s in {first}..{first + 2} {{ unrolled for p in 0..{down} {{ unrolled for v in 0..1 {{\n"
                         f"for r in 0..16 {{ for c in 0..16 {{ for k in 0..16 {{ for q in 0..4 {{\n"
                         f"{sums} = {sums} + cast:i32({rows}(k * 4 + q)]) * cast:i32(B[k, c, q]) }} }} }} }} }} }} }} }}")
        got = run(loops, *flags)
        legal = words == "agrees" and "TSR-3424" in got.stdout
        expect(legal or words in got.stdout and "DIFFERS" not in got.stdout, f"{rows} {sums}: {got.stdout}")


def check_padded(work):
    """A row that is padded on both sides: the intrinsic reads 0 where the nest does."""
    loops, schedule, declared = work / "padded.loop", work / "padded.sched", work / "padded.intrin"
    tile = "for l in 0..8 { y[l] = y[l] + a[] * x[l] } }"
    head = "kernel @p(a: f32[], x: f32[8]) -> (y: f32[8]) { "
    schedule.write_text('tensorize(l, "my.p")')
    read = "select(((j * 8 + l + t) >= 1) & ((j * 8 + l + t) < 17), x[(j * 8 + l + t - 1)], {}:f32)"
    for rule, zero, fits in (("padded x", 0, True), ("", 0, False), ("padded a", 0, False), ("padded x", 2, False)):
        declared.write_text(f'intrinsic "my.p" {{ pattern {head}{tile} {rule} body {head}vectorized {tile} }}')
        loops.write_text("kernel @k(x: f32[16], w: f32[3]) -> (y: f32[16]) { for i in 0..16 { y[i] = 0:f32 } "
                         f"for j in 0..2 {{ for t in 0..3 {{ for l in 0..8 {{ "
                         f"y[(j * 8 + l)] = y[(j * 8 + l)] + w[t] * {read.format(zero)} }} }} }} }}")
        got = run(loops, "--apply", schedule, "--intrinsics", declared, "--check")
        if fits:
            expect(got.returncode == 0 and got.stdout.count(": agrees") == 2, f"a padded read: {got.stdout}")
        else:
            expect(got.returncode == 1 and "TSR-34" in got.stdout, f"'{rule}', {zero} outside: {got.stdout}")
    declared.write_text(f'intrinsic "my.p" {{ pattern {head}{tile} padded x emit "x86.sse.dot.i16" }}')
    got = run(loops, "--apply", schedule, "--intrinsics", declared)
    expect(got.returncode == 1 and "TSR-3130" in got.stdout and "no body to read around" in got.stdout, f"no body: {got.stdout}")


def check_immediates(work):
    """A number of the nest that an instruction has in itself: one that it can have."""
    loops, schedule, declared = work / "shift.loop", work / "shift.sched", work / "shift.intrin"
    tile = "for l in 0..8 { y[l] = shr(x[l], cast:u32(n)) } }"
    head = "kernel @p<n>(x: u32[8]) -> (y: u32[8]) { "
    declared.write_text(f'intrinsic "my.s" {{ pattern {head}{tile} range n 0..7 body {head}vectorized {tile} }}')
    schedule.write_text('tensorize(l, "my.s")')
    for amount, words in (("3:u32", "agrees"), ("7:u32", "agrees"), ("8:u32", "n would be 8; 0 to 7 are legal"), ("x[0]", "TSR-34")):
        loops.write_text(f"kernel @k(x: u32[8]) -> (y: u32[8]) {{ for l in 0..8 {{ y[l] = shr(x[l], {amount}) }} }}")
        got = run(loops, "--apply", schedule, "--intrinsics", declared, "--check")
        expect(words in got.stdout and "DIFFERS" not in got.stdout, f"shift by {amount}: {got.stdout}")


def check_functions(work):
    """A pattern with exp, whose function the target does not have, or that a vectorized loop is around."""
    if not (work / "update.o").exists():
        print(f"skipped: no {CC} to compile a C function with")
        return
    loops, declared = work / "functions.loop", work / "functions.intrin"
    tile = "for l in 0..8 { y[l] = exp(x[l]) } }"
    declared.write_text('intrinsic "my.e" { needs "avx512f" '
                        f'pattern kernel @p(x: f32[8]) -> (y: f32[8]) {{ {tile} call "update16" from "update.o" }}')
    for around, targets in (("for i in 0..3", ["x86-64-v2"]), ("vectorized for i in 0..3", ["x86-64-v2", "native"])):
        loops.write_text(f'kernel @k(x: f32[3,8]) -> (y: f32[3,8]) {{ {around} {{ tensorized "my.e" {{ for l in 0..8 {{ '
                         "y[i, l] = exp(x[i, l]) } } } }")
        for target in targets:
            got = run(loops, "--intrinsics", declared, "--check", "--target", target)
            expect(got.returncode == 0 and "compiled" in got.stdout and "DIFFERS" not in got.stdout, f"{around}: {got.stdout}")


def check_bad(work):
    file = work / "bad.intrin"
    for text, error, words in BAD:
        file.write_text(text)
        got = run(FOLDER / "f32.loop", "--intrinsics", file)
        expect(got.returncode == 1 and got.stdout.count("error TSR") == 1 and error in got.stdout and words in got.stdout,
               f"{text!r}: expected {error} {words!r}, got {got.returncode} {got.stdout}")
    unlike = with_intrinsic(work, "x86.sse.dot.i16")
    got = run(FOLDER / "f32.loop", "--apply", unlike)
    expect(got.returncode == 1 and "TSR-3410" in got.stdout and "f32" in got.stdout, f"another type: {got.stdout}")


with tempfile.TemporaryDirectory() as folder:
    for check in (check_table, check_tiles, check_blocks, check_call, check_ranges, check_overlaps, check_padded,
                  check_immediates, check_functions, check_bad):
        check(pathlib.Path(folder))
print("failed" if failures else "passed")
sys.exit(1 if failures else 0)
