#!/bin/bash
# What an fsync of a file that grows costs, by two builds in turns: `fsync_append.sh OLD-shoal NEW-shoal [TURNS]`.
# In RAM with one metadata server and code 8+2, and on the disk of the present directory with three and code 2+1.
set -eu
old=$1 new=$2 turns=${3:-3}
work=$(mktemp -d -p "$PWD") ram=$(mktemp -d -p /dev/shm)
trap 'rm -rf "$work" "$ram"' EXIT
cat >"$work/append.py" <<'P'
import os, sys, time
log = os.open(sys.argv[1], os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o644)
took = []
for _ in range(int(sys.argv[2])):
    before = time.perf_counter()
    os.write(log, b"x" * 4096)
    os.fsync(log)
    took.append(time.perf_counter() - before)
took.sort()
print("%-40s median %.0f us" % (sys.argv[3], took[len(took) // 2] * 1e6))
P
run() { # build, directory, servers, code, bricks, records, label
    "$1" up --dir "$2/c" --bricks "$5" --code "$4" --metas "$3" --size 1G >/dev/null 2>&1
    mkdir -p "$2/m"
    "$1" mount main "$2/m" --dir "$2/c" >/dev/null 2>&1
    python3 "$work/append.py" "$2/m/log" "$6" "$7, $4, $3 metadata server(s)"
    "$1" umount "$2/m" >/dev/null 2>&1
    "$1" down --dir "$2/c" >/dev/null 2>&1
    rm -rf "$2/c"
}
for _ in $(seq "$turns"); do
    for build in old new; do
        run "${!build}" "$ram" 1 8+2 10 3000 "$build, RAM"
        run "${!build}" "$work" 3 2+1 3 800 "$build, disk"
    done
done | sort
