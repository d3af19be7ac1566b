import contextlib
import io
import json
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

BENCH = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(BENCH))

import run as harness  # noqa: E402
from harness.auto import main, report, rows  # noqa: E402
from harness.auto.worth import (SETTINGS, Result, from_json, late_rate, parse_reads, reached_ms, rotated)  # noqa: E402
from harness.cases import chosen  # noqa: E402
from harness.growth import rows as growth_rows  # noqa: E402
from harness.shell import Failed  # noqa: E402

FACTS = {"commit": "abc", "changed": [], "date": "2026-01-02T00:00", "cpu": "a cpu", "cores": 2, "memory_mib": 24576,
         "kernel": "6", "minutes": 3, "arguments": ["--rows", "auto", "--page"],
         "calibration": {end: {"memcpy_gb_per_s": 5, "syscall_ns": 200} for end in ("start", "end")}}


def result(name="auto.read-x", **values) -> Result:
    """A row with values by setting; `ahead` stands for `read-ahead`."""
    return Result(name, "reads", "op/s", "auto", values={key.replace("ahead", "read-ahead"): of for key, of in values.items()})


class Worth(unittest.TestCase):
    def test_the_best_other_setting_is_by_medians(self):
        found = result(neither=[100, 1, 100], ahead=[90, 1000, 95], auto=[90, 97, 99])
        self.assertEqual((found.best, found.ratio, found.verdict), ("neither", 0.97, "ok"))
        self.assertEqual(result(neither=[100], auto=[94]).verdict, "below")

    def test_a_row_without_a_figure_of_ours_or_others_is_missing(self):
        for found in (result(), result(auto=[1]), result(neither=[1])):
            self.assertEqual((found.ratio, found.verdict), (None, "missing"))

    def test_every_setting_is_the_first_of_a_turn(self):
        self.assertEqual([rotated(["a", "b", "c"], turn) for turn in (0, 1, 2, 3)],
                         [["a", "b", "c"], ["b", "c", "a"], ["c", "a", "b"], ["a", "b", "c"]])

    def test_the_first_two_seconds_after_a_flip_do_not_count(self):
        self.assertEqual(late_rate([1000] * 20 + [7] * 30), 70)
        with self.assertRaises(ValueError):
            late_rate([1000] * 20)

    def test_a_rate_is_reached_when_it_is_held_for_500_ms(self):
        self.assertEqual(reached_ms([10] * 5, 100), 0)
        self.assertEqual(reached_ms([0, 30, 0, 0, 0, 0, 10, 10, 10, 10, 10, 10], 100), 600)
        self.assertEqual(reached_ms([10] * 5 + [0] * 5, 101), None)
        self.assertEqual(reached_ms([10] * 4, 1), None)

    def test_the_median_of_the_times(self):
        found = result()
        for times, told in (([100, None, 300], "300"), ([None, None, 0], "never"), (None, "-"), ([], "-")):
            found.reached_ms = times
            self.assertEqual(found.reached, told)

    def test_a_result_survives_json(self):
        found = result(neither=[2.0], auto=[1.0])
        found.reached_ms = [100, None]
        self.assertEqual(from_json(json.loads(json.dumps(found.as_json()))), found)

    def test_what_the_load_says(self):
        self.assertEqual(parse_reads("5 2 3\n4 4 0\n"), [[2, 3], [4, 0]])
        for text in ("", "5 2 2\n", "5\n"):
            with self.assertRaises(ValueError):
                parse_reads(text)


