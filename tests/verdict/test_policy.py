"""What a submission's source may not do is found in whatever words it is said, and what it may do is left alone."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Mapping, Sequence

import pytest

from grader.protocol import RanOperator
from grader.verdict.policy import (
    NAMESPACES_OF_PYTORCH,
    ForbiddenUse,
    cuda_findings,
    foreign_operators,
    included_from,
    read_python,
)
from tests.conftest import ROOT

IMPORTS = ("torch", "triton", "math", "os", "sys", "json", "functools", "warnings")
FORBIDDEN = ("torch.softmax", "torch.nn.functional.*", "torch.compile", "torch.matmul", ".softmax", ".matmul", "@")
HEAD = "import torch\nimport triton\nimport triton.language as tl\n"


def found(source: str, **others: str) -> list[str]:
    sources = {"softmax.py": source} | {f"{name}.py": text for name, text in others.items()}
    findings = read_python(sources, "softmax.py", "softmax", IMPORTS, FORBIDDEN)[1].findings
    return [f"{one.file}:{one.line} {one.words}" for one in findings]


def cuda_uses(sources: Mapping[str, str], forbidden: Sequence[str]) -> list[ForbiddenUse]:
    return cuda_findings(included_from("gelu.cu", sources), "gelu.cu", forbidden)


REFUSED = {
    "runs code from a string (eval)": {
        "by eval as a default": "def softmax(x, eval=eval): return x",
        "by eval beside a lambda that has it": 'def softmax(x): return (lambda: (eval := x), eval("x"))',
        "by eval of all": 'def softmax(x):\n    global eval\n    y = eval("x")\n    eval = None\n    return y',
        "by eval": 'def softmax(x): return eval("torch.soft" + "max")(x, -1)',
    },
    "softmax.py:5 runs code from a string (eval)": {
        "by eval that another function has": "def helper(eval): return eval\ndef softmax(x): return helper(eval)(x)",
        "by eval in a decorator": 'def softmax(x):\n    @eval("x")\n    def inner(eval): return x\n    return inner',
    },
    "softmax.py:6 runs code from a string (eval)": {
        "by eval that a comprehension has": 'def softmax(x):\n    y = [eval for eval in x]\n    return eval("x")',
        "by eval in a class that has it later": (
            'def softmax(x, eval):\n    class Now:\n        y = eval("x")\n        eval = 2\n    return Now.y'
        ),
    },
    "softmax.py:7 runs code from a string (eval)": {
        "by eval of all, in a function of a function": (
            'def softmax(x, eval):\n    def inner():\n        global eval\n        return eval("x")\n    return inner()'
        )
    },
    "softmax.py:4 runs code from a string (eval)": {
        "by eval of all, under a name of its own later": (
            'y = eval("x")\ndef eval(x): return x\ndef softmax(x): return y'
        )
    },
    "softmax.py:5 uses torch.softmax": {
        "plainly": "def softmax(x):\n    return torch.softmax(x, -1)",
        "in a helper": "def softmax(x): return helper(x)\ndef helper(x): return torch.softmax(x, -1)",
        "on another line of the guard": 'if __name__ != "__main__":\n    def softmax(x): return torch.softmax(x, -1)',
        "in a default argument": (
            "TABLE = []\ndef hidden(x=TABLE.append(lambda x: torch.softmax(x, -1))): ...\ndef softmax(x): return TABLE[0](x)"
        ),
        "an alias with two meanings": "t = triton\ndef softmax(x): return t.softmax(x)\nt = torch",
    },
    "uses the method .softmax": {
        "as a method": "def softmax(x):\n    return x.softmax(-1)",
        "by getattr of a tensor": 'def softmax(x): return getattr(x, "softmax")(-1)',
    },
    "uses torch.softmax": {
        "by an alias of the module": "import torch as T\ndef softmax(x): return T.softmax(x, -1)",
        "by an alias of the function": "from torch import softmax as s\ndef softmax(x): return s(x, -1)",
        "by getattr": 'def softmax(x): return getattr(torch, "softmax")(x, -1)',
        "passed on": "softmax = (lambda f: f)(torch.softmax)",
    },
    "uses torch.nn.functional.log_softmax": {
        "by a deeper import": "from torch.nn import functional as F\ndef softmax(x): return F.log_softmax(x, -1).exp()"
    },
    "uses torch.nn.functional.softmax": {
        "import of the function's module": "import torch.nn.functional as F\ndef softmax(x): return F.softmax(x, -1)",
        "by assignment of assignment": "m = torch.nn\nf = m.functional\ndef softmax(x): return f.softmax(x, -1)",
        "an alias in a tuple": "F, n = torch.nn.functional, 1\ndef softmax(x): return F.softmax(x, -1)",
    },
    "softmax.py:4 uses torch.softmax": {
        "by assignment": "f = torch.softmax\ndef softmax(x): return f(x, -1)",
        "in a lambda": "softmax = lambda x: torch.softmax(x, -1)",
        "called by the module": "def __getattr__(name): return torch.softmax",
    },
    "by a computed name": {
        "by a computed getattr": 'def softmax(x): return getattr(torch, "soft" + "max")(x, -1)',
        "by a computed getattr of a tensor": 'def softmax(x): return getattr(x, "xamtfos"[::-1])(-1)',
        "getattr of many": "def softmax(x): return getattr(*[x, 'soft' + 'max'])(-1)",
    },
    "innards of an object (__dict__)": {"by __dict__": 'def softmax(x): return torch.__dict__["softmax"](x, -1)'},
    "runs code from a string (exec)": {"by exec": 'exec("softmax = torch.softmax")'},
    "imports by a computed name": {"by __import__": 'def softmax(x): return __import__("torch").softmax(x, -1)'},
    "imports importlib": {"by importlib": "import importlib\ndef softmax(x): ..."},
    "imports ctypes": {"by ctypes": "def softmax(x):\n    import ctypes\n"},
    "modules of the process": {"by sys.modules": 'import sys\ndef softmax(x): return sys.modules["torch"].nothing'},
    "inner names (torch.ops": {"by torch.ops": "def softmax(x): return torch.ops.aten._softmax(x, -1, False)"},
    "PyTorch's internals": {
        "by torch._C": "def softmax(x): return torch._C._nn.gelu(x)",
        "hidden by a class of the same name": (
            "class torch_:\n    def _C(self): ...\ntorch_ = torch\ndef softmax(x): return torch_._C.x"
        ),
    },
    "uses torch.compile": {"compiled": "@torch.compile\ndef softmax(x): return x"},
    "uses the operator @": {
        "a product": "def softmax(x): return x @ x",
        "a product in place": "def softmax(x):\n    x @= x\n    return x",
        "a product by its inner name": "def softmax(x): return x.__matmul__(x)",
        "a product by its class": "def softmax(x): return torch.Tensor.__matmul__(x, x)",
    },
    "softmax.py:9 uses torch.softmax": {
        "behind a kernel that decides nothing": (
            "def softmax(x):\n    try:\n        kernel[(1,)](x)\n    except Exception:\n        pass\n    return torch.softmax(x, -1)"
        )
    },
    "softmax.py:6 uses torch.softmax": {
        "in a class": (
            "class F(torch.autograd.Function):\n    @staticmethod\n    def forward(ctx, x): return torch.softmax(x, -1)\nsoftmax = F.apply"
        ),
        "under a guard that is true": '__name__ = "__main__"\nif __name__ == "__main__":\n    softmax = torch.softmax',
        "called by its decorator": (
            "TABLE = []\n@TABLE.append\ndef hidden(x): return torch.softmax(x, -1)\ndef softmax(x): return TABLE[0](x)"
        ),
        "in what a patient decorator is given": (
            "import functools\nTABLE = []\n@functools.lru_cache(TABLE.append(lambda x: torch.softmax(x, -1)))\ndef hidden(): ...\n"
            "def softmax(x): return TABLE[0](x)"
        ),
        "in what looks like a kernel": (
            "@triton.jit\ndef k(x):\n    return torch.softmax(x, -1)\ndef softmax(x): return k.fn(x)"
        ),
    },
    "softmax.py:7 uses torch.softmax": {
        "a fake kernel": (
            "class jit:\n    def __init__(self, f): self.f = f\n"
            "@jit\ndef inner(x): return torch.softmax(x, -1)\ndef softmax(x): return inner.f(x)"
        ),
        "beside the guard": (
            'if __name__ == "__main__":\n    pass\nelse:\n    def softmax(x): return torch.softmax(x, -1)'
        ),
        "called by a class's decorator": (
            "TABLE = []\n@TABLE.append\nclass Hidden:\n    def run(self, x): return torch.softmax(x, -1)\n"
            "def softmax(x): return TABLE[0]().run(x)"
        ),
        "called by a method's decorator": (
            "TABLE = []\nclass Hidden:\n    @TABLE.append\n    def run(self, x): return torch.softmax(x, -1)\n"
            "def softmax(x): return TABLE[0](0, x)"
        ),
        "called by a base class": (
            "class Base:\n    def __init_subclass__(cls): Base.last = cls\n"
            "class Hidden(Base):\n    def run(self, x): return torch.softmax(x, -1)\ndef softmax(x): return Base.last().run(x)"
        ),
        "in what a method's decorator is given": (
            "import functools\nTABLE = []\nclass Hidden:\n    @functools.lru_cache(TABLE.append(lambda x: torch.softmax(x, -1)))\n"
            "    def run(self): ...\ndef softmax(x): return TABLE[0](x)"
        ),
    },
    "dispatcher": {"PyTorch's dispatcher": "from torch.utils._python_dispatch import TorchDispatchMode\n"},
    "uses torch.Tensor.softmax": {"as a method of the class": "def softmax(x): return torch.Tensor.softmax(x, -1)"},
    "another module by way of an object (torch.threading": {
        "in a thread": "def softmax(x): torch.threading.Thread(target=print).start()"
    },
    "imports logging": {
        "in a thread of logging's": "import logging as log\ndef softmax(x): log.threading.Thread(target=print).start()"
    },
    "another module by way of an object (os.sys": {
        "in a thread by way of os": "import os\ndef softmax(x): os.sys.x.threading.Thread(target=print).start()"
    },
    "another module by way of an object": {"by a module of Triton's": "def softmax(x): triton.runtime.jit.os.x"},
    "(torch.functional.F": {"by another name of PyTorch's": "def softmax(x): return torch.functional.F.softmax(x)"},
    "passes getattr on": {
        "by Python's name for getattr": 'look = getattr\ndef softmax(x): return look(torch, "x")',
        "getattr passed on": "def softmax(x): return list(map(getattr, [x], ['soft' + 'max']))",
    },
    "innards of an object (__matmul__)": {"getattr of innards": 'def softmax(x): return getattr(x, "__matmul__")(x)'},
    "looks up names by computed words (vars)": {"by vars": 'def softmax(x): return vars(torch)["softmax"](x, -1)'},
    "computed words (globals)": {"by globals": 'def h(x): ...\ndef softmax(x): return globals()["_" + "h"](x)'},
    "computed words (locals)": {"by locals": 'def softmax(x): return locals()["x"]'},
    "computed words (__builtins__)": {"by builtins": 'def softmax(x): __builtins__["ex" + "ec"]("")'},
    "imports every name of torch": {"an import of everything": "from torch import *\ndef softmax(x): ..."},
    "passes torch on as a value": {
        "an alias as a default": "def softmax(x, t=torch): return t.exp(x)",
        "an alias in a loop": "def softmax(x):\n    for t in (torch,): return t.exp(x)",
        "an alias in a class": "class A:\n    t = torch\ndef softmax(x): return A.t.exp(x)",
    },
    "changes triton": {"in place of Triton's own": "triton.jit = lambda f: f\ndef softmax(x): ..."},
    "changes torch": {"in place of PyTorch's own": 'setattr(torch, "exp", print)\ndef softmax(x): ...'},
    "computes on the host (.numpy)": {"by numpy": "def softmax(x): return torch.from_numpy(2 ** x.numpy())"},
    "computes on the host (torch.Tensor.numpy)": {"by numpy's class": "def softmax(x): return torch.Tensor.numpy(x)"},
    "on the host (.tolist)": {"by a list": "def softmax(x): return torch.tensor([math.exp(v) for v in x.tolist()])"},
    "computes on the host (.apply_)": {"element by element": "def softmax(x): return x.clone().apply_(math.exp)"},
    "PyTorch's dispatcher (__torch_dispatch__)": {
        "in a tensor of one's own": (
            "class T(torch.Tensor):\n    @classmethod\n    def __torch_dispatch__(cls, f, *rest): return 2 ** rest[0]\n"
            "def softmax(x): return x.as_subclass(T).clone()"
        ),
        "in a tensor of one's own by a string": (
            "def softmax(x): return type('T', (torch.Tensor,), {'__torch_dispatch__': print})"
        ),
    },
    "in a namespace of its own": {
        "in place of PyTorch's kernel": "lib = torch.library.Library('aten', 'IMPL')\ndef softmax(x): return x",
        "by an operator named as PyTorch's": (
            "@torch.library.custom_op('aten::eq.mine', mutates_args=())\ndef softmax(x: torch.Tensor) -> torch.Tensor: ..."
        ),
        "in a computed namespace": "lib = torch.library.Library('at' + 'en', 'IMPL')\ndef softmax(x): return x",
        "in a namespace given by its name": "lib = torch.library.Library(kind='IMPL', ns='aten')\ndef softmax(x): return x",
        "for every operator": "lib = torch.library.Library('_', 'IMPL')\ndef softmax(x): return x",
        "for PyTorch's operator": (
            "from torch.library import register_kernel\nregister_kernel('aten::copy_', 'cpu', print)\ndef softmax(x): return x"
        ),
        "for a computed operator": (
            "name = 'aten::' + 'copy_'\n@torch.library.impl(name, 'CPU')\ndef own(x): ...\ndef softmax(x): return x"
        ),
        "for an operator of two names": (
            "lib = torch.library.Library('my', 'DEF')\nlib = 'aten::copy_'\ntorch.library.impl(lib, 'CPU', print)\n"
            "def softmax(x): return x"
        ),
    },
    "passes torch.library.Library on as a value": {
        "by a registry that is passed on": (
            "import functools\nmake = functools.partial(torch.library.Library, 'aten')\ndef softmax(x): return x"
        ),
        "by a registry of one's own": "class L(torch.library.Library): ...\ndef softmax(x): return L('aten', 'IMPL')",
    },
    "registry of operators (torch.library": {
        "by a registry under another name": "for lib in [torch.library]: lib.x\ndef softmax(x): return x",
        "by a fallback": "from torch.library import fallthrough_kernel\ndef softmax(x): return fallthrough_kernel",
    },
    "inner names (torch.ops.": {
        "by a prims": "def softmax(x): return torch.ops.prims.exp(x)",
        "behind an operator": "def softmax(x): return torch.ops.my.softmax.default.decompose(x)",
        "a library": "torch.ops.load_library('my.so')\ndef softmax(x): return x",
    },
    "inner names (torch.ops)": {"operators passed on": "def softmax(x): return print(torch.ops)"},
    "computed name (getattr)": {
        "an operator by a computed name": "def softmax(x): return getattr(torch.ops, 'at' + 'en')"
    },
    "imports by a computed name (importlib": {
        "by the module beside a harmless one": (
            "import importlib.metadata\ndef softmax(x): return importlib.import_module('to' + 'rch')"
        ),
        "by an entry point": (
            "from importlib.metadata import EntryPoint\ndef softmax(x): return EntryPoint('a', 'torch:exp', 'b').load()(x)"
        ),
        "by importlib passed on": "import importlib.metadata as m\ndef softmax(x): return print(m)",
    },
    "changes json": {"the grader's words": "import json\njson.dumps = lambda *_, **__: '{}'\ndef softmax(x): return x"},
    "changes sys.stdout": {"a stream's methods": "import sys\nsys.stdout.flush = print\ndef softmax(x): return x"},
    "starts processes (os.fork)": {"in another process": "import os\ndef softmax(x): os.fork()"},
}


@pytest.mark.parametrize(("words", "how"), [(words, how) for words, sources in REFUSED.items() for how in sources])
def test_a_forbidden_use_is_found(words: str, how: str) -> None:
    source = REFUSED[words][how]
    assert any(words in one for one in found(HEAD + source)), found(HEAD + source)


ALLOWED = {
    "names of its own that are builtins elsewhere": """
