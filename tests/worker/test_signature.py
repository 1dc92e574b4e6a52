"""Inputs, options and outputs become the arguments of a C function, as its signature in problem.toml says."""

from __future__ import annotations

import torch
from pydantic import TypeAdapter

from grader.assignment import AssignmentSpec
from grader.protocol import Parameter
from grader.worker.cuda_cpu.windows import Floats
from grader.worker.signature import Signature


def parameters(*declared: str) -> tuple[Parameter, ...]:
    """Of a problem.toml with such a signature."""
    read = TypeAdapter(AssignmentSpec.model_fields["signature"].annotation)
    return read.validate_python(declared)


MIXED = parameters(
    "float alpha",
    "const float* x",
    "int64_t n = x.numel()",
    "float* y",
    "const float * w",
    "int columns = w.shape[1]",
    "bool flip",
    "float *z",
    "int64_t rows = z.shape[0]",
    "cudaStream_t stream",
)


def test_each_parameter_has_its_value_wherever_it_stands() -> None:
    signature = Signature(MIXED, torch.Tensor.data_ptr)
    x, w, y, z = torch.empty(6), torch.empty(2, 5), torch.empty(3), torch.empty(7, 1)
    values = signature.values([x, w, 2, True, y, z], 77)
    assert values == [2.0, x.data_ptr(), 6, y.data_ptr(), w.data_ptr(), 5, True, z.data_ptr(), 7, 77]
    assert isinstance(values[0], float)
    assert (signature.inputs, signature.outputs) == (["x", "w"], ["y", "z"])
    assert signature.sizes == ["n", "columns", "rows"]


def test_tensors_of_a_worker_without_torch_are_passed_alike() -> None:
    signature = Signature(
        parameters("const float* x", "float* y", "int64_t n = x.numel()", "cudaStream_t s"), lambda one: one.address
    )
    assert signature.values([Floats(64, (2, 3)), Floats(128, (2,))]) == [64, 128, 6, 0]
