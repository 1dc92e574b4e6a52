"""`problem.py` is loaded and bound to its cases with errors in a TA's words; the real ones compute what they say."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from grader.assignment import Assignment, Case, CourseError, load_assignment, load_course
from grader.judge.cases import SpeedSizes, bind_cases, bind_checks, bind_speed_cases
from grader.problem import (
    Call,
    bind_params,
    by_slices,
    load_beside,
    load_problem,
    signature_fault,
)
from tests.conftest import ROOT

CPU = torch.device("cpu")
CASES = {case.id: case for case in bind_cases(load_course(ROOT), "cpu")}

TOML = """
title = "Doubling"
file = "double.py"
entry = "double"
language = "triton"
[limits]
time_limit_s = { cpu = 5, cuda = 5 }
memory_gib = 4
[tolerance]
k = 6
scale = { y = "element" }
floor = { float32 = 1e-6 }
floor_rms = { float32 = 1e-6 }
[[part]]
name = "forward"
title = "Forward"
defaults = { factor = 3.0 }
[[part.group]]
name = "sizes"
title = "Any size"
points = 5
cases = [{ name = "small", tries = "a few", n = 4, cpu = { n = 2 } }]
[[part.speed]]
name = "large"
n = 1000
bands = [{ vs = "eager", speedup = 0.5, points = 1 }]
"""

PROBLEM = """
import torch
from grader.problem import Call, Cost, Params

class DoubleParams(Params):
    n: int
    factor: float = 2.0

