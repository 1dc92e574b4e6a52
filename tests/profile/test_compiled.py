"""What the compiler's texts say of a kernel's lines."""

# ruff: noqa: E501
from __future__ import annotations

import base64
import time
import zlib
from typing import Any, Literal

import pytest

from grader.profile.compiled import MAX_ENTRIES, MAX_NAMES, MAX_TEXT, Compiled, read, unpack
from grader.protocol import CompiledKernel, CompiledText

FILE = "kernel.py"
# As Triton 3.7.1 writes them for sm_90.
TTGIR = """
#blocked1 = #ttg.blocked<{sizePerThread = [4], threadsPerWarp = [32], warpsPerCTA = [8], order = [0]}>
#mma = #ttg.nvidia_mma<{versionMajor = 3, versionMinor = 0, warpsPerCTA = [4, 1], instrShape = [16, 128, 16]}>
#loc = loc("kernel.py":5:0)
module attributes {"ttg.num-ctas" = 1 : i32, "ttg.num-warps" = 4 : i32, ttg.target = "cuda:90", "ttg.threads-per-warp" = 32 : i32} {
  tt.func public @kernel(%x_ptr: !tt.ptr<f32> {tt.divisibility = 16 : i32} loc("x_ptr"(#loc))) attributes {noinline = false} {
    %x_7 = tt.load %x_6, %x_4 : tensor<1024x!tt.ptr<f32>, #blocked1> loc(#loc12)
    %y = tt.extern_elementwise %x_7 {libname = "", libpath = "", pure = true, symbol = "__nv_tanhf"} : (tensor<1024xf32, #blocked1>) -> tensor<1024xf32, #blocked1> loc(#loc30)
    %z = tt.extern_elementwise %y {libname = "", libpath = "", pure = true, symbol = "__nv_sinf"} : (tensor<1024xf32, #blocked1>) -> tensor<1024xf32, #blocked1> loc(#loc11)
    %u = tt.extern_elementwise %z {libname = "", libpath = "", pure = true, symbol = "__nv_tanhf"} : (tensor<1024xf32, #blocked1>) -> tensor<1024xf32, #blocked1> loc(#loc11)
    %v = tt.extern_elementwise %u {libname = "", libpath = "", pure = true, symbol = "__nv_expf"} : (tensor<1024xf32, #blocked1>) -> tensor<1024xf32, #blocked1> loc(#loc10)
    %acc:3 = ttng.warp_group_dot %x_39, %acc_40, %arg5 {inputPrecision = 0 : i32} : !ttg.memdesc<128x64xbf16> * !ttg.memdesc<64x128xbf16> -> tensor<128x128xf32, #mma> loc(#loc12)
    tt.return loc(#loc)
  } loc(#loc)
} loc(#loc)
#loc9 = loc("/scratch/kernel.py":16:16)
#loc10 = loc("/usr/lib/triton/language/standard.py":43:17)
#loc11 = loc(callsite(#loc10 at #loc20))
#loc12 = loc("kernel.py":12:16)
#loc20 = loc("kernel.py":11:16)
#loc30 = loc("y"(#loc9))
"""
PTX = """
.visible .entry kernel(
	.param .u64 .ptr .global .align 1 kernel_param_0
)
{
	.loc	1 9 16                          // kernel.py:9:16
	// begin inline asm
	mov.u32 %r1, %r5;
	@%p1 ld.global.v4.b32 { %r1, %r2, %r3, %r4 }, [ %rd1 + 0 ];
	// end inline asm
	.loc	2 43 17                         // standard.py:43:17 @[ kernel.py:11:28 ]
	ld.global.f64 %fd2, [ %rd13 + 0 ];
	add.f64 	%fd1, %fd2, %fd3;
	@%p2 mul.rn.f64 	%fd1, %fd2, %fd3;
	mov.f64 	%fd1, %fd2;
	wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {%r286,%r287}, %rd1, %rd2, p, 1, 1, 0, 0;
$L__BB0_3:                              // %__nv_tanhf.exit
	ret;
}
	.file	1 "/scratch/kernel.py"
"""


def packed(kind: Literal["ttgir", "ptx", "sass"], text: str) -> CompiledText:
    return CompiledText(kind, base64.b64encode(zlib.compress(text.encode())).decode())


def kernel(*texts: CompiledText) -> CompiledKernel:
    return CompiledKernel("kernel", 4, 0, "", texts)


def test_functions_have_the_students_lines_and_instructions_are_counted() -> None:
    found = read(kernel(packed("ttgir", TTGIR), packed("ptx", PTX), packed("sass", "add.f64 x;")), FILE)
    assert found.functions == {16: ["tanhf"], 11: ["sinf", "tanhf"]}
    assert (found.instructions, found.doubles) == (8, 2)
    assert (found.has_dot, found.lacks_tensor_cores) == (True, False)


@pytest.mark.parametrize(
    ("operation", "instruction", "lacks"),
    [
        ("ttng.warp_group_dot", "mma.sync.aligned", False),
        ("ttng.warp_group_dot", "tcgen05.mma.cta_group::1", False),
        ("tt.dot", "fma.rn.f32", True),
        ("tt.trans", "fma.rn.f32", False),
    ],
)
def test_products_show_with_and_without_tensor_cores(operation: str, instruction: str, lacks: bool) -> None:
    ttgir, ptx = TTGIR.replace("ttng.warp_group_dot", operation), PTX.replace("wgmma.mma_async.sync", instruction)
    assert read(kernel(packed("ttgir", ttgir), packed("ptx", ptx)), FILE).lacks_tensor_cores == lacks


@pytest.mark.parametrize(
    "packed_text",
    ["", "!!", "QUJD", base64.b64encode(zlib.compress(b"\xff\xfe")[:-5]).decode(), "ä"],
)
@pytest.mark.parametrize("kind", ["ttgir", "ptx"])
def test_a_text_of_another_form_gives_nothing(kind: Any, packed_text: str) -> None:
    assert read(kernel(CompiledText(kind, packed_text)), FILE) == Compiled()


def test_a_text_is_cut() -> None:
    assert len(unpack(packed("ptx", "a" * (3 * MAX_TEXT)))) == MAX_TEXT


EXTERN = '%x = tt.extern_elementwise %y {{symbol = "{}"}} : tensor<4xf32, #b> loc({})'
HOSTILE = {
    "locations that double": "\n".join(f"#loc{n} = loc(callsite(#loc{n - 1} at #loc{n - 1}))" for n in range(1, 3000))
    + f"\n{EXTERN.format('f', '#loc2999)')}" * 30_000,
    "a location of itself": f"#loc1 = loc(callsite(#loc1 at #loc1))\n{EXTERN.format('f', '#loc1)')}",
    "a long line": "x" * MAX_TEXT,
    "quotes": '"' * MAX_TEXT,
    "symbols": "\n".join(EXTERN.format(f"f{n}", '"kernel.py":1:1)') for n in range(40_000)),
    "lines of their own": "\n".join(EXTERN.format("f", f'"kernel.py":{n}:1)') for n in range(40_000)),
    "empty lines": "\n" * MAX_TEXT,
}


@pytest.mark.parametrize("kind", ["ttgir", "ptx"])
@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_hostile_texts_take_little_time_and_memory(kind: Any, text: str) -> None:
    one = packed(kind, text)
    began = time.process_time()
    found = read(kernel(one), FILE)
    assert time.process_time() - began < 5
    assert len(found.functions) <= MAX_ENTRIES
    assert all(len(names) <= MAX_NAMES for names in found.functions.values())
