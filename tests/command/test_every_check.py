"""Each of the judge's checks is needed: something gets past a judge without it that is stopped, in the check's own words, by one that has it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import pytest

from grader.report.model import Report
from tests.command.test_faults import PRELUDE
from tests.command.test_properties import CHECKED, PROPERTIES
from tests.conftest import PROBLEM, ROOT, Course, problem_toml
from tests.support.checks import Check, all_checks
from tests.support.corpus import cases, words
from tests.support.warm_judge import judge

pytestmark = pytest.mark.grading

GRADIENT = PROBLEM.replace("    return Call(args={", "    return Call(upstream=torch.ones(shape), args={").replace(
    'return {"y": ', 'return {"dx": tuple(call.args["x"].shape), "y": ', 1
)
GRADIENTS_SCALE = ("scale = {", 'scale = { dx = "element",')
ZERO = PROBLEM.replace("torch.randn(shape, generator=generator, device=generator.device)", "torch.zeros(shape)")
FORGE = """\
def forge(data):  # to the judge alone: other pipes here are the test's
    frame = sys._getframe()
    while "replies" not in frame.f_locals:
        frame = frame.f_back
    os.write(frame.f_locals["replies"], data)
"""
AGAIN = ("n = 10", "n = 10, repeats = 3")


@dataclass(frozen=True)
class Needed:
    """What a check stops: the body of `double(x)`, in a course that may be changed; and what is said of it.

    toml: a place of problem.toml and what stands there instead.
    reference: the body of the staff's.
    source: the whole submission, for the course's own cuda_gelu.
    """

    says: str
    body: str = "return x * 2"
    toml: tuple[str, str] = ("", "")
    problem: str = PROBLEM
    reference: str = "return x * 2"
    properties: bool = False
    source: str = ""


CUDA = """
#include <cuda_runtime.h>
#include <cstdint>
__global__ void kernel(const float* x, float* y, {index} n) {{
    {index} i = ({index})blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {{ float v = x[i]; y[i] = 0.5f * v * (1.0f + tanhf(0.7978845608f * (v + 0.044715f * v * v * v))); }}
}}
extern "C" void gelu(const float* x, float* y, int64_t n, cudaStream_t stream) {{
    {guard}
    if (n > 0) kernel<<<(n + 255) / 256, 256, 0, stream>>>(x, y, n);
}}
"""
# By the beginning of what is raised, in the order of the source.
NEEDED = {
    "Fault.wrong(told[0]": Needed("differ between two runs", "COUNT.append(0); y = x * 2; y[3] *= 1 + len(COUNT) % 2 * 2e-7; return y", AGAIN),
    "Fault.wrong(f'{evidence.kept[0]} lies in": Needed("lies in memory that an earlier call has returned", "COUNT.append(x * 2); return COUNT[0].copy_(x * 2)", AGAIN),
    "Fault.wrong(words, (*hints, *failed.details)": Needed(
        "of call 3 of 3: y[0] is the first wrong", "COUNT.append(0); return x * 2 if len(COUNT) != 3 else x * 3", ("n = 10", "n = 10, together = 2")
    ),
    "Fault.wrong(fault.message": Needed("more than an int can count", source=CUDA.format(index="int", guard="")),
    "Fault.wrong('nothing was written by": Needed(
        "nothing was written by any of the blocks", source=CUDA.format(index="int64_t", guard="if (n > 2147483647) return;")
    ),
    "Fault.of_machine(f'{toml}: [tolerance] scale does not": Needed("scale does not name the output 'y'", toml=('scale = { y = "element" }', "scale = {}")),
    "Fault.wrong(f'{len(returned)} results came back": Needed("0 results came back", "forge_reply({}); time.sleep(0.5); return x * 2"),
    "Fault.wrong(f'the function returned {_article": Needed("there is no gradient to compute", "return [x]", GRADIENTS_SCALE, GRADIENT),
    "Fault.wrong(f'the result has no gradient": Needed("the result has no gradient", "return (x * 2).detach()", GRADIENTS_SCALE, GRADIENT),
    "Fault.wrong(f'returned {_article(one.type)}; {what}": Needed("returned None; y must be", "return None"),
    "Fault.wrong(f'returned a tensor subclass": Needed("a tensor subclass, Parameter", "return torch.nn.Parameter(x * 2)"),
    "Fault.wrong(f'{name} has shape": Needed("y has shape (9,)", "return (x * 2)[:-1]"),
    'Fault.wrong(f"{name} has dtype': Needed("y has dtype float64", "return (x * 2).double()"),
    "Fault.wrong(f'{name} lies on": Needed("y lies on meta", "return (x * 2).to('meta')"),
    "Fault.wrong(f'{name} is one of the inputs": Needed("y is one of the inputs", "return x.mul_(2)"),
    "Fault.wrong(f'the input {changed[0]} was changed": Needed("the input x was changed", "y = x * 2; x.zero_(); return y"),
    "Fault('failed', words, whose='answer', outside": Needed("past the end of x", "y = x * 2; ctypes.memset(x.data_ptr() + 4 * x.numel(), 0, 8); return y"),
    "Fault.of_machine(words)": Needed("the reference kernel gave no answer in", "return x * 2.00002", reference="raise ValueError(x)"),
    "Fault.of_machine(f'the reference kernel broke": Needed("broke the contract in", "return x * 2.00002", reference="return None"),
    "Fault.wrong(lines[0]": Needed("is the first wrong element", "return x * 2.001"),
    "Fault.of_machine(f'the reference kernel is wrong": Needed("the reference kernel is wrong", "return x * 2.00002", reference="return x * 3"),
    "Fault.of_machine(f'{case.id} cannot tell right": Needed("cannot tell right from wrong", problem=ZERO),
    "Fault.of_machine(f'{case.id} says it is degenerate": Needed("says it is degenerate", toml=("n = 10", 'n = 10, degenerate = "no"')),
    "Fault('forbidden', f'{where}the submission": Needed(
        "the submission changes json.dumps", "import json; json.dumps = json.dumps.__call__; return x * 2", toml=("[tolerance]", "[policy]\nforbidden = []\n\n[tolerance]")
    ),
    "Fault('forbidden', words, operators": Needed("PyTorch's operator `mul` ran", toml=("[tolerance]", "[policy]\nforbidden = []\n\n[tolerance]")),
    "Fault('forbidden', f'no kernel": Needed(
        "no kernel of your own was launched", "return x.new_tensor([2 * float(one) for one in x])", toml=("[tolerance]", "[policy]\nforbidden = []\n\n[tolerance]")
    ),
    "Fault.wrong(f'{words}, by up to": Needed("f(-x) is not -f(x)", "return x * 2 if x.numel() == 10 else (x * 2).abs()", properties=True),
    "self._wrong": Needed("is the first wrong element", "return x * 2 if x.numel() == 10 else x * 2.5", properties=True),
}  # fmt: skip
ELSEWHERE = (
    "Fault.wrong(fault.message, fault.details, shown)",  # tests/judge/test_calls.py: the check in `check_memory`, with a map
    "Fault.of_machine(f\"{case.assignment.folder / 'problem.toml'}: signature: {",  # tests/judge/test_asking.py, of the course's CUDA
    "Fault('skipped', f'{words}, ",  # tests/judge/test_asking.py, tests/gpu/test_memory.py
    "Fault.wrong(f'took {taken.mib:.0f} MiB",  # tests/gpu/test_gpu.py
    "Fault.of_machine('another program took or gave back GPU memory",  # the same
    "Fault('forbidden', f'{words}; ",  # tests/gpu/test_gpu_time.py
    "Fault('forbidden', f'{words}: nobody can tell",  # tests/judge/test_ownership.py
)


def checks() -> list[Check]:
    return [check for check in all_checks() if not check.raised.startswith(ELSEWHERE)]


def needed(check: Check) -> Needed:
    (found,) = [one for beginning, one in NEEDED.items() if check.raised.startswith(beginning)]
    return found


def test_there_is_one_for_each_check() -> None:
    raised = [check.raised for check in checks()]
    assert [sum(one.startswith(beginning) for one in raised) for beginning in NEEDED] == [1] * len(NEEDED)
    assert len(raised) == len(NEEDED)


@dataclass(frozen=True)
class Room:
    """A submission to a course with an assignment for each check that `double` shows, and what the judge says of all of it."""

    submission: Path
    course: Path
    report: Report


@pytest.fixture(scope="module")
def room(tmp_path_factory: pytest.TempPathFactory) -> Room:
    folder = tmp_path_factory.mktemp("checks")
    course, submission = Course(folder / "course"), folder / "submission"
    submission.mkdir()
    for check in checks():
        one, name = needed(check), name_of(check)
        if one.source:
            continue
        course.add(name, toml=toml(one, f"{name}.py"), problem=one.problem)
        (course.folder / "reference" / f"{name}.py").write_text(f"def double(x):\n    {one.reference}\n")
        if one.properties:
            (course.folder / "assignments" / name / "test_properties.py").write_text(PROPERTIES)
        head = PRELUDE + FORGE if re.search(r"forge|ctypes|torch", one.body) else ""
        (submission / f"{name}.py").write_text(f"{head}\nCOUNT = []\n\ndef double(x):\n    {one.body}\n")
    names = tuple(name_of(check) for check in checks() if not needed(check).source)
    return Room(submission, course.folder, judge(submission, course.folder, names, "cpu"))


def name_of(check: Check) -> str:
    return f"check_{checks().index(check)}"


@pytest.mark.parametrize("check", checks(), ids=lambda check: check.raised[:60])
def test_without_it_something_gets_past(check: Check, room: Room, tmp_path: Path) -> None:
    one, name = needed(check), name_of(check)
    if one.source:
        (tmp_path / "gelu.cu").write_text(one.source)
        with_it, without = (
            judge(tmp_path, ROOT, "cuda_gelu", "cpu", stop_early=True, without=left_out) for left_out in (None, check)
        )
    else:
        (own,) = (assignment for assignment in room.report.assignments if assignment.name == name)
        with_it = room.report.model_copy(update={"assignments": (own,)})
        without = judge(room.submission, room.course, name, "cpu", without=check)
    assert one.says in everything(with_it)
    assert one.says not in everything(without)


def toml(one: Needed, file: str) -> str:
    text = problem_toml(file, ["plain"], extra=CHECKED if one.properties else "")
    assert one.toml[0] in text
    return text.replace(*one.toml, 1)


def everything(report: Report) -> str:
    return "\n".join(words(case) for case in cases(report))
