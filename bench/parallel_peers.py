#!/usr/bin/env python3
"""Training steps that several processes share, beside PyTorch (DDP, FSDP2, DTensor, by gloo) and JAX (Shardy, a device for
each process): milliseconds of a step, and memory of a process.

    parallel_peers.py [--engines tessera,torch,jax] [--modes data,zero3,tensor] [--ranks 1,2,4] [--rounds 3] [--steps 20]
                      [--width 1024] [--layers 4] [--batch 64] [--json out/parallel_peers.json] [--again]

A perceptron of square layers with ReLU, mean squared error and Adam, the same weights and samples for all; their first
losses must agree. `data` shares the batch, `zero3` parameters, gradients and moments, too (fully_shard; arrays that are
sharded along the mesh), `tensor` shares layers, by columns and by rows in turn. A process has one thread, and JAX's only
process as many as it has devices. Engines take turns, one round each; a figure is the median of the rounds' medians.

Memory: ours and PyTorch's is what a process has grown by (pages that are no file's) between compiling, or importing, and
the last step; JAX's is what its compiled step says of one device: arguments, results and temporary values.
Rounds that the file already has are left out, unless --again. A peer without its venv (scripts/setup.sh --torch, --jax)
is left out with a line that says so."""
import argparse
import json
import os
import pathlib
import socket
import statistics
import subprocess
import sys
import tempfile
import time

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[1]
PYTHONS = {"torch": ROOT / ".venv-torch/bin/python", "jax": ROOT / ".venv-jax/bin/python"}
WARM = 5  # steps that are not timed, whose losses are compared
RATE = 1e-3


def own_memory():
    status = pathlib.Path("/proc/self/status").read_text()
    return int(status.split("RssAnon:")[1].split()[0]) * 1024


def prepared(folder, options):
    """Weights, samples of WARM batches, and the same network for `tessera train`."""
    sys.path.insert(0, os.environ.get("PYTHONPATH", str(ROOT / "build/python")).split(":")[0])
    from tessera import graph

    random = np.random.default_rng(0)
    weights = [(random.standard_normal((options.width, options.width)) * np.sqrt(2 / options.width)).astype(np.float32)
               for _ in range(options.layers)]
    g = graph.Graph("perceptron")
    value = g.input("x", np.float32, (g.symbol("n", 1, options.batch), options.width))
    for i, weight in enumerate(weights):
        value = graph.matmul(value, g.constant(weight, name=f"layer{i}.weight"))
        if i + 1 < options.layers:
            value = graph.relu(value)
    g.output("y", value)
    g.save(folder / "net.graph")
    x = random.standard_normal((WARM * options.batch, options.width)).astype(np.float32)
    y = random.standard_normal((WARM * options.batch, options.width)).astype(np.float32)
    np.savez(folder / "data.npz", x=x, y=y)
    np.savez(folder / "weights.npz", *weights)


def batches(folder, batch, steps):
    with np.load(folder / "data.npz") as data:
        x, y = data["x"], data["y"]
    for step in range(steps):
        at = step % WARM * batch
        yield x[at : at + batch], y[at : at + batch]


def weights_of(folder):
    with np.load(folder / "weights.npz") as file:
        return [file[name] for name in file.files]


# ---- PyTorch, a process of it ----


def torch_child(folder, mode, options):
    import torch
    import torch.distributed as dist
    from torch import nn

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    before = own_memory()
    layers = []
    for i, weight in enumerate(weights_of(folder)):
        linear = nn.Linear(*weight.shape, bias=False)
        with torch.no_grad():
            linear.weight.copy_(torch.from_numpy(weight.T))
        layers += [linear, nn.ReLU()] if i + 1 < options.layers else [linear]
    model = nn.Sequential(*layers)
    if mode == "data":
        model = nn.parallel.DistributedDataParallel(model)
    elif mode == "zero3":
        from torch.distributed.fsdp import fully_shard

        for layer in model:
            if isinstance(layer, nn.Linear):
                fully_shard(layer)
        fully_shard(model)
    else:
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

        ways = {str(2 * i): RowwiseParallel() if i % 2 else ColwiseParallel() for i in range(options.layers)}
        parallelize_module(model, init_device_mesh("cpu", (ranks,)), ways)
    optimizer = torch.optim.Adam(model.parameters(), lr=RATE)
    losses, seconds = [], []
    share = options.batch // ranks if mode != "tensor" else options.batch
    for x, y in batches(folder, options.batch, WARM + options.steps):
        own = slice(rank * share, (rank + 1) * share) if mode != "tensor" else slice(None)
        x, y = torch.from_numpy(x[own]), torch.from_numpy(y[own])
        begin = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        seconds.append(time.perf_counter() - begin)
        total = loss.detach().clone()
        if mode != "tensor":
            dist.all_reduce(total)
            total /= ranks
        losses.append(total.item())
    if rank == 0:
        print(json.dumps({"losses": losses[:WARM], "step_ms": 1e3 * statistics.median(seconds[WARM:]),
                          "memory_bytes": own_memory() - before}))
    dist.destroy_process_group()


