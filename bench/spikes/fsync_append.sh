#!/bin/bash
# What an fsync of a file that grows costs, by two builds in turns: `fsync_append.sh OLD-shoal NEW-shoal [TURNS]`.
# In RAM with one metadata server and code 8+2, and on the disk of the present directory with three and code 2+1.
set -eu
old=$1 new=$2 turns=${3:-3} build=
work=$(mktemp -d -p "$PWD") ram=$(mktemp -d -p /dev/shm)
down() {
    "${!build}" umount "$1/m" >>"$work/log" 2>&1
    "${!build}" down --dir "$1/c" >>"$work/log" 2>&1
    rm -rf "$1/c"
}
end() {
    for dir in "$work" "$ram"; do
        [ ! -d "$dir/c" ] || down "$dir" || { cat "$work/log"; echo "$dir is left as it is" >&2; exit 1; }
    done
    rm -rf "$work" "$ram"
}
trap end EXIT
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
run() { # directory, servers, code, bricks, records, label
    "${!build}" up --dir "$1/c" --bricks "$4" --code "$3" --metas "$2" --size 1G >>"$work/log" 2>&1
    mkdir -p "$1/m"
    "${!build}" mount main "$1/m" --dir "$1/c" >>"$work/log" 2>&1
    python3 "$work/append.py" "$1/m/log" "$5" "$6, $3, $2 metadata server(s)" >>"$work/table"
    down "$1"
}
for _ in $(seq "$turns"); do
    for build in old new; do
        run "$ram" 1 8+2 10 3000 "$build, RAM"
        run "$work" 3 2+1 3 800 "$build, disk"
    done
done
sort "$work/table"
