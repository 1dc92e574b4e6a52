"""The forms of `benchmarks/attention_stages.py` are made of the reference's lines as they are, and run."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import attention_stages as stages
from tests.conftest import ROOT

FORMS = {**{f"forward, {name}": one for name, one in stages.FORWARD.items()}, **stages.BACKWARD}


def functions(source: str) -> dict[str, str]:
    return {
        one.name: ast.dump(one) for one in ast.parse(source).body if isinstance(one, ast.FunctionDef | ast.ClassDef)
    }


@pytest.mark.parametrize("name", FORMS)
def test_a_form_differs_in_its_kernels_alone(name: str) -> None:
    reference, form = functions(stages.source_of({})), functions(stages.source_of(FORMS[name]))
    assert reference.keys() == form.keys()
    changed = {one for one in reference if reference[one] != form[one]}
    if name.startswith("forward"):
        assert changed == {"flash_forward_kernel"}
    elif name.startswith("five products"):
        assert changed == {"flash_backward_dq_kernel"}
    else:
        assert changed == {"flash_backward_dq_kernel", "flash_backward_dk_dv_kernel"}


def test_a_line_that_the_reference_has_no_more_is_told() -> None:
    with pytest.raises(ValueError, match=r"not once in flash_attention\.py: p = softmax\(s\)"):
        stages.source_of({"p = softmax(s)": "p = s"})


def test_a_line_that_stands_twice_is_told() -> None:
    with pytest.raises(ValueError, match="not once"):
        stages.source_of({"scale_log2 = scale * LOG2_E": "scale_log2 = 1.0"})


# In a process of its own: whether kernels are interpreted is decided when Triton is imported.
RUN = """
import sys
from pathlib import Path
from benchmarks import attention_stages as stages

for kind, causal in (("forward", True), ("forward", False), ("backward", True)):
    forms = stages.forms_of(kind, (1, 80, 16), causal, Path(sys.argv[1]), "cpu")
    for name, run in forms.items():
        got = run()
        shapes = {tuple(one.shape) for one in (got[:3] if kind == "backward" else [got])}
        assert shapes == {(1, 80, 16)}, (name, shapes)
    print(len(forms))
"""


def test_every_form_runs(tmp_path: Path) -> None:
    run = subprocess.run(
        [sys.executable, "-c", RUN, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=240,
        cwd=ROOT,
        env=os.environ | {"TRITON_INTERPRET": "1"},
    )
    assert run.returncode == 0, run.stderr[-2000:]
    counts = [len(stages.FORWARD) + 1, len(stages.FORWARD), len(stages.BACKWARD) + 3]  # not causal, there is no mask
    assert [int(line) for line in run.stdout.split()] == counts
