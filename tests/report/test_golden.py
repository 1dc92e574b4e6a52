"""What students read on a terminal and on a page, as files in `golden/`.

python -m tests.report.test_golden    write the files anew, to be read before they are committed
"""

from __future__ import annotations

import io
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from grader.messages import CaseDone, CaseStarted, Planned, PlannedPart, SpeedDone
from grader.report.checking import CheckView
from grader.report.index import IndexedReport, Override, index, overridden, summary
from grader.report.model import (
    NEEDS_GPU,
    BandResult,
    CaseResult,
    Environment,
    GpuTime,
    Isolation,
    KernelResources,
    KernelTime,
    OutputError,
    Points,
    Report,
    SourceLines,
    SpeedResult,
    SubmissionInfo,
)
from grader.report.page import page
from grader.report.terminal import Progress, print_report
from tests.report.building import make_case, make_part, make_report, measured, timed, took
from tests.report.parsing import Parsed
from tests.verdict.test_causes import a_map

GOLDEN = Path(__file__).parent / "golden"
LOST = Points(earned=0, graded=4, possible=4)
OPEN = Points(earned=0, graded=0, possible=4)
MASK = "only row {} of 1000 is wrong, what is left after full blocks of 64: consistent with a block that is not masked"
PATTERN = "fails whenever a case has a transposed x: 2 of 2; passes otherwise: 12 of 12"
MAP = a_map("......", "......", "....uu", rows=1000, cell_rows=400)
FRAMES = (
    '  File "softmax.py", line 7, in softmax_kernel\n    x = tl.load(x_ptr + row * x_row_stride)\n        ^^^^^^^~~~\n'
)
OTHERS = ("numpy: RuntimeWarning: invalid value (12 times)", "b", "c", "d", "e")


def changed(report: Report, **fields: Any) -> Report:
    """The report with other fields in its assignment."""
    (one,) = report.assignments
    return report.model_copy(update={"assignments": (one.model_copy(update=fields),)})


def failing() -> Report:
    """Two parts with one cause in both, another cause, a crash, a property; prints, kernels, hints, notes, faults."""
    error = OutputError(
        output="y", worst=math.inf, worst_budget=1e-5, rms=2e-6, rms_budget=1e-5, pytorch_worst=1e-7, pytorch_rms=1e-8
    )
    told = {"map": MAP, "tries": "", "errors": (error,)}
    wrong = [
        make_case(f"n-{at}", "failed", message=f"y[{at}] is wrong", diagnosis=(MASK.format(at), "a remark"), **told)
        for at in range(3)
    ]
    tea = [make_case(name, "failed", message="z: consistent with tea", map=MAP) for name in ("a", "b")]
    property_ = make_case("test_rows", "failed", tries="every row of y sums to 1", message="row 0 of y sums to 2")
    crash = make_case("gone", "crashed", message="segmentation fault", traceback=FRAMES)
    named = [("softmax_kernel", True, 0.7), ("at::native::a", False, 0.2), ("b", False, 0.05), ("c", False, 0.03)]
    spent = tuple(KernelTime(name=name, own=own, calls=1, share=share) for name, own, share in named)
    right = make_case("everyday", gpu_time=GpuTime(own_share=0.7, library_share=0.2, kernels=(*spent, spent[-1])))
    skipped = [make_case(name, "skipped", message=f"needs a GPU: {name}") for name in ("long rows", "many rows")]
    first = make_part(*wrong, *tea, property_, crash, right, *skipped, points=LOST, provisional=True)
    second = make_part(wrong[1], make_case("n-9", message="a note"), points=LOST, name="backward", title="Backward")
    report = make_report(
        first,
        second,
        log="[forward n-1] m = 3\n[forward n-1] m = 3\n[backward n-1] m = 4\n[forward everyday] right",
        infra_errors=("driver lost",),
        submission=SubmissionInfo(
            path="s", sha256="0", files=("softmax.py",), notes=("big.py: ignored, larger than 1 MiB",)
        ),
        isolation=Isolation(jail="none", note="graded on this host: no daemon answers"),
    )
    (one,) = report.assignments
    problem = "needs 9 bytes of shared memory for a block, an A100 has 8"
    kernels = [
        KernelResources(name="k", part="forward", case=case, arch=arch, registers=40, problem=problem)
        for case in ("a", "b")
        for arch in ("sm_90", "sm_80")
    ]
    kernels += [
        KernelResources(name="l", case="c", arch="sm_90", registers=255, shared_bytes=49152, spill_store_bytes=8),
        KernelResources(name="m", case="c", arch="sm_90", registers=None, problem="does not compile: bad"),
        KernelResources(name="cuda", arch="sm_90", registers=28, shared_bytes=64),
    ]
    hints = ("softmax.py: row_kernel spills 8 bytes to memory (sm_90): take smaller tiles",)
    log = one.log.model_copy(update={"others": OTHERS})
    source = SourceLines(file="softmax.py", first=6, lines=("a", "b = 1"), blamed=(7,))
    return changed(report, kernels=tuple(kernels), hints=hints, log=log, sources=(source,))


