"""A profile on a terminal: one screen a case, and no word of a student's as markup."""

from __future__ import annotations

import io
import re
from dataclasses import replace

from rich.console import Console

from grader.messages import CaseNote, CaseStarted, Profiled
from grader.profile.facts import case_profile
from grader.profile.model import CaseProfile, GpuRun, KernelCounters, Profile, RanLine, TimedSize, Waves
from grader.profile.views import ProfileProgress, line_notes, moved_words, print_profile, products_words, tables, title
from grader.protocol import Trace, TracedOperator
from tests.report.building import measured
from tests.support.traces import H200, N, bare_case, elementwise, rows, triton_kernel

SOURCE = "\n" * 19 + "    x = tl.load(x_ptr + columns, mask=columns < n_columns)\n" * 20
COPY = TracedOperator("clone", "kernel.py:60", 1, 4 * N, 4 * N)
KERNEL = triton_kernel("softmax_kernel", 4, registers=40, spilled=16)
KERNEL_THAT_RAN = RanLine(
    name="softmax_kernel",
    own=True,
    calls=2,
    time_ms=0.9,
    share=0.9,
    grid=(4, 1, 1),
    threads=128,
    registers=40,
    shared_bytes=0,
)


def three_passes(**fields: object) -> CaseProfile:
    blank = bare_case(assignment="softmax", part="softmax", case="wide", size="shape 16384 × 16384", gpu="NVIDIA H200")
    found = case_profile(blank, Trace((rows(3, warps=4),), (COPY,)), (KERNEL,), H200, {"kernel.py": SOURCE})
    return found.model_copy(update=fields)


def shown(*cases: CaseProfile, width: int = 80, **fields: object) -> str:
    out = io.StringIO()
    profile = Profile(submission="/home/ada/mine", grader_version="1.0", cases=cases, **fields)  # type: ignore[arg-type]
    print_profile(profile, Console(file=out, width=width, color_system=None))
    return out.getvalue()


def words(text: str) -> str:
    """The text without its frame and line breaks."""
    return " ".join(text.replace("│", " ").split())


def test_a_case_is_on_one_screen_with_its_reasons_first() -> None:
    text = shown(three_passes())
    lines = text.splitlines()
    assert len(lines) <= 40
    assert max(map(len, lines)) <= 80
    said = words(text)
    order = (
        "softmax: wide",
        "shape 16384 × 16384, float32; for NVIDIA H200",
        "moves 6.44 GB through L2, needed 2.15 GB: 3.0 ×",
        "1. kernel.py:",
        "kernel.py:20 each block reads its part of x_ptr three times",
        "kernel grid × block",
        "softmax_kernel 16384 × 128 40+16B",
        "clone kernel.py:60",
        "reads x_ptr 20 1.07 GB x = tl.load(",
    )
    places = [said.find(one) for one in order]
    assert -1 not in places, order[places.index(-1)]
    assert places == sorted(places)


def test_the_costliest_lines_come_first_and_the_rest_is_left_out() -> None:
    (line,) = three_passes().launches[0].lines[:1]
    many = [line.model_copy(update={"line": number, "bytes": 1e9 / number}) for number in range(20, 40)]
    launch = three_passes().launches[0].model_copy(update={"lines": tuple(reversed(many))})
    text = shown(three_passes(launches=(launch,), operators=(), remarks=()))
    assert [f" {number} " in text for number in (20, 26, 27, 39)] == [True, True, False, False]
    wasteful = many[-1].model_copy(update={"sectors_ratio": 8.0, "bytes": 0.9e9})
    text = shown(
        three_passes(launches=(launch.model_copy(update={"lines": (*many, wasteful)}),), operators=(), remarks=())
    )
    rows_of_table = [one for one in text.splitlines() if "reads x_ptr" in one]
    assert "8.0 × the sectors" in rows_of_table[0], "what it moves counts"


def test_what_is_not_known_is_a_question_mark_with_the_reason() -> None:
    blank = bare_case(unknown="there is no nvcc here")
    text = shown(case_profile(blank, Trace((elementwise(width=16),)), (), H200, {}))
    assert "there is no nvcc here" in text
    assert "262144 × 256 ? 0 ? ? 2.15 GB" in words(text)
    assert "none of the known causes" not in text, "registers are not known"


def test_a_kernel_without_a_known_cause_is_told_so() -> None:
    found = case_profile(bare_case(), Trace((rows(1),)), (triton_kernel("softmax_kernel", 8),), H200, {})
    told = "none of the known causes of slow kernels was found"
    assert told in shown(found)
    assert told in shown(found.model_copy(update={"unknown": "Nsight Compute counted nothing"}))
    assert told not in shown(found.model_copy(update={"is_cut": True}))
    assert told not in shown(three_passes())


def test_bytes_of_blocks_that_were_stopped_are_not_compared_with_those_needed() -> None:
    found = case_profile(bare_case(), Trace((elementwise(cut=True),)), (), H200, {})
    assert moved_words(found) == "moves at least 2.15 GB through L2, needed 2.15 GB"


def test_products_are_told_beside_those_needed() -> None:
    launch = three_passes().launches[0].model_copy(update={"flops": 206e9})
    assert products_words(three_passes()) == ""
    found = three_passes(launches=(launch,), needed_flops=103e9)
    assert products_words(found) == "206 GFLOP of products, needed 103: 2.0 ×"
    assert "206 GFLOP of products" in words(shown(found))


def test_a_case_without_a_trace_says_why() -> None:
    text = shown(bare_case(unknown="it could not be traced: it crashed"))
    assert "it could not be traced: it crashed" in text
    assert "needed" not in text


