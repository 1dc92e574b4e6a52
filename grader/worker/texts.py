"""Texts of compilers and profilers, packed for a frame."""

from __future__ import annotations

import base64
import contextlib
import subprocess
import tempfile
import zlib
from typing import Any, Literal

from grader.protocol import MAX_PACKED, CompiledText
from grader.worker.errors import without_root

Kind = Literal["ttgir", "ptx", "sass", "json", "py"]
DISASSEMBLE_S = 20.0
DISASSEMBLE = ("-gi", "-c")  # With lines of the source, without sections other than code.


def texts_of(kernel: Any, most: int, disassembler: str = "") -> tuple[CompiledText, ...]:
    """A compiled kernel's texts of at most so many characters in all. A text that is too long is left out.

    Args:
        disassembler: path of nvdisasm; by default, the one that Triton brings. Without one, there is no SASS.
    """
    texts: list[CompiledText] = []
    kinds: tuple[tuple[Kind, str], ...] = (
        ("ttgir", str(kernel.asm.get("ttgir", ""))),
        ("ptx", str(kernel.asm.get("ptx", ""))),
        ("sass", disassembled(kernel.asm.get("cubin", b""), disassembler)),
    )
    for kind, text in kinds:
        if (one := packed(kind, without_root(text), most)) is not None:
            texts.append(one)
            most -= len(one.packed)
    return tuple(texts)


def packed(kind: Kind, text: str, most: int = MAX_PACKED) -> CompiledText | None:
    """The text, packed; None for an empty text, and for one that has more than `most` or MAX_PACKED characters then."""
    found = base64.b64encode(zlib.compress(text.encode(errors="replace"), 9)).decode("ascii")
    return CompiledText(kind, found) if text and len(found) <= min(MAX_PACKED, most) else None


def disassembled(cubin: bytes, disassembler: str = "") -> str:
    """A kernel's SASS; "" if there is no disassembler, or it fails."""
    with contextlib.suppress(Exception), tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        from triton import knobs

        command = [disassembler or knobs.nvidia.nvdisasm.path, *DISASSEMBLE, file.name]
        return subprocess.run(
            command, capture_output=True, check=True, timeout=DISASSEMBLE_S, encoding="utf-8", errors="replace"
        ).stdout
    return ""
