"""Reading a submission's source ends, whatever was written so that it should not; and what is read is what will run."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from grader.judge.reading import MAX_HINTS, Answer, Question, read
from tests.conftest import ROOT

ASKED = Question("softmax.py", "triton", ("torch", "triton", "contextlib", "typing"), ("torch.softmax",))
KERNEL = "import triton\n@triton.jit\ndef kernel(x): ...\n"
ENDLESS = "x = 1\n" * 200_000
HOSTILE = {
    "names that are made of each other": "import torch\na = torch\nb = a\n"
    + "".join(f"a = b.p{n}\nb = a.q{n}\n" for n in range(99)),
    "names that grow": "import torch\na = torch\n" + "a = a.b\n" * 5000,
    "a long chain of functions": "".join(f"def f{n}(x): return f{n + 1}(x)\n" for n in range(20_000)),
    "a function of many lines": "def softmax(x):\n" + "    x = x\n" * 50_000,
}
HOSTILE_CUDA = {
    "strings that do not end": '"\\' * 400_000,
    "characters that do not end": "'\\" * 400_000,
    "comments that do not end": "/* " * 300_000,
    "raw strings that do not end": 'R"x(' * 200_000,
    "headers that do not end": "#include <" * 90_000,
    "lines that go on": "\\\n" * 400_000,
}


def submission(folder: Path, **files: str | bytes) -> list[str]:
    for name, content in files.items():
        (folder / f"{name}.py").write_bytes(content if isinstance(content, bytes) else content.encode())
    return [f"{name}.py" for name in files]


def read_one(folder: Path, files: list[str], asked: Question = ASKED) -> Answer:
    (found,) = read(folder, files, [asked])
    assert found is not None
    return found


def test_the_staffs_answers_are_read_and_their_kernels_found() -> None:
    files = ["softmax.py", "gelu.cu"]
    cuda_asked = Question("gelu.cu", "cuda", (), ("cublas",))
    without_policy = Question("softmax.py", "triton", None, ("torch.empty",))
    softmax, cuda, plain = (read_one(ROOT / "reference", files, one) for one in (ASKED, cuda_asked, without_policy))
    assert [(one.count, one.hints) for one in (softmax, cuda, plain)] == [(0, ())] * 3
    assert {"softmax_kernel", "softmax_pieces_kernel"} <= softmax.kernels
    assert cuda.kernels == {"gelu_kernel"}


def test_no_more_is_told_than_is_shown(tmp_path: Path) -> None:
    text = "import ctypes\n" * 1000 + "import torch\ndef softmax(x):\n" + "    torch.softmax(x)\n" * 1000
    found = read_one(tmp_path, submission(tmp_path, softmax=text))
    assert (found.count, [one.line for one in found.refused], found.refused[0].code) == (
        1000,
        [1, 2, 3],
        "import ctypes",
    )
    assert (len(found.hints), found.hints[0].line, found.hints[0].code) == (MAX_HINTS, 1003, "torch.softmax(x)")


def test_what_cannot_be_read_holds_up_nobody_else(tmp_path: Path) -> None:
    files = submission(tmp_path, softmax=ENDLESS)
    (tmp_path / "gelu.cu").write_text("void gelu() {}")
    cuda = Question("gelu.cu", "cuda", (), ())
    found = read(tmp_path, [*files, "gelu.cu"], [cuda, ASKED, cuda], cpu_limit_s=1)
    assert [one is None for one in found] == [False, True, False]


@pytest.mark.parametrize("how", HOSTILE)
def test_python_is_read_in_time(tmp_path: Path, how: str) -> None:
    read_one(tmp_path, submission(tmp_path, softmax=HOSTILE[how]))


@pytest.mark.parametrize("how", HOSTILE_CUDA)
def test_cuda_is_read_in_time(tmp_path: Path, how: str) -> None:
    (tmp_path / "gelu.cu").write_text(HOSTILE_CUDA[how])
    (found,) = read(tmp_path, ["gelu.cu"], [Question("gelu.cu", "cuda", (), ("cublas", "at::gelu"))])
    assert found is not None


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (b"# coding: no_such_thing\n", "softmax.py, line 1: the comment names the encoding no_such_thing"),
        (b"x = '\xff'\n", "softmax.py, line 1: the byte 0xFF is not UTF-8"),
        (b"import helper\n", "helper.py, line 2: the byte 0xE9 is not UTF-8"),
        (b"x = 1\n\0", "softmax.py, line 2: there is a NUL byte"),
        (b"x = (", ""),  # Python says it well
        (b"def test(): import helper\n", ""),
    ],
)
def test_what_python_cannot_import_is_told_with_its_line(tmp_path: Path, text: bytes, told: str) -> None:
    files = submission(tmp_path, softmax=text, other=KERNEL, helper=b"\n# caf\xe9\n")
    for asked in (ASKED, replace(ASKED, imports=None)):
        found = read_one(tmp_path, files, asked)
        assert (found.count, found.kernels) == (0, {"kernel"})
        assert found.unreadable.startswith(told) if told else found.unreadable == ""


RETURN = "return torch.softmax(x)"
DEFINED = f"def softmax(x): {RETURN}"


@pytest.mark.parametrize(
    ("source", "line", "code"),
    [
        (b"# coding: unicode_escape\nimport torch\n# \\u000adef softmax(x): return torch.softmax(x)\n", 4, ""),
        (b"# J\xf6rg\nimport torch\ndef softmax(x): return torch.softmax(x)\n", 3, DEFINED),
        ("import torch\n# \u2028 \x0c \x0b\r\ndef softmax(x):\r    return torch.softmax(x)\n".encode(), 4, RETURN),
    ],
    ids=["its encoding", "a comment that is no UTF-8", "its lines"],
)
def test_a_file_is_read_as_python_reads_it(tmp_path: Path, source: bytes, line: int, code: str) -> None:
    (hint,) = read_one(tmp_path, submission(tmp_path, softmax=source)).hints
    assert (hint.line, hint.words, hint.code) == (line, "uses torch.softmax", code)


def test_cuda_files_are_text_too(tmp_path: Path) -> None:
    asked = Question("gelu.cu", "cuda", (), ())
    (tmp_path / "wide.h").write_bytes("int n;".encode("utf-16"))
    for source, told in (
        ('\ufeff// “quoted”, \u00a0\nconst char* s = "“”";\n', ""),
        ("int a;\nconst char* s = “a”;\n", "gelu.cu, line 2: a curly quote “ (U+201C): type a straight one"),
        ('#include "wide.h"\n', "wide.h, line 1: the file is saved as UTF-16: save the file as UTF-8"),
    ):
        (tmp_path / "gelu.cu").write_text(source)
        found = read_one(tmp_path, ["gelu.cu", "wide.h"], asked)
        assert found.unreadable == told


def test_it_ends_with_whoever_asked(tmp_path: Path) -> None:
    """A judge that is stopped while its background reads leaves nothing behind; nor does one that ended before."""
    program = [sys.executable, "-m", "grader.judge.reading", str(tmp_path), "20"]
    late = subprocess.run([*program, "1"], cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, check=True)
    assert (late.stdout, late.stderr) == (b"", b"")
    judge = (
        "import os, subprocess, sys, time\n"
        f"reading = subprocess.Popen([*{program!r}, str(os.getpid())])\n"
        "print(reading.pid, flush=True)\n"
        "time.sleep(2)\n"
        "assert reading.poll() is None\n"
        "os._exit(0)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", judge], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as asked:
        assert asked.stdout is not None
        reading = psutil.Process(int(asked.stdout.readline()))
        assert asked.wait(20) == 0
        assert not psutil.wait_procs([reading], timeout=10)[1]  # though what it reads from has not ended
