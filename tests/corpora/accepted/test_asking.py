"""Right kernels with questions about the GPU written in by a script, as course files ask them: they earn what they earned."""

from __future__ import annotations

import ast
import re
import shutil
from pathlib import Path

import pytest

from grader.assignment import load_course
from grader.worker.torch_form import HEADER
from tests.conftest import ROOT
from tests.support.corpus import Entry, entries

pytestmark = pytest.mark.grading

FEW = (
    "softmax-two_kernels",
    "triton_gelu-by_dimensions",
    "flash_attention-side_streams",
    "flash_attention-base_two_in_modules",
    "cuda_gelu-grid_stride",
    "cuda_gelu-torch_form_of_tutorials",
)
ALL = entries("accepted")
FUNCTIONS = {one.name: one.spec.entry for one in load_course(ROOT)}
AT_IMPORT = """
import torch as _torch
import triton as _triton

_DEVICE = _triton.runtime.driver.active.get_active_torch_device()
_NUMBERS = _triton.runtime.driver.active.utils.get_device_properties(_DEVICE.index)
_NUM_SM = _torch.cuda.get_device_properties(_torch.cuda.current_device()).multi_processor_count
assert _torch.cuda.is_available() and _DEVICE == _torch.device("cuda:0") and _NUM_SM == _NUMBERS["multiprocessor_count"] == 132
assert _torch.cuda.get_device_capability() == (9, 0) and _triton.runtime.driver.active.get_current_target().arch == 90
"""
IN_THE_CALL = """
    for _x in ({arguments},):
        if isinstance(_x, _torch.Tensor):
            assert _x.is_cuda and _x.device == _DEVICE and _x.device.type == "cuda" and _x.get_device() == 0
            assert _x.to("cuda") is _x and _x.cuda() is _x and not _x.is_cpu
    _torch.cuda.synchronize()
    _torch.cuda.current_stream().wait_stream(_torch.cuda.default_stream())
"""

ENTRY_OF_CUDA = re.compile(r"\bgelu(?:_cuda)?\s*\([^(){};]*\)\s*\{")
IN_CUDA = """
    int _count = 0, _device = -1, _sms = 0;
    cudaDeviceProp _asked{{}};
    if (cudaGetDeviceCount(&_count) || cudaGetDevice(&_device) || cudaGetDeviceProperties(&_asked, _device)) return{nothing};
    if (cudaDeviceGetAttribute(&_sms, cudaDevAttrMultiProcessorCount, _device) || _sms != 132) return{nothing};
    if (_count != 1 || _device != 0 || _asked.multiProcessorCount != 132 || _asked.major != 9) return{nothing};
"""
IN_THE_TORCH_FORM = """
    TORCH_CHECK(x.is_cuda() && x.device().is_cuda() && x.device() == torch::Device(torch::kCUDA, 0) && x.get_device() == 0);
    TORCH_CHECK(torch::empty({1}, torch::TensorOptions().device("cuda")).is_cuda());
"""


def asking_cuda(source: str) -> str:
    """A `.cu` file that asks at the beginning of its entry; without the right answers, the entry writes nothing."""
    (entry,) = ENTRY_OF_CUDA.finditer(source)
    with_tensors = HEADER.search(source) is not None
    asked = IN_CUDA.format(nothing=" x" if with_tensors else "") + IN_THE_TORCH_FORM * with_tensors
    return source[: entry.end()] + asked + source[entry.end() :]


def asking(source: str, function: str) -> str:
    """A file that asks about the GPU when it is imported and in its function, and names the GPU where it makes tensors."""
    source = re.sub(r"\bdevice=[\w.]+\.device\b", 'device="cuda"', source)
    module, lines = ast.parse(source), source.splitlines()
    for entry in [one for one in module.body if isinstance(one, ast.FunctionDef) and one.name == function][-1:]:
        first = entry.body[1 if ast.get_docstring(entry) is not None and len(entry.body) > 1 else 0]
        lines.insert(first.lineno - 1, IN_THE_CALL.format(arguments=", ".join(one.arg for one in entry.args.args)))
    imported = [one for one in module.body if isinstance(one, ast.Import | ast.ImportFrom)]
    after = next(one for one in imported if getattr(one, "module", "") != "__future__")
    lines.insert(after.end_lineno or 1, AT_IMPORT)
    return "\n".join(lines) + "\n"


class Asking(Entry):
    """A folder of the corpus whose file asks."""

    def submission(self, scratch: Path) -> Path:
        made = super().submission(scratch / "plain")
        target = scratch / self.folder.name
        shutil.copytree(made, target, ignore=shutil.ignore_patterns("*.toml", "__pycache__"))
        if self.assignment == "cuda_gelu":
            file = target / "gelu.cu"
            file.write_text(asking_cuda(file.read_text(encoding="utf-8")), encoding="utf-8")
            return target
        file = target / f"{self.assignment}.py"
        file.write_text(asking(file.read_text(encoding="utf-8"), FUNCTIONS[self.assignment]), encoding="utf-8")
        return target


@pytest.mark.parametrize("entry", [entry for entry in ALL if entry.id in FEW], ids=lambda entry: entry.id)
def test_a_file_that_asks_earns_what_it_earned(entry: Entry, tmp_path: Path) -> None:
    one = Asking(entry.folder)
    assert one.fault("cpu", one.grade("cpu", tmp_path, only="a sample")) == ""


@pytest.mark.everything
@pytest.mark.parametrize("entry", ALL, ids=lambda entry: entry.id)
def test_every_file_that_asks_earns_what_it_earned(entry: Entry, tmp_path: Path) -> None:
    one = Asking(entry.folder)
    assert one.fault("cpu", one.grade("cpu", tmp_path)) == ""


def test_the_few_are_there() -> None:
    assert {entry.id for entry in ALL} >= set(FEW)
