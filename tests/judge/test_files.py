"""When a part is given up, and what is ended then."""

from __future__ import annotations

from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from grader.assignment import load_course
from grader.judge.cases import ReportPlace
from grader.judge.files import Files, Hangs
from grader.messages import Request, Staged
from grader.pool.fault import Fault
from grader.pool.last_words import SLOW_IN_PYTHON
from grader.report.model import SubmissionInfo
from tests.conftest import ROOT


def late(time_s: int = 10, details: tuple[str, ...] = ()) -> Fault:
    return Fault("timed_out", f"no answer within {time_s} s: stopped", details=details)


def place(assignment: str, part: str, name: str = "") -> ReportPlace:
    own: Any = SimpleNamespace(name=assignment)
    of_part: Any = SimpleNamespace(name=part)
    return ReportPlace(own, of_part, name)


SAME = late()


@pytest.mark.parametrize(
    ("errors", "given_up"),
    [
        ([late(), late()], True),
        ([late(), None, Fault.wrong("wrong"), late()], True),
        ([late()], False),
        ([SAME, SAME], False),
        ([late(10), late(60)], False),
        ([late(10), late(60), late(10)], True),
        ([late(details=(SLOW_IN_PYTHON,)), late(details=(SLOW_IN_PYTHON, "the input: n 3")), late()], False),
        ([Fault("crashed", "no answer within 10 s: stopped")] * 2, False),
        ([Fault("timed_out", "what your code did has taken 600 s in all") for _ in range(2)], False),
        ([Fault("timed_out", "the examples were not answered within 300 s") for _ in range(2)], False),
    ],
    ids=str,
)
def test_a_part_is_given_up_when_two_cases_of_it_hung_alike(errors: list[Exception | None], given_up: bool) -> None:
    hangs = Hangs()
    for number, error in enumerate(errors):
        hangs.note(place("softmax", "forward", f"case-{number}"), error)
    assert hangs.has_given_up(place("softmax", "forward")) == given_up
    assert not hangs.has_given_up(place("softmax", "backward"))
    hangs.check(place("softmax", "backward"))
    hangs.check(place("gelu", "forward"))
    if not given_up:
        hangs.check(place("softmax", "forward"))
        return
    names = [f"case-{number}" for number, error in enumerate(errors) if str(error) == str(late())]
    with pytest.raises(Fault) as fault:
        hangs.check(place("softmax", "forward"))
    told = f"not run: {' and '.join(names)} of this part gave no answer within 10 s; mend these first"
    assert (fault.value.outcome, fault.value.message) == ("timed_out", told)


class Worker:
    def __init__(self) -> None:
        self.reason: Future[Exception] | None = None

    def terminate(self, reason: Future[Exception]) -> None:
        self.reason = reason


def test_what_takes_minutes_is_ended_with_its_part() -> None:
    """compute-sanitizer's workers and those that compile begin before anything has hung."""
    hangs = Hangs()
    own, done, others = workers = [Worker() for _ in range(3)]
    given: list[Any] = list(workers)
    with hangs.ending(place("a", "p"), given[1]):
        pass
    with hangs.ending(place("a", "p"), given[0]), hangs.ending(place("a", "other"), given[2]):
        hangs.note(place("a", "p", "one"), late())
        assert own.reason is None
        hangs.note(place("a", "p", "two"), late())
        assert own.reason is not None
        assert str(own.reason.result()).startswith("not run: one and two of this part")
    assert (done.reason, others.reason) == (None, None)
    with pytest.raises(Fault, match="not run"), hangs.ending(place("a", "p"), given[1]):
        pytest.fail("it must not begin")


def test_kernels_of_cuda_are_known_from_the_source_and_from_ptxas(tmp_path: Path) -> None:
    """PyTorch's build of the torch form keeps ptxas's words; a kernel that a macro names is not in the source."""
    (tmp_path / "gelu.cu").write_text("__global__ void by_hand(float* x) {}\nMADE_BY_A_MACRO(by_macro)\n")
    (gelu,) = load_course(ROOT, ("cuda_gelu",))
    info = SubmissionInfo(path="here", sha256="0", files=("gelu.cu",))
    copied = Staged(folder=tmp_path, info=info)
    run: Any = SimpleNamespace(request=Request(submission=tmp_path, course=ROOT, staged=copied), assignments=(gelu,))
    files = Files(run)
    files.look()
    files.finish_looking()
    assert files.own_kernels(gelu) == {"by_hand"}
    told = "ptxas info    : Compiling entry function '_Z8by_macroPf' for 'sm_90'\nptxas info    : Used 8 registers\n"
    worker: Any = SimpleNamespace(ptxas=told)
    files.employ(worker, gelu)
    assert files.own_kernels(gelu) == {"by_hand", "by_macro"}
