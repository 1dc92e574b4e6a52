"""The models of `problem.toml`, and the loading of a course.

Imports no torch, so that the command line can read assignments at once. `grader.problem` loads an assignment's
`problem.py` inside the judge.
"""

from __future__ import annotations

import csv
import re
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, get_args

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainValidator, ValidationError, model_validator

from grader.gpu_table import GPUS
from grader.protocol import MAX_CALLS, Gpu, Parameter

T = TypeVar("T")
Device = Literal["cpu", "cuda"]
DType = Literal["float32", "float16", "bfloat16"]
Precision = Literal["float32", "tf32", "float16", "bfloat16"]
Scale = Literal["element", "row", "all"]
Language = Literal["cuda", "triton"]
Devices = Annotated[tuple[Device, ...], Field(min_length=1)]
Tool = Literal["memcheck", "racecheck", "initcheck"]  # of compute-sanitizer

Slug = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$", max_length=60)]
Number = Annotated[float, Field(strict=True, allow_inf_nan=False)]
NotNegative = Annotated[Number, Field(ge=0)]
Positive = Annotated[Number, Field(gt=0)]
Points = Annotated[NotNegative, Field(le=100)]


def _twice(names: Iterable[T]) -> list[T]:
    return [name for name, count in Counter(names).items() if count > 1]


def _whole(least: int, most: int) -> Any:
    return Field(strict=True, ge=least, le=most)


def _known_gpu(name: Any) -> Gpu:
    if not isinstance(name, str) or name not in GPUS:
        raise ValueError(f"no GPU of the table; allowed here: {', '.join(GPUS)}")
    return GPUS[name]


KnownGpu = Annotated[Gpu, PlainValidator(_known_gpu)]


class CourseError(Exception):
    """The course folder or one of its files is unusable. The message names the file, the key and the allowed values."""


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


# The names of the entrants that the grader brings.
TAKEN = frozenset({"submission", "eager", "compile", "reference", "null", "copy", "matmul"})
# First line: for kernels. Second: for a student's own tests and benchmarks. Third: packages that the grader installs
# (pyproject.toml).
USUAL_IMPORTS = tuple(
    """
    __future__ abc collections contextlib dataclasses enum functools itertools logging math os pathlib sys time typing
    typing_extensions warnings argparse copy json random re textwrap
    einops jaxtyping numpy torch triton
    """.split()  # noqa: SIM905 (a list of strings is no easier to read)
)


PARAMETER = re.compile(
    r"(?P<type>const float ?\*|float ?\*|int64_t|int|bool|float|cudaStream_t) ?(?P<name>[A-Za-z_]\w*)"
    r"(?: = (?P<tensor>[A-Za-z_]\w*)\.(?:numel\(\)|shape\[(?P<axis>\d)\]))?"
)
PARAMETER_FORMS = (
    "an input is written `const float* x`, an output `float* y`, a size `int64_t n = x.numel()` or `int64_t rows = x.shape[0]`, "
    "an option `float alpha` (or int, int64_t, bool), the stream `cudaStream_t stream`"
)
MAX_PARAMETERS, MAX_FLOATS = 12, 8  # the most that `cuda_cpu_call` in runtime.cpp can pass


def _parsed(data: Any) -> Any:
    """The parts of a parameter that is written as in PARAMETER_FORMS."""
    if not isinstance(data, str):
        return data
    found = PARAMETER.fullmatch(" ".join(data.split()))
    if found is None or (found["tensor"] and found["type"] not in ("int64_t", "int")):
        raise ValueError(f"{data!r} is no parameter: {PARAMETER_FORMS}")
    return found.groupdict() | {"type": found["type"].replace(" *", "*")}


class Limits(Strict):
    """Limits of the student's code.

    Attributes:
        time_limit_s: seconds of a call, by device.
        memory_gib: host memory of the worker's whole tree.
        import_limit_s: seconds for importing the student's file.
        build_limit_s: seconds for compiling a .cu file, or a case's launches for all architectures.
        total_limit_s: seconds of wall time for all imports, builds, calls and ends of workers of the assignment.
    """

    time_limit_s: dict[Device, Positive]
    memory_gib: Positive
    import_limit_s: Positive = 20
    build_limit_s: Positive = 180
    total_limit_s: Annotated[Positive, Field(le=800)] = 600  # four assignments must fit into a grading (`RUN_LIMIT_S`)


