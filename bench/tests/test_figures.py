import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from harness.figures import GIB, Measurement, geometric_mean, median, number, ratio, verdict  # noqa: E402


class Figures(unittest.TestCase):
    def test_median(self):
        self.assertEqual(median([3, 1, 2]), 2)
        self.assertIsNone(median([]))

    def test_ratio_needs_both(self):
        self.assertEqual(ratio(6, 3), 2)
        self.assertIsNone(ratio(6, 0))
        self.assertIsNone(ratio(None, 3))

    def test_verdict(self):
        self.assertEqual([verdict(4, 4), verdict(3.9, 4), verdict(None, 4), verdict(4, None)], ["ok", "below", "", ""])

    def test_geometric_mean(self):
        self.assertAlmostEqual(geometric_mean([2, 8]), 4)
        self.assertEqual(geometric_mean([2, 0]), 0)
        self.assertEqual(geometric_mean([]), 0)

    def test_cost_by_bytes_and_by_operations(self):
        run = Measurement(1, 1, bytes=GIB // 2, operations=1000, cpu={"machine": 2.0})
        self.assertEqual(run.cost("GiB"), 4)
        self.assertEqual(run.cost("op"), 2000)
        self.assertIsNone(Measurement(1, 1).cost("GiB"))

    def test_numbers_have_three_digits(self):
        self.assertEqual([number(x) for x in (1234.5, 99.99, 1.234, 0.01234, 0, None)],
                         ["1,234", "100.0", "1.23", "0.0123", "0", "-"])


if __name__ == "__main__":
    unittest.main()
