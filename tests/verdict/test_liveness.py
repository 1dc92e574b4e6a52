"""Nobody is accused of code that never runs; and code that does run is not hidden by what looks as if it did not."""

from __future__ import annotations

import ast

import pytest

from grader.verdict.policy import read_python

IMPORTS = ("torch", "triton", "functools", "typing", "contextlib", "dataclasses", "enum", "sys", "__future__")
FORBIDDEN = ("torch.softmax", "torch.nn.functional.*", "torch.compile", ".softmax", "@")
HEAD = "import torch, triton, functools, typing, contextlib, dataclasses, enum, sys\n"
REFERENCE = "reference(x): return torch.softmax(x, -1)\n"
RUN = "def softmax(x): return x\n"


def found(source: str, gradients: bool = True, **others: str) -> list[str]:
    sources = {"softmax.py": source} | {f"{name}.py": text for name, text in others.items()}
    for text in sources.values():
        ast.parse(text)  # or there would be nothing to find
    read = read_python(sources, "softmax.py", "softmax", IMPORTS, FORBIDDEN)
    return [one.words for one in read[gradients].findings]


NEVER_RUNS = {
    "a method": f"class Rows:\n    @staticmethod\n    def {REFERENCE}    @staticmethod\n    def run(x): return x\nsoftmax = Rows.run",
    "a private method": f"class Rows:\n    def _{REFERENCE}    def run(self, x): return x\ndef softmax(x): return Rows().run(x)",
    "a method of an autograd function": (
        f"class F(torch.autograd.Function):\n    @staticmethod\n    def forward(ctx, x): return x\n    @staticmethod\n    def {REFERENCE}"
        "softmax = F.apply"
    ),
    "a method of a module": (
        f"class M(torch.nn.Module):\n    def forward(self, x): return x\n    def {REFERENCE}def softmax(x): return M()(x)"
    ),
    "a class of an own base": f"class Base: pass\nclass Naive(Base):\n    def run(self, x): return x @ x\n{RUN}",
    "a class with values": f"@dataclasses.dataclass\nclass Naive:\n    n: int = 1\n    def __call__(self, x): return x @ x\n{RUN}",
    "under nvtx": f'import torch.cuda.nvtx as nvtx\n@nvtx.range("softmax")\ndef {REFERENCE}{RUN}',
    "under a cache": f"@functools.cache\ndef {REFERENCE}@functools.lru_cache(maxsize=None)\ndef other(x): return x @ x\n{RUN}",
    "under torch.no_grad": f"@torch.no_grad()\ndef {REFERENCE}@torch.inference_mode\ndef other(x): return x @ x\n{RUN}",
    "under torch.compile": f"@torch.compile\ndef {REFERENCE}@torch.compile(dynamic=False)\ndef other(x): return x @ x\n{RUN}",
    "under a part of torch.compile": f"@functools.partial(torch.compile, dynamic=False)\ndef {REFERENCE}{RUN}",
    "under a decorator of its own": (
        "def timed(f):\n    '''Prints.'''\n    @functools.wraps(f)\n    def inner(*a):\n        print(f)\n        return f(*a)\n"
        f"    inner.calls = 0\n    return inner\n@timed\ndef {REFERENCE}{RUN}"
    ),
    "under a decorator of its own with a label": (
        f"def timed(label):\n    def wrap(f):\n        def inner(x): return f(x)\n        return inner\n    return wrap\n"
        f'@timed("x")\ndef {REFERENCE}{RUN}'
    ),
    "compiled by a call": f"def {REFERENCE}fast = torch.compile(reference, dynamic=False)\n{RUN}",
    "a lambda": f"reference = lambda x: torch.softmax(x, -1)\n{RUN}",
    "another name": f"reference = torch.softmax\n{RUN}",
    "annotations that are calls": (
        f"from __future__ import annotations\ndef softmax(x: sized(torch.softmax(0, 0))) -> sized(4): return x\ndef {REFERENCE}"
    ),
    "annotations of variables": "def softmax(x):\n    y: torch.softmax(x, -1) = x\n    return y",
    "a call in an annotation": f"def sized(n): return n\ndef reference(x: sized(4)): return torch.softmax(x, -1)\n{RUN}",
    "an import for a test": (
        f'import argparse, random as r\nfrom subprocess import run as go\n{RUN}if __name__ == "__main__":\n    go(argparse, r)\n'
    ),
    "an import for a function that nobody calls": f"import argparse\n{RUN}def main(): argparse.ArgumentParser()\n",
    "an import that may fail": f"try:\n    import apex\nexcept ImportError:\n    apex = None\n{RUN}def test(): apex.softmax()\n",
    "an import for types": f"if typing.TYPE_CHECKING:\n    import argparse\n{RUN}",
    "a branch": "USE_TORCH = False\ndef softmax(x):\n    if USE_TORCH:\n        return torch.softmax(x, -1)\n    return x",
    "a branch of two conditions": (
        "USE_TORCH: bool = False\ndef softmax(x):\n    if x.is_cuda and USE_TORCH:\n        return torch.softmax(x, -1)\n    return x"
    ),
    "the other branch": "OWN = True\ndef softmax(x):\n    if not OWN: y = x @ x\n    elif OWN: y = x\n    else: y = x @ x\n    return y",
    "what follows a return": "OWN = True\ndef softmax(x):\n    if OWN:\n        return x\n    return torch.softmax(x, -1)",
    "a value": 'WAY = "own"\ndef softmax(x): return torch.softmax(x, -1) if WAY == "torch" else x',
    "a condition": "USE_TORCH = False\ndef softmax(x): return USE_TORCH and torch.softmax(x, -1) or x",
    "definitions below a closed branch": f"USE_TORCH = False\nif USE_TORCH:\n    def softmax(x): return x @ x\nelse:\n    {RUN}",
    "a guard of two conditions": f'{RUN}if __name__ == "__main__" and sys.argv:\n    torch.softmax(0, 0)\n',
    "a class of PyTorch's": (
        "from torch import nn\nclass Naive(torch.nn.Softmax):\n    def forward(self, x): return torch.softmax(x, -1)\n"
        "class Heads(nn.MultiheadAttention):\n    def merge_masks(self, x): return x @ x\n"
        f"class Old(torch.nn.modules.activation.GELU):\n    def {REFERENCE.replace('reference(', 'reference(self, ')}{RUN}"
    ),
    "a class of a plain type": f"class Table(dict):\n    def __missing__(self, x): return torch.softmax(x, -1)\n{RUN}",
    "a function in a function": f"def softmax(x):\n    def {REFERENCE}    return x",
    "a name that is exported": f'__all__ = ["softmax", "reference"]\ndef {REFERENCE}{RUN}',
    "a function named as a method that is used": "def mean(x): return x @ x\ndef softmax(x): return x.mean()",
}


