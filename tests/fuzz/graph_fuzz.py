#!/usr/bin/env python3
"""Random ONNX graphs in every configuration of the compiler and in the interpreter, beside ONNX Runtime.

    graph_fuzz.py TESSERA [--kind networks|edges] [--seed FIRST] [--count N | --seconds S] [--size NODES] [--everything]
                  [--out DIR]

networks: what real networks are made of (random_onnx.py), with ONNX Runtime's values of each node as reference. edges:
all dtypes, empty tensors, special numbers, indices out of range, control flow (random_edges.py), with the interpreter's
values of each node as reference, which ONNX Runtime confirms where it can.

Graph number i has the seed FIRST + i (TESSERA_FUZZ_SEED, else 1); --count defaults to TESSERA_FUZZ_ROUNDS, else 40.
Each graph goes through the interpreter, through -O3 for this machine, and through one more configuration, which the
seed chooses; through all with --everything or TESSERA_TEST_FULL=1. Outputs agree when max|d| <= 1e-4 * max|reference|.
A graph that fails is reduced: cut at both ends as long as it fails the same way. What is left is printed and written to
DIR (default: out/fuzz) as an ONNX test case, which `tessera verify` runs."""
import argparse
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

import onnx

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "python"))
import case_folder  # noqa: E402
import random_edges  # noqa: E402
import random_onnx  # noqa: E402

CONFIGURATIONS = {
    "interpreter": ["--engine", "interp"], "O3": [],
    "O0": ["-O0"], "O1": ["-O1"], "O2": ["-O2"], "2 threads": ["--threads", "2"],
    "x86-64-v2": ["--target", "x86-64-v2"], "x86-64-v3": ["--target", "x86-64-v3"],
    "x86-64-v4": ["--target", "x86-64-v4"], "x86-64-v2 O1": ["--target", "x86-64-v2", "-O1"],
    "x86-64-v4 2 threads": ["--target", "x86-64-v4", "--threads", "2"],
    "opencl": ["--target", "opencl"],  # where there is a device, of what it takes
}
NOT_FOR_A_DEVICE = re.compile("TSR-4072|no OpenCL|OpenCL has no device")
ALWAYS = 2  # the first so many
CPU_NEEDS = {"x86-64-v2": "sse4_2", "x86-64-v3": "avx2", "x86-64-v4": "avx512vl"}
TOLERANCE = ["--rtol", "0", "--atol", "0", "--mtol", "1e-4"]
# Of graphs with floats of 16 bits, which fused operators do not round after each step.
NARROW_TOLERANCE = ["--rtol", "0", "--atol", "1e-3", "--mtol", "1e-2"]
UNKNOWN_SHAPE = "its shape is known only when the model runs"
BATCH = 12


class Case:
    """Some nodes of a random graph with everything that they need."""

    def __init__(self, graph, nodes, feeds, outputs):
        self.graph, self.nodes, self.feeds, self.outputs = graph, nodes, feeds, outputs

    def model(self):
        outputs = {n: self.graph.values[n] for n in self.outputs}
        return random_onnx.make_model(self.nodes, self.feeds, self.graph.used_constants(self.nodes), outputs)

    def write(self, folder):
        case_folder.write_case(folder, self.model(),
                               [(list(self.feeds.values()), [self.graph.values[n] for n in self.outputs])])

    def ending_at(self, name):
        """What computes the value `name`."""
        needed, nodes = {name}, []
        for node in reversed(self.nodes):
            if needed & set(node.output):
                nodes.insert(0, node)
                needed |= set(random_onnx.reads(node))
        return Case(self.graph, nodes, {n: a for n, a in self.feeds.items() if n in needed}, [name])

    def beginning_after(self, node):
        """The values of `node` become inputs; what only it needed goes."""
        kept = [n for n in self.nodes if n is not node]
        if set(self.outputs) & set(node.output) or not set(node.output) <= set(self.graph.values):
            return None  # a sequence is no input
        feeds = {**self.feeds, **{name: self.graph.values[name] for name in node.output}}
        read = {name for n in kept for name in random_onnx.reads(n)}
        return Case(self.graph, kept, {n: a for n, a in feeds.items() if n in read}, self.outputs).without_dead()

    def without_dead(self):
        needed, nodes = set(self.outputs), []
        for node in reversed(self.nodes):
            if needed & set(node.output):
                nodes.insert(0, node)
                needed |= set(random_onnx.reads(node))
        return Case(self.graph, nodes, {n: a for n, a in self.feeds.items() if n in needed}, self.outputs)


