#!/usr/bin/env python3
"""Which official node tests pass, by operator, version and data type, beside other engines; as a Markdown table.

    scripts/operator_coverage.py [--peers onnxruntime,openvino] [--cases DIR] [--out docs/operator-coverage.md]

The cases are those of the PyPI package onnx (made in a temporary folder unless --cases names one), models and inputs as
they are. Agreement is that of the package's own runner: |got - want| <= 1e-7 + 1e-3 * |want|, equal shapes and types.
A peer that is not installed is left out, and said so. A peer runs in processes of its own: a crash is a failed case."""
import argparse
import collections
import datetime
import importlib.util
import multiprocessing
import pathlib
import re
import subprocess
import sys
import tempfile

import numpy as np
import onnx
from onnx import numpy_helper

ROOT = pathlib.Path(__file__).resolve().parents[1]
NAMES = {"onnxruntime": "ONNX Runtime", "openvino": "OpenVINO"}
TIMEOUT = 60  # seconds for one case of a peer


PROTOS = {"sequence_type": (onnx.SequenceProto, numpy_helper.to_list),
          "optional_type": (onnx.OptionalProto, numpy_helper.to_optional),
          "map_type": (onnx.MapProto, numpy_helper.to_dict)}


def read_values(folder, kind, infos):
    """The values of a data set: arrays, and lists, dictionaries and None for what is no tensor."""
    values = []
    for i, info in enumerate(infos):
        make, convert = PROTOS.get(info.type.WhichOneof("value"), (onnx.TensorProto, numpy_helper.to_array))
        proto = make()
        proto.ParseFromString((folder / f"{kind}_{i}.pb").read_bytes())
        values.append(convert(proto))
    return values


def runner(peer, path):
    """A function from the inputs, by name, to the outputs."""
    if peer == "onnxruntime":
        import onnxruntime
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        return lambda feeds: session.run(None, feeds)
    import openvino
    compiled = openvino.Core().compile_model(str(path), "CPU", {"INFERENCE_PRECISION_HINT": "f32"})

    def run(feeds):
        result = compiled({port: feeds[name] for port in compiled.inputs for name in port.names if name in feeds})
        return [result[port] for port in compiled.outputs]
    return run


def agrees(got, want):
    if want is None or got is None:
        return want is None and got is None
    if isinstance(want, (list, dict)):
        items = want.items() if isinstance(want, dict) else enumerate(want)
        return type(got) is type(want) and len(got) == len(want) and all(agrees(got[k], v) for k, v in items)
    got, want = np.asarray(got), np.asarray(want)
    if got.shape != want.shape or got.dtype != want.dtype:
        return False
    if want.dtype.kind in "OUSb":
        return bool(np.array_equal(got, want))
    return bool(np.allclose(got.astype(np.float64) if want.dtype.kind != "c" else got,
                            want.astype(np.float64) if want.dtype.kind != "c" else want,
                            rtol=1e-3, atol=1e-7, equal_nan=True))


def passes(peer, case):
    model = onnx.load(case / "model.onnx", load_external_data=False)
    run = runner(peer, case / "model.onnx")
    for folder in sorted(case.glob("test_data_set_*")):
        feeds = dict(zip([i.name for i in model.graph.input], read_values(folder, "input", model.graph.input)))
        want = read_values(folder, "output", model.graph.output)
        if not all(agrees(g, w) for g, w in zip(run(feeds), want, strict=True)):
            return False
    return True


def peer_worker(peer, cases, results):
    for case in cases:
        results.put((case.name, "begin"))
        try:
            outcome = passes(peer, case)
        except Exception:  # noqa: BLE001: whatever it raises, it does not pass
            outcome = False
        results.put((case.name, outcome))


def peer_results(peer, cases):
    """The names of the cases that pass."""
    passed, waiting = set(), list(cases)
    context = multiprocessing.get_context("fork")
    while waiting:
        results = context.Queue()
        worker = context.Process(target=peer_worker, args=(peer, waiting, results))
        worker.start()
        done, at = set(), None
        while len(done) < len(waiting):
            try:
                name, outcome = results.get(timeout=TIMEOUT if worker.is_alive() else 1)
            except Exception:  # noqa: BLE001: it died, or hangs
                break
            if outcome == "begin":
                at = name
            else:
                done.add(name)
                passed |= {name} if outcome else set()
        worker.kill()
        worker.join()
        waiting = [case for case in waiting if case.name not in done and case.name != at]
    return passed