def alike() -> Report:
    """Parts of which every case ended alike."""
    of_file = [make_case(f"n-{at}", "build_failed", message="line 3 is wrong", of_file=True) for at in range(3)]
    far = make_case("far", "skipped", message="needs a GPU")
    stub = [make_case(f"n-{at}", "not_implemented", message="the stub") for at in range(3)]
    return make_report(
        make_part(*of_file, far, points=LOST),
        make_part(*of_file, points=LOST, name="backward", title="Backward"),
        make_part(*stub, points=LOST, name="stub", title="A stub"),
        make_part(far, far, points=OPEN, name="far", title="Far"),
    )


def speedy() -> Report:
    """A part with speed cases of every kind."""
    open_, flags = {"points": Points(earned=0, graded=0, possible=6)}, ("beyond the roofline: 125%",)
    product = (took("matmul", 1.5, 1.0), took("submission", 7), took("liger", 8))
    cases = (
        timed(measured=measured(flags=flags)),
        timed(name="product", measured=measured(*product, roofline="matmul"), bands=()),
        timed("failed", name="long", message="y[7] is wrong", diagnosis=("a clue",), traceback=FRAMES),
        timed("infra_error", name="narrow", message="another program is using this GPU", **open_),
        timed("skipped", name="huge", message="needs 36 GiB of GPU memory, 7 GiB are free", **open_),
        timed("skipped", name="small", message=NEEDS_GPU, **open_),
        timed(
            name="slow",
            message="one call takes 900 ms: stopped there",
            measured=None,
            bands=(BandResult(vs="eager", speedup=3, points=2.5, reached=False),),
        ),
    )
    points = Points.total(case.points for case in cases)
    part = make_part(make_case("n-1")).model_copy(update={"speed": SpeedResult(points=points, cases=cases)})
    at = Environment(grader="0.1", python="3", torch="2.13", triton=None, device="cuda", gpu="NVIDIA H200")
    return make_report(part, environment=at, incomplete=True, effort="quick")


def right() -> Report:
    part = make_part(make_case("n-1"), make_case("n-2"))
    return changed(make_report(part, log="[import] hello"), hints=("softmax.py: a hint",))


def unseen() -> Report:
    """Nothing was wrong, and not everything could be graded."""
    far = [make_case(name, "skipped", message=f"needs a GPU: {name}") for name in ("many rows", "long rows")]
    return make_report(
        make_part(make_case("n-1"), *far, points=OPEN), make_part(make_case("n-1"), points=OPEN, name="b")
    )


def of_many() -> list[IndexedReport]:
    """A class: a report of each kind, one by decision, one that cannot be read."""
    reports = {"alice": failing(), "bob": speedy(), "carol": right(), "dan": unseen(), "eve": alike()}
    every = [summary(report, name, f"{name}/report.html") for name, report in reports.items()]
    every[0] = overridden(every[0], Override(7, "by hand"))
    return [*every, IndexedReport("frank", note="open: not read", faults=("Invalid JSON",))]


def shown(report: Report, width: int, verbose: bool = False) -> str:
    out = io.StringIO()
    print_report(report, Console(file=out, width=width, highlight=False), verbose)
    return out.getvalue()


