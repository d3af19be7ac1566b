import resource
import subprocess
import tempfile
import sys
import unittest
from pathlib import Path

BENCH = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(BENCH))

from harness import memory_plan  # noqa: E402
from harness.cases import chosen  # noqa: E402
from harness.rows import Effort  # noqa: E402
from harness.systems import ALL  # noqa: E402
from harness.shell import Failed  # noqa: E402


class Rounds(unittest.TestCase):
    needs = {"shoal": 11, "a": 4, "b": 9, "c": 3}

    def test_together_if_they_fit(self):
        self.assertEqual(memory_plan.rounds(["shoal", "a", "c"], self.needs, 18), [["shoal", "a", "c"]])
        self.assertEqual(memory_plan.rounds(["shoal"], self.needs, 11), [["shoal"]])

    def test_else_one_after_the_other(self):
        self.assertEqual(memory_plan.rounds(["shoal", "a", "b", "c"], self.needs, 20),
                         [["shoal", "a"], ["shoal", "b"], ["shoal", "c"]])

    def test_refuses_what_cannot_fit(self):
        with self.assertRaisesRegex(Failed, r"shoal 11 MiB \+ b 9 MiB, and there are 19 MiB"):
            memory_plan.rounds(["shoal", "a", "b"], self.needs, 19)
        with self.assertRaisesRegex(Failed, "shoal 11 MiB, and there are 10 MiB"):
            memory_plan.rounds(["shoal"], self.needs, 10)


class Needs(unittest.TestCase):
    def test_by_protection(self):
        found = memory_plan.needs(["shoal", "gluster-ec", "gluster-replica", "passthrough"], 3072, (8, 2))
        self.assertEqual(found, {"shoal": 11000, "gluster-ec": 3840, "gluster-replica": 9216, "passthrough": 3072})

    def test_three_opponents_at_once_do_not_fit_into_20_gib(self):
        names = ["shoal", "gluster-ec", "gluster-replica", "passthrough"]
        data = memory_plan.data_mib([case for case, _ in chosen("")], Effort())
        rounds = memory_plan.rounds(names, memory_plan.needs(names, data, (8, 2)), 20 << 10)
        self.assertEqual(len(rounds), 3)

    def test_data_follows_the_rows(self):
        def of(pattern: str) -> int:
            return memory_plan.data_mib([case for case, _ in chosen(pattern)], Effort())
        self.assertEqual(of("seq-write"), 3072)
        self.assertEqual(of("rand-read"), 2048)
        self.assertEqual(of("create"), memory_plan.LEAST_MIB)


class OpenFiles(unittest.TestCase):
    def test_programs_inherit_the_limit(self):
        script = ("from harness import sandbox; import subprocess; sandbox.raise_open_files(); "
                  "print(subprocess.run(['sh', '-c', 'ulimit -Sn; ulimit -Hn'], capture_output=True).stdout.decode())")
        done = subprocess.run([sys.executable, "-c", script], cwd=BENCH, capture_output=True, text=True, timeout=20)
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        self.assertEqual(len(done.stdout.split()), 2, done.stderr)
        for word in done.stdout.split():
            self.assertGreaterEqual(int(word), min(1 << 20, hard))

    def test_a_client_that_holds_its_files_open_gets_no_more_of_them(self):
        small = next(case for case, rows in chosen("create-1k"))
        self.assertEqual(small.most_files(ALL["passthrough"], 20512), 5000)
        self.assertGreater(small.most_files(ALL["shoal"], 20512), 1 << 29)

    def test_the_load_stops_at_the_most(self):
        with tempfile.TemporaryDirectory() as folder:
            program = f"{folder}/metadata"
            subprocess.run(["gcc", "-O1", "-o", program, str(BENCH / "load" / "metadata.c")], check=True, timeout=60)
            words = [program, "create", folder, "2", "3", "30", "60", "7"]
            done = subprocess.run(words, capture_output=True, text=True, check=True, timeout=60)
            self.assertEqual([done.stdout.split()[0], *done.stdout.split()[2:]], ["14", "7", "7"])


if __name__ == "__main__":
    unittest.main()
