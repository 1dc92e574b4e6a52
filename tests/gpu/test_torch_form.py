"""The torch form of gelu.cu is built for this GPU with the narrow headers, and computes."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
import torch

from grader.protocol import Parameter
from grader.worker import load
from grader.worker.signature import Signature
from tests.conftest import ROOT

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(400)]
if not torch.cuda.is_available():
    pytest.skip("needs a CUDA GPU", allow_module_level=True)

SIGNATURE = Signature((Parameter("const float*", "x"), Parameter("float*", "y")), torch.Tensor.data_ptr)
FORM = ROOT / "tests/corpora/accepted/cuda_gelu/torch_form_of_tutorials/gelu.cu"


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TMPDIR", str(tmp_path / "scratch"))
    monkeypatch.setenv("GRADER_BUILDS", str(tmp_path / "builds"))
    monkeypatch.setenv("TORCH_CUDA_ARCH_LIST", "")
    for name in ("scratch", "submission"):
        (tmp_path / name).mkdir()
    return tmp_path / "submission" / "gelu.cu"


def name_of_the_module(path: Path, text: str) -> str:
    path.write_text(text)
    major, minor = torch.cuda.get_device_capability()
    started = time.perf_counter()
    module = load.torch_extension(path, "gelu", SIGNATURE, f"{major}.{minor}")
    print(f"{module.__name__}: {time.perf_counter() - started:.1f} s")
    x = torch.randn(100_003, device="cuda")
    torch.testing.assert_close(module.gelu(x), torch.nn.functional.gelu(x, approximate="tanh"))
    return module.__name__


def test_what_the_corpus_uses_is_built_with_the_narrow_headers(source: Path) -> None:
    assert name_of_the_module(source, FORM.read_text()).startswith("narrow_gelu")
