#!/usr/bin/env python3
"""The libFuzzer targets of tests/fuzz/targets: builds them with clang-19 (preset `fuzz`, in build-fuzz/) and runs them.

    libfuzzer.py build
    libfuzzer.py run TARGET [--seconds S] [--runs N] [--seed K] [--corpus FOLDER...] [--keep FOLDER]

`run` begins with the seeds (and every input in found/TARGET, none of which may fail again). New inputs that reach new
code go to --keep, else away. An input that crashes, leaks, or takes more than 10 seconds or 2 GB is a finding: it is
left in out/fuzz/, shown, and the exit code is 1. Without clang-19 or its run-time library both commands say so and
exit with 77.

With --runs and --seed the same build tries the same inputs on every machine, which is what the test suite asks for: a
finding there is one of the change that is tested, and can be had again. To look for new ones, leave both away, or set
TESSERA_FUZZ_SEED: then --runs does not count, and --seconds are spent."""
import argparse
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
BUILD = ROOT / "build-fuzz"
SKIPPED = 77


def skip(reason):
    print(f"skipped: {reason}")
    sys.exit(SKIPPED)


def require_clang():
    if not shutil.which("clang++-19"):
        skip("clang++-19 is not installed; scripts/setup.sh installs it")
    where = subprocess.run(["clang++-19", "-print-file-name=libclang_rt.fuzzer-x86_64.a"], capture_output=True, text=True)
    found = subprocess.run(["clang++-19", "--print-runtime-dir"], capture_output=True, text=True)
    runtimes = [pathlib.Path(where.stdout.strip()), pathlib.Path(found.stdout.strip(), "libclang_rt.fuzzer.a")]
    if not any(path.is_absolute() and path.exists() for path in runtimes):
        skip("libFuzzer's run time is missing; scripts/setup.sh installs it (Debian package libclang-rt-19-dev)")


def build():
    require_clang()
    for command in (["cmake", "--preset", "fuzz"],
                    ["cmake", "--build", "--preset", "fuzz", "--parallel", str(os.cpu_count())]):
        done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if done.returncode != 0:
            print(done.stdout[-8000:])
            return 1
    print("built in", BUILD)
    return 0


def run(args, work):
    require_clang()
    program = BUILD / "bin" / f"{args.target}_fuzz"
    if not program.exists():
        print(f"{program} is missing; build it: tests/fuzz/libfuzzer.py build")
        return 1
    findings = ROOT / "out" / "fuzz"
    keep = args.keep or work / "new"
    corpus = args.corpus or [folder for folder in (HERE / "seeds" / args.target, HERE / "found" / args.target)
                             if folder.exists()]
    # Everything is named from `work`, so that what the target has in memory does not depend on where the project lies.
    names = {"target": program, "findings": findings, "keep": keep, **{f"corpus{i}": c for i, c in enumerate(corpus)}}
    environment = {"PATH": "/usr/local/bin:/usr/bin:/bin", "UBSAN_OPTIONS": "print_stacktrace=1",
                   "ASAN_OPTIONS": "detect_stack_use_after_return=1:allocator_may_return_null=1"}
    options = [f"-max_total_time={args.seconds}", "-timeout=10", "-rss_limit_mb=2048", "-print_final_stats=1",
               "-verbosity=1", "-use_value_profile=0", "-reload=0", f"-artifact_prefix=findings/{args.target}-"]
    dictionary = HERE / "dictionaries" / f"{args.target}.dict"
    if dictionary.exists():
        names["dictionary"] = dictionary
        options.append("-dict=dictionary")
    if os.environ.get("TESSERA_FUZZ_MODULES"):
        names["modules"] = pathlib.Path(os.environ["TESSERA_FUZZ_MODULES"])
        environment["TESSERA_FUZZ_MODULES"] = "modules"
    for folder in (findings, keep):
        folder.mkdir(parents=True, exist_ok=True)
    for name, path in names.items():
        (work / name).symlink_to(path.resolve())
    # A list, because the order in which a folder is read differs from machine to machine.
    inputs = sorted((pathlib.PurePath(f"corpus{i}") / path.relative_to(folder) for i, folder in enumerate(corpus)
                     for path in folder.rglob("*") if path.is_file()), key=str)
    (work / "inputs").write_text(",".join(map(str, inputs)))
    options.append("-seed_inputs=@inputs")
    exploring = os.environ.get("TESSERA_FUZZ_SEED")
    if exploring or args.seed:
        options.append(f"-seed={exploring or args.seed}")
    fixed = []
    if args.runs and not exploring:
        # Addresses differ from run to run, and with them the order of what is kept by address, and the operands of
        # comparisons, which libFuzzer would write into inputs.
        options += [f"-runs={args.runs}", "-use_cmp=0"]
        same_addresses = ["setarch", "--addr-no-randomize"]
        if shutil.which("setarch") and subprocess.run([*same_addresses, "true"], stderr=subprocess.DEVNULL).returncode == 0:
            fixed = same_addresses
    began = time.monotonic()
    done = subprocess.run([*fixed, "./target", *options, "keep"], cwd=work, text=True, errors="replace",
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment)
    figures = dict(re.findall(r"^stat::(\w+):\s+(\d+)$", done.stdout, re.M))
    covered = re.findall(r"cov: (\d+) ft: (\d+) corp: (\d+)", done.stdout)
    if done.returncode != 0:
        print(done.stdout[-12000:])
        print(f"{args.target}: a finding; the input is in {findings}. Run it alone: {program} FILE")
        return 1
    executions = int(figures.get("number_of_executed_units", 0))
    print(f"{args.target}: {executions} executions in {time.monotonic() - began:.0f} s, {covered[-1][0] if covered else '?'} edges, "
          f"corpus of {covered[-1][2] if covered else '?'} inputs, peak {figures.get('peak_rss_mb', '?')} MB, no findings")
    return 0 if executions > 0 else 1


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("build")
    running = commands.add_parser("run")
    running.add_argument("target")
    running.add_argument("--seconds", type=int, default=20)
    running.add_argument("--runs", type=int)
    running.add_argument("--seed", type=int)
    running.add_argument("--corpus", type=pathlib.Path, nargs="*")
    running.add_argument("--keep", type=pathlib.Path)
    args = parser.parse_args()
    if args.command == "build":
        return build()
    with tempfile.TemporaryDirectory() as work:
        if args.corpus:
            args.corpus = [folder.resolve() for folder in args.corpus]
        if args.keep:
            args.keep = args.keep.resolve()
        return run(args, pathlib.Path(work))


if __name__ == "__main__":
    sys.exit(main())
