"""What the tests of posix.rs do through system calls that the standard library of Rust does not have.

    python3 posix.py CHECK DIRECTORY...

A check that fails says what was found and what should have been.
"""

import ctypes
import errno
import os
import subprocess
import sys
import time

LIBC = ctypes.CDLL(None, use_errno=True)
AT_FDCWD = -100
STRIPE = 2 * 4096 * 64  # of the test's volume: code 2+2, units of 256 KiB
LARGEST = 2**62


def same(found, expected, what):
    if found != expected:
        sys.exit(f"{what}: found {found}, expected {expected}")


def fails(code, what, act):
    try:
        act()
    except OSError as error:
        return same(errno.errorcode[error.errno], errno.errorcode[code], what)
    sys.exit(f"{what}: it worked, expected {errno.errorcode[code]}")


def write(path, data=b"x", at=0):
    fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    os.pwrite(fd, data, at)
    os.close(fd)


def works_without_name(fd, what):
    """A removed file goes on working for whoever has it open."""
    same(os.fstat(fd).st_nlink, 0, f"{what}: links")
    same(os.pread(fd, 5, 0), b"first", f"{what}: what was written before")
    os.pwrite(fd, b"second", 100_000)
    os.fsync(fd)
    same(os.fstat(fd).st_size, 100_006, f"{what}: size")
    same(os.pread(fd, 6, 100_000), b"second", f"{what}: what was written since")
    os.ftruncate(fd, 3)
    same(os.pread(fd, 10, 0), b"fir", f"{what}: what a cut has left")
    os.fsync(fd)
    os.close(fd)


def directory_works_without_name(fd, what):
    """A removed directory has attributes, and neither names nor room for any."""
    os.fchmod(fd, 0o710)
    os.utime(fd, ns=(5, 6))
    os.fchown(fd, 3, 4)
    os.fsync(fd)
    new = lambda: os.open("new", os.O_CREAT | os.O_WRONLY, dir_fd=fd)
    fails(errno.ENOENT, f"{what}: a new file", new)
    fails(errno.ENOENT, f"{what}: a new directory", lambda: os.mkdir("new", dir_fd=fd))
    fails(errno.ENOENT, f"{what}: a link", lambda: os.symlink("x", "new", dir_fd=fd))
    fails(errno.ENOENT, f"{what}: a name", lambda: os.stat("new", dir_fd=fd))
    same(os.listdir(fd), [], f"{what}: its names")
    time.sleep(1.1)  # the kernel believes what it knows of attributes for a second
    found = os.fstat(fd)
    same((found.st_nlink, found.st_mode & 0o7777), (0, 0o710), f"{what}: links and mode")
    same((found.st_uid, found.st_gid, found.st_mtime_ns), (3, 4, 6), f"{what}: owners and time")


def removed(here, there):
    """Files and directories that are removed while they are open, through this mount and another one."""

    def opened(name):
        write(f"{here}/{name}", b"first")
        return os.open(f"{here}/{name}", os.O_RDWR)

    for who in here, there:
        fd = opened("gone")
        os.unlink(f"{who}/gone")
        works_without_name(fd, f"removed at {who}")
        fd = opened("covered")
        write(f"{who}/other")
        os.rename(f"{who}/other", f"{who}/covered")
        works_without_name(fd, f"covered at {who}")
        for empty in lambda: os.rmdir(f"{who}/d"), lambda: os.rename(f"{who}/e", f"{who}/d"):
            for name in "d", "e":
                os.makedirs(f"{here}/{name}", exist_ok=True)
            fd = os.open(f"{here}/d", os.O_RDONLY | os.O_DIRECTORY)
            empty()
            directory_works_without_name(fd, f"a directory that is removed at {who}")
            os.close(fd)
            if os.path.exists(f"{who}/e"):
                os.rmdir(f"{who}/e")
        os.mkfifo(f"{here}/pipe")
        pipe = os.open(f"{here}/pipe", os.O_RDWR)
        os.unlink(f"{who}/pipe")
        os.fchmod(pipe, 0o640)
        same(os.fstat(pipe).st_mode & 0o7777, 0o640, f"the mode of a pipe that is removed at {who}")
        os.close(pipe)


def fallocate(fd, mode, at, length):
    if LIBC.fallocate(fd, mode, ctypes.c_long(at), ctypes.c_long(length)) != 0:
        raise OSError(ctypes.get_errno(), "fallocate")


