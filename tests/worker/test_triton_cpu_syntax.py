"""Parts of Python in a kernel: the interpreter refuses those that Triton's compiler refuses, and takes the others."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT

# Lines of a kernel with the number n = 5, the constants OFF = 0 and ON = 1, and the words of the interpreter; "" where both take it.
TABLE = {
    "for i in range(n):\n    if i > 2:\n        break": "unsupported AST node type: Break",
    "for i in range(n):\n    if i > 7:\n        break": "unsupported AST node type: Break",
    "for i in range(n, n):\n    break": "unsupported AST node type: Break",
    "for i in range(n):\n    if OFF:\n        break": "",
    "for i in range(n):\n    if i > 7:\n        if OFF:\n            break": "",
    "for i in range(n):\n    if OFF:\n        y += 1\n    elif i > 7:\n        break": "unsupported AST node type: Break",
    "for i in range(n):\n    if ON:\n        y += 0\n    else:\n        break": "",
    "for i in tl.static_range(3):\n    if i == 2:\n        break": "unsupported AST node type: Break",
    "for i in tl.static_range(OFF):\n    break": "",
    "while True:\n    break": "unsupported AST node type: Break",
    "for i in range(n):\n    if i > 7:\n        continue": "unsupported AST node type: Continue",
    "if n > 7:\n    return": "",
    "if n > 7:\n    if n > 8:\n        return": "",
    "if OFF:\n    return\nfor i in range(n):\n    break": "unsupported AST node type: Break",
    "return\nfor i in range(n):\n    break": "",
    "for i in range(n):\n    if i > 7:\n        return": "Cannot have `return` statements inside",
    "for i in range(n):\n    return": "Cannot have `return` statements inside",
    "for i in range(n):\n    if ON:\n        return": "Cannot have `return` statements inside",
    "for i in range(n):\n    for j in tl.static_range(2):\n        if j > i:\n            return": "Cannot have `return`",
    "for i in tl.static_range(3):\n    if n > 7:\n        return": "",
    "i = n\nwhile i < n:\n    i += 1\n    return": "Cannot have `return` statements inside",
    "i = n\nwhile i < n:\n    i += 1\nelse:\n    y += 0": "`else` after a loop",
    "for i in range(n):\n    y += 0\nelse:\n    y += 0": "`else` after a loop",
    "for i in (1, 2):\n    y += 0": "Only `range` and `static_range`",
    "for i in (j for j in range(3)):\n    y += 0": "Only `range` and `static_range`",
    "for i, j in tl.static_range(3):\n    y += 0": "a loop has one variable",
    "i = [j for j in range(3)]": "only tuple comprehensions are supported",
    "i = [j + 1 for j in (1, 2)]": "",
    "i = []\ni.append(n)": "no attribute 'append'",
    "i = [j + k for j in (1, 2) for k in (1, 2)]": "nested comprehensions are not supported",
    "i = {'a': 1}": "unsupported AST node type: Dict",
    "i = {1}": "unsupported AST node type: Set",
    "i = (*(1, 2), 3)": "unsupported AST node type: Starred",
    "tl.store(*(y, 1.0))": "",
    "i = lambda j: j": "unsupported AST node type: Lambda",
    "def i(j):\n    return j": "nested function definition",
    "class I:\n    pass": "unsupported AST node type: ClassDef",
    "yield n": "unsupported AST node type: Yield",
    "try:\n    y += 0\nexcept ValueError:\n    pass": "unsupported AST node type: Try",
    "if n > 7:\n    raise ValueError": "unsupported AST node type: Raise",
    "if OFF:\n    raise ValueError": "",
    "with open('x'):\n    pass": "open is not defined",
    "match n:\n    case 1:\n        pass": "unsupported AST node type: Match",
    "import math": "unsupported AST node type: Import",
    "global SOMETHING": "unsupported AST node type: Global",
    "i = 1\ndel i": "unsupported AST node type: Delete",
    "assert n > 0, 'n'": "",
    "i = 0 < n < 9": "simultaneous multiple comparison is not supported",
    "i = 1 if OFF and 0 < n < 9 else 2": "",
    "i = n in (1, 2)": "operator 'In' is not",
    "i = OFF is None": "",
    "i = tl.zeros((16, 16), tl.float32)\ni = i @ i": "operator 'MatMult' is not",
    "i = tl.zeros((4,), tl.float32)\ni[0] = 1": "__setitem__ is not supported",
    "i = tl.zeros((4,), tl.float32)\ni[0] += 1": "__setitem__ is not supported",
    "i = tl.zeros((4,), tl.float32)\ni.name = 1": "Attribute assignment is not supported",
    "i, (j, k) = 1, (2, 3)": "",
    "i, *j = 1, 2": "unsupported AST node type: Starred",
    "[i, j] = 1, 2": "unsupported AST node type: List",
    "i: tl.int32 = 1": "",
    "tl.static_assert(OFF == 0, f'not {OFF}')": "",
    "tl.static_assert(OFF == 0, 'a' if 0 < 1 < 2 else 'b')": "",
    "'''Words.'''\n...": "",
    "y += helper(n)": "unsupported AST node type: Break",
    "if OFF:\n    y += helper(n)": "",
}
HEAD = """
import json, os, sys
if sys.argv[1] == "interpreted":
    os.environ["TRITON_INTERPRET"] = "1"