def checked(
    result: CaseResult,
    report: Report | None = None,
    place: Any = None,
    left: int = 0,
    width: int = 80,
    pattern: str = "",
) -> str:
    """What is printed of a check of one case, with others left that are not run."""
    out = io.StringIO()
    with CheckView(Console(file=out, width=width, highlight=False), "grader check mine", place) as view:
        part = PlannedPart(assignment="softmax", part="forward", file="softmax.py", title="", cases=1 + left)
        view(Planned(device="cpu", parts=(part,), isolation=Isolation(jail="none")))
        view(CaseDone(assignment="softmax", part="forward", result=result, pattern=pattern))
        view.finish(report)
    return out.getvalue()


def checks() -> str:
    """Checks of a right file, a wrong one in both forms, and of files that are not there, broken or skipped."""
    far = make_case("far", "skipped", message="needs a GPU: rows so far apart that their offsets need 64 bits")
    wrong = make_case("n-1", "failed", time_s=0.1, message="y is wrong", diagnosis=(MASK,), map=MAP, traceback=FRAMES)
    broken = make_case("n-1", "timed_out", message="line 3 never ends", of_file=True)
    kernel = KernelResources(name="row_kernel", arch="sm_90", registers=28)
    report = changed(make_report(make_part(make_case(), far)), hints=("a hint",), kernels=(kernel,))
    return "\n".join(
        [
            checked(make_case(), report),
            checked(wrong, make_report(make_part(wrong)), left=17, pattern=PATTERN),
            checked(wrong, make_report(make_part(wrong)), lambda _, file: f"sub/{file}:7", pattern=PATTERN),
            checked(broken, make_report(make_part(broken)), left=17),
            *(checked(make_case("n-1", ended)) for ended in ("not_implemented", "forbidden", "skipped")),
        ]
    )


def progress() -> str:
    out = io.StringIO()
    with Progress(Console(file=out, width=120, highlight=False)) as view:
        parts = [PlannedPart(assignment="a", part=one, file="f.py", title=f"{one} [/]", cases=2) for one in "pqr"]
        note = "graded on this host"
        view(Planned(device="cuda", isolation=Isolation(jail="bubblewrap", note=note), parts=tuple(parts)))
        view(CaseStarted(assignment="a", part="p", case="n-1"))
        view(CaseDone(assignment="a", part="p", result=make_case("n-1")))
        view(SpeedDone(assignment="a", part="p", result=timed("timed_out")))
        for _ in range(2):
            view(CaseDone(assignment="a", part="q", result=make_case("n-1")))
        view(CaseDone(assignment="a", part="r", result=make_case("n-1")))
    return out.getvalue()


VIEWS: dict[str, Callable[[], str]] = {
    "failing": lambda: shown(failing(), 100),
    "failing-narrow": lambda: shown(failing(), 60),
    "failing-verbose": lambda: shown(failing(), 100, verbose=True),
    "alike": lambda: shown(alike(), 100),
    "speedy": lambda: shown(speedy(), 120),
    "speedy-narrow": lambda: shown(speedy(), 50),
    "right": lambda: shown(right(), 80),
    "unseen": lambda: shown(unseen(), 100),
    "checks": checks,
    "progress": progress,
    "page-failing": lambda: Parsed(page(failing())).lines,
    "page-speedy": lambda: Parsed(page(speedy())).lines,
    "page-alike": lambda: Parsed(page(alike())).lines,
    "page-redacted": lambda: Parsed(page(failing(), redact=True)).lines,
    "index": lambda: Parsed(index(of_many())).lines,
    "index-redacted": lambda: Parsed(index(of_many(), redact=True)).lines,
}


@pytest.mark.parametrize("name", VIEWS)
def test_a_view_is_as_it_was_read(name: str) -> None:
    assert VIEWS[name]() == (GOLDEN / f"{name}.txt").read_text(encoding="utf-8"), "python -m tests.report.test_golden"


if __name__ == "__main__":
    GOLDEN.mkdir(exist_ok=True)
    for name, view in VIEWS.items():
        (GOLDEN / f"{name}.txt").write_text(view(), encoding="utf-8")