class Rows(unittest.TestCase):
    def test_names_are_unique_and_no_others(self):
        names = [name for case in rows.cases() for name, _, _ in case.rows]
        self.assertEqual(len(names), len(set(names)))
        for name in names:
            self.assertTrue(rows.is_auto(name) and rows.is_auto(f"^({name})$"), name)
        self.assertEqual((chosen("^auto"), growth_rows.chosen("^auto"), rows.is_auto("growth"), rows.is_auto("")),
                         ([], [], False, False))

    def test_data_is_laid_as_seldom_as_it_can_be(self):
        files = [case.files for case in rows.cases()]
        self.assertEqual(sum(a != b for a, b in zip(files, files[1:])), len(set(files)) - 1)

    def test_our_setting_is_one_of_several(self):
        for case in rows.cases():
            self.assertIn(case.ours, case.settings)
            self.assertGreater(len(case.settings), 1)
            self.assertTrue(all(rate.wanted in (0.9, 0.95) for rate in case.results()))

    def test_files_are_far_larger_than_the_cache_and_what_comes_again_fits(self):
        self.assertGreater(rows.Effort().file_bytes, 16 * rows.IO_CACHE_MIB << 20)
        self.assertLess(2 * rows.AGAIN_BYTES, (rows.IO_CACHE_MIB << 20) + 1)

    def loads(self, case: rows.Case, output: str) -> tuple[object, list[str]]:
        """What a case measures if the load says `output`, and the load's arguments."""
        shoal = SimpleNamespace(options=SimpleNamespace(tools=Path("/t")), directory=Path("/m/load"))
        with mock.patch.object(rows, "tuned"), mock.patch.object(rows, "run") as ran:
            ran.return_value.out = output
            found = case.run(shoal, rows.Effort(seconds=2), "auto", 0)
        return found, ran.call_args[0][0][1:]

    def test_each_job_has_a_file_unless_bytes_come_again(self):
        found, words = self.loads(rows.Reads("rand", 4, 2), "50 20 30\n")
        self.assertEqual(found, 25)
        self.assertEqual(words, ["direct", "1", "2", "/m/load/auto.0,/m/load/auto.1", "rand:4096:2"])
        found, words = self.loads(rows.Reads("seq", 128, 1), "16 16\n")
        self.assertEqual(found, 1, "MiB/s")
        found, words = self.loads(rows.Reads("rand", 4, 16, True), "1 1\n8 8\n")
        self.assertEqual(found, 4, "the first second does not count")
        self.assertEqual(words, ["direct", "1", "16", "/m/load/auto.0", "rand:4096:1:33554432", "rand:4096:2:33554432"])

    def test_flips_are_judged_after_two_seconds_and_timed(self):
        case = rows.Flips(1)
        results = case.results()
        def phases(early: int, late: int) -> list[list[int]]:
            return [[9] * 30, *([[early] * 20 + [late] * 10] * 3)]
        raw = {"neither": [phases(10, 10)], "both": [phases(50, 5)], "auto": [phases(0, 10)]}
        for setting, found in raw.items():
            case.note(results, setting, found[0])
        case.finish(results, raw)
        self.assertEqual([(of.best, of.ratio, of.reached_ms) for of in results], [("neither", 1, [2000])] * 3)


