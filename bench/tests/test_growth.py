import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock
from xml.dom import minidom

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from harness import sandbox  # noqa: E402
from harness.growth import main, report, rows  # noqa: E402
from harness.growth.curve import Curve, Metric, exponent, failed, from_json, judge, per_unit, steepest  # noqa: E402

FACTS = {"commit": "abc", "changed": [], "date": "2026-01-02T00:00", "cpu": "a cpu", "cores": 2, "memory_mib": 24576,
         "kernel": "6", "minutes": 3, "arguments": ["--rows", "growth", "--page"],
         "calibration": {end: {"memcpy_gb_per_s": 5, "syscall_ns": 200} for end in ("start", "end")}}


def curve(kind="total", noise=0.0, **values):
    """A curve of the metric `cost`; values are `n<size>=value`."""
    made = Curve("growth.x", "things", "thing", [Metric("cost", "s", kind, noise)])
    for name, value in values.items():
        made.note(int(name[1:]), cost=value)
    return made


def verdicts(made):
    return [verdict.ok for verdict in judge(made)]


class Rules(unittest.TestCase):
    def test_linear_is_well_and_steeper_is_not(self):
        self.assertEqual(verdicts(curve(n10=1, n100=10, n1000=100)), [True])
        self.assertEqual(verdicts(curve(n10=1, n100=10, n1000=130)), [False])
        self.assertEqual(verdicts(curve(n10=1, n100=100)), [False])

    def test_a_constant_part_hides_nothing_beyond_it(self):
        self.assertEqual(verdicts(curve(n10=50, n100=50, n1000=60)), [True])
        # Quadratic with a constant part: it comes out where it outgrows that
        self.assertEqual(verdicts(curve(n10=50, n100=51, n1000=150, n10000=10050)), [False])

    def test_noise_is_no_growth(self):
        self.assertEqual(verdicts(curve(noise=1, n10=0.001, n100=0.9)), [None])
        self.assertEqual(verdicts(curve(noise=1, n10=0.001, n100=5)), [True])
        self.assertEqual(verdicts(curve(noise=1, n10=0.001, n100=15)), [False])

    def test_sizes_that_hardly_differ_are_not_compared(self):
        self.assertIsNone(steepest([(100, 1), (101, 2)], 0))

    def test_what_is_only_claimed_costs_nothing(self):
        self.assertEqual(verdicts(curve("flat", n10=1, n1000=2.9)), [True])
        self.assertEqual(verdicts(curve("flat", n10=1, n1000=3.1)), [False])
        self.assertEqual(verdicts(curve("flat", noise=1, n10=0.01, n1000=0.9)), [True])

    def test_rates_may_fall_by_a_fifth_beyond_a_hundred_thousand(self):
        self.assertEqual(verdicts(curve("rate", n10000=9000, n100000=100, n10000000=81)), [True])
        self.assertEqual(verdicts(curve("rate", n10000=90, n100000=100, n10000000=79)), [False])
        self.assertEqual(verdicts(curve("rate", n10000=90, n100000=40)), [None])

    def test_a_start_has_a_limit_at_a_million(self):
        self.assertEqual(verdicts(curve("start", n100000=1, n1000000=9.9, n10000000=90)), [True, True])
        self.assertEqual(verdicts(curve("start", n100000=2, n1000000=10.1)), [True, False])
        self.assertEqual(verdicts(curve("start", n10000=2, n100000=10.1)), [True, None])

    def test_the_longest_wait_has_a_limit(self):
        self.assertEqual(verdicts(curve("longest", n10=20, n100=499)), [True])
        self.assertEqual(verdicts(curve("longest", n10=501, n100=20)), [False])

    def test_a_row_that_failed_is_broken(self):
        made = curve(n10=1)
        made.error = "it hung"
        self.assertEqual([verdict.why for verdict in failed(judge(made))], ["it hung"])

    def test_slopes(self):
        self.assertAlmostEqual(exponent([(1, 5), (10, 1), (100, 10), (1000, 1000)]), 2)
        self.assertIsNone(exponent([(1, 5)]))
        self.assertEqual(per_unit([(1, 1), (10, 10), (20, 30)]), 2)


