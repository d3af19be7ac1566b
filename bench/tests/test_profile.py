import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from harness.profile_shoal import Sample, classify, parse, shown  # noqa: E402

KERNEL, SHOAL, LIBC = "[kernel.kallsyms]", "/mnt/shoal", "/usr/lib/libc.so.6"
OURS = {7}


def kind(*frames: tuple[str, str], comm: str = "shoal", pid: int = 7) -> str | None:
    return classify(Sample(comm, pid, list(frames)), OURS)


class Classify(unittest.TestCase):
    def test_the_innermost_frame_that_says_something(self):
        self.assertEqual(kind(("_copy_to_iter", KERNEL), ("tcp_recvmsg", KERNEL), ("store::slot::read", SHOAL)), "copies")
        self.assertEqual(kind(("try_to_wake_up", KERNEL), ("sock_def_readable", KERNEL)), "locks and scheduling")
        self.assertEqual(kind(("nothing_known", KERNEL), ("tcp_sendmsg", KERNEL)), "network")

    def test_shoal_itself(self):
        self.assertEqual(kind(("store::slot::plan", SHOAL)), "Shoal's logic")
        self.assertEqual(kind(("crc32c::hw_x86_64::crc_u64_parallel3", SHOAL)), "checksums")
        self.assertEqual(kind(("rusty_erasure_accel::x86::imp::mad_gfni", SHOAL)), "code")
        self.assertEqual(kind(("cfree@GLIBC_2.2.5", LIBC)), "allocation")
        self.assertEqual(kind(("fget", KERNEL), ("do_syscall_64", KERNEL), ("main", SHOAL)), "other kernel")

    def test_page_cache_belongs_to_whose_it_is(self):
        self.assertEqual(kind(("filemap_get_pages", KERNEL), ("fuse_file_read_iter", KERNEL), comm="fio", pid=9), "FUSE")
        self.assertEqual(kind(("filemap_get_pages", KERNEL), ("xfs_file_read_iter", KERNEL)), "brick I/O")

    def test_load_kernel_threads_and_others(self):
        self.assertEqual(kind(("get_io_u", "/usr/bin/fio"), comm="fio", pid=9), "load")
        self.assertEqual(kind(("loop_process_work", KERNEL), ("ret_from_fork_asm", KERNEL), comm="kworker", pid=-1),
                         "brick I/O")
        self.assertEqual(kind(("malloc", LIBC), comm="rustc", pid=-1), "outside")
        self.assertEqual(kind(("clear_page_rep", KERNEL), ("exc_page_fault", KERNEL), comm="rustc", pid=-1), "outside")
        self.assertIsNone(kind(("pv_native_safe_halt", KERNEL), ("do_idle", KERNEL), comm="swapper", pid=0))

    def test_kernel_threads_have_a_name(self):
        loop = [("loop_process_work", KERNEL), ("ret_from_fork_asm", KERNEL)]
        self.assertEqual(shown(Sample("swapper", 0, loop)), "kernel threads")
        self.assertEqual(shown(Sample(":-1", -1, loop)), "kernel threads")
        self.assertEqual(shown(Sample("shoal", 7, loop)), "shoal")
        self.assertEqual(shown(Sample("rustc", -1, [("malloc", LIBC)])), "rustc")


class Parse(unittest.TestCase):
    def test_perf_script(self):
        text = ("fio  42 \n\tffffffff81 _raw_spin_lock ([kernel.kallsyms])\n\t  101a07 f<A>::g (x) (/usr/bin/fio)\n\n"
                "lto cgu.04 19130 \n\t 8af1a5e llvm::X (/lib/x.so)\n\nswapper     0 \n\n")
        found = list(parse(iter(text.splitlines(keepends=True))))
        self.assertEqual([(s.comm, s.pid, len(s.frames)) for s in found],
                         [("fio", 42, 2), ("lto cgu.04", 19130, 1), ("swapper", 0, 0)])
        self.assertEqual(found[0].frames[0], ("_raw_spin_lock", "[kernel.kallsyms]"))


if __name__ == "__main__":
    unittest.main()