@pytest.mark.parametrize("how", NEVER_RUNS)
def test_what_never_runs_may_use_anything(how: str) -> None:
    head, source = ("", NEVER_RUNS[how]) if NEVER_RUNS[how].startswith("from __future__") else (HEAD, NEVER_RUNS[how])
    assert found(head + source) == []


USES = "uses torch.softmax"
ARGPARSE = "imports argparse, which this assignment does not allow"
HIDDEN = {
    USES: {
        "a method of a method's": (
            f"class R:\n    def {REFERENCE}    def run(self, x): return self.reference(x)\nsoftmax = R().run"
        ),
        "a property": (
            "class R:\n    @property\n    def y(self): return torch.softmax(self.x, -1)\ndef softmax(x): return R().y"
        ),
        "by a name as a string": f'class R:\n    def {REFERENCE}def softmax(x): return getattr(R(), "reference")(x)',
        "by a pattern": (
            "class R:\n    @property\n    def run(self): return torch.softmax(self, -1)\n"
            "def softmax(x):\n    match R():\n        case R(run=y): return y"
        ),
        "with two underscores": "class R:\n    def __call__(self, x): return torch.softmax(x, -1)\nsoftmax = R()",
        "a private name from outside": (
            "class R:\n    def __run(self, x): return torch.softmax(x, -1)\ndef softmax(x): return R()._R__run(x)"
        ),
        "a private name from another class": (
            "class R:\n    def _S__run(self, x): return torch.softmax(x, -1)\nclass S:\n    def go(self, x): return R().__run(x)\n"
            "def softmax(x): return S().go(x)"
        ),
        "a table": f"def {REFERENCE}TABLE = {{'a': reference}}\ndef softmax(x): return TABLE['a'](x)",
        "by a metaclass": (
            "TABLE = []\nclass Meta(type):\n    def __new__(m, name, bases, names):\n        TABLE.extend(names.values())\n"
            "        return super().__new__(m, name, bases, names)\n"
            f"class R(metaclass=Meta):\n    def {REFERENCE}def softmax(x): return TABLE[-1](0, x)"
        ),
        "by an own base's metaclass": (
            "TABLE = []\nclass Meta(type):\n    def __init__(c, name, bases, names): TABLE.extend(names.values())\n"
            f"class Base(metaclass=Meta): pass\nclass R(Base):\n    def {REFERENCE}def softmax(x): return TABLE[-1](0, x)"
        ),
        "by a base that nobody knows": (
            f"class R(make()):\n    def {REFERENCE}def make(): ...\ndef softmax(x): return x"
        ),
        "by a library's base": (
            "class R(torch.Tensor):\n    def add(self, x): return torch.softmax(x, -1)\ndef softmax(x): return R(x) + x"
        ),
        "by a class of PyTorch's": (
            "class R(torch.nn.MultiheadAttention):\n    def merge_masks(self, x): return torch.softmax(x, -1)\n"
            "def softmax(x): return R(8, 1)(x, x, x)"
        ),
        "by a plain type": (
            "class R(dict):\n    def copy(self): return torch.softmax(self.x, -1)\ndef softmax(x): return dict(R(x=x))"
        ),
        "when it is inherited": (
            "LAST = []\nclass Base:\n    def __init_subclass__(cls): LAST.append(cls)\nclass R(Base):\n"
            "    def __call__(self, x): return torch.softmax(x, -1)\ndef softmax(x): return LAST[0]()(x)"
        ),
        "when it is named": (
            "LAST = []\nclass D:\n    def __set_name__(self, owner, name): LAST.append(owner)\nd = D()\nclass R:\n    d = d\n"
            "    def __call__(self, x): return torch.softmax(x, -1)\ndef softmax(x): return LAST[0]()(x)"
        ),
        "by a decorator": (
            f"LAST = []\ndef keep(f):\n    LAST.append(f)\n    return f\n@keep\ndef {REFERENCE}def softmax(x): return LAST[0](x)"
        ),
        "by what a decorator makes": (
            "LAST = []\ndef keep(f):\n    @LAST.append\n    def inner(x): return f(x)\n    return inner\n"
            f"@keep\ndef {REFERENCE}def softmax(x): return LAST[0](x)"
        ),
        "by what a decorator gives to wraps": (
            "LAST = []\ndef keep(f):\n    @functools.wraps(LAST.append(f))\n    def inner(x): return x\n    return inner\n"
            f"@keep\ndef {REFERENCE}def softmax(x): return LAST[0](x)"
        ),
        "by a decorator's default": (
            "LAST = []\ndef keep(f):\n    def inner(x, y=LAST.append(f)): return x\n    return inner\n"
            f"@keep\ndef {REFERENCE}def softmax(x): return LAST[0](x)"
        ),
        "by a decorator that is another now": (
            f"LAST = []\ndef keep(f):\n    return f\nkeep = LAST.append\n@keep\ndef {REFERENCE}def softmax(x): return LAST[0](x)"
        ),
        "by a decorator's factory": (
            "LAST = []\ndef keep(label):\n    def wrap(f):\n        LAST.append(f)\n        return f\n    return wrap\n"
            f"@keep('x')\ndef {REFERENCE}def softmax(x): return LAST[0](x)"
        ),
        "by a part of something": (
            f"LAST = []\n@functools.partial(LAST.append)\ndef {REFERENCE}def softmax(x): return LAST[0](x)"
        ),
        "by a builtin that is another now": (
            f"LAST = []\nproperty = LAST.append\nclass R:\n    @property\n    def {REFERENCE}def softmax(x): return LAST[0](0, x)"
        ),
        "by a library that is another now": (
            f"LAST = []\nclass functools:\n    cache = LAST.append\n@functools.cache\ndef {REFERENCE}def softmax(x): return LAST[0](x)"
        ),
        "in an annotation": "def softmax(x: torch.softmax(0, 0)): return x",
        "in an annotation of a module": "y: torch.softmax(0, 0) = 1\ndef softmax(x): return x",
        "a file that is only imported": "import loud\ndef softmax(x): return x\ndef test(): return loud",
    },
    "uses the method .softmax": {
        "by a pattern of a tensor": "def softmax(x):\n    match x:\n        case object(softmax=f): return f(-1)"
    },
    "runs code from a string": {
        "in a kernel's header": "import triton\n@triton.jit\ndef k(x=eval('1')): ...\ndef softmax(x): return x",
        "in a writer": "class W:\n    def write(self, s): exec(s)\ndef softmax(x): print('x = 1', file=W())",
        "in a writer's function": (
            "class W:\n    def write(self, s):\n        def go(): exec(s)\n        go()\ndef softmax(x): print('x = 1', file=W())"
        ),
    },
    "runs code from annotations (typing.get_type_hints)": {
        "in an annotation that is looked up": (
            "def helper(x: 'torch.softmax'): ...\ndef softmax(x): return typing.get_type_hints(helper)['x'](x, -1)"
        )
    },
    "runs code from annotations (functools.singledispatch)": {
        "in an annotation that is registered": (
            "@functools.singledispatch\ndef softmax(x): return x\n@softmax.register\ndef _(x: 'LAST.append(torch.softmax)'): ..."
        )
    },
    ARGPARSE: {
        "an import that is used": "import argparse\ndef softmax(x): return argparse.x",
        "an import that nobody uses": "import argparse\ndef softmax(x): return x",
        "an import of another file's": "import tiles\ndef softmax(x): return tiles.argparse.x",
    },
}
SWITCH = "USE_TORCH = False\ndef softmax(x):\n    if USE_TORCH: return torch.softmax(x, -1)\n    return x\n"
OPENED = {
    "later": "USE_TORCH = True\n",
    "in a loop": "for USE_TORCH in [True]: pass\n",
    "by a function": "def turn():\n    global USE_TORCH\n    USE_TORCH = True\nturn()\n",
    "by an import": "from tiles import T as USE_TORCH\n",
    "by all imports": "from tiles import *\n",
    "in an expression": "print(USE_TORCH := True)\n",
    "by a context": "with open('x') as USE_TORCH: pass\n",
    "by an exception": "try: 1/0\nexcept ZeroDivisionError as USE_TORCH: pass\n",
    "by a pattern": "match 1:\n    case USE_TORCH: pass\n",
    "by the module": "import softmax as me\nme.USE_TORCH = True\n",
    "by setattr": "import softmax as me\nsetattr(me, 'USE_TORCH', True)\n",
    "by another file": "import turns\n",
    "by a class": "class USE_TORCH: pass\n",
    "by a function's name": "def USE_TORCH(): pass\n",
    "in part": "USE_TORCH |= True\n",
    "by taking it away": "del USE_TORCH\n",
}


