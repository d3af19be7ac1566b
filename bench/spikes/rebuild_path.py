#!/usr/bin/env python3
"""What it is worth on a torus that lost units come to the primary as sums along a path of members.

bench/spikes/rebuild_path.py [SHOAL]: a lab of 4x4 nodes with cables of LINK (50mbit), and a volume with code CODE (4+2) placed by
hops. In each of TURNS (3) turns node 16 is killed, MIB (256) are written without it in files of 4 MiB, and it is started again; what counts is the time
from then until its groups have all their units, once with the topology known (paths) and once with it forgotten (gathered). Needs
root.
"""

import json
import os
import statistics
import subprocess
import sys
import time

LINK, CODE = os.environ.get("LINK", "50mbit"), os.environ.get("CODE", "4+2")
MIB, TURNS = int(os.environ.get("MIB", "256")), int(os.environ.get("TURNS", "3"))
NAME = "rebuildpath"
NODE = "16"
# MiB of a file: some stripes.
FILE = 4


def main() -> None:
    shoal = os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else "target/release/shoal")

    def lab(*words: str) -> str:
        done = subprocess.run([shoal, "lab", *words], capture_output=True, text=True, timeout=300)
        if done.returncode != 0:
            raise SystemExit(f"error: shoal lab {' '.join(words)}: {done.stderr[-400:]}")
        return done.stdout

    def at(node: str, *words: str) -> str:
        return lab("shell", "--name", NAME, node, *words)

    def out() -> tuple[int, bool]:
        """How many slots are out, and whether the brick of the node is."""
        status = json.loads(at("1", shoal, "status", "--json"))
        return status["progress"]["out"], any(brick["state"] == "out" for brick in status["bricks"])

    def wait(what: str, seconds: int, is_so) -> None:
        end = time.monotonic() + seconds
        while not is_so():
            if time.monotonic() > end:
                raise SystemExit(f"error: {what} after {seconds} s")
            time.sleep(0.2)

    times: dict[str, list[float]] = {"path": [], "gathered": []}
    lab("up", "--name", NAME, "--nodes", "16", "--topology", "torus:4x4", "--link", LINK, "--code", CODE, "--brick", "640M")
    try:
        text = at("1", shoal, "topology", "show", "--text")
        mount = at("1", "pwd").strip()
        for turn in range(TURNS):
            for way in ("path", "gathered") if turn % 2 == 0 else ("gathered", "path"):
                at("1", "sh", "-c", f"rm -f {mount}/file*; sync -f {mount}")
                lab("kill", "--name", NAME, NODE)
                wait("the brick is still in use", 60, lambda: out()[1])
                # A file's first 64 stripes are in one group: many files are in many.
                at("1", "sh", "-c", f"for i in $(seq {MIB // FILE}); do dd if=/dev/urandom of={mount}/file$i bs={FILE}M count=1 "
                   f"2>/dev/null || exit 1; done; sync -f {mount}")
                if way == "path":
                    subprocess.run([shoal, "lab", "shell", "--name", NAME, "1", shoal, "topology", "set", "--file", "-", "--may-move"],
                                   input=text, text=True, check=True, capture_output=True)
                else:
                    at("1", shoal, "topology", "set", "none", "--may-move")
                begun = time.monotonic()
                lab("heal", "--name", NAME)
                wait("the brick has not come back", 60, lambda: not out()[1])
                back = time.monotonic()
                wait("slots are still out", 600, lambda: out()[0] == 0)
                times[way].append(time.monotonic() - back)
                print(f"  turn {turn + 1}: {way}: back after {back - begun:.1f} s, filled {times[way][-1]:.1f} s later",
                      file=sys.stderr)
    finally:
        subprocess.run([shoal, "lab", "down", "--name", NAME], capture_output=True)
    found = {way: statistics.median(values) for way, values in times.items()}
    print("| way | seconds until the brick is filled |\n|---|---|")
    for way, seconds in found.items():
        print(f"| {way} | {seconds:.1f} |")
    print(f"| gathered / path | {found['gathered'] / found['path']:.2f} |")


if __name__ == "__main__":
    main()
