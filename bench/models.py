#!/usr/bin/env python3
"""Times whole networks beside other engines: `tessera bench MODEL --against PEERS` for each, and its tables and a plot.

    models.py [MODEL...] [--folder out/bench] [--threads 1,2] [--precision f32] [--peers onnxruntime,openvino] [--rounds 5]
              [--limit 120] [--out bench/results/models] [--again] [--show]

MODEL is a network of the suite (tests/models/skeletons: its weights are made anew in --folder), another .onnx file of
--folder, or a path; default: the whole suite, or with --folder all .onnx files there. NAME.inputs.npz beside a model
gives its inputs. Peers are those of `tessera bench --help`; their packages belong to the Python of TESSERA_PYTHON,
default: those it has. --limit: seconds that a peer may take to be ready.
--precision is what Tessera computes in: f32 beside f32 engines, bf16 beside all. Every model, precision, number of threads
and peer that the results already have is left out, unless --again; so a long list can
be measured in pieces. --show only writes the tables and the plot.
Writes NAME.json, NAME.md and NAME.png. Exit code: 1 when a model cannot be compiled, 2 when outputs differ."""
import argparse
import json
import math
import os
import pathlib
import tempfile
import statistics
import subprocess
import sys

import report as common

PACKAGES = {"onnxruntime": "onnxruntime", "openvino": "openvino", "openvino-bf16": "openvino", "iree": "iree.compiler",
            "tvm": "tvm", "mnn": "MNN", "torch": "onnx2torch", "torch-compile": "onnx2torch"}
NOT_F32 = {"openvino-bf16"}  # no peers of f32 code


def present_peers():
    """Those whose packages the Python of TESSERA_PYTHON has, but not iree, tvm and torch-compile, which compile for minutes."""
    python = os.environ.get("TESSERA_PYTHON", "python3")
    text = "import importlib.util,sys;print(*[int(importlib.util.find_spec(n.split('.')[0]) is not None) for n in sys.argv[1:]])"
    names = [name for name in PACKAGES if name not in ("iree", "tvm", "torch-compile")]
    done = subprocess.run([python, "-c", text, *(PACKAGES[name] for name in names)], capture_output=True, text=True)
    found = [name for name, there in zip(names, done.stdout.split()) if there == "1"]
    if not found:
        sys.exit(f"models.py: '{python}' has no engine to measure beside; name another Python in TESSERA_PYTHON")
    return found


def find_models(names, folder, has_folder):
    if not names:
        names = sorted(path.stem for path in folder.glob("*.onnx")) if has_folder else common.SUITE
    for name in names:
        path = pathlib.Path(name) if name.endswith(".onnx") else folder / f"{name}.onnx"
        if not path.is_file() and name in common.SUITE:
            path = common.suite_model(name, folder)
        if not path.is_file():
            sys.exit(f"models.py: there is no {path}, and no network of the suite is called so")
        yield path.stem, path


def measure(path, threads, peers, args):
    """One run of `tessera bench`: (its "against" with what it compiled in, None) or (None, the error)."""
    command = [common.TESSERA, "bench", str(path), "--threads", str(threads), "--against", ",".join(peers), "--rounds",
               str(args.rounds), "--precision", args.precision, "--against-limit", str(args.limit), "--json",
               *common.input_flags(path, args.work)]
    with tempfile.TemporaryDirectory() as cache:  # what was compiled before would cost nothing
        environment = os.environ | {"TESSERA_CACHE_DIR": cache}
        done = subprocess.run(command, capture_output=True, text=True, env=environment)
    origin = {"date": common.today(), "commit": common.commit()}
    if done.returncode == 1 and len(peers) == 1 and done.stderr.startswith("error TSR-4044: "):
        reason = done.stderr.splitlines()[0].partition(" cannot be used beside us: ")[2]
        return {"peers": [{"peer": peers[0], "reason": reason}], "agrees": True} | origin, None
    if done.returncode not in (0, 2):
        return None, done.stderr.strip().splitlines()[0] if done.stderr.strip() else f"exit code {done.returncode}"
    told = json.loads(done.stdout.strip().splitlines()[-1])
    against = told["against"]
    if "peers" not in against:  # one peer: its fields stand there
        own = ("rounds", "repeats", "tessera_ms", "tessera_min_ms", "tessera_rounds_ms", "agrees")
        against = {key: against[key] for key in own} | {"peers": [against]}
    for peer in against["peers"]:
        for key in ("rounds", "tessera_ms", "tessera_min_ms", "tessera_rounds_ms"):
            peer.pop(key, None)
    return against | {"compile_s": told["compile_s"]} | origin, None


