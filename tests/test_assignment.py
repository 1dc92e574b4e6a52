"""problem.toml is read strictly, and what is wrong in it is told with file, key and what is allowed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from grader.assignment import CourseError, Timing, Tolerance, load_assignment, load_course
from tests.conftest import ROOT

TOML = """
title = "Doubling"
order = 3
file = "double.py"
entry = "double"
language = "triton"

[limits]
time_limit_s = { cpu = 5, cuda = 6.5 }
memory_gib = 4

[tolerance]
k = 6
scale = { y = "element" }
floor = { float32 = 1e-6, float16 = 1e-3 }
floor_rms = { float32 = 1e-6, float16 = 5e-4 }

[[part]]
name = "forward"
title = "Forward"
defaults = { n = 7 }

[[part.group]]
name = "sizes"
title = "Any size"
points = 5.5
cases = [
  { name = "n-1", tries = "one", n = 1, cpu = { n = 2 } },
  { name = "n-2", tries = "two", dtype = "float16", calls = 3 },
]

[[part.group]]
name = "checks"
title = "Checks"
points = 2
checks = ["test_extra"]

[[part.speed]]
name = "large"
n = 1000
bands = [
  { vs = "eager", speedup = 0.5, points = 1 },
  { vs = "compile", speedup = 2, points = 1.5 },
]
"""

TITLE = 'title = "Doubling"'
Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """An assignment's folder with the text above, some of it replaced."""

    def write(*changes: tuple[str, str], name: str = "doubling") -> Path:
        text = TOML
        for old, new in changes:
            assert text.count(old) == 1, f"{old!r} stands {text.count(old)} times in the example"
            text = text.replace(old, new)
        folder = tmp_path / name
        folder.mkdir()
        (folder / "problem.toml").write_text(text, encoding="utf-8")
        return folder

    return write


def refusal(folder: Path) -> str:
    with pytest.raises(CourseError) as error:
        load_assignment(folder)
    return str(error.value)


# What is right is read ------------------------------------------------------------------------------------------------


def test_every_field_is_read(write: Write) -> None:
    assignment = load_assignment(write())
    spec = assignment.spec
    (part,) = spec.parts
    assert (assignment.name, spec.title, spec.order, spec.file, spec.entry, spec.language) == (
        "doubling", "Doubling", 3, "double.py", "double", "triton",
    )  # fmt: skip
    assert spec.limits.time_limit_s == {"cpu": 5, "cuda": 6.5}
    assert spec.tolerance.floor == {"float32": 1e-6, "float16": 1e-3}
    assert [case.name for case in part.cases] == ["n-1", "n-2"]
    first, second = part.groups[0].cases
    assert (first.dtype, first.calls, first.devices, first.params) == ("float32", 1, ("cpu", "cuda"), {"n": 1})
    assert (second.dtype, second.calls, second.params) == ("float16", 3, {})
    assert part.groups[1].checks == ("test_extra",)
    assert (first.params_on("cuda"), first.params_on("cpu")) == ({"n": 1}, {"n": 2})
    (speed,) = part.speed
    assert (speed.name, speed.dtype, speed.devices, speed.roofline) == ("large", "float32", ("cuda",), "copy")
    assert (speed.others, speed.memory_gib, speed.smaller, speed.params) == ((), None, (), {"n": 1000})
    assert [(band.vs, band.speedup, band.points) for band in speed.bands] == [("eager", 0.5, 1), ("compile", 2, 1.5)]
    assert spec.timing == Timing()
    assert (part.correctness_points, part.speed_points, assignment.points) == (7.5, 2.5, 10)


OF_SPEED = """n = 1000
dtype = "float16"
devices = ["cpu", "cuda"]
others = ["sdpa_flash", "sdpa_cudnn"]
memory_gib = 36.5
smaller = [{ n = 500, memory_gib = 9 }, { n = 250, causal = true }]
"""
OF_ALL = """title = "Doubling"
gpu = "B200"
other_gpus = ["A100"]
examples = { cpu = 2, cuda = 9 }
timing = { rounds = 9, margin = 0.1, budget_s = 5.5 }
"""


