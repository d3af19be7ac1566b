# What the tests ask of the guest. Each step is a function; what it prints goes to the console, what it says to the test.

say() { echo "say $*" >&3; }

# Says how long the words took to be carried out.
timed() {
  local begun=$(cut -d' ' -f1 /proc/uptime)
  "$@" || return $?
  local ended=$(cut -d' ' -f1 /proc/uptime)
  say "$1 ${2:-}: $(awk "BEGIN { print $ended - $begun }") s"
}

# ---- network block devices -----------------------------------------------------------------------------------------

# attach NUMBER PORT EXPORT [OPTIONS]: /dev/nbdNUMBER is the export.
attach() {
  local number=$1 port=$2 export=$3
  shift 3
  nbd-client 10.0.2.2 "$port" "/dev/nbd$number" -N "$export" "$@"
  say "attached nbd$number: $(cat /sys/block/nbd$number/size) sectors, $(ls /sys/block/nbd$number/mq | wc -l) queues"
}

# detach NUMBER: returns when the device is free for another export.
detach() {
  nbd-client -d "/dev/nbd$1"
  while [ -e "/sys/block/nbd$1/pid" ]; do usleep 50000; done
}

# ---- what is written -----------------------------------------------------------------------------------------------

# verified NAME OPTIONS: writes at random and compares; with --verify_only the same again without the writing.
verified() {
  local name=$1
  shift
  fio --name="$name" --rw=randwrite --size=16m --bs=16k --randseed=7 --randrepeat=1 --ioengine=psync --end_fsync=1 \
    --verify=crc32c --verify_fatal=1 --verify_state_save=0 --do_verify=1 --output-format=terse "$@"
}

# content NUMBER: 64 KiB that nobody else writes.
content() { yes "file $1, told to be stable" | head -c 65536; }

# stable DIR NUMBER: makes a numbered file, and says so when it is stable.
stable() {
  content "$2" | dd of="$1/n-$2" bs=64k iflag=fullblock conv=fsync 2>/dev/null || return 1
  say "stable $1 $2"
}

# stable_range DIR FIRST LAST
stable_range() { for number in $(seq "$2" "$3"); do stable "$1" "$number"; done; }

# compare DIR LAST: the numbered files are there, from the medium.
compare() {
  echo 3 > /proc/sys/vm/drop_caches
  for number in $(seq 1 "$2"); do
    content "$number" | cmp - "$1/n-$number" || { echo "$1/n-$number is not what was told to be stable"; return 1; }
  done
  say "compared $1 $2"
}

# ---- background ----------------------------------------------------------------------------------------------------

# begin NAME WORDS: carries them out beside everything else.
begin() {
  local name=$1
  shift
  (set +e; "$@"; echo $? > "/run/$name.status") &
}

# ended NAME: waits for the end of what was begun; its status.
ended() {
  while [ ! -s "/run/$1.status" ]; do usleep 50000; done
  return "$(cat "/run/$1.status")"
}

# busy DIR: verified writes, and numbered files beside them, until the power fails.
busy() {
  begin "fio-${1##*/}" verified torn --directory="$1" --fsync=16 --verify_backlog=64 --time_based --runtime=600
  begin "files-${1##*/}" stable_range "$1" 1 100000
}

# ---- file systems on disks -----------------------------------------------------------------------------------------

# parallel DEVICE: many requests at a time, on all connections.
parallel() {
  timed verified parallel --filename="$1" --direct=1 --ioengine=libaio --iodepth=32 --bs=4k --size=8m
}

make_ext4() {
  timed mkfs.ext4 -q -F "$1"
  mkdir -p "$2"
  mount -t ext4 "$1" "$2"
}

make_xfs() {
  timed mkfs.xfs -q -f "$1"
  mkdir -p "$2"
  mount -t xfs "$1" "$2"
}

# recover_ext4 DEVICE DIR: the journal is replayed, and nothing else is wrong.
recover_ext4() {
  local status=0
  e2fsck -p "$1" > /tmp/e2fsck || status=$?
  cat /tmp/e2fsck
  # 1: mended. Anything beyond is more than a journal.
  [ "$status" -le 1 ] || return "$status"
  grep -q 'recovering journal' /tmp/e2fsck
  e2fsck -fn "$1"
  say "ext4: $(head -n 1 /tmp/e2fsck); clean"
  mkdir -p "$2"
  mount -t ext4 "$1" "$2"
}

# recover_xfs DEVICE DIR: mounting replays the log, and nothing else is wrong.
recover_xfs() {
  mkdir -p "$2"
  mount -t xfs "$1" "$2"
  dmesg | grep -q 'XFS.*Ending recovery'
  umount "$2"
  xfs_repair -n "$1"
  say "xfs: $(dmesg | grep 'XFS.*Starting recovery' | sed 's/.*XFS/XFS/'); clean"
  mount -t xfs "$1" "$2"
}

# ---- files by NFS --------------------------------------------------------------------------------------------------

mount_nfs() {
  mkdir -p /mnt/nfs
  mount -t nfs -o "vers=3,proto=tcp,mountproto=tcp,nolock,noresvport,hard,port=$1,mountport=$1,actimeo=1" \
    10.0.2.2:/main /mnt/nfs
  say "mounted: $(grep /mnt/nfs /proc/mounts | cut -d' ' -f4)"
}

# seq_file LAST FILE: made stable.
seq_file() { seq 1 "$1" | dd of="$2" bs=64k iflag=fullblock conv=fsync 2>/dev/null; }

same_lines() { seq 1 "$1" | cmp - "$2"; }

# tree DIR: files that are made, moved, linked, cut and removed.
tree() {
  mkdir "$1"
  cd "$1"
  seq 1 300000 > draft
  mv draft done
  ln -s done link
  ln done second
  seq 1 1000 > cut
  truncate -s 2000 cut
  for number in $(seq 1 40); do
    echo "$number" > "made-$number"
    if [ $((number % 2)) = 0 ]; then mv "made-$number" "kept-$number"; else rm "made-$number"; fi
  done
  [ "$(ls | wc -l)" = 24 ]
}

# gone PATH: somebody else has removed it, and that is seen as soon as attributes are old.
gone() { while [ -e "$1" ]; do usleep 100000; done; }

# ---- RAID ----------------------------------------------------------------------------------------------------------

# make_raid DEVICES: level 5, of three.
make_raid() {
  mdadm --create /dev/md0 --run --level=5 --metadata=1.2 --chunk=64 --raid-devices=$# "$@"
  whole
}

# whole: all three take part, and nothing is left to be computed.
whole() { while ! grep -q '\[3/3\]' /proc/mdstat; do usleep 100000; done; }

# drop_failed: the array lets go of the device that failed.
drop_failed() { mdadm /dev/md0 --remove failed; }

# rebuild DEVICE: becomes a part of the array, as if it were new.
rebuild() {
  mdadm --zero-superblock "$1"
  mdadm /dev/md0 --add "$1"
  whole
}

# raid_has NUMBER: so many of its devices take part.
raid_has() {
  cat /proc/mdstat
  say "raid: $(sed -n 's/.*\(\[[0-9]*\/[0-9]*\].*\)/\1/p' /proc/mdstat)"
  grep -q "\[3/$1\]" /proc/mdstat
}
