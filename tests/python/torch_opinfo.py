#!/usr/bin/env python3
"""PyTorch's own database of operators and samples (OpInfo, in its wheel): each sample is exported, read, compiled, and
its results and gradients are held against PyTorch's.

    torch_opinfo.py [--full] [--only REGEX] [--dtypes float32,float64,int64,bool] [--samples N] [--json FILE] [--jobs N]
    torch_opinfo.py --list
    torch_opinfo.py --update FILE...

The short form takes one sample in one type of every eighth operator, in less than two minutes; --full takes all samples of all
(hours; --samples 3 --dtypes float32: half an hour). torch_opinfo_expected.txt says of each operator that is not right in all what
happens instead, and why; the test fails where something else does: values or gradients that differ, crashes, and also what is right
by now. --update writes the list from the file that --full --json wrote.
Runs with the Python of torch_python.py; without one it is skipped."""

import argparse
import collections
import json
import os
import pathlib
import re
import selectors
import subprocess
import sys
import time

import torch_python

PINNED = pathlib.Path(__file__).with_name("torch_opinfo_expected.txt")
TYPES = ("float32", "float64", "int64", "bool")
SECONDS = 120  # that a sample may take


if __name__ == "__main__":
    torch_python.enter()


# ---- the worker: reads "KEY DTYPE SAMPLES FIRST" lines, writes a line of JSON for each sample ---------------------------------


