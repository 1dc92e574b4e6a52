"""Loads an assignment's `problem.py`, which the judge trusts, and binds the cases of problem.toml to it.

A `problem.py` defines a `Params` model for the assignment's own keys in problem.toml and five functions: `make_inputs`,
`outputs`, `oracle`, `baseline` and `cost` (see `Problem`). The folder may have a `mistakes.py` (see `Mistakes`) and a
`baselines.py`. The latter defines `eager`, plain PyTorch with the arguments of a student's function, and the other
functions that problem.toml names; a worker loads `baselines.py` to time them.
"""

from __future__ import annotations

import importlib.util
import mmap
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any, NamedTuple, Protocol, cast

import torch
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, ValidationInfo

from grader.assignment import Assignment, AssignmentSpec, Case, CourseError, Part, SpeedCase, explain

DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}
TIMED = {"timed": True}  # the validation context of a speed case's keys


def _some_to_time(size: int, info: ValidationInfo) -> int:
    if size == 0 and info.context == TIMED:
        raise ValueError("a speed case needs a size above 0: of nothing there is nothing to time")
    return size


# A number of rows, columns or the like: at least 0, in a speed case at least 1.
Size = Annotated[int, Field(ge=0), AfterValidator(_some_to_time)]


class Params(BaseModel):
    """Base of an assignment's own keys in a case of problem.toml."""

    model_config = ConfigDict(extra="forbid", frozen=True)


@dataclass(frozen=True)
class Call:
    """One call of the student's function.

    Attributes:
        args: tensors by parameter name, in the order of the parameters; any strides.
        options: further arguments after the tensors, passed by position, or by name if `by_name`.
        upstream: the gradient of the result, in the result's shape. With it the outputs are the gradients of `wanted`,
            then the result.
        wanted: the names of the tensors that require a gradient; None for all.
        backwards: number of backward passes after the forward pass; the gradients are those of the last one alone.
        starts: for functions that write to given memory: distance of an output from an aligned address in elements, by
            output name.
    """

    args: dict[str, torch.Tensor]
    options: dict[str, bool | int | float] = field(default_factory=dict)
    upstream: torch.Tensor | None = None
    starts: dict[str, int] = field(default_factory=dict)
    by_name: bool = False
    wanted: tuple[str, ...] | None = None
    backwards: int = 1

    @property
    def differentiated(self) -> list[str]:
        """The names of the tensors whose gradients are outputs."""
        return (
            [] if self.upstream is None else [name for name in self.args if self.wanted is None or name in self.wanted]
        )


class Cost(NamedTuple):
    """The least work of a case: bytes read and written once, and floating-point operations."""

    bytes_moved: int
    flops: int


class Mistakes(Protocol):
    """The interface of `mistakes.py`: usual mistakes in this assignment."""

    def suspects(self, call: Call, got: Mapping[str, torch.Tensor], first: int) -> Iterable[Any]:
        """Mistakes (`grader.verdict.suspects.Suspect`) that may have led to the outputs `got`. The first wrong element
        lies in entry `first` of dimension 0. If there are many elements, a suspect may compute only some entries from
        there on.
        """


