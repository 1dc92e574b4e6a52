"""Describes exceptions of a worker as the student should read them."""

from __future__ import annotations

import difflib
import os
import re
import tokenize
import traceback
from pathlib import Path
from types import FrameType, ModuleType, TracebackType

from grader.protocol import ErrorKind, RaisedBy, WorkerError

MAX_MESSAGE = 4000
MAX_TRACEBACK = 12000
CUT = "\n...\n"
SUBMISSION_FRAMES = 12
MAX_CAUSES = 20
ALIKE = 0.87  # Names with this similarity (difflib) are one misspelt: arange and arrange have 0.92, sin and sign 0.86.
# The folder of an installed package, in a path.
PACKAGES = re.compile(r"(?<![^\s'\"()])[^\s'\"()]*/(?:site|dist)-packages/")
# Triton says so where it finds no source, whatever the cause.
NO_SOURCE = "@jit functions should be defined in a Python file"

# Names of errors that a broken compiler, linker, driver or disk causes. Libraries raise them for other reasons too.
TOOLCHAIN = frozenset({"OSError", "SubprocessError", "ImportError", "RuntimeError", "PTXASError"})
# Messages of PyTorch and Triton without a GPU; the first pattern is the message of `NeedsGpu`.
REFUSALS = re.compile(
    r"(?:^|: )needs a GPU: |Torch not compiled with CUDA|Found no NVIDIA driver|No CUDA GPUs are available|no CUDA-capable device"
    r"|CUDA driver initialization failed|Cannot access accelerator device|device type cuda .{0,200}not available"
    r"|not linked with support for cuda|arguments from the 'CUDA' backend"
    r"|requires (?:a )?CUDA|NVTX functions not installed"
    r"|\d active drivers|'(?:InterpretedFunction|InterpreterBuilder|InterpreterOptions|AbsentGpu)' object has no attribute"
    r"|not supported in interpreter mode"
    r"|module 'torch\._C' has no attribute '_(?:cuda|nccl)|Tried to instantiate dummy base class|cannot import name '_cuda",
    re.MULTILINE,
)

_root = ""  # the folder of the staged submission
_on_gpu = False


class LoadError(Exception):
    """The student's code could not be run by the contract. `kind` is the name of the outcome."""

    def __init__(self, kind: ErrorKind, message: str, raised_by: RaisedBy = "submission") -> None:
        super().__init__(message)
        self.kind: ErrorKind = kind
        self.raised_by: RaisedBy = raised_by


class NeedsGpu(RuntimeError):
    """Only a GPU can answer the question `what`, such as the value of a name in torch.cuda."""

    def __init__(self, what: str) -> None:
        super().__init__(f"needs a GPU: {what}")


class KernelFault(Exception):
    """An access to memory by an interpreted kernel that a GPU does not allow, or that leaves its result to chance."""


def set_root(folder: Path) -> None:
    """Set the folder of the submission: frames of its files are the student's own."""
    global _root
    _root = str(folder)


def is_own_file(file: str) -> bool:
    """Whether a file is the submission's."""
    return bool(_root) and file.startswith(f"{_root}{os.sep}")


def set_device(on_gpu: bool) -> None:
    """Set whether there is a GPU. Without one, code that asks for a GPU is told apart from wrong code."""
    global _on_gpu
    _on_gpu = on_gpu


def name_in(file: str) -> str:
    """A student's file as the student knows it, as `kernel.py`; "" if the file is not the student's."""
    return clean(file.removeprefix(_root + os.sep))[:200] if is_own_file(file) else ""


def place_of(frame: FrameType) -> str:
    """A frame's file and line as the student knows them, as `kernel.py:7`; "" if the frame is not the student's."""
    name = name_in(frame.f_code.co_filename)
    return f"{name}:{frame.f_lineno}"[:120] if name else ""


def describe(error: BaseException) -> WorkerError:
    """Describe an exception for the student."""
    if isinstance(error, LoadError):
        return WorkerError(error.kind, "", _within(clean(str(error)), MAX_TRACEBACK), "", error.raised_by)
    place = clean(_own_traceback(error))[-MAX_TRACEBACK:]
    if (fault := next((one for one in _chain(error) if isinstance(one, KernelFault)), None)) is not None:
        return WorkerError("failed", "", clean(str(fault))[:MAX_MESSAGE], place, "submission")
    if not _on_gpu and (words := _needs_gpu(error)):
        return WorkerError("unsupported", "", clean(words), place, "submission")
    message = _within(PACKAGES.sub("", clean(without_root(_message(error)))), MAX_MESSAGE)
    return WorkerError(_kind(error), clean(type(error).__name__)[:100], message, place, _raised_by(error))


def _within(text: str, most: int) -> str:
    """The text, or its first quarter and its end: Triton gives its reason below the source of the kernel."""
    first, last = most // 4, most - most // 4 - len(CUT)
    return text if len(text) <= most else f"{text[:first]}{CUT}{text[-last:]}"


