"""`tessera report`: one page with the model's graph, kernels, roofline and memory, which works in a browser without network.

report_test.py TESSERA"""

import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

RANDOM = np.random.default_rng(0)


def network(blocks):
    """Convolutions in modules: /layerN/convN/Conv."""
    nodes, constants, last = [], [], "x"
    for i in range(blocks):
        weights = RANDOM.standard_normal((8, 8, 3, 3)).astype(np.float32) * 0.1
        constants.append(numpy_helper.from_array(weights, f"w{i}"))
        nodes.append(helper.make_node("Conv", [last, f"w{i}"], [f"c{i}"], name=f"/layer{i // 4}/conv{i}/Conv", pads=[1, 1, 1, 1]))
        nodes.append(helper.make_node("Relu", [f"c{i}"], [f"r{i}"], name=f"/layer{i // 4}/relu{i}/<Relu> & co"))
        last = f"r{i}"
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 8, 16, 16])],
        [helper.make_tensor_value_info(last, TensorProto.FLOAT, None)],
        constants,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def check(condition, what):
    if not condition:
        print(f"FAILED: {what}")
        sys.exit(1)


def data_of(page):
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', page.read_text(), re.S)[1])


def drawn(browser, page, query=""):
    """The page's elements when its script has ended."""
    command = [browser, "--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=20000", "--dump-dom", page.as_uri() + query]
    return subprocess.run(command, capture_output=True, text=True, timeout=120).stdout


def main():
    tessera = pathlib.Path(sys.argv[1]).resolve()
    browser = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        onnx.save(network(12), folder / "net.onnx")
        page = folder / "net.html"
        done = subprocess.run([tessera, "report", "net.onnx", "-o", "net.html"], cwd=folder, capture_output=True, text=True)
        check(done.returncode == 0, done.stderr)
        text = page.read_text()
        check(
            "http://" not in text.replace("http://www.w3.org/2000/svg", "") and "https://" not in text,
            "the page names the network",
        )
        data = data_of(page)
        check(sum(node["op"] == "conv" for node in data["nodes"]) == 12, "nodes of the graph")
        check(any(node["inputs"] for node in data["nodes"]), "edges of the graph")
        check(data["kernels"] and all(kernel["us"] > 0 for kernel in data["kernels"]), "times of kernels")
        check(data["module"]["live_bytes"] and data["roofline"]["peak_gflops"] > 0, "memory and roofline")
        check(any("declined" in rule for kernel in data["explained"]["kernels"] for rule in kernel["rules"]), "why-not reasons")
        # What kernels hand to one another: an edge's precision and layout, of the model and of the program.
        for kind in ("nodes", "program"):
            check(all(len(node["edges"]) == len(node["inputs"]) for node in data[kind]), f"types of the edges of {kind}")
        check(any("[" in edge for call in data["program"] for edge in call["edges"]), "edges between kernels")
        # Two builds: beside a page, and beside a module.
        subprocess.run([tessera, "compile", "net.onnx", "-O0", "-q", "-o", "net.so"], cwd=folder, check=True)
        pages = {}
        for other in ("net.html", "net.so"):
            command = [tessera, "report", "net.onnx", "--against", other, "-o", f"beside_{other}.html"]
            done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
            check(done.returncode == 0, done.stderr)
            pages[other] = data_of(folder / f"beside_{other}.html")
            check(pages[other]["against"]["kernels"] and pages[other]["against"]["module"]["memory"], f"the build of {other}")
        check(pages["net.html"]["against"]["kernels"] == data["kernels"], "times of the page that is compared with")
        command = [tessera, "report", "net.onnx", "--against", "net.onnx", "-o", "x.html"]
        refused = subprocess.run(command, cwd=folder, capture_output=True, text=True)
        check(refused.returncode == 1 and "TSR-4089" in refused.stderr, "a model as another build")
        refused = subprocess.run([tessera, "report", "net.onnx", "-o", "net.onnx"], cwd=folder, capture_output=True, text=True)
        check(refused.returncode == 1, "the page replaces its model")
        print(f"{len(text)} bytes, {len(data['nodes'])} nodes, {len(data['kernels'])} kernels")
        if not browser:
            print("the page was not looked at: no Chromium (scripts/setup.sh --browser)")
            return 0
        # In a browser: the script ends, everything is drawn.
        shown = drawn(browser, page)
        check('data-ready="1"' in shown, "the page's script does not end")
        check(
            shown.count('class="dot"') == sum(1 for k in data["kernels"] if k["flops"] > 0 and k["bytes"] > 0),
            "a dot for each kernel",
        )
        check(shown.count('<tr class="kernel">') == len(data["kernels"]), "a row for each kernel")
        beside = drawn(browser, folder / "beside_net.html.html", "?view=program")
        check('data-ready="1"' in beside, "the script of the page of two builds does not end")
        check(beside.count('<tr class="change">') == len(data["kernels"]), "a row for each kernel of two builds")
        check("edges" in re.search(r'id="precisions">(.*?)</p>', beside, re.S)[1], "the precisions of edges")
        # A graph of 10,000 nodes; how long it takes is printed.
        one = data["nodes"]
        data["nodes"] = [
            {"name": f"/part{i // 500}/block{i // 20}/node{i}", "op": "add", "inputs": [i - 1] if i else [], "types": ["f32[4]"]}
            for i in range(10000)
        ]
        large = (
            text[: text.index('id="data">') + 10] + json.dumps(data) + text[text.index("</script>", text.index('id="data">')) :]
        )
        page.write_text(
            large.replace('$("unfold").onclick = ', 'window.unfoldAll = $("unfold").onclick = ').replace(
                'document.body.dataset.ready = "1";',
                'const t0 = performance.now(); unfoldAll(); '
                'document.body.dataset.unfoldMs = (performance.now() - t0).toFixed(0); document.body.dataset.ready = "1";',
            )
        )
        shown = drawn(browser, page)
        taken = re.search(r'data-unfold-ms="(\d+)"', shown)
        check(taken is not None, "the large page's script does not end")
        print(f"10,000 nodes unfolded and drawn in {taken[1]} ms")
    return 0


if __name__ == "__main__":
    sys.exit(main())