KEEP_SIZE, PUNCH_HOLE, ZERO_RANGE, COLLAPSE_RANGE = 1, 2, 16, 8


def allocate(here, there):
    """A file gets longer, and holes, through handles of each kind; bytes of others stay."""
    path = f"{here}/allocated"
    for flags in os.O_WRONLY, os.O_RDWR, os.O_WRONLY | os.O_APPEND, os.O_RDWR | os.O_APPEND:
        write(path, b"x" * 10_000)
        fd = os.open(path, flags)
        for at, length, size in (0, 5000, 10_000), (8000, 12_000, 20_000):
            os.posix_fallocate(fd, at, length)
            same(os.fstat(fd).st_size, size, f"flags {flags}: size after {at}, {length}")
        fallocate(fd, KEEP_SIZE, 15_000, 50_000)
        same(os.stat(f"{there}/allocated").st_size, 20_000, "size at the other mount")
        same(open(path, "rb").read(), b"x" * 10_000 + bytes(10_000), "bytes")
        fallocate(fd, PUNCH_HOLE | KEEP_SIZE, 4090, 100)
        fallocate(fd, ZERO_RANGE | KEEP_SIZE, 9990, 50_000)
        same(open(path, "rb").read(), b"x" * 4090 + bytes(100) + b"x" * 5800 + bytes(10_010), "bytes and holes")
        fallocate(fd, ZERO_RANGE, 0, 30_000)
        same(open(path, "rb").read(), bytes(30_000), "zeros")
        fails(errno.EOPNOTSUPP, "a range less", lambda: fallocate(fd, COLLAPSE_RANGE, 0, 4096))
        for mode in 0, KEEP_SIZE:
            fails(errno.EFBIG, "too large", lambda: fallocate(fd, mode, LARGEST, 1))
            fails(errno.ENOSPC, "more than there is", lambda: fallocate(fd, mode, 0, 2**50))
        os.close(fd)
        os.unlink(path)
    fd = os.open(here, os.O_RDONLY)
    fails(errno.EBADF, "for reading only", lambda: fallocate(fd, 0, 0, 1))
    os.close(fd)


