#!/usr/bin/env python3
"""Simulated runs of plans beside SimGrid's SMPI: another engine, with a network of its own, runs the same steps through real
calls of MPI in virtual time.    simulate.py TESSERA [unittest options]"""

import json
import pathlib
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests/python"), str(ROOT / "examples/parallel")]
import cli_support
from cli_support import CliTest

import make_gpt

NEAR = 0.15  # of what SMPI says


def platform(ranks, levels):
    """Full duplex links of each rank, and of each unit of ranks, which routes between units go over."""
    lines = ['<?xml version="1.0"?>', '<!DOCTYPE platform SYSTEM "https://simgrid.org/simgrid.dtd">', '<platform version="4.1">',
             '<zone id="all" routing="Full">']
    lines += [f'<host id="h{r}" speed="1Gf"/>' for r in range(ranks)]
    inner = 0.0
    for k, (unit, gigabytes, microseconds) in enumerate(levels):
        for u in range(-(-ranks // unit)):
            for way in ("up", "down"):
                lines.append(f'<link id="{way}{k}.{u}" bandwidth="{gigabytes * 1e9:.0f}Bps" '
                             f'latency="{(microseconds - inner) / 2 * 1e-6:.9f}s"/>')
        inner = microseconds
    for a in range(ranks):
        for b in range(ranks):
            if a == b:
                continue
            crossed = [(k, unit) for k, (unit, _, _) in enumerate(levels) if a // unit != b // unit]
            links = [f"up{k}.{a // unit}" for k, unit in crossed] + [f"down{k}.{b // unit}" for k, unit in crossed]
            lines.append(f'<route src="h{a}" dst="h{b}" symmetrical="NO">' + "".join(f'<link_ctn id="{link}"/>' for link in links)
                         + "</route>")
    return "\n".join(lines + ["</zone>", "</platform>", ""])


class Simulate(CliTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.why = None if shutil.which("smpicc") else "there is no smpicc: scripts/setup.sh --simgrid installs it"

    def setUp(self):
        super().setUp()
        if self.why:
            print("skipped:", self.why)
            self.skipTest(self.why)
        subprocess.run(["smpicc", "-O1", "-o", "replay", ROOT / "tests/e2e/smpi_replay.c"], cwd=self.folder, check=True,
                       capture_output=True)
        make_gpt.gpt(4, 64, 4, 16, 8, 96).save(self.folder / "gpt.graph")

    def smpi(self, folder, extents, network):
        levels = [(int(unit), *map(float, speed.split("/"))) for unit, speed in (level.split("=") for level in network.split(","))]
        data, stage, model = extents
        ranks = data * stage * model
        (self.folder / "platform.xml").write_text(platform(ranks, levels))
        (self.folder / "hosts").write_text("".join(f"h{r}\n" for r in range(ranks)))
        # The network's own numbers, no time for the host's work, messages that nobody waits for, rings.
        settings = ["network/model:CM02", "network/crosstraffic:0", "network/TCP-gamma:0", "smpi/host-speed:1Gf",
                    "smpi/cpu-threshold:0", "smpi/simulate-computation:no", "smpi/async-small-thresh:1000000000",
                    "smpi/send-is-detached-thresh:1000000000", "smpi/allreduce:lr", "smpi/allgather:NTSLR", "smpi/alltoall:ring"]
        done = subprocess.run(["smpirun", "-np", str(ranks), "-platform", "platform.xml", "-hostfile", "hosts",
                               *(f"--cfg={setting}" for setting in settings), "./replay", folder, *map(str, extents)],
                              cwd=self.folder, capture_output=True, text=True, timeout=300)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        (line,) = [line for line in done.stdout.splitlines() if line.startswith("seconds ")]
        return float(line.split()[1])

    def agree(self, what, extents, network, *arguments):
        report = json.loads(self.tessera("parallelize", "gpt.graph", *arguments, "--network", network, "--trace", "trace",
                                         "--json")[0])
        simulated, replayed = report["simulated"]["seconds"], self.smpi("trace", extents, network)
        print(f"{what}, {network}: {1e3 * simulated:.3f} ms, SMPI {1e3 * replayed:.3f} ms ({100 * (simulated / replayed - 1):+.1f} %)")
        self.assertLess(abs(simulated / replayed - 1), NEAR)
        return report

    NETWORKS = ("1=5/20", "1=0.05/5", "1=5/2,4=0.1/20")

    def test_plans(self):
        for mesh, extents in (("data=2", (2, 1, 1)), ("model=4", (1, 1, 4)), ("data=2,model=4", (2, 1, 4)), ("data=8", (8, 1, 1))):
            for network in self.NETWORKS:
                with self.subTest(mesh=mesh, network=network):
                    self.agree(mesh, extents, network, "--mesh", mesh)

    def test_stages(self):
        for rows, stages, micro_batches, schedule in ((1, 2, 4, "1f1b"), (1, 4, 8, "1f1b"), (1, 4, 8, "gpipe"), (2, 4, 8, "1f1b"),
                                                      (1, 4, 8, "interleaved")):
            for network in self.NETWORKS:
                with self.subTest(stages=stages, network=network, schedule=schedule):
                    what = f"{rows} x {stages} stages, {micro_batches} micro-batches, {schedule}"
                    self.agree(what, (rows, stages, 1), network, "--stages", stages, "--micro-batches", micro_batches,
                               "--schedule", schedule, "--rows", rows, "--classes-last")

    def test_thousands(self):
        """Nothing there to compare with: it ends, in little time."""
        make_gpt.gpt(8, 512, 8, 16, 512, 512).save(self.folder / "wide.graph")
        report = json.loads(self.tessera("parallelize", "wide.graph", "--mesh", "data=512,model=8", "--network",
                                         "1=50/2,8=25/5,64=100/10", "--json")[0])
        self.assertGreaterEqual(report["simulated"]["seconds"], report["compute_seconds"])


if __name__ == "__main__":
    cli_support.main()
