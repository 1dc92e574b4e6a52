"""`problem.py`: the code half of an assignment, loaded by the judge and trusted.

A `problem.py` defines a `Params` model for its own keys in problem.toml and five functions: `make_inputs`, `outputs`,
`oracle`, `baseline` and `cost` (see `Problem`). Beside it may lie `mistakes.py` (see `Mistakes`), and `baselines.py`: `eager`,
plain PyTorch with the arguments that a student's function takes, and the vendors' functions that problem.toml names. A worker
loads it to be timed.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any, NamedTuple, Protocol, cast

import torch
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, ValidationInfo

from grader.assignment import Assignment, AssignmentSpec, Case, CourseError, Device, Part, SpeedCase, explain

DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}
TIMED = {"timed": True}  # the context in which a speed case's keys are read


def _some_to_time(size: int, info: ValidationInfo) -> int:
    if size == 0 and info.context == TIMED:
        raise ValueError("a speed case needs a size above 0: of nothing there is nothing to time")
    return size


# How many there are of something, such as rows: never less than none of them, and in a speed case at least one.
Size = Annotated[int, Field(ge=0), AfterValidator(_some_to_time)]


class Params(BaseModel):
    """Base of an assignment's own keys in a case of problem.toml."""

    model_config = ConfigDict(extra="forbid", frozen=True)


@dataclass(frozen=True)
class Call:
    """One call of the student's function.

    args: tensors by parameter name, in the order they are passed; any strides.
    options: further arguments, passed by position after the tensors.
    upstream: the gradient of the result, in the result's shape; with it the gradients of all `args` are asked for,
        and after them the result.
    starts: for functions that write to memory they are given, by how many elements an output lies beyond an aligned address.
    """

    args: dict[str, torch.Tensor]
    options: dict[str, bool | int | float] = field(default_factory=dict)
    upstream: torch.Tensor | None = None
    starts: dict[str, int] = field(default_factory=dict)


class Cost(NamedTuple):
    """What a case must do at the least: bytes read and written once, and floating-point operations."""

    bytes_moved: int
    flops: int


class Mistakes(Protocol):
    """What a `mistakes.py` beside problem.py provides: what usually goes wrong in this assignment.

    It may have a `remark(call)` too: a sentence about the inputs that a student should read where no mistake explains the outputs,
    or nothing.
    """

    def suspects(self, call: Call, got: Mapping[str, torch.Tensor], first: int) -> Iterable[Any]:
        """Mistakes (`grader.verdict.suspects.Suspect`) that may have led to the outputs `got`; the first wrong element lies in entry
        `first` of dimension 0. Where many elements are asked for, a suspect may look at some entries from there on.
        """


class Problem(Protocol):
    """What a `problem.py` provides. Outputs are named: one for the function's result, before it one for each gradient that is
    asked for, in the order of `args`.

    It may have a `stand_in(call)` too: the outputs as another part of PyTorch computes them, for less than `baseline` takes. Timed outputs
    are held against it first. How far it is off itself is measured on one call of each race, and others may be off by twice as much.

    A case that says `pieces` needs `pieces(params, count)`: the params of at most `count` smaller cases whose contiguous inputs, one after
    the other along dimension 0, are inputs of the whole, and whose outputs are its outputs.

    mistakes: the module of `mistakes.py`, which `load_problem` puts there; None where there is no such file.
    """

    mistakes: Mistakes | None

    def make_inputs(self, params: Any, dtype: torch.dtype, generator: torch.Generator) -> Call:
        """New inputs from the generator, on the generator's device."""

    def outputs(self, call: Call) -> dict[str, tuple[int, ...]]:
        """Name and shape of each output; their dtype is that of the inputs."""

    def oracle(self, call: Call) -> dict[str, torch.Tensor]:
        """The outputs computed in float64 from the inputs as they are."""

    def baseline(self, call: Call) -> dict[str, torch.Tensor]:
        """The outputs as plain PyTorch computes them in the inputs' dtype."""

    def pieces(self, params: Any, count: int) -> list[Any]:
        """The params of smaller cases that are the whole; optional."""

    def cost(self, params: Any, dtype: torch.dtype) -> Cost:
        """Bytes and FLOPs of a case, for the roofline."""


_FUNCTIONS = ("make_inputs", "outputs", "oracle", "baseline", "cost")


def load_beside(path: str, name: str) -> ModuleType:
    """Import the file `name`, as seen from the folder of `path`: how a problem.py gets at its baselines.py."""
    file = Path(path).parent / name
    spec = importlib.util.spec_from_file_location(f"grader_{file.parent.name}_{file.stem}", file)
    if spec is None or spec.loader is None:
        raise ImportError(f"{file} cannot be imported")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # where pydantic looks up a model's annotations
    spec.loader.exec_module(module)
    return module


def load_problem(assignment: Assignment) -> tuple[Problem, type[Params]]:
    """Import `problem.py` of an assignment, and `mistakes.py` where there is one; return it with its `Params` model.

    Raises:
        CourseError: a file is missing, fails to import, or lacks one of the functions.
    """
    path = assignment.folder / "problem.py"
    spec = importlib.util.spec_from_file_location(f"grader_problem_{assignment.name}", path)
    if spec is None or spec.loader is None or not path.is_file():
        raise CourseError(f"{path}: not found; it defines a Params model and {', '.join(_FUNCTIONS)}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # where pydantic looks up a model's annotations
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        raise CourseError(f"{path}: {type(error).__name__}: {error}") from error
    missing = [name for name in _FUNCTIONS if not callable(getattr(module, name, None))]
    if (stand_in := getattr(module, "stand_in", None)) is not None and not callable(stand_in):
        raise CourseError(f"{path}: stand_in must be a function, or left out")
    if missing:
        raise CourseError(f"{path}: lacks the function {missing[0]}(); needed are {', '.join(_FUNCTIONS)}")
    models = [
        value
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, Params) and value is not Params
    ]
    if len(models) != 1:
        raise CourseError(f"{path}: must define exactly one subclass of grader.problem.Params, found {len(models)}")
    vars(module)["mistakes"] = _load_mistakes(assignment.folder / "mistakes.py")
    return cast("Problem", module), models[0]


