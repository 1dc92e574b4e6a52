"""What a seed draws does not depend on what else is loaded."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import grader

PROGRAM = """
import hypothesis, sys
from hypothesis import Phase, given, settings, strategies as st
from grader.judge.properties import draw_alike_everywhere

draw_alike_everywhere()
if len(sys.argv) > 1:
    import loaded_beside
drawn = []
for seed in range(40):
    @hypothesis.seed(seed)
    @settings(max_examples=4, database=None, deadline=None, phases=(Phase.generate,))
    @given(st.tuples(st.integers(1, 6), st.integers(1, 300)))
    def draw(shape):
        drawn.append(shape)
    draw()
print(drawn)
"""


def test_modules_that_happen_to_be_loaded_do_not_change_it(tmp_path: Path) -> None:
    numbers = ", ".join(map(str, range(2, 300)))  # Hypothesis likes numbers that it finds in one's own source
    (tmp_path / "loaded_beside.py").write_text(f"NUMBERS = [{numbers}]\n")
    root = Path(grader.__file__).parent.parent
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(root), str(tmp_path)]), "TMPDIR": str(tmp_path)}
    commands = [[sys.executable, "-c", PROGRAM, *more] for more in ([], ["more"])]
    alone, beside = (subprocess.check_output(one, cwd=tmp_path, env=environment) for one in commands)
    assert alone == beside
    assert len(alone) > 500
    assert [path.name for path in tmp_path.iterdir() if path.name not in ("loaded_beside.py", "__pycache__")] == []