def softmax(x, compile=False, *vars, eval: bool = True, **locals):
    globals = x if compile or eval else vars[0]
    for exec in locals:
        x = exec
    def inner():
        return globals, vars, [compile for _ in vars], lambda eval: eval
    async def never(exec): return exec
    return inner()
    """,
    "a function in a function, named as a builtin": "def softmax(x):\n    def compile(y): return y\n    return compile(x)",
    "plumbing": "def softmax(x):\n    y = torch.empty_like(x).view(-1)\n    return y.reshape(x.shape).contiguous()",
    "a comparison at the end": 'def softmax(x): return x\nif __name__ == "__main__":\n    print(torch.softmax(softmax(x), -1))',
    "a function for testing": "def softmax(x): return x\ndef test(): assert torch.allclose(softmax(x), torch.softmax(x, -1))",
    "a kernel": "@triton.jit\ndef softmax_kernel(x):\n    return tl.softmax(x)\ndef softmax(x): softmax_kernel[(1,)](x)",
    "a kernel with a configuration": (
        "@triton.autotune(configs=[], key=[])\n@triton.jit\ndef kernel(x):\n    return x.softmax(0)\ndef softmax(x): kernel[(1,)](x)"
    ),
    "its own name": "def softmax(x): return x\ndef twice(x): return softmax(softmax(x))",
    "an attribute of its own": "class F:\n    def apply(self, x): return self.softmax\nsoftmax = F().apply",
    "annotations": "from __future__ import annotations\nfrom torch import Tensor\ndef softmax(x: torch.Tensor) -> Tensor: return x",
    "getattr of the driver": "def softmax(x):\n    n = 'x'\n    return getattr(triton.runtime, n)",
    "re-like names": "import math\ndef softmax(x):\n    return math.exp(0)",
    "a string": 'def softmax(x):\n    """Like torch.softmax(x, -1), and x @ y."""\n    return x',
    "decorators": "from torch.autograd.function import once_differentiable\n@once_differentiable\ndef softmax(x): return x",
    "not Python": "def softmax(x) return x",
    "a method of its own": (
        "class Rows:\n    def softmax(self, x): return x\nrows = Rows()\ndef softmax(x): return rows.softmax(x)"
    ),
    "a method of its own object": "class Rows:\n    def softmax(self, x): return x\ndef softmax(x): return Rows().softmax(x)",
    "a method of its part": (
        "class Rows:\n    def softmax(self, x): return x\nclass F:\n    def __init__(self): self.rows = Rows()\n"
        "    def run(self, x): return self.rows.softmax(x)\ndef softmax(x): return F().run(x)"
    ),
    "settings": "torch.backends.cuda.matmul.allow_tf32 = False\ndef softmax(x): return x",
    "what a device can do": (
        "def softmax(x):\n    with torch.cuda.device(x.device):\n"
        "        return torch.cuda.get_device_properties(x.device).multi_processor_count * torch.float16.itemsize"
    ),
    "plain assignments": "f16, pi = torch.float16, math.pi\nfor dtype in (f16, torch.bfloat16): ...\ndef softmax(x): return x",
    "a class for testing": (
        "class Naive(torch.nn.Module):\n    def forward(self, x): return torch.softmax(x, -1)\ndef softmax(x): return x"
    ),
    "a decorated function for testing": (
        "@torch.no_grad()\ndef check(block: int = 4) -> None: assert torch.softmax(x, -1)\ndef softmax(x): return x"
    ),
    "numbers of the submission's": "def softmax(x):\n    s = max(x.shape)\n    return x.new_empty(s).item()",
    "PyTorch's modules of Python's names": "def softmax(x):\n    torch.random.seed()\n    return x.select(0, 1), tl.math.exp",
    "a profiler": "from torch.profiler import profile\ndef softmax(x): return x",
    "a driver": "def softmax(x): return triton.runtime.driver.active.get_active_torch_device()",
    "a benchmark as in Triton's tutorials": (
        "@triton.testing.perf_report(triton.testing.Benchmark(x_names=['N'], x_vals=[2**i for i in range(9)], line_vals=['naive']))\n"
        "def benchmark(N):\n    return triton.testing.do_bench(lambda: naive(torch.rand(N)))\n"
        "def naive(x): return torch.softmax(x, -1)\ndef softmax(x): return x"
    ),
    "a version": "NEW = torch.__version__.split('.')[0] >= '2'\nprint(torch.__version__)\ndef softmax(x): return x",
    "a check": "def softmax(x):\n    torch._check(x.ndim == 2)\n    torch._assert(x.ndim == 2, 'a matrix')\n    return x",
    "a padded copy": (
        "import torch.nn.functional as F\ndef softmax(x): return torch.nn.functional.pad(F.pad(x, (0, 3)), (0, 5))"
    ),
    "an operator of its own": """