def allocate_beside(here, there):
    """Allocation beside programs that write the same file, on this mount and on another one."""
    path, size = f"{here}/beside", 1 << 20
    for other in here, there, there:
        write(path, b"")
        os.truncate(path, size)
        child = os.fork()
        if child == 0:
            fd = os.open(f"{other}/beside", os.O_RDWR)
            for block in reversed(range(0, size, 16384)):
                os.pwrite(fd, b"D", block + 4095)
            os.pwrite(fd, b"D", 3 * size)
            os._exit(0)
        fd = os.open(path, os.O_RDWR)
        for part in range(8):
            os.posix_fallocate(fd, 0, size + part * 4096)
        same(os.waitpid(child, 0)[1], 0, "the other program")
        os.posix_fallocate(fd, 0, 2 * size)
        same(os.fstat(fd).st_size, 3 * size + 1, "nothing gets shorter")
        os.close(fd)
        data = open(path, "rb").read()
        same(len(data), 3 * size + 1, "all of it")
        same(sum(data[at + 4095 : at + 4096] == b"D" for at in range(0, size, 16384)), size // 16384, "what was written")


RENAME_EXCHANGE = 2


def exchange(one, other):
    if LIBC.renameat2(AT_FDCWD, one.encode(), AT_FDCWD, other.encode(), RENAME_EXCHANGE) != 0:
        raise OSError(ctypes.get_errno(), "renameat2")


def put(path, data):
    write(f"{path}.new", data)
    os.rename(f"{path}.new", path)


def read(path):
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError as error:
        return errno.errorcode[error.errno]


def found_by_name(here, there):
    """An open by name finds what the name is of now, although this kernel believes that it knows the name."""

    def known(name):
        """A file that the other mount has made, and this kernel knows."""
        put(f"{there}/{name}", b"old")
        same(read(f"{here}/{name}"), b"old", name)
        os.stat(f"{here}/{name}")
        return f"{here}/{name}", f"{there}/{name}"

    for kept in "closed", "open here", "open there", "with another name", "with a name that is known here":
        ours, theirs = known("replaced")
        keep = os.open(ours if kept == "open here" else theirs, os.O_RDONLY) if kept.startswith("open") else None
        if kept.startswith("with"):
            os.link(theirs, f"{theirs}.bak")
        if kept.endswith("here") and keep is None:
            os.stat(f"{ours}.bak")
        put(theirs, b"new")
        if kept.endswith("here") and keep is None:
            for _ in range(3):
                same(read(f"{ours}.bak"), b"old", f"{kept}: the other name")
        same(read(ours), b"new", kept)
        for _ in range(3):
            same(read(ours), b"new", f"{kept}: again")
        if keep is not None:
            if kept == "open here":
                again = os.open(f"/proc/self/fd/{keep}", os.O_RDONLY)
                same(os.read(again, 9), b"old", "opened again by its descriptor")
                os.close(again)
            same(os.pread(keep, 9, 0), b"old", kept)
            os.close(keep)
        for name in os.listdir(there):
            if name.startswith("replaced"):
                os.unlink(f"{there}/{name}")

    (one, _), (other, _) = known("one"), known("other")
    keep = os.open(one, os.O_RDONLY)
    put(f"{there}/other", b"2nd")
    same(read(other), b"2nd", "the other one")
    exchange(f"{there}/one", f"{there}/other")
    same((read(one), read(other)), (b"2nd", b"old"), "exchanged")
    os.close(keep)

    for what, change, result in (
        ("renamed", lambda theirs: os.rename(theirs, f"{theirs}.moved"), "ENOENT"),
        ("removed", os.unlink, "ENOENT"),
    ):
        ours, theirs = known(what)
        # The new name is that of another file, as far as this kernel knows.
        known(f"{what}.moved")
        keep = os.open(theirs, os.O_RDONLY)
        change(theirs)
        same(read(ours), result, what)
        os.close(keep)
        if what == "renamed":
            same(read(f"{ours}.moved"), b"old", "the new name")

    # What truncates or writes by name does so to the new file.
    for flags in os.O_TRUNC, os.O_APPEND, os.O_CREAT:
        ours, theirs = known("written")
        keep = os.open(theirs, os.O_RDONLY)
        put(theirs, b"new")
        fd = os.open(ours, os.O_WRONLY | flags)
        os.write(fd, b"er")
        os.close(fd)
        same(os.pread(keep, 9, 0), b"old", f"flags {flags}: the old one")
        right = {os.O_TRUNC: b"er", os.O_APPEND: b"newer", os.O_CREAT: b"erw"}[flags]
        same(read(theirs), right, f"flags {flags}: the new one")
        os.close(keep)

    # Names that this mount moves itself stay known.
    write(f"{here}/mine", b"mine")
    for _ in range(10):
        os.rename(f"{here}/mine", f"{here}/mine2")
        os.rename(f"{here}/mine2", f"{here}/mine")
        same(read(f"{here}/mine"), b"mine", "my own")


def seek(here):
    """Holes and data of a file of two ranges, and the programs that ask for them."""
    path, far, end = f"{here}/sparse", 40 * STRIPE, 200 * STRIPE + 5
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
    os.ftruncate(fd, end)
    os.pwrite(fd, b"d" * 8192, far)
    for state in "written", "stable":
        find = lambda at, what: os.lseek(fd, at, what)
        same(find(0, os.SEEK_HOLE), 0, f"{state}: it begins with a hole")
        data = find(0, os.SEEK_DATA)
        if not far - STRIPE < data <= far:
            sys.exit(f"{state}: data at {data}, written at {far}")
        same(find(far + 100, os.SEEK_DATA), far + 100, f"{state}: within the data")
        hole = find(far, os.SEEK_HOLE)
        if not far + 8192 <= hole <= far + 2 * STRIPE:
            sys.exit(f"{state}: a hole at {hole}, written up to {far + 8192}")
        same(find(hole, os.SEEK_HOLE), hole, f"{state}: within the hole")
        for what in os.SEEK_DATA, os.SEEK_HOLE:
            fails(errno.ENXIO, f"{state}: beyond the end", lambda: find(end, what))
        fails(errno.ENXIO, f"{state}: no data after the last", lambda: find(hole, os.SEEK_DATA))
        os.fsync(fd)
    os.close(fd)
    dense = f"{here}/dense"
    write(dense, b"x" * (3 * STRIPE))
    fd = os.open(dense, os.O_RDONLY)
    same((os.lseek(fd, 7, os.SEEK_DATA), os.lseek(fd, 7, os.SEEK_HOLE)), (7, 3 * STRIPE), "a file without holes")
    os.close(fd)
    programs(here, path)


def programs(here, path):
    """cp and tar read little of a hole of 100 MiB."""
    for command in (
        ["cp", "--sparse=auto", path, "/tmp/{pid}.copy"],
        ["tar", "-C", here, "-Scf", "/tmp/{pid}.copy", "sparse"],
    ):
        copy = command[-1 if command[0] == "cp" else 4].format(pid=os.getpid())
        before = bytes_read(here)
        subprocess.run([word.format(pid=os.getpid()) for word in command], check=True)
        read = bytes_read(here) - before
        os.unlink(copy)
        if read > 8 * STRIPE:
            sys.exit(f"{command[0]} has read {read} bytes")


def bytes_read(here):
    with open(f"{here}/.shoal/status") as status:
        return int(next(line.split()[1] for line in status if line.startswith("bytes_read")))


def mapped(here):
    """Bytes that were written by a map, and that only the kernel has, are data."""
    import mmap

    fd = os.open(f"{here}/mapped", os.O_RDWR | os.O_CREAT | os.O_TRUNC)
    os.ftruncate(fd, 100 * STRIPE)
    with mmap.mmap(fd, 100 * STRIPE) as view:
        view[50 * STRIPE] = 7
        data = os.lseek(fd, 0, os.SEEK_DATA)
        if not 49 * STRIPE < data <= 50 * STRIPE:
            sys.exit(f"data at {data}, written at {50 * STRIPE}")
    os.close(fd)


def times(here):
    """Times before 1970 and far ones, to the nanosecond."""
    path = f"{here}/time"
    write(path)
    second = 10**9
    for time_ns in (
        -315_593_940 * second,
        -1,
        -second - 200_000_000,
        0,
        1_700_000_000_123_456_789,
        2**31 * second + 5,
        2**32 * second + 7,
        9_223_372_036 * second,
        -9_223_372_036 * second,
    ):
        os.utime(path, ns=(time_ns, time_ns + 3))
        forget()
        found = os.stat(path)
        same((found.st_atime_ns, found.st_mtime_ns), (time_ns, time_ns + 3), "times")
    before = os.stat(path).st_ctime_ns
    write(path, b"y")
    if not os.stat(path).st_mtime_ns > before - second:
        sys.exit("a write after a time before 1970 does not count")


def far_times(here):
    """Times that are too far become the nearest that there is."""
    path, second = f"{here}/far", 10**9
    write(path)
    for far, nearest in (2**40 * second, 2**63 - 1), (-(2**40) * second, -(2**63)):
        set_time(path, far // second)
        forget()
        same(os.stat(path).st_mtime_ns, nearest, "a time that is too far")


def set_time(path, seconds):
    """utimensat: Python's own refuses what does not fit into 64 bits of nanoseconds."""
    pair = (ctypes.c_long * 4)(seconds, 0, seconds, 0)
    if LIBC.utimensat(AT_FDCWD, path.encode(), pair, 0) != 0:
        raise OSError(ctypes.get_errno(), "utimensat")


def forget():
    with open("/proc/sys/vm/drop_caches", "w") as drop:
        drop.write("2")


def cat(path, flags=0):
    fd = os.open(path, os.O_RDONLY | flags)
    while os.read(fd, 1 << 16):
        pass
    os.close(fd)


def pause():
    """The kernel's clock for times of files stands still for some milliseconds, another one does not."""
    time.sleep(0.02)


def changes(path, act):
    """Which of the three times an act changes."""
    pause()
    before = os.stat(path)
    act()
    after = os.stat(path)
    pairs = zip((before.st_atime_ns, before.st_mtime_ns, before.st_ctime_ns),
                (after.st_atime_ns, after.st_mtime_ns, after.st_ctime_ns))
    return "".join("N" if was == now else "Y" for was, now in pairs)


def relatime(here, there=None):
    """A read counts once after each change, and once a day."""
    path, dir = f"{here}/read", f"{here}/listed"
    write(path, b"aaa")
    same(changes(path, lambda: cat(path)), "YNN", "the first read")
    same(changes(path, lambda: cat(path)), "NNN", "the second read")
    time.sleep(1.5)
    same(changes(path, lambda: cat(path)), "NNN", "a read when the service knows")
    if there:
        same(os.stat(f"{there}/read").st_atime_ns, os.stat(path).st_atime_ns, "what the other mount sees")
    pause()
    write(path, b"bbb")
    same(changes(path, lambda: cat(path)), "YNN", "a read after a write")
    pause()
    os.chmod(path, 0o600)
    same(changes(path, lambda: cat(path)), "YNN", "a read after a change of the mode")
    mtime = os.stat(path).st_mtime_ns
    day_ago = time.time_ns() - 25 * 3600 * 10**9
    os.utime(path, ns=(day_ago, mtime))
    same(os.stat(path).st_atime_ns, day_ago, "a time that was set")
    same(changes(path, lambda: cat(path, os.O_NOATIME)), "NNN", "a read with O_NOATIME")
    same(changes(path, lambda: cat(path)), "YNN", "a read after a day")
    if os.path.isdir(dir):
        os.unlink(f"{dir}/name")
        os.rmdir(dir)
    os.mkdir(dir)
    write(f"{dir}/name")
    same(changes(dir, lambda: os.listdir(dir)), "YNN", "the first listing")
    same(changes(dir, lambda: os.listdir(dir)), "NNN", "the second listing")


def counts(here):
    """A read counts."""
    path = f"{here}/counted"
    write(path, b"aaa")
    same(changes(path, lambda: cat(path)), "YNN", "the first read")


def quiet(here):
    """Nothing that is read changes a time."""
    name = "quiet"
    if not os.path.exists(f"{here}/{name}"):
        write(f"{here}/{name}", b"aaa")
        os.makedirs(f"{here}/d")
    same(changes(f"{here}/{name}", lambda: cat(f"{here}/{name}")), "NNN", "a read")
    same(changes(f"{here}/d", lambda: os.listdir(f"{here}/d")), "NNN", "a listing")


def unchangeable(here):
    """Every change is refused, every read works."""
    same(open(f"{here}/file").read(), "content", "a read")
    os.listdir(here)
    for what, act in {
        "create": lambda: os.open(f"{here}/new", os.O_CREAT | os.O_WRONLY),
        "write": lambda: os.open(f"{here}/file", os.O_WRONLY),
        "truncate": lambda: os.truncate(f"{here}/file", 0),
        "unlink": lambda: os.unlink(f"{here}/file"),
        "mkdir": lambda: os.mkdir(f"{here}/new"),
        "rename": lambda: os.rename(f"{here}/file", f"{here}/g"),
        "chmod": lambda: os.chmod(f"{here}/file", 0o600),
        "utime": lambda: os.utime(f"{here}/file"),
        "link": lambda: os.link(f"{here}/file", f"{here}/l"),
        "symlink": lambda: os.symlink("x", f"{here}/s"),
        "mknod": lambda: os.mkfifo(f"{here}/p"),
    }.items():
        fails(errno.EROFS, what, act)


def quiet_all(here, there):
    """What is read through one mount has no new time, at another one either."""
    write(f"{there}/untouched", b"aaa")
    before = os.stat(f"{there}/untouched").st_atime_ns
    time.sleep(1.1)
    cat(f"{here}/untouched")
    os.listdir(here)
    time.sleep(2.5)
    same(os.stat(f"{here}/untouched").st_atime_ns, before, "here")
    same(os.stat(f"{there}/untouched").st_atime_ns, before, "there")


class Handle(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_uint), ("kind", ctypes.c_int), ("data", ctypes.c_ubyte * 128)]


def handle_of(path):
    handle, mount = Handle(bytes=128), ctypes.c_int()
    if LIBC.name_to_handle_at(AT_FDCWD, path.encode(), ctypes.byref(handle), ctypes.byref(mount), 0) != 0:
        raise OSError(ctypes.get_errno(), "name_to_handle_at")
    return handle


def open_handle(here, handle, flags=os.O_RDONLY):
    at = os.open(here, os.O_RDONLY | os.O_DIRECTORY)
    fd = LIBC.open_by_handle_at(at, ctypes.byref(handle), flags)
    code = ctypes.get_errno()
    os.close(at)
    if fd < 0:
        raise OSError(code, "open_by_handle_at")
    return fd


def take_handles(here, store):
    """Takes handles and keeps them in a file."""
    os.makedirs(f"{here}/up/down")
    for name in "a", "b", "up/c", "up/down/d":
        write(f"{here}/{name}", name.encode())
    with open(store, "wb") as out:
        for name in "a", "b", "up/c", "up/down/d", "up/down":
            out.write(bytes(handle_of(f"{here}/{name}")))


def use_handles(here, store, there):
    """Opens what was kept, after the mount was another one."""
    with open(store, "rb") as kept:
        handles = [Handle.from_buffer_copy(kept.read(ctypes.sizeof(Handle))) for _ in range(5)]
    a, b, c, d, down = handles
    # Of a path that the kernel has not looked up since.
    fd = open_handle(here, d)
    same(os.read(fd, 100), b"up/down/d", "a file far down")
    os.close(fd)
    fd = open_handle(here, down, os.O_RDONLY | os.O_DIRECTORY)
    same(os.readlink(f"/proc/self/fd/{fd}"), f"{here}/up/down", "where a directory is")
    same(os.listdir(fd), ["d"], "what is in it")
    os.close(fd)
    fd = open_handle(here, a, os.O_RDWR)
    os.pwrite(fd, b"A", 0)
    os.close(fd)
    same(open(f"{here}/a").read(), "A", "what was written through a handle")
    os.rename(f"{here}/up/c", f"{here}/moved")
    forget()
    fd = open_handle(here, c)
    same(os.read(fd, 100), b"up/c", "a file that was renamed")
    os.close(fd)
    os.unlink(f"{there}/b")
    os.unlink(f"{here}/a")
    forget()
    time.sleep(1.1)
    for what, handle in ("removed here", a), ("removed elsewhere", b):
        fails(errno.ESTALE, what, lambda: open_handle(here, handle))
    write(f"{here}/a", b"another")
    fails(errno.ESTALE, "another one has its name", lambda: open_handle(here, a))


def privileges(here):
    """An open that truncates takes away what lets a program run as its owner, unless root does it."""
    path = f"{here}/program"
    for mode, left in (0o6777, 0o777), (0o2767, 0o2767), (0o4666, 0o666):
        for user in 0, 1000:
            write(path)
            os.chmod(path, mode)
            child = os.fork()
            if child == 0:
                os.setuid(user)
                os.close(os.open(path, os.O_WRONLY | os.O_TRUNC))
                os._exit(0)
            same(os.waitpid(child, 0)[1], 0, "the open")
            found = os.stat(path)
            same((oct(found.st_mode & 0o7777), found.st_size), (oct(left if user else mode), 0), f"user {user}")
            os.unlink(path)


def largest(here):
    """The largest file there may be."""
    path = f"{here}/largest"
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
    at = LARGEST - 4096
    same(os.pwrite(fd, b"e" * 4096, at), 4096, "the last bytes")
    same(os.fstat(fd).st_size, LARGEST, "its size")
    fails(errno.EFBIG, "a byte more", lambda: os.pwrite(fd, b"e", LARGEST))
    fails(errno.EFBIG, "a larger size", lambda: os.ftruncate(fd, LARGEST + 1))
    same(os.pwrite(fd, b"e" * 4096, LARGEST - 1), 1, "bytes of which one fits")
    os.fsync(fd)
    same(os.pread(fd, 8192, at), b"e" * 4096, "the last bytes, read")
    same(os.pread(fd, 10, 2**61), bytes(10), "a hole")
    os.close(fd)
    forget()
    fd = os.open(path, os.O_RDONLY)
    same(os.pread(fd, 8192, at), b"e" * 4096, "the last bytes, read again")
    same(os.lseek(fd, at + 5, os.SEEK_DATA), at + 5, "data")
    same(os.lseek(fd, 5, os.SEEK_HOLE), 5, "a hole, found")
    # However far the data is, a look for it finds it.
    found = os.lseek(fd, 5, os.SEEK_DATA)
    if not at - STRIPE < found <= at:
        sys.exit(f"data is found at {found}, and was written at {at}")
    same(os.lseek(fd, found, os.SEEK_HOLE), LARGEST, "the end of the data")
    os.close(fd)
    os.unlink(path)


def extents(path):
    """Where a file has data."""
    fd, at, found = os.open(path, os.O_RDONLY), 0, []
    try:
        while True:
            at = os.lseek(fd, at, os.SEEK_DATA)
            end = os.lseek(fd, at, os.SEEK_HOLE)
            found.append((at, end))
            at = end
    except OSError as error:
        same(errno.errorcode[error.errno], "ENXIO", "the end")
    os.close(fd)
    return found


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
