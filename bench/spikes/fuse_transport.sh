#!/bin/bash
# Measures what the way of a request from the kernel to a FUSE server costs: see fuse_transport.c. Needs root, gcc and
# fio; 4 GiB of free memory for the page cache. It prints one table of medians; what it mounted and started is gone
# afterwards, whatever happens. Settings (environment):
#   RUNS=3 SECONDS_EACH=5   runs of each row and way, and the time of each
#   THREADS=4 DEPTH=16      threads that read /dev/fuse; entries of each ring
#   COUNT=20000             empty files of the rows create, stat, unlink
#   WAYS="inline handoff uring inline-direct"
#       inline         every thread carries its request to its end; like the others it copies what it read into a buffer
#       handoff        the threads hand every request to one thread, which answers it
#       uring          FUSE over io_uring (uring-plain: without DEFER_TASKRUN)
#       inline-direct  as inline, but a READ is answered out of the server's memory, without that copy
#       ...-wb         any of them with the kernel's write-back cache
#   ROWS="rr4k_1 rr4k_16 sr1m_1 sw1m_1 sw4k_1 names"
#   NEEDS_GIB=5             free memory without which it does not start: the page cache of 4 GiB
#   RESULTS=FILE            keep every single figure: row way run ops/s MiB/s mean-us machine-us/op own-us/op req/op
set -u
RUNS=${RUNS:-3} SECONDS_EACH=${SECONDS_EACH:-5} THREADS=${THREADS:-4} DEPTH=${DEPTH:-16} COUNT=${COUNT:-20000}
WAYS=${WAYS:-inline handoff uring inline-direct}
NEEDS_GIB=${NEEDS_GIB:-5}
ROWS=${ROWS:-rr4k_1 rr4k_16 sr1m_1 sw1m_1 sw4k_1 names}
HERE=$(cd "$(dirname "$0")" && pwd)
PARAMETER=/sys/module/fuse/parameters/enable_uring
WORK=$(mktemp -d /tmp/fuse_transport.XXXXXX) || exit 1
MOUNT=$WORK/mount
RESULTS=${RESULTS:-$WORK/results}
SERVER= CONNECTION= BEFORE=

# Runs a command that shall be the first to die if memory ends; this script is not, as it has to clean up.
first_to_die() { echo 1000 >/proc/self/oom_score_adj; exec "$@"; }

abort_connection() {
  [ -n "$CONNECTION" ] && [ -e "/sys/fs/fuse/connections/$CONNECTION/abort" ] &&
    echo 1 >"/sys/fs/fuse/connections/$CONNECTION/abort"
}

# Runs a command that calls the mount for $1 seconds at most. timeout(1) would not do: a caller that waits for an answer
# of the server cannot be killed, and timeout waits for it; so the connection is aborted first, which answers it.
bounded() {
  local until=$((SECONDS + $1)) command
  shift
  (first_to_die "$@") &
  command=$!
  while kill -0 $command 2>/dev/null; do
    if [ $SECONDS -ge $until ]; then
      echo "not finished in time: $*" >>"$WORK/log"
      abort_connection
      sleep 1
      kill -TERM $command 2>/dev/null
      sleep 1
      kill -KILL $command 2>/dev/null
      return 124
    fi
    sleep 0.05
  done
  wait $command
}

# Ends the server, if there is one, and says how it ended. Every step is bounded and the next one is harder.
let_go() {
  local status
  [ -n "$SERVER" ] || return 0
  bounded 20 umount "$MOUNT" 2>>"$WORK/log" || bounded 5 umount -l "$MOUNT" 2>>"$WORK/log"
  for _ in $(seq 400); do kill -0 "$SERVER" 2>/dev/null || break; sleep 0.05; done
  if kill -0 "$SERVER" 2>/dev/null; then # still there: the server itself aborts its connection at SIGTERM
    kill -TERM "$SERVER"
    sleep 1
    abort_connection
    sleep 1
    kill -KILL "$SERVER" 2>/dev/null
  fi
  wait "$SERVER"
  status=$?
  SERVER= CONNECTION=
  return $status
}

