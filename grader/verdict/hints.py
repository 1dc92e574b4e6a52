"""Hints: for errors of Triton, nvcc and g++ that students meet, the next step. The report shows a hint below its error."""

from __future__ import annotations

import re
from typing import NamedTuple

from grader.protocol import code_of


class Hint(NamedTuple):
    """The next step after an error.

    said: a pattern of the error's message. words: a sentence for the student; {entry} stands for the function's name, {contract}
    for its declaration, and {name} for the pattern's group of that name. place: a pattern of the last frame of the traceback, or of
    a compiler's lines below its error; "" fits any.
    """

    said: str
    words: str
    place: str = ""


LAUNCH = r"\w\[.*\]\("  # Triton's launch of a kernel: kernel[grid](
OUTSIDE = r"Cannot call @triton\.jit'd outside"
UNKNOWN = r"(module 'triton(\.\w+)*' has no attribute|cannot import name(?= '\w+' from 'triton\b))"
FITS_SEVERAL = "more than one instance of overloaded function"  # nvcc says so, and lists the arguments below.
INDEX = r"\w\[[^\]]*\](?!\()"  # An index, as x[i], that is no launch.

# In order of precedence: the first hint that fits is shown.
HINTS = {
    # Launches of Triton's kernels
    "grid-forgotten": Hint(
        OUTSIDE,
        "a kernel is launched with its grid in square brackets, as kernel[(programs,)](x, y, n, BLOCK=1024): this call has none",
        r"(?s)\A(?!.*\btl\.)",
    ),
    "grid-is-no-tuple": Hint(
        r"'int' object is not iterable|object of type '(int|float)' has no len|'float' object is not iterable",
        "a grid is a tuple, also where it has one number: kernel[(rows,)](...) with the comma; a function of meta returns a tuple too",
        LAUNCH,
    ),
    "grid-with-threads": Hint(
        r"'tuple' object cannot be interpreted as an integer|'>' not supported between instances of 'tuple' and 'int'",
        "kernel[grid] takes the grid alone, and no number of threads beside it: a block's size is an argument, num_warps=4 an option",
        LAUNCH,
    ),
    "grid-is-no-integer": Hint(
        r"'float' object cannot be interpreted as an integer",
        "a grid has whole numbers: divide with triton.cdiv(n, BLOCK), which rounds up, and not with /",
        LAUNCH,
    ),
    "grid-of-four": Hint(
        r"grid must have at most 3 dimensions",
        "a grid has one, two or three numbers: make one of several, and take it apart in the kernel with // and %",
    ),
    "too-many-warps": Hint(
        r"out of resource: threads",
        "num_warps is at most 32, which is 1024 threads, and need not grow with the block: 4 or 8 do",
    ),
    "heuristic-key": Hint(
        r"^KeyError: ",
        "a heuristic asks for a name that the launch does not pass: write @triton.autotune above @triton.heuristics, and the heuristic "
        "sees the configuration too",
        r"heuristics|\bargs\[",
    ),
    "meta-key": Hint(
        r"^KeyError: ",
        "the grid's function asks meta for a name that the launch does not pass: meta has the kernel's arguments under their own names",
        r"(?i)\bmeta\[|lambda",
    ),
    "jit-missing": Hint(
        r"'function' object is not subscriptable",
        "only a function with @triton.jit above it can be launched with kernel[grid](...): is it missing there?",
    ),
    "autotune-below-jit": Hint(
        r"'function' object has no attribute 'arg_names'", "@triton.autotune stands above @triton.jit, not below it"
    ),
    "argument-of-launch-missing": Hint(
        r"missing \d+ required positional arguments?: ",
        "the launch leaves out an argument of the kernel: those that are tl.constexpr must be passed as well, as BLOCK=1024",
        LAUNCH,
    ),
    "too-many-arguments": Hint(
        r"got multiple values for argument '_(semantic|builder|generator)'",
        "this function of triton.language takes fewer arguments: tl.arange(start, end), for one, has no step",
    ),
    "argument-twice": Hint(
        r"got multiple values for (keyword )?argument|^ValueError: Conflicting meta-parameters",
        "the kernel gets this argument twice: by its place and by its name, or from the launch and from a configuration of triton.autotune",
    ),
    "launch-returns-nothing": Hint(
        r"'(NoneType|CompiledKernel)' (and|object)|and '(NoneType|CompiledKernel)'",
        "a launch returns nothing: the kernel stores its result where a pointer says, and the tensor that was passed has it then",
        LAUNCH,
    ),
    "module-level": Hint(
        r"^needs a GPU: ",
        'it runs whenever the file is imported: put what tries your kernel out below `if __name__ == "__main__":`',
        r", in <module>",
    ),
    "input-asked-for": Hint(
        r"^EOFError: EOF when reading a line",
        'nobody can type while a file is graded: put what asks for input below `if __name__ == "__main__":`',
    ),
    "module-absent": Hint(
        r"imports (?P<name>[\w.]+), and there is no \w+\.py in the submission",
        "{name} is not installed where the course is graded: do without it; or, if it is your own module, hand it in too",
    ),
    "notebooks-name": Hint(
        r"name '(get_ipython|display)' is not defined",
        "only a notebook has this: delete the line",
    ),
    "relative-import": Hint(
        r"attempted relative import",
        "your file is no part of a package: import a module beside it by its name alone, without the dot",
    ),
    # torch.autograd.Function
    "gradients-in-number": Hint(
        r"returned an incorrect number of gradients",
        "backward returns a value for each argument of forward but ctx, in their order: a tensor's gradient, None for what has none",
    ),
    "saved-in-number": Hint(
        r"values to unpack",
        "ctx.saved_tensors has what forward gave to ctx.save_for_backward(...), as many and in that order",
        r"\bsaved_tensors\b",
    ),
    # Functions and names in Triton's kernels
    "libdevice-elsewhere": Hint(
        rf"{UNKNOWN} 'libdevice'",
        "libdevice is not in triton.language: from triton.language.extra import libdevice, and in the kernel libdevice.tanh(x)",
    ),
    "no-tanh": Hint(
        rf"{UNKNOWN} 'tanh'",
        "triton.language has no tanh: write 2 * tl.sigmoid(2 * x) - 1, or take libdevice.tanh from triton.language.extra",
    ),
    "no-inf": Hint(rf"{UNKNOWN} '(inf|Inf|infinity)'", 'write float("inf") in a kernel'),
    "no-such-function": Hint(
        rf"{UNKNOWN}|No module named 'triton\.",
        "Triton has nothing of this name; not every function of PyTorch or NumPy is in it (triton-lang.org lists those that are)",
    ),
    "helper-without-jit": Hint(
        r"Unsupported function referenced: <function", "a function that a kernel calls needs @triton.jit above it too"
    ),
    "torch-in-a-kernel": Hint(
        r"Unsupported function referenced|must be Tensor, not tensor|must be real number, not tensor",
        "a kernel can use functions of triton.language alone: tl.exp in place of torch.exp, math.exp or np.exp",
    ),
    "number-of-a-block": Hint(
        r"only (0-dimensional|size-1|length-1) arrays can be converted|float\(\) argument must be|int\(\) argument must be",
        "math's functions, float() and int() take one number and this is a block: use tl.exp and its like, or x.to(tl.float32)",
    ),
    "numpy-in-a-kernel": Hint(
        r"operand 'tensor' does not support ufuncs|'NoneType' object has no attribute 'to_tensor'",
        "a kernel can use functions of triton.language alone: tl.exp(x) in place of np.exp(x)",
    ),
    "no-constexpr": Hint(
        r"arange's arguments must be of type tl\.constexpr|Shape element \d+ must have type `constexpr",
        "a block's size must be known when the kernel is compiled: annotate the argument, as BLOCK: tl.constexpr, and pass it",
    ),
    "power-of-two": Hint(
        r"must be a power of 2",
        "Triton wants a power of two here: for a block take triton.next_power_of_2(n) before the launch, pass it as a tl.constexpr "
        "and mask what is too much",
    ),
    "too-large-a-block": Hint(
        r"exceeds triton maximum tensor numel",
        "one program cannot hold so many elements: loop over parts of them, or share them out among programs",
    ),
    "global-variable": Hint(
        r"Cannot access global variable",
        "pass the value as an argument, or write NAME = tl.constexpr(...) at the top of the file; a function needs @triton.jit",
    ),
    "pythons-own-function": Hint(
        r"NameError(?:\('|: )(sum|any|all|sorted|map|filter|enumerate|zip|abs|round|pow|tuple|bool|reversed|str|repr|type|set|dict) "
        "is not defined",
        "kernels know few of Python's own functions: take tl.sum, tl.abs and their like",
    ),
    "name-without-a-value": Hint(
        r"NameError(?:\(.|: )\w+ is not defined",
        "a name needs a value on every path: give it one before the `if` or the loop (or it is misspelt)",
    ),
    "index-of-a-block": Hint(
        r"unsupported tensor index|does not support item assignment|__setitem__ is not supported",
        "elements of a block cannot be picked out or set: x[:, None] adds a dimension, and tl.load(x_ptr + i) reads memory",
    ),
    "index-of-a-pointer": Hint(
        r"'int' object is not iterable|`_semantic` argument must be provided",
        "elements are not picked out by [i] in a kernel: read memory with tl.load(x_ptr + i) and write it with tl.store(y_ptr + i, y)",
        r"(?m)^(?!.*\b(tl|triton)\.\w+\().*" + INDEX,
    ),
    "axis-of-two-values": Hint(
        r"create_reduce\(\): incompatible|'float' object cannot be interpreted as an integer|axis \[|Did you forget to add @triton\.jit",
        "tl.max(x, axis) finds the largest along an axis; the larger of two is tl.maximum(a, b)",
        r"\btl\.(max|min)\([^=\n]*,\s*(?!-?\d+\s*[,)])",
    ),
    "outside-of-a-kernel": Hint(
        rf"{OUTSIDE}|Did you forget to add @triton\.jit|of type <class 'torch\.Tensor'> to tensor",
        "what begins with tl. works in a @triton.jit function alone (before the launch it is triton.cdiv), and triton.next_power_of_2 "
        "before the launch alone: pass its result",
    ),
    # Blocks, pointers and their types
    "no-pointer": Hint(
        r"Unsupported ptr type",
        "tl.load and tl.store take pointers: pass the tensor, and no number such as x.data_ptr() (are the launch's arguments in order?), "
        "and do not load from what was loaded already",
    ),
    "pointer-for-a-number": Hint(
        r"invalid operands of type pointer<",
        "one of the two is a pointer: a tensor was passed where a number is meant (x.numel(), x.stride(0)), or tl.load is missing",
    ),
    "one-pointer-for-a-block": Hint(
        r"argument cannot be block type if pointer argument is not a block",
        "this is the address of one element, and a block goes with it: add the offsets, as y_ptr + i",
    ),
    "other-without-a-mask": Hint(
        r"`other` cannot be provided without `mask`",
        "other is what elements get that the mask leaves out: pass mask=i < n as well",
    ),
    "mask-of-a-block-pointer": Hint(
        r"cannot be specified for loading block pointers|not supported for block pointers",
        'a block pointer takes boundary_check=(0,) and padding_option="zero" in place of mask and other',
    ),
    "shapes-differ": Hint(
        r"Cannot make_shape_compatible|incompatible dimensions at index",
        "blocks that meet have equal sizes, or 1, in every dimension: [:, None] and [None, :] add one; a mask has its pointers' shape",
    ),
    "if-on-a-block": Hint(
        r"Boolean value of Tensor with more than one|truth value of an array|dynamic condition has inconsistent types",
        "a block has many values and Python's `if`, `and` and `not` want one: choose with tl.where(condition, a, b), join with & and |",
    ),
    "chained-comparison": Hint(
        r"simultaneous multiple comparison",
        "compare two values at a time, in brackets, and join them with &: (0 <= i) & (i < n)",
    ),
    "loop-carried-type": Hint(
        r"Loop-carried variable",
        "begin with the shape and dtype that the loop makes of it: acc = tl.zeros((BLOCK,), dtype=tl.float32)",
    ),
    "leaving-a-loop": Hint(
        r"unsupported AST node type: (Break|Continue)|Cannot have `return` statements inside|We use SCF, so the loop body",
        "a kernel's loop cannot be left early: work out before it how far it goes, or let a mask leave elements out",
    ),
    "loop-over-a-range": Hint(
        r"Only `range` and `static_range` iterators|a loop has one variable|'(Tuple|List|Name)' object has no attribute '(func|id)'",
        "a kernel's loop has one variable, and goes over range(...), tl.range(...) or tl.static_range(...): write out any other",
    ),
    "not-in-kernels": Hint(
        r"unsupported AST node type|nested function definition|else` after a loop|else after for|'(Not)?In' (object|is not)",
        "kernels know a part of Python: no try, lambda, raise, class or function in it, no `in`, no `else` of a loop; do that outside",
    ),
    "no-lists": Hint(
        r"'tuple' object has no attribute '?append|only tuple comprehensions",
        "a kernel has no lists: add to one block, or give the block one more dimension",
    ),
    "libdevice-of-another-type": Hint(
        r"KeyError(: |\()\(triton\.language\.",
        "libdevice's functions take float32 or float64 alone: convert what was loaded, as x.to(tl.float32), and convert back to store it",
        r"\blibdevice\.",
    ),
    "no-f-strings": Hint(r"Cannot evaluate f-string", 'a kernel prints values with tl.device_print("x", x)'),
    "print-text-first": Hint(
        r"cannot convert .* to tensor|is not string|device_print\(\)|'str' object has no attribute 'type'",
        'print() in a kernel takes text only as the first argument, then numbers and blocks, as print("m", m): one print for each text',
        r"print\(",
    ),
    "torch-dtype": Hint(
        r"'torch\.dtype' object has no attribute|of type: torch\.dtype",
        "kernels have dtypes of their own: tl.float32 in place of torch.float32; y_ptr.dtype.element_ty is what a pointer points at",
    ),
    "argument-of-no-type": Hint(
        r"specialize argument of type|cannot convert .* of type .* to tensor|'(numpy\.ndarray|list)' object has no attribute 'type'",
        "a kernel takes tensors and numbers: x.shape[0] in place of x.shape, no list, no NumPy array, and no None that is used",
    ),
    "block-is-no-tensor": Hint(
        r"'tensor' object has no attribute '(?!__)|object of type 'tensor' has no len",
        "in a kernel x is a pointer or a block, no torch.Tensor: pass sizes and strides as arguments, use tl's functions",
    ),
    "method-of-a-one": Hint(
        r"'int' object has no attribute '(to|cast|dtype|type|handle)'",
        "an argument that is 1, a size or a stride, is a plain number in a kernel: tl.cast(n, tl.int64) takes both",
    ),
    "shape-of-a-pointer": Hint(
        r"(InterpreterError|CompilationError)\b.*(list index out of range|'int' object is not callable|tuple index out of range)",
        "a pointer does not know its tensor's shape: pass x.shape[0], x.stride(0) and x.numel() as arguments of the kernel",
        r"\.(shape|numel|stride|size|dim)\b",
    ),
    "axis-out-of-range": Hint(
        r"invalid axis|axis -?\d+ (is )?out of bounds",
        "the axes are the block's in this program and not those of the tensor in memory: a row has axis 0 alone",
    ),
    "axis-is-called-dim": Hint(
        r"unexpected keyword argument '(dim|dims|keepdim|keepdims)'",
        "Triton says axis=0 where PyTorch says dim=0, and keep_dims=True",
    ),
    "program-id": Hint(
        r"program_id\(\) missing|program_id axis must be",
        "tl.program_id(axis) takes the axis of the grid: 0, 1 or 2",
    ),
    "zeros-without-dtype": Hint(
        r"missing .*'dtype'", "tl.zeros and tl.full want a dtype: tl.zeros((BLOCK,), dtype=tl.float32)"
    ),
    "argument-of-tl-missing": Hint(
        r"\w{1,80}\(\) missing \d+ required positional arguments?: ",
        "this function takes more: tl.store(pointers, values), tl.where(condition, a, b), tl.arange(start, end)",
        r"\btl\.",
    ),
    "float32-wanted": Hint(
        r"Expected dtype \['fp32', 'fp64'\] but got",
        "tl.exp, tl.log, tl.sqrt and their like take float32: convert with x.to(tl.float32) first",
    ),
    "no-power": Hint(
        r"'__pow__'|for \*\* or pow\(\)", "blocks have no **: write x * x, or tl.exp2(y * tl.log2(x)) for x > 0"
    ),
    "operator-of-integers": Hint(
        r"unexpected type (fp|bf)\d+", "// , % and shifts are for integers: use / or tl.floor(x / y)"
    ),
    "dot-of-small-tiles": Hint(
        r"Input shapes should have M >=|K >= 16|should be (at least|>=) 16",
        "tl.dot wants at least 16 along each side: take larger tiles and mask what is too much",
    ),
    "dot-of-unlike-shapes": Hint(
        r"equal reduction dimensions|equal ranks",
        "tl.dot multiplies (M, K) by (K, N): turn one with tl.trans, and for vectors use tl.sum(a * b)",
    ),
    "dot-that-turns": Hint(
        r"dot\(\) got an unexpected keyword argument 'trans_[ab]'",
        "tl.dot turns no operand any more: tl.dot(q, tl.trans(k))",
    ),
    "dot-of-unlike-dtypes": Hint(
        r"Both operands must be same dtype", "bring both operands of tl.dot to one dtype before, as p.to(v.dtype)"
    ),
    "no-matmul-operator": Hint(
        r"'MatMult' (object|is not)|for @: 'tensor'", "blocks have no operator @: write tl.dot(a, b)"
    ),
    # CUDA C++, in the words of nvcc and g++
    "host-function": Hint(
        r"calling a (constexpr )?__host__ function",
        "a kernel can call __device__ functions alone: write __device__ before your own, take fmaxf in place of std::max, an array in "
        "place of std::vector, and printf in place of std::cout",
    ),
    "kernel-returns": Hint(
        r"must have a void return type",
        "a kernel returns nothing: declare it as __global__ void and write the result through a pointer",
    ),
    "return-in-a-kernel": Hint(
        r"return value type does not match|return-statement with a value",
        "a function returns what its first line says, and a kernel nothing: write y[i] = ... and, to leave early, return;",
    ),
    "kernel-is-a-member": Hint(
        r"cannot be a member function", "a kernel stands outside of classes and structs: pass it what it needs"
    ),
    "constant-written": Hint(
        r"must be a modifiable lvalue|assignment of read-only",
        "what is const can only be read: x is the input, y the output",
    ),
    "const-lost": Hint(
        r'type "const (\w+) \*" is incompatible|invalid conversion from .const \w+\*. to',
        "a pointer to const cannot be passed where the function may write: declare the parameter as const float*",
    ),
    "const-cast-away": Hint(
        r"cast away const|casts away qualifiers", "keep the const: reinterpret_cast<const float4*>(x)"
    ),
    "stream-in-third-place": Hint(
        r'incompatible with parameter of type "size_t"|call to .launch\(.*CUstream_st',
        "a launch is kernel<<<blocks, threads, bytes of shared memory, stream>>>(...): the stream comes fourth, after a 0",
    ),
    "launch-forgotten": Hint(
        r"__global__ function call must be configured",
        "a kernel is launched with kernel<<<blocks, threads, 0, stream>>>(...) and not called",
    ),
    "global-missing": Hint(
        r"a host function call cannot be configured",
        "only a kernel is launched: write __global__ void before the function's name",
    ),
    "launch-brackets": Hint(
        r"must have integral|expected a .>>>|<<< without its >>>|invalid operands of types .void ?\(.* to binary .operator<<",
        "a launch has three of each bracket: kernel<<<blocks, threads, 0, stream>>>(...)",
        r"^$|<<<|\w<<.*>>\(|binary .operator>>",
    ),
    "arguments-in-number": Hint(
        r"too (few|many) arguments",
        "compare the call with the function's first line: it has another number of parameters",
    ),
    "atomic-wants-address": Hint(
        r'overloaded function "atomic|no matching function for call to .atomic',
        "atomicAdd and its like take an address: atomicAdd(&y[i], value)",
    ),
    "no-such-overload": Hint(
        r"no instance of overloaded function|no matching function for call to",
        "no function of this name takes these arguments: compare their number and types with its documentation",
    ),
    "overload-of-a-half": Hint(
        FITS_SEVERAL,
        "this function is not there for a 16-bit number: convert the argument, as tanhf(__half2float(x)), and what comes out back",
        r"argument types are: \([^(),\n]*(half|bfloat)[^(),\n]*\)",
    ),
    "mixed-overload": Hint(
        rf"{FITS_SEVERAL}|call of overloaded .\w+\([^()\n]*,.* is ambiguous",
        "the arguments have different types: write fmaxf(x, 0.0f) for floats, or give both the same type",
        r"argument types are: \([^()\n]*,|\A(?!(?s:.*)argument types are)",
    ),
    "void-pointer": Hint(
        r'"void \*" cannot be used to initialize|invalid conversion from .void\*.',
        "C++ converts no void*; and a kernel needs memory of the GPU: float* d; cudaMalloc(&d, bytes)",
    ),
    "arguments-in-order": Hint(
        r"is incompatible with parameter of type|cannot convert .* to|invalid conversion from",
        "compare the arguments with the parameters: are they in the same order, each of its type?",
    ),
    "shared-size": Hint(
        r"must have a constant value|array bound is not an integer constant|not usable in a constant expression",
        "an array's size must be a constant: write a number, or extern __shared__ float s[]; and its bytes as third number of the launch",
    ),
    "shared-initialised": Hint(
        r"initializer not allowed for __shared__",
        "shared memory begins with no values: let threads write them, then __syncthreads()",
    ),
    "shared-too-large": Hint(
        r"uses too much shared data", "a block has 48 KiB of __shared__ arrays: make the tile smaller"
    ),
    "launch-in-a-kernel": Hint(
        r"kernel launch from __device__ or __global__",
        "launch kernels from {entry}(); in a kernel call a __device__ function",
    ),
    "half-header": Hint(
        r".(half2?|__half2?|__(nv_)?bfloat16\w{0,30}|__\w{0,30}(half|bfloat16)\w{0,30}). (is undefined|was not declared|does not name)",
        "it needs its header: #include <cuda_fp16.h>, or <cuda_bf16.h> for bfloat16",
    ),
    "stream-not-declared": Hint(
        r".stream. (is undefined|was not declared)",
        "stream is the last parameter: {contract}",
    ),
    "torch-header": Hint(
        r'no header .* declares|namespace "(torch|at)" has no member|name followed by "::" must|explicit type is missing'
        r"|no storage class|.(torch|at). (has not been declared|does not name a type)|in namespace .(torch|at). does not name",
        "torch::Tensor needs #include <torch/extension.h> in your file: load_inline writes that line by itself, the grader does not",
        r"\b(torch|at)\s*::|\A\Z",
    ),
    "type-missing": Hint(
        r"explicit type is missing|no storage class or type specifier|.C. does not name a type",
        'a declaration begins with a type: it is extern "C" with its quotation marks',
    ),
    "name-unknown": Hint(
        r'identifier "[^"]+" is undefined|was not declared in this scope|does not name a type|has not been declared',
        "nothing of this name is known on this line: it is misspelt, its #include is missing, or it was declared within other braces",
    ),
    "vector-of-a-float": Hint(
        r'from "(const )?float" to "(float|int|double)\d"|conversion from .(const )?float. to non-scalar',
        "x[i] is one float; four at once are reinterpret_cast<const float4*>(x)[i], where the address is a multiple of 16 bytes",
    ),
    "no-operator": Hint(
        r'no operator "[^"]+" matches|no match for .operator',
        "this type has no such operator: work on the parts of a float4 (v.x, v.y, v.z, v.w), and convert a half with __half2float",
    ),
    "operator-wants-integers": Hint(
        r"must have integral|invalid operands of types .* to binary .operator[%^]",
        "% and ^ are for integers, and ^ is no power: use fmodf(x, y), x * x or powf",
    ),
    "overload-by-return-type": Hint(
        r"distinguished by return type alone|ambiguating new declaration|conflicting declaration of C function",
        "two functions of one name and the same parameters: is one the declaration of the other, with another return type?",
    ),
    "declared-twice": Hint(
        r"has already been (declared|defined)|redeclaration of|conflicting declaration|redefinition of",
        "the name has a meaning here already: take another one, assign without its type, or, in a header, begin with #pragma once",
    ),
    "template-in-extern-c": Hint(
        r'may not have extern "C" linkage|template with C linkage',
        'only {entry}() itself is extern "C": templates, and kernels that are some, stand outside of its braces',
    ),
    "brace-missing": Hint(
        r"linkage specification is not allowed|expected unqualified-id before string constant|a function-definition is not allowed"
        r"|expected .\}. at end of input|^At end of source: error: expected a .\}.",
        "a closing } is missing: above this line, or at the end of what the line named below opens",
    ),
    "extended-lambda": Hint(
        r"extended-lambda", "the grader builds without --extended-lambda: write a __device__ function"
    ),
    "header-missing": Hint(
        r"fatal error: .*No such file or directory|could not open source file",
        "there is no such header: is it misspelt, a file of yours that was not handed in, or one in < > that wants quotation marks?",
    ),
    "semicolon": Hint(
        r"expected (a )?.;.(?! before .=)|expected .,. or .;",
        "a ; is missing, often at the end of the line before",
    ),
    "not-c": Hint(
        r"expected an expression|expected primary-expression|expected (a )?.[()}]",
        "this is no C++: count the brackets of this line and the one before; conditions stand in ( ), blocks in { }, no colon",
    ),
}
SEARCHED = 2000  # Hints search this many characters: the time of some patterns grows with the square.
# Comments and strings of Python, in lines of a traceback.
NO_CODE = re.compile(r"""#[^\n]*+|"(?:\\.|[^"\\\n])*+"?|'(?:\\.|[^'\\\n])*+'?""")
PATTERNS = {name: (re.compile(hint.said, re.MULTILINE), re.compile(hint.place)) for name, hint in HINTS.items()}


