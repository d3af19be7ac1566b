#!/bin/bash
# Measures the ways of a brick's writes, and shows what direct writes beside buffered ones do: see brick_writes.c and
# docs/decisions/0014. Needs root, gcc and xfsprogs; about 2 x MIB of memory. Prints tables of medians; what it mounted
# is gone afterwards. Settings (environment):
#   RUNS=3 MIB=1024        runs of each cell, and the size of its file
#   PLACES="xfs device"    xfs: a file of XFS on a loop device in tmpfs; device: the bare loop device; disk: a file in
#                          DISK_DIR (a directory of the machine's own disk; MIB of it are written again and again)
#   PARTS="move ways hazard"
#   RATES="100 200 400 800 1600"   of units in a second; a brick gets hundreds
#   HAZARD_SECONDS=5 HAZARD_DEPTH=16 HAZARD_KIB="128 16"
#   RESULTS=FILE           keep every single figure: part cell run name value
set -u
RUNS=${RUNS:-3} MIB=${MIB:-1024} PLACES=${PLACES:-xfs device} PARTS=${PARTS:-move ways hazard}
HAZARD_SECONDS=${HAZARD_SECONDS:-5} HAZARD_DEPTH=${HAZARD_DEPTH:-16} HAZARD_KIB=${HAZARD_KIB:-128 16}
RATES=${RATES:-100 200 400 800 1600} DISK_DIR=${DISK_DIR:-}
HERE=$(cd "$(dirname "$0")" && pwd)
WORK=$(mktemp -d /tmp/brick_writes.XXXXXX) || exit 1
MEMORY=$(mktemp -d /dev/shm/brick_writes.XXXXXX) || exit 1
RESULTS=${RESULTS:-$WORK/results}
LOOP=

the_end() {
  trap - EXIT
  mountpoint -q "$WORK/xfs" && umount "$WORK/xfs"
  [ -n "$LOOP" ] && losetup -d "$LOOP"
  [ -n "$DISK_DIR" ] && rm -f "$DISK_DIR/brick_writes.$$"
  rmdir "$WORK/xfs" 2>/dev/null
  rm -rf "$MEMORY"
  [ -d "$WORK/xfs" ] || rm -rf "$WORK"
}
trap the_end EXIT
trap 'exit 1' INT TERM HUP

fail() { echo "$*" >&2; tail -n 5 "$WORK/log" >&2 2>/dev/null; exit 1; }

# The file or device of a place.
target() {
  case $1 in
    xfs) echo "$WORK/xfs/file" ;;
    device) echo "$LOOP" ;;
    disk) echo "$DISK_DIR/brick_writes.$$" ;;
    *) fail "no such place: $1" ;;
  esac
}

# One cell: appends "part cell run name value" to the results. $1...: part, cell, run, the program's words.
cell() {
  local part=$1 name=$2 run=$3
  shift 3
  timeout 300 "$WORK/program" "$@" >"$WORK/out" 2>>"$WORK/log" || fail "$part $name: the program failed"
  sed "s|^|$part $name $run |" "$WORK/out" >>"$RESULTS"
  echo "run $run: $part $name done" >&2
}

[ "$(id -u)" = 0 ] || fail "needs root: it mounts and uses loop devices"
[[ $PLACES == *disk* ]] && [ ! -d "$DISK_DIR" ] && fail "PLACES has disk: DISK_DIR must be a directory"
free=$(awk '/^MemAvailable/{print int($2 / 1024)}' /proc/meminfo)
[ "$free" -ge $((MIB * 4 + 512)) ] || fail "$free MiB of memory are available, $((MIB * 4 + 512)) are needed"
: >"$WORK/log"; : >"$RESULTS"
gcc -O2 -Wall -Wextra -pthread -o "$WORK/program" "$HERE/brick_writes.c" || fail "it does not build"
mkdir "$WORK/xfs"
# The images are filled first: a page of the tmpfs that is touched for the first time costs more than later.
if [[ $PLACES == *xfs* || $PARTS == *hazard* || $PARTS == *ways* ]]; then
  dd if=/dev/zero of="$MEMORY/xfs" bs=1M count=$((MIB + 400)) status=none || fail "no room in /dev/shm"
  mkfs.xfs -q -f -K "$MEMORY/xfs" && mount -o loop,noatime "$MEMORY/xfs" "$WORK/xfs" || fail "XFS cannot be mounted"
