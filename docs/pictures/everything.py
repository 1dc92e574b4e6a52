"""Every picture, and where it lies. A handout's pictures lie beside it and begin with its assignment's name: `grader init` copies them."""

from __future__ import annotations

from pathlib import Path

from docs.pictures import attention, gelu, house, report, softmax
from docs.pictures.drawing import svg

ROOT = Path(__file__).parents[2]


def pictures() -> dict[Path, str]:
    """Each picture's file, and its SVG."""
    assignments = ROOT / "assignments"
    beside = {
        assignments / "cuda_gelu/cuda_gelu.svg": gelu.cuda(assignments / "cuda_gelu"),
        assignments / "triton_gelu/triton_gelu.svg": gelu.triton(assignments / "triton_gelu"),
        assignments / "softmax/softmax.svg": softmax.online(),
        assignments / "flash_attention/flash_attention.svg": attention.forward(assignments / "flash_attention"),
        assignments / "flash_attention/flash_attention-backward.svg": attention.backward(
            assignments / "flash_attention"
        ),
    }
    here = {f"{plot.name}.svg": plot for plot in (*report.terminal(), report.speed(), house.house())}
    return {path: svg(plot) for path, plot in (beside | {ROOT / "docs/pictures" / name: here[name] for name in here}).items()}
