import io
import os
import subprocess
import sys
import tempfile
import threading
import unittest
from pathlib import Path

TOOLS = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(TOOLS))

from test_progress import Progress, follow, report  # noqa: E402

RUNNING = "     Running tests/blackbox/main.rs (target/release/deps/blackbox-0123456789abcdef)"


class Clock:
    """Time goes on only when a test says so."""

    def __init__(self):
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Lines(unittest.TestCase):
    def progress(self, **how) -> Progress:
        self.clock, self.out = Clock(), io.StringIO()
        return Progress(self.out.write, clock=self.clock, **how)

    def feed(self, progress: Progress, *lines: str | tuple[float, str]) -> str:
        """What is shown for these lines. A number before a line is the time that passes before it."""
        before = self.out.tell()
        for line in lines:
            seconds, text = line if isinstance(line, tuple) else (0.0, line)
            self.clock.now += seconds
            progress.line(text)
        return self.out.getvalue()[before:]

    def test_slow_and_failed_tests_are_shown_and_quick_ones_are_counted(self):
        progress = self.progress(one_at_a_time=True)
        shown = self.feed(progress, RUNNING, "", "running 4 tests", (0.3, "test a ... ok"), (3.2, "test b::c ... ok"),
                          "test d ... ignored, boots a guest", (0.5, "test e ... FAILED"))
        self.assertEqual(shown, f"{RUNNING}\n\nrunning 4 tests\n[2/4] 3.2 s ok b::c\n[4/4] 0.5 s FAILED e\n")
        self.assertEqual([(round(t[0], 1), *t[1:]) for t in progress.tests],
                         [(0.3, "ok", "blackbox", "a"), (3.2, "ok", "blackbox", "b::c"), (0.5, "FAILED", "blackbox", "e")])

    def test_quick_tests_give_a_line_now_and_then(self):
        progress = self.progress(one_at_a_time=True)
        quick = [(0.9, f"test t{n} ... ok") for n in range(30)]
        shown = self.feed(progress, "running 30 tests", *quick)
        self.assertEqual(shown, "running 30 tests\n[12/30] after 11 s\n[24/30] after 22 s\n")

    def test_everything_about_failures_goes_through_unchanged(self):
        lines = ["failures:", "", "---- a stdout ----", "test of mine ... ok", "running 3 tests", "ok",
                 "thread 'a' panicked at x.rs:1:2:", "", "failures:", "    a", "",
                 "test result: FAILED. 0 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.01s", "",
                 "error: test failed, to rerun pass `-p cli --test blackbox`"]
        progress = self.progress(one_at_a_time=True)
        self.feed(progress, RUNNING, "running 1 test", "test a ... FAILED")
        self.assertEqual(self.feed(progress, *lines), "".join(f"{line}\n" for line in lines))
        self.assertEqual(len(progress.tests), 1)

    def test_after_a_failure_the_next_program_is_counted_again(self):
        progress = self.progress(one_at_a_time=True)
        self.feed(progress, RUNNING, "running 1 test", "test a ... FAILED", "failures:", "    a")
        shown = self.feed(progress, RUNNING, "running 1 test", (2.0, "test b ... ok"))
        self.assertTrue(shown.endswith("[1/1] 2.0 s ok b\n"), shown)

    def test_what_a_test_prints_itself_goes_through(self):
        progress = self.progress(one_at_a_time=True)
        shown = self.feed(progress, "running 2 tests", "test a ... round 0: 12 MiB fit", "test result: none of cargo's",
                          (4.0, "ok"), "test b ... ok")
        self.assertEqual(shown, "running 2 tests\ntest a ... round 0: 12 MiB fit\ntest result: none of cargo's\n"
                                "[1/2] 4.0 s ok a\n")
        self.assertEqual(progress.done, 2)

    def test_a_lost_result_is_counted(self):
        progress = self.progress(one_at_a_time=True)
        self.feed(progress, "running 2 tests", "test a ... some text", "and more without an end ok")
        self.assertIn("[2/2] 7.0 s ok b", self.feed(progress, (1.0, "test b ... text"), (7.0, "ok")))

    def test_tests_in_parallel_have_no_times_but_their_program_has(self):
        progress = self.progress()
        result = "test result: ok. 2 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 12.50s"
        shown = self.feed(progress, RUNNING, "running 2 tests", (5.0, "test a ... ok"), (7.5, "test b ... ok"), "", result)
        self.assertEqual(shown, f"{RUNNING}\nrunning 2 tests\n[2/2] after 12 s\n\n{result}\n")
        self.assertEqual((progress.tests, progress.programs), ([], [(12.5, 2, "blackbox")]))

    def test_documentation_is_a_program_too(self):
        progress = self.progress()
        self.feed(progress, "   Doc-tests types", "running 1 test", "test crates/types/src/buf.rs - buf (line 12) ... ok",
                  "test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.25s")
        self.assertEqual(progress.programs, [(0.25, 1, "types (examples in the documentation)")])

    def test_other_lines_go_through_unchanged(self):
        lines = ["   Compiling cli v0.1.0", "warning: unused", "test result: ok. 0 passed", "ok", "running 0 tests",
                 "test a ... ok", "test b has been running for over 60 seconds", "\x1b[1mbold\x1b[0m \r"]
        progress = self.progress()
        self.assertEqual(self.feed(progress, *lines), "".join(f"{line}\n" for line in lines))

    def test_a_log_names_a_test_that_runs_for_long_once(self):
        progress = self.progress(one_at_a_time=True)
        self.feed(progress, "running 2 tests")
        progress.part("test slow ... ")
        for _ in range(90):
            self.clock.now += 1
            progress.tick()
        self.assertEqual(self.out.getvalue(), "running 2 tests\n[0/2] after 60 s still running: slow\n")

    def test_a_terminal_has_a_status_line_that_gives_way_to_others(self):
        progress = self.progress(one_at_a_time=True, terminal=True)
        self.feed(progress, "running 2 tests")
        progress.part("test slow ... ")
        self.clock.now += 2
        progress.tick()
        shown = self.feed(progress, (3.0, "test slow ... ok"))
        self.assertEqual(shown, "\r\x1b[K[1/2] 5.0 s ok slow\n")
        self.assertIn("\r\x1b[K[0/2] 2 s slow", self.out.getvalue())

    def test_a_log_has_no_carriage_returns(self):
        progress = self.progress(one_at_a_time=True)
        self.feed(progress, RUNNING, "running 2 tests")
        progress.part("test a ... ")
        progress.tick()
        self.feed(progress, (3.0, "test a ... ok"), (0.1, "test b ... ok"))
        self.assertNotIn("\r", self.out.getvalue())