# ---- JAX, with a device for each process ----


def jax_child(folder, mode, options):
    import jax
    import jax.numpy as jnp
    import optax
    from jax.sharding import Mesh, NamedSharding
    from jax.sharding import PartitionSpec as P

    ranks = len(jax.devices())
    mesh = Mesh(np.array(jax.devices()), ("ranks",))

    def placed(spec):
        return NamedSharding(mesh, spec)

    def spec_of(i):
        if mode == "data":
            return P()
        return P("ranks", None) if mode == "zero3" or i % 2 else P(None, "ranks")

    specs = [placed(spec_of(i)) for i in range(options.layers)]
    weights = [jax.device_put(weight, spec) for weight, spec in zip(weights_of(folder), specs)]
    optimizer = optax.adam(RATE)
    state = jax.jit(optimizer.init)(weights)
    state = jax.tree.map(lambda leaf: jax.device_put(leaf, placed(P())) if leaf.ndim == 0 else leaf, state)
    state = (state[0]._replace(mu=list(map(jax.device_put, state[0].mu, specs)), nu=list(map(jax.device_put, state[0].nu, specs))),
             *state[1:])
    data = placed(P() if mode == "tensor" else P("ranks"))

    def loss_of(weights, x, y):
        for i, weight in enumerate(weights):
            x = x @ weight
            if i + 1 < options.layers:
                x = jax.nn.relu(x)
        return jnp.mean((x - y) ** 2)

    def step(weights, state, x, y):
        loss, gradients = jax.value_and_grad(loss_of)(weights, x, y)
        updates, state = optimizer.update(gradients, state)
        return [jax.lax.with_sharding_constraint(w + u, s) for w, u, s in zip(weights, updates, specs)], state, loss

    losses, seconds, compiled = [], [], None
    for x, y in batches(folder, options.batch, WARM + options.steps):
        x, y = jax.device_put(x, data), jax.device_put(y, data)
        if not compiled:
            compiled = jax.jit(step, donate_argnums=(0, 1)).lower(weights, state, x, y).compile()
        begin = time.perf_counter()
        weights, state, loss = compiled(weights, state, x, y)
        jax.block_until_ready((weights, loss))
        seconds.append(time.perf_counter() - begin)
        losses.append(float(loss))
    told = compiled.memory_analysis()
    memory = told.argument_size_in_bytes + told.output_size_in_bytes + told.temp_size_in_bytes - told.alias_size_in_bytes
    print(json.dumps({"losses": losses[:WARM], "step_ms": 1e3 * statistics.median(seconds[WARM:]), "memory_bytes": memory, "ranks": ranks}))


# ---- all of them ----


def of_processes(commands, environments, seconds=900):
    """What the first one prints, of processes that all have to end well."""
    running = [subprocess.Popen([str(part) for part in command], env=os.environ | environment, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, text=True) for command, environment in zip(commands, environments)]
    try:
        outputs = [process.communicate(timeout=seconds) for process in running]
    finally:
        for process in running:
            process.kill()
    for process, (_, errors) in zip(running, outputs):
        if process.returncode != 0:
            raise RuntimeError(errors.strip()[-1500:])
    return json.loads(outputs[0][0].strip().splitlines()[-1])


