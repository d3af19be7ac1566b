"""Tests of run_blackbox.py, with programs that behave as test programs of Rust do. They need root, as the tests that it runs do."""

import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

TOOLS = Path(__file__).parent.parent
sys.path.insert(0, str(TOOLS))

from run_blackbox import in_order, keep, known_times, Outcome  # noqa: E402

PROGRAM = r"""#!/bin/bash
case "$*" in
  "--list --ignored") echo "late: test"; exit ;;
  --list*) printf '%s: test\n' good bad none late alone leaves hangs works busy; exit ;;
esac
ok="test result: ok. 1 passed; 0 failed"
case "$2" in
  good | late) echo "$ok" ;;
  bad) echo "why it failed"; echo kept >"$TMPDIR/evidence"; exit 101 ;;
  none) echo "test result: ok. 0 passed; 0 failed" ;;
  alone)
    [ -z "$(ls /run | grep -vx -e lock -e mount)" ] || { echo "/run has $(ls /run)"; exit 1; }
    [ -z "$(ls -A "$TMPDIR")" ] || { echo "$TMPDIR has $(ls -A "$TMPDIR")"; exit 1; }
    [ "$(ls /sys/class/net)" = lo ] || { echo "links: $(ls /sys/class/net)"; exit 1; }
    [ "$(ls -d /proc/[0-9]* | wc -l)" -lt 8 ] || { echo "foreign processes"; exit 1; }
    echo "$ok" ;;
  leaves) (sleep 1000 &) ; sleep 1001 & echo "$ok" ;;
  hangs) sleep 1002 ;;
  works) touch "$0.works"; sleep 0.5; rm "$0.works"; echo "$ok" ;;
  busy) sleep 0.2; [ ! -e "$0.works" ] || { echo "another test runs"; exit 1; }; echo "$ok" ;;
esac
"""


class RunBlackbox(unittest.TestCase):
    def setUp(self) -> None:
        self.dir = tempfile.TemporaryDirectory()
        self.addCleanup(self.dir.cleanup)
        self.at = Path(self.dir.name)
        self.program = self.at / "program"
        self.program.write_text(PROGRAM)
        self.program.chmod(0o755)

    def run_tests(self, *words: str) -> subprocess.CompletedProcess[str]:
        work = self.at / "work"
        work.mkdir(exist_ok=True)
        return subprocess.run(
            [sys.executable, TOOLS / "run_blackbox.py", "--program", self.program, *words],
            capture_output=True, text=True, env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "TMPDIR": str(work)},
        )

    def test_a_test_that_passes_leaves_nothing(self) -> None:
        ran = self.run_tests("good")
        self.assertEqual(ran.returncode, 0, ran.stdout + ran.stderr)
        self.assertIn("test result: ok. 1 passed; 0 failed; 0 ignored", ran.stdout)
        self.assertEqual(list((self.at / "work").iterdir()), [])

    def test_a_test_that_fails_is_shown_and_keeps_its_files(self) -> None:
        ran = self.run_tests("good", "bad")
        self.assertEqual(ran.returncode, 1)
        self.assertIn("why it failed", ran.stdout)
        self.assertIn("test result: FAILED. 1 passed; 1 failed", ran.stdout)
        kept = [path.read_text() for path in (self.at / "work").glob("*/*/evidence")]
        self.assertEqual(kept, ["kept\n"])

    def test_a_program_that_runs_no_test_has_failed(self) -> None:
        ran = self.run_tests("none")
        self.assertEqual(ran.returncode, 1)
        self.assertIn("FAILED none", ran.stdout)

    def test_a_name_that_is_no_test_is_refused(self) -> None:
        ran = self.run_tests("better")
        self.assertEqual(ran.returncode, 2)
        self.assertIn("has no test better", ran.stderr)

    def test_ignored_tests_run_by_their_names_only(self) -> None:
        self.assertIn("1 passed", self.run_tests("late").stdout)
        ran = self.run_tests("--limit", "1")
        self.assertIn("; 1 ignored", ran.stdout)
        self.assertNotIn("late", ran.stdout)

    def test_each_test_has_a_machine_of_its_own(self) -> None:
        ran = self.run_tests("alone")
        self.assertEqual(ran.returncode, 0, ran.stdout)

    def test_what_a_test_leaves_behind_ends_with_it(self) -> None:
        ran = self.run_tests("leaves")
        self.assertEqual(ran.returncode, 0, ran.stdout)
        # The pid is one of the test's namespace. So the commands are looked for.
        commands = [path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline") if path.exists()]
        self.assertFalse([words for words in commands if words in (b"sleep\x001000\x00", b"sleep\x001001\x00")])

    def test_a_test_that_hangs_is_ended(self) -> None:
        ran = self.run_tests("--limit", "0.5", "hangs", "good")
        self.assertEqual(ran.returncode, 1)
        self.assertIn("hangs was ended after", ran.stdout)
        self.assertIn("1 passed; 1 failed", ran.stdout)

    def test_a_test_that_makes_the_machine_busy_runs_alone(self) -> None:
        self.assertEqual(self.run_tests("busy", "works").returncode, 1)
        ran = self.run_tests("--alone", "busy", "busy", "works")
        self.assertEqual(ran.returncode, 0, ran.stdout + ran.stderr)
        self.assertIn("2 passed; 0 failed", ran.stdout)

    def test_the_longest_begin_first_and_unknown_ones_before_them(self) -> None:
        times = self.at / "times"
        keep(times, "blackbox", [Outcome("a", 1.0, "ok"), Outcome("b", 3.0, "ok"), Outcome("c", 2.0, "FAILED")])
        self.assertEqual(in_order(["a", "b", "c", "new"], known_times(times)), ["new", "b", "c", "a"])
        self.assertEqual(known_times(self.at / "none"), {})


if __name__ == "__main__":
    unittest.main()
