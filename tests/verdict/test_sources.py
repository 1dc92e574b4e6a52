"""What reading Python finds: imports that are refused, and lines that use what students should write. Neither needs a run."""

from __future__ import annotations

import ast

import pytest

from grader.verdict.sources import imported_from, refused_imports, uses_of

IMPORTS = ("torch", "triton", "math", "argparse", "__future__", "typing")
FORBIDDEN = ("torch.softmax", "torch.nn.functional.*", ".softmax", ".matmul", "@")
HEAD = "import torch\nimport triton\nimport triton.language as tl\n"


def refused(source: str, **others: str) -> list[str]:
    """The modules whose import is refused, with file and line."""
    sources = {"softmax.py": source} | {f"{name}.py": text for name, text in others.items()}
    found = refused_imports(imported_from("softmax.py", sources), sources, IMPORTS)
    return [f"{one.file}:{one.line} {one.words.split(',')[0].removeprefix('imports ')}" for one in found]


def hints(source: str, **others: str) -> list[str]:
    sources = {"softmax.py": source} | {f"{name}.py": text for name, text in others.items()}
    for text in sources.values():
        ast.parse(text)  # or there would be nothing to find
    return [f"{one.file}:{one.line} {one.words}" for one in uses_of(imported_from("softmax.py", sources), FORBIDDEN)]


@pytest.mark.parametrize(
    ("source", "module"),
    [
        ("import subprocess", "subprocess"),
        ("def softmax(x):\n    import ctypes", "ctypes"),
        ("from os.path import join", "os.path"),
        ("import importlib", "importlib"),
        ("from importlib import import_module", "importlib"),
        ("import torch._C as c", "torch._C"),
        ("from torch import _C", "torch._C"),
        ("from torch.utils._python_dispatch import TorchDispatchMode", "torch.utils._python_dispatch"),
        ("from torch.utils import cpp_extension", "torch.utils.cpp_extension"),
        ("import torch.utils.cpp_extension", "torch.utils.cpp_extension"),
        ("import torch.multiprocessing as mp", "torch.multiprocessing"),
        ("import triton._C.libtriton", "triton._C.libtriton"),
        ("try:\n    import ctypes\nexcept ImportError: pass", "ctypes"),
    ],
)
def test_an_import_that_is_not_allowed_is_refused(source: str, module: str) -> None:
    assert [one.partition(" ")[2] for one in refused(source)] == [module]


def test_the_sentence_says_what_to_do_and_accuses_nobody() -> None:
    (found,) = refused_imports(imported_from("a.py", {"a.py": "import ctypes"}), {"a.py": ""}, IMPORTS)
    assert found.words == (
        'imports ctypes, which this assignment does not allow: take it out, or put it below `if __name__ == "__main__":`'
    )


@pytest.mark.parametrize(
    "source",
    [
        "import torch, triton, math\nfrom torch.nn import functional as F\nfrom torch import __version__, Tensor",
        "from torch.library import triton_op\nimport torch.distributed as dist\nfrom torch import _assert",
        "from __future__ import annotations\nfrom .rows import one\nimport rows",
        "import importlib.metadata\nfrom importlib import metadata\nfrom importlib.metadata import version",
        'if __name__ == "__main__":\n    import subprocess',
        'if "__main__" == __name__ and True:\n    import subprocess',
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import subprocess",
        "import typing\nif typing.TYPE_CHECKING:\n    import subprocess",
        "try:\n    import no_such_module\nexcept ImportError:\n    no_such_module = None",  # Python's own error says it
    ],
)
def test_other_imports_are_left_alone(source: str) -> None:
    assert refused(source, rows="one = 1") == []


def test_files_that_are_imported_are_read_and_no_others() -> None:
    assert refused("import tiles", tiles="import subprocess", other="import subprocess") == ["tiles.py:1 subprocess"]
    assert refused('import tiles\nif __name__ != "__main__":\n    import subprocess', tiles="") == [
        "softmax.py:3 subprocess"
    ]


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("def softmax(x): return torch.softmax(x, -1)", "4 uses torch.softmax"),
        ("import torch as T\ndef softmax(x): return T.softmax(x, -1)", "5 uses torch.softmax"),
        ("from torch import softmax as s\ndef softmax(x): return s(x, -1)", "5 uses torch.softmax"),
        ("f = torch.softmax", "4 uses torch.softmax"),
        ("f = torch.nn.functional\ndef softmax(x): return f.softmax(x, -1)", "5 uses torch.nn.functional.softmax"),
        ("from torch.nn import functional as F\ny = F.gelu(0)", "5 uses torch.nn.functional.gelu"),
        ("def softmax(x): return x.softmax(-1)", "4 uses the method .softmax"),
        ("def softmax(x): return torch.Tensor.softmax(x, -1)", "4 uses torch.Tensor.softmax"),
        ("def softmax(x): return x @ x", "4 uses the operator @"),
        ("def softmax(x):\n    x @= x", "5 uses the operator @"),
        ("class Naive:\n    def run(self, x): return torch.softmax(x, -1)", "5 uses torch.softmax"),
    ],
)
def test_a_line_that_uses_what_students_should_write_is_found(source: str, words: str) -> None:
    assert f"softmax.py:{words}" in hints(HEAD + source)


@pytest.mark.parametrize(
    "source",
    [
        "@triton.jit\ndef kernel(x):\n    return tl.softmax(x) + x.softmax(0)",
        "@triton.autotune(configs=[], key=[])\n@triton.jit\ndef kernel(x):\n    return x.softmax(0)",
        "class Rows:\n    def softmax(self, x): return x\ndef softmax(x): return Rows().softmax(x)",
        "class F:\n    def apply(self, x): return self.softmax",
        'if __name__ == "__main__":\n    print(torch.softmax(0, -1))',
        'def softmax(x):\n    """Like torch.softmax(x, -1), and x @ y."""',
    ],
)
def test_other_lines_have_no_hint(source: str) -> None:
    assert hints(HEAD + source) == []


def test_names_of_another_file_are_hints_where_they_stand() -> None:
    assert hints("from tiles import tiled", tiles="import torch\ndef tiled(x): return torch.softmax(x, -1)") == [
        "tiles.py:2 uses torch.softmax"
    ]
