"""What an assignment's policy allows beside a student's own kernels: which of PyTorch's operators, and in CUDA C++ which names.

A submission may use PyTorch for plumbing (memory, views, copies) and for the operators that its assignment's policy names; its own
kernels do the work. At run time the worker names every ATen operator that the student's code called, in its threads too;
`foreign_operators` picks the forbidden ones. Operators that a submission registers by `torch.library`, in a namespace of its own, are
allowed: the watch enters them. A CUDA C++ file must not use the names of libraries that do the work; it is read as text.

Neither check is a proof. A kernel launched for show beside arithmetic in plain Python, element by element, is not found on a CPU.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Mapping, Sequence

from grader.protocol import INCLUDE, RanOperator, code_of
from grader.verdict.sources import ForbiddenUse

# ATen operators, without their overload, that make, copy, compare or inspect tensors: no kernel is made of these.
PLUMBING = frozenset(
    """
    empty empty_like empty_strided new_empty new_empty_strided new_zeros new_full new_ones zeros zeros_like ones
    ones_like full full_like fill fill_ zero_ copy_ clone _to_copy to contiguous lift_fresh detach detach_ alias view
    _unsafe_view view_as reshape _reshape_alias as_strided expand permute transpose t squeeze unsqueeze flatten
    unflatten select slice narrow split split_with_sizes chunk unbind diagonal cat stack constant_pad_nd pad
    slice_backward select_backward
    eq ne lt le gt ge any all isnan isinf isfinite abs logical_and logical_or logical_not
    is_same_size sym_size sym_stride sym_numel is_contiguous _local_scalar_dense item equal is_nonzero record_stream
    set_ resize_ arange scalar_tensor
    """.split()  # noqa: SIM905 (a list of strings is no easier to read)
)
FRAME = re.compile(r'^  File "([^"\n]+)", line (\d+)', re.MULTILINE)
ABSENT = re.compile(r"ModuleNotFoundError: No module named '(\w+)'")
COMPUTED_INCLUDE = re.compile(r"\#\s*+(?:include(?:_next)?|import)\s++[A-Za-z_]")
# The declaration of a kernel, from its `__global__` on, and what may stand in it with parentheses of its own.
LONGEST_HEAD = 1000
KERNEL = re.compile(r"[^;{}()]*?\b(\w++)\s*+\(")
ATTRIBUTE = re.compile(
    r"\b__(?:launch_bounds|cluster_dims|attribute)__\s{0,100}\([^()]{0,200}(?:\([^()]{0,200}\)[^()]{0,200}){0,4}\)"
)


def about_import(message: str, traceback: str) -> str:
    """Python's error about a module that does not exist, in the words of a finding; any other message as it is."""
    if (found := ABSENT.fullmatch(message)) is None:
        return message
    *_, place = ["", *(f"{file}, line {line}: " for file, line in FRAME.findall(traceback))]
    return f"{place}imports {found[1]}, and there is no {found[1]}.py in the submission, nor a package of that name"


def included_from(file: str, sources: Mapping[str, str]) -> dict[str, str]:
    """The code, without comments and strings, of a C++ file and of all files of the submission that it includes, directly or not."""
    found: dict[str, str] = {}
    todo = [file]
    while todo:
        name = todo.pop()
        if name in found or name not in sources:
            continue
        found[name] = code_of(sources[name])
        if COMPUTED_INCLUDE.search(found[name]):
            todo += sources
        for header in INCLUDE.findall(found[name]):
            todo += {
                posixpath.normpath(posixpath.join(folder, header))
                for folder in (posixpath.dirname(name), posixpath.dirname(file))
            }
    return found


def cuda_kernels(codes: Iterable[str]) -> frozenset[str]:
    """Names of the functions that C++ files without comments declare as kernels. A name that a macro makes is not found."""
    heads = (ATTRIBUTE.sub("", one[:LONGEST_HEAD]) for code in codes for one in code.split("__global__")[1:])
    return frozenset(found[1] for head in heads if (found := KERNEL.match(head)))


def cuda_findings(codes: Mapping[str, str], file: str, forbidden: Sequence[str]) -> list[ForbiddenUse]:
    """Forbidden uses in a CUDA C++ file and the files that it includes: `codes`, of `included_from`. `forbidden`: as `at::relu`, `cublas`.

    A name without `::` is a library's: its namespace, or the beginning of its functions, as in `cublasSgemm(`; a variable may have that
    name. If the library's header is included, its types, macros and namespace aliases count too; the header alone is no use.
    """
    headers = {one for code in codes.values() for one in INCLUDE.findall(code)} - {
        posixpath.basename(one) for one in codes
    }
    anything = any(COMPUTED_INCLUDE.search(code) for code in codes.values())
    found = []
    for name in forbidden:
        word = r"\s*::\s*".join(re.escape(part) for part in name.split("::"))
        named, pasting = [rf"{word}\b"], list[str]()
        if "::" not in name:
            named = [rf"{word}(?=\s*::)", rf"{word}[A-Z]\w*(?=\s*\()", rf"(?<=namespace ){word}(?=\s*;)"]
            if anything or any(_is_of_library(one, name) for one in headers):
                named += [rf"{word}[A-Z]\w*", rf"{word.upper()}_\w+", rf"{word}(?=\s*;|[ \t]*$)"]
                named += [rf"^[ \t]*#[ \t]*define\b[^\n]*\b{word}\b"]
                pasting = ["##"]
        pattern = re.compile("|".join([rf"(?<!\w)(?<!\w::)(?:{'|'.join(named)})", *pasting]), re.MULTILINE)
        for file_name, code in codes.items():
            line, counted = 1, 0
            for match in pattern.finditer(code):
                line, counted = line + code.count("\n", counted, match.start()), match.start()
                words = f"pastes names together, beside a header of {name}" if match.group() == "##" else f"uses {name}"
                found.append(ForbiddenUse(file_name, line, words))
    return sorted(set(found), key=lambda one: (one.file != file, one.file, one.line))


def _is_of_library(header: str, name: str) -> bool:
    """Whether a header belongs to a library, as `cublas_v2.h` and `<./thrust/transform.h>` do."""
    return any(part.startswith(name) for part in posixpath.normpath(header).split("/"))


def foreign_operators(ran: Iterable[RanOperator], allowed: Sequence[str]) -> list[RanOperator]:
    """The operators that are neither plumbing nor allowed by the assignment."""
    return [one for one in ran if one.name not in PLUMBING and one.name not in allowed]
