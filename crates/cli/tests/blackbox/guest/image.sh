#!/bin/sh
# Builds the file system that the guest starts from: image.sh KERNEL ROOT IMAGE
#   KERNEL  a Debian package of a kernel, unpacked, with its modules.dep
#   ROOT    an empty directory, IMAGE the file to be made
set -eu
kernel=$1 root=$2 image=$3
here=$(dirname "$0")

# Loaded in this order by `init`.
modules="virtio_pci virtio_net nbd md-mod raid456 xfs nfs nfsv3"
programs="busybox fio nbd-client mdadm mkfs.ext4 e2fsck mkfs.xfs xfs_repair"

version=$(ls "$kernel/lib/modules")
from=$kernel/lib/modules/$version to=$root/lib/modules/$version
mkdir -p "$root/bin" "$root/dev" "$root/etc" "$root/mnt" "$root/proc" "$root/run" "$root/sys" "$root/tmp" "$to"

cp "$here/init" "$here/steps.sh" "$root/"
chmod 755 "$root/init"
echo "$modules" > "$root/modules"
: > "$root/etc/fstab"
: > "$root/etc/mtab"

# modules.dep has a line for each module, with everything that it needs: "path/name.ko: path/other.ko ..."
for module in $modules; do
  line=$(grep "/$module\.ko:" "$from/modules.dep") || { echo "$0: kernel $version has no module $module" >&2; exit 1; }
  for file in $(echo "$line" | tr -d :); do
    mkdir -p "$to/$(dirname "$file")"
    cp "$from/$file" "$to/$file"
    grep "^$file:" "$from/modules.dep" >> "$to/modules.dep"
  done
done

for program in $programs; do
  path=$(command -v "$program") || { echo "$0: $program is missing; see ./dev test for what it needs" >&2; exit 1; }
  cp "$path" "$root/bin/$program"
  # The libraries, and the loader, which ldd shows without an arrow. A static program has none, and ldd complains.
  for library in $(ldd "$path" 2>/dev/null | sed -n 's/.*=> \(\/[^ ]*\).*/\1/p; s/^[[:space:]]*\(\/[^ ]*\) (.*/\1/p'); do
    [ -e "$root$library" ] || { mkdir -p "$root$(dirname "$library")"; cp -L "$library" "$root$library"; }
  done
done

(cd "$root" && find . | busybox cpio --quiet -o -H newc) > "$image"