class Tolerance(Strict):
    """The error budget: k times PyTorch's error, or the reference kernel's if that is larger, plus a floor.

    Attributes:
        reference_cap: a reference kernel off by more than this many budgets is a fault of the course.
        scale: by output. Errors are relative to max(|expected|, unit) of the `element`, to the largest |expected| of
            the `row` (along the last dimension), or to the root mean square over `all` outputs with this scale.
        may_vary: outputs that may differ between equal calls within their budget, as sums in no fixed order do.
        floor, floor_rms: of the worst element and of the root mean square, by precision.
    """

    k: Positive
    reference_cap: Annotated[Number, Field(ge=1)] = 10.0
    scale: dict[str, Scale]
    unit: Positive = 1.0
    may_vary: tuple[str, ...] = ()
    floor: dict[Precision, NotNegative]
    floor_rms: dict[Precision, NotNegative]

    def precision(self, dtype: DType, device: Device) -> Precision:
        """The precision whose floor counts: `tf32` for float32 on a GPU, if the assignment allows TF32 products by declaring that floor."""
        return "tf32" if dtype == "float32" and device == "cuda" and "tf32" in self.floor else dtype


COMBINATIONS = "combinations.csv"
PAIR = "pair-"  # The names of cases from its rows begin so.


class Keyed(Strict):
    """A case of problem.toml. Keys that are no fields are the assignment's own: `problem.py` checks them."""

    model_config = ConfigDict(extra="allow", frozen=True)

    @property
    def params(self) -> dict[str, Any]:
        """The assignment's own keys."""
        return dict(self.model_extra or {})


class Case(Keyed):
    """A correctness case: inputs that the judge draws, and how the submission is called on them.

    Attributes:
        tries: the purpose of the case, in a line for the student.
        compiled: for Triton on a CPU: whether to compile the launches for `gpu` and `other_gpus` too.
        interpreted: for Triton on a CPU: false if the interpreter would take too long. The case is then skipped, and
            compiled if `compiled`.
        calls: number of calls in a row, each on new data.
        repeats: number of calls on the same data, whose answers must agree bit for bit.
        together: number of calls on different data, and one more on the first data. All are made before the first
            result is looked at. With gradients, all are made before the first backward pass, and the backward passes
            run in both orders.
        pieces: number of pieces of dimension 0 in which inputs are drawn and outputs compared, so that no second copy
            of them exists.
        profiled: on a GPU: whether to report the GPU's time by kernel, and to refuse a submission whose own kernels do
            little.
        tool: of NVIDIA's compute-sanitizer, under which the case runs.
        memory_gib: GPU memory that the case needs for inputs, outputs and the judge; skipped if less is free.
        max_extra_mib: GPU memory that the call may take beside its tensors.
        cpu_windows: for CUDA C++ on a CPU: tensors repeat their memory so many times, launches run in part, and only
            accesses are checked.
        degenerate: why a trivial answer (zeros, ones, a copy) is right here.
        cpu: keys of `problem.py` that differ on a CPU.
        levels: levels of the contract that the case tries, by factor; of a case that is made of levels, of each factor.
    """

    name: Slug
    tries: Annotated[str, Field(min_length=1)]
    dtype: DType = "float32"
    devices: Devices = ("cpu", "cuda")
    compiled: bool = False
    interpreted: bool = True
    calls: Annotated[int, _whole(1, 10)] = 1
    repeats: Annotated[int, _whole(1, 10)] = 1
    together: Annotated[int, _whole(1, 8)] = 1
    pieces: Annotated[int, _whole(1, 4096)] = 1
    profiled: bool = False
    tool: Tool | None = None
    time_limit_s: Positive | None = None
    memory_gib: Positive | None = None
    max_extra_mib: Positive | None = None
    cpu_windows: Annotated[int, _whole(1, 4096)] = 1
    degenerate: str | None = None
    cpu: dict[str, Any] = {}
    levels: dict[str, str] = {}

    @model_validator(mode="after")
    def _consistent(self) -> Case:
        if self.tool is not None and self.devices != ("cuda",):
            raise ValueError(f'tool = "{self.tool}" needs devices = ["cuda"]')
        asked = [name for name in ("repeats", "together", "pieces", "tool") if getattr(self, name) not in (1, None)]
        if len(asked) > 1:
            raise ValueError(f"{' and '.join(asked)} cannot go together: each makes calls in a way of its own")
        return self

    @property
    def is_huge(self) -> bool:
        """Whether the inputs are too large to be drawn without need."""
        return self.memory_gib is not None or self.pieces > 1 or self.cpu_windows > 1 or not self.interpreted

    @property
    def is_combination(self) -> bool:
        """Whether the case is a row of `combinations.csv`, which nobody has looked at."""
        return self.name.startswith(PAIR)

    def shows_values(self, device: Device) -> bool:
        """Whether passing the case shows that the kernel computes right values."""
        return self.degenerate is None and (self.cpu_windows == 1 or device != "cpu")

    def params_on(self, device: Device) -> dict[str, Any]:
        return self.params | (self.cpu if device == "cpu" else {})