def hint_for(message: str, traceback: str = "") -> str:
    """The name of the hint for an error, "" if none fits. `traceback`: the student's frames, or a compiler's lines below its error."""
    message, place = searched(message, traceback)
    found = (name for name, (said, where) in PATTERNS.items() if said.search(message) and where.search(place))
    return next(found, "")


def searched(message: str, traceback: str) -> tuple[str, str]:
    """What patterns are looked for in: the beginning and the end of a long message, and the code of the last frame."""
    if len(message) > 2 * SEARCHED:
        message = f"{message[:SEARCHED]}\n{message[-SEARCHED:]}"
    _, of_python, place = traceback.rpartition("  File ")
    place = place[:SEARCHED]
    return message, NO_CODE.sub("", place) if of_python else code_of(place, strings=True)


def hints(message: str, traceback: str = "", entry: str = "", contract: str = "") -> tuple[str, ...]:
    """The sentence of the hint for an error, if there is one. `entry`: the student's function, as `contract` declares it."""
    if not (name := hint_for(message, traceback)):
        return ()
    found = PATTERNS[name][0].search(message)
    named = {"entry": entry, "contract": contract, **(found.groupdict() if found else {})}
    words = HINTS[name].words
    for key, value in named.items():
        words = words.replace(f"{{{key}}}", value)
    return (words,)
