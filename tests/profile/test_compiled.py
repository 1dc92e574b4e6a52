"""What the compiler's texts say of a kernel's lines."""

# ruff: noqa: E501
from __future__ import annotations

import base64
import time
import zlib
from typing import Any, Literal

import pytest

from grader.profile.compiled import MAX_ENTRIES, MAX_TEXT, Compiled, read, unpack
from grader.protocol import CompiledKernel, CompiledText

FILE = "kernel.py"
# As Triton 3.7.1 writes them for sm_90.
TTGIR = """
#blocked = #ttg.blocked<{sizePerThread = [1, 4], threadsPerWarp = [2, 16], warpsPerCTA = [4, 1], order = [1, 0]}>
#blocked1 = #ttg.blocked<{sizePerThread = [4], threadsPerWarp = [32], warpsPerCTA = [8], order = [0]}>
#mma = #ttg.nvidia_mma<{versionMajor = 3, versionMinor = 0, warpsPerCTA = [4, 1], instrShape = [16, 128, 16]}>
#loc = loc("kernel.py":5:0)
#loc30 = loc("x"(#loc9))
module attributes {"ttg.num-ctas" = 1 : i32, "ttg.num-warps" = 4 : i32, ttg.target = "cuda:90", "ttg.threads-per-warp" = 32 : i32} {
  tt.func public @kernel(%x_ptr: !tt.ptr<f32> {tt.divisibility = 16 : i32} loc("x_ptr"(#loc))) attributes {noinline = false} {
    %x_7 = tt.load %x_6, %x_4 : tensor<1024x!tt.ptr<f32>, #blocked1> loc(#loc30)
    %s_6 = tt.load %s_4 : tensor<64x!tt.ptr<f32>, #ttg.slice<{dim = 1, parent = #blocked}>> loc(#loc11)
    %s_7 = tt.load %s_5 : tensor<64x!tt.ptr<f32>, #blocked1> loc(#loc11)
    %m = tt.load %s_5 : tensor<64x!tt.ptr<f32>, #ttg.slice<{dim = 1, parent = #mma}>> loc(#loc12)
    %n = tt.load %n_ptr : !tt.ptr<i32> loc(#loc12)
    %x_14 = ttg.async_copy_global_to_local %x_11, %x_12 mask %a {contiguity = 8 : i32} : tensor<128x64x!tt.ptr<bf16>, #blocked> -> <128x64xbf16, #shared, #smem, mutable> loc(#loc13)
    ttng.async_tma_copy_global_to_local %k[%1, %c0] %tile, %2, %true : !tt.tensordesc<tensor<64x64xbf16, #shared>>, !ttg.memdesc<1xi64> -> !ttg.memdesc<64x64xbf16> loc(#loc14)
    ttng.async_tma_copy_local_to_global %o[%1, %c0] %9 : !tt.tensordesc<tensor<64x64xbf16, #shared>>, !ttg.memdesc<64x64xbf16> loc(#loc15)
    %y = tt.extern_elementwise %x_7 {libname = "", libpath = "", pure = true, symbol = "__nv_tanhf"} : (tensor<1024xf32, #blocked1>) -> tensor<1024xf32, #blocked1> loc(#loc16)
    %acc:3 = ttng.warp_group_dot %x_39, %acc_40, %arg5 {inputPrecision = 0 : i32} : !ttg.memdesc<128x64xbf16> * !ttg.memdesc<64x128xbf16> -> tensor<128x128xf32, #mma> loc(#loc17)
    %2 = tt.atomic_rmw fadd, acq_rel, gpu, %1, %s_7, %c : (tensor<64x!tt.ptr<f32>, #blocked1>, tensor<64xf32, #blocked1>) -> tensor<64xf32, #blocked1> loc(#loc18)
    tt.store %1, %2, %x_4 : tensor<1024x!tt.ptr<f32>, #blocked1> loc(#loc19)
    tt.return loc(#loc)
  } loc(#loc)
} loc(#loc)
#loc9 = loc("/scratch/kernel.py":9:16)
#loc10 = loc("/usr/lib/triton/language/standard.py":43:17)
#loc11 = loc(callsite(#loc10 at #loc20))
#loc12 = loc("kernel.py":12:16)
#loc13 = loc("kernel.py":13:16)
#loc14 = loc("kernel.py":14:16)
#loc15 = loc("kernel.py":15:16)
#loc16 = loc("kernel.py":16:16)
#loc17 = loc("kernel.py":17:16)
#loc18 = loc("kernel.py":18:16)
#loc19 = loc("kernel.py":19:16)
#loc20 = loc("kernel.py":11:16)
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
	@!%p2 ld.global.L1::evict_last.L2::cache_hint.v2.b16 { %rs1, %rs2 }, [ %rd13 + 0 ], %rd12;
	.loc	2 43 17                         // standard.py:43:17 @[ kernel.py:11:28 ]
	ld.global.b32 %r9, [ %rd13 + 0 ];
	add.f64 	%fd1, %fd2, %fd3;
	mov.f64 	%fd1, %fd2;
	.loc	1 13 16                         // kernel.py:13:16
	cp.async.cg.shared.global [ %r1 + 0 ], [ %rd1 + 0 ], 0x10, %r5;
	cp.async.ca.shared.global [ %r1 + 0 ], [ %rd1 + 0 ], 4;
	cp.async.wait_group 0;
	.loc	1 14 16
	@%p95 cp.async.bulk.tensor.3d.shared::cta.global.mbarrier::complete_tx::bytes [%r696], [%rd5, {%r658}], [%r695];
	.loc	1 15 16                         // kernel.py:15:16
	@%p96 cp.async.bulk.tensor.3d.global.shared::cta.bulk_group [%rd57, {%r468, %r470, %r471}], [%r469];
	.loc	1 16 16                         // kernel.py:16:16
	call.uni (retval0),
	__nv_sinf,
	(
	param0
	);
	.loc	1 17 16                         // kernel.py:17:16
	wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {%r286,%r287}, %rd1, %rd2, p, 1, 1, 0, 0;
	.loc	1 19 16                         // kernel.py:19:16
	@%p1 st.global.b8 [ %rd2 + 0 ], { %r6 };
	st.shared.b32 [ %r2 + 0 ], { %r6 };
	ret;
}
	.file	1 "/scratch/kernel.py"
	.file	2 "/usr/lib/triton/language/standard.py"
"""
SASS = """
	//## File "kernel.py", line 9
        /*0000*/                   LDC R1, c[0x0][0x28] ;
        /*0130*/              @!P0 LDG.E.128 R4, desc[UR4][R10.64] ;
	//## File "/usr/lib/triton/language/standard.py", line 43 inlined at "kernel.py", line 11
        /*0140*/                   STL.64 [R1+0x8], R2 ;
        /*0150*/              @P1  LDL R3, [R1+0x8] ;
	//## File "kernel.py", line 19
        /*0160*/                   STG.E.128 desc[UR4][R10.64], R4 ;
"""


