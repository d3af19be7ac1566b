import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from harness.turns import overlong  # noqa: E402


def told(wall: int, own: int) -> str:
    return (f"2026-01-01T00:00:00Z  WARN world::turns: a turn of the task `request Purge` took {wall} ms, "
            f"{own} ms of them its thread's own work\n")


class Overlong(unittest.TestCase):
    def found(self, text: str) -> list[str]:
        with tempfile.TemporaryDirectory() as dir:
            log = Path(dir) / "brick0.log"
            log.write_text(text)
            return overlong(log)

    def test_what_the_thread_did_itself_counts(self):
        self.assertEqual(self.found("  INFO shoal: listening at 127.0.0.1:7411\n" + told(900, 499)), [])
        found = self.found(told(250, 240) + told(812, 790))
        self.assertEqual(len(found), 1)
        self.assertTrue(found[0].startswith("brick0.log: ") and "812 ms" in found[0])


if __name__ == "__main__":
    unittest.main()
