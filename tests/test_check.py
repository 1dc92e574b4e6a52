"""The judge that `grader check --watch` keeps ready."""

from __future__ import annotations

import threading
from io import StringIO
from pathlib import Path

import psutil
import pytest
from rich.console import Console

from grader.check import check_and_watch
from grader.messages import Place, Request
from grader.report.checking import CheckView
from tests.conftest import ROOT


@pytest.mark.grading
def test_a_check_that_grades_nothing_leaves_its_judge_to_the_next(tmp_path: Path) -> None:
    (tmp_path / "softmax.py").write_bytes((ROOT / "starter" / "softmax.py").read_bytes())
    beside, judges = set(psutil.Process().children()), list[set[psutil.Process]]()
    is_answered = threading.Event()

    def save() -> None:
        while not is_answered.wait(0.2):  # the folder may not be watched yet
            (tmp_path / "softmax.py").write_text("def softmax(x:\n")

    def waiting() -> None:
        judges.append(set(psutil.Process().children()) - beside)
        if len(judges) == 2:
            raise KeyboardInterrupt
        threading.Thread(target=save, daemon=True).start()

    place = Place(device="cpu")
    request = Request(submission=tmp_path, course=ROOT, assignments=("softmax",), place=place)
    shown = StringIO()
    try:
        with pytest.raises(KeyboardInterrupt):
            check_and_watch(request, lambda *_: CheckView(Console(file=shown)), pytest.fail, waiting)
    finally:
        is_answered.set()
    assert "still the starter's stub" in shown.getvalue()
    assert "SyntaxError in line 1" in shown.getvalue()
    of_the_stub, of_the_mistake = judges
    assert len(of_the_stub) == 1
    assert of_the_mistake == of_the_stub