def test_whatever_may_be_left_out_is_read_too(write: Write) -> None:
    case = 'repeats = 3, compiled = true }, { name = "n-3", tries = "three", tool = "racecheck", devices = ["cuda"]'
    spec = load_assignment(write(("calls = 3", case), (f"{TITLE}\n", OF_ALL), ("n = 1000\n", OF_SPEED))).spec
    assert (spec.gpu.arch, [one.arch for one in spec.other_gpus]) == ("sm_100", ["sm_80"])
    assert spec.examples == {"cpu": 2, "cuda": 9}
    assert spec.timing == Timing(rounds=9, margin=0.1, budget_s=5.5)
    _, compiled, tried = spec.parts[0].cases
    assert (compiled.compiled, compiled.repeats, compiled.tool, tried.tool) == (True, 3, None, "racecheck")
    (speed,) = spec.parts[0].speed
    assert (speed.dtype, speed.devices, speed.roofline) == ("float16", ("cpu", "cuda"), "copy")
    assert (speed.others, speed.memory_gib, speed.params) == (("sdpa_flash", "sdpa_cudnn"), 36.5, {"n": 1000})
    sizes = [(size.params, size.memory_gib) for size in speed.smaller]
    assert sizes == [({"n": 500}, 9), ({"n": 250, "causal": True}, None)]


@pytest.mark.parametrize(
    ("dtype", "device", "declared", "precision"),
    [
        ("float32", "cuda", True, "tf32"),
        ("float32", "cuda", False, "float32"),
        ("float32", "cpu", True, "float32"),
        ("float16", "cuda", True, "float16"),
        ("bfloat16", "cuda", True, "bfloat16"),
    ],
)
def test_tf32_counts_for_float32_on_a_gpu_where_it_is_declared(
    dtype: str, device: str, declared: bool, precision: str
) -> None:
    floor = {"float32": 1e-6, "float16": 1e-3, "bfloat16": 1e-2} | ({"tf32": 1e-3} if declared else {})
    tolerance = Tolerance(k=6, scale={}, floor=floor, floor_rms=floor)
    assert tolerance.precision(dtype, device) == precision  # type: ignore[arg-type]


# What is wrong is named ---------------------------------------------------------------------------------------------------