@pytest.mark.parametrize(("words", "how"), [(words, how) for words, sources in HIDDEN.items() for how in sources])
def test_what_runs_is_found(words: str, how: str) -> None:
    source = HIDDEN[words][how]
    others = {"tiles": "import argparse\nT = True\n", "loud": "import torch\ntorch.softmax(0, 0)\n"}
    assert any(words in one for one in found(HEAD + source, **others)), found(HEAD + source, **others)


@pytest.mark.parametrize("how", OPENED)
def test_a_constant_that_changes_closes_nothing(how: str) -> None:
    others = {"tiles": "T = True\n", "turns": "import softmax\nsoftmax.USE_TORCH = True\n"}
    assert found(HEAD + SWITCH) == []
    assert USES in found(HEAD + SWITCH + OPENED[how], **others)


@pytest.mark.parametrize(
    "source",
    [
        "def softmax(x, USE_TORCH=True):\n    if USE_TORCH: return torch.softmax(x, -1)\nUSE_TORCH = False\n",
        "if print: softmax = torch.softmax\nprint = False\n",
        "if x: USE_TORCH = False\ndef softmax(x):\n    if USE_TORCH: return torch.softmax(x, -1)\n",
        "from typing import TYPE_CHECKING\nTYPE_CHECKING = True\nif TYPE_CHECKING: softmax = torch.softmax\n",
        "typing.TYPE_CHECKING = True\nif typing.TYPE_CHECKING: softmax = torch.softmax\n",
        "__name__ = '__main__'\nif __name__ == '__main__' and True: softmax = torch.softmax\n",
        "def softmax(x):\n    with contextlib.suppress(Exception):\n        raise Exception\n    return torch.softmax(x, -1)\n",
        "def softmax(x):\n    try:\n        raise Exception\n    except Exception:\n        return torch.softmax(x, -1)\n",
        "def softmax(x):\n    for one in x:\n        continue\n    else:\n        return torch.softmax(x, -1)\n",
    ],
)
def test_what_may_be_reached_is_read(source: str) -> None:
    assert USES in found(HEAD + source)