class Level(Keyed):
    """A level of a factor, and what it changes in a case: the keys that are no fields here are a case's.

    Attributes:
        name: of the level, and of the case that tries it alone.
        words: the level in a sentence, as `a transposed matrix`.
        tries: the purpose of the case that tries it alone; `words` if it is left out.
    """

    name: Slug
    words: Annotated[str, Field(min_length=1)]
    tries: str = ""


class Factor(Strict):
    """A factor of a part's contract, as the layout of x.

    Attributes:
        title: the factor in a sentence, as `the layout of x`.
        group: the group of the cases that try one of its levels alone.
        levels: the base level first, which all cases have that try another factor alone.
    """

    name: Slug
    title: str
    group: Slug
    levels: Annotated[tuple[Level, ...], Field(min_length=2, max_length=8)]


class Excluded(Strict):
    """Levels that the contract does not let go together.

    Attributes:
        levels: names of levels by factor; a combination with one of them in each of the factors is left out.
    """

    levels: Annotated[dict[Slug, tuple[Slug, ...]], Field(min_length=2)]
    why: Annotated[str, Field(min_length=1)]

    def holds(self, levels: Mapping[str, str]) -> bool:
        """Whether a combination, by factor, is left out."""
        return all(levels.get(factor) in names for factor, names in self.levels.items())


class Group(Strict):
    """Cases and checks of one idea. The group's points are earned if none of its cases goes wrong.

    Attributes:
        checks: names of test functions in the assignment's test_*.py files.
        pairs: whether the cases of `combinations.csv` join its own. In such a group a case whose fault another case
            shows alone costs nothing (`grader/verdict/contract.py`).
    """

    name: Slug
    title: str
    points: Points
    cases: tuple[Case, ...] = ()
    checks: tuple[str, ...] = ()
    pairs: bool = False

    @model_validator(mode="after")
    def _not_empty(self) -> Group:
        if not self.cases and not self.checks and not self.pairs:
            raise ValueError("a group needs `cases` or `checks`")
        return self

    @property
    def names(self) -> list[str]:
        return [*(case.name for case in self.cases), *self.checks]


def with_cases(part: Part, rows: Sequence[dict[str, str]]) -> Part:
    """The part with a case for each level of its factors alone, and one for each row of its combinations.

    A case that problem.toml has under a level's name is that level's. Raises ValueError.

    Args:
        rows: as `read_combinations` gives them for this part.
    """
    factors = {factor.name: {level.name: level for level in factor.levels} for factor in part.factors}
    base = {factor.name: factor.levels[0].name for factor in part.factors}

    def case_of(levels: dict[str, str], name: str, tries: str) -> Case:
        keys: dict[str, Any] = {}
        cpu: dict[str, Any] = {}
        for factor, level in levels.items():
            own = factors[factor][level].params
            cpu |= own.pop("cpu", {})
            if twice := keys.keys() & own.keys():
                raise ValueError(f"two factors of part {part.name!r} set {min(twice)!r}")
            keys |= own
        return Case(**keys, name=name, tries=tries, levels=levels, cpu=cpu)

    groups = []
    for group in part.groups:
        cases = {case.name: case for case in group.cases}
        for factor in (one for one in part.factors if one.group == group.name):
            for level in factor.levels[1:]:
                if (by_hand := cases.get(level.name)) is not None:
                    cases[level.name] = by_hand.model_copy(update={"levels": {factor.name: level.name}})
                else:
                    levels = base | {factor.name: level.name}
                    cases[level.name] = case_of(levels, level.name, level.tries or level.words)
        for number, row in enumerate(rows if group.pairs else (), 1):
            changed = {factor: level for factor, level in row.items() if level != base[factor]} or base
            tries = ", ".join(factors[factor][level].words for factor, level in changed.items())
            cases[f"{PAIR}{number}"] = case_of(row, f"{PAIR}{number}", tries)
        groups.append(group.model_copy(update={"cases": tuple(cases.values())}))
    return part.model_copy(update={"groups": tuple(groups)})