CASE, SPEED = "part.0.group.0.cases.1", "part.0.speed.0"
BANDS = TOML[TOML.index("bands = [") :]
BAND = '{ vs = "eager", speedup = 0.5, points = 1 }'
SECOND_SPEED = f'{BANDS}[[part.speed]]\nname = "large"\nn = 9\nbands = [{BAND}]\n'
OF_SPEED_REFUSED = [
    ("memory_gib = true", f"{SPEED}.memory_gib", "Input should be a valid number"),
    ("devices = []", f"{SPEED}.devices", "Tuple should have at least 1 item"),
    ('roofline = "spreadsheet"', f"{SPEED}.roofline", "Input should be 'copy' or 'matmul'"),
    ('roofline = "matmul"\ndevices = ["cpu", "cuda"]', SPEED, 'roofline = "matmul" needs devices = ["cuda"]: '),
    ('others = ["../evil"]', f"{SPEED}.others.0", "String should match pattern"),
    ('others = ["sdpa_flash", "null"]', SPEED, "others: null is what another worker is called"),
    ('dtype = "float64"', f"{SPEED}.dtype", "Input should be 'float32', 'float16' or 'bfloat16'"),
    ('dtype = "bfloat16"', "(whole file)", "case 'large' is bfloat16, but [tolerance] floor has no bfloat16"),
    ("smaller = { n = 1 }", f"{SPEED}.smaller", "Input should be a valid tuple"),
    ('smaller = [{ memory_gib = "9" }]', f"{SPEED}.smaller.0.memory_gib", "Input should be a valid number (got '9')"),
    ("smaller = [{ n = 9 }]", SPEED, "smaller.0 is never taken: the size before it has no memory_gib"),
    ("memory_gib = 9\nsmaller = [{ n = 9 }, { n = 5, memory_gib = 1 }]", SPEED, "smaller.1 is never taken: "),
    ("memory_gib = 9\nsmaller = [{ memory_gib = 9 }]", SPEED, "smaller.0.memory_gib = 9 is not below 9, that of the"),
    ("memory_gib = 9\nsmaller = [{ memory_gib = 2 }, { memory_gib = 2.5 }]", SPEED, "smaller.1.memory_gib = 2.5 is not"),
]  # fmt: skip
TIMING = [
    ("batch_s = 1e308", "Input should be less than or equal to 10"),
    ("max_calls = 3", "Input should be greater than or equal to 4"),
    ("max_calls = 1001", "Input should be less than or equal to 1000"),
    ("rounds = 2", "Input should be greater than or equal to 3"),
    ("rounds = 201", "Input should be less than or equal to 200"),
    ("max_rounds = 2", "Input should be greater than or equal to 3"),
    ("max_rounds = 1001", "Input should be less than or equal to 1000"),
    ("budget_s = 0", "Input should be greater than 0"),
    ("margin = 1", "Input should be less than 1"),
    ("slow_limit = 1", "Input should be greater than 1"),
]
# what is replaced, by what; the key that is named, the beginning of what is said of it
REFUSED = [
    (TITLE, f"{TITLE}\ncolour = 1", "colour", "unknown key; allowed here: title, order, file, entry, language, signature, gpu"),
    ("memory_gib = 4", "memory_gib = 4\nfuel = 1", "limits.fuel", "unknown key; allowed here: time_limit_s, memory_gib"),
    ("k = 6", "k = 6\natol = 1", "tolerance.atol", "unknown key; allowed here: k, reference_cap, scale, unit, may_vary, floor, floor_rms"),
    ('title = "Forward"', 'title = "Forward"\nbonus = 1', "part.0.bonus", "unknown key; allowed here: name, title, defaults, factor, exc"),
    ('title = "Checks"', 'title = "Checks"\nx = 1', "part.0.group.1.x", "unknown key; allowed here: name, title, points, cases, checks"),
    ("speedup = 2,", "speedup = 2, grade = 1,", f"{SPEED}.bands.1.grade", "unknown key; allowed here: vs, speedup, points"),
    ("[tolerance]", "[timing]\nround = 9\n[tolerance]", "timing.round", "unknown key; allowed here: batch_s, max_calls, rounds"),
    ("k = 6", 'k = "six"', "tolerance.k", "Input should be a valid number (got 'six')"),
    ("k = 6", "k = 0", "tolerance.k", "Input should be greater than 0"),
    ("k = 6", "k = nan", "tolerance.k", "Input should be a finite number"),
    ("k = 6", "k = 6\nreference_cap = 0.5", "tolerance.reference_cap", "Input should be greater than or equal to 1"),
    ("k = 6", 'k = 6\nmay_vary = ["z"]', "(whole file)", "[tolerance] may_vary names 'z', which scale does not"),
    ("memory_gib = 4", "", "limits.memory_gib", "Field required"),
    ("cpu = 5, ", "", "(whole file)", "[limits] time_limit_s needs a number for 'cpu' too"),
    ("cuda = 6.5", "tpu = 6.5", "limits.time_limit_s.tpu.[key]", "Input should be 'cpu' or 'cuda'"),
    ('y = "element"', 'y = "column"', "tolerance.scale.y", "Input should be 'element', 'row' or 'all'"),
    ("floor = { float32 = 1e-6", "floor = { float32 = -1e-6", "tolerance.floor.float32", "Input should be greater than or equal to 0"),
    ("floor = { float32 = 1e-6", "floor = { float64 = 1e-6", "tolerance.floor.float64.[key]", "Input should be 'float32', 'tf32'"),
    (", float16 = 5e-4 }", " }", "(whole file)", "[tolerance] floor and floor_rms must name the same precisions"),
    ('language = "triton"', 'language = "rust"', "language", "Input should be 'cuda' or 'triton'"),
    ('language = "triton"', 'language = "cuda"', "(whole file)", "language 'cuda' does not go with the file 'double.py'"),
    ('file = "double.py"', 'file = "double.cu"', "(whole file)", "language 'triton' does not go with the file 'double.cu'"),
    ('file = "double.py"', 'file = "../double.py"', "file", "String should match pattern"),
    ('entry = "double"', 'entry = "os.system"', "entry", "String should match pattern"),
    (TITLE, f'{TITLE}\ngpu = "hopper"', "gpu", "no GPU of the table; allowed here: T4, A100"),
    (TITLE, f"{TITLE}\nexamples = {{ cpu = 2 }}", "(whole file)", "examples needs a number for 'cuda' too"),
    (TITLE, f"{TITLE}\nexamples = {{ cpu = 0, cuda = 1 }}", "examples.cpu", "Input should be greater than or equal to 1"),
    ("points = 5.5", "points = -1", "part.0.group.0.points", "Input should be greater than or equal to 0"),
    ("points = 5.5", "points = 101", "part.0.group.0.points", "Input should be less than or equal to 100"),
    ('checks = ["test_extra"]', "", "part.0.group.1", "a group needs `cases` or `checks`"),
    ('checks = ["test_extra"]', 'checks = ["n-1"]', "(whole file)", "part 'forward' has two cases or checks named 'n-1'"),
    ('name = "n-2"', 'name = "n-1"', "(whole file)", "part 'forward' has two cases or checks named 'n-1'"),
    ('name = "n-2"', 'name = "n 2"', f"{CASE}.name", "String should match pattern"),
    ('tries = "two"', 'tries = ""', f"{CASE}.tries", "String should have at least 1 character"),
    ('tries = "two", ', "", f"{CASE}.tries", "Field required"),
    ('dtype = "float16"', 'dtype = "float64"', f"{CASE}.dtype", "Input should be 'float32', 'float16' or 'bfloat16'"),
    ('dtype = "float16"', 'dtype = "bfloat16"', "(whole file)", "case 'n-2' is bfloat16, but [tolerance] floor has no bfloat16"),
    ("cpu = { n = 2 }", "cpu = 2", "part.0.group.0.cases.0.cpu", "Input should be a valid dictionary"),
    ("calls = 3", "calls = 0", f"{CASE}.calls", "Input should be greater than or equal to 1"),
    ("calls = 3", "calls = 11", f"{CASE}.calls", "Input should be less than or equal to 10"),
    ("calls = 3", 'calls = "3"', f"{CASE}.calls", "Input should be a valid integer"),
    ("calls = 3", "repeats = 11", f"{CASE}.repeats", "Input should be less than or equal to 10"),
    ("calls = 3", "together = 9", f"{CASE}.together", "Input should be less than or equal to 8"),
    ("calls = 3", "pieces = 4097", f"{CASE}.pieces", "Input should be less than or equal to 4096"),
    ("calls = 3", 'devices = ["tpu"]', f"{CASE}.devices.0", "Input should be 'cpu' or 'cuda'"),
    ("calls = 3", "cpu_windows = 2", "(whole file)", "case 'n-2': cpu_windows is for the language cuda"),
    ("calls = 3", 'tool = "memcheck"', CASE, 'tool = "memcheck" needs devices = ["cuda"]'),
    ("calls = 3", 'tool = "valgrind", devices = ["cuda"]', f"{CASE}.tool", "Input should be 'memcheck', 'racecheck' or 'initcheck'"),
    ("calls = 3", "together = 2, repeats = 2", CASE, "repeats and together cannot go together"),
    ("calls = 3", "pieces = 2, repeats = 2", CASE, "repeats and pieces cannot go together"),
    ("calls = 3", 'pieces = 2, devices = ["cuda"], tool = "memcheck"', CASE, "pieces and tool cannot go together"),
    ('vs = "eager"', 'vs = "numpy"', f"{SPEED}.bands.0.vs", "Input should be 'eager' or 'compile'"),
    ("speedup = 0.5", "speedup = 0.05", "(whole file)", "speed case 'large': whoever is only 0.05 times as fast as eager is stopped"),
    ('language = "triton"', 'language = "triton"\nsignature = ["float* y"]', "(whole file)", "signature is for the language cuda"),
    (BANDS, "", f"{SPEED}.bands", "Field required"),
    (BANDS, "bands = []", f"{SPEED}.bands", "Tuple should have at least 1 item"),
    (BANDS, f"bands = [{BAND}, {BAND}]", SPEED, "bands: the same band is there twice"),
    (BANDS, SECOND_SPEED, "(whole file)", "part 'forward' has two speed cases named 'large'"),
    *(("n = 1000\n", f"n = 1000\n{line}\n", key, words) for line, key, words in OF_SPEED_REFUSED),
    *(("[tolerance]", f"[timing]\n{line}\n[tolerance]", f"timing.{line.split()[0]}", words) for line, words in TIMING),
]  # fmt: skip


