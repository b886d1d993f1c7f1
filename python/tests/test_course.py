"""course/python/grade.py: the solution has all points, what is given none, a wrong one a sentence."""

import pathlib
import subprocess
import sys

import pytest

COURSE = pathlib.Path(__file__).parents[2] / "course"
SOLUTION = COURSE / "solutions/python/backwards.py"


def grade(folder, number, text):
    path = folder / "backwards.py"
    path.write_text(text)
    run = subprocess.run([sys.executable, COURSE / "python/grade.py", str(number), path],
                         capture_output=True, text=True)
    return run.returncode, run.stdout + run.stderr


@pytest.mark.parametrize("number", range(2, 7))
def test_solution_and_skeleton(tmp_path, number):
    status, said = grade(tmp_path, number, SOLUTION.read_text())
    assert status == 0 and " 100/100" in said, said
    given = subprocess.check_output([COURSE / "skeleton", SOLUTION], text=True)
    status, said = grade(tmp_path, number, given)
    assert status == 1 and said.count("begin here") == said.count(" 0/") - 1, said


@pytest.mark.parametrize("number, right, wrong, words", [
    (5, "(dy - (y * dy).sum(-1, keepdims=True))", "dy", "a sum along axis 1 is missing"),
    (5, "dx += y", "dx[:] = y", "what was there before is not in the gradient"),
    (5, "/ max(len(rows), 1)", "/ len(x)", "a constant factor"),
    (5, " - x.max(-1, keepdims=True)", "", "NaN"),
    (4, "da += dy @ b.T", "da += dy @ b", "ValueError"),
    (4, "if dbias is not None:", "if True:", "TypeError"),
    (6, "part += (dy * xhat)", "part += dy", "the summed term is dy"),
    (6, "parts.sum(0)", "parts[0]", "dw: of the dy summed into w[0] only the first 2 count"),
    (3, "1.3 - np.arange(5)", "1.3 - np.arange(4)", "the faulty backward passes on this case"),
    (5, "-1000.0", "np.nan", "the right backward does not pass on this case"),
    (3, "np.add.at(dtable, index, dy)", "dtable[index] += dy", "only the last counts"),
    (2, "import numpy as np", "import numpy as np\nimport torch", "torch"),
])
def test_wrong_ones(tmp_path, number, right, wrong, words):
    text = SOLUTION.read_text()
    assert right in text
    status, said = grade(tmp_path, number, text.replace(right, wrong))
    assert status == 1 and words in said, said