def _chain(error: BaseException) -> list[BaseException]:
    """An error and its causes, the error first. At most MAX_CAUSES: `raise e from e` makes an endless chain."""
    chain = [error]
    while len(chain) < MAX_CAUSES and (cause := chain[-1].__cause__) is not None:
        chain.append(cause)
    return chain


def _raised_by(error: BaseException) -> RaisedBy:
    if isinstance(error, SyntaxError) and (error.filename or "").startswith(_root):
        return "submission"
    innermost = _chain(error)[-1]
    frames = traceback.extract_tb(innermost.__traceback__)
    if frames and frames[-1].filename.startswith(f"{_root}{os.sep}"):
        return "submission"
    return "toolchain" if TOOLCHAIN & {one.__name__ for one in type(innermost).__mro__} else "library"


def _needs_gpu(error: BaseException) -> str:
    """A sentence about the student's line that needs a GPU; "" if the error on this CPU has another reason.

    `absent_gpu/` answers most questions about the GPU. One without an answer raises `NeedsGpu`, or an error of
    PyTorch's or Triton's that `REFUSALS` lists.
    """
    said = "\n".join(_own_words(one) for one in dict.fromkeys(_chain(error)))
    if not REFUSALS.search(said):
        return ""
    frames = [frame for one in _chain(error) for frame in _submission_frames(one.__traceback__)]
    if not frames:  # say, in a decorator of a library
        return f"needs a GPU: {said.splitlines()[0][:200]}"
    file, line = frames[-1].filename, frames[-1].lineno or 0
    try:
        with tokenize.open(file) as opened:  # decodes and splits a file as Python's import does
            asked = opened.readlines()[line - 1].strip()[:200]
    except (OSError, ValueError, SyntaxError, IndexError):
        return ""
    return f"needs a GPU: {file.removeprefix(_root + os.sep)}, line {line}: {asked}" if asked else ""


def without_root(text: str) -> str:
    """The text with paths of the submission's files as the student knows them."""
    return text.replace(f"{_root}{os.sep}", "") if _root else text


def clean(text: str) -> str:
    """The text without lone surrogates, which undecodable file names bring and JSON readers reject."""
    return text.encode(errors="replace").decode()


def _kind(error: BaseException) -> ErrorKind:
    if isinstance(error, NotImplementedError):
        return "not_implemented"
    if isinstance(error, MemoryError) or any(one.__name__ == "OutOfMemoryError" for one in type(error).__mro__):
        return "out_of_memory"  # the second is PyTorch's, which not every worker imports
    if isinstance(error, SystemExit | KeyboardInterrupt):
        return "crashed"
    if "CUDA error" in _message(error) or type(error).__name__ == "AcceleratorError":
        return "crashed"
    return "failed"


def _own_words(error: BaseException) -> str:
    """What an error says of itself; of half a gigabyte the ends, for all that follows looks through it."""
    return _within(str(error), 2 * MAX_MESSAGE)


def _message(error: BaseException) -> str:
    """The error's message; for an error that Triton has wrapped, the cause's."""
    seen = error
    for _ in range(MAX_CAUSES):
        if seen.__cause__ is None or type(seen).__name__ not in ("InterpreterError", "CompilationError"):
            break
        seen = seen.__cause__
    try:
        text = f"{_own_words(seen)}{_meant(seen)}"
    except BaseException as failure:
        text = f"(its message cannot be shown: {type(failure).__name__})"
    if text == NO_SOURCE:
        text = (
            f"Triton compiles a kernel from the text of its file, and Python does not find it ({seen.__cause__}): a kernel must be written "
            "in a .py file of the submission that is saved as UTF-8, and not be made by exec or as a lambda"
        )
    if type(seen).__name__ == "PTXASError":  # PTXASError's message also has names of temporary files
        text = "\n".join(re.findall(r"^ptxas .*", text, re.MULTILINE)) or text
    return text if seen is error else ": ".join(part for part in (type(seen).__name__, text) if part)


def _meant(error: BaseException) -> str:
    """A suggestion, in Python's words, if a module has a name much like the missing one; else ""."""
    if not isinstance(error, AttributeError) or not isinstance(error.obj, ModuleType) or not error.name:
        return ""
    names = [name for name in dir(error.obj) if not name.startswith("_")]
    return "".join(f". Did you mean: {name!r}?" for name in difflib.get_close_matches(error.name, names, 1, ALIKE))


def _own_traceback(error: BaseException) -> str:
    """The student's frames of an error and its causes, with paths as the student knows them."""
    frames = [frame for one in _chain(error) for frame in _submission_frames(one.__traceback__)]
    if isinstance(error, SyntaxError) and error.filename and error.filename.startswith(_root):
        text = "".join(traceback.format_exception_only(error)[:-1])  # without the message, which stands elsewhere
    else:
        text = "".join(traceback.format_list(frames[-SUBMISSION_FRAMES:]))
    return without_root(text)


def _submission_frames(trace: TracebackType | None) -> list[traceback.FrameSummary]:
    return [frame for frame in traceback.extract_tb(trace) if frame.filename.startswith(_root)]
