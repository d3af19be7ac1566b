#!/usr/bin/env python3
"""What it is worth on a torus that groups lie near their primaries, and files near their writers.

bench/spikes/near_writer.py [SHOAL]: a lab of 4x4 nodes with cables of LINK (50mbit), code CODE (8+2). Each of CLIENTS (6) nodes
mounts three volumes: groups anywhere, groups by hops, and groups by hops with files near their writers. On each of them all clients
write a file of MIB (16) at the same time, and sync it; then all read another client's file, and then their own. TURNS (3) in turns;
medians of the MB/s of all clients together, from the first begin to the last end. Needs root.
"""

import json
import os
import statistics
import subprocess
import sys
import time

LINK, BUFFER, CODE = (os.environ.get(name, value) for name, value in (("LINK", "50mbit"), ("BUFFER", "64K"), ("CODE", "8+2")))
CLIENTS, MIB, TURNS = (int(os.environ.get(name, value)) for name, value in (("CLIENTS", "6"), ("MIB", "16"), ("TURNS", "3")))
NAME = "nearwriter"
VOLUMES = {
    "anywhere": ["--whole-files", "--ignore-topology"],
    "by hops": ["--whole-files"],
    "near writers": ["--whole-files", "--near-writer"],
}
# Nodes of the clients: spread over the torus.
NODES = [1, 6, 11, 16, 3, 8, 9, 14, 2, 7, 12, 13, 4, 5, 10, 15]


class Lab:
    def __init__(self, shoal: str):
        self.shoal = shoal

    def run(self, *words: str) -> str:
        done = subprocess.run([self.shoal, "lab", *words], capture_output=True, text=True)
        if done.returncode != 0:
            raise SystemExit(f"error: shoal lab {' '.join(words)}: {done.stderr[-400:]}")
        return done.stdout

    def at(self, node: int, *words: str) -> subprocess.Popen:
        command = [self.shoal, "lab", "shell", "--name", NAME, str(node), *words]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def all_at(self, commands: list[tuple[int, list[str]]]) -> float:
        """Runs a command at each node at the same time. The seconds until the last has ended."""
        begun = time.monotonic()
        running = [self.at(node, *words) for node, words in commands]
        for process in running:
            _, err = process.communicate(timeout=600)
            if process.returncode != 0:
                raise SystemExit(f"error: {process.args}: {err[-400:]}")
        return time.monotonic() - begun

    def __enter__(self):
        self.run("up", "--name", NAME, "--nodes", "16", "--topology", "torus:4x4", "--link", LINK, "--buffer", BUFFER,
                 "--code", CODE, "--brick", "640M")
        return self

    def __exit__(self, *_):
        subprocess.run([self.shoal, "lab", "down", "--name", NAME], capture_output=True)


def main() -> None:
    shoal = os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else "target/release/shoal")
    nodes = NODES[:CLIENTS]
    rates: dict[tuple[str, str], list[float]] = {}
    with Lab(shoal) as lab:
        for name, words in VOLUMES.items():
            lab.all_at([(1, [shoal, "volume", "create", name.replace(" ", "-"), "--code", CODE, *words])])
            # What is read comes from bricks
            lab.all_at([(1, [shoal, "tune", name.replace(" ", "-"), "io-cache=off"])])
            where = [(node, f"/run/{name.replace(' ', '-')}-{node}") for node in nodes]
            lab.all_at([(node, ["mkdir", "-p", path]) for node, path in where])
            lab.all_at([(node, [shoal, "mount", name.replace(" ", "-"), path]) for node, path in where])
        time.sleep(3)
        for turn in range(TURNS):
            for name in VOLUMES:
                def path(node: int, of: int) -> str:
                    return f"/run/{name.replace(' ', '-')}-{node}/file-{turn}-{of}"
                write = [(node, ["dd", "if=/dev/urandom", f"of={path(node, node)}", "bs=1M", f"count={MIB}", "conv=fsync"])
                         for node in nodes]
                others = nodes[1:] + nodes[:1]
                read = [[(node, ["dd", f"if={path(node, of)}", "of=/dev/null", "bs=1M", "iflag=direct"])
                         for node, of in zip(nodes, of_whom)] for of_whom in (others, nodes)]
                for what, commands in (("write", write), ("read another's", read[0]), ("read one's own", read[1])):
                    rate = CLIENTS * MIB * 1.048576 / lab.all_at(commands)
                    rates.setdefault((what, name), []).append(rate)
                    print(f"  turn {turn + 1}: {what}, {name}: {rate:.1f} MB/s", file=sys.stderr)
    print("| what | " + " | ".join(VOLUMES) + " | near writers / anywhere |\n|---|" + "---|" * (len(VOLUMES) + 1))
    for what in ("write", "read another's", "read one's own"):
        found = [statistics.median(rates[what, name]) for name in VOLUMES]
        print(f"| {what} | " + " | ".join(f"{rate:.1f}" for rate in found) + f" | {found[-1] / found[0]:.2f} |")
    print(json.dumps({f"{what}, {name}": values for (what, name), values in rates.items()}), file=sys.stderr)


if __name__ == "__main__":
    main()
