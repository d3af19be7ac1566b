import json
import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from harness import fio  # noqa: E402


def answer(read: int = 0, write: int = 0, error: int = 0) -> str:
    def side(size: int) -> dict:
        return {"io_bytes": size, "total_ios": size // 4096, "runtime": 2000, "lat_ns": {"mean": 5000.0},
                "clat_ns": {"percentile": {"99.000000": 9000}}}
    return json.dumps({"jobs": [{"error": error, "read": side(read), "write": side(write)}]})


class Fio(unittest.TestCase):
    def test_the_side_that_did_something_counts(self):
        for text in (answer(read=8192), answer(write=8192), "fio: a warning\n" + answer(write=8192) + "\nbye\n"):
            found = fio.parse(text)
            self.assertEqual((found.bytes, found.operations, found.seconds), (8192, 2, 2.0))
            self.assertEqual((found.mean_us, found.p99_us), (5.0, 9.0))

    def test_errors_are_not_figures(self):
        for text in ("fio: no such file", answer(write=4096, error=28)):
            with self.assertRaises(ValueError):
                fio.parse(text)

    def test_tail_is_the_whole_without_its_beginning(self):
        # Two jobs; one logs nothing in its third second, and neither its last
        logs = ["1000, 100, 1, 4096, 0\n2000, 100, 1, 4096, 0\n", "1000, 100, 1, 4096\n2001, 50, 1, 4096\n3000, 10, 1, 0\n"]
        self.assertEqual(fio.tail_rate(logs, operations=400, seconds=4.0, tail_from=2.0), 25.0)

    def test_a_stall_beyond_the_end_counts(self):
        self.assertEqual(fio.tail_rate(["1000, 100, 1, 4096\n"], operations=110, seconds=6.0, tail_from=1.0), 2.0)


if __name__ == "__main__":
    unittest.main()