def make_inputs(params, dtype, generator): return Call({"x": torch.randn(params.n, generator=generator).to(dtype)})
def outputs(call): return {"y": tuple(call.args["x"].shape)}
def oracle(call): return {"y": 2 * call.args["x"].double()}
def baseline(call): return {"y": 2 * call.args["x"]}
def cost(params, dtype): return Cost(2**27 * params.n, 2**33 * params.n)
"""

COST = "Cost(2**27 * params.n, 2**33 * params.n)"  # enough to be timed, of any n
OF_SIZE = PROBLEM.replace("    n: int", "    n: Size").replace("Cost, Params", "Cost, Params, Size")
Write = Callable[..., Assignment]
Change = tuple[str, str]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def write(toml: Change = ("", ""), problem: Change = ("", ""), text: str = PROBLEM) -> Assignment:
        folder = tmp_path / "doubling"
        folder.mkdir()
        assert toml[0] in TOML
        assert problem[0] in PROBLEM
        (folder / "problem.toml").write_text(TOML.replace(*toml) if toml[0] else TOML)
        (folder / "problem.py").write_text(text.replace(*problem) if problem[0] else text)
        (folder / "baselines.py").write_text("def eager(x): return 2 * x\n")
        return load_assignment(folder)

    return write


def refusal(refused: Callable[..., object], *arguments: object) -> str:
    with pytest.raises(CourseError) as error:
        refused(*arguments)
    return str(error.value)


# Loading --------------------------------------------------------------------------------------------------------------


def test_a_problem_is_loaded_with_its_params_and_mistakes(write: Write) -> None:
    assignment = write()
    problem, model = load_problem(assignment)
    assert model.__name__ == "DoubleParams"
    call = problem.make_inputs(model(n=3), torch.float32, torch.Generator().manual_seed(1))
    assert problem.outputs(call) == {"y": (3,)}
    assert problem.mistakes is None
    (assignment.folder / "mistakes.py").write_text(MISTAKES)
    mistakes = load_problem(assignment)[0].mistakes
    assert mistakes is not None
    assert list(mistakes.suspects(call, {}, 0)) == []


@pytest.mark.parametrize(
    ("file", "old", "new", "words"),
    [
        ("problem.py", "def oracle", "def oracle_of", "lacks the function oracle(); needed are make_inputs, outputs, oracle, baseline"),
        ("problem.py", "(Params)", "", "must define exactly one subclass of grader.problem.Params, found 0"),
        ("problem.py", "class D", "class M(Params): pass\nclass D", "must define exactly one subclass of grader.problem.Params, found 2"),
        ("problem.py", "import torch", "import no_such_module", "ModuleNotFoundError: No module named 'no_such_module'"),
        ("problem.py", "import torch", "def", "SyntaxError"),
        ("problem.py", "import torch", "import torch\nstand_in = 3", "stand_in must be a function, or left out"),
        ("mistakes.py", "suspects", "suspect", "lacks the function suspects(call, got, first)"),
        ("mistakes.py", "def", "1 / 0\ndef", "ZeroDivisionError: division by zero"),
        ("mistakes.py", "def", "def def", "SyntaxError"),
    ],
)  # fmt: skip
def test_a_file_that_cannot_be_used_is_refused_by_name(write: Write, file: str, old: str, new: str, words: str) -> None:
    folder = (assignment := write()).folder
    (folder / "mistakes.py").write_text(MISTAKES)
    (folder / file).write_text((folder / file).read_text().replace(old, new))
    assert refusal(load_problem, assignment).startswith(f"{folder / file}: {words}")


MISTAKES = "def suspects(call, got, first): return ()"
SIGNATURE = '["const float* x", "float* y", "int64_t n = x.shape[0]", "cudaStream_t stream"]'


@pytest.mark.parametrize(
    ("signature", "words"),
    [
        (SIGNATURE, ""),
        (SIGNATURE.replace("* x", "* a").replace("x.", "a."), "its inputs are ['a'], those of problem.py ['x']"),
        (SIGNATURE.replace("int64_t n = x.shape[0]", "float b"), "its options are ['b'], those of problem.py []"),
        (SIGNATURE.replace("shape[0]", "shape[1]"), "n is x.shape[1], and x has the shape (3,)"),
        (SIGNATURE.replace("y", 'y", "float* z'), "its outputs are ['y', 'z'], those of problem.py ['y']"),
    ],
)
def test_a_signature_goes_with_the_calls_of_its_problem(write: Write, signature: str, words: str) -> None:
    toml = TOML.replace('"double.py"', '"double.cu"').replace('"triton"', f'"cuda"\nsignature = {signature}')
    toml = toml.replace("scale = { y =", "scale = { z = 'all', y =") if "z" in signature else toml
    assignment = write()
    (assignment.folder / "problem.toml").write_text(toml)
    spec = load_assignment(assignment.folder).spec
    problem, model = load_problem(assignment)
    call = problem.make_inputs(model(n=3), torch.float32, torch.Generator())
    assert signature_fault(spec, call, problem.outputs(call)) == words


def test_a_missing_problem_is_refused_by_name(write: Write) -> None:
    assignment = write()
    (assignment.folder / "problem.py").unlink()
    with pytest.raises(CourseError, match=r"problem\.py: not found; it defines a Params model and make_inputs"):
        load_problem(assignment)


# Binding --------------------------------------------------------------------------------------------------------------


def test_a_case_has_the_parts_defaults_its_own_keys_and_the_cpus(write: Write) -> None:
    assignment = write()
    part = assignment.spec.parts[0]
    (case,) = part.cases
    _, model = load_problem(assignment)
    assert bind_params(assignment, part, case, model, {"n": 4, "factor": 5.0}) == model(n=4, factor=5.0)
    assert [bind_cases([assignment], device)[0].params.model_dump() for device in ("cpu", "cuda")] == [
        {"n": 2, "factor": 3.0},
        {"n": 4, "factor": 3.0},
    ]


@pytest.mark.parametrize(
    ("toml", "words"),
    [
        (("n = 4", "n = 4, size = 4"), "size: unknown key; allowed here: n, factor"),
        (("n = 4, cpu = { n = 2 }", "cpu = { m = 2 }, n = 4"), "m: unknown key; allowed here: n, factor"),
        (("n = 4, cpu = { n = 2 }", 'n = "many"'), "n: Input should be a valid integer"),
        (("n = 4, cpu = { n = 2 }", "calls = 2"), "n: Field required"),
        (("{ factor = 3.0 }", "{ f = 3.0 }"), "f: unknown key; allowed here: n, factor"),
    ],
)
def test_a_wrong_key_of_a_case_is_named_with_file_part_case_and_what_is_allowed(
    write: Write, toml: Change, words: str
) -> None:
    assignment = write(toml=toml)
    message = refusal(bind_cases, [assignment], "cpu")
    assert message.startswith(f"in part 'forward', case 'small':\n{assignment.folder / 'problem.toml'}: {words}")
    # A misspelt common key ends here too: those are named beside the assignment's own.
    common = [name for name in Case.model_fields if name != "params"]
    assert {"name", "tries", "calls"} < set(common)
    assert ", ".join(common) in message


def test_an_output_of_problem_toml_that_nothing_has_is_refused(write: Write) -> None:
    assignment = write(toml=('y = "element"', 'y = "element", z = "all"'))
    words = "[tolerance] scale names the output 'z'; those of problem.py are y"
    assert refusal(bind_cases, [assignment], "cpu").startswith(f"{assignment.folder / 'problem.toml'}: {words}")


@pytest.mark.parametrize(
    ("named", "code", "words"),
    [
        ("test_law", "", "problem.toml: checks: there is no test 'test_law' in "),
        ("test_law", "def test_law(properties): ...\ndef test_more(properties): ...", "test_laws.py: no group in "),
        (
            "test_law",
            "def test_law(properties, run): ...",
            "test_laws.py: the check 'test_law' is to take `properties`",
        ),
        ("test_law", "def test_law(properties:", "test_laws.py: SyntaxError: "),
    ],
)
def test_a_check_that_is_no_check_is_refused(write: Write, named: str, code: str, words: str) -> None:
    assignment = write(toml=("points = 5\n", f'points = 5\nchecks = ["{named}"]\n'))
    (assignment.folder / "test_laws.py").write_text(code)
    assert refusal(bind_checks, [assignment]).startswith(f"{assignment.folder}/{words}")


@pytest.mark.parametrize(
    ("others", "baselines", "words"),
    [
        ("", None, "not found; speed is measured against its function `eager`"),
        ('others = ["liger"]', "def eager(x): pass", "lacks the function liger(), which speed case 'large'"),
        ("", "def eagre(x): pass", "lacks the function eager(), which speed case 'large'"),
        ("", "def eager(x) pass", "SyntaxError: "),
    ],
)
def test_an_entrant_that_baselines_lack_is_refused(
    write: Write, others: str, baselines: str | None, words: str
) -> None:
    path = (assignment := write(toml=("n = 1000", f"n = 1000\n{others}"))).folder / "baselines.py"
    path.unlink()
    if baselines is not None:
        path.write_text(baselines)
    assert refusal(bind_speed_cases, [assignment]).startswith(f"{path}: {words}")


def test_the_outputs_of_each_part_may_differ(write: Write) -> None:
    """Here the last case alone has both."""
    both = 'def outputs(call): return {"y": (4,), **({"z": (4,)} if len(call.args["x"]) == 4 else {})}'
    assignment = write(
        toml=("n = 4, cpu = { n = 2 } }", 'n = 3 }, { name = "both", tries = "z too", n = 4 }'),
        problem=('def outputs(call): return {"y": tuple(call.args["x"].shape)}', both),
    )
    toml = assignment.folder / "problem.toml"
    toml.write_text(toml.read_text().replace('scale = { y = "element" }', 'scale = { y = "element", z = "all" }'))
    assert len(bind_cases([load_assignment(assignment.folder)], "cpu")) == 2


def test_every_case_of_the_course_binds_on_both_devices() -> None:
    on_gpu = bind_cases(load_course(ROOT), "cuda")
    assert list(CASES) == [case.id for case in on_gpu]
    assert len(set(CASES)) == len(on_gpu)


# Speed cases ----------------------------------------------------------------------------------------------------------

SMALLER = "n = 1000\nmemory_gib = 36\nsmaller = [{ n = 100, memory_gib = 9.5 }, { n = 10, factor = 4.0 }]\n"


def speed_of(assignment: Assignment) -> SpeedSizes:
    (sizes,) = bind_speed_cases([assignment])
    return sizes


def test_a_speed_case_has_its_sizes_in_order_each_with_what_it_needs_and_is_told_by(write: Write) -> None:
    """What a smaller size does not say is as declared, but for the memory."""
    sizes = speed_of(write(toml=("n = 1000\n", SMALLER)))
    assert [(one.params.model_dump(), one.memory_gib, one.case.tries) for one in sizes.cases] == [
        ({"n": 1000, "factor": 3.0}, 36, "n 1000"),
        ({"n": 100, "factor": 3.0}, 9.5, "n 100"),
        ({"n": 10, "factor": 4.0}, None, "n 10, factor 4.0"),
    ]
    assert sizes.declared is sizes.cases[0]
    assert {case.id for case in sizes.cases} == {"doubling-forward-speed-large"}


@pytest.mark.parametrize(
    ("toml", "words"),
    [
        ("n = 1000\nsahpe = 3", "sahpe: unknown key; allowed here: n, factor"),
        ('n = "many"', "n: Input should be a valid integer"),
        ("n = 1000\nmemory_gib = 9\nsmaller = [{ n = 10, memory_gib = 1 }, { m = 10 }]", "m: unknown key; allowed here: n, factor"),
        ('n = 1000\nmemory_gib = 9\nsmaller = [{ dtype = "float16" }]', "dtype: unknown key; allowed here: n, factor"),
        ("n = 0", "n: a speed case needs a size above 0: of nothing there is nothing to time (got '0')"),
        ("n = -7", "n: Input should be greater than or equal to 0 (got '-7')"),
        ("n = 9\nmemory_gib = 9\nsmaller = [{ n = 0 }]", "n: a speed case needs a size above 0"),
    ],
)  # fmt: skip
def test_a_wrong_key_of_a_speed_case_is_named_too(write: Write, toml: str, words: str) -> None:
    assignment = write(toml=("n = 1000", toml), text=OF_SIZE)
    message = refusal(speed_of, assignment)
    assert message.startswith(f"in part 'forward', speed case 'large':\n{assignment.folder / 'problem.toml'}: {words}")
    assert "memory_gib, name, dtype, devices, bands, roofline, others, smaller)" in message


def test_a_correctness_case_may_have_a_size_of_0_and_none_below(write: Write) -> None:
    assignment = write(toml=("n = 4, cpu", "n = 0, cpu"), text=OF_SIZE)
    assert bind_cases([assignment], "cuda")[0].params.model_dump()["n"] == 0
    (assignment.folder / "problem.toml").write_text(TOML.replace("n = 4, cpu", "n = -4, cpu"))
    message = refusal(bind_cases, [load_assignment(assignment.folder)], "cuda")
    assert "problem.toml: n: Input should be greater than or equal to 0" in message


@pytest.mark.parametrize("name", ["cuda_gelu", "triton_gelu", "softmax", "flash_attention"])
def test_the_courses_sizes_are_checked(name: str) -> None:
    (assignment,) = load_course(ROOT, [name])
    _, model = load_problem(assignment)
    part = assignment.spec.parts[0]
    speed = part.speed[0]
    for key in {"shape", "batch", "n", "d"} & speed.params.keys():
        for wrong in (0, -2):
            value = [*speed.params[key][:-1], wrong] if key == "shape" else wrong
            with pytest.raises(CourseError, match=rf"problem\.toml: {key}[.0-9]*: .* 0"):
                bind_params(assignment, part, speed, model, speed.params | {key: value})


@pytest.mark.parametrize(
    ("roofline", "cost", "file", "words"),
    [
        ("matmul", "8 * params.n, 0", "problem.toml", 'roofline = "matmul" tells the time from the FLOPs of a case, 8589934592 at least'),
        ("copy", "0, params.n", "problem.toml", 'roofline = "copy" tells the time from the bytes of a case, 134217728 at least'),
        ("copy", "-8 * params.n, params.n", "problem.toml", "problem.py gives -8000"),
        ("copy", "2**27 - 1, 2**40", "problem.toml", "bytes of a case, 134217728 at least, and cost() in "),
        ("matmul", "2**40, 2**33 - 1", "problem.toml", "gives 8589934591; of a shorter call the launch is too large a part: take a"),
        ("copy", "8 * params.m, 0", "problem.py", "AttributeError"),
        ("copy", "2**27 * params.n, 0", "", ""),
    ],
)  # fmt: skip
def test_a_roofline_without_work_of_its_kind_is_refused(
    write: Write, roofline: str, cost: str, file: str, words: str
) -> None:
    toml = ("n = 1000\n", f'n = 1000\nroofline = "{roofline}"\n')
    assignment = write(toml=toml, problem=(COST, f"Cost({cost})"))
    if not words:
        speed_of(assignment)
        return
    message = refusal(speed_of, assignment)
    where = "in part 'forward', speed case 'large' (n 1000): "
    of = "cost() " if file == "problem.py" else ""
    assert message.startswith(f"{assignment.folder / file}: {of}{where}")
    assert words in message


def test_on_a_cpu_a_speed_case_may_be_short(write: Write) -> None:
    """What is timed there tries out a course; it is graded on a GPU."""
    speed_of(write(toml=("n = 1000\n", 'n = 1000\ndevices = ["cpu"]\n'), problem=(COST, "Cost(8, 8)")))


@pytest.mark.parametrize(
    ("gib", "n", "needed_gib"),
    [(140, 1000, 36), (36, 1000, 36), (35.9, 100, 9.5), (9.5, 100, 9.5), (9.4, 10, 0), (0.0, 10, 0)],
)
def test_the_first_size_that_fits_is_taken_and_has_room_made_for_it(
    write: Write, gib: float, n: int, needed_gib: float
) -> None:
    """Of what is free; and of what a GPU has at all, for whoever keeps memory there is not spared that size."""
    sizes = speed_of(write(toml=("n = 1000\n", SMALLER)))
    fitting = sizes.fitting(gib)
    assert fitting is not None
    assert fitting.params.model_dump()["n"] == n
    assert sizes.needed_gib(gib) == needed_gib


def test_where_no_size_fits_there_is_none(write: Write) -> None:
    sizes = speed_of(write(toml=("n = 1000\n", "n = 1000\nmemory_gib = 36\nsmaller = [{ n = 9, memory_gib = 5 }]\n")))
    assert sizes.fitting(4.9) is None


@pytest.mark.parametrize(
    ("name", "size"),
    [("softmax-softmax-speed-wide", "shape 16384 × 16384"), ("flash_attention-forward-speed-causal", "causal")],
)
def test_shapes_and_switches_are_told_in_words(name: str, size: str) -> None:
    (case,) = [sizes.declared for sizes in bind_speed_cases(load_course(ROOT)) if sizes.declared.id == name]
    assert size in case.case.tries.split(", ")


def test_a_speed_case_whose_size_stands_in_the_parts_defaults_can_be_bound(write: Write) -> None:
    assignment = write(toml=("n = 1000\n", ""))
    toml = assignment.folder / "problem.toml"
    toml.write_text(toml.read_text().replace("{ factor = 3.0 }", "{ factor = 3.0, n = 9 }"))
    case = speed_of(load_assignment(assignment.folder)).declared
    assert case.params.model_dump() == {"n": 9, "factor": 3.0}
    assert case.case.tries == "the size of the part's defaults"


@pytest.mark.parametrize(
    ("baselines", "more", "opponents", "needed", "everyone"),
    [
        (("compile", "eager", "compile"), "", "compile eager", "compile eager copy", "compile eager reference copy"),
        (("eager", "eager"), "", "eager", "eager copy", "eager compile reference copy"),
        (
            ("compile",), 'roofline = "matmul"\nothers = ["sdpa_flash", "sdpa_cudnn"]\n',
            "compile", "compile matmul", "compile eager reference sdpa_flash sdpa_cudnn matmul",
        ),
    ],
)  # fmt: skip
def test_only_those_run_that_bands_and_roofline_need_unless_everyone_does(
    write: Write, baselines: tuple[str, ...], more: str, opponents: str, needed: str, everyone: str
) -> None:
    bands = ", ".join(f'{{ vs = "{one}", speedup = {1 + at}, points = 1 }}' for at, one in enumerate(baselines))
    old = 'bands = [{ vs = "eager", speedup = 0.5, points = 1 }]'
    assignment = write(toml=(old, f"bands = [{bands}]\n{more}"))
    (assignment.folder / "baselines.py").write_text("def eager(x): pass\nsdpa_flash = sdpa_cudnn = eager\n")
    case = speed_of(assignment).declared
    assert case.opponents == opponents.split()
    assert case.entrants(everyone=False) == needed.split()
    assert case.entrants(everyone=True) == everyone.split()


def test_a_timed_call_has_inputs_that_no_correctness_case_had(write: Write) -> None:
    """A worker that kept its answers could give them again."""
    assignment = write(toml=('name = "large"\nn = 1000', 'name = "small"\nn = 4'))
    (correct,) = bind_cases([assignment], "cuda")
    timed = speed_of(assignment).declared
    assert (correct.name, correct.params.model_dump()) == (timed.name, timed.params.model_dump())
    for number in range(3):
        assert not same(correct.inputs(7, number, CPU), timed.inputs(7, number, CPU))
        assert same(timed.inputs(7, number, CPU), timed.inputs(7, number, CPU))


def test_every_speed_case_of_the_course_can_be_bound() -> None:
    bound = bind_speed_cases(load_course(ROOT))
    ids = [sizes.declared.id for sizes in bound]
    assert len(set(ids)) == len(ids) == 8
    for sizes in bound:
        needs = [one.memory_gib for one in sizes.cases if one.memory_gib is not None]
        assert needs == sorted(needs, reverse=True), "a smaller size needs less"
        assert sizes.fitting(1e6) is sizes.declared
        costs = [case.problem.cost(case.params, case.dtype).bytes_moved for case in sizes.cases]
        assert costs == sorted(costs, reverse=True)


# Files beside problem.py ----------------------------------------------------------------------------------------------


def test_files_of_one_name_in_two_folders_are_two_modules(tmp_path: Path) -> None:
    found = []
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "baselines.py").write_text(f"WHO = {name!r}")
        found.append(load_beside(str(tmp_path / name / "problem.py"), "baselines.py"))
    assert [module.WHO for module in found] == ["first", "second"]
    assert found[0].__name__ != found[1].__name__


@pytest.mark.parametrize(
    ("text", "words"), [(None, "No such file or directory"), ("1 / 0", "ZeroDivisionError"), ("def", "beside.py")]
)
def test_a_problem_whose_neighbour_cannot_be_imported_is_refused_by_name(
    write: Write, text: str | None, words: str
) -> None:
    load = "from grader.problem import load_beside\neager = load_beside(__file__, 'beside.py').eager\nimport torch"
    assignment = write(problem=("import torch", load))
    if text is not None:
        (assignment.folder / "beside.py").write_text(text)
    message = refusal(load_problem, assignment)
    assert message.startswith(f"{assignment.folder / 'problem.py'}: ")
    assert words in message


# Inputs ---------------------------------------------------------------------------------------------------------------


def same(first: Call, second: Call) -> bool:
    return all(torch.equal(a, b) for a, b in zip(first.args.values(), second.args.values(), strict=True))


def test_the_same_seed_gives_the_same_inputs_again_and_whatever_else_differs_others() -> None:
    forward, backward = CASES["flash_attention-forward-n-48"], CASES["flash_attention-backward-n-48"]
    calls = [case.inputs(seed, number, CPU) for case, seed, number in (
        (forward, 7, 0), (forward, 7, 1), (forward, 8, 0), (backward, 7, 0),
    )]  # fmt: skip
    for number, one in enumerate(calls):
        assert not any(same(one, other) for other in calls[:number])
    again = backward.inputs(7, 0, CPU)
    assert same(calls[-1], again)
    assert again.upstream is not None
    assert torch.equal(calls[-1].upstream, again.upstream)


@pytest.mark.parametrize("seed", [0, 2**53 - 1, 2**63 - 1])
def test_every_seed_that_may_be_given_can_be_used(seed: int) -> None:
    assert CASES["softmax-softmax-1x7"].inputs(seed, 9, CPU).args["x"].isfinite().all()


@pytest.mark.parametrize(
    ("name", "stride", "start"),
    [
        ("triton_gelu-gelu-odd-start", (1,), 1),
        ("triton_gelu-gelu-even-start", (1,), 2),
        ("triton_gelu-gelu-strided", (134, 2), 1),
        ("triton_gelu-gelu-transposed", (1, 65), 0),
        ("triton_gelu-gelu-first-two", (15, 105, 1), 0),
        ("triton_gelu-gelu-last-two", (195, 1, 13), 0),
        ("triton_gelu-gelu-rotated", (13, 1, 91), 0),
        ("triton_gelu-gelu-rotated-back", (1, 105, 7), 0),
        ("triton_gelu-gelu-wider-matrix", (76, 1), 17),
        ("triton_gelu-gelu-steps", (234, 2), 1),
        ("triton_gelu-gelu-expanded-row", (0, 1), 0),
        ("triton_gelu-gelu-expanded-column", (1, 0), 0),
        ("triton_gelu-gelu-overlapping-rows", (3, 1), 0),
        ("softmax-softmax-wider-matrix", (237, 1), 16),
        ("softmax-softmax-transposed", (1, 96), 0),
        ("flash_attention-forward-transposed", (6400, 1, 100), 0),
    ],
)
def test_layouts_are_what_their_names_say(name: str, stride: tuple[int, ...], start: int) -> None:
    first = next(iter(CASES[name].inputs(1, 0, CPU).args.values()))
    assert (first.stride(), first.storage_offset()) == (stride, start)


def test_an_expanded_upstream_has_one_number_and_one_tensor_is_passed_three_times() -> None:
    upstream = CASES["flash_attention-backward-expanded"].inputs(1, 0, CPU).upstream
    assert upstream is not None
    assert upstream.stride() == (0, 0, 0)
    q, k, v = CASES["flash_attention-backward-one-tensor"].inputs(1, 0, CPU).args.values()
    assert q is k is v


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("permuted", ["no", "transposed", "first-two", "last-two", "rotated", "rotated-back"])
@pytest.mark.parametrize("layout", ["contiguous", "slice", "strided", "steps"])
def test_a_layout_changes_no_value(permuted: str, layout: str, dtype: torch.dtype) -> None:
    one = CASES["triton_gelu-gelu-3-d"]
    changed = one.params.model_copy(update={"permuted": permuted, "layout": layout, "start": 3})
    straight, there = (
        one.problem.make_inputs(params, dtype, torch.Generator().manual_seed(1)).args["x"]
        for params in (one.params, changed)
    )
    assert torch.equal(straight, there)
    assert there.shape == (7, 13, 15)


def test_values_are_what_their_names_say() -> None:
    x = CASES["cuda_gelu-gelu-extremes"].inputs(1, 0, CPU).args["x"]
    assert x.isfinite().all()
    assert float(x.max()) > 1e38
    assert float(x.min()) == torch.finfo(torch.float32).min
    assert (x**3).isinf().any(), "x³ never overflows"
    assert ((x.abs() < torch.finfo(torch.float32).tiny) & (x != 0)).any(), "no subnormals"
    assert (torch.signbit(x) & (x == 0)).any(), "no negative zero"
    x = CASES["softmax-softmax-all-negative"].inputs(1, 0, CPU).args["x"]
    assert float(x.max()) < -100
    x = CASES["softmax-softmax-minus-inf"].inputs(1, 0, CPU).args["x"]
    assert torch.isneginf(x).any()
    assert torch.isneginf(x[:, 0]).all()
    assert not torch.isneginf(x).all(-1).any()
    call = CASES["flash_attention-forward-large-logits"].inputs(1, 0, CPU)
    scores = call.args["q"] @ call.args["k"].transpose(1, 2) / math.sqrt(call.args["q"].shape[-1])
    assert float(scores.max()) > 89, "exp would not overflow"
    assert float(scores.min()) < -104, "exp would not vanish"


def test_the_tail_of_the_extremes_is_extreme_too() -> None:
    for name in ("cuda_gelu-gelu-extremes", "triton_gelu-gelu-extremes"):
        x = CASES[name].inputs(1, 0, CPU).args["x"]
        assert (len(x) % 4, len(x) % 16) == (3, 7)
        assert float(x[-3:].abs().min()) >= 100
        assert (x[-3:] < 0).any(), name


def test_every_number_is_there_once() -> None:
    for dtype, count in (("float16", 2 * 31 * 1024), ("bfloat16", 2 * 255 * 128)):
        x = CASES[f"triton_gelu-gelu-{dtype}-every"].inputs(1, 0, CPU).args["x"]
        assert x.isfinite().all()
        assert len(x.view(torch.int16).unique()) == len(x) == count
    x = CASES["cuda_gelu-gelu-every-exponent"].inputs(1, 0, CPU).args["x"]
    assert x.isfinite().all()
    assert len((x.view(torch.int32) >> 14).unique()) == len(x) == 2 * 255 * 512  # each with mantissas of its own


def test_late_keys_are_far_above_all_others_and_masked_for_most_rows() -> None:
    call = CASES["flash_attention-backward-causal-late-keys"].inputs(1, 0, CPU)
    q, k = call.args["q"], call.args["k"]
    scores = (q @ k.transpose(1, 2) / math.sqrt(q.shape[-1]))[0]
    n = len(scores)
    assert float((scores[:, n - 3 :].amin(1) - scores[:, : n - 3].amax(1)).min()) > 104, (
        "exp would neither overflow nor vanish"
    )
    assert n % 64
    assert n % 16


@pytest.mark.parametrize(("assignment", "count"), [("cuda_gelu", 64), ("triton_gelu", 64), ("triton_gelu", 7)])
def test_pieces_are_the_whole_along_dimension_0(assignment: str, count: int) -> None:
    case = CASES[f"{assignment}-gelu-n-1025"]
    sizes = [one.shape for one in case.problem.pieces(case.params, count)]
    assert sum(length for (length,) in sizes) == 1025
    assert len(sizes) <= count
    two_dimensions = case.params.model_copy(update={"shape": (5, 3)})
    assert [one.shape for one in case.problem.pieces(two_dimensions, 2)] == [(3, 3), (2, 3)]


def test_each_piece_has_numbers_of_its_own() -> None:
    case = CASES["cuda_gelu-gelu-n-1024"]
    cut = replace(case, case=case.case.model_copy(update={"pieces": 4})).cut()
    first, second = (piece.inputs(1, 0, CPU).args["x"] for piece in cut[:2])
    assert first.shape == second.shape == (256,)
    assert not torch.equal(first, second)
    assert torch.equal(first, cut[0].inputs(1, 0, CPU).args["x"])


def test_a_case_in_pieces_needs_a_problem_that_cuts_it(write: Write) -> None:
    with pytest.raises(CourseError, match=r"problem\.py: lacks the function pieces\(\), which case 'small' asks for"):
        bind_cases([write(toml=("n = 4,", "n = 4, pieces = 2,"))], "cpu")


# What the real problems compute ---------------------------------------------------------------------------------------


def test_the_gelu_oracle_is_the_tanh_form() -> None:
    x = torch.tensor([-5.0, -1.0, -0.5, 0.0, 0.25, 1.0, 3.0, 1e4, -1e4], dtype=torch.float32)
    expected = torch.nn.functional.gelu(x.double(), approximate="tanh")
    for name in ("cuda_gelu-gelu-n-1", "triton_gelu-gelu-n-1"):
        y = CASES[name].problem.oracle(Call({"x": x}))["y"]
        torch.testing.assert_close(y, expected, rtol=1e-12, atol=1e-300)


def test_the_softmax_oracle_is_the_quotient_of_exponentials() -> None:
    row = [1.0, 2.0, 4.0, -math.inf]
    total = sum(math.exp(v) for v in row)
    y = CASES["softmax-softmax-1x7"].problem.oracle(Call({"x": torch.tensor([row])}))["y"]
    assert y.dtype == torch.float64
    assert y[0].tolist() == pytest.approx([math.exp(v) / total for v in row], rel=1e-12)


@pytest.mark.parametrize("causal", [False, True])
def test_the_attention_oracle_is_what_pytorchs_own_attention_computes(causal: bool) -> None:
    generator = torch.Generator().manual_seed(1)
    q, k, v, upstream = (torch.randn(2, 5, 4, generator=generator, dtype=torch.float64) for _ in range(4))
    call = Call({"q": q, "k": k, "v": v}, {"is_causal": causal}, upstream)
    leaves = [one.clone().requires_grad_() for one in (q, k, v)]
    o = torch.nn.functional.scaled_dot_product_attention(*leaves, is_causal=causal)
    gradients = torch.autograd.grad(o, leaves, upstream)
    expected = dict(zip(("dq", "dk", "dv", "o"), (*gradients, o.detach()), strict=True))
    oracle = CASES["flash_attention-backward-n-1"].problem.oracle(call)
    assert list(oracle) == list(expected)
    for name, tensor in oracle.items():
        torch.testing.assert_close(tensor, expected[name], rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize(
    "name", [name for name, one in CASES.items() if "cpu" in one.case.devices and not one.case.is_combination]
)
def test_oracle_and_baseline_give_the_declared_outputs(name: str) -> None:
    case = CASES[name]
    call = case.inputs(1, 0, CPU)
    before = {name: tensor.clone() for name, tensor in call.args.items()}
    shapes = case.problem.outputs(call)
    for answer, dtype in ((case.problem.oracle(call), torch.float64), (case.problem.baseline(call), case.dtype)):
        assert {name: tuple(tensor.shape) for name, tensor in answer.items()} == shapes
        assert all(tensor.dtype == dtype for tensor in answer.values())
    assert all(torch.equal(call.args[name], tensor) for name, tensor in before.items())
    assert set(shapes) <= set(case.assignment.spec.tolerance.scale)


def test_costs_count_bytes_once_and_flops_by_the_formulas() -> None:
    gelu = CASES["cuda_gelu-gelu-n-1024"]
    assert gelu.problem.cost(gelu.params, torch.float32) == (8 * 1024, 14 * 1024)
    softmax = CASES["softmax-softmax-3x1000"]
    assert softmax.problem.cost(softmax.params, torch.bfloat16) == (4 * 3000, 5 * 3000)
    attention = CASES["flash_attention-forward-n-128"]  # batch 3, d 64
    assert attention.problem.cost(attention.params, torch.float32) == (4 * 4 * 3 * 128 * 64, 4 * 3 * 128 * 128 * 64)
    causal = CASES["flash_attention-backward-causal-100"]  # batch 2
    assert causal.problem.cost(causal.params, torch.float16) == (
        3 * 2 * 4 * 2 * 100 * 64,
        int(3.5 * 4 * 2 * 100 * 100 * 64 / 2),
    )


# Slices ---------------------------------------------------------------------------------------------------------------


@given(st.integers(0, 17), st.integers(1, 5), st.integers(1, 100))
def test_a_function_of_rows_may_be_computed_by_slices(rows: int, columns: int, elements: int) -> None:
    generator = torch.Generator().manual_seed(rows * 100 + columns)
    x, z = (torch.randn(rows, columns, generator=generator) for _ in range(2))
    seen = []

    def function(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        seen.append(len(a))
        return torch.softmax(a.double() * b.double(), -1)

    sliced = by_slices(function, x, z, out_dtype=torch.bfloat16, elements=elements)
    assert sum(seen) == rows
    assert max(seen) <= max(1, elements // columns)
    assert torch.equal(sliced, function(x, z).bfloat16())