class Problem(Protocol):
    """The interface of `problem.py`. Outputs have names: first of the gradients of `Call.differentiated`, then of the
    result.

    The file may also define `stand_in(call)`: the outputs by a faster part of PyTorch than `baseline`. Timed outputs
    are compared with these first. The error of the stand-in is measured on one call of each race; on other calls it may
    be twice as large.

    A case with `pieces` needs `pieces(params, count)`: the params of at most `count` smaller cases. Their contiguous
    inputs, concatenated along dimension 0, are inputs of the whole case, and their outputs its outputs.

    mistakes: the module of `mistakes.py`, set by `load_problem`; None if there is no such file.
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
    """Import the file `name` from the folder of `path`, as a problem.py imports its baselines.py."""
    file = Path(path).parent / name
    spec = importlib.util.spec_from_file_location(f"grader_{file.parent.name}_{file.stem}", file)
    if spec is None or spec.loader is None:
        raise ImportError(f"{file} cannot be imported")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # pydantic looks up a model's annotations there
    spec.loader.exec_module(module)
    return module


def load_module(path: Path) -> ModuleType:
    """Import a file of an assignment. Raises CourseError."""
    try:
        return load_beside(str(path), path.name)
    except (Exception, SystemExit) as error:
        raise CourseError(f"{path}: {type(error).__name__}: {error}") from error


def load_problem(assignment: Assignment) -> tuple[Problem, type[Params]]:
    """Import an assignment's `problem.py`, and its `mistakes.py` if there is one; return the problem with its `Params`
    model.

    Raises:
        CourseError: a file is missing, fails to import, or lacks one of the functions.
    """
    path = assignment.folder / "problem.py"
    if not path.is_file():
        raise CourseError(f"{path}: not found; it defines a Params model and {', '.join(_FUNCTIONS)}")
    module = load_module(path)
    missing = [name for name in _FUNCTIONS if not callable(getattr(module, name, None))]
    if (stand_in := getattr(module, "stand_in", None)) is not None and not callable(stand_in):
        raise CourseError(f"{path}: stand_in must be a function, or left out")
    if missing:
        raise CourseError(f"{path}: lacks the function {missing[0]}(); needed are {', '.join(_FUNCTIONS)}")
    classes = (value for value in vars(module).values() if isinstance(value, type))
    models = [one for one in classes if issubclass(one, Params) and one is not Params]
    if len(models) != 1:
        raise CourseError(f"{path}: must define exactly one subclass of grader.problem.Params, found {len(models)}")
    mistakes = assignment.folder / "mistakes.py"
    vars(module)["mistakes"] = load_module(mistakes) if mistakes.is_file() else None
    if mistakes.is_file() and not callable(getattr(module.mistakes, "suspects", None)):
        raise CourseError(f"{mistakes}: lacks the function suspects(call, got, first)")
    return cast("Problem", module), models[0]


def signature_fault(spec: AssignmentSpec, call: Call, outputs: Mapping[str, tuple[int, ...]]) -> str:
    """How a CUDA entry's signature contradicts a call of problem.py and its outputs; "" if it does not."""
    if not spec.signature:
        return ""
    shapes = {name: tuple(tensor.shape) for name, tensor in call.args.items()} | dict(outputs)
    numbers = (one for one in spec.signature if "float*" not in one.type and one.type != "cudaStream_t")
    options = [one.name for one in numbers if one.tensor is None]
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


def bind_params(
    assignment: Assignment, part: Part, case: Case | SpeedCase, model: type[Params], keys: Mapping[str, Any]
) -> Params:
    """The part's defaults and a case's own keys as the assignment's model.

    Raises:
        CourseError: an unknown key or a wrong value.
    """
    timed = isinstance(case, SpeedCase)
    try:
        return model.model_validate(part.defaults | dict(keys), context=TIMED if timed else None)
    except ValidationError as error:
        path, kind = assignment.folder / "problem.toml", "speed case" if timed else "case"
        common = ", ".join(type(case).model_fields)
        raise CourseError(
            f"in part {part.name!r}, {kind} {case.name!r}:\n{explain(path, error, model)}\n"
            f"(beside the keys every {kind} may have: {common})"
        ) from None


def by_slices(
    function: Callable[..., torch.Tensor], *tensors: torch.Tensor, out_dtype: torch.dtype, elements: int = 2**26
) -> torch.Tensor:
    """`function(*tensors)`, computed in slices along dimension 0, so that float64 intermediates of huge inputs fit in
    memory.

    The function must treat the entries of dimension 0 independently and return the shape of the first tensor.

    Args:
        out_dtype: of the result.
        elements: of the first tensor in a slice.
    """
    first = tensors[0]
    if first.numel() <= elements:
        return function(*tensors).to(out_dtype)
    result = torch.empty(first.shape, dtype=out_dtype, device=first.device)
    step = max(1, elements * first.shape[0] // first.numel())
    for start in range(0, first.shape[0], step):
        result[start : start + step] = function(*(tensor[start : start + step] for tensor in tensors))
    return result


def untouched(length: int, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """Zeros of shape (length,), for inputs whose elements are far apart: on a CPU they take no memory where nobody
    writes, and may be more than the machine has.
    """
    if device.type != "cpu":
        return torch.zeros(length, dtype=dtype, device=device)
    file = os.memfd_create("untouched")  # the kernel reserves no memory for a file of holes
    try:
        os.ftruncate(file, length * dtype.itemsize)
        return torch.frombuffer(mmap.mmap(file, length * dtype.itemsize), dtype=dtype)
    finally:
        os.close(file)