@pytest.mark.parametrize(("old", "new", "key", "words"), REFUSED)
def test_what_is_wrong_is_named_in_one_line_with_its_file_key_and_what_is_allowed(
    write: Write, old: str, new: str, key: str, words: str
) -> None:
    folder = write((old, new))
    message = refusal(folder)
    assert message.startswith(f"{folder / 'problem.toml'}: {key}: {words}")
    assert len(message.splitlines()) == 1
    assert "pydantic" not in message


def test_a_band_below_a_larger_slow_limit_can_be_had(write: Write) -> None:
    load_assignment(
        write(("speedup = 0.5", "speedup = 0.05"), ("[tolerance]", "[timing]\nslow_limit = 21\n[tolerance]"))
    )


def test_several_mistakes_are_told_together(write: Write) -> None:
    message = refusal(write(("k = 6", "k = 6\natol = 1"), ("memory_gib = 4", 'memory_gib = "much"')))
    assert [line.split(": ")[1] for line in message.splitlines()] == ["limits.memory_gib", "tolerance.atol"]


def test_a_long_wrong_value_is_cut(write: Write) -> None:
    assert len(refusal(write(("k = 6", f'k = "{"x" * 5000}"')))) < 600


# What a CUDA C++ entry takes ------------------------------------------------------------------------------------------