def _load_mistakes(path: Path) -> ModuleType | None:
    """Raises CourseError."""
    if not path.is_file():
        return None
    try:
        module = load_beside(str(path), path.name)
    except (Exception, SystemExit) as error:
        raise CourseError(f"{path}: {type(error).__name__}: {error}") from error
    if not callable(getattr(module, "suspects", None)):
        raise CourseError(f"{path}: lacks the function suspects(call, got, first)")
    return module


def signature_fault(spec: AssignmentSpec, call: Call, outputs: Mapping[str, tuple[int, ...]]) -> str:
    """Where a CUDA entry's signature does not go with a call of problem.py and its outputs; nothing where it does."""
    if not spec.signature:
        return ""
    shapes = {name: tuple(tensor.shape) for name, tensor in call.args.items()} | dict(outputs)
    options = [
        one.name
        for one in spec.signature
        if "float*" not in one.type and one.tensor is None and one.type != "cudaStream_t"
    ]
    for what, declared, given in (
        ("inputs", spec.names_of("const float*"), list(call.args)),
        ("outputs", spec.names_of("float*"), list(outputs)),
        ("options", options, list(call.options)),
    ):
        if declared != given:
            return f"its {what} are {declared}, those of problem.py {given}"
    for one in spec.signature:
        if one.axis is not None and one.tensor is not None and one.axis >= len(shapes[one.tensor]):
            return f"{one.name} is {one.tensor}.shape[{one.axis}], and {one.tensor} has the shape {shapes[one.tensor]}"
    return ""


def bind_params(assignment: Assignment, part: Part, case: Case, model: type[Params], device: Device) -> Params:
    """The case's own keys, checked against the assignment's model, with the part's defaults and the CPU's overrides.

    Raises:
        CourseError: an unknown key or a wrong value.
    """
    try:
        return model.model_validate(part.defaults | case.params_on(device))
    except ValidationError as error:
        path = assignment.folder / "problem.toml"
        common = ", ".join(name for name in Case.model_fields if name != "params")
        raise CourseError(
            f"in part {part.name!r}, case {case.name!r}:\n{explain(path, error, model)}\n(beside the keys every case may have: {common})"
        ) from None


def bind_speed_sizes(
    assignment: Assignment, part: Part, case: SpeedCase, model: type[Params]
) -> list[tuple[Params, float | None]]:
    """The sizes of a case of [[part.speed]], the declared one first, each with the GiB of GPU memory it needs.

    Raises:
        CourseError: an unknown key or a wrong value.
    """
    if not (assignment.folder / "baselines.py").is_file():
        raise CourseError(
            f"{assignment.folder / 'baselines.py'}: not found; speed is measured against its function `eager`"
        )
    path = assignment.folder / "problem.toml"
    sizes = []
    for change in ({"memory_gib": case.memory_gib}, *case.smaller):
        own = {key: value for key, value in change.items() if key != "memory_gib"}
        memory_gib = change.get("memory_gib")
        try:
            params = model.model_validate(part.defaults | case.params | own, context=TIMED)
        except ValidationError as error:
            common = ", ".join(name for name in SpeedCase.model_fields if name != "params")
            raise CourseError(
                f"in part {part.name!r}, speed case {case.name!r}:\n{explain(path, error, model)}\n"
                f"(beside the keys every speed case may have: {common})"
            ) from None
        if memory_gib is not None and not (type(memory_gib) in (int, float) and 0 < memory_gib < float("inf")):
            raise CourseError(f"{path}: speed case {case.name!r}: memory_gib must be a number above 0")
        sizes.append((params, memory_gib))
    for index, ((_, before), (_, needed)) in enumerate(pairwise(sizes)):
        where = f"{path}: in part {part.name!r}, speed case {case.name!r}: smaller.{index}"
        if before is None:
            raise CourseError(
                f"{where} is never taken: the size before it has no memory_gib, so it is always the one that fits"
            )
        if needed is not None and needed >= before:
            raise CourseError(
                f"{where}.memory_gib = {needed:g} is not below {before:g}, that of the size before it: where that one does not fit, "
                "neither does this one"
            )
    return sizes


def by_slices(
    function: Callable[..., torch.Tensor], *tensors: torch.Tensor, out_dtype: torch.dtype, elements: int = 2**26
) -> torch.Tensor:
    """`function(*tensors)` computed slice by slice along dimension 0, so that float64 intermediates of huge inputs
    fit in memory.

    The function must treat the entries of dimension 0 independently and return the shape of the first tensor.
    """
    first = tensors[0]
    if first.numel() <= elements:
        return function(*tensors).to(out_dtype)
    result = torch.empty(first.shape, dtype=out_dtype, device=first.device)
    step = max(1, elements * first.shape[0] // first.numel())
    for start in range(0, first.shape[0], step):
        result[start : start + step] = function(*(tensor[start : start + step] for tensor in tensors))
    return result