fi
if [[ $PLACES == *device* ]]; then
  dd if=/dev/zero of="$MEMORY/device" bs=1M count="$MIB" status=none || fail "no room in /dev/shm"
  LOOP=$(losetup -f --show "$MEMORY/device") || fail "no loop device"
fi

for run in $(seq "$RUNS"); do
  for place in $PLACES; do
    [[ $PARTS == *move* ]] || continue
    for way in buffered+buffered direct+buffered direct+direct; do
      cell move "$place/$way" "$run" move "$(target "$place")" "$MIB" "${way%+*}" "${way#*+}"
    done
    [ "$place" = device ] || rm -f "$(target "$place")"
  done
  for blocks in sparse allocated; do
    [[ $PARTS == *ways* ]] || continue
    for words in "plain beside mtime 0" "nowait beside mtime 0" "ring beside mtime 0" "nowait beside notime 0" \
      "nowait inline mtime 0" "nowait inline notime 0"; do
      # shellcheck disable=SC2086
      set -- $words
      cell ways "$blocks/$1/$2/$3" "$run" ways "$WORK/xfs/file" "$MIB" "$1" "$blocks" "$2" "$3" "$4"
    done
    rm -f "$WORK/xfs/file"
  done
  for rate in $RATES; do # two seconds of each: the share of refusals hangs on the rate, not on how much it is
    [[ $PARTS == *ways* ]] || continue
    for words in "plain mtime" "nowait mtime" "nowait notime"; do
      # shellcheck disable=SC2086
      set -- $words
      cell paced "$rate-units-per-s/$1/$2" "$run" ways "$WORK/xfs/file" $((rate / 4 + 1)) "$1" allocated beside "$2" "$rate"
    done
  done
done
if [[ $PARTS == *hazard* ]]; then
  warnings() { dmesg 2>/dev/null | grep -c 'Page cache invalidation failure on direct I/O'; }
  for kib in $HAZARD_KIB; do
    for how in none read mmap-read write mmap-write; do
      before=$(warnings)
      cell hazard "$how/$kib-KiB" 1 hazard "$WORK/xfs/file" $((MIB / 4)) "$how" "$HAZARD_SECONDS" "$HAZARD_DEPTH" "$kib"
      # The kernel says so ten times a day at most
      echo "hazard $how/$kib-KiB 1 kernel_warnings $(($(warnings) - before))" >>"$RESULTS"
    done
  done
fi

python3 - "$RESULTS" "$(uname -r), $(nproc) cores; $MIB MiB; $RUNS runs; medians; CPU of the whole machine" <<'PYTHON'
import statistics, sys
parts = {}
for line in open(sys.argv[1]):
    part, cell, _run, name, value = line.split()
    parts.setdefault(part, {}).setdefault(cell, {}).setdefault(name, []).append(float(value))
print(sys.argv[2])
for part, cells in parts.items():
    names = list(dict.fromkeys(name for figures in cells.values() for name in figures))
    body = [[f"{statistics.median(figures[name]):.5g}" if name in figures else "-" for name in names]
            for figures in cells.values()]
    head = [name.replace("_per_", "/").replace("cpu_s", "cpu-s").replace("_", " ") for name in names]
    widths = [max(map(len, [head[i], *(line[i] for line in body)])) for i in range(len(names))]
    first = max(len(cell) for cell in cells)
    print()
    print(part.ljust(first), *(text.rjust(width) for text, width in zip(head, widths)), sep="  ")
    for cell, line in zip(cells, body):
        print(cell.ljust(first), *(text.rjust(width) for text, width in zip(line, widths)), sep="  ")
PYTHON
