"""CUDA GeLUs that are right or wrong on a GPU, and the starter: gradings without speed."""

from __future__ import annotations

import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch

from tests.conftest import ROOT, Ran, Running
from tests.support.gelus import FAST, HALF, KERNEL, RIGHT, TORCH_FORM

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(500)]
if not torch.cuda.is_available():
    pytest.skip("needs a CUDA GPU", allow_module_level=True)


def outcomes(ran: Ran) -> dict[str, str]:
    assert ran.report is not None, ran.errors
    return {case.name: case.outcome for case in ran.report.assignments[0].parts[0].cases}


FORMULAS = {
    "right-tanhf": RIGHT,
    "right-fast-exp": FAST,
    "right-in-double": RIGHT.replace("0.044715f", "0.044715"),
    "wrong-half-tanh": HALF,
    "wrong-erf": "0.5f * v * (1.0f + erff(v * 0.70710678f))",
    "wrong-constant": RIGHT.replace("0.044715f", "0.044f"),
}
# change of the source, case, outcome, words
MISTAKES = {
    "one-past-the-end": (
        ("if (i < n)", "if (i <= n)"), "n-1025", "failed", "wrote 1 element past the end of y, from 0 past it",
    ),
    "no-blocks": (
        ("if (n > 0) ", ""), "n-0", "failed",
        "line 13 launches kernel with 0 blocks of 256 threads; a grid needs at least 1 block",
    ),
    "too-small-a-grid": (("n + 255) / 256", "n) / 256"), "n-1025", "failed", "never written"),
    "32-bit-index": (
        ("int64_t i = blockIdx.x * (int64_t)blockDim.x", "int i = blockIdx.x * (int)blockDim.x"), "beyond-2-31", "", "",
    ),
    "illegal-access": (("y[i] =", "y[1ll << 44] ="), "n-1", "crashed", "illegal memory access"),
    "endless-kernel": (
        ("float v = x[i];", "float v = x[i]; while (v == v) v = ((volatile float*)x)[0];"), "n-1", "timed_out", "no answer within",
    ),
    "cpp-name": (('extern "C" ', ""), "n-1", "failed", 'is it declared extern "C"?'),
}  # fmt: skip
SOURCES = (
    {name: KERNEL.replace("FORMULA", formula) for name, formula in FORMULAS.items()}
    | {name: KERNEL.replace("FORMULA", RIGHT).replace(*mistake[0]) for name, mistake in MISTAKES.items()}
    | {
        "does-not-compile": KERNEL.replace("FORMULA", "undefined_thing"),
        "touched-stub": (ROOT / "starter/gelu.cu").read_text() + "\n// tomorrow\n",
        "torch-form": TORCH_FORM,
    }
)


class Crowd:
    """Runs that do not mind each other, four at a time; `crowd[name]` waits for one of them. All are quick looks without speed."""

    def __init__(self, factory: pytest.TempPathFactory) -> None:
        names = dict.fromkeys(["torch-form", "starter", *SOURCES])  # what takes longest first
        folders = {name: factory.mktemp(name) for name in names}  # in one thread: pytest makes them for one alone
        with ThreadPoolExecutor(4) as threads:
            self._runs = {name: threads.submit(self._run, name, folder) for name, folder in folders.items()}

    def __getitem__(self, name: str) -> Ran:
        return self._runs[name].result()

    def _run(self, name: str, folder: Path) -> Ran:
        if name == "starter":
            return Running(folder, [str(ROOT / "starter"), "--quick", "--no-speed"]).finish()
        course = ROOT if name != "endless-kernel" else impatient_course(folder)
        submission = folder / "submission"
        submission.mkdir()
        (submission / "gelu.cu").write_text(SOURCES[name])
        options = [] if name == "32-bit-index" else ["--quick"]
        arguments = [str(submission), "--assignment", "cuda_gelu", "--course", str(course), "--no-speed", *options]
        return Running(folder, arguments).finish()


def impatient_course(folder: Path) -> Path:
    """The course with a shorter time limit, or every case waits for its own."""
    for room in ("assignments", "reference", "starter"):
        shutil.copytree(ROOT / room, folder / "course" / room)
    toml = folder / "course/assignments/cuda_gelu/problem.toml"
    toml.write_text(toml.read_text().replace("cuda = 20", "cuda = 2").replace("time_limit_s = 30", "time_limit_s = 2"))
    return folder / "course"


@pytest.fixture(scope="module")
def crowd(tmp_path_factory: pytest.TempPathFactory) -> Crowd:
    return Crowd(tmp_path_factory)


@pytest.mark.parametrize("name", [name for name in FORMULAS if name.startswith("right")])
def test_right_formulas_pass(crowd: Crowd, name: str) -> None:
    assert set(outcomes(crowd[name]).values()) == {"passed", "skipped"}


def test_a_right_kernel_in_double_precision_gets_a_hint(crowd: Crowd) -> None:
    """From the PTX that nvcc --keep leaves behind."""
    reports = [crowd[name].report for name in ("right-in-double", "right-tanhf")]
    told, none = (report.assignments[0].hints for report in reports if report is not None)
    assert none == ()
    assert [hint.partition(",")[0] for hint in told] == ["gelu.cu:9: computed in double precision"]
    assert "write 0.044715f" in told[0]


@pytest.mark.parametrize("name", [name for name in FORMULAS if name.startswith("wrong")])
def test_imprecise_or_wrong_formulas_fail(crowd: Crowd, name: str) -> None:
    assert outcomes(crowd[name])["n-1048579"] == "failed"


@pytest.mark.parametrize("name", MISTAKES)
def test_a_wrong_cuda_kernel_is_told_what_is_wrong(crowd: Crowd, name: str) -> None:
    change, case, outcome, words = MISTAKES[name]
    assert change[0] in KERNEL.replace("FORMULA", RIGHT)
    result = crowd[name].case("cuda_gelu", case)
    everything = "\n".join([result.message, *result.diagnosis])
    assert result.outcome == outcome if outcome else result.outcome not in ("passed", "skipped"), everything
    assert words in everything
    assert crowd[name].left == []


def test_a_cu_file_that_does_not_compile_shows_nvccs_first_errors(crowd: Crowd) -> None:
    result = crowd["does-not-compile"].case("cuda_gelu", "n-1")
    assert result.outcome == "build_failed"
    assert "gelu.cu(9): error" in result.message
    assert "undefined_thing" in result.message


def test_a_touched_stub_is_not_implemented(crowd: Crowd) -> None:
    # In a quick look the largest case is left out before anybody asks the stub.
    assert set(outcomes(crowd["touched-stub"]).values()) - {"skipped"} == {"not_implemented"}


def test_the_torch_form_is_accepted(crowd: Crowd) -> None:
    assert set(outcomes(crowd["torch-form"]).values()) == {"passed", "skipped"}, crowd["torch-form"].output


def test_the_starter_is_not_implemented_throughout(crowd: Crowd) -> None:
    ran = crowd["starter"]
    assert ran.report is not None
    assert {case.outcome for one in ran.report.assignments for part in one.parts for case in part.cases} == {
        "not_implemented"
    }
