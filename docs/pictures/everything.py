"""Every picture, and where it lies. A handout's pictures lie beside it and begin with its assignment's name: `grader init` copies them."""

from __future__ import annotations

from pathlib import Path

from docs.pictures import attention, gelu, house, imports, report, softmax
from docs.pictures.drawing import svg

HERE = Path(__file__).parent
COURSE = HERE.parents[1] / "assignments"


def pictures() -> dict[Path, str]:
    """Each picture's file, and its SVG."""
    flash = COURSE / "flash_attention"
    drawn = [(HERE, plot) for plot in (report.terminal(), report.speed(), house.house(), imports.imports())]
    drawn += [
        (COURSE / "cuda_gelu", gelu.cuda(COURSE / "cuda_gelu")),
        (COURSE / "triton_gelu", gelu.triton(COURSE / "triton_gelu")),
        (COURSE / "softmax", softmax.online()),
        (flash, attention.forward(flash)),
        (flash, attention.backward(flash)),
    ]
    return {folder / f"{plot.name}.svg": svg(plot) for folder, plot in drawn}
