"""The looks that need PyTorch, as a program: `python -m grader.doctor.with_torch look|share`."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version

import torch

from grader.assignment import Device
from grader.doctor.software import SeenSoftware
from grader.judge.environment import find_compiler, interpreter_fault
from grader.nvidia import find_nvcc
from grader.pool.arena import Arena
from grader.pool.jail import strongest_jail
from grader.pool.pool import WorkerPool
from grader.pool.watch import CallLimits
from grader.runfolder import run_folder

LIMITS = CallLimits(time_s=20, memory_gib=16)


def look() -> SeenSoftware:
    """Versions and compilers, and whether PyTorch can use the GPU."""
    gpu_fault, arch, triton, triton_fault, ptxas = "", None, None, "", None
    try:
        torch.ones(2, device="cuda").sum().item()
        major, minor = torch.cuda.get_device_capability()
        arch = f"sm_{major}{minor}"
    except (RuntimeError, AssertionError) as error:  # no driver, an old driver, or a build for CPUs
        gpu_fault = str(error).strip().partition("\n")[0]
    try:
        triton = version("triton")
        from triton import knobs

        ptxas = knobs.nvidia.ptxas.path
        triton_fault = "" if arch else interpreter_fault()
    except PackageNotFoundError:
        pass
    except Exception as error:
        triton_fault = f"cannot be imported: {type(error).__name__}: {error}"
    compilers = ptxas, find_nvcc(), find_compiler("cpu")
    return SeenSoftware(torch.__version__, torch.version.cuda, arch, gpu_fault, triton, triton_fault, *compilers)


def share(device: Device) -> str:
    """Let a worker double a tensor in memory that it shares with this process. Returns the fault, "" if there is none."""
    with run_folder() as folder:
        submission = folder / "submission"
        submission.mkdir()
        (submission / "double.py").write_text("def double(x):\n    return 2 * x\n")
        pool = WorkerPool(device, folder, strongest_jail(device=device), submission)
        try:
            worker = pool.start()
            worker.load(submission / "double.py", "double", None, LIMITS)
            x = torch.arange(1.0, 9.0, device=device)
            with Arena({"x": x}, {"y": (8,)}, torch.float32, x.device) as arena:
                worker.do(arena.request([(["x"], None)], (), LIMITS.time_s), LIMITS, arena.files)
                return "" if torch.equal(arena.output("y"), 2 * x) else "what a worker wrote did not arrive"
        except Exception as error:
            return f"{type(error).__name__}: {error}".partition("\n")[0]
        finally:
            pool.close()


if __name__ == "__main__":
    print(json.dumps(asdict(look()) if sys.argv[1] == "look" else share("cuda")))