def peer_rows(row):
    """{peer: (its ms, its time / ours, agrees, reason)} of a model and a number of threads. The quotient is the median
    over the rounds: what else the machine does in a round falls on both."""
    found = {}
    for run in row["runs"]:
        for peer in run["peers"]:
            ratios = [theirs / ours for theirs, ours in zip(peer.get("peer_rounds_ms", []), run.get("tessera_rounds_ms", []))]
            speed = statistics.median(ratios) if ratios else None
            found[peer["peer"]] = (peer.get("peer_ms"), speed, peer.get("agrees", True), peer.get("reason"))
    return found


def fastest(row, with_differing=False):
    """(peer, its time / ours) of the fastest engine of such precision that gives the same outputs, or None. With
    `with_differing` whatever it gives."""
    speeds = {name: speed for name, (_, speed, agrees, _) in peer_rows(row).items()
              if speed and (agrees or with_differing) and (name not in NOT_F32 or row["precision"] != "f32")}
    return min(speeds.items(), key=lambda item: item[1]) if speeds else None


def series(results):
    """[(title, its rows)]: one for each precision and number of threads, f32 first."""
    keys = sorted({(row["precision"], row["threads"]) for row in results["rows"]}, key=lambda key: (key[0] != "f32", *key))
    return [(f"{precision}, {threads} thread{'' if threads == 1 else 's'}",
             [row for row in results["rows"] if (row["precision"], row["threads"]) == (precision, threads)])
            for precision, threads in keys]


def tables(results):
    text, notes = [], {}
    for title, rows in series(results):
        peers = [name for name in PACKAGES if any(name in peer_rows(row) for row in rows)]
        table = [["model", "tessera", *peers, "fastest peer / ours"]]
        speeds, of_all, differing = [], [], set()
        for row in sorted(rows, key=lambda row: row["model"]):
            if "error" in row:
                table.append([row["model"], row["error"]] + [""] * (len(peers) + 1))
                continue
            ours = next((run["tessera_ms"] for run in row["runs"] if "tessera_ms" in run), None)
            found, cells = peer_rows(row), [row["model"], common.figure(ours) if ours else ""]
            for name in peers:
                ms, _, agrees, reason = found.get(name, (None, None, True, None))
                if reason:
                    notes.setdefault(f"{name}: {reason}", []).append(row["model"])
                cells.append("no" if reason else "" if ms is None else common.figure(ms) + ("" if agrees else " (differs)"))
            best = fastest(row)
            cells.append(f"{best[1]:.2f} ({best[0]})" if best else "")
            speeds += [best[1]] if best else []
            any_outputs = fastest(row, with_differing=True)
            of_all += [any_outputs[1]] if any_outputs else []
            if any_outputs and any_outputs != best:
                differing.add(f"{any_outputs[0]} {row['model']}")
            table.append(cells)
        if speeds:
            table.append(["geometric mean", *[""] * (len(peers) + 1), f"{common.geometric_mean(speeds):.2f}"])
        if differing:  # a faster engine with other outputs stands beside the figure
            title_of_all = f"with those that differ counted ({', '.join(sorted(differing))})"
            table.append([title_of_all, *[""] * (len(peers) + 1), f"{common.geometric_mean(of_all):.2f}"])
        text += [f"## {title}: medians in ms", common.markdown(table)]
    if notes:
        text.append("Not measured (\"no\"):\n\n" + "\n".join(f"- {', '.join(sorted(set(models)))}: {reason}"
                                                               for reason, models in sorted(notes.items())))
    return "\n\n".join(text)


def description(results):
    versions = {}
    for row in results["rows"]:
        for run in row.get("runs", []):
            versions |= {peer["peer"]: peer["version"] for peer in run["peers"] if "version" in peer}
    runs = [run for row in results["rows"] for run in row.get("runs", [])]
    dates, commits = sorted({run["date"] for run in runs}), sorted({run["commit"] for run in runs})
    return (f"{' to '.join(sorted({*dates[:1], *dates[-1:]}))}, {results['cpu']}, tessera {results['tessera']} "
            f"({', '.join(commits)}), " + ", ".join(f"{name} {version}" for name, version in sorted(versions.items())) +
            ". Every engine in a process of its own, timed in alternating rounds; a figure is the median of the rounds' medians. "
            "The last column is the time of the fastest engine with the same outputs (to 1e-4 of the largest; in bf16 2^-5) divided by "
            "ours, the median over the rounds; openvino-bf16 counts in the bf16 tables alone.")


