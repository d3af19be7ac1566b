import ast
import contextlib
import io
import json
import sys
import tempfile
import unittest
from pathlib import Path
from types import SimpleNamespace
from unittest import mock
from xml.dom import minidom

BENCH = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(BENCH))

import run  # noqa: E402
from harness import marks, page, page_tables, repeat, report  # noqa: E402
from harness.alternate import Results  # noqa: E402
from harness.cases import cases  # noqa: E402
from harness.figures import GIB, Measurement  # noqa: E402
from harness.auto import report as auto_report  # noqa: E402
from harness.growth import main as growth  # noqa: E402
from harness.growth import report as growth_report  # noqa: E402
from harness.growth.curve import Curve, Metric  # noqa: E402
from harness.shell import Failed  # noqa: E402
from harness.systems import ALL  # noqa: E402

ROWS = {row.name: row for case in cases() for row in case.rows}
FACTS = {"commit": "abc123", "changed": [], "binary": "feed", "date": "2026-01-02T10:00:00+0000", "cpu": "a cpu", "cores": 2,
         "memory_mib": 24576, "kernel": "6.1", "minutes": 3, "runs": 3, "seconds": 4.0, "long_seconds": 30.0,
         "arguments": ["--rows", "seq|stat", "--page"],
         "calibration": {end: {"time": f"2026-01-0{day}T00:00:00+0000", "memcpy_gb_per_s": speed, "syscall_ns": 200.4}
                         for end, day, speed in (("start", 2, 5.04), ("end", 3, 6.0))}}
# Shoal, the other: what they came to in three runs of each row.
FIGURES = {"gluster-ec": {"seq-write-1m-1j": ([400, 600, 500], [100, 110, 90]), "stat": ([50, 60, 70], [10, 10, 10])},
           "gluster-replica": {"seq-write-1m-1j": ([400, 600, 500], [200, 200, 200]),
                               "seq-write-1m-10j": ([500, 500, 500], [100, 100, 100])},
           "moosefs": {"unlink": ([9, 9, 9], [10, 10, 10])},
           "juicefs": {"unlink": ([9, 9, 9], [3, 3, 3])},
           "passthrough": {"seq-write-1m-1j": ([40], [100]), "stat": ([300], [100])},
           "mount": {"nbd-rand-read-4k-q1": ([140], [100])},
           "ganesha": {"nfs-rand-read-4k-q1": ([800], [100])}}
PROFILE = {"stat": {"unit": "CPU-us/op", "cost": {"FUSE": 1.5, "network": 4.0, "outside": 9.0}, "samples": {}},
           "seq-write-1m-1j": {"unit": "CPU-s/GiB", "cost": {"copies": 0.9}, "samples": {}}}


def results(figures: dict, **facts) -> dict:
    """What a run of Shoal beside the systems of `figures` writes, which may not share rows here."""
    runs: dict = {}
    for system, of in figures.items():
        for name, (ours, theirs) in of.items():
            for who, values in (("shoal", ours), (system, theirs)):
                runs.setdefault(name, {})[who] = [
                    Measurement(value, 1, bytes=GIB, operations=10, cpu={"machine": 2 if who == "shoal" else 8})
                    for value in values]
    rows = [row for name, row in ROWS.items() if name in runs]
    settings = {name: {system: "stock" if name != "stat" else "wide" for system in of if system.startswith("gluster")}
                for name, of in runs.items()}
    found = Results(runs, settings, {name: {"gluster-ec": {"stock": {}}} for name in runs})
    return {"facts": {**FACTS, "systems": {name: {"about": ALL[name].about, "version": f"{name} 1\nmore", "code": "8+2"}
                                           for name in ["shoal", *figures]}, **facts},
            "summary": report.summary(found, rows, ["shoal", *figures]), "screening": found.screening, "profile": {},
            "memory": {"shoal": {"brick": {"rss_kib": 1, "high_water_kib": 300 << 10}}},
            "runs": {name: {system: [m.as_json(ROWS[name].per) for m in of] for system, of in of_row.items()}
                     for name, of_row in runs.items()}}


