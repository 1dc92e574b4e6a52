"""The torch form of a `.cu` file: a PyTorch extension whose entry takes tensors and returns a tensor."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

from grader.worker.signature import OF_EXTENSIONS, Signature

HEADER = re.compile(r'(#\s*include\s*)[<"]((?:torch|ATen|c10|pybind11)/[^>"\n]*)[>"]')
QUOTED = re.compile(r'#\s*include\s*"([^"\n]+)"')
BY_REFERENCE = r"\b{}\s*\(\s*(?:const\s+(?:torch|at)::Tensor|(?:torch|at)::Tensor\s+const)\s*&"

NARROW = Path(__file__).with_name("torch_narrow.h")
# The headers that `torch_narrow.h` stands for, each of which includes nearly all of PyTorch's C++ interface.
WIDE = re.compile(r'#\s*include\s*[<"](?:torch/(?:extension|torch|all|types)|ATen/ATen)\.h[>"]')
# torch::empty and its like in <torch/types.h> make tensors that require gradients; at::empty, which the narrow header has, refuses.
GRADIENTS = re.compile(r"\brequires_grad\s*\((?!\s*false\b)")
BINDS = re.compile(r"\b(?:PYBIND11_MODULE|pybind11|py)\b")


class Extension(NamedTuple):
    """A Python module to be built of C++ sources.

    Attributes:
        texts: the sources by their file names.
    """

    name: str
    texts: dict[str, str]


def extensions(path: Path, entry: str, signature: Signature) -> list[Extension]:
    """The ways to build the file at `path`, the quickest first. The last one has the file's own includes."""
    source = path.read_text(encoding="utf-8-sig", errors="replace")
    texts = {path.name: f'#line 1 "{path.name}"\n{source}'}
    if bound := binding(source, entry, signature):
        texts["binding.cpp"] = f"#include <torch/extension.h>\n{bound}"
    own = Extension(f"submission_{path.stem}", texts)
    if not WIDE.search(source) or GRADIENTS.search(source):
        return [own]
    narrow = {
        name: ("#define TORCH_NARROW_BINDS\n" if BINDS.search(text) else "")
        + WIDE.sub(lambda _: f'#include "{NARROW}"', text)
        for name, text in texts.items()
    }
    return [Extension(f"narrow_{path.stem}", narrow), own]


def is_torch_form(path: Path) -> bool:
    """Whether the file, or a header of its folder that it includes, includes a header of PyTorch."""
    seen, todo = set[Path](), [path]
    while todo:
        file = todo.pop()
        source = file.read_text(encoding="utf-8-sig", errors="replace")
        if HEADER.search(source):
            return True
        seen.add(file)
        own = {(file.parent / name).resolve() for name in QUOTED.findall(source)}
        todo += (one for one in own - seen if one.is_relative_to(path.parent.resolve()) and one.is_file())
    return False


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
