"""The GPUs that programs started here may use."""

from __future__ import annotations

from pathlib import Path

import pynvml
import pytest

from grader import nvidia
from grader.nvidia import ListedGpu, gpus, visible

EVERY = [ListedGpu("GPU-aa1", "H100"), ListedGpu("GPU-ab2", "H100"), ListedGpu("GPU-c", "T4")]


@pytest.mark.parametrize(
    ("setting", "names"),
    [
        (None, ["GPU-aa1", "GPU-ab2", "GPU-c"]),
        ("", []),
        ("0", ["GPU-aa1"]),
        ("2,0", ["GPU-c", "GPU-aa1"]),
        (" GPU-ab2 ,1", ["GPU-ab2"]),
        ("GPU-ab", ["GPU-ab2"]),
        ("GPU-a", []),
        ("1,7,0", ["GPU-ab2"]),
        ("-1", []),
        ("NoDevFiles", []),
    ],
)
def test_cuda_visible_devices(setting: str | None, names: list[str]) -> None:
    assert [one.uuid for one in visible(EVERY, setting)] == names


def with_driver(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, handles: list[object], node: bool = True) -> None:
    """A machine whose driver lists the handles: a ListedGpu, or an error that asking for it raises."""

    def handle(number: int) -> object:
        if isinstance(handles[number], Exception):
            raise handles[number]
        return handles[number]

    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(nvidia, "DRIVER_NODES", (str(tmp_path) if node else "/nowhere",))
    monkeypatch.setattr(pynvml, "nvmlInit", lambda: None)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetCount", lambda: len(handles))
    monkeypatch.setattr(pynvml, "nvmlDeviceGetHandleByIndex", handle)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetUUID", lambda one: one.uuid)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetName", lambda one: one.name)


def test_gpus_are_listed_without_those_that_are_lost(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with_driver(monkeypatch, tmp_path, [EVERY[0], pynvml.NVMLError(pynvml.NVML_ERROR_GPU_IS_LOST), EVERY[2]])
    assert gpus() == [EVERY[0], EVERY[2]]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    assert gpus() == [EVERY[2]]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert gpus() == []


def test_a_machine_without_a_driver_has_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with_driver(monkeypatch, tmp_path, [], node=False)
    assert gpus() == []


def test_a_driver_without_a_gpu_is_a_fault(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Or a class would silently be graded on the CPU."""
    with_driver(monkeypatch, tmp_path, [pynvml.NVMLError(pynvml.NVML_ERROR_GPU_IS_LOST)])
    with pytest.raises(OSError, match=r"lists no GPU.*grader doctor"):
        gpus()
    with_driver(monkeypatch, tmp_path, [EVERY[0]])
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5")
    with pytest.raises(OSError, match="CUDA_VISIBLE_DEVICES=5 names none of this machine's GPUs"):
        gpus()

    def mismatch() -> None:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH)

    monkeypatch.setattr(pynvml, "nvmlInit", mismatch)
    with pytest.raises(OSError, match=r"NVIDIA's driver does not answer \("):
        gpus()


def test_nsight_compute_is_the_newest_in_its_folder_or_the_one_on_the_path(tmp_path: Path) -> None:
    assert nvidia.find_ncu(tmp_path) == nvidia.find_ncu(tmp_path / "missing")
    for version in ("2024.10.0", "2025.3.1", "2025.12.0", "2025.9.1"):
        (tmp_path / version).mkdir()
        (tmp_path / version / "ncu").touch()
    assert nvidia.find_ncu(tmp_path) == str(tmp_path / "2025.12.0" / "ncu")


def test_nvcc_is_found_among_pythons_packages_where_there_is_no_toolkit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("CUDA_HOME", "CUDA_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    toolkits = [str(tmp_path / "toolkit"), str(tmp_path / "package")]
    assert nvidia.find_nvcc(toolkits) is None
    for place in reversed(toolkits):
        program = Path(place, "bin", "nvcc")
        program.parent.mkdir(parents=True)
        program.touch(0o755)
        assert nvidia.find_nvcc(toolkits) == str(program)
    assert Path(nvidia.TOOLKITS[1]).parent.parent == Path(pytest.__file__).parent.parent
