import contextlib
import io
import json
import signal
import sys
import tempfile
import unittest
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import run  # noqa: E402

# Stands in for a whole run: says whom it measured, and fails against one.
STAND_IN = """\
import json, pathlib, sys
def last(word): return sys.argv[len(sys.argv) - sys.argv[::-1].index(word)]
out = pathlib.Path(last("--out")); out.mkdir(parents=True)
(out / "report.txt").write_text("table of " + last("--against") + "\\n")
told = {word: f"--{word}" in sys.argv for word in ("page", "profile")}
told.update(rows=last("--rows"), binary=pathlib.Path(last("--binary")).read_text())
(out / "results.json").write_text(json.dumps(told))
sys.exit(last("--against") == "bad")
"""


class OneAfterTheOther(unittest.TestCase):
    def run_all(self, others, *, rows="", profile=False):
        kept = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
        with tempfile.TemporaryDirectory() as folder:
            script, binary = Path(folder) / "stand_in.py", Path(folder) / "shoal"
            script.write_text(STAND_IN)
            binary.write_text("a binary")
            words = ["run.py", "--against", ",".join(others), "--rows", rows, "--page", *(["--profile"] if profile else [])]
            given = SimpleNamespace(rows=rows, profile=profile, json=False, binary=binary)
            try:
                with (mock.patch.object(run, "__file__", str(script)), mock.patch.object(sys, "argv", words),
                      mock.patch.dict(run.ALL, {name: SimpleNamespace(doors={"files": "mount"}) for name in ("a", "b", "bad")}),
                      contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO())):
                    code = run.one_after_the_other(given, others, Path(folder), {"commit": "abc"})
            finally:
                for number, handler in kept.items():
                    signal.signal(number, handler)
            self.assertFalse((Path(folder) / "programs").exists())
            return code, (Path(folder) / "report.txt").read_text(), json.loads(
                (Path(folder) / "results.json").read_text())

    def test_reports_are_joined(self):
        code, text, document = self.run_all(["a", "b"], rows="create")
        self.assertEqual(code, 0)
        self.assertEqual(text, "== a\n\ntable of a\n\n== b\n\ntable of b\n")
        part = {"rows": "^(create-1k)$", "profile": False, "page": False, "binary": "a binary"}
        self.assertEqual(document, {"facts": {"commit": "abc"}, "against": {"a": part, "b": part}})

    def test_one_that_fails_does_not_hide_the_others(self):
        code, text, _ = self.run_all(["bad", "b"])
        self.assertEqual(code, 1)
        self.assertIn("table of b", text)

    def test_each_is_measured_in_its_own_rows_and_shoal_is_profiled_once(self):
        _, _, document = self.run_all(["mount", "a", "b", "ganesha"], rows="stat|q16$", profile=True)
        told = {name: (part["rows"], part["profile"]) for name, part in document["against"].items()}
        self.assertEqual(told, {
            "mount": ("^(nbd-rand-read-4k-q16|nbd-rand-read-4k-c4q16)$", True), "a": ("^(stat)$", True),
            "b": ("^(stat)$", False), "ganesha": ("^(nfs-rand-read-4k-q16|nfs-commit-write-4k-q16)$", True)})

    def test_rows_in_which_nobody_takes_part_come_with_the_first(self):
        given = SimpleNamespace(rows="^(stat|nfs-seq-read-1m-q4)$")
        self.assertEqual(run.parts(given, ["gluster-ec", "juicefs", "mount"]),
                         [("gluster-ec", "^(stat|nfs-seq-read-1m-q4)$", True), ("juicefs", "^(stat)$", False)])


if __name__ == "__main__":
    unittest.main()