the_end() {
  trap - EXIT
  let_go >/dev/null 2>&1
  [ -n "$BEFORE" ] && echo "$BEFORE" >"$PARAMETER"
  rmdir "$MOUNT" 2>/dev/null # not rm -r: a mount that stayed behind must not be walked
  [ -d "$MOUNT" ] || rm -rf "$WORK"
}
trap the_end EXIT
trap 'exit 1' INT TERM HUP

fail() { echo "$*" >&2; tail -n 5 "$WORK"/log "$WORK"/server >&2 2>/dev/null; exit 1; }

# Starts the server of a way and waits for its mount. $2...: further options.
mount_way() {
  local way=$1 options
  shift
  case ${way%-wb} in
    inline) options="--transport dev --threads $THREADS" ;;
    inline-direct) options="--transport dev --threads $THREADS --direct-reply" ;;
    handoff) options="--transport dev --threads $THREADS --handoff" ;;
    uring) options="--transport uring --depth $DEPTH" ;;
    uring-plain) options="--transport uring --depth $DEPTH --plain-ring" ;;
    *) fail "no such way: $way" ;;
  esac
  [ "$way" = "${way%-wb}" ] || options="$options --writeback"
  : >"$WORK/server"
  # shellcheck disable=SC2086
  (first_to_die "$WORK/server.bin" $options --size $((4 << 30)) --max-seconds $((SECONDS_EACH * 4 + 60)) "$@" "$MOUNT") \
    >"$WORK/server" 2>>"$WORK/log" &
  SERVER=$!
  for _ in $(seq 200); do
    CONNECTION=$(sed -n 's/^ready connection=//p' "$WORK/server")
    [ -n "$CONNECTION" ] && return 0
    kill -0 "$SERVER" 2>/dev/null || break
    sleep 0.05
  done
  fail "$way: the server does not mount"
}

machine_ticks() { awk '/^cpu /{print $2+$3+$4+$7+$8}' /proc/stat; }
server_ticks() { sed 's/.*) //' "/proc/$SERVER/stat" | awk '{print $12+$13}'; }

# One row of fio: appends "row way run ops/s MiB/s mean-us machine-us/op own-us/op req/op" to the results.
fio_row() {
  local row=$1 way=$2 run=$3 machine server
  shift 3
  mount_way "$way"
  machine=$(machine_ticks) server=$(server_ticks)
  bounded $((SECONDS_EACH * 2 + 30)) fio --name=row --directory="$MOUNT" --ioengine=psync --direct=0 --fallocate=none \
    --create_on_open=1 --group_reporting --output-format=json --runtime="$SECONDS_EACH" "$@" \
    >"$WORK/fio.json" 2>>"$WORK/log" || fail "$row $way: fio failed"
  machine=$(($(machine_ticks) - machine)) server=$(($(server_ticks) - server))
  let_go || fail "$row $way: the server failed"
  python3 - "$row" "$way" "$run" "$machine" "$server" "$(getconf CLK_TCK)" "$WORK/server" \
    "$WORK/fio.json" >>"$RESULTS" <<'PYTHON' ||
import json, re, sys
row, way, run, machine, server, tick, counted, path = sys.argv[1:]
text = open(path).read()
job = json.loads(text[text.index("{"):text.rindex("}") + 1])["jobs"][0]
side = max(job["read"], job["write"], key=lambda part: part["io_bytes"])
ops = side["total_ios"]
fio_us = (job["usr_cpu"] + job["sys_cpu"]) / 100 * job["job_runtime"] * 1e3
print(row, way, run, f"{side['iops']:.1f} {side['bw_bytes'] / 2**20:.1f} {side['lat_ns']['mean'] / 1e3:.2f}",
      f"{int(machine) * 1e6 / int(tick) / ops:.2f} {(int(server) * 1e6 / int(tick) + fio_us) / ops:.2f}",
      f"{sum(map(int, re.findall(r' (?:read|write)=([0-9]+)', open(counted).read()))) / ops:.3f}")
PYTHON
    fail "$row $way: fio's answer cannot be read"
}

