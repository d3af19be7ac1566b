import sys
import unittest
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import run as harness  # noqa: E402
from harness import report  # noqa: E402
from harness.alternate import Alternation, Results  # noqa: E402
from harness.cases import cases  # noqa: E402
from harness.figures import Measurement  # noqa: E402
from harness.gate_rows import BYTES, gate_cases, nbd_command, parse_nfs  # noqa: E402
from harness.rows import Case, Effort, Row, Run, run_passes  # noqa: E402
from harness.systems import ALL  # noqa: E402
from harness.systems.ganesha import config  # noqa: E402


def system(door: str) -> SimpleNamespace:
    return SimpleNamespace(name=door, door=door, url="nbd://here/disk", directory=Path("/m/load"), variants=[],
                           parts=dict, remounts=0)


class GateRows(unittest.TestCase):
    def test_the_mount_and_the_disk_have_as_many_requests_under_way_over_as_many_bytes(self):
        def options(words: list[str]) -> dict[str, str]:
            return dict(word.lstrip("-").split("=", 1) for word in words if "=" in word)
        disk = options(nbd_command(system("nbd gate"), "randread", "4k", 16))
        files = options(nbd_command(system("mount"), "randread", "4k", 16))
        self.assertEqual((disk["iodepth"], disk["uri"], disk["size"]), ("16", "nbd://here/disk", str(BYTES)))
        self.assertEqual((files["numjobs"], files["offset_increment"]), ("16", files["size"]))
        self.assertEqual(int(files["size"]) * 16, BYTES)
        several = options(nbd_command(system("nbd gate"), "randread", "4k", 16, connections=4))
        self.assertEqual((several["numjobs"], several["iodepth"]), ("4", "4"))
        self.assertEqual((several["offset_increment"], int(several["size"]) * 4), (several["size"], BYTES))

    def test_every_row_of_a_gate_has_an_opponent_that_takes_part(self):
        for case in gate_cases():
            for row in case.rows:
                self.assertEqual(row.kind, case.kind)
                for other in row.floors:
                    self.assertIn(row.kind, ALL[other].doors)
        self.assertEqual({case.kind for case in cases()}, set(ALL["shoal"].doors))

    def test_what_the_nfs_load_says(self):
        found = parse_nfs("8192 2 0.5 100.0\n", {"machine": 1.0})
        self.assertEqual((found.bytes, found.operations, found.seconds), (8192, 2, 0.5))

    def test_ganesha_is_told_where_the_volume_is(self):
        self.assertIn('Volume = "gnfs"', config("gnfs"))
        self.assertNotIn("{{", config("gnfs"))

    def test_the_mount_is_beside_the_disk_always(self):
        def names(rows: str, against: str = "") -> list[str]:
            return harness.names(SimpleNamespace(rows=rows, against=against))
        self.assertEqual(names("nbd"), ["shoal", "mount"])
        self.assertEqual(names("nbd", "mount,ganesha"), ["shoal", "mount", "ganesha"])
        self.assertEqual(names("nfs|stat", "ganesha"), ["shoal", "ganesha"])


class Kinds(unittest.TestCase):
    def test_a_system_is_measured_in_cases_of_its_kinds_only(self):
        case, ours, theirs = Case(), SimpleNamespace(doors={"nbd": "gate"}), SimpleNamespace(doors={"files": "mount"})
        case.kind = "nbd"
        alternation = Alternation.__new__(Alternation)
        alternation.systems = [ours, theirs]
        self.assertEqual(alternation._of(case), [ours])

    def test_a_row_that_a_system_has_no_part_in_is_not_in_its_table(self):
        rows = [Row("disk", "", "op/s", "op", {"mount": 1}, "nbd"), Row("file", "", "op/s", "op", {})]
        runs = {row.name: {"shoal": [Measurement(2, 1)], "mount": [Measurement(1, 1)]} for row in rows}
        lines = report.summary(Results(runs), rows, ["shoal", "mount"])
        text = report.table(lines, ["shoal", "mount"])
        self.assertIn("disk", text)
        self.assertNotIn("file", text)


class Passes(unittest.TestCase):
    def passes(self, *done: Measurement, effort: Effort = Effort(seconds=10)) -> Measurement:
        under_test, case = mock.Mock(), mock.Mock()
        left = list(done)
        row = Row("row", "", "MiB/s", "GiB", {})
        found = run_passes(Run(under_test, effort, Path()), case, row, 1 << 20, lambda seconds: left.pop(0))
        self.assertEqual(under_test.remount.call_count, len(done) - len(left) - 1)
        return found

    def test_passes_are_added_up_until_the_time_is(self):
        whole = Measurement(0, 4.0, 1 << 20, 1, {"machine": 1.0})
        found = self.passes(whole, whole, whole)
        self.assertEqual((found.seconds, found.bytes, found.value), (8.0, 2 << 20, 0.25))
        self.assertEqual((found.cpu, found.notes), ({"machine": 2.0}, ["2 passes"]))

    def test_a_pass_that_is_not_whole_is_the_last(self):
        found = self.passes(Measurement(0, 1.0, 1 << 19, 1), Measurement(0, 1.0, 1 << 19, 1))
        self.assertEqual(found.notes, ["all bytes done after 1.0 s"])


if __name__ == "__main__":
    unittest.main()