def tessera_results(binary, cases):
    command = [binary, "verify", "--quiet", *map(str, cases)]
    text = subprocess.run(command, text=True, stdout=subprocess.PIPE, check=False).stdout
    failed = {pathlib.Path(m[1]).name for m in re.finditer(r"^(?:FAIL|UNSUPPORTED) (\S+) \(", text, re.M)}
    count = re.search(r"^(\d+) passed, (\d+) failed$", text, re.M)
    if not count or int(count[2]) != len(failed) or int(count[1]) + len(failed) != len(cases):
        sys.exit(f"operator_coverage: 'tessera verify' said something else than expected:\n{text[-2000:]}")
    return {case.name for case in cases} - failed


def plain(name):
    return name.replace("_", "").lower()


def describe(case):
    """(domain, operator, version, data types) of what a case tests."""
    model = onnx.load(case / "model.onnx", load_external_data=False)
    if case.name.endswith("_expanded") or "_expanded_" in case.name:
        return "", "function bodies", 0, ()
    opsets = {entry.domain: entry.version for entry in model.opset_import}
    wanted = plain(case.name.removeprefix("test_").removeprefix("ai_onnx_ml_"))
    nodes = sorted(model.graph.node, key=lambda n: (wanted.startswith(plain(n.op_type)), len(n.op_type)))
    node = nodes[-1] if len(nodes) > 1 else model.graph.node[0]
    try:
        version = onnx.defs.get_schema(node.op_type, opsets.get(node.domain, 1), node.domain).since_version
    except onnx.defs.SchemaError:
        version = opsets.get(node.domain, 1)
    types = set()
    for info in list(model.graph.input) + list(model.graph.output):
        kind = info.type.WhichOneof("value")
        if kind == "tensor_type":
            types.add(onnx.TensorProto.DataType.Name(info.type.tensor_type.elem_type).lower())
        elif kind:
            types.add(kind.removesuffix("_type"))
    return node.domain, node.op_type, version, tuple(types)


def write(out, rows, columns, totals, command):
    lines = [
        "# Coverage of the official node tests", "",
        f"Written by `{command}` on {datetime.date.today()}, onnx {onnx.__version__}"
        + "".join(f", {NAMES[p]} {__import__(p).__version__.split('-')[0]}" for p in columns if p in NAMES)
        + ". Do not edit.", "",
        "Cases that pass, of all cases of the operator in that version. A peer fails a case, too, whose opset or data type it does "
        "not know.", "",
        "| engine | pass | of |", "|---|---|---|"]
    for column in columns:
        lines.append(f"| {NAMES.get(column, 'Tessera')} | {totals[column][0]} ({100 * totals[column][0] / totals[column][1]:.1f} %) "
                     f"| {totals[column][1]} |")
    lines += ["", f"| operator | version | data types | cases | {' | '.join(NAMES.get(c, 'Tessera') for c in columns)} |",
              "|---|---|---|---|" + "---|" * len(columns)]
    for (domain, op, version), entry in sorted(rows.items(), key=lambda item: (item[0][0], item[0][1].lower(), item[0][2])):
        name = f"{domain}.{op}" if domain else op
        marks = [str(entry[column]) for column in columns]
        lines.append(f"| {name} | {version or ''} | {', '.join(sorted(entry['types']))} | {entry['cases']} | {' | '.join(marks)} |")
    out.write_text("\n".join(lines) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tessera", default=str(ROOT / "build/bin/tessera"))
    parser.add_argument("--peers", default="onnxruntime,openvino")
    parser.add_argument("--cases", type=pathlib.Path)
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "docs/operator-coverage.md")
    args = parser.parse_args()
    peers = [peer for peer in args.peers.split(",") if peer]
    for peer in [peer for peer in peers if importlib.util.find_spec(peer) is None]:
        print(f"operator_coverage: {peer} is not installed; left out")
        peers.remove(peer)
    with tempfile.TemporaryDirectory() as scratch:
        folder = args.cases or pathlib.Path(scratch) / "cases"
        if not args.cases:
            subprocess.run([sys.executable, ROOT / "tests/python/make_node_tests.py", "--out", folder, "--match", "^test_",
                            "--expanded"], check=True)
        cases = sorted(path.parent for path in folder.glob("*/model.onnx"))
        results = {"tessera": tessera_results(args.tessera, cases)}
        for peer in peers:
            results[peer] = peer_results(peer, cases)
        rows = collections.defaultdict(lambda: collections.defaultdict(int, types=set()))
        for case in cases:
            domain, op, version, types = describe(case)
            row = rows[domain, op, version]
            row["cases"] += 1
            row["types"] |= set(types)
            for column, passed in results.items():
                row[column] += case.name in passed
        totals = {column: (len(passed), len(cases)) for column, passed in results.items()}
        write(args.out, rows, list(results), totals, "scripts/operator_coverage.py")
        for column, (passed, of) in totals.items():
            print(f"{NAMES.get(column, 'Tessera')}: {passed} of {of}")


if __name__ == "__main__":
    main()