SIGNATURE = ["const float* x", "float* y", "int64_t n = x.numel()", "cudaStream_t stream"]
ROWS = [*SIGNATURE[:2], "int rows = x.shape[0]", SIGNATURE[3]]


def of_cuda(signature: list[str], case: str = "") -> list[tuple[str, str]]:
    """What makes the text above one of CUDA C++, with more keys for its second case."""
    language = f'language = "cuda"\nsignature = {signature}'
    return [('"double.py"', '"double.cu"'), ('language = "triton"', language), (', dtype = "float16"', case)]


def test_a_signature_is_read_and_told_as_the_student_writes_it(write: Write) -> None:
    written = ["const  float *x", "float *y", "int64_t  n = x.numel()", "cudaStream_t s"]
    spec = load_assignment(write(*of_cuda(written, ", cpu_windows = 8"))).spec
    assert spec.contract == 'extern "C" void double(const float* x, float* y, int64_t n, cudaStream_t s)'
    assert [(one.tensor, one.axis) for one in spec.signature] == [(None, None)] * 2 + [("x", None), (None, None)]


@pytest.mark.parametrize(
    ("signature", "case", "words"),
    [
        ([], "", "signature is for the language cuda, which needs one: an input is written `const float* x`"),
        (["double* x"], "", "signature.0: 'double* x' is no parameter: an input is written `const float* x`"),
        ([*SIGNATURE[:2], "float n = x.numel()", SIGNATURE[3]], "", "'float n = x.numel()' is no parameter"),
        ([*SIGNATURE[:2], "int64_t n = x.size(0)", SIGNATURE[3]], "", "'int64_t n = x.size(0)' is no parameter"),
        ([*SIGNATURE[:2], "int64_t n = w.numel()", SIGNATURE[3]], "", "n is a size of 'w'; the tensors are x, y"),
        ([*SIGNATURE[:2], "int64_t x", SIGNATURE[3]], "", "two parameters are called 'x'"),
        (SIGNATURE[:3], "", "one cudaStream_t, which is the last"),
        ([SIGNATURE[3], *SIGNATURE[:3]], "", "one cudaStream_t, which is the last"),
        (SIGNATURE[1:2] + SIGNATURE[3:], "", "signature needs an input (const float*)"),
        ([SIGNATURE[0], "float* z", *SIGNATURE[2:]], "", "outputs (float*) are ['z'], and those that [tolerance] scale names ['y']"),
        ([*SIGNATURE[:2], *(f"float f{i}" for i in range(9)), SIGNATURE[3]], "", "more than 8 parameters are floats"),
        ([*SIGNATURE[:2], *(f"int f{i}" for i in range(10)), SIGNATURE[3]], "", "at most 12 items"),
        (SIGNATURE, ", compiled = true", "case 'n-2': compiled is for the language triton"),
        (SIGNATURE, ', dtype = "float16"', "case 'n-2' is float16, and tensors of the language cuda are float32"),
        (ROWS, ", cpu_windows = 8", "case 'n-2': cpu_windows needs a signature whose sizes are all numel()"),
    ],
)  # fmt: skip
def test_a_signature_that_cannot_be_called_is_refused(
    write: Write, signature: list[str], case: str, words: str
) -> None:
    folder = write(*of_cuda(signature, case))
    message = refusal(folder)
    assert message.startswith(f"{folder / 'problem.toml'}: ")
    assert words in message