def packed(kind: Literal["ttgir", "ptx", "sass"], text: str) -> CompiledText:
    return CompiledText(kind, base64.b64encode(zlib.compress(text.encode())).decode())


def kernel(*texts: CompiledText) -> CompiledKernel:
    return CompiledKernel("kernel", 4, 0, "", texts)


@pytest.fixture(scope="module")
def found() -> Compiled:
    return read(kernel(packed("ttgir", TTGIR), packed("ptx", PTX), packed("sass", SASS)), FILE)


def test_functions_have_their_lines_and_doubles_are_counted(found: Compiled) -> None:
    assert found.functions == {16: ["tanhf", "sinf"]}
    assert found.doubles == 1


@pytest.mark.parametrize("instruction", ["wgmma.mma_async.sync", "mma.sync.aligned", "tcgen05.mma.cta_group::1"])
def test_tensor_cores_show_in_instructions(instruction: str) -> None:
    ptx = PTX.replace("wgmma.mma_async.sync", instruction)
    assert read(kernel(packed("ttgir", TTGIR), packed("ptx", ptx)), FILE).has_tensor_cores


def test_a_dot_without_tensor_cores_shows() -> None:
    ptx = PTX.replace("wgmma.mma_async", "fma")
    found = read(kernel(packed("ttgir", TTGIR.replace("ttng.warp_group_dot", "tt.dot")), packed("ptx", ptx)), FILE)
    assert found.lacks_tensor_cores
    assert not read(kernel(packed("ttgir", TTGIR.replace("ttng.warp_group_dot", "tt.trans"))), FILE).lacks_tensor_cores


@pytest.mark.parametrize(
    "packed_text",
    ["", "!!", "QUJD", base64.b64encode(zlib.compress(b"\xff\xfe")[:-5]).decode(), "ä"],
)
@pytest.mark.parametrize("kind", ["ttgir", "ptx", "sass"])
def test_a_text_of_another_form_gives_nothing(kind: Any, packed_text: str) -> None:
    assert read(kernel(CompiledText(kind, packed_text)), FILE) == Compiled()


def test_a_text_is_cut() -> None:
    assert len(unpack(packed("ptx", "a" * (3 * MAX_TEXT)))) == MAX_TEXT


HOSTILE = {
    "locations that double": "\n".join(f"#loc{n} = loc(callsite(#loc{n - 1} at #loc{n - 1}))" for n in range(1, 3000))
    + "\n%x = tt.load %y : tensor<4x!tt.ptr<f32>, #b> loc(#loc2999)",
    "a location of itself": "#loc1 = loc(callsite(#loc1 at #loc1))\n%x = tt.load %y : tensor<4x!tt.ptr<f32>, #b> loc(#loc1)",
    "deep slices": "%x = tt.load %y : tensor<4x!tt.ptr<f32>, " + "#ttg.slice<{dim = 1, parent = " * 5000,
    "a long line": "x" * MAX_TEXT,
    "quotes": '"' * MAX_TEXT,
    "comments": (".loc 1 2 3 // " + "a" * 3000 + "\n") * 1300,
    "places": ('//## File "' + "a" * 3900 + "\n") * 1000,
    "colons": (".loc 1 2 3 //" + ":1" * 1900 + "\n") * 1000,
    "lines of their own": "".join(
        f".loc 1 {n} 1 // kernel.py:{n}:1\ncall (r), f{n}, (p);\nadd.f64 x;\n" for n in range(30_000)
    ),
    "empty lines": "\n" * MAX_TEXT,
}


@pytest.mark.parametrize("kind", ["ttgir", "ptx", "sass"])
@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_hostile_texts_take_little_time_and_memory(kind: Any, text: str) -> None:
    one = packed(kind, text)
    began = time.process_time()
    found = read(kernel(one), FILE)
    assert time.process_time() - began < 5
    assert sum(map(len, found.functions.values())) <= MAX_ENTRIES