def read_combinations(folder: Path, parts: Sequence[Part]) -> dict[str, list[dict[str, str]]]:
    """The rows of an assignment's `combinations.csv` by the name of their part: the name of a level of each factor.

    Raises:
        CourseError: the file is missing, no CSV, or has a part or a level that problem.toml has not.
    """
    path, mend = folder / COMBINATIONS, "`python -m grader.combinations` writes it anew"
    found: dict[str, list[dict[str, str]]] = {part.name: [] for part in parts}
    try:
        with path.open(encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise CourseError(f"{path}: cannot be used; {mend} ({type(error).__name__}: {error})") from None
    for row in rows:
        part = next((one for one in parts if one.name == row.get("part")), None)
        if part is None:
            raise CourseError(f"{path}: problem.toml has no part {row.get('part')!r}; {mend}")
        for factor in part.factors:
            if row.get(factor.name) not in [level.name for level in factor.levels]:
                words = f"the factor {factor.name!r} of part {part.name!r} has no level {row.get(factor.name)!r}"
                raise CourseError(f"{path}: {words}; {mend}")
        found[part.name].append({factor.name: row[factor.name] for factor in part.factors})
    return found


class Band(Strict):
    """Points for being at least `speedup` times as fast as a baseline."""

    vs: Literal["eager", "compile"]
    speedup: Positive
    points: Points


class SpeedSize(Keyed):
    """A size of a speed case.

    Attributes:
        memory_gib: GPU memory that timing this size needs.
    """

    memory_gib: Positive | None = None


class SpeedCase(SpeedSize):
    """A speed case: an input on which the submission is timed, and its bands.

    Attributes:
        roofline: the yardstick that shows this machine's limit.
        others: functions of baselines.py that are timed too with --table and by `grader profile`: other formulas,
            vendors' kernels.
        smaller: smaller sizes in order, for GPUs with less memory.
    """

    name: Slug
    dtype: DType = "float32"
    devices: Devices = ("cuda",)
    bands: Annotated[tuple[Band, ...], Field(min_length=1)]
    roofline: Literal["copy", "matmul"] = "copy"
    others: tuple[Slug, ...] = ()
    smaller: tuple[SpeedSize, ...] = ()

    @model_validator(mode="after")
    def _consistent(self) -> SpeedCase:
        if taken := sorted(set(self.others) & TAKEN):
            raise ValueError(f"others: {taken[0]} is what another worker is called")
        if _twice((band.vs, band.speedup) for band in self.bands):
            raise ValueError("bands: the same band is there twice")
        if self.roofline == "matmul" and self.devices != ("cuda",):
            raise ValueError('roofline = "matmul" needs devices = ["cuda"]: the matrix product is a GPU\'s')
        for index, (before, size) in enumerate(pairwise([self, *self.smaller])):
            most, needed = before.memory_gib, size.memory_gib
            if most is None:
                raise ValueError(
                    f"smaller.{index} is never taken: the size before it has no memory_gib, so it always fits"
                )
            if needed is not None and needed >= most:
                words = f"smaller.{index}.memory_gib = {needed:g} is not below {most:g}, that of the size before it"
                raise ValueError(f"{words}: where that one does not fit, neither does this one")
        return self


class Timing(Strict):
    """The rules of measuring speed (see docs/CLOCK.md).

    Attributes:
        batch_s: seconds that the calls of a batch should take together.
        rounds, max_rounds: least and greatest number of rounds.
        budget_s: seconds after which no further rounds begin; time that workers take between batches does not count.
        margin: how far a claim may lie below the judge's time, as a fraction.
        slow_limit: a submission is stopped if its call takes more than so many times the baseline's.
    """

    batch_s: Annotated[Positive, Field(le=10)] = 0.008
    max_calls: Annotated[int, _whole(4, MAX_CALLS)] = 128
    rounds: Annotated[int, _whole(3, 200)] = 5
    max_rounds: Annotated[int, _whole(3, 1000)] = 60
    budget_s: Positive = 12
    margin: Annotated[Positive, Field(lt=1)] = 0.05
    slow_limit: Annotated[Number, Field(gt=1)] = 20

    @model_validator(mode="after")
    def _ordered(self) -> Timing:
        if self.rounds > self.max_rounds:
            raise ValueError(f"rounds = {self.rounds} is more than max_rounds = {self.max_rounds}")
        return self


class Part(Strict):
    """A part of an assignment with points of its own, such as the backward pass.

    Attributes:
        defaults: keys of `problem.py` for all of its cases.
        factors: of its contract; at most one group has their `pairs`.
        array_seed: of `combinations.csv`: another number gives other combinations.
    """

    name: Slug
    title: str
    defaults: dict[str, Any] = {}
    factors: tuple[Factor, ...] = Field(alias="factor", default=())
    excluded: tuple[Excluded, ...] = ()
    array_seed: int = 1
    groups: tuple[Group, ...] = Field(alias="group", min_length=1)
    speed: tuple[SpeedCase, ...] = ()

    @model_validator(mode="after")
    def _consistent(self) -> Part:
        groups = [group.name for group in self.groups]
        levels = {factor.name: [level.name for level in factor.levels] for factor in self.factors}
        for factor in self.factors:
            if factor.group not in groups:
                words = f"the group of factor {factor.name!r} is {factor.group!r}"
                raise ValueError(f"{words}; the groups of this part are {', '.join(groups)}")
        for name, excluded in ((name, names) for one in self.excluded for name, names in one.levels.items()):
            if name not in levels:
                raise ValueError(f"excluded: there is no factor {name!r}; those of this part are {', '.join(levels)}")
            if unknown := sorted(set(excluded) - set(levels[name])):
                words = f"excluded: the factor {name!r} has no level {unknown[0]!r}"
                raise ValueError(f"{words}; its levels are {', '.join(levels[name])}")
        return self

    @property
    def correctness_points(self) -> float:
        return sum(group.points for group in self.groups)

    @property
    def speed_points(self) -> float:
        return sum(band.points for case in self.speed for band in case.bands)

    @property
    def cases(self) -> list[Case]:
        return [case for group in self.groups for case in group.cases]

    @property
    def answers(self) -> list[Case | SpeedCase]:
        """All cases and speed cases."""
        return [*self.cases, *self.speed]


class Policy(Strict):
    """An assignment's rules for libraries. PyTorch's allocations, copies and views are always allowed
    (`grader/verdict/policy.py`).

    Attributes:
        imports: packages that a submission's Python files may import, beside its own files.
        forbidden: names that a source file must not use: `torch.nn.functional.*`; `.relu`, a method of any object; `@`,
            the operator; in CUDA C++ also beginnings of headers' names.
        operators: ATen operators that may run beside the student's kernels, as `mul`.
    """

    imports: tuple[str, ...] = USUAL_IMPORTS
    forbidden: tuple[str, ...] = ()
    operators: tuple[str, ...] = ()


class AssignmentSpec(Strict):
    """A `problem.toml`.

    Attributes:
        order: place of the assignment in the course.
        signature: the parameters of a CUDA C++ entry, which returns nothing.
        gpu: the GPU that submissions are graded on, of `grader/gpu_table.py`. A machine without a GPU compiles for this
            GPU, and answers for it.
        other_gpus: more GPUs that Triton kernels are compiled for on such a machine; only reported.
        examples: number of inputs that each property is tried on, by device (`grader/judge/properties.py`).
        policy: None allows everything.
    """

    title: str
    order: int = 100
    file: Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*\.(py|cu)$")]
    entry: Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
    language: Language
    signature: Annotated[
        tuple[Annotated[Parameter, BeforeValidator(_parsed)], ...], Field(max_length=MAX_PARAMETERS)
    ] = ()
    gpu: KnownGpu = GPUS["H200"]
    other_gpus: tuple[KnownGpu, ...] = ()
    limits: Limits
    tolerance: Tolerance
    timing: Timing = Timing()
    examples: dict[Device, Annotated[int, _whole(1, 1000)]] = {"cpu": 4, "cuda": 4}
    policy: Policy | None = None
    parts: tuple[Part, ...] = Field(alias="part", min_length=1)

    def names_of(self, kind: str) -> list[str]:
        """The names of the entry's parameters of type `kind`."""
        return [one.name for one in self.signature if one.type == kind]

    @property
    def contract(self) -> str:
        """The declaration of the entry in a student's CUDA file."""
        return f'extern "C" void {self.entry}({", ".join(f"{one.type} {one.name}" for one in self.signature)})'

    @model_validator(mode="after")
    def _consistent(self) -> AssignmentSpec:
        if fault := next(chain(self._faults(), self._faults_of_signature()), None):
            raise ValueError(fault)
        return self

    def _faults(self) -> Iterator[str]:
        tolerance = self.tolerance
        if (self.language == "cuda") != self.file.endswith(".cu"):
            yield f"language {self.language!r} does not go with the file {self.file!r}"
        if tolerance.floor.keys() != tolerance.floor_rms.keys():
            yield "[tolerance] floor and floor_rms must name the same precisions"
        for name in sorted(set(tolerance.may_vary) - set(tolerance.scale)):
            yield f"[tolerance] may_vary names {name!r}, which scale does not"
        for key, by_device in (("[limits] time_limit_s", self.limits.time_limit_s), ("examples", self.examples)):
            for device in sorted(set(get_args(Device)) - by_device.keys()):
                yield f"{key} needs a number for {device!r} too"
        for name in _twice(part.name for part in self.parts):
            yield f"two parts are named {name!r}"
        for part in self.parts:
            for name in _twice(name for group in part.groups for name in group.names):
                yield f"part {part.name!r} has two cases or checks named {name!r}"
            for name in _twice(case.name for case in part.speed):
                yield f"part {part.name!r} has two speed cases named {name!r}"
            for one in part.answers:
                if one.dtype not in tolerance.floor:
                    yield f"case {one.name!r} is {one.dtype}, but [tolerance] floor has no {one.dtype}"
            for case in part.cases:
                if case.cpu_windows > 1 and self.language != "cuda":
                    yield f"case {case.name!r}: cpu_windows is for the language cuda"
                if case.compiled and self.language != "triton":
                    yield f"case {case.name!r}: compiled is for the language triton"
            for timed, band in ((one, band) for one in part.speed for band in one.bands):
                if band.speedup * self.timing.slow_limit <= 1:
                    who = f"whoever is only {band.speedup:g} times as fast as {band.vs}"
                    why = f"[timing] slow_limit = {self.timing.slow_limit:g} is too small for it"
                    yield f"speed case {timed.name!r}: {who} is stopped before the rounds and has no band: {why}"

    def _faults_of_signature(self) -> Iterator[str]:
        if (self.language == "cuda") != bool(self.signature):
            yield f"signature is for the language cuda, which needs one: {PARAMETER_FORMS}"
        if not self.signature:
            return
        names = [one.name for one in self.signature]
        inputs, outputs = self.names_of("const float*"), self.names_of("float*")
        for name in _twice(names):
            yield f"signature: two parameters are called {name!r}"
        if self.names_of("cudaStream_t") != names[-1:] or not inputs or not outputs:
            yield "signature needs an input (const float*), an output (float*), and one cudaStream_t, which is the last"
        if set(outputs) != set(scaled := list(self.tolerance.scale)):
            yield f"signature: the outputs (float*) are {outputs}, and those that [tolerance] scale names {scaled}"
        if len(self.names_of("float")) > MAX_FLOATS:
            yield f"signature: more than {MAX_FLOATS} parameters are floats"
        for one in self.signature:
            if one.tensor not in (None, *inputs, *outputs):
                yield f"signature: {one.name} is a size of {one.tensor!r}; the tensors are {', '.join(inputs + outputs)}"
        for part in self.parts:
            for answer in part.answers:
                if answer.dtype != "float32":
                    yield f"case {answer.name!r} is {answer.dtype}, and tensors of the language cuda are float32"
            for case in part.cases:
                if case.cpu_windows > 1 and any(one.axis is not None for one in self.signature):
                    yield f"case {case.name!r}: cpu_windows needs a signature whose sizes are all numel()"


@dataclass(frozen=True)
class Assignment:
    name: str
    folder: Path
    spec: AssignmentSpec

    @property
    def points(self) -> float:
        return sum(part.correctness_points + part.speed_points for part in self.spec.parts)


def load_assignment(folder: Path) -> Assignment:
    """Read `folder/problem.toml`, and add the cases that try its contract.

    Raises:
        CourseError: problem.toml or combinations.csv is missing, cannot be read, or has an unknown key or a wrong value.
    """
    spec = read_spec(folder)
    try:
        rows = (
            read_combinations(folder, spec.parts)
            if any(one.pairs for part in spec.parts for one in part.groups)
            else {}
        )
        parts = tuple(with_cases(part, rows.get(part.name, [])) for part in spec.parts)
        spec = AssignmentSpec.model_validate(spec.model_copy(update={"parts": parts}))
    except ValidationError as error:
        raise CourseError(explain(folder / "problem.toml", error, AssignmentSpec)) from None
    except ValueError as error:
        raise CourseError(f"{folder / 'problem.toml'}: {error}") from None
    return Assignment(folder.name, folder, spec)


def read_spec(folder: Path) -> AssignmentSpec:
    """What `folder/problem.toml` itself says. Raises CourseError."""
    path = folder / "problem.toml"
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except FileNotFoundError:
        raise CourseError(f"{path}: not found; an assignment is a folder with problem.toml and problem.py") from None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise CourseError(f"{path}: {error}") from None
    if re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", folder.name) is None:
        raise CourseError(f"{folder}: an assignment's folder is named with letters, digits and _")
    try:
        return AssignmentSpec.model_validate(data)
    except ValidationError as error:
        raise CourseError(explain(path, error, AssignmentSpec)) from None


def load_course(course: Path, names: Sequence[str] = ()) -> list[Assignment]:
    """The assignments of a course folder in the course's order, or only those in `names`.

    Raises:
        CourseError: no such folder or assignment, or an assignment is unusable.
    """
    root = course / "assignments"
    try:
        if not root.is_dir():
            raise CourseError(f"{root}: no such folder; a course has the folders assignments/, reference/ and starter/")
        found = sorted(path.name for path in root.iterdir() if path.is_dir() and not path.name.startswith((".", "_")))
    except OSError as error:
        raise CourseError(f"{root}: cannot be read ({error.strerror})") from None
    unknown = [name for name in names if name not in found]
    if unknown:
        raise CourseError(f"there is no assignment {unknown[0]!r}; this course has: {', '.join(found)}")
    if not found:
        raise CourseError(f"{root}: no assignments in it")
    loaded = [load_assignment(root / name) for name in found if not names or name in names]
    return sorted(loaded, key=lambda one: (one.spec.order, one.name))


def stub_names(course: Path) -> list[str]:
    """The names of the files that students of a course start from."""
    stubs = course / "starter"
    return [path.name for path in stubs.iterdir() if path.is_file()] if stubs.is_dir() else []


def explain(path: Path, error: ValidationError, model: type[BaseModel]) -> str:
    """A line for each problem: file, key, fault, and the allowed keys or values."""
    lines = []
    problems = error.errors()
    for problem in problems:
        others = (other["loc"] for other in problems if other is not problem)
        if problem["type"] == "too_short" and any(one[: len(problem["loc"])] == problem["loc"] for one in others):
            continue  # pydantic also reports a list as too short if its only item is refused
        key = ".".join(str(part) for part in problem["loc"]) or "(whole file)"
        if problem["type"] == "extra_forbidden":
            fields = _model_at(model, problem["loc"][:-1]).model_fields
            allowed = ", ".join(field.alias or name for name, field in fields.items())
            lines.append(f"{path}: {key}: unknown key; allowed here: {allowed}")
        else:
            got = "" if isinstance(problem["input"], dict | BaseModel) else f" (got {str(problem['input'])[:80]!r})"
            lines.append(f"{path}: {key}: {problem['msg'].removeprefix('Value error, ')}{got}")
    return "\n".join(lines)


def _model_at(model: type[BaseModel], location: tuple[int | str, ...]) -> type[BaseModel]:
    for step in location:
        for name, field in model.model_fields.items():
            if step in (name, field.alias):
                types = (field.annotation, *get_args(field.annotation))
                model = next((one for one in types if isinstance(one, type) and issubclass(one, BaseModel)), model)
                break
    return model
