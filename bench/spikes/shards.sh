#!/bin/bash
# Small files in two volumes, where each metadata server has a part of a core of its own: `shards.sh SHOAL [PERCENT] [TURNS]`.
# So a machine with two cores shows what several machines would: the servers are the bottleneck, not the clients and bricks beside
# them. Bricks and stores in RAM (tmpfs), code 2+1. Needs the cpu controller of cgroups (v1). The processors are kept awake, as in
# names.py, unless ASLEEP is set.
#
#   one          one server
#   three        three servers, each on a machine of its own
#   two shards   two servers, each the only one of a shard with one of the volumes
#   spread       two shards with three servers each, on three machines; two different machines lead
set -eu
shoal=$(readlink -f "$1") percent=${2:-20} turns=${3:-3}
here=$(cd "$(dirname "$0")/.." && pwd)
ram=$(mktemp -d -p /dev/shm)
groups=/sys/fs/cgroup/cpu/shoal-shards-$$
cc -O2 -o "$ram/load" "$here/load/metadata.c"
export SHOAL_KEY_FILE=$ram/key
pids=()
end() {
    for volume in a b; do mountpoint -q "$ram/$volume" && "$shoal" umount "$ram/$volume" || true; done
    for pid in "${pids[@]}"; do kill -9 "$pid" 2>/dev/null || true; done
    for pid in "${pids[@]}"; do wait "$pid" 2>/dev/null || true; done
    pids=()
    for machine in "$groups"/*/; do [ ! -d "$machine" ] || rmdir "$machine"; done
    [ ! -d "$groups" ] || rmdir "$groups"
    rm -rf "$ram"/meta* "$ram"/disk* "$ram"/log*
}
trap 'end >/dev/null 2>&1; rm -rf "$ram"' EXIT
[ -n "${ASLEEP:-}" ] || { exec 9>/dev/cpu_dma_latency; printf '\0\0\0\0' >&9; }
begin() { # log, command
    local log=$ram/log-$1; shift
    "$@" >"$log" 2>&1 </dev/null & pids+=($!)
    for _ in $(seq 300); do grep -q 'listening at' "$log" && return; sleep 0.1; done
    cat "$log" >&2; exit 1
}
server() { # machine, store, port, more
    mkdir -p "$groups/$1"
    echo $((percent * 1000)) >"$groups/$1/cpu.cfs_quota_us"
    local machine=$1 store=$2 port=$3; shift 3
    begin "$store" sh -c 'echo $$ >"$0/tasks"; exec "$@"' "$groups/$machine" \
        "$shoal" meta --dir "$ram/$store" --listen "127.0.0.1:$port" "$@"
}
lead() { # port, shard: until that server leads
    for _ in $(seq 100); do "$shoal" meta lead "127.0.0.1:$1" --shard "$2" >/dev/null 2>&1 && return; sleep 0.2; done
    echo "127.0.0.1:$1 does not lead" >&2; exit 1
}
run() { # case
    export SHOAL_META=127.0.0.1:27400
    "$shoal" cluster init --dir "$ram/meta" >/dev/null
    install -m 600 "$ram/meta/key" "$ram/key"
    server 1 meta 27400
    case $1 in three | spread)
        server 2 meta-b 27401 --join 127.0.0.1:27400
        server 3 meta-c 27402 --join 127.0.0.1:27400
        SHOAL_META=127.0.0.1:27400,127.0.0.1:27401,127.0.0.1:27402
        for _ in $(seq 100); do [ "$("$shoal" meta list | grep -c follows)" = 2 ] && break; sleep 0.2; done
        lead 27400 0 ;;
    esac
    for n in 1 2 3; do
        begin "brick$n" "$shoal" brick --disk "$ram/disk$n" --format --size 2G --id $n --node $n --listen "127.0.0.1:2741$n"
    done
    local second=0
    case $1 in two* | spread)
        second=1
        "$shoal" cluster init --dir "$ram/meta1" --shard-of "$SHOAL_META" >/dev/null
        server 2 meta1 27500
        if [ "$1" = spread ]; then
            server 1 meta1-b 27501 --join 127.0.0.1:27500
            server 3 meta1-c 27502 --join 127.0.0.1:27500
            for _ in $(seq 100); do [ "$("$shoal" meta list | grep -c follows)" = 4 ] && break; sleep 0.2; done
            lead 27500 1
        fi ;;
    esac
    for _ in $(seq 100); do "$shoal" volume create a --code 2+1 --shard 0 >/dev/null 2>&1 && break; sleep 0.2; done
    for _ in $(seq 100); do "$shoal" volume create b --code 2+1 --shard $second >/dev/null 2>&1 && break; sleep 0.2; done
    for volume in a b; do mkdir -p "$ram/$volume"; "$shoal" mount $volume "$ram/$volume" >/dev/null; mkdir "$ram/$volume/d"; done
    local row="$1"
    for what in create stat unlink; do
        local loads=()
        for volume in a b; do
            # The kernel asks the server for each name.
            [ $what = create ] && more="400 4 60 100000" || more=$(cut -d' ' -f3- "$ram/made-$volume")
            # shellcheck disable=SC2086
            "$ram/load" $what "$ram/$volume/d" 4 $more >"$ram/$what-$volume" & loads+=($!)
        done
        for load in "${loads[@]}"; do wait "$load"; done
        [ $what = create ] && for volume in a b; do cp "$ram/create-$volume" "$ram/made-$volume"; done
        [ $what = create ] && for volume in a b; do
            "$shoal" umount "$ram/$volume" >/dev/null; "$shoal" mount $volume "$ram/$volume" >/dev/null
        done
        row="$row,$(awk '{ sum += $1 / $2 } END { printf "%.0f", sum }' "$ram/$what-a" "$ram/$what-b")"
    done
    echo "$row" >>"$ram/table"
    end
}
for _ in $(seq "$turns"); do
    for case in one three 'two shards' spread; do run "$case"; done
done
python3 - "$ram/table" "$percent" <<'P'
import statistics, sys
rows = {}
for line in open(sys.argv[1]):
    name, *rates = line.strip().split(",")
    rows.setdefault(name, []).append([float(rate) for rate in rates])
print(f"each machine of the servers has {sys.argv[2]} % of a core; files per second in both volumes, medians")
print("%-12s %22s %22s %22s" % ("", "create, write, close", "stat", "unlink"))
one = [statistics.median(column) for column in zip(*rows["one"])]
for name, turns in rows.items():
    medians = [statistics.median(column) for column in zip(*turns)]
    print("%-12s " % name + " ".join("%14.0f (%5.2f)" % (m, m / o) for m, o in zip(medians, one)))
P
