"""Whatever is asked about a C++ file is asked of its code: a comment, a string or a dead branch answers nothing."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from grader.protocol import INCLUDE, Parameter, code_of
from grader.verdict import text
from grader.verdict.hints import hint_for
from grader.verdict.policy import cuda_findings, cuda_kernels, included_from
from grader.worker import doubles, torch_form
from grader.worker.cuda_cpu.build import Unsupported, _translate, refuse_unsupported
from grader.worker.cuda_cpu.declarations import device_code, dynamic_shared, parameters
from grader.worker.cuda_cpu.rewrite import rewrite
from grader.worker.cuda_cpu.tracing import has_vectors
from grader.worker.entries import missing_in_library, undefined
from grader.worker.signature import Signature

SIGNATURE = Signature((Parameter("const float*", "x"), Parameter("float*", "y")), lambda _: 0)
WIDE = "#include <torch/extension.h>\n"

# Where a compiler finds no code. The words stand on a line of their own, as a directive must.
HIDDEN = {
    "a comment": "// {}\n",
    "a comment of a whole line's words": "/* {} */ int n;\n",
    "a comment of several lines": "/*\n{}\n*/\n",
    "a comment that a backslash continues": "// as before: \\\n {}\n",
    "a string": 'const char* s = "{quoted}";\n',
    "a raw string": 'const char* s = R"x(\n{}\n)x";\n',
    "#if 0": "#if 0\nit's {}\n{}\n#endif\n",
    "the else of #if 1": "#if 1 // now\n#elif WIDE\n{}\n#else\n{}\n#endif\n",
    "#if false": "#if false\n{}\n#endif\n#if (0)\n{}\n#endif\n#if !1\n{}\n#endif\n#if defined(A) && 0\n{}\n#endif\n",
    "a macro that is 0": "#define USE_IT 0\n#if USE_IT\n{}\n#endif\n",
    "a macro that nobody defines": "#ifdef WITH_IT\n{}\n#endif\n#if WITH_IT\n{}\n#endif\n#if defined(WITH_IT)\n{}\n#endif\n",
    "an #if within #if 0": "#if 0\n#if 1\n#endif\n{}\n#ifdef A\n{}\n#else\n{}\n#endif\n#endif\n",
}
# Where it finds some, though a hasty reader may not.
ALIVE = {
    "a line": "{}\n",
    "the else of #if 0": "#if 0\n#else\n{}\n#endif\n",
    "a condition that goes on": "#if 0 \\\n || 1\n{}\n#endif\n#if 0 /*\n*/ || 1\n{}\n#endif\n",
    "a macro that is 1": "#define USE_IT 1\n#if USE_IT\n{}\n#endif\n",
    "a macro that is there": "#define WITH_IT\n#ifdef WITH_IT\n{}\n#endif\n",
    "a macro of the compiler's": "#ifdef __CUDACC__\n{}\n#endif\n#if CUDA_VERSION\n{}\n#endif\n",
    "a macro that another file may define": '#include "settings.h"\n#ifdef WITH_IT\n{}\n#endif\n',
    "a macro that is not there": "#ifndef WITH_IT\n{}\n#endif\n#if !defined(WITH_IT)\n{}\n#endif\n",
    "after #if 0 in a comment": "/*\n#if 0\n*/\n{}\n",
    "after a comment in a character": "#define A ' /* '\n{}\n#define B ' */ '\n",
    "after a comment in a comment": "// \\\n /*\n{}\n// */\n",
    "between strings with suffixes": 'auto s = "a"R"(x" "";\n{}\nauto t = ")";\n',
    "after an apostrophe in a number": "int n = 1'000;\n{}\n",
    "after an apostrophe in words": "#define A don't /* mind\n{}\n#define B */\n",
    "after a raw string": 'auto s = R"(")" "/*";\n{}\n',
}


def file(folder: Path, source: str) -> Path:
    path = folder / "gelu.cu"
    path.write_text(source)
    return path


def extensions(folder: Path, source: str) -> list[torch_form.Extension]:
    return torch_form.extensions(file(folder, source), "gelu", SIGNATURE)


def is_refused(source: str) -> bool:
    try:
        refuse_unsupported(source)
    except Unsupported:
        return True
    return False


def is_a_kernel(folder: Path, source: str) -> bool:
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("needs g++")
    built = folder / "built.o"
    command = [compiler, "-c", "-x", "c++", "-", "-o", str(built)]
    subprocess.run(command, input=b'extern "C" void helper(int) {}\n', check=True)
    return "helper" not in str(missing_in_library(file(folder, f"void helper(int) {{}}\n{source}"), "gelu", built))


# A question, and the words that answer it with yes.
Question = Callable[[Path, str], bool]
QUESTIONS: dict[str, tuple[str, Question]] = {
    "the torch form": ("#include <ATen/ATen.h>", lambda at, it: torch_form.is_torch_form(file(at, it))),
    "a narrow build": ("#include <torch/extension.h>", lambda at, it: len(extensions(at, it)) == 2),
    "gradients": ("x.requires_grad(true);", lambda at, it: len(extensions(at, WIDE + it)) == 1),
    "a binding by hand": (
        "PYBIND11_MODULE(a, m) {}",
        lambda _, it: not torch_form.binding(it, "gelu", SIGNATURE),
    ),
    "the binding's header": (
        "pybind11::object o;",
        lambda at, it: "TORCH_NARROW_BINDS" in extensions(at, WIDE + it)[0].texts["gelu.cu"],
    ),
    "a tensor by reference": (
        "torch::Tensor gelu(const torch::Tensor& x);",
        lambda _, it: "gelu(const torch::Tensor& x" in torch_form.binding(it, "gelu", SIGNATURE),
    ),
    "a tensor that no header declares": (
        "torch::Tensor x;",
        lambda at, it: bool(torch_form.undeclared_tensor(file(at, f"#include <c10/a.h>\n{it}"))),
    ),
    "the module's line": (
        "PYBIND11_MODULE(a, m) {}",
        lambda at, it: "m.def" in str(torch_form.missing_in_extension(file(at, it), "gelu", ["other"])),
    ),
    "an own header": (
        '#include "a.h"',
        lambda _, it: "a.h" in included_from("gelu.cu", {"gelu.cu": it, "a.h": ""}),
    ),
    "a library": (
        "cublasSgemm(handle);",
        lambda _, it: bool(cuda_findings(included_from("f", {"f": it}), "f", ["cublas"])),
    ),
    "a library's macro": (
        "#include <cublas_v2.h>",
        lambda _, it: bool(cuda_findings({"f": f"{code_of(it)}\ncublasS x;"}, "f", ["cublas"])),
    ),
    "a kernel": ("__global__ void k(float* x) {}", lambda _, it: bool(cuda_kernels([code_of(it)]))),
    "a kernel's parameters": ("__global__ void k(float* x) {}", lambda _, it: bool(parameters(it))),
    "device code": ("__global__ void k(float* x) {}", lambda _, it: bool(device_code(it))),
    "shared memory": ("extern __shared__ float s[];", lambda _, it: bool(dynamic_shared(it))),
    "vectors": ("float4 v;", lambda _, it: has_vectors([it])),
    "assembly": ('asm("x");', lambda _, it: "static_assert" in rewrite(it)),
    "a launch": ("k<<<1, 2>>>(x);", lambda _, it: "cuda_cpu::launch" in rewrite(it)),
    "a texture": ("cudaTextureObject_t t;", lambda _, it: is_refused(it)),
    "a library that no CPU has": ("#include <cutlass/cutlass.h>", lambda _, it: is_refused(it)),
    "a header of the toolkit": (
        "#include <thrust/pair.h>",
        lambda at, it: _translate(file(at, it), at, at / "translated") == ["thrust/pair.h"],
    ),
    "a mark of git": ("<<<<<<< HEAD", lambda _, it: bool(text.left_over("f", code_of(it)))),
    "a word processor's quote": ("n = ’a;", lambda _, it: bool(text.stray_character("f", code_of(it)))),
    "a double": (
        "y = 0.5 * x;",
        lambda at, it: ": 0.5" in doubles.told([(file(at, it).name, line + 1) for line in range(it.count("\n"))], at),
    ),
    "where a name is used": (
        "helper(x);",
        lambda at, it: "gelu.cu:" in undefined("undefined symbol: helper", file(at, it)).partition("error")[0]
        and undefined("undefined symbol: helper", file(at, it))[8].isdigit(),
    ),
    "whether it is a kernel": ("__global__ void helper(int);", is_a_kernel),
}  # fmt: skip


def written(form: str, words: str) -> str:
    quoted = words.replace("\\", "\\\\").replace('"', '\\"')
    return form.replace("{quoted}", quoted).replace("{}", words)


@pytest.mark.parametrize("question", QUESTIONS)
def test_what_is_code_answers_and_what_is_none_does_not(tmp_path: Path, question: str) -> None:
    words, ask = QUESTIONS[question]
    assert not ask(tmp_path, "".join(written(form, words) for form in HIDDEN.values()))
    assert ask(tmp_path, f"\n{words}\n")


@pytest.mark.parametrize("where", HIDDEN)
def test_what_is_no_code_answers_nothing(where: str) -> None:
    source = written(HIDDEN[where], "cublasSgemm(handle);")
    assert not cuda_findings(included_from("f", {"f": source}), "f", ["cublas"])


@pytest.mark.parametrize("where", ALIVE)
def test_code_cannot_be_hidden(where: str) -> None:
    source = written(ALIVE[where], "cublasSgemm(handle);")
    assert cuda_findings(included_from("f", {"f": source}), "f", ["cublas"])


def test_lines_keep_their_numbers_and_strings_can_be_kept() -> None:
    source = 'int a; /* b\n */ cu\\\nbl\\ \r\nas(R"(// \n)");\n#define X(a) \\\n  f("//", a) // c\n%:include <a.h>\n'
    assert (
        code_of(source)
        == "int a;     \n    cublas\n\n(      \n  );\n#define X(a)  \n  f(    , a)     \n#include <a.h>\n"
    )
    kept = 'int a;     \n    cublas\\\n\\\n(R"(// \n)");\n#define X(a) \\\n  f("//", a)     \n#include <a.h>\n'
    assert code_of(source, strings=True) == kept


@pytest.mark.parametrize(
    "include", ['# /* a */ include /* b */ "own.h"', '#incl\\\nude "own.h"', '/* a\n */ #include "own.h"']
)
def test_a_header_is_included_by_whatever_way(include: str) -> None:
    assert INCLUDE.findall(" ".join(code_of(include).split())) == ["own.h"]


def test_a_hint_looks_at_the_code_of_a_line() -> None:
    message, place = "TypeError: 'int' object is not iterable", '  File "softmax.py", line 3, in softmax\n    {}'
    assert hint_for(message, place.format("kernel[4](x, y)")) == "grid-is-no-tuple"
    assert hint_for(message, place.format("g(x)  # was kernel[4](x, y)")) == ""
    assert hint_for(message, place.format("g(x, 'kernel[4](x, y)')")) == ""
    message, place = "gelu.cu(3): error: expression must have integral or unscoped enum type", "      {}\n      ^\n"
    assert hint_for(message, place.format("k<<1, 2>>(x);")) == "launch-brackets"
    assert hint_for(message, place.format("y[i] = x[i] % 2; // k<<1, 2>>(x)")) != "launch-brackets"