def verify(binary, flags, folders, tolerance=TOLERANCE):
    """{folder: reason} of those that fail."""
    done = subprocess.run([binary, "verify", *tolerance, *flags, "--timeout", "120", *map(str, folders)], text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    failed = {m[1]: m[2] for m in re.finditer(r"^(?:FAIL|UNSUPPORTED) (\S+) \(.*? s\):? ?(.*)$", done.stdout, re.M)}
    if not re.search(r"^\d+ passed, \d+ failed$", done.stdout, re.M):
        sys.exit(f"graph_fuzz: tessera verify ended with exit code {done.returncode}: {done.stdout[-2000:]}")
    return failed


def kind(reason):
    """What makes two failures the same: the error's id, or the words up to the first number."""
    known = re.search(r"TSR-\d+", reason)
    if known:
        return known[0]
    return "mismatch" if "max|d|" in reason else re.split(r"[\d'/]", reason, maxsplit=1)[0][:40]


def reduce_case(binary, flags, case, reason, folder, deadline, tolerance):
    wanted = kind(reason)

    def fails(candidate):
        if time.monotonic() > deadline or not candidate.nodes or not candidate.feeds:
            return False
        candidate.write(folder)
        failed = verify(binary, flags, [folder], tolerance)
        return any(kind(r) == wanted for r in failed.values())

    for node in case.nodes:  # the first value that is wrong
        if node.output[0] not in case.graph.values:
            continue  # a sequence
        candidate = case.ending_at(node.output[0])
        if len(candidate.nodes) < len(case.nodes) and fails(candidate):
            case = candidate
            break
    progress = True
    while progress:
        progress = False
        for node in case.nodes[:-1]:
            candidate = case.beginning_after(node)
            if candidate and len(candidate.nodes) < len(case.nodes) and fails(candidate):
                case, progress = candidate, True
                break
    case.write(folder)
    return case


def configurations(seed, everything):
    flags = open("/proc/cpuinfo").read().split()
    usable = [name for name in CONFIGURATIONS if CPU_NEEDS.get(name.split(" ")[0], "") in ["", *flags]]
    return usable if everything else usable[:ALWAYS] + [usable[ALWAYS + seed % (len(usable) - ALWAYS)]]


def tolerance_of(graph):
    return NARROW_TOLERANCE if getattr(graph, "narrow", False) else TOLERANCE


def make_graph(binary, args, seed):
    """A graph, and how many of its nodes ONNX Runtime computes otherwise than the interpreter."""
    if args.kind == "networks":
        return random_onnx.RandomGraph(seed, args.size), 0
    graph = random_edges.EdgeGraph(seed, args.size // 2, random_edges.Interpreter(binary))
    for nodes, feeds, constants, name, found, wanted in graph.differences:
        print(f"FAIL seed {seed}: ONNX Runtime gives another {name} than the interpreter\n  interpreter: "
              f"{found.dtype}{list(found.shape)} {found.flatten()[:8]}\n  ONNX Runtime: {wanted.dtype}{list(wanted.shape)} "
              f"{wanted.flatten()[:8]}", flush=True)
        kept = args.out / f"seed{seed}-{name}"
        model = random_onnx.make_model(nodes, feeds, constants, {name: wanted})
        case_folder.write_case(kept, model, [(list(feeds.values()), [wanted])])
        print("  " + onnx.printer.to_text(model)[:1500].replace("\n", "\n  "), flush=True)
    return graph, len(graph.differences)


def report(binary, args, seed, graph, name, reason, work):
    print(f"FAIL seed {seed}, {name}: {reason}", flush=True)
    case = Case(graph, graph.nodes, graph.feeds, graph.outputs)
    tolerance = tolerance_of(graph)
    case = reduce_case(binary, CONFIGURATIONS[name], case, reason, work / "reduced",
                       time.monotonic() + args.reduce_seconds, tolerance)
    kept = args.out / f"seed{seed}-{name.replace(' ', '-')}"
    case.write(kept)
    answer = verify(binary, CONFIGURATIONS[name], [kept], tolerance)
    print(f"  reduced to {len(case.nodes)} nodes in {kept}: {next(iter(answer.values()), 'passes alone')}")
    print(f"  repeat: {sys.argv[0]} TESSERA --kind {args.kind} --seed {seed} --count 1 --size {args.size} "
          f"--everything; tessera verify {' '.join(tolerance + CONFIGURATIONS[name])} {kept}")
    text = onnx.printer.to_text(case.model())
    print("  " + re.sub(r"= *\{[^{}]{80,}?\}", "= {...}", text).replace("\n", "\n  "), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tessera")
    parser.add_argument("--kind", choices=("networks", "edges"), default="networks")
    parser.add_argument("--seed", type=int, default=int(os.environ.get("TESSERA_FUZZ_SEED", 1)))
    parser.add_argument("--count", type=int, default=int(os.environ.get("TESSERA_FUZZ_ROUNDS", 40)))
    parser.add_argument("--seconds", type=float, help="go on for so long, whatever --count says")
    parser.add_argument("--size", type=int, default=25, help="nodes of a graph, about")
    parser.add_argument("--everything", action="store_true", help="each graph in every configuration")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("out/fuzz"))
    parser.add_argument("--reduce-seconds", type=float, default=120, help="for each failing graph")
    args = parser.parse_args()
    binary = os.path.abspath(args.tessera)
    everything = args.everything or os.environ.get("TESSERA_TEST_FULL") == "1"

    print(f"graph_fuzz: seeds from {args.seed}", flush=True)
    begin, done, failed, runs, operators, refused = time.monotonic(), 0, [], 0, set(), 0
    going = lambda: time.monotonic() - begin < args.seconds if args.seconds else done < args.count
    with tempfile.TemporaryDirectory() as work:
        work = pathlib.Path(work)
        while going():
            batch, queues = {}, {}
            for _ in range(BATCH if args.seconds else min(BATCH, args.count - done)):
                seed = args.seed + done
                done += 1
                try:
                    graph, differences = make_graph(binary, args, seed)
                except random_edges.InterpreterBug as bug:
                    failed.append((seed, "a bug of ours while importing or interpreting"))
                    print(f"FAIL seed {seed}: {bug}", flush=True)
                    continue
                failed += [(seed, "ONNX Runtime beside the interpreter")] * differences
                refused += getattr(graph, "refused", 0)
                if not graph.outputs:
                    continue
                operators |= {node.op_type for node in random_onnx.all_nodes(graph.nodes)}
                folder = work / f"seed{seed}"
                Case(graph, graph.nodes, graph.feeds, graph.outputs).write(folder)
                batch[str(folder)] = seed, graph
                for name in configurations(seed, everything):
                    queues.setdefault((name, tuple(tolerance_of(graph))), []).append(folder)
            for (name, tolerance), folders in queues.items():
                runs += len(folders)
                for folder, reason in verify(binary, CONFIGURATIONS[name], folders, tolerance).items():
                    seed, graph = batch[folder]
                    if name == "opencl" and NOT_FOR_A_DEVICE.search(reason):
                        continue
                    if UNKNOWN_SHAPE in reason and args.kind == "edges":
                        refused += 1  # alone, the node had an input of a shape that in the graph only a run knows
                        continue
                    failed.append((seed, name))
                    report(binary, args, seed, graph, name, reason, work)
            for folder in batch:
                shutil.rmtree(folder)
    print(f"{done} graphs of {len(operators)} operators, {runs} runs, {refused} nodes refused, {len(failed)} failed" +
          "".join(f"\n  seed {seed}, {name}" for seed, name in failed))
    return 1 if failed or runs == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