# What varies in a part ------------------------------------------------------------------------------------------------

FACTORS = """
[[part.factor]]
name = "size"
title = "the size"
group = "sizes"
levels = [{ name = "seven", words = "7" }, { name = "n-0", words = "0", n = 0 }]
[[part.factor]]
name = "kind"
title = "the dtype"
group = "sizes"
levels = [{ name = "full", words = "float32" }, { name = "half", words = "float16", dtype = "float16" }]
[[part.excluded]]
levels = { size = ["n-0"], kind = ["half"] }
why = "nothing has no half"
"""
PAIRS = [("[[part.speed]]", f"{FACTORS}\n[[part.speed]]"), ('checks = ["test_extra"]', "pairs = true")]
GROUP, EXCLUDED = "part.0: the group of factor 'size' is", "part.0: excluded:"
COMBINED = "part,size,kind\nforward,n-0,full\nforward,seven,full\n"


def test_levels_and_combinations_become_cases(write: Write) -> None:
    folder = write(*PAIRS)
    (folder / "combinations.csv").write_text(COMBINED)
    cases = [(case.name, case.tries, case.levels) for case in load_assignment(folder).spec.parts[0].cases[2:]]
    assert cases == [
        ("n-0", "0", {"size": "n-0", "kind": "full"}),
        ("half", "float16", {"size": "seven", "kind": "half"}),
        ("pair-1", "0", {"size": "n-0", "kind": "full"}),
        ("pair-2", "7, float32", {"size": "seven", "kind": "full"}),
    ]


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('size"\ngroup = "sizes"', 'size"\ngroup = "size"', f"{GROUP} 'size'; the groups of this part are sizes, checks"),
        ('{ size = ["n-0"]', '{ length = ["n-0"]', f"{EXCLUDED} there is no factor 'length'; those of this part are size, kind"),
        ('{ size = ["n-0"]', '{ size = ["n-0", "n-1"]', f"{EXCLUDED} the factor 'size' has no level 'n-1'; its levels are seven, n-0"),
        ('dtype = "float16"', 'dtype = "bfloat16"', "(whole file): case 'half' is bfloat16, but [tolerance] floor has no bfloat16"),
        ('words = "float16", ', 'words = "float16", n = 1, ', "two factors of part 'forward' set 'n'"),
    ],
)  # fmt: skip
def test_a_contract_that_names_what_is_not_there_is_refused(write: Write, old: str, new: str, words: str) -> None:
    assert FACTORS.count(old) == 1
    folder = write((PAIRS[0][0], f"{FACTORS.replace(old, new)}\n[[part.speed]]"), PAIRS[1])
    (folder / "combinations.csv").write_text("part,size,kind\nforward,n-0,half\n")
    assert refusal(folder) == f"{folder / 'problem.toml'}: {words}"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (None, "cannot be used; `python -m grader.combinations` writes it anew (FileNotFoundError: "),
        (COMBINED.replace("n-0", "n-1"), "the factor 'size' of part 'forward' has no level 'n-1'; `python -m grader."),
        (
            COMBINED.replace("kind", "dtype"),
            "the factor 'kind' of part 'forward' has no level None; `python -m grader.",
        ),
        (
            COMBINED.replace("forward", "backward"),
            "problem.toml has no part 'backward'; `python -m grader.combinations` ",
        ),
    ],
)
def test_combinations_of_another_contract_are_refused(write: Write, text: str | None, words: str) -> None:
    folder = write(*PAIRS)
    if text is not None:
        (folder / "combinations.csv").write_text(text)
    message = refusal(folder)
    assert message.startswith(f"{folder / 'combinations.csv'}: {words}")
    assert len(message.splitlines()) == 1