def joined(figures: dict, **facts) -> dict:
    """What a run writes whose opponents did not fit into RAM together."""
    return {"facts": {**FACTS, **facts}, "against": {system: results({system: of}, **facts)
                                                      for system, of in figures.items()}}


def tables(text: str) -> dict[str, str]:
    """Sections of a page by their headings."""
    return {part.split("\n", 1)[0]: part for part in ("\n" + text).split("\n## ")[1:]}


class Pages(unittest.TestCase):
    """A directory with a page to write to."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.home = Path(folder.name)
        self.docs = self.home / "docs"
        (self.docs / "figures").mkdir(parents=True)
        lines = [line for name in ("head", "tables") for line in (*page.mark(name), f"after the {name}")]
        (self.docs / page.PAGE).write_text("\n".join(["# Title", *lines, growth_report.BEGIN, growth_report.END, "end\n"]))
        quiet = mock.patch.object(page, "say", self.said)
        quiet.start()
        self.addCleanup(quiet.stop)
        self.told: list[str] = []

    def said(self, text: str) -> None:
        self.told.append(text)

    def json(self, document: dict) -> Path:
        path = self.home / f"{len(list(self.home.iterdir()))}.json"
        path.write_text(json.dumps(document))
        return path

    def page(self, *documents: dict, second: tuple = ()) -> str:
        page.write([self.json(one) for one in documents], [self.json(one) for one in second], self.docs)
        return (self.docs / page.PAGE).read_text()


class Whole(Pages):
    def test_there_is_a_table_for_each_question(self):
        document = joined(FIGURES)
        document["against"]["mount"]["profile"] = PROFILE
        text = self.page(document)
        self.assertEqual(list(tables(text)), [
            "Against GlusterFS's dispersed 8+2", "Against GlusterFS's three copies", "Against MooseFS and JuiceFS",
            "How far from a bare FUSE passthrough", "NBD gate against the mount", "NFS gate against nfs-ganesha",
            "What falls short", "Memory", "Where the time goes"])
        self.assertIn("Not measured in this run: Against SeaweedFS (`./dev bench --against seaweedfs`).", text)

    def test_the_head_says_what_was_measured_how_and_on_what(self):
        text = self.page(joined(FIGURES))
        for line in ("| date | 2026-01-02 to 2026-01-03 |", "| commit | `abc123` |",
                     "| machine | a cpu, 2 cores, 24.0 GiB of RAM, kernel 6.1 |",
                     "| each row | 3 runs of 4 s, random writes 30 s |",
                     "| calibration | memcpy 5.0 to 6.0 GB/s, a system call 200 ns, least to most |",
                     "```sh\n./dev bench --rows 'seq|stat' --page\n```"):
            self.assertIn(line, text)

    def test_uncommitted_changes_are_told(self):
        self.assertIn("`abc123`, with changes that are not committed", self.page(joined(FIGURES, changed=["M x"])))

    def test_in_one_line(self):
        [line] = [line for line in self.page(joined(FIGURES)).splitlines() if line.startswith("**In one line:**")]
        self.assertEqual(line, "**In one line:** through the mount, Shoal's 8+2 writes 2.5 to 5.0 times as fast as GlusterFS's "
                               "three copies and 5.0 times as fast as GlusterFS's dispersed 8+2 (1 MiB at a time, 1 job and "
                               "10 jobs), with 0.25 of their CPU for a byte.")
        self.assertNotIn("In one line", self.page(results({"ganesha": FIGURES["ganesha"]})))

    def test_medians_spread_ratios_and_floors(self):
        found = tables(self.page(joined(FIGURES)))
        text = found["Against GlusterFS's dispersed 8+2"]
        self.assertIn("| `seq-write-1m-1j` | sequential write 1 MiB, 1 job, MiB/s | 500 (400 to 600) | 100 (90.0 to 110) | "
                      "5.00 (4) | 2.00 / 8.00 s/GiB |", text)
        # Below its floor
        self.assertIn("| **6.00 (8)** |", text)
        self.assertIn("`gluster-ec` (gluster-ec 1): a dispersed volume of the same code on ten bricks.", text)
        self.assertIn("Settings of `gluster-ec`, the best of a short run of each: `stock` for `seq-write-1m-1j`; `wide` for "
                      "all others.", text)
        # One run has no spread
        self.assertIn("| 40.0 | 100 | **0.400 (0.5)** |", found["How far from a bare FUSE passthrough"])
        # No floor, and no wish for one
        self.assertIn("| 300 | 100 | 3.00 |", found["How far from a bare FUSE passthrough"])
        self.assertIn("| **1.40 (1.5)** |", found["NBD gate against the mount"])
        self.assertIn("| 8.00 (2) |", found["NFS gate against nfs-ganesha"])

    def test_without_a_floor_the_slower_one_is_bold(self):
        text = tables(self.page(joined(FIGURES)))["Against MooseFS and JuiceFS"]
        self.assertIn("| MooseFS, three copies | `unlink` | unlink, 4 processes, files/s | 9.00 (9.00 to 9.00) |", text)
        self.assertIn("| **0.900** |", text)
        self.assertIn("| 3.00 |", text)

    def test_what_falls_short_is_every_row_below_its_floor(self):
        text = tables(self.page(joined(FIGURES)))["What falls short"]
        rows = [line.split(" | ") for line in text.splitlines() if line.startswith("| `")]
        self.assertEqual([(row[0], *row[2:]) for row in rows], [
            ("| `stat`", "GlusterFS 8+2", "**6.00**", "8 |"),
            ("| `unlink`", "MooseFS, three copies", "**0.900**", "none, slower |"),
            ("| `seq-write-1m-1j`", "passthrough", "**0.400**", "0.5 |"),
            ("| `nbd-rand-read-4k-q1`", "mount", "**1.40**", "1.5 |")])
        self.assertIn("4 of 9 ratios are below what is wanted.", text)
        self.assertIn("0 of 1 ratios are below", self.page(results({"ganesha": FIGURES["ganesha"]})))

    def test_failed_runs_are_told(self):
        document = results({"gluster-ec": {"stat": ([1, 2, 3], [1, 1, 1])}})
        for run_ in document["runs"]["stat"]["gluster-ec"]:
            run_["error"] = "it hung"
        document["summary"][0]["notes"] = ["gluster-ec: failed: it hung", "shoal: 3 passes", "shoal: all done after 2.1 s",
                                           "shoal: all done after 2.2 s"]
        text = tables(self.page(document))["Against GlusterFS's dispersed 8+2"]
        self.assertIn("| 2.00 (1.00 to 3.00) | failed | - |", text)
        self.assertIn("Notes: `stat`, shoal: all done after 2.1 s; `stat`, gluster-ec: failed: it hung.", text)

    def test_memory(self):
        document = joined(FIGURES)
        document["against"]["mount"]["memory"]["mount"] = {"mount": {"rss_kib": 1, "high_water_kib": 100 << 10}}
        document["against"]["gluster-ec"]["memory"]["gluster-ec"] = {"brick": {"rss_kib": 1, "high_water_kib": 900 << 10}}
        text = tables(self.page(document, joined(FIGURES)))["Memory"]
        for line in ("| shoal brick | **300** | 256 |", "| shoal mount | 100 | 256 |", "| gluster-ec brick | 900 | - |"):
            self.assertIn(line, text)

    def test_where_the_time_goes(self):
        (self.docs / "figures" / "profile.op.svg").write_text("of another build")
        document = joined(FIGURES)
        self.assertNotIn("Where the time goes", tables(self.page(document)))
        self.assertFalse((self.docs / "figures" / "profile.op.svg").exists())
        document["against"]["mount"]["profile"] = PROFILE
        text = tables(self.page(document))["Where the time goes"]
        self.assertIn("| row | unit | FUSE | copies | network |", text)
        self.assertIn("| `stat` | us/op | 1.50 | 0 | 4.00 |", text)
        for per in ("op", "GiB"):
            self.assertIn(f"(figures/profile.{per}.svg)", text)
            minidom.parse(str(self.docs / "figures" / f"profile.{per}.svg"))

    def test_what_was_not_measured_is_left_out_and_named(self):
        text = self.page(results({"gluster-ec": FIGURES["gluster-ec"]}))
        self.assertEqual(list(tables(text)), ["Against GlusterFS's dispersed 8+2", "What falls short", "Memory"])
        [line] = [line for line in text.splitlines() if line.startswith("Not measured in this run")]
        for words in ("--against gluster-replica`", "--against moosefs,seaweedfs,juicefs`", "--against passthrough`",
                      "--rows nbd`", "--rows nfs --against ganesha`", "--profile`"):
            self.assertIn(f"(`./dev bench {words}", line)

    def test_a_row_that_a_stopped_run_did_not_come_to_is_left_out(self):
        document = results({"gluster-ec": FIGURES["gluster-ec"]})
        del document["runs"]["stat"]["gluster-ec"]
        self.assertNotIn("`stat`", self.page(document))


class Written(Pages):
    def test_a_page_is_made_of_what_a_run_writes(self):
        row = ROWS["stat"]
        found = Results({"stat": {"shoal": [Measurement(90, 1)], "gluster-ec": [Measurement(1, 1)]}})
        systems = [SimpleNamespace(name=name, about=ALL[name].about) for name in ("shoal", "gluster-ec")]
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            run.write_report(SimpleNamespace(json=False), found, [row], systems, FACTS, {}, PROFILE, self.home)
        page.write([self.home / "results.json"], [], self.docs)
        text = (self.docs / page.PAGE).read_text()
        self.assertIn("| 90.0 | 1.00 | 90.0 (8) | - / - us/op |", text)
        self.assertIn("## Where the time goes", text)

    def test_facts_say_how_it_was_measured_and_what(self):
        given = SimpleNamespace(binary=Path(__file__), runs=3, seconds=4.0, long_seconds=30.0)
        facts = run.machine_facts(given)
        self.assertEqual(len(facts["binary"]), 16)
        self.assertLessEqual({*FACTS} - {"minutes", "calibration"}, facts.keys())


class Several(Pages):
    def test_a_run_in_parts_is_one_run(self):
        some = {system: FIGURES[system] for system in ("gluster-ec", "juicefs", "mount", "ganesha")}
        self.assertEqual(self.page(joined(some)), self.page(results(some)))

    def test_results_of_one_build_are_joined_and_the_last_counts(self):
        text = self.page(results({"gluster-ec": {"stat": ([1], [1]), "unlink": ([30], [1])}}),
                         results({"gluster-ec": {"stat": ([90], [1])}}, arguments=["--rows", "stat", "--out", "x"]))
        self.assertIn("| 90.0 | 1.00 | 90.0 (8) |", text)
        self.assertIn("| 30.0 | 1.00 | 30.0 (8) |", text)
        self.assertLess(text.index("| `stat`"), text.index("| `unlink`"))
        self.assertIn("./dev bench --rows stat\n./dev bench --page a1.json,a2.json    # the results.json of these\n", text)

    def test_another_build_or_machine_is_refused(self):
        before = (self.docs / page.PAGE).read_text()
        for facts, words in (({"commit": "def"}, "commit: abc123 and def"), ({"changed": ["M x"]}, "uncommitted changes"),
                             ({"binary": "beef"}, "binary: feed and beef"), ({"cpu": "another"}, "CPU.*\n.*--second"),
                             ({"cores": 4}, "number of cores"), ({"kernel": "7"}, "kernel"), ({"memory_mib": 1024}, "RAM")):
            with self.assertRaisesRegex(Failed, words):
                self.page(joined(FIGURES), joined(FIGURES, **facts))
        other = joined(FIGURES)
        for part in other["against"].values():
            part["facts"]["systems"]["shoal"]["code"] = "4+2"
        with self.assertRaisesRegex(Failed, r"several codes: 4\+2, 8\+2"):
            self.page(joined(FIGURES), other)
        self.assertEqual((self.docs / page.PAGE).read_text(), before)

    def test_what_is_no_result_is_refused(self):
        for document in ([], {}, {"against": {}}, {"facts": FACTS, "against": {}}):
            with self.assertRaises(Failed):
                self.page(document)
        with self.assertRaisesRegex(Failed, "nowhere.json"):
            page.write([Path("nowhere.json")], [], self.docs)
        old = results({"juicefs": FIGURES["juicefs"]})
        del old["facts"]["runs"]
        with self.assertRaisesRegex(Failed, "another version"):
            self.page(old)


class Second(Pages):
    there = results({"gluster-ec": {"stat": ([90], [10]), "seq-write-1m-1j": ([100], [100])}}, commit="def456",
                    cpu="slower", date="2026-02-01", calibration={})

    def test_its_ratios_stand_beside(self):
        text = self.page(joined(FIGURES), second=(self.there,))
        part = tables(text)["Against GlusterFS's dispersed 8+2"]
        self.assertIn("| ratio (floor) | ratio on slower, 2 cores, commit def456, 2026-02-01 |", part)
        self.assertIn("| 5.00 (4) | **1.00 (4)** |", part)
        self.assertIn("| **6.00 (8)** | 9.00 (8) |", part)
        self.assertNotIn("slower", tables(text)["NFS gate against nfs-ganesha"])
        without = results({"gluster-ec": {"stat": ([90], [10])}}, commit="def456")
        text = self.page(joined(FIGURES), second=(without,))
        self.assertIn("| 5.00 (4) | - |", tables(text)["Against GlusterFS's dispersed 8+2"])

    def test_what_falls_short_there_is_told(self):
        text = tables(self.page(joined(FIGURES), second=(self.there,)))["What falls short"]
        self.assertIn("MiB/s | GlusterFS 8+2 | 5.00 | **1.00** | 4 |", text)
        self.assertIn("| **6.00** | 9.00 | 8 |", text)

    def test_the_head_has_both(self):
        text = self.page(joined(FIGURES), second=(self.there,))
        self.assertIn("|  | measured | second machine |", text)
        self.assertIn("| commit | `abc123` | `def456` |", text)
        self.assertIn("| calibration | memcpy 5.0 to 6.0 GB/s, a system call 200 ns, least to most | - |", text)
        self.assertIn("On the second machine it writes 1.0 times as fast as GlusterFS's dispersed 8+2 (1 MiB at a time, 1 job)",
                      text)
        self.assertIn("    # on the second machine\n./dev bench --page a1.json --second b1.json", text)

    def test_it_has_one_build_and_the_same_code(self):
        with self.assertRaisesRegex(Failed, "commit"):
            self.page(joined(FIGURES), second=(self.there, joined(FIGURES, cpu="slower")))
        other = joined(FIGURES)
        for part in other["against"].values():
            part["facts"]["systems"]["shoal"]["code"] = "4+2"
        with self.assertRaisesRegex(Failed, "of the code"):
            self.page(joined(FIGURES), second=(other,))


class Between(Pages):
    def test_the_rest_of_the_page_stays(self):
        first = self.page(joined(FIGURES))
        second = self.page(results({"ganesha": FIGURES["ganesha"]}))
        for text in (first, second):
            self.assertTrue(text.startswith("# Title\n<!-- head:") and text.endswith(f"{growth_report.END}\nend\n"))
            self.assertIn("\nafter the head\n", text)
        self.assertIn("Against GlusterFS's three copies", tables(first))
        self.assertNotIn("Against GlusterFS's three copies", tables(second))

    def test_a_page_without_marks_is_left_alone(self):
        (self.docs / page.PAGE).write_text("nothing")
        with self.assertRaisesRegex(Failed, "lacks the lines"):
            self.page(joined(FIGURES))
        self.assertEqual((self.docs / page.PAGE).read_text(), "nothing")
        with self.assertRaises(ValueError):
            marks.found("b a", "a", "b")

    def test_growth_and_rows_go_to_their_own_parts(self):
        out = self.home / "grown"
        out.mkdir()
        curve = Curve("growth.x", "things", "thing", [Metric("cost", "s")], {10: {"cost": 1.0}})
        growth.write([curve], {**FACTS, "commit": "abc123"}, out)
        page.write([self.json(joined(FIGURES)), out / "results.json"], [], self.docs)
        text = (self.docs / page.PAGE).read_text()
        self.assertIn("| cost, s | 1.00 |", text)
        self.assertIn("## Memory", text)
        self.assertEqual(len(self.told), 1)
        # A part that was written before, of another commit
        self.page(joined(FIGURES, commit="def456"))
        self.assertIn("parts of different commits: tables def456, growth abc123", self.told[-1])
        with self.assertRaisesRegex(Failed, "commit"):
            page.write([self.json(joined(FIGURES, commit="def456")), out / "results.json"], [], self.docs)
        with self.assertRaisesRegex(Failed, "no second machine"):
            page.write([out / "results.json"], [self.json(joined(FIGURES))], self.docs)

    def test_the_page_of_the_tree_has_all_marks(self):
        text = (BENCH.parent / "docs" / page.PAGE).read_text()
        for begin, end in (*map(page.mark, ("head", "tables")), (growth_report.BEGIN, growth_report.END),
                           (auto_report.BEGIN, auto_report.END)):
            self.assertEqual((text.count(begin), text.count(end)), (1, 1))
            marks.found(text, begin, end)


class Commands(unittest.TestCase):
    def test_a_command_is_repeated_without_where_its_results_went(self):
        words = ["--rows", "a|b", "--page", "--second", "x.json", "--out=y", "--out", "z", "--quick"]
        self.assertEqual(repeat.command(words), "./dev bench --rows 'a|b' --quick")

    def test_every_question_is_asked_by_its_command(self):
        for question in page_tables.questions("8+2"):
            words = question.words.split()
            for system in words[words.index("--against") + 1].split(",") if "--against" in words else ["mount"]:
                self.assertIn(system, question.systems)

    def main(self, *words: str) -> tuple[int, mock.Mock]:
        with (mock.patch.object(sys, "argv", ["run.py", *words]), mock.patch.object(run.page, "write") as write,
              contextlib.redirect_stderr(io.StringIO())):
            return run.main(), write

    def test_a_page_from_earlier_runs_measures_nothing(self):
        code, write = self.main("--page", "a.json,b.json", "--second", "c.json")
        self.assertEqual(code, 0)
        write.assert_called_once_with([Path("a.json"), Path("b.json")], [Path("c.json")], run.ROOT / "docs")

    def test_a_run_writes_its_page_unless_it_was_stopped(self):
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "results.json").write_text("{}")
            for rows, measure in (("stat", "measure_rows"), ("growth", "measure_growth"), ("auto", "measure_auto")):
                for code, pages in ((0, 1), (1, 1), (130, 0)):
                    with (mock.patch.object(run, measure, return_value=code),
                          mock.patch.object(run.os, "geteuid", return_value=0)):
                        found, write = self.main("--rows", rows, "--out", folder, "--page")
                        self.assertEqual((found, write.call_count), (code, pages))
                        _, write = self.main("--rows", rows, "--out", folder)
                        self.assertEqual(write.call_count, 0)

    def test_a_second_machine_goes_with_a_page(self):
        with self.assertRaises(SystemExit):
            self.main("--second", "c.json")


class Arrows(unittest.TestCase):
    """Modules of the harness use each other in one direction, and say so at their head."""

    def imports(self, path: Path) -> set[str]:
        """The modules of the harness that a file uses."""
        package = path.relative_to(BENCH).parent.parts
        found = set()
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.level:
                self.assertEqual(node.col_offset, 0, f"{path}: an import within a function")
                at = (*package[:len(package) - node.level + 1], *(node.module or "").split("."))
                at = tuple(filter(None, at))
                for name in node.names:
                    below = BENCH.joinpath(*at, f"{name.name}.py")
                    found.add(".".join((*at, name.name) if below.exists() else at))
        return found

    def test_nothing_uses_what_uses_it(self):
        files = {".".join(path.relative_to(BENCH).with_suffix("").parts).removesuffix(".__init__"): path
                 for path in (BENCH / "harness").rglob("*.py")}
        uses = {name: self.imports(path) & files.keys() for name, path in files.items()}
        while free := [name for name, of in uses.items() if not of & uses.keys()]:
            for name in free:
                del uses[name]
        self.assertEqual(uses, {})


if __name__ == "__main__":
    unittest.main()