def test_cases_that_have_no_profile_for_one_reason_are_told_together() -> None:
    absent = [bare_case(case=name, unknown="there is no gelu.cu in the submission") for name in ("large", "small")]
    text = words(shown(*absent, three_passes(), bare_case(unknown="it crashed")))
    assert text.count("there is no gelu.cu in the submission") == 1
    told = "no profile of cuda_gelu gelu: large, cuda_gelu gelu: small: there is no gelu.cu in the submission"
    assert text.endswith(f"{told} no profile of cuda_gelu gelu: large: it crashed")
    assert text.index("softmax: wide") < text.index("no profile of")


def test_what_ran_on_a_gpu_is_there() -> None:
    ran = GpuRun(gpu="NVIDIA H100", kernels=(KERNEL_THAT_RAN,), host_ms=3.0, device_ms=1.0, busy_ms=0.95)
    timed = (
        TimedSize(size="shape 4", measured=measured()),
        TimedSize(size="shape 8", unknown="no memory"),
    )
    said = words(shown(three_passes(ran=ran, timed=timed)))
    assert "softmax_kernel 2 0.9 90% yours" in said
    assert "the host is what takes the time" in said
    assert re.search(r"shape 4: .*PyTorch 0\.812 ms", said)
    assert "shape 8: no memory" in said


COUNTED = KernelCounters(
    name="softmax_kernel",
    own=True,
    time_ms=0.725,
    grid=(16384, 1, 1),
    dram_read_bytes=1.07e9,
    dram_written_bytes=1.05e9,
    load_sectors=16,
    store_sectors=0,
    l2_hits=0.5,
    occupancy=0.913,
    dram_busy=0.9,
    tensor_busy=0.0,
    stalls=(("data from memory", 0.6), ("its turn", 0.25)),
)


def test_what_was_counted_is_told() -> None:
    other = COUNTED.model_copy(update={"name": "other", "stalls": (), "dram_busy": None, "tensor_busy": None})
    said = words(shown(three_passes(counters=(COUNTED, other)), width=120))
    assert "counted on the GPU ms DRAM sectors, load / store hits, L1 / L2 occupancy" in said
    assert "softmax_kernel 0.725 2.12 GB 16 / none ? / 50% 91%" in said
    assert "other 0.725 2.12 GB 16 / none ? / 50% 91%" in said
    assert (
        "softmax_kernel: busy are DRAM 90%, tensor cores 0%; a warp waits for data from memory (60%), its turn (25%)"
        in said
    )


def test_what_torch_compile_runs_is_told() -> None:
    kernel = KERNEL_THAT_RAN.model_copy(
        update={"name": "triton_red_fused", "own": False, "calls": 1, "time_ms": 0.7, "share": 1.0}
    )
    compiled = GpuRun(gpu="NVIDIA H100", kernels=(kernel,), host_ms=0.2, device_ms=0.7, busy_ms=0.7)
    assert "torch.compile runs calls ms share whose triton_red_fused 1 0.7 100%" in words(
        shown(three_passes(compiled=compiled))
    )


HOSTILE = "[red]x[/red] [link=http://x]\x1b[31m\u202e\x9b"


def test_a_students_words_are_neither_markup_nor_control_characters() -> None:
    case = three_passes()
    launch = case.launches[0]
    line = launch.lines[0].model_copy(update={"source": HOSTILE, "tensor": HOSTILE, "file": HOSTILE})
    hostile = case.model_copy(
        update={
            "launches": (launch.model_copy(update={"kernel": HOSTILE, "lines": (line,), "notes": (HOSTILE,)}),),
            "operators": (replace(case.operators[0], name=HOSTILE, place=HOSTILE),),
            "remarks": (case.remarks[0].model_copy(update={"sentence": HOSTILE, "file": HOSTILE}),),
            "unknown": HOSTILE,
            "counters": (COUNTED.model_copy(update={"name": HOSTILE, "stalls": ((HOSTILE, 1.0),)}),),
        }
    )
    text = shown(hostile, width=300)
    assert text.count("[red]x[/red]") >= 7
    assert not {"\x1b", "\u202e", "\x9b"} & set(text)


def test_titles_grids_and_notes() -> None:
    assert title(bare_case()) == "cuda_gelu gelu: large"
    launch = three_passes().launches[0]
    waves = Waves(slots=264, waves=3971.88, last=4)
    table = next(tables(three_passes(launches=(launch.model_copy(update={"grid": (64, 1, 48), "waves": waves}),))))
    assert (table.rows[0][1], table.rows[0][5]) == ("64×1×48 × 128", "3972")
    line = launch.lines[0].model_copy(update={"idle_share": 0.69, "atomic": True, "conflicts": 2.0})
    assert line_notes(line) == "2.0 × the passes, 69% idle, atomic"


def test_progress_names_the_case_on_a_plain_terminal() -> None:
    out = io.StringIO()
    with ProfileProgress(Console(file=out, width=80)) as progress:
        progress(CaseStarted(assignment="softmax", part="softmax", case="wide"))
        progress(CaseNote(text="is being compiled"))
        progress(Profiled(profile=three_passes()))
        progress(Profiled(profile=bare_case(unknown="it crashed")))
    assert out.getvalue() == "softmax: wide: profiled\ncuda_gelu gelu: large: no profile\n"


def test_progress_on_a_terminal_says_what_is_done() -> None:
    out = io.StringIO()
    console = Console(file=out, width=80, force_terminal=True, color_system=None)
    with ProfileProgress(console) as progress:
        progress(Profiled(profile=three_passes()))
        progress(CaseStarted(assignment="softmax", part="softmax", case="wide"))
        progress(CaseNote(text="is being compiled [red]"))
        console.print("")
    assert "1 case profiled; softmax softmax wide is being compiled [red]" in out.getvalue()
