import contextlib
import io
import json
import signal
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import run  # noqa: E402

# Stands in for a whole run: says whom it measured, and fails against one.
STAND_IN = """\
import json, pathlib, sys
def last(word): return sys.argv[len(sys.argv) - sys.argv[::-1].index(word)]
out = pathlib.Path(last("--out")); out.mkdir(parents=True)
(out / "report.txt").write_text("table of " + last("--against") + "\\n")
(out / "results.json").write_text(json.dumps({"rows": last("--rows")}))
sys.exit(last("--against") == "bad")
"""


class OneAfterTheOther(unittest.TestCase):
    def run_all(self, others):
        kept = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
        with tempfile.TemporaryDirectory() as folder:
            script = Path(folder) / "stand_in.py"
            script.write_text(STAND_IN)
            words = ["run.py", "--against", ",".join(others), "--rows", "create"]
            try:
                with (mock.patch.object(run, "__file__", str(script)), mock.patch.object(sys, "argv", words),
                      contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO())):
                    code = run.one_after_the_other(others, Path(folder))
            finally:
                for number, handler in kept.items():
                    signal.signal(number, handler)
            return code, (Path(folder) / "report.txt").read_text(), json.loads(
                (Path(folder) / "results.json").read_text())

    def test_reports_are_joined(self):
        code, text, document = self.run_all(["a", "b"])
        self.assertEqual(code, 0)
        self.assertEqual(text, "== a\n\ntable of a\n\n== b\n\ntable of b\n")
        self.assertEqual(document, {"against": {"a": {"rows": "create"}, "b": {"rows": "create"}}})

    def test_one_that_fails_does_not_hide_the_others(self):
        code, text, _ = self.run_all(["bad", "b"])
        self.assertEqual(code, 1)
        self.assertIn("table of b", text)


if __name__ == "__main__":
    unittest.main()