import torch, triton, triton.language as tl

@triton.jit
def helper(n):
    for i in range(n):
        if i > 7:
            break
    return 0

"""
KERNEL = """
@triton.jit
def kernel_{number}(y, n, OFF: tl.constexpr, ON: tl.constexpr):
    {lines}
    tl.store(y, 1.0)
"""
TAIL = """
def interpreted(kernel):
    kernel[(1,)](torch.zeros(16), 5, 0, 1)

def compiled(kernel):
    from triton._C.libtriton import ir
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource, make_backend
    target = GPUTarget("cuda", 90, 32)
    backend, context = make_backend(target), ir.context()
    options = backend.parse_options({})
    ir.load_dialects(context)
    backend.load_dialects(context)
    types = {"y": "*fp32", "n": "i32", "OFF": "constexpr", "ON": "constexpr"}
    source = ASTSource(kernel, types, {(2,): 0, (3,): 1})
    source.make_ir(target, options, backend.get_codegen_implementation(options), backend.get_module_map(), context)

def said(kernel):
    try:
        globals()[sys.argv[1]](kernel)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""

if sys.argv[1] == "interpreted":
    from grader.worker import triton_cpu
    triton_cpu.provide()
print(json.dumps([said(globals()[f"kernel_{number}"]) for number in range(COUNT)]))
"""


@pytest.mark.parametrize("way", ["interpreted", "compiled"])
def test_what_no_gpus_compiler_takes_is_refused_and_nothing_else(way: str, tmp_path: Path) -> None:
    kernels = [KERNEL.format(number=number, lines=one.replace("\n", "\n    ")) for number, one in enumerate(TABLE)]
    file = tmp_path / "parts.py"  # Triton reads the source of its functions
    file.write_text(HEAD + "".join(kernels) + TAIL.replace("COUNT", str(len(TABLE))), encoding="utf-8")
    run = subprocess.run([sys.executable, str(file), way], capture_output=True, text=True, timeout=120, cwd=ROOT)
    assert run.returncode == 0, run.stderr[-2000:]
    wrong = {}
    for (lines, words), said in zip(TABLE.items(), json.loads(run.stdout.splitlines()[-1]), strict=True):
        of_the_compiler = way == "compiled" and said != ""  # in the compiler's own words, which are not all a sentence
        if not (words != "" if of_the_compiler else words in said if words else said == ""):
            wrong[lines] = said
    assert not wrong
