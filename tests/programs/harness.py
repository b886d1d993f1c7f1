"""bench/harness.py on made-up sides and programs; without PyTorch.
    tests/programs/harness.py SOURCE_DIR"""
import contextlib
import io
import pathlib
import stat
import sys
import tempfile
import types
import unittest

sys.path.insert(0, sys.argv.pop(1) + "/bench")
import harness  # noqa: E402


def said(call, *arguments):
    """What a call prints: (on stdout, on stderr)."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        call(*arguments)
    return out.getvalue(), err.getvalue()


class Harness(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def program(self, text):
        path = self.folder / "program"
        path.write_text("#!/bin/sh\n" + text)
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        return path

    def test_sides_take_turns(self):
        order = []
        sides = {name: lambda n, name=name: order.append(name) or n * len(order) for name in "ab"}
        self.assertEqual(harness.take_turns(sides, 3, 10), {"a": [10, 30, 50], "b": [20, 40, 60]})
        self.assertEqual("".join(order), "ababab")

    def test_a_side_that_fails_stops_no_other(self):
        calls = []

        def fails():
            calls.append(1)
            if len(calls) == 2:
                raise ValueError("no such kernel\nmore")
            return 1

        results = []
        _, err = said(lambda: results.append(harness.take_turns({"x": fails, "y": lambda: 2}, 3)))
        self.assertEqual((results, len(calls)), ([{"y": [2, 2, 2]}], 2))
        self.assertEqual(err, "harness: x is left out: no such kernel\n")

    def test_figures(self):
        self.assertEqual(harness.spread([3, 1, 2, 10]), (2.5, 1, 10))
        self.assertEqual(harness.least([{"a": 3, "b": 1}, {"a": 2}, {"a": 4, "b": 5}]), {"a": 2, "b": 1})
        self.assertEqual([harness.steps_in(1, each) for each in (3, 0.1, 0.001)], [1, 10, 50])
        self.assertEqual(harness.records('x\n {"a": 1}\n{"b": \n{"c": [2]}'), [{"a": 1}, {"c": [2]}])

    def test_a_mean_is_of_all_calls_and_waits_twice(self):
        order = []
        seconds = harness.mean_seconds(lambda: order.append("c"), 3, lambda: order.append("w"))
        self.assertEqual("".join(order), "wcccw")
        self.assertGreater(seconds, 0)
        figures = harness.time_rounds(lambda: None, lambda: None, 2, 3)
        self.assertLessEqual(figures["low"], figures["ms"])
        self.assertLessEqual(figures["ms"], figures["high"])

    def test_tables(self):
        def print_table():
            table = harness.Table(("side", "<6"), ("ms", ">7.2f"), ("more", ">5"), indent=" ")
            table.line("gradus", 1.005, "")
            table.line("x", "-", 12)

        self.assertEqual(said(print_table)[0], " side        ms  more\n gradus    1.00\n x            -    12\n")

    def test_programs(self):
        path = self.program('echo "$*"; echo \'{"name": "a", "ms": 2}\'')
        args = types.SimpleNamespace(bench=path, device="cpu", threads=2)
        self.assertEqual(harness.bench(args, "ops", 3), [{"name": "a", "ms": 2}])
        self.assertTrue(harness.run([path, 1]).startswith("1\n"))
        failing = self.program("echo begun; echo Traceback >&2; echo 'ValueError: bad' >&2; echo end >&2; exit 3")
        with self.assertRaisesRegex(RuntimeError, "program fails: ValueError: bad$"):
            harness.run([failing])
        with self.assertRaisesRegex(RuntimeError, "nowhere does not start: No such file"):
            harness.run([self.folder / "nowhere"])
        with self.assertRaisesRegex(SystemExit, "^harness: .*fails: ValueError: bad$"):
            harness.bench(args, "ops")

    def test_training_programs(self):
        steps = "\\n".join(f'{{"step": {n}, "ms": {n * 10}, "loss": 1}}' for n in (1, 2, 3))
        path = self.program('while [ "$1" != --log ]; do shift; done; echo "[$PWD]"; '
                            f"printf '{steps}\\n{{\"val\": 1}}\\n' >\"$2\"")
        times, last, text = harness.train(path, self.folder, "--steps", 3, warm=1)
        self.assertEqual((times, last["step"]), ([20, 30], 3))
        self.assertIn(self.folder.name, text)
        with self.assertRaisesRegex(RuntimeError, "too few steps"):
            harness.train(path, self.folder, warm=3)

    def test_memory_is_in_mib(self):
        for unit, mib in (("MiB", 1.25), ("GiB", 1280)):
            said = f"memory 3.00 {unit} before the first step: gradients 0.5, optimizer 1.25\n"
            self.assertEqual(harness.mib_before(said, "optimizer"), mib)

    def test_options(self):
        parser = harness.options("What it does.", "rounds", "device", rounds=7)
        parser.add_argument("--ops", **harness.of(("a", "b")))
        parser.add_argument("--ranks", type=harness.several(harness.count))
        args = parser.parse_args([])
        self.assertEqual((args.rounds, args.device, args.ops), (7, "cuda", ["a", "b"]))
        args = parser.parse_args(["--ops", "b", "--ranks", "1,4", "--rounds", "2"])
        self.assertEqual((args.rounds, args.ops, args.ranks), (2, ["b"], [1, 4]))
        for words, wanted in ((["--ops", "b,c"], "c is none of a, b"),
                              (["--ranks", "1,0"], '"0" is not a whole number of at least 1'),
                              (["--rounds", "1.5"], '"1.5" is not a whole number of at least 1')):
            err = io.StringIO()
            with self.assertRaises(SystemExit), contextlib.redirect_stderr(err):
                parser.parse_args(words)
            self.assertIn(f"argument {words[0]}: {wanted}", err.getvalue())


if __name__ == "__main__":
    unittest.main()