class Measuring(unittest.TestCase):
    def test_a_run_that_fails_is_noted_and_the_next_one_goes_on(self):
        case = rows.Reads("rand", 4, 1)
        found = case.results()
        def run(shoal, effort, setting, turn):
            if (setting, turn) == ("both", 0):
                raise Failed("no mount")
            return 7.0
        with mock.patch.object(case, "run", run), mock.patch.object(main, "say"):
            raw = main.turns(case, None, rows.Effort(turns=2), found)
        self.assertEqual({setting: len(of) for setting, of in raw.items()},
                         {setting: 1 if setting == "both" else 2 for setting in SETTINGS})
        self.assertEqual((found[0].errors, found[0].ratio), (["both: no mount"], 1))

    def test_the_report_marks_what_is_below(self):
        good, bad = result("auto.read-a", neither=[10], auto=[10]), result("auto.read-b", neither=[10], auto=[9])
        text = report.text([good, bad, result("auto.flip-c")])
        self.assertIn("1 of 3 rows have what is wanted: all but auto.read-b, auto.flip-c.", text)
        self.assertEqual((text.count("BELOW"), text.count("MISSING")), (1, 1))
        self.assertIn("**0.900**", report.markdown([good, bad], "", ""))
        self.assertEqual(len(report.tables([good, bad, result("auto.flip-c")])), 2)

    def test_settings_are_in_one_order_whichever_was_first(self):
        head, _ = report.table([result(auto=[1], neither=[1])])
        self.assertLess(head.index("neither"), head.index("auto"))

    def test_the_page_has_its_part(self):
        with tempfile.TemporaryDirectory() as folder:
            out, docs = Path(folder), Path(folder) / "docs"
            docs.mkdir()
            (docs / "PERFORMANCE.md").write_text(f"before\n{report.BEGIN}\nold\n{report.END}\nafter\n")
            main.write([result("auto.read-a", neither=[10], auto=[10])], {}, FACTS, out)
            main.page([out / "results.json"], docs)
            text = (docs / "PERFORMANCE.md").read_text()
            self.assertIn("| auto.read-a | reads | op/s | 10.0 | 10.0 | neither | 1.00 | 0.95 | ok |", text)
            self.assertIn("./dev bench --rows auto\n", text)
            self.assertTrue(text.startswith("before\n") and text.endswith("\nafter\n") and "old" not in text)

    def test_the_effort_and_the_code_are_the_groups_own(self):
        def given(*words: str):
            with mock.patch.object(sys, "argv", ["run.py", *words]):
                found = harness.arguments()
            return found.code, found.seconds
        self.assertEqual(given("--rows", "auto"), ("4+2", 1.5))
        self.assertEqual(given("--rows", "auto", "--code", "8+2", "--seconds", "4"), ("8+2", 4))
        self.assertEqual(given("--rows", "stat"), ("8+2", 10))

    def test_rows_are_listed(self):
        with contextlib.redirect_stdout(io.StringIO()) as told:
            harness.list_rows()
        self.assertIn("auto.flip-4j-again", told.getvalue())


class Load(unittest.TestCase):
    """The program `reads` itself, on a file that is not Shoal's."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.program, self.file = f"{folder.name}/reads", f"{folder.name}/file"
        subprocess.run(["gcc", "-O1", "-Wall", "-Werror", "-pthread", "-o", self.program, str(BENCH / "load" / "reads.c")],
                       check=True, timeout=60)
        subprocess.run([self.program, "lay", self.file, str(1 << 20)], check=True, timeout=60)

    def reads(self, *words: str) -> subprocess.CompletedProcess:
        return subprocess.run([self.program, "buffered", "1", *words], capture_output=True, text=True, timeout=60)

    def test_phases_follow_each_other_in_one_file(self):
        done = self.reads("3", self.file, "seq:65536:0.3", "rand:4096:0.2:65536", "rand:4096:0.2")
        self.assertEqual(done.returncode, 0, done.stderr)
        found = parse_reads(done.stdout)
        self.assertEqual([len(counts) for counts in found], [3, 2, 2])
        self.assertTrue(all(sum(counts) for counts in found))

    def test_other_bytes_are_an_error(self):
        with open(self.file, "r+b") as file:
            file.seek(512 << 10)
            file.write(bytes(8))
        done = self.reads("1", self.file, "seq:4096:0.2")
        self.assertEqual(done.returncode, 1)
        self.assertIn("the bytes that were read", done.stderr)

    def test_what_makes_no_sense_is_refused(self):
        for words in (("1", self.file, "seq:5000:1"), ("1", self.file, "seq:4096:0"), ("2", f"{self.file},{self.file}", "x"),
                      ("3", f"{self.file},{self.file}", "seq:4096:1"), ("1", self.file, "rand:4096:1:2097152")):
            self.assertEqual(self.reads(*words).returncode, 2, words)


if __name__ == "__main__":
    unittest.main()