# Files and folders ----------------------------------------------------------------------------------------------------


def test_the_same_name_may_be_there_in_another_part_and_for_speed(write: Write) -> None:
    part = """
[[part]]
name = "backward"
title = "Backward"
[[part.group]]
name = "sizes"
title = "Any size"
points = 1
cases = [{ name = "n-1", tries = "one" }]
"""
    folder = write((BANDS, f"{BANDS}{part}"), ('name = "large"', 'name = "n-1"'))
    forward, backward = load_assignment(folder).spec.parts
    assert forward.speed[0].name == forward.cases[0].name == backward.cases[0].name == "n-1"
    text = (folder / "problem.toml").read_text().replace('name = "backward"', 'name = "forward"')
    (folder / "problem.toml").write_text(text)
    assert "two parts are named 'forward'" in refusal(folder)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (None, "not found; an assignment is a folder with problem.toml and problem.py"),
        (b"title = ", "Invalid value"),
        (b"\xff\xfe", "'utf-8' codec can't decode"),
    ],
)
def test_a_file_that_is_no_toml_is_named(tmp_path: Path, text: bytes | None, words: str) -> None:
    if text is not None:
        (tmp_path / "problem.toml").write_bytes(text)
    assert refusal(tmp_path).startswith(f"{tmp_path}/problem.toml: {words}")


def test_a_file_that_an_editor_on_windows_saved_is_read(write: Write) -> None:
    path = write() / "problem.toml"
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes().replace(b"\n", b"\r\n"))
    assert load_assignment(path.parent).points == 10


def test_a_folder_with_an_odd_name_is_refused(write: Write) -> None:
    assert "named with letters, digits and _" in refusal(write(name="my-lab"))


def test_a_course_is_its_assignments_in_their_order_then_by_name(write: Write, tmp_path: Path) -> None:
    with pytest.raises(CourseError, match="no such folder; a course has the folders assignments/"):
        load_course(tmp_path / "course")
    rooms = tmp_path / "course" / "assignments"
    for name in (".git", "__pycache__"):
        (rooms / name).mkdir(parents=True)
    (rooms / "notes.txt").touch()
    with pytest.raises(CourseError, match="no assignments in it"):
        load_course(tmp_path / "course")
    for name, order in (("third", 3), ("first", 3), ("second", 1)):
        write(("order = 3", f"order = {order}"), name=name).rename(rooms / name)
    assert [one.name for one in load_course(tmp_path / "course")] == ["second", "first", "third"]
    (rooms / "first" / "problem.toml").write_text("broken")
    assert [one.name for one in load_course(tmp_path / "course", ["third", "second"])] == ["second", "third"]
    with pytest.raises(CourseError, match="no assignment 'fourth'; this course has: first, second, third"):
        load_course(tmp_path / "course", ["first", "fourth"])


# This course ----------------------------------------------------------------------------------------------------------


def test_the_courses_four_assignments_are_worth_a_hundred_points_all_of_which_can_be_had() -> None:
    course = load_course(ROOT)
    assert [one.name for one in course] == ["cuda_gelu", "triton_gelu", "softmax", "flash_attention"]
    assert sum(one.points for one in course) == 100
    for assignment in course:
        assert (ROOT / "starter" / assignment.spec.file).is_file()
        assert (ROOT / "reference" / assignment.spec.file).is_file()
        for part in assignment.spec.parts:
            assert part.speed_points > 0
            assert all(group.points > 0 for group in part.groups)
            for speed in part.speed:
                assert [band.speedup for band in speed.bands] == sorted(band.speedup for band in speed.bands)


def test_passing_shows_values_unless_any_answer_is_right_or_only_addresses_were_looked_at() -> None:
    shows = {
        (case.name, device): case.shows_values(device)
        for assignment in load_course(ROOT, ["cuda_gelu"])
        for case in assignment.spec.parts[0].cases
        for device in ("cpu", "cuda")
    }
    assert {key for key, value in shows.items() if not value} == {
        ("n-0", "cpu"), ("n-0", "cuda"), ("beyond-2-31", "cpu"),
    }  # fmt: skip