BACKWARD = """
class F(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return prepare(x)

    @staticmethod
    def backward(ctx, g):
        return by_hand(g)

def prepare(x): return x
def by_hand(g): return {product}
softmax = F.apply
"""


@pytest.mark.parametrize("product", ["g @ g", "torch.nn.functional.linear(g, g)"])
def test_a_backward_pass_is_read_where_gradients_are_asked_for(product: str) -> None:
    source = HEAD + BACKWARD.format(product=product)
    assert found(source, gradients=False) == []
    assert len(found(source, gradients=True)) == 1


@pytest.mark.parametrize(
    "asked",
    [
        "F.backward(None, x)",
        "torch.autograd.grad(F.apply(x), x)",
        "torch.func.vjp(F.apply, x)",
        "F.apply(x).backward()",
    ],
)
def test_a_forward_pass_that_asks_for_gradients_is_read_with_them(asked: str) -> None:
    source = HEAD + BACKWARD.format(product="g @ g").replace("return x", f"return {asked}")
    assert "uses the operator @" in found(source, gradients=False)


def test_what_hides_is_refused_in_a_backward_pass_in_any_case() -> None:
    source = HEAD + BACKWARD.format(product="g").replace("return by_hand(g)", "return exec(g)")
    assert found(source, gradients=False) == ["runs code from a string (exec)"]


ELSEWHERE = """
class Plain(torch.autograd.Function):
    @staticmethod
    def backward(ctx, g):
        return g @ g

class F(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x

    backward = Plain.backward

softmax = F.apply
"""
UNDERSCORED = """
class F(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x

    @staticmethod
    def backward(ctx, g):
        return F.{name}(g)

    @staticmethod
    def {name}(g):
        return g @ g

softmax = F.apply
"""


@pytest.mark.parametrize(
    "source", [ELSEWHERE, UNDERSCORED.format(name="_by_hand")], ids=["another class's", "a helper with an underscore"]
)
def test_what_a_backward_pass_alone_uses_is_read_with_gradients_alone(source: str) -> None:
    assert found(HEAD + source, gradients=False) == []
    assert "uses the operator @" in found(HEAD + source, gradients=True)


def test_a_method_that_takes_the_place_of_pytorchs_own_is_read() -> None:
    module = (
        HEAD
        + "class M(torch.nn.Module):\n    def _call_impl(self, x):\n        return torch.softmax(x, -1)\nsoftmax = M()\n"
    )
    assert USES in found(module)
