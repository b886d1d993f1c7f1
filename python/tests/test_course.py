"""course/python/grade.py: the solution has all points, what is given none, a wrong one a sentence."""

import pathlib
import subprocess
import sys

import pytest

COURSE = pathlib.Path(__file__).parents[2] / "course"
SOLUTION = COURSE / "solutions/python/backwards.py"


def grade(number, path):
    run = subprocess.run([sys.executable, COURSE / "python/grade.py", str(number), path],
                         capture_output=True, text=True)
    return run.returncode, run.stdout + run.stderr


@pytest.mark.parametrize("number", range(2, 7))
def test_solution_and_skeleton(tmp_path, number):
    status, said = grade(number, SOLUTION)
    assert status == 0, said
    (tmp_path / "given.py").write_bytes(subprocess.check_output([COURSE / "skeleton", SOLUTION]))
    status, said = grade(number, tmp_path / "given.py")
    assert status == 1 and "begin here" in said and " 0/" in said, said


@pytest.mark.parametrize("number, right, wrong, words", [
    (5, "(dy - (y * dy).sum(-1, keepdims=True))", "dy", "a sum along axis 1 is missing"),
    (5, "dx += y", "dx[:] = y", "what was there before is not in the gradient"),
    (5, "/ max(len(rows), 1)", "/ len(x)", "a constant factor"),
    (5, " - x.max(-1, keepdims=True)", "", "NaN"),
    (4, "da += dy @ b.T", "da += dy @ b", "ValueError"),
    (6, "dw += (dy * xhat)", "dw += dy", "the summed term is dy"),
    (3, "np.add.at(dtable, index, dy)", "dtable[index] += dy", "only the last counts"),
    (2, "import numpy as np", "import numpy as np\nimport torch", "torch"),
])
def test_wrong_ones(tmp_path, number, right, wrong, words):
    text = SOLUTION.read_text()
    assert right in text
    path = tmp_path / "backwards.py"
    path.write_text(text.replace(right, wrong))
    status, said = grade(number, path)
    assert status == 1 and words in said, said
