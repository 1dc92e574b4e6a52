"""What a file asks about the GPU, in a worker that has none: each answer that the grading GPU would give, and what has none."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest

from grader.gpu_table import GPUS
from tests.conftest import ROOT

# By a name: lines that hold on the GPU. x is a float32 tensor of (4, 5) as a submission is given one.
HOLDS = {
    "a tensor says where it is": "assert x.is_cuda and not x.is_cpu and x.get_device() == 0 and x.type() == 'torch.cuda.FloatTensor'",
    "its device": "assert x.device == torch.device('cuda:0') and (x.device.type, x.device.index, str(x.device)) == ('cuda', 0, 'cuda:0')",
    "made on the GPU": """
        for device in ("cuda", "cuda:0", 0, x.device, torch.device("cuda"), torch.device("cuda", torch.cuda.current_device())):
            for made in (torch.empty(3, device=device), torch.zeros((2, 3), device=device), torch.tensor([1.0], device=device)):
                assert made.is_cuda
    """,
    "made by others": """
        made = [torch.arange(4, device="cuda"), torch.randn(3, device="cuda"), torch.full((2,), 1.0, device="cuda"),
                torch.as_tensor([1.0], device="cuda"), torch.eye(2, device="cuda"), torch.empty_strided((2, 3), (3, 1), device="cuda"),
                torch.empty_like(x, device="cuda"), x.new_empty(3, device="cuda"), x.new_zeros((2, 2), device=x.device),
                torch.randint(0, 3, (2,), device="cuda"), torch.from_numpy(x.cpu().numpy()).to("cuda", non_blocking=True)]
        assert all(one.is_cuda for one in made)
    """,
    "random numbers of its own": "assert torch.randn(3, device='cuda', generator=torch.Generator(device='cuda')).shape == (3,)",
    "pinned": "assert torch.empty(3, pin_memory=True).shape == (3,) and x.pin_memory() is x and not x.is_pinned()",
    "moved to it": "assert all(one is x for one in (x.cuda(), x.cuda(0), x.to('cuda'), x.to(0), x.to(x.device), x.to(device='cuda')))",
    "moved and converted": "assert x.to('cuda', torch.float16).dtype == x.to(device=0, dtype=torch.float16).dtype == torch.float16",
    "moved from it": """
        for copied in (x.cpu(), x.to("cpu"), x.to(device="cpu"), x.to(torch.device("cpu"), torch.float32)):
            copied.zero_()
        assert x.abs().sum() > 0
    """,
    "converted where it is": "assert x.to(torch.float64).dtype == x.to(x.double()).dtype == torch.float64",
    "a device for a while": """
        with torch.device("cuda"):
            assert torch.zeros(2).is_cuda
    """,
    "a device from here on": """
        torch.set_default_device("cuda")
        assert torch.zeros(2).is_cuda
        torch.set_default_device(None)
    """,
    "modules": "assert torch.nn.Linear(5, 2).cuda()(x).is_cuda and torch.nn.Linear(5, 2, device='cuda').to('cuda').weight.is_cuda",
    "there is one": "assert torch.cuda.is_available() and torch.cuda.device_count() == 1 and torch.cuda.current_device() == 0",
    "accelerators": "assert torch.accelerator.is_available() and torch.accelerator.current_accelerator().type == 'cuda'",
    "whose name": "assert torch.cuda.get_device_name() == torch.cuda.get_device_name(x.device) == 'NVIDIA H200'",
    "capability": "assert torch.cuda.get_device_capability() == torch.cuda.get_device_capability('cuda:0') == (9, 0)",
    "properties": """
        found = torch.cuda.get_device_properties(torch.cuda.current_device())
        assert (found.name, found.major, found.minor, found.multi_processor_count) == ("NVIDIA H200", 9, 0, 132)
        assert (found.warp_size, found.regs_per_multiprocessor, found.max_threads_per_multi_processor) == (32, 65536, 2048)
        assert found.shared_memory_per_block_optin == 232448 and found.shared_memory_per_multiprocessor == 233472
        assert found.total_memory >> 30 == 139 and found.L2_cache_size == 60 << 20 and found.pci_bus_id >= 0
    """,
    "synchronize": "torch.cuda.synchronize(); torch.cuda.synchronize(x.device); torch.cuda.set_device(0); torch.cuda.init()",
    "memory": """
        torch.cuda.empty_cache(); torch.cuda.reset_peak_memory_stats()
        assert torch.cuda.memory_allocated() == torch.cuda.max_memory_allocated(x.device) == 0
        free, total = torch.cuda.mem_get_info()
        assert 0 < free <= total == torch.cuda.get_device_properties(0).total_memory
    """,
    "memory, asked elsewhere": """
        assert torch.cuda.memory.mem_get_info() == torch.cuda.mem_get_info() and torch.cuda.memory_stats()["allocated_bytes.all.peak"] == 0
        torch.cuda.set_per_process_memory_fraction(0.9); torch.cuda.reset_accumulated_memory_stats()
    """,
    "neither captured nor debugged": """
        assert not torch.cuda.is_current_stream_capturing() and torch.cuda.get_sync_debug_mode() == 0
        torch.cuda.set_sync_debug_mode("warn")
    """,
    "the current device": """
        with torch.cuda.device(x.device), torch.cuda.device(0), torch.cuda.device_of(x):
            assert torch.cuda.current_device() == 0
    """,
    "streams": """
        side, main = torch.cuda.Stream(), torch.cuda.current_stream()
        side.wait_stream(main)
        with torch.cuda.stream(side):
            assert torch.cuda.current_stream() is side
        with side, torch.cuda.stream(None):
            assert torch.cuda.current_stream() is side
        assert torch.cuda.current_stream() is main is torch.cuda.default_stream()
        main.wait_event(side.record_event()); side.synchronize(); x.record_stream(side)
        assert side.query() and isinstance(side.cuda_stream, int)
    """,
    "streams, asked elsewhere": """
        assert torch.cuda.streams.Stream().stream_id == 0 and torch.cuda.streams.Event().query()
        assert torch.cuda.get_stream_from_external(0).query()
    """,
    "events": """
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record(); end.record(torch.cuda.current_stream()); end.synchronize(); end.wait()
        assert end.query() and 0 < start.elapsed_time(end) < 1000
    """,
    "seeds": "torch.manual_seed(0); torch.cuda.manual_seed(0); torch.cuda.manual_seed_all(0)",
    "ranges of a profiler": """
        torch.cuda.nvtx.range_push("a"); torch.cuda.nvtx.range_pop()
        torch.cuda.nvtx.range_end(torch.cuda.nvtx.range_start("a"))
        with torch.cuda.nvtx.range("a"):
            assert torch.cuda.nvtx.range("b")(len)([]) == 0
    """,
    "precisions": "torch.backends.cuda.matmul.allow_tf32 = True; assert torch.cuda.is_bf16_supported()",
    "autocast": """
        with torch.autocast("cuda", enabled=False):
            assert x.is_cuda
    """,
    "torch.compile, where it decorates": "torch.compile(lambda a: a)",
    "backward": """
        class Twice(torch.autograd.Function):
            @staticmethod
            @torch.amp.custom_fwd(device_type="cuda")
            def forward(ctx, a):
                assert a.is_cuda
                return 2 * a
            @staticmethod
            @torch.amp.custom_bwd(device_type="cuda")
            def backward(ctx, g):
                assert g.is_cuda and torch.empty(2, device=g.device).is_cuda
                return 2 * g
        z = x.clone().requires_grad_()
        Twice.apply(z).sum().backward()
        (dz,) = torch.autograd.grad(Twice.apply(z).sum(), z)
        assert z.grad.is_cuda and torch.equal(dz, z.grad)
    """,
    "Triton's driver": """
        active = triton.runtime.driver.active
        assert active.get_active_torch_device() == x.device and active.get_current_device() == 0
        assert (active.get_current_target().backend, active.get_current_target().arch) == ("cuda", 90)
        found = active.utils.get_device_properties(active.get_current_device())
        assert (found["multiprocessor_count"], found["max_num_regs"], found["warpSize"]) == (132, 65536, 32)
        assert found["max_shared_mem"] == 232448 and active.get_current_stream(0) == 0
        assert active.get_device_interface() is torch.cuda
    """,
    "do_bench": """
        runs = []
        assert 0 < triton.testing.do_bench(lambda: runs.append(x + 1)) < 1000
        assert len(triton.testing.do_bench(lambda: x + 1, quantiles=[0.5, 0.2, 0.8], warmup=1)) == 3
        assert len(runs) == 1
    """,
    "peaks": "assert 4800 < triton.testing.get_dram_gbps() < 5000",
    "a loop's variable": "assert launched(loop, 10).tolist() == [float(sum(range(2, 10, 3)))] * 16",
    "a loop's variable of 64 bits": "assert launched(wide_loop, 1 << 33).tolist() == [float(1 << 33)] * 16",
    "warmup": """
        kernel = scaled.warmup(x, x, 5, BLOCK=1024, num_warps=4, grid=(1,))
        kernel._init_handles()
        assert 8 <= kernel.n_regs <= 255 and kernel.n_spills == 0 and kernel.metadata.shared >= 16
        assert kernel.metadata.num_warps == 4 and ".target sm_90" in kernel.asm["ptx"]
    """,
    "warmup with types alone": "assert scaled.warmup(torch.float32, torch.float32, 5, BLOCK=64, grid=(1,)).metadata.shared >= 0",
    "what is too large for the GPU": """
        from triton.runtime.errors import OutOfResources
        try:
            too_large.warmup(x, x, N=256, num_warps=8, grid=(1,))._init_handles()
        except OutOfResources as error:
            assert "232448" in str(error)
        else:
            raise AssertionError("256 x 256 of float32 is more than a block has")
    """,
    "a compiled kernel is launched": """
        kernels, y = {}, torch.empty(20, device="cuda")
        for n in (20, 13):
            y.zero_()
            if (kernel := kernels.get(32)) is None:
                kernel = kernels[32] = scaled.warmup(x, y, n, BLOCK=32, grid=(1,))
            kernel[(1, 1, 1)](x, y, n, 32)
            assert y.count_nonzero() == n
        assert torch.allclose(y[:13], (x.view(-1)[:13] - x.view(-1)[:13].sum()) * 2, atol=1e-5)
    """,
    "a launch returns the kernel": """
        y = torch.empty(20, device="cuda")
        kernel = scaled[(1,)](x, y, 20, BLOCK=32)
        y.zero_()
        assert kernel.n_regs > 0
        kernel[(1, 1, 1)](x, y, 20, 32)
        assert y.count_nonzero() == 20
    """,
    "a kernel is told of its function": """
        y = torch.empty(16, device="cuda")
        kernel = applied.warmup(y, F=halved, grid=(1,))
        kernel[(1, 1, 1)](y, halved)
        assert y.tolist() == [0.5] * 16
    """,
    "autotune": """
        tuned = triton.autotune([triton.Config({"BLOCK": b}, num_warps=w) for b in (64, 128) for w in (1, 2, 4)], key=["n"])(scaled)
        y = torch.empty(20, device="cuda")
        tuned[lambda meta: (triton.cdiv(1, meta["BLOCK"]),)](x, y, 20)
        assert y.count_nonzero() == 20 and tuned.best_config.kwargs["BLOCK"] == 64
        assert len(tuned.warmup(x, y, 20, grid=(1,))) == 6
    """,
    "trial launches of autotune": """
        for reset, launches in ((["y_ptr"], 1), (None, 2)):
            y = torch.zeros(16, device="cuda")
            tuned = triton.autotune([triton.Config({"BLOCK": 16}, num_warps=w) for w in (1, 2)], key=[], reset_to_zero=reset)(counted)
            tuned[(3,)](y)
            assert y.tolist() == [3 * launches] * 16
            tuned[(3,)](y)
            assert y.tolist() == [3 * launches + 3] * 16
    """,
    "heuristics": """
        sized = triton.heuristics({"BLOCK": lambda args: triton.next_power_of_2(args["n"]) if args["x_ptr"].is_cuda else 0})(scaled)
        y = torch.empty(20, device="cuda")
        sized[(1,)](x, y, 20)
        assert y.count_nonzero() == 20
    """,
}
# By what only a GPU can answer: words of the error, which `grader/worker/errors.py` knows.
HAS_NO_ANSWER = {
    "torch.cuda.CUDAGraph()": "needs a GPU: torch.cuda.CUDAGraph",
    "torch.cuda.graph(None)": "needs a GPU: torch.cuda.graph",
    "torch.cuda.memory_snapshot()": "needs a GPU: torch.cuda.memory_snapshot",
    "torch.Stream(device='cuda')": "PyTorch is not linked with support for cuda devices",
    "torch.cuda.profiler.start()": "needs a GPU: torch.cuda.cudart",
    "torch.cuda.graph_pool_handle()": "needs a GPU: torch.cuda.graph_pool_handle",
    "torch.cuda.list_gpu_processes()": "needs a GPU: torch.cuda.list_gpu_processes",
    "triton.runtime.driver.active.map_python_to_cpp_type('fp32')": "'AbsentGpu' object has no attribute",
    "torch.cuda.nccl.version()": "module 'torch._C' has no attribute '_nccl",
    "scaled.device_caches": "'InterpretedFunction' object has no attribute",
    "by_elements[(1,)](torch.empty(16))": "'InterpreterBuilder' object has no attribute",
    "made_elsewhere.warmup(x, BLOCK=16, grid=(1,))": "needs a GPU: made_elsewhere cannot be compiled here",
}
# As on a machine with one GPU.
IS_WRONG = (
    "torch.empty(3, device='cuda:1')",
    "x.to(1)",
    "x.cuda(1)",
    "torch.cuda.get_device_properties(1)",
    "torch.cuda.device(1)",
)

HEAD = """
import os, sys, json, textwrap, threading
os.environ["TRITON_INTERPRET"] = "1"
from pathlib import Path
from grader.worker import absent_gpu, errors, triton_cpu
from grader.worker.errors import REFUSALS
from grader.worker.operators import OperatorWatch, in_contexts, watching
from grader.gpu_table import GPUS
import torch, triton
import triton.language as tl
triton_cpu.provide()
errors.set_root(Path(__file__).parent)
sys.modules["snippets"] = sys.modules["__main__"]
absent_gpu.provide(GPUS["H200"])

