"""The torch form of a `.cu` file: a PyTorch extension whose entry takes tensors and returns a tensor."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

from grader.protocol import INCLUDE, OF_PYTORCH, code_of, missing_function
from grader.worker.errors import LoadError
from grader.worker.signature import OF_EXTENSIONS, Signature

# A type of tensors, and the headers that declare it.
DECLARED = {
    "torch::Tensor": re.compile(r"torch/(?!library\.h|version\.h|headeronly/|csrc/(?!api/))"),
    "at::Tensor": re.compile(r"torch/(?!version\.h|headeronly/)|ATen/"),
}
HEADER = re.compile(rf'^([ \t]*#\s*include\s*)[<"]((?:{"|".join(OF_PYTORCH)})[^>"\n]*)[>"]', re.MULTILINE)
BY_REFERENCE = r"\b{}\s*\(\s*(?:const\s+(?:torch|at)::Tensor|(?:torch|at)::Tensor\s+const)\s*&"

NARROW = Path(__file__).with_name("torch_narrow.h")
# The headers that `torch_narrow.h` stands for, each of which includes nearly all of PyTorch's C++ interface.
WIDE = re.compile(r'#\s*include\s*[<"](?:torch/(?:extension|torch|all|types)|ATen/ATen)\.h[>"]')
# torch::empty and its like in <torch/types.h> make tensors that require gradients; at::empty, which the narrow header has, refuses.
GRADIENTS = re.compile(r"\brequires_grad\s*\((?!\s*false\b)")
MODULE = re.compile(r"\bPYBIND11_MODULE\b(?:\s*\(\s*\w+\s*,\s*(?P<variable>\w+))?")
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
    source = _text(path)
    texts = {path.name: f'#line 1 "{path.name}"\n{source}'}
    if bound := binding(source, entry, signature):
        texts["binding.cpp"] = f"#include <torch/extension.h>\n{bound}"
    own = Extension(f"submission_{path.stem}", texts)
    code = code_of(source)
    if not WIDE.search(code) or GRADIENTS.search(code):
        return [own]
    narrow = {
        name: ("#define TORCH_NARROW_BINDS\n" if BINDS.search(code_of(text)) else "")
        + WIDE.sub(lambda _: f'#include "{NARROW}"', text)
        for name, text in texts.items()
    }
    return [Extension(f"narrow_{path.stem}", narrow), own]


def is_torch_form(path: Path) -> bool:
    """Whether the file, or a header of its folder that it includes, includes a header of PyTorch."""
    return any(header.startswith(OF_PYTORCH) for code in _codes(path).values() for header in INCLUDE.findall(code))


def undeclared_tensor(path: Path) -> str:
    """A compiler's error for a file that names a type of tensors without a header that declares it; "" if there is none."""
    codes, folder = _codes(path), path.parent.resolve()
    headers = [header for code in codes.values() for header in INCLUDE.findall(code)]
    for name, declaring in DECLARED.items():
        space = name.partition("::")[0]
        use = re.compile(rf"(?<![\w:]){space}\s*::\s*Tensor\b")
        own = any(re.search(rf"\bnamespace\s+{space}\b", code) for code in codes.values())
        if own or any(map(declaring.match, headers)):
            continue
        for file, code in codes.items():
            if found := use.search(code):
                line = code.count("\n", 0, found.start()) + 1
                place, text = file.relative_to(folder), _text(file).split("\n")[line - 1].strip()
                return f"{place}:{line}: error: no header that is included declares {name}\n{text}"
    return ""


def _codes(path: Path) -> dict[Path, str]:
    """The code of the file, and of the headers of its folder that it includes, directly or not."""
    folder = path.parent.resolve()
    codes, todo = dict[Path, str](), [path.resolve()]
    while todo:
        file = todo.pop(0)
        if file not in codes:
            codes[file] = code_of(_text(file))
            own = [(file.parent / name).resolve() for name in INCLUDE.findall(codes[file])]
            todo += [one for one in own if one.is_relative_to(folder) and one.is_file()]
    return codes


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8-sig", errors="replace")


def binding(source: str, entry: str, signature: Signature) -> str:
    """C++ code that binds the entry to Python; "" if the source has its own PYBIND11_MODULE."""
    code = code_of(source)
    if MODULE.search(code):
        return ""
    tensor = "const torch::Tensor&" if re.search(BY_REFERENCE.format(re.escape(entry)), code) else "torch::Tensor"
    options = [f"{OF_EXTENSIONS[one.type]} {one.name}" for one in signature.options]
    parameters = [*(f"{tensor} {one}" for one in signature.inputs), *options]
    types = ", ".join(one.rpartition(" ")[0] for one in parameters)
    return (
        f"torch::Tensor {entry}({', '.join(parameters)});\n"
        f'PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {{ m.def("{entry}", static_cast<torch::Tensor (*)({types})>(&{entry})); }}\n'
    )


def missing_in_extension(path: Path, entry: str, bound: list[str]) -> LoadError:
    """The error for a file that was built, and binds the functions `bound` without its entry."""
    words = missing_function(f"{path.name} was built, but", entry, bound, "binds")
    own = re.compile(rf"\b{re.escape(entry)}\s*\(")
    codes = _codes(path)
    is_there = any(map(own.search, codes.values()))
    for file, code in codes.items():
        if module := MODULE.search(code):
            line = code.count("\n", 0, module.start()) + 1
            where = f"line {line}" if file.name == path.name else f"{file.name}:{line}"
            call = f'{module["variable"] or "m"}.def("{entry}", &{entry if is_there else "your_function"})'
            below = own.search(code, module.start()) is not None
            words += f": add {call} to the PYBIND11_MODULE in {where}"
            words += f" and move that below {entry}" if below else ""
            words += f", or take the module out, and the grader binds {entry}" if is_there else ""
            break
    return LoadError("failed", words)