from torch.library import triton_op, wrap_triton
@triton_op("my::softmax", mutates_args=())
def own(x: torch.Tensor) -> torch.Tensor:
    wrap_triton(kernel)[(1,)](x)
    return x
own.register_autograd(print)
torch.library.register_vmap(own, print)
def softmax(x): return torch.ops.my.softmax(x) + torch.ops.my.softmax.default(x)
    """,
    "an operator of its own in a library": """
import torch.library
from torch.library import Library, impl
lib, NAME = Library("my", "DEF"), "my::softmax"
lib.define("softmax(Tensor x) -> Tensor")
@impl(lib, "softmax", "CUDA")
def own(x): return x
lib.impl("softmax", own, "CPU")
@torch.library.register_fake(NAME)
def fake(x): return torch.empty_like(x)
torch.library.register_autograd(torch.ops.my.softmax.default, print, setup_context=print)
softmax = torch.ops.my.softmax
    """,
    "a version of its own": """
import importlib.metadata
from importlib import metadata
from importlib.metadata import version
try:
    __version__ = importlib.metadata.version("my-lab") or metadata.version("my-lab") or version("my-lab")
except importlib.metadata.PackageNotFoundError:
    __version__ = "0"
def softmax(x): return x
    """,
    "harmless parts of what starts processes": """