class Shown(unittest.TestCase):
    def test_what_one_more_costs_has_a_fitting_prefix(self):
        made = curve(n1000=1, n2000=1.5)
        self.assertEqual(report.each(made, "cost", "s"), "500 us per thing")
        made.unit = "byte"
        made.points = {0: {"cost": 1.0}, 1 << 40: {"cost": 3.0}}
        self.assertEqual(report.each(made, "cost", "s"), "2.00 s per TiB")
        self.assertEqual(report.each(curve("rate", n1000=1, n2000=1.5), "cost", "1/s"), "-")

    def test_sizes(self):
        made = curve(n10=1)
        self.assertEqual(made.shown(10 ** 6), "10^6")
        self.assertEqual(made.shown(300), "300")
        made.unit = "byte"
        self.assertEqual(made.shown(4 << 50), "4 PiB")

    def test_the_report_has_tables_and_verdicts(self):
        text = report.text([curve(n10=1, n100=100)])
        self.assertIn("cost, s", text)
        self.assertIn("FAILS", text)

    def test_pictures_are_well_formed(self):
        for picture in report.pictures([curve(n10=1, n100=100), curve("note", n10=1)], "a & b").values():
            minidom.parseString(picture)

    def test_a_curve_survives_its_json(self):
        made = curve(n10=1, n100=100)
        self.assertEqual(from_json(made.as_json()), made)


class Page(unittest.TestCase):
    def test_it_is_written_between_the_markers_only(self):
        with tempfile.TemporaryDirectory() as folder:
            out, docs = Path(folder) / "out", Path(folder) / "docs"
            out.mkdir()
            (docs / "figures").mkdir(parents=True)
            page = docs / "PERFORMANCE.md"
            page.write_text(f"before\n{report.BEGIN}\nold\n{report.END}\nafter\n")
            self.assertEqual(len(main.write([curve(n10=1, n100=100)], FACTS, out)), 1)
            for _ in range(2):
                main.page([out / "results.json"], docs)
                text = page.read_text()
                self.assertTrue(text.startswith("before\n") and text.endswith("after\n"))
                self.assertNotIn("old", text)
                self.assertIn("./dev bench --rows growth\n", text)
                self.assertIn("| cost, s | 1.00 | 100 |", text)
            self.assertTrue((docs / "figures" / "growth.x.svg").exists())

    def test_of_several_runs_the_last_counts(self):
        with tempfile.TemporaryDirectory() as folder:
            docs, results = Path(folder) / "docs", []
            (docs / "figures").mkdir(parents=True)
            (docs / "PERFORMANCE.md").write_text(f"{report.BEGIN}\n{report.END}\n")
            for number, made in enumerate(([curve(n10=1), Curve("growth.z", "others", "other", [Metric("cost", "s")],
                                                                {7: {"cost": 3.0}})], [curve(n10=5)])):
                out = Path(folder) / str(number)
                out.mkdir()
                main.write(made, FACTS, out)
                results.append(out / "results.json")
            main.page(results, docs)
            text = (docs / "PERFORMANCE.md").read_text()
            self.assertIn("| cost, s | 5.00 |", text)
            self.assertIn("| cost, s | 3.00 |", text)
            self.assertNotIn("| cost, s | 1.00 |", text)

    def test_a_page_without_markers_is_left_alone(self):
        with self.assertRaises(ValueError):
            report.replaced(report.END + report.BEGIN, "new")


class Rows(unittest.TestCase):
    def test_the_limit_bounds_files_and_units(self):
        by_name = {row.name: row for row in rows.ROWS}
        self.assertEqual(rows.sizes_of(by_name["growth.units"], 10 ** 5), [10 ** 4, 10 ** 5])
        self.assertEqual(rows.sizes_of(by_name["growth.bricks"], 10 ** 7)[-1], 200)
        self.assertEqual(rows.sizes_of(by_name["growth.bricks"], 10 ** 5), [6, 12, 25])

    def test_growth_is_measured_alone_and_by_name(self):
        self.assertTrue(rows.is_growth("growth.units") and rows.is_growth("^growth") and rows.is_growth("^(growth)"))
        self.assertFalse(rows.is_growth("") or rows.is_growth("seq|growth"))
        self.assertEqual(len(rows.chosen("growth")), len(rows.ROWS))
        self.assertEqual([row.name for row in rows.chosen("growth.(opens|bricks)")], ["growth.opens", "growth.bricks"])

    def test_metrics_have_names_of_their_own(self):
        for row in rows.ROWS:
            names = [metric.name for metric in row.metrics]
            self.assertEqual(len(names), len(set(names)), row.name)

    def test_a_row_that_fails_keeps_what_it_has(self):
        def breaks(_, sizes, made):
            made.note(sizes[0], cost=1)
            raise ValueError("it broke")
        row = rows.Row("growth.y", "things", "thing", [Metric("cost", "s")], [10, 100], breaks)
        made = row.curve()
        with mock.patch.object(main, "clear"), mock.patch.object(main, "say"):
            main.one(row, made, row.sizes, None, Path("."))
        self.assertEqual((made.points, made.error), ({10: {"cost": 1.0}}, "it broke"))


class Sandbox(unittest.TestCase):
    def test_nothing_is_ended_outside_the_sandbox(self):
        with self.assertRaises(RuntimeError):
            sandbox.clear()


if __name__ == "__main__":
    unittest.main()
