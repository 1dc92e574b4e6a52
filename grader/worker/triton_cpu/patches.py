"""The names in Triton's interpreter that this room and `absent_gpu/kernels.py` change or need; their modules say why.

Read in triton 3.6.0 and 3.7.1. A Triton without one of the names is refused with that name, because kernels would run
unchecked or compute nonsense.
"""

from __future__ import annotations

from functools import reduce
from importlib.metadata import version
from typing import Any

from triton.runtime import interpreter

BUILDER = (
    *(
        "add",
        "sub",
        "select",
        "bitcast",
        "int_to_ptr",
        "ptr_to_int",
        "fp_to_fp",
        "fabs",
        "maxnumf",
        "minnumf",
        "clampf",
    ),
    *(
        "masked_load",
        "masked_store",
        "atomic_rmw",
        "atomic_cas",
        "barrier",
        "dot",
        "get_program_id",
        "extern_elementwise",
    ),
)
NAMES = (
    *(f"InterpreterBuilder.create_{name}" for name in BUILDER),
    *("InterpreterBuilder.cast_impl", "interpreter_builder.codegen_fns", "interpreter_builder.options"),
    *("TensorHandle.__post_init__", "TensorDescHandle.materialize_pointers", "_get_np_dtype", "_validate_np_data_size"),
    *("interpreter_semantic.load", "interpreter_semantic.to_tensor", "_implicit_cvt", "_unwrap_tensor"),
    *("ReduceScanOpInterface.__init__", "ReduceScanOpInterface.apply"),
    *("ReduceOps.generic_reduce", "ScanOps.generic_scan"),
    *("GridExecutor.__call__", "InterpretedFunction.__call__", "InterpretedFunction.run"),
    *("ASTTransformer.visit_Assign", "FunctionRewriter._compile_and_exec", "FunctionRewriter._find_def"),
    *("_patch_lang", "_patch_lang_tensor", "_LangPatchScope.restore"),
)


def check() -> None:
    """Raise RuntimeError with the names that this Triton lacks."""
    if missing := [name for name in NAMES if not _is_there(name)]:
        raise RuntimeError(f"the interpreter of triton {version('triton')} has no {', '.join(missing)}")


def _is_there(name: str) -> bool:
    def step(one: Any, part: str) -> Any:
        return getattr(one, part, None)

    return reduce(step, name.split("."), interpreter) is not None