from torch.utils.data import Dataset
import torch.distributed as dist
class Rows(Dataset): ...
def softmax(x): return x if dist.is_initialized() else x
    """,
    "settings of Python's": (
        "import sys, warnings\nsys.path += ['.']\nsys.stdout = None\nwarnings.showwarning = print\ndef softmax(x): return x"
    ),
    "a setting of its own file": "import own\nown.BLOCK = 4\nsetattr(own, 'WARPS', 8)\ndef softmax(x): return x",
    "a guard the other way round": 'def softmax(x): return x\nif "__main__" == __name__:\n    print(torch.softmax(x, -1))',
}


@pytest.mark.parametrize("how", ALLOWED)
def test_what_is_allowed_is_left_alone(how: str) -> None:
    source = ALLOWED[how]
    imports = "" if source.startswith("from __future__") else HEAD
    if how != "not Python":
        ast.parse(imports + source)  # or there would be nothing to find
    assert [one for one in found(imports + source, own="BLOCK = 2") if "__future__" not in one] == []


@pytest.mark.parametrize(
    "source", ["y = torch" + ".a" * 1500, "def softmax(x): return " + "1+" * 1500 + "x", "y = " + "-" * 9000 + "x"]
)
def test_what_nobody_can_read_is_refused(source: str) -> None:
    assert found(source) == ["softmax.py:1 nests expressions too deeply to be read"]


def test_a_name_that_the_policy_gives_in_full_is_found_though_it_does_no_harm() -> None:
    source = {"softmax.py": HEAD + "def softmax(x): return torch.nn.functional.pad(x, (0, 3))"}
    (finding,) = read_python(source, "softmax.py", "softmax", IMPORTS, ["torch.nn.functional.pad"])[1].findings
    assert finding.words == "uses torch.nn.functional.pad"


def test_a_helper_file_may_be_imported_and_is_read() -> None:
    main = HEAD + "from tiles import tiled\ndef softmax(x): return tiled(x)\n"
    assert found(main, tiles="import torch\ndef tiled(x): return torch.softmax(x, -1)\n") == [
        "tiles.py:2 uses torch.softmax"
    ]
    assert found(main, tiles="import torch\ndef tiled(x): return x\ndef unused(x): return x @ x\n") == []


def test_cuda_files_are_read_without_their_comments() -> None:
    source = (
        "#include <torch/extension.h> // not at::gelu\n/* torch::gelu\n at::gelu */\n"
        'const char* words = "at::gelu";\ntorch::Tensor gelu(torch::Tensor x) { return at::gelu(x, "tanh"); }\n'
    )
    findings = cuda_uses({"gelu.cu": source}, ("at::gelu", "torch::gelu", "cublas"))
    assert [(one.line, one.words) for one in findings] == [(5, "uses at::gelu")]


@pytest.mark.parametrize(
    "line",
    [
        "cub::DeviceReduce::Sum(a, b);",
        "::cub::DeviceReduce::Sum(a, b);",
        "using namespace cub;",
        "cublasSgemm(handle);",
        "return ::at::gelu(x);",
        "return at :: gelu(x);",
        "char c = '\"'; cublasSgemm(handle); c = '\"';",
        "char c = u8'\"'; cublasSgemm(handle); c = '\\'';",
        "int million = 1'000'000, few = 1'0; cublasSgemm(handle); // '",
        'auto s = R"(")"; cublasSgemm(handle); s = R"(")";',
        'auto s = R"x(" )" )x"; cublasSgemm(handle); s = "";',
        '#define FOOR\nauto s = FOOR"("; cublasSgemm(handle); s = ")";',
        'auto s = "\\""; cublasSgemm(handle); s = "\\"";',
        "int n = 1'0;cub::S(1'0);",
        "cublas\\\nSgemm(handle);",
        "cu\\\nbla\\  \nsSge\\\n\\\r\nmm(handle);",
        "return at:\\\n:gelu(x);",
    ],
)
def test_names_of_libraries_are_found(line: str) -> None:
    assert len(cuda_uses({"gelu.cu": f"int n;\n{line}\n"}, ("at::gelu", "cublas", "cub"))) == 1


@pytest.mark.parametrize(
    "line",
    [
        "const float cub = v * v * v;",
        "y = 0.5f * (v + cub);",
        "cub_of(v);",
        "float cubic(float cub);",
        "my::at::gelu(x);",
        'auto s = R"x(")" cublasSgemm(handle); )x";',
        "// all of it \\\ncublasSgemm(handle);",
        "/* cublasSgemm(handle);",
        'auto s = "cublasSgemm(handle);',
    ],
)
def test_a_variable_may_be_called_like_a_library(line: str) -> None:
    assert cuda_uses({"gelu.cu": line}, ("at::gelu", "cublas", "cub")) == []


def test_names_of_another_file_are_followed() -> None:
    tiles = "import torch as T\n"
    for use in (
        "from tiles import T\ndef softmax(x): return T.softmax(x)",
        "from tiles import *\ndef softmax(x): return T.softmax(x)",
        "import tiles\ndef softmax(x): return tiles.T.softmax(x)",
    ):
        assert found(f"{use}\n", tiles=tiles) == ["softmax.py:2 uses torch.softmax"]


@pytest.mark.parametrize(
    "use",
    [
        "cublasHandle_t handle;",
        "auto product = cublasSgemm;",
        "namespace fast = cub;",
        "#define LIBRARY cub\nLIBRARY::DeviceReduce::Sum(a, b);",
        "CUB_NS_QUALIFIER::DeviceReduce::Sum(a, b);",
        "#define JOIN(a, b) a##b\nJOIN(cubla, sSgemm)(handle);",
    ],
)
def test_a_library_whose_header_is_included_is_found_under_other_names(use: str) -> None:
    for include in ("#include <cublas_v2.h>\n#include <cub/cub.cuh>", "#define HEADER <x>\n#include HEADER"):
        assert cuda_uses({"gelu.cu": f"{include}\n{use}\n"}, ("cublas", "cub"))


@pytest.mark.parametrize(
    "source",
    [
        "#include <cublas_v2.h>\n#include <cub/cub.cuh>\n#define CUBIC 0.044715f\nconst float cub = v * v * v, cub_of = CUBIC;\n",
        '#include "cubic.cuh"\nfloat y = cubic(x);\n',
        '#include "cublas_like.h"\nfloat y = cubic(x);\n',
    ],
)
def test_a_header_alone_is_no_use(source: str) -> None:
    own = {"cubic.cuh": "inline float cubic(float x) { return x; }", "cublas_like.h": '#include "cubic.cuh"\n'}
    assert cuda_uses({"gelu.cu": source} | own, ("cublas", "cub")) == []


def test_only_files_that_are_included_are_read() -> None:
    product = "void f() { cublasSgemm(handle); }\n"
    others = {"tried/before.cu": product, "parts/a.cuh": '#include "../b.txt"\n', "b.txt": product}
    assert cuda_uses({"gelu.cu": "int n;\n"} | others, ("cublas",)) == []
    named = '#define HEADER "tried/before.cu"\n#include HEADER\n'
    assert len(cuda_uses({"gelu.cu": named} | others, ("cublas",))) == 2  # nobody knows which
    (finding,) = cuda_uses({"gelu.cu": '#include "parts/a.cuh"\n'} | others, ("cublas",))
    assert (finding.file, finding.line) == ("b.txt", 1)


def test_operators_are_plumbing_allowed_or_foreign() -> None:
    ran = [
        RanOperator("empty_like", ""),
        RanOperator("slice_backward", ""),
        RanOperator("select_backward", ""),
        RanOperator("mul", "softmax.py:7"),
        RanOperator("_softmax", "softmax.py:9"),
    ]
    assert foreign_operators(ran, ["mul"]) == [RanOperator("_softmax", "softmax.py:9")]


def test_no_namespace_of_pytorchs_is_the_submissions() -> None:
    program = (
        "import torch, torch._inductor.lowering, torch.distributed\n"
        "print(*{name.split('::')[0] for name in torch._C._dispatch_get_all_op_names()})"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT, check=True)
    there = set(done.stdout.split())
    assert "aten" in there
    assert {name for name in there if not name.startswith("_")} <= NAMESPACES_OF_PYTORCH


def test_watching_operators_costs_no_import() -> None:
    """PyTorch would import its compiler with the first operator that a mode sees, which takes seconds."""
    program = (
        "import sys, torch\nfrom pathlib import Path\nfrom grader.worker.operators import OperatorWatch\n"
        "watch = OperatorWatch()\nwith watch:\n    torch.zeros(2) + 1\n"
        "print(sorted(one.name for one in watch.seen), 'torch._dynamo' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT, check=True)
    assert done.stdout == "['add', 'zeros'] False\n"


@pytest.mark.parametrize(
    "include",
    ["#include <./thrust/transform.h>", "%:include <thrust/transform.h>", "#include <cub/../thrust/transform.h>",
     "#include </usr/local/cuda/include/thrust/transform.h>", "#include_next <thrust/transform.h>"],
)  # fmt: skip
def test_a_librarys_header_is_one_by_whatever_way_it_is_included(include: str) -> None:
    source = f"{include}\nnamespace T = thrust;\nvoid f() {{ T::transform(1); }}\n"
    assert cuda_uses({"gelu.cu": source}, ["thrust"])
