#!/bin/bash
# Measures Shoal with several unit sizes by turns and prints one table of medians, with CPU: see docs/decisions/0016.
# Each turn is a whole run of the harness, which starts and ends a cluster of its own. Needs what ./dev bench needs.
#   RUNS=3 SECONDS_EACH=5 LONG_SECONDS=30    turns of each size; times of a row and of random writes
#   UNITS="64K 128K 512K 1M"
#   ROWS='^(seq-write-1m-1j|seq-read-1m-1j|rand-read-4k-16j|rand-write-4k-10j|create-1k)$'
#   BINARY=FILE        the shoal to measure, instead of building one
#   OUT=DIR            keep the harness's own results
set -u
RUNS=${RUNS:-3} SECONDS_EACH=${SECONDS_EACH:-5} LONG_SECONDS=${LONG_SECONDS:-30}
UNITS=${UNITS:-64K 128K 512K 1M}
ROWS=${ROWS:-'^(seq-write-1m-1j|seq-read-1m-1j|rand-read-4k-16j|rand-write-4k-10j|create-1k)$'}
HERE=$(cd "$(dirname "$0")/../.." && pwd)
WORK=$(mktemp -d /tmp/unit_sizes.XXXXXX) || exit 1
OUT=${OUT:-$WORK}
trap 'rm -rf "$WORK"' EXIT
trap 'exit 1' INT TERM HUP
binary=()
[ -n "${BINARY:-}" ] && binary=(--binary "$BINARY")

for run in $(seq "$RUNS"); do
  for unit in $UNITS; do
    "$HERE/dev" bench "${binary[@]}" --unit "$unit" --runs 1 --seconds "$SECONDS_EACH" --long-seconds "$LONG_SECONDS" \
      --rows "$ROWS" --out "$OUT/$unit.$run" >"$WORK/log" 2>&1 || { tail -n 20 "$WORK/log" >&2; exit 1; }
    echo "run $run: $unit done" >&2
  done
done

python3 - "$OUT" "$RUNS" "$UNITS" <<'PYTHON'
import json, statistics, sys
out, runs, units = sys.argv[1], int(sys.argv[2]), sys.argv[3].split()
found, about, peaks = {}, {}, {}
for unit in units:
    for run in range(1, runs + 1):
        document = json.load(open(f"{out}/{unit}.{run}/results.json"))
        for line in document["summary"]:
            about[line["row"]] = (line["unit"], "s/GiB" if line["cpu_per"] == "GiB" else "us/op")
            found.setdefault((line["row"], unit), []).append((line["median"]["shoal"], line["cpu"]["shoal"]))
        for kind, peak in document["memory"].get("shoal", {}).items():
            peaks.setdefault((kind, unit), []).append(peak["high_water_kib"] / 1024)

def middle(values):
    values = [value for value in values if value is not None]
    return f"{statistics.median(values):.4g}" if values else "failed"

print(f"medians of {runs} turns; CPU of the whole machine")
print("row".ljust(20), *(f"{unit:>9} {'CPU':>8}" for unit in units), " unit, CPU is")
for row, (unit_of, cpu_of) in about.items():
    cells = [f"{middle(v for v, _ in found[row, unit]):>9} {middle(c for _, c in found[row, unit]):>8}"
             for unit in units]
    print(row.ljust(20), *cells, f" {unit_of}, {cpu_of}")
for kind in dict.fromkeys(kind for kind, _ in peaks):
    print(f"{kind}, MiB".ljust(20), *(f"{middle(peaks[kind, unit]):>9} {'':8}" for unit in units), " highest of one process")
PYTHON