def run_tessera(folder, mode, ranks, options):
    how = {"data": [], "zero3": ["--zero", 3], "tensor": ["--tensor-parallel", ranks]}[mode]
    epochs = -(-(WARM + options.steps) // WARM)
    command = [options.tessera, "train", folder / "net.graph", "--data", folder / "data.npz", "--loss", "mse", "--batch", options.batch,
               "--in-order", "--epochs", epochs, "--optimizer", "adam", "--lr", RATE, "--threads", 1, "--json", *how]
    if ranks > 1:
        command = [ROOT / ".venv/bin/mpirun", "--allow-run-as-root", "--oversubscribe", "-n", ranks, *command]
    report = of_processes([command], [{}])
    return {"losses": report["losses"][:WARM], "step_ms": 1e3 * statistics.median(report["step_seconds"][WARM:]),
            "memory_bytes": report["memory_growth_bytes"]}


def run_peer(engine, folder, mode, ranks, options):
    child = [PYTHONS[engine], __file__, "--child", engine, "--folder", folder, "--modes", mode]
    for name in ("steps", "width", "layers", "batch"):
        child += [f"--{name}", getattr(options, name)]
    one = {"OMP_NUM_THREADS": "1", "JAX_PLATFORMS": "cpu"}
    if engine == "jax":
        flags = f"--xla_force_host_platform_device_count={ranks} --xla_cpu_multi_thread_eigen=false"
        return of_processes([child], [one | {"XLA_FLAGS": flags}])
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    group = {"WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    return of_processes([child] * ranks, [one | group | {"RANK": str(rank)} for rank in range(ranks)])


def agree(results):
    """Losses of all engines beside the first one's."""
    first = next(iter(results.values()))[0]["losses"]
    for engine, rounds in results.items():
        for entry in rounds:
            if not np.allclose(entry["losses"], first, rtol=1e-3):
                raise SystemExit(f"{engine} has other losses: {entry['losses']}, and not {first}")


def row(key, results, engines):
    cells = [f"{statistics.median(entry['step_ms'] for entry in results[engine]):.1f} | "
             f"{statistics.median(entry['memory_bytes'] for entry in results[engine]) / 1e6:.0f}" if results.get(engine) else "- | -"
             for engine in engines]
    return f"| {key.replace('/', ' | ')} | " + " | ".join(cells) + " |"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engines", default="tessera,torch,jax")
    parser.add_argument("--modes", default="data,zero3,tensor")
    parser.add_argument("--ranks", default="1,2,4")
    for name, default in (("rounds", 3), ("steps", 20), ("width", 1024), ("layers", 4), ("batch", 64)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--tessera", default=os.environ.get("TESSERA", str(ROOT / "build/bin/tessera")))
    parser.add_argument("--json", type=pathlib.Path, default=ROOT / "out/parallel_peers.json")
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--child", choices=PYTHONS, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=pathlib.Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        return {"torch": torch_child, "jax": jax_child}[options.child](options.folder, options.modes, options)
    engines = options.engines.split(",")
    for engine in [engine for engine in engines if engine in PYTHONS and not PYTHONS[engine].exists()]:
        print(f"without {engine}: there is no {PYTHONS[engine]} (scripts/setup.sh --{engine})", file=sys.stderr)
        engines.remove(engine)
    known = json.loads(options.json.read_text()) if options.json.exists() and not options.again else {}
    options.json.parent.mkdir(parents=True, exist_ok=True)
    print("| mode | processes | " + " | ".join(f"{engine}, ms | MB" for engine in engines) + " |\n" + "|---" * (2 + 2 * len(engines)) + "|")
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        prepared(folder, options)
        for mode in options.modes.split(","):
            for ranks in map(int, options.ranks.split(",")):
                if ranks == 1 and mode != "data":
                    continue
                results = known.setdefault(f"{mode}/{ranks}", {})
                for done in range(options.rounds):
                    for engine in engines:
                        if len(results.setdefault(engine, [])) > done:
                            continue
                        run = run_tessera if engine == "tessera" else lambda *how: run_peer(engine, *how)
                        results[engine].append(run(folder, mode, ranks, options))
                        options.json.write_text(json.dumps(known, indent=1))
                agree(results)
                print(row(f"{mode}/{ranks}", results, engines), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
