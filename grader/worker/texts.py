"""The texts that Triton's compiler made of a kernel, packed for a frame."""

from __future__ import annotations

import base64
import contextlib
import subprocess
import tempfile
import zlib
from typing import Any

from triton import knobs

from grader.protocol import MAX_PACKED, CompiledText
from grader.worker.errors import without_root

DISASSEMBLE_S = 20.0
DISASSEMBLE = ("-gi", "-c")  # With lines of the source, without sections other than code.


def texts_of(kernel: Any, most: int, disassembler: str = "") -> tuple[CompiledText, ...]:
    """A compiled kernel's texts of at most so many characters in all. A text that is too long is left out.

    Args:
        disassembler: path of nvdisasm; by default, the one that Triton brings. Without one, there is no SASS.
    """
    texts: list[CompiledText] = []
    for kind, text in (
        ("ttgir", str(kernel.asm.get("ttgir", ""))),
        ("ptx", str(kernel.asm.get("ptx", ""))),
        ("sass", disassembled(kernel.asm.get("cubin", b""), disassembler)),
    ):
        packed = pack(without_root(text))
        if text and len(packed) <= min(MAX_PACKED, most):
            texts.append(CompiledText(kind, packed))  # type: ignore[arg-type]
            most -= len(packed)
    return tuple(texts)


def pack(text: str) -> str:
    return base64.b64encode(zlib.compress(text.encode(errors="replace"), 9)).decode("ascii")


def disassembled(cubin: bytes, disassembler: str = "") -> str:
    """A kernel's SASS; "" if there is no disassembler, or it fails."""
    with contextlib.suppress(Exception), tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        command = [disassembler or knobs.nvidia.nvdisasm.path, *DISASSEMBLE, file.name]
        return subprocess.run(
            command, capture_output=True, check=True, timeout=DISASSEMBLE_S, encoding="utf-8", errors="replace"
        ).stdout
    return ""