@triton.jit
def halved(a):
    return a * 0.5

@triton.jit
def scaled(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    lanes = tl.arange(0, BLOCK)
    a = tl.load(x_ptr + lanes, mask=lanes < n, other=0.0)
    tl.store(y_ptr + lanes, halved((a - a.sum(0)) * 4), mask=lanes < n)

@triton.jit
def too_large(x_ptr, y_ptr, N: tl.constexpr):
    i = tl.arange(0, N)
    a = tl.load(x_ptr + i[:, None] * N + i[None, :])
    tl.store(y_ptr + i[:, None] * N + i[None, :], tl.dot(a, a))

@triton.jit
def applied(y_ptr, F: tl.constexpr):
    tl.store(y_ptr + tl.arange(0, 16), F(tl.full((16,), 1.0, tl.float32)))

@triton.jit
def loop(y_ptr, n):
    total = tl.zeros((16,), tl.float32)
    for i in range(2, n, 3):
        total += i.to(tl.float32)
    tl.store(y_ptr + tl.arange(0, 16), total)

@triton.jit
def counted(y_ptr, BLOCK: tl.constexpr):
    tl.atomic_add(y_ptr + tl.arange(0, BLOCK), 1.0)

@triton.jit
def wide_loop(y_ptr, n):
    total = tl.zeros((16,), tl.float32)
    for i in tl.range(n - 1, n):
        total += (i + 1).to(tl.float32)
    tl.store(y_ptr + tl.arange(0, 16), total)

def launched(kernel, n):
    y = torch.empty(16, device="cuda")
    kernel[(1,)](y, n)
    return y

@triton.jit
def larger(a, b):
    return a if a > b else b

@triton.jit
def by_elements(y_ptr):
    lanes = tl.arange(0, 16)
    tl.store(y_ptr + lanes, tl.map_elementwise(larger, lanes.to(tl.float32), lanes * 0.5))

def not_of_triton():
    return 1

@triton.jit
def made_elsewhere(y_ptr, BLOCK: tl.constexpr):
    tl.store(y_ptr + tl.arange(0, BLOCK), not_of_triton())

def said(lines):
    x = torch.randn(4, 5)
    try:
        with in_contexts():
            exec(textwrap.dedent(lines), globals() | {"x": x})
    except Exception as error:
        return f"{type(error).__name__}: {error}", bool(REFUSALS.search(str(error)))
    return "", False

def in_a_thread():
    found, x = [], torch.ones(2)
    with watching(OperatorWatch()):
        thread = threading.Thread(target=lambda: found.append(x.is_cuda))
        thread.start(); thread.join()
    return found, x.is_cuda

def of_all():
    with in_contexts():
        for name, gpu in GPUS.items():
            absent_gpu.provide(gpu)
            yield name, [torch.cuda.get_device_properties(0).multi_processor_count, triton.runtime.driver.active.get_current_target().arch]
"""
TAIL = """
answers = [said(lines) for lines in json.load(sys.stdin)]
print(json.dumps({"said": answers, "thread": in_a_thread(), "gpus": dict(of_all())}))
"""


@pytest.fixture(scope="module")
def answered(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What all lines gave, in one process: Triton decides when it is imported whether kernels are interpreted."""
    file = tmp_path_factory.mktemp("asking") / "snippets.py"  # Triton reads the source of its functions
    file.write_text(HEAD + TAIL, encoding="utf-8")
    environment = os.environ | {
        "TRITON_CACHE_DIR": str(file.parent / "cache")
    }  # what was compiled before proves nothing
    asked = [*HOLDS.values(), *HAS_NO_ANSWER, *IS_WRONG]
    run = subprocess.run(
        [sys.executable, str(file)],
        input=json.dumps(asked),
        capture_output=True,
        text=True,
        timeout=240,
        cwd=ROOT,
        env=environment,
        check=False,
    )
    assert run.returncode == 0, run.stderr[-2000:]
    told = json.loads(run.stdout.splitlines()[-1])
    return told | dict(zip(asked, told["said"], strict=True))


@pytest.mark.parametrize("name", HOLDS)
def test_it_answers_as_the_grading_gpu_would(name: str, answered: dict[str, Any]) -> None:
    assert answered[HOLDS[name]] == ["", False]


@pytest.mark.parametrize("asked", HAS_NO_ANSWER)
def test_what_has_no_answer_is_known_to_need_a_gpu(asked: str, answered: dict[str, Any]) -> None:
    words, is_known = answered[asked]
    assert HAS_NO_ANSWER[asked] in words
    assert is_known


@pytest.mark.parametrize("asked", IS_WRONG)
def test_a_second_gpu_is_refused_as_cuda_refuses_it(asked: str, answered: dict[str, Any]) -> None:
    words, is_known = answered[asked]
    assert "invalid device ordinal" in words
    assert not is_known


def test_threads_of_the_submission_are_answered_and_the_workers_own_code_is_not(answered: dict[str, Any]) -> None:
    assert answered["thread"] == [[True], False]


def test_every_gpu_of_the_table_can_answer(answered: dict[str, Any]) -> None:
    expected = {name: [gpu.multiprocessors, 10 * gpu.capability[0] + gpu.capability[1]] for name, gpu in GPUS.items()}
    assert answered["gpus"] == expected
