import sys
import unittest
from pathlib import Path
from xml.dom import minidom

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from harness import picture, report  # noqa: E402
from harness.alternate import Results  # noqa: E402
from harness.cases import cases, chosen  # noqa: E402
from harness.figures import Measurement  # noqa: E402
from harness.rows import Row  # noqa: E402
from harness.systems.gluster import changes  # noqa: E402

ROW = Row("seq", "sequential", "MiB/s", "GiB", {"peer": 4})


def results() -> Results:
    def runs(*figures: float) -> list[Measurement]:
        return [Measurement(x, 1, bytes=1 << 30, cpu={"machine": x / 10}) for x in figures]
    broken = Measurement(0, 0, error="it hung")
    return Results({"seq": {"shoal": runs(100, 300, 200), "peer": [*runs(40), broken]}}, {"seq": {"peer": "wide"}})


class Report(unittest.TestCase):
    def test_summary(self):
        [line] = report.summary(results(), [ROW], ["shoal", "peer"])
        self.assertEqual(line["median"], {"shoal": 200, "peer": 40})
        self.assertEqual(line["against"]["peer"], {"ratio": 5.0, "floor": 4, "verdict": "ok"})
        self.assertEqual(line["cpu"], {"shoal": 20.0, "peer": 4.0})
        self.assertEqual(line["notes"], ["peer: failed: it hung"])

    def test_table_shows_what_was_not_measured(self):
        lines = report.summary(Results(), [ROW], ["shoal", "peer"])
        self.assertIn("-", report.table(lines, ["shoal", "peer"]).splitlines()[2])

    def test_table(self):
        text = report.table(report.summary(results(), [ROW], ["shoal", "peer"]), ["shoal", "peer"])
        for word in ("5.00", "ok", "wide", "it hung"):
            self.assertIn(word, text)

    def test_memory_against_budget(self):
        text = report.memory_table({"shoal": {"brick": {"rss_kib": 1, "high_water_kib": 300 << 10}}})
        self.assertIn("above", text)

    def test_pictures_are_well_formed(self):
        for text in (picture.ratios("a < b", [("row", 3.0, 4.0), ("none", None, None)]),
                     picture.stacks("where", "us/op", [("row", {"copies": 1.0, "FUSE": 2.0}), ("none", {})])):
            minidom.parseString(text)

    def test_rows_have_names_of_their_own(self):
        names = [row.name for case in cases() for row in case.rows]
        self.assertEqual(len(names), len(set(names)))

    def test_rows_are_chosen_by_name(self):
        [(_, rows)] = chosen("^stat$")
        self.assertEqual([row.name for row in rows], ["stat"])

    def test_settings_change_by_difference(self):
        self.assertEqual(changes({"a": "1", "b": "2"}, {"b": "3", "c": "4"}), (["a"], {"b": "3", "c": "4"}))


if __name__ == "__main__":
    unittest.main()
