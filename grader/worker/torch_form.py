"""The torch form of a `.cu` file: a PyTorch extension whose entry takes tensors and returns a tensor."""

from __future__ import annotations

import re
from pathlib import Path

from grader.worker.signature import OF_EXTENSIONS, Signature

HEADER = re.compile(r'(#\s*include\s*)[<"]((?:torch|ATen|c10|pybind11)/[^>"\n]*)[>"]')
BY_REFERENCE = r"\b{}\s*\(\s*(?:const\s+(?:torch|at)::Tensor|(?:torch|at)::Tensor\s+const)\s*&"


def is_torch_form(path: Path) -> bool:
    """Whether the file includes a header of PyTorch."""
    return bool(HEADER.search(path.read_text(encoding="utf-8-sig", errors="replace")))


def binding(source: str, entry: str, signature: Signature) -> str:
    """C++ code that binds the entry to Python; "" if the source has its own PYBIND11_MODULE."""
    if "PYBIND11_MODULE" in source:
        return ""
    tensor = "const torch::Tensor&" if re.search(BY_REFERENCE.format(re.escape(entry)), source) else "torch::Tensor"
    options = [f"{OF_EXTENSIONS[one.type]} {one.name}" for one in signature.options]
    parameters = [*(f"{tensor} {one}" for one in signature.inputs), *options]
    types = ", ".join(one.rpartition(" ")[0] for one in parameters)
    return (
        f"torch::Tensor {entry}({', '.join(parameters)});\n"
        f'PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {{ m.def("{entry}", static_cast<torch::Tensor (*)({types})>(&{entry})); }}\n'
    )