one_cell() {
  local row=$1 way=$2 run=$3
  case $row in
    rr4k_1) fio_row "$@" --rw=randread --bs=4k --size=4g --filename=f0 ;;
    rr4k_16) fio_row "$@" --rw=randread --bs=4k --size=4g --numjobs=16 --filename_format='f$jobnum' ;;
    sr1m_1) fio_row "$@" --rw=read --bs=1m --size=4g --filename=f0 ;;
    sw1m_1) fio_row "$@" --rw=write --bs=1m --size=4g --end_fsync=1 --filename=w ;;
    sw4k_1) fio_row "$@" --rw=write --bs=4k --size=4g --end_fsync=1 --filename=w ;;
    names) # the kernel may keep no names, or stat would ask nobody
      mount_way "$way" --valid 0
      bounded 120 "$WORK/client.bin" --loop "$MOUNT" "$COUNT" "$SERVER" >"$WORK/loop" 2>>"$WORK/log" ||
        fail "$row $way: the loop failed"
      let_go || fail "$row $way: the server failed"
      while read -r phase rest; do echo "$phase $way $run $rest nan"; done <"$WORK/loop" >>"$RESULTS" ;;
    *) fail "no such row: $row" ;;
  esac
}

[ "$(id -u)" = 0 ] || fail "needs root: it mounts, and sets enable_uring"
[ "$(awk '/^MemAvailable/{print int($2 / 1048576)}' /proc/meminfo)" -ge "$NEEDS_GIB" ] ||
  fail "less than $NEEDS_GIB GiB of memory available"
mkdir "$MOUNT" && : >"$WORK/log" && : >"$RESULTS"
gcc -O2 -Wall -Wextra -pthread -o "$WORK/server.bin" "$HERE/fuse_transport.c" "$HERE/null_files.c" &&
  gcc -O2 -Wall -Wextra -o "$WORK/client.bin" "$HERE/fuse_transport_client.c" || fail "it does not build"
if [[ $WAYS == *uring* ]]; then
  [ -e "$PARAMETER" ] || fail "this kernel has no FUSE over io_uring (CONFIG_FUSE_IO_URING)"
  BEFORE=$(cat "$PARAMETER")
  echo Y >"$PARAMETER"
fi

for way in $WAYS; do # what is wrong is not worth measuring
  mount_way "$way"
  bounded 60 "$WORK/client.bin" --check "$MOUNT" >>"$WORK/log" 2>&1 || fail "$way: wrong answers"
  let_go || fail "$way: the server failed"
  # Requests that went another way than the ring would be measured under its name.
  if [[ $way == uring* ]] && ! awk '/^queue/{sum += $3} END{exit !(sum > 300)}' "$WORK/server"; then
    fail "$way: the requests did not come through the rings"
  fi
done
for run in $(seq "$RUNS"); do
  for row in $ROWS; do
    for way in $WAYS; do
      one_cell "$row" "$way" "$run"
      echo "run $run: $row $way done" >&2
    done
  done
done

python3 - "$RESULTS" "$(uname -r), $(nproc) cores; threads $THREADS, depth $DEPTH; $RUNS runs of $SECONDS_EACH s; medians" <<'PYTHON'
import statistics, sys
cells = {}
for line in open(sys.argv[1]):
    row, way, _run, *figures = line.split()
    cells.setdefault((row, way), []).append([float(figure) for figure in figures])
print(sys.argv[2])
print(f"{'row':8} {'way':14} {'ops/s':>9} {'lowest':>9} {'highest':>9} {'MiB/s':>7} {'mean us':>8} "
      f"{'CPU us/op':>10} {'of it fio+server':>17} {'requests/op':>12} {'to inline':>10}")
order = list(dict.fromkeys(row for row, _ in cells))
for row in order:
    for way in [way for at, way in cells if at == row]:
        runs = cells[row, way]
        ops, mib, mean, machine, own, requests = (statistics.median(column) for column in zip(*runs))
        rates = [run[0] for run in runs]
        base = statistics.median(run[0] for run in cells.get((row, "inline"), runs))
        print(f"{row:8} {way:14} {ops:9.0f} {min(rates):9.0f} {max(rates):9.0f} {mib:7.0f} {mean:8.1f} {machine:10.1f} "
              f"{own:17.1f} {requests:12.2f} {ops / base:9.2f}x")
PYTHON