class Worker:
    def __init__(self):
        import warnings

        warnings.simplefilter("ignore")
        import torch
        from torch.testing._internal import common_methods_invocations

        torch.set_num_threads(1)
        self.torch = torch
        self.ops = {key_of(op): op for op in common_methods_invocations.op_db}

    def serve(self, out):
        print(json.dumps({"ops": {key: [[d for d in TYPES if getattr(self.torch, d) in op.dtypes], op.supports_autograd]
                                  for key, op in self.ops.items()}}), file=out, flush=True)
        for line in sys.stdin:
            key, dtype, count, first = line.rstrip("\n").split("\t")
            for result in self.results(self.ops[key], getattr(self.torch, dtype), int(count), int(first)):
                print(json.dumps(result), file=out, flush=True)
            print(json.dumps({"done": key}), file=out, flush=True)

    def results(self, op, dtype, count, first):
        torch = self.torch
        gradients = op.supports_autograd and dtype.is_floating_point and dtype in op.dtypes
        torch.manual_seed(0)
        try:
            samples = list(op.sample_inputs("cpu", dtype, requires_grad=gradients))
        except Exception as error:  # noqa: BLE001 - the database's own
            yield {"sample": 0, "of": 0, "forward": ["no sample", first_line(error)]}
            return
        places = range(len(samples)) if count == 0 or len(samples) <= count else [i * len(samples) // count for i in range(count)]
        for i in places:
            if i < first:
                continue
            yield {"begin": i}
            yield {"sample": i, "of": len(samples), **self.result(op, samples[i], gradients)}

    def result(self, op, sample, gradients):
        case = Case(op, sample, gradients)
        answer = {"forward": outcome(case.forward)}
        if gradients and case.wanted() and answer["forward"][0] == "right":
            answer["gradient"] = outcome(case.gradient)
        return answer


def outcome(check):
    """[kind, message]: right, wrong, refused, not exported, no gradient, or error."""
    import tessera

    try:
        check()
        return ["right", ""]
    except Refused as refused:
        return [refused.kind, str(refused)]
    except AssertionError as error:
        return ["wrong", first_line(error)]
    except tessera.InternalError as error:
        return ["error", first_line(error)]
    except tessera.Error as error:
        if error.id == "TSR-1040":
            return ["refused", "; ".join(sorted({f"{target}: {reason}" for target, reason in refused_nodes(error)}))]
        return ["no gradient" if error.id == "TSR-2072" else "refused", f"{error.id} {first_line(error)}"]
    except Exception as error:  # noqa: BLE001
        return ["error", f"{type(error).__name__}: {first_line(error)}"]


def refused_nodes(error):
    for line in str(error).splitlines():
        if match := re.search(r"(aten|prims|torch|_?[a-z]+)[.:]+([\w.]+).*?: (.*)", line):
            yield f"{match[1]}.{match[2]}", match[3]


# Operators whose last result has places of one of several equal elements, PyTorch does not say which.
PLACES_OF_EQUALS = {"argsort", "kthvalue", "median", "nanmedian", "sort", "topk"}


def is_rounding(got, want):
    """Whether they differ by what is left of numbers near 1 that cancel."""
    if got.dtype != want.dtype or got.shape != want.shape or not want.is_floating_point() or want.numel() == 0:
        return False
    bound = {8: 1e-12, 4: 1e-6}.get(want.element_size(), 0)
    return bool(((got == want) | ((got - want).abs() <= bound)).all())


class Refused(Exception):
    def __init__(self, kind, message):
        super().__init__(message)
        self.kind = kind


def first_line(error):
    text = str(error).strip()
    return (text.splitlines()[0] if text else repr(error))[:300]


def key_of(op):
    return f"{op.name}.{op.variant_test_name}" if op.variant_test_name else op.name


class Case:
    """A sample of an operator: a function of its tensors, everything else fixed."""

    def __init__(self, op, sample, gradients):
        import torch
        from torch.utils import _pytree as pytree

        self.torch, self.op, self.sample = torch, op, sample
        leaves, self.spec = pytree.tree_flatten((sample.input, sample.args, sample.kwargs))
        self.places = [i for i, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]
        self.leaves = leaves
        self.tensors = [leaves[i] for i in self.places]
        self.shapes_alone = op.name.startswith(("empty", "new_empty"))
        self.archive = None

    def call(self, tensors, processed=False):
        from torch.utils import _pytree as pytree

        leaves = list(self.leaves)
        for place, tensor in zip(self.places, tensors):
            leaves[place] = tensor
        first, args, kwargs = pytree.tree_unflatten(leaves, self.spec)
        result = self.op.get_op()(first, *args, **kwargs)
        if processed:
            result = self.sample.output_process_fn_grad(result)
        return tuple(leaf for leaf in pytree.tree_leaves(result) if isinstance(leaf, self.torch.Tensor))

    def exported(self, processed=False):
        torch, case = self.torch, self

        class Module(torch.nn.Module):
            def forward(self, *tensors):
                return case.call(tensors, processed)

        inputs = tuple(t.detach() for t in self.tensors)
        # What PyTorch itself cannot run, or not as a program.
        try:
            with torch.no_grad():
                program = torch.export.export(Module(), inputs, strict=False)
        except Exception as error:  # noqa: BLE001
            raise Refused("not exported", f"{type(error).__name__}: {first_line(error)}") from None
        import tessera.torch

        try:
            return tessera.torch.archive_of(program)
        except tessera.Error:
            raise
        except Exception as error:  # noqa: BLE001
            raise Refused("not exported", f"{type(error).__name__}: {first_line(error)}") from None

    def run(self, model, tensors):
        from tessera.torch._backend import _to_numpy, _to_torch

        return [_to_torch(array) for array in model.run([_to_numpy(t) for t in tensors])]

    def forward(self):
        import tessera
        from torch_same import same

        torch = self.torch
        inputs = [t.detach().clone() for t in self.tensors]
        with torch.no_grad():
            try:
                want = self.call(inputs)
            except Exception as error:  # noqa: BLE001
                raise Refused("not exported", f"PyTorch itself: {first_line(error)}") from None
        self.archive = self.exported()
        model = tessera.compile(self.archive, threads=1)
        got = self.run(model, [t.detach() for t in self.tensors])
        if self.shapes_alone:
            assert [(g.shape, g.dtype) for g in got] == [(w.shape, w.dtype) for w in want], "other types"
            return
        self.compare(got, want, lambda of_wide: self.call(of_wide), "y", same)

    def compare(self, got, want, wide, what, same):
        """With PyTorch's results, or else with those that it has in f64, of which it may be as far away itself."""
        torch = self.torch
        exact = all(t.dtype != torch.float32 for t in self.tensors if t.is_floating_point())
        if self.op.name in PLACES_OF_EQUALS and what == "y" and self.is_place(got[-1], want):
            got, want = got[:-1], want[:-1]
        if len(got) == len(want):
            got = [w if is_rounding(g, w) else g for g, w in zip(got, want)]
        try:
            same(got, want, what, 1e-9 if exact and all(w.dtype == torch.float64 for w in want) else 2e-5)
        except AssertionError as error:
            try:
                with torch.no_grad() if what == "y" else torch.enable_grad():
                    truth = wide([t.detach().double() if t.dtype == torch.float32 else t.detach() for t in self.tensors])
            except Exception:  # noqa: BLE001
                raise error from None
            for g, w, t in zip(got, want, truth):
                if w.dtype != torch.float32 or t.dtype != torch.float64 or w.shape != t.shape or g.shape != t.shape or g.dtype != w.dtype:
                    same([g], [w], what, 2e-5)
                    continue
                ours, theirs = (g.double() - t).abs().nan_to_num(0), (w.double() - t).abs().nan_to_num(0)
                if not (ours.numel() == 0 or ours.max() <= 4 * theirs.max() + 2e-5 * t.abs().nan_to_num(0, 0, 0).max()):
                    raise error from None
                if not torch.equal(torch.isnan(g), torch.isnan(w)):
                    raise error from None

    def is_place(self, places, want):
        """Whether the operand has at these places of the dimension what it has at PyTorch's."""
        torch, x = self.torch, self.tensors[0].detach()
        if x.dim() == 0:
            return True
        numbers = [a for a in (*self.sample.args, *self.sample.kwargs.values()) if type(a) is int]
        if self.op.name in ("kthvalue", "topk"):
            numbers = numbers[1:]
        dim = self.sample.kwargs.get("dim", numbers[0] if numbers else -1)
        theirs = want[-1]
        if places.shape != theirs.shape or places.dtype != torch.int64 or theirs.dtype != torch.int64 or self.sample.kwargs.get("stable"):
            return False
        if places.dim() != x.dim():
            places, theirs = places.unsqueeze(dim), theirs.unsqueeze(dim)
        ours, theirs = x.gather(dim, places), x.gather(dim, theirs)
        return torch.equal(ours.nan_to_num(), theirs.nan_to_num()) if ours.is_floating_point() else torch.equal(ours, theirs)

    def wanted(self):
        return any(t.requires_grad for t in self.tensors)

    def gradients_of(self, tensors, wanted):
        """PyTorch's, with the cotangents that it takes for outputs."""
        torch = self.torch
        inputs = [t.detach().clone().requires_grad_(w) for t, w in zip(tensors, wanted)]
        outputs = self.call(inputs, processed=True)
        if any(t.is_complex() for t in (*inputs, *outputs)):
            raise Refused("not exported", "complex numbers")
        generator = torch.Generator().manual_seed(1)
        weights = []
        for y in outputs:
            if y.is_floating_point():
                w = torch.rand(y.shape, generator=generator, dtype=torch.float64).to(y.dtype) + 0.5
                weights.append(w if y.requires_grad else torch.zeros_like(y))
        real = [y for y in outputs if y.is_floating_point()]
        pairs = [(y, w) for y, w in zip(real, weights) if y.requires_grad]
        if not pairs:
            raise Refused("no gradient of PyTorch's", "no output has one")
        gradients = torch.autograd.grad([y for y, _ in pairs], [t for t in inputs if t.requires_grad], [w for _, w in pairs],
                                        allow_unused=True)
        by_input = iter(gradients)
        return weights, [None if not t.requires_grad else next(by_input) for t in inputs]

    def gradient(self):
        import tessera
        from tessera.graph import Graph
        from torch_same import same

        torch = self.torch
        wanted = [t.requires_grad for t in self.tensors]
        try:
            weights, want = self.gradients_of(self.tensors, wanted)
        except Refused:
            raise
        except Exception as error:  # noqa: BLE001
            raise Refused("no gradient of PyTorch's", first_line(error)) from None
        is_plain = self.sample.output_process_fn_grad.__code__.co_code == (lambda x: x).__code__.co_code
        graph = Graph.from_model(self.archive if is_plain else self.exported(processed=True))
        names = [value.name for value in graph.inputs]
        assert len(names) == len(self.tensors), f"{len(names)} inputs for {len(self.tensors)} tensors"
        if not [v for v in graph.outputs if v.dtype.kind == "f" or v.dtype.name == "bfloat16"]:
            raise Refused("no gradient", "no output of real numbers")
        both = tessera.vjp(graph, wrt=[name for name, w in zip(names, wanted) if w])
        model = tessera.compile(both, threads=1)
        got = self.run(model, [t.detach() for t in self.tensors] + weights)[len(graph.outputs):]
        want = [torch.zeros_like(t) if w is None else w for t, w, is_wanted in zip(self.tensors, want, wanted) if is_wanted]

        def wide(tensors):
            of_wide = self.gradients_of(tensors, wanted)[1]
            return [torch.zeros_like(t) if g is None else g for t, g, w in zip(tensors, of_wide, wanted) if w]

        self.compare(got, want, wide, "gradient", same)


# ---- the parent ----------------------------------------------------------------------------------------------------------------


class Process:
    """A worker, which is started again when it ends or takes too long."""

    def __init__(self):
        self.start()

    def start(self):
        read, write = os.pipe()
        self.process = subprocess.Popen([sys.executable, __file__, "--worker", str(write)], stdin=subprocess.PIPE, pass_fds=[write],
                                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, text=True)
        os.close(write)
        self.read, self.buffer = read, b""
        self.selector = selectors.DefaultSelector()
        self.selector.register(read, selectors.EVENT_READ)
        self.ops = json.loads(self.next(600))["ops"]

    def next(self, seconds):
        """The next line; None after that time, "" at the end."""
        until = time.monotonic() + seconds
        while b"\n" not in self.buffer:
            if not self.selector.select(max(0, until - time.monotonic())):
                return None
            more = os.read(self.read, 1 << 16)
            if not more:
                return ""
            self.buffer += more
        line, self.buffer = self.buffer.split(b"\n", 1)
        return line.decode()

    def end(self):
        self.process.kill()
        self.process.wait()
        self.selector.close()
        os.close(self.read)

    def results(self, key, dtype, count):
        first, found = 0, []
        while True:
            self.process.stdin.write(f"{key}\t{dtype}\t{count}\t{first}\n")
            self.process.stdin.flush()
            at = first
            while True:
                line = self.next(SECONDS)
                if not line:
                    kind = "took more than" if line is None else "ended within"
                    found.append({"sample": at, "of": 0, "forward": ["crash", f"{kind} {SECONDS} s (signal or limit)"]})
                    self.end()
                    self.start()
                    first = at + 1
                    break
                answer = json.loads(line)
                if "done" in answer:
                    return found
                if "begin" in answer:
                    at = answer["begin"]
                else:
                    found.append(answer)


def status(results, which):
    kinds = collections.Counter(r[which][0] for r in results if which in r)
    if not kinds:
        return "none"
    for bad in ("crash", "error", "wrong"):
        if kinds[bad]:
            return bad
    if kinds["right"]:
        return "right" if set(kinds) <= {"right", "no gradient of PyTorch's"} else "part"
    return kinds.most_common(1)[0][0]


def messages(results, which):
    kinds = collections.Counter((r[which][0], r[which][1]) for r in results if which in r and r[which][0] != "right")
    return [f"{count} x {kind}: {message}" for (kind, message), count in kinds.most_common()]


def run(args):
    from concurrent.futures import ThreadPoolExecutor
    import queue

    workers = [Process() for _ in range(args.jobs)]
    free = queue.SimpleQueue()
    for worker in workers:
        free.put(worker)
    ops = workers[0].ops
    if args.list:
        for key, (dtypes, autograd) in ops.items():
            print(key, ",".join(dtypes), "gradients" if autograd else "")
        return {}
    types = args.dtypes.split(",")
    chosen = [(key, dtype) for key, (dtypes, _) in ops.items() if re.search(args.only, key)
              for dtype in [d for d in types if d in dtypes][: None if args.full or args.dtypes != ",".join(TYPES) else 1]]
    chosen = chosen[args.first :: 1 if args.full or args.only or args.first else 8]
    table = {}

    def one(job):
        worker = free.get()
        try:
            return job, worker.results(*job, args.samples)
        finally:
            free.put(worker)

    done = 0
    with ThreadPoolExecutor(args.jobs) as pool:
        for (key, dtype), results in pool.map(one, chosen):
            table.setdefault(key, {})[dtype] = results
            done += 1
            if args.json:
                pathlib.Path(args.json).write_text(json.dumps(table))
            if args.verbose:
                print(f"{done}/{len(chosen)} {key} {dtype}: {status(results, 'forward')} {status(results, 'gradient')}", flush=True)
    for worker in workers:
        worker.end()
    return table


# Why something is not right: the first row that fits the messages.
REASONS = [
    (r"complex|view_as_real|^polar ", "complex numbers"),
    (r"sparse", "a sparse layout"),
    (r"bernoulli|dropout|rrelu|rand|multinomial|normal|uniform|exponential|cauchy|geometric|fractional_max_pool|_fused_dropout",
     "random numbers"),
    (r"[Jj]iterator|CUDA|cuda", "not of CPUs"),
    (r"user_input_mutation|running statistics|resize", "an input that is written to"),
    (r"DynamicOutputShape|DataDependent|data-dependent|depends on data|Unbacked|unbacked|nonzero|_local_scalar_dense|masked_select|unique|"
     r"counts that", "sizes or decisions that depend on data"),
    (r"svd|eig|linalg_qr|ldl|householder|geqrf|ormqr|pinv|linalg_polar|sqrth|lstsq|'token'", "a factorisation"),
    (r"average_pool: operand 1 of type", "means of integers"),
    (r"bessel|zeta|gamma|igamma|special_|i0|i1|airy|polynomial|erf", "a special function"),
    (r"not enough values to unpack|NoneType", "no tensor among the results"),
    (r"as_strided|copy_to", "places in memory"),
    (r"the operator is not supported", "an operator without a reader"),
]
# Gradients that are not PyTorch's, and why.
KNOWN_GRADIENTS = {
    "nn.functional.max_unpool1d": "of two values at one place the one that stays has the gradient; PyTorch gives it to both",
    "nn.functional.max_unpool2d": "of two values at one place the one that stays has the gradient; PyTorch gives it to both",
    "nn.functional.max_unpool3d": "of two values at one place the one that stays has the gradient; PyTorch gives it to both",
    "cholesky_solve": "the triangle that is not read has no gradient; PyTorch gives it one",
    "cholesky_inverse": "the triangle that is not read has no gradient; PyTorch gives it one",
}


def reason_of(key, which, texts):
    if which == "gradient" and key in KNOWN_GRADIENTS:
        return KNOWN_GRADIENTS[key]
    text = " ".join([key, *texts])
    return next((reason for pattern, reason in REASONS if re.search(pattern, text)), texts[0][:150] if texts else "")


def expectations():
    """By operator and "forward" or "gradient": (status, reason)."""
    table = {}
    for line in PINNED.read_text().splitlines():
        if line and not line.startswith("#"):
            key, which, kind, reason = (part.strip() for part in line.split("|"))
            table[key, which] = kind, reason
    return table


def statuses(table):
    for key, by_type in table.items():
        everything = [r for results in by_type.values() for r in results]
        for which in ("forward", "gradient"):
            texts = [r[which][1] for r in everything if which in r and r[which][0] != "right"]
            yield key, which, status(everything, which), texts


FINE = ("right", "none", "no gradient of PyTorch's")


def update(table):
    lines = ["# What is not right of each operator, and why; torch_opinfo.py --update writes it.",
             "# operator | forward or gradient | what happens | reason"]
    for key, which, kind, texts in statuses(table):
        if kind not in FINE:
            lines.append(f"{key} | {which} | {kind} | {reason_of(key, which, texts)}")
    PINNED.write_text("\n".join(lines) + "\n")


def differences(table, full):
    """What happened beside what is expected. Of few samples, less may be seen than of all."""
    expected = expectations()
    for key, which, kind, texts in statuses(table):
        wanted, reason = expected.get((key, which), ("right", ""))
        if kind == wanted or (wanted == "right" and kind in FINE):
            continue
        is_bad = kind in ("wrong", "crash", "error")
        if not full and not is_bad and wanted in ("part", "wrong"):
            continue
        if not full and kind == "none":
            continue
        if is_bad or wanted == "right":
            yield f"{which} of {key}: {kind}, expected {wanted} {reason}: {'; '.join(texts[:3])}"
        else:
            yield f"{which} of {key}: {kind} by now, expected {wanted} ({reason}): change {PINNED.name}"


def summary(table):
    for key, by_type in table.items():
        everything = [r for results in by_type.values() for r in results]
        for which in ("forward", "gradient"):
            kind = status(everything, which)
            if kind not in ("right", "none"):
                print(f"{which} {kind:12} {key}")
                for message in messages(everything, which)[:6]:
                    print(f"      {message}")
    count_all(table)


def count_all(table):
    counts = {which: collections.Counter() for which in ("forward", "gradient")}
    for _, which, kind, _ in statuses(table):
        counts[which][kind] += 1
    for which, kinds in counts.items():
        print(f"{which}: " + ", ".join(f"{count} {kind}" for kind, count in kinds.most_common()))
    samples = collections.Counter(r[which][0] for by in table.values() for rs in by.values() for r in rs for which in counts
                                  if which in r)
    print("samples: " + ", ".join(f"{count} {kind}" for kind, count in samples.most_common()))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--only", default="")
    parser.add_argument("--dtypes", default=",".join(TYPES))
    parser.add_argument("--samples", type=int, help="of each operator and type; 0: all")
    parser.add_argument("--json", help="a file that says what became of each sample; written after each operator")
    parser.add_argument("--first", type=int, default=0, help="leave out operators before this one")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--update", nargs="+", metavar="FILE", help="of several files, the later ones count")
    parser.add_argument("--verbose", action="store_true")
    parser.add_argument("--worker", type=int)
    args = parser.parse_args()
    if args.worker is not None:
        Worker().serve(os.fdopen(args.worker, "w"))
        return 0
    if args.update:
        table = {}
        for file in args.update:
            for key, by_type in json.loads(pathlib.Path(file).read_text()).items():
                table.setdefault(key, {}).update(by_type)
        update(table)
        count_all(table)
        return 0
    if args.samples is None:
        args.samples = 0 if args.full else 1
    begin = time.monotonic()
    table = run(args)
    if args.list:
        return 0
    if args.full or args.only:
        summary(table)
    found = list(differences(table, args.full and args.samples == 0))
    print("\n".join(found))
    print(f"{len(table)} operators, {len(found)} not as expected, {time.monotonic() - begin:.0f} s")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