def plot(results, path):
    pyplot = common.pyplot()
    shown = series(results)
    names = sorted({row["model"] for row in results["rows"]}, reverse=True)
    figure, panels = pyplot.subplots(1, len(shown), figsize=(5.2 * len(shown) + 1.2, 0.3 * len(names) + 1.6), sharey=True,
                                     squeeze=False)
    for axes, (title, rows) in zip(panels[0], shown):
        points = {}
        for row in rows:
            for name, (_, speed, _, _) in peer_rows(row).items():
                if speed:
                    points.setdefault(name, []).append((speed, names.index(row["model"])))
        for name in PACKAGES:
            if name in points:
                axes.scatter(*zip(*points[name]), label=name, color=common.COLOURS[name], s=26, zorder=3)
        axes.axvline(1, color="black", linewidth=0.9)
        axes.set_xscale("log")
        low, high = axes.get_xlim()
        steps = (0.25, 0.5, 0.75, 1, 1.5, 2, 3, 5, 10, 30, 100) if high > 1.5 * low else (0.8, 0.9, 1, 1.1, 1.2, 1.3, 1.4)
        ticks = [tick for tick in steps if low <= tick <= high]
        axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
        axes.minorticks_off()
        axes.set_yticks(range(len(names)), names, fontsize=8)
        axes.grid(axis="both", color="#dddddd", linewidth=0.6)
        axes.set_title(title, fontsize=9)
        axes.set_xlabel("peer's time / ours (right of 1: Tessera is faster)", fontsize=8)
    figure.suptitle(f"Networks, {results['cpu']}", fontsize=10)
    figure.tight_layout()
    handles = {label: handle for axes in panels[0] for handle, label in zip(*axes.get_legend_handles_labels())}
    figure.legend(handles.values(), handles.keys(), fontsize=7, loc="upper right", ncol=len(handles))
    figure.savefig(path, dpi=110)
    pyplot.close(figure)


def write(results, out):
    common.save_json(results, out.with_suffix(".json"))
    out.with_suffix(".md").write_text(f"# Networks beside other engines\n\n{description(results)}\n\n{tables(results)}\n")
    plot(results, out.with_suffix(".png"))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*")
    parser.add_argument("--folder", type=pathlib.Path)
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--precision", choices=("f32", "bf16", "f16"), default="f32")
    parser.add_argument("--peers")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--limit", type=float, default=120)
    parser.add_argument("--out", type=pathlib.Path, default=common.ROOT / "bench/results/models")
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--show", action="store_true")
    args = parser.parse_args()
    args.work = common.ROOT / "out/bench"
    args.work.mkdir(parents=True, exist_ok=True)
    results = common.load(args.out.with_suffix(".json")) or {"cpu": common.cpu_name(), "rows": []}
    if results["cpu"] != common.cpu_name() and not args.show:
        sys.exit(f"models.py: {args.out}.json is of another machine ({results['cpu']}); name another file with --out")
    if args.show:
        write(results, args.out)
        return 0
    results["tessera"] = common.tessera_version()
    peers = args.peers.split(",") if args.peers else present_peers()
    if args.precision == "f32" and not args.peers:
        peers = [peer for peer in peers if peer not in NOT_F32]
    status = 0
    for name, path in find_models(args.models, args.folder or args.work, args.folder is not None):
        for threads in map(int, args.threads.split(",")):
            key = {"model": name, "precision": args.precision, "threads": threads}
            row = next((row for row in results["rows"] if all(row[field] == value for field, value in key.items())), None)
            if row is None:
                row = key | {"runs": []}
                results["rows"].append(row)
            done = set() if args.again else set(peer_rows(row))
            wanted = [peer for peer in peers if peer not in done]
            if not wanted:
                continue
            run, error = measure(path, threads, wanted, args)
            if error:
                row["error"] = error
                status = status or 1
                print(f"{name:<24} {threads}  {error}", flush=True)
                continue
            row.pop("error", None)
            if args.again:  # what was measured again goes
                for old in row["runs"]:
                    old["peers"] = [peer for peer in old["peers"] if peer["peer"] not in wanted]
            # The table's own column is of the run with the most peers.
            row["runs"] = sorted([*(old for old in row["runs"] if old["peers"]), run], key=lambda run: -len(run["peers"]))
            status = status if run["agrees"] else 2
            write(results, args.out)
            print(f"{name:<24} {threads}  tessera {run.get('tessera_ms', math.nan):.2f}  " + "  ".join(
                f"{peer['peer']} " + (peer["reason"] if "reason" in peer else
                                      f"{peer['peer_ms']:.2f} (x{peer['peer_ms'] / run['tessera_ms']:.2f})"
                                      f"{'' if peer['agrees'] else ' DIFFERS'}") for peer in run["peers"]), flush=True)
    return status


if __name__ == "__main__":
    sys.exit(main())