class Streams(unittest.TestCase):
    def test_any_cut_of_the_stream_gives_the_same(self):
        text = (f"{RUNNING}\n\nrunning 2 tests\ntest a ... ok\ntest b ... FAILED\n\nfailures:\n\xff no end\n"
                "test result: FAILED. 1 passed; finished in 1.00s\nlast").encode("latin-1")

        def shown(size: int) -> tuple[str, int]:
            out, (reading, writing) = io.StringIO(), os.pipe()
            progress = Progress(out.write, one_at_a_time=True, clock=lambda: 0.0)

            def feed() -> None:
                for at in range(0, len(text), size):
                    os.write(writing, text[at:at + size])
                os.close(writing)

            feeder = threading.Thread(target=feed)
            feeder.start()
            with os.fdopen(reading, "rb") as source:
                follow(source, progress)
            feeder.join()
            return out.getvalue(), len(progress.tests)

        self.assertEqual({shown(size) for size in (1, 7, 1000)}, {shown(50)})
        self.assertEqual(shown(1)[1], 2)

    def test_the_program_itself(self):
        with tempfile.TemporaryDirectory() as dir:
            times, to = Path(dir) / "a" / "times.tsv", Path(dir) / "times.txt"
            source = b"running 1 test\ntest x::y ... ok\n\xfe\ntest result: ok. 1 passed; finished in 0.00s\n"
            script = [sys.executable, str(TOOLS / "test_progress.py")]
            ran = subprocess.run([*script, "--one-at-a-time", "--step", "blackbox", "--times", str(times)],
                                 input=source, capture_output=True, check=True)
            self.assertEqual(ran.stdout, source.replace(b"test x::y ... ok\n", b""))
            ran = subprocess.run([*script, "--report", str(times), "--title", "./dev test", "--to", str(to)],
                                 capture_output=True, check=True)
            self.assertEqual(ran.stdout, to.read_bytes())
            self.assertIn(b"blackbox   x::y\n", ran.stdout)

    def test_the_exit_code_is_that_of_the_tests(self):
        script = f"set -o pipefail; (echo 'running 1 test'; exit 101) | {sys.executable} {TOOLS}/test_progress.py"
        ran = subprocess.run(["bash", "-c", script], capture_output=True)
        self.assertEqual((ran.returncode, ran.stdout), (101, b"running 1 test\n"))


class Report(unittest.TestCase):
    def test_the_slowest_twenty_come_first_and_programs_are_told_apart(self):
        lines = [f"test\t{n}.250\tblackbox\tok\tt{n}" for n in range(30)]
        lines += ["test\t99.0\tguests\tFAILED\tbad", "program\t4.5\tunit\t131\tstore", "program\t0.5\tunit\t1\tlab", "cut off"]
        said = report(lines, "./dev test").splitlines()
        self.assertEqual(said[0], "The 20 slowest of the 31 tests of ./dev test whose time is known, "
                                  "which took 542 s together:")
        self.assertEqual(said[1], "    99.0 s  guests     bad  FAILED")
        self.assertEqual(said[2], "    29.2 s  blackbox   t29")
        self.assertEqual(len(said), 1 + 20 + 1 + 2)
        self.assertIn("in parallel", said[21])
        self.assertEqual(said[22:], ["     4.5 s  unit       store: 131 tests", "     0.5 s  unit       lab: 1 test"])

    def test_nothing_known_is_said(self):
        self.assertEqual(report([], "./dev test --only docs"), "No times of ./dev test --only docs are known.\n")


if __name__ == "__main__":
    unittest.main()
