#!/usr/bin/env python3
"""The libFuzzer targets of tests/fuzz/targets: builds them with clang-19 (preset `fuzz`, in build-fuzz/) and runs them.

    libfuzzer.py build
    libfuzzer.py run TARGET [--seconds S] [--corpus FOLDER...] [--keep FOLDER]

`run` begins with the seeds (and every input in found/TARGET, none of which may fail again). New inputs that reach new
code go to --keep, else away. An input that crashes, leaks, or takes more than 10 seconds or 2 GB is a finding: it is
left in out/fuzz/, shown, and the exit code is 1. Without clang-19 or its run-time library both commands say so and
exit with 77. TESSERA_FUZZ_SEED is libFuzzer's -seed; what was run is printed."""
import argparse
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

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
    findings.mkdir(parents=True, exist_ok=True)
    keep = args.keep or work
    keep.mkdir(parents=True, exist_ok=True)
    options = [f"-max_total_time={args.seconds}", "-timeout=10", "-rss_limit_mb=2048", "-print_final_stats=1",
               "-verbosity=1", "-use_value_profile=0", f"-artifact_prefix={findings}/{args.target}-"]
    if os.environ.get("TESSERA_FUZZ_SEED"):
        options.append(f"-seed={os.environ['TESSERA_FUZZ_SEED']}")
    dictionary = HERE / "dictionaries" / f"{args.target}.dict"
    if dictionary.exists():
        options.append(f"-dict={dictionary}")
    corpus = args.corpus or [folder for folder in (HERE / "seeds" / args.target, HERE / "found" / args.target)
                             if folder.exists()]
    done = subprocess.run([program, *options, keep, *corpus], cwd=work, text=True, errors="replace",
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          env={"ASAN_OPTIONS": "detect_stack_use_after_return=1:allocator_may_return_null=1",
                               "UBSAN_OPTIONS": "print_stacktrace=1", **os.environ})
    figures = dict(re.findall(r"^stat::(\w+):\s+(\d+)$", done.stdout, re.M))
    covered = re.findall(r"cov: (\d+) ft: (\d+) corp: (\d+)", done.stdout)
    if done.returncode != 0:
        print(done.stdout[-12000:])
        print(f"{args.target}: a finding; the input is in {findings}. Run it alone: {program} FILE")
        return 1
    executions = int(figures.get("number_of_executed_units", 0))
    print(f"{args.target}: {executions} executions in {args.seconds} s, {covered[-1][0] if covered else '?'} edges, "
          f"corpus of {covered[-1][2] if covered else '?'} inputs, peak {figures.get('peak_rss_mb', '?')} MB, no findings")
    return 0 if executions > 0 else 1


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("build")
    running = commands.add_parser("run")
    running.add_argument("target")
    running.add_argument("--seconds", type=int, default=20)
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
