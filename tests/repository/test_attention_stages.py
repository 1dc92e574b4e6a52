"""The forms of `benchmarks/attention_stages.py` are made of the reference's lines as they are."""

from __future__ import annotations

import ast

import pytest

from benchmarks import attention_stages as stages

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
