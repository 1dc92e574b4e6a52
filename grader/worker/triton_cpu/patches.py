"""The table of all changes in Triton's interpreter: the changed names, the reason, and the change of Triton that makes
it unnecessary.

Read in triton 3.6.0 and 3.7.1. A Triton without one of the names is refused with that name, because kernels would run
unchecked or compute nonsense.
"""

from __future__ import annotations

from functools import reduce
from importlib.metadata import version
from typing import Any, NamedTuple

from triton.runtime import interpreter


class Patch(NamedTuple):
    """A change in Triton's interpreter.

    Attributes:
        names: required, in triton.runtime.interpreter.
        module: with the change, below grader/worker.
        why: the reason.
        until: the change of Triton to wait for.
    """

    names: tuple[str, ...]
    module: str
    why: str
    until: str


def _builder(*names: str) -> tuple[str, ...]:
    return tuple(f"InterpreterBuilder.{name}" for name in names)


PATCHES = (
    Patch(
        (
            "_implicit_cvt",
            "_unwrap_tensor",
            "GridExecutor.__call__",
            *_builder("create_select", "create_bitcast", "create_int_to_ptr", "create_ptr_to_int"),
        ),
        "triton_cpu/checking",
        "a pointer is to know the tensor that it is from, and a launch its kernel and grid",
        "no plan: Triton keeps no origin of a pointer",
    ),
    Patch(
        ("InterpretedFunction.__call__",),
        "triton_cpu/checking",
        "a kernel without its grid, or `tl.cdiv` for one, runs as Python outside of a launch, and a GPU refuses it",
        "no plan",
    ),
    Patch(
        _builder("create_masked_load", "create_masked_store", "create_atomic_rmw", "create_atomic_cas"),
        "triton_cpu/checking",
        "each access is checked before or after it is made; block pointers, descriptors and plain loads end in these four",
        "no plan: the interpreter checks nothing",
    ),
    Patch(
        (
            *_builder("create_barrier", "create_dot"),
            "ReduceScanOpInterface.apply",
            "interpreter_semantic.load",
        ),
        "triton_cpu/checking",
        "a program has one thread, and on a GPU many, which wait for each other at these; a number is a block of one",
        "no plan",
    ),
    Patch(
        (
            "_get_np_dtype",
            "_validate_np_data_size",
            "TensorHandle.__post_init__",
            *_builder("cast_impl", "create_fp_to_fp"),
        ),
        "triton_cpu/bfloat16",
        "a block of bfloat16 is kept as its bits, in uint16, which operators take for integers",
        "issue 11584 of triton-lang/triton; its pull request 11585, for tl.dot alone, was not taken",
    ),
    Patch(
        _builder(
            *("create_fabs", "create_bitcast", "create_int_to_ptr", "create_ptr_to_int"),
            *("create_masked_load", "create_masked_store", "create_atomic_rmw"),
        ),
        "triton_cpu/bfloat16",
        "these look at 16 bits, and a block is float32 now",
        "as above",
    ),
    Patch(
        ("_implicit_cvt", "InterpretedFunction.run"),
        "triton_cpu/arguments",
        "a plain bool has 32 bits for a type of one and is refused; an int from 2^31 on has 32 bits for a type of 64 and wraps round; "
        "an int that is 1 is a tensor, and on a GPU a constant; a float is a Python number, and on a GPU a tensor",
        "bools: in Triton's main branch since February 2026, in no release before 3.8",
    ),
    Patch(
        ("GridExecutor.__call__", "InterpretedFunction.run"),
        "interpreting",
        "the grid of a launch is held against CUDA's limits, and launches are counted",
        "no plan: the interpreter runs any grid",
    ),
    Patch(
        ("GridExecutor.__call__", *_builder("create_dot")),
        "triton_cpu/tracing",
        "in a traced call, a few programs of a launch run, and products of tiles are counted",
        "no plan: the interpreter runs every program",
    ),
    Patch(
        _builder("create_get_program_id"),
        "triton_cpu/checking",
        "the axes along which programs ask for their index tell a grid that is laid along another axis",
        "no plan",
    ),
    Patch(
        ("_patch_lang_tensor", "ReduceOps.generic_reduce", "ScanOps.generic_scan"),
        "triton_cpu/combining",
        "a combine function of the student's is called for each element",
        "no plan",
    ),
    Patch(
        ("interpreter_builder.codegen_fns",),
        "triton_cpu/products",
        "`tl.dot` takes tiles of any size, and a GPU none with fewer than 16 factors to add up",
        "no plan",
    ),
    Patch(
        _builder("create_extern_elementwise"),
        "triton_cpu/libdevice",
        "libdevice's functions are stubs",
        "no plan",
    ),
    Patch(
        ("ASTTransformer.visit_Assign", "interpreter_semantic.to_tensor"),
        "triton_cpu/assignments",
        "a number of a tuple, with an annotation or changed in place stays a Python number, and on a GPU is a tensor",
        "no plan",
    ),
    Patch(
        ("ASTTransformer.visit_Assign", "FunctionRewriter._compile_and_exec"),
        "triton_cpu/loops",
        "the variable of a loop is a Python number, and on a GPU a tensor",
        "no plan",
    ),
    Patch(
        _builder("create_maxnumf", "create_minnumf", "create_clampf"),
        "triton_cpu/extremes",
        "of a number and a NaN these give NaN, and on a GPU the number",
        "no plan",
    ),
    Patch(
        _builder("create_add", "create_sub", "create_atomic_rmw"),
        "triton_cpu/bits",
        "a sum of two bools is their `or`, and a difference is refused; so is an atomic exchange of floats",
        "no plan",
    ),
    Patch(
        ("FunctionRewriter._compile_and_exec",),
        "triton_cpu/logic",
        "`and`, `or`, `not` and a branch take a block for true",
        "no plan",
    ),
    Patch(
        ("FunctionRewriter._compile_and_exec", "FunctionRewriter._find_def", "ReduceScanOpInterface.__init__"),
        "triton_cpu/names",
        "a kernel's text is compiled without the variables of an enclosing function, from its last line with `def` on, and with Python's "
        "`max` and `min`; it may use any global variable, which a GPU's compiler refuses; a reduction calls its function as it stands",
        "no plan",
    ),
    Patch(
        ("FunctionRewriter._compile_and_exec",),
        "triton_cpu/syntax",
        "a kernel may have any part of Python, as `break`, and a GPU's compiler takes few",
        "no plan",
    ),
    Patch(
        ("InterpretedFunction.run",),
        "absent_gpu/kernels",
        "a warmup compiles nothing, and a launch returns nothing",
        "no plan",
    ),
    Patch(
        ("_patch_lang", "_LangPatchScope.restore", "interpreter_builder.options"),
        "triton_cpu/shortcuts",
        "each call of a device function looks through all of the language, each sum of integers for an overflow that is not told, and "
        "each block makes its shape anew (`tl.tensor.__init__`)",
        "no plan",
    ),
    Patch(
        ("TensorDescHandle.materialize_pointers",),
        "triton_cpu/descriptors",
        "the interpreter has no create_descriptor_reduce",
        "a builder that has one: this then hides it",
    ),
)


def check() -> None:
    """Raise RuntimeError with the names that this Triton lacks."""
    if missing := [name for patch in PATCHES for name in patch.names if not _is_there(name)]:
        raise RuntimeError(f"the interpreter of triton {version('triton')} has no {', '.join(dict.fromkeys(missing))}")


def _is_there(name: str) -> bool:
    def step(one: Any, part: str) -> Any:
        return getattr(one, part, None)

    return reduce(step, name.split("."), interpreter) is not None
