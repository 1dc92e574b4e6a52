// Limits of every GPU on the shape of a launch, with the same words on the CPU and on a GPU (see ../launches.cpp).
// Included after CUDA's header, or the CPU's.
#pragma once
#include <cstdint>
#include <string>

namespace launch_shape {
inline std::string triple(uint3 v) { return "(" + std::to_string(v.x) + ", " + std::to_string(v.y) + ", " + std::to_string(v.z) + ")"; }
inline std::string count(uint64_t number, const char* what) { return std::to_string(number) + " " + what + (number == 1 ? "" : "s"); }

// Words that follow `launches k with`; empty for a shape that a GPU takes.
inline std::string refusal(dim3 g, dim3 b) {
    auto shape = [](uint3 v, const char* what) { return v.y == 1 && v.z == 1 ? count(v.x, what) : triple(v) + " " + what + "s"; };
    std::string both = shape(g, "block") + " of " + shape(b, "thread");
    uint64_t in_block = uint64_t(b.x) * b.y * b.z;
    if (!g.x || !g.y || !g.z) return both + "; a grid needs at least 1 block";
    if (!in_block) return both + "; a block needs at least 1 thread";
    if (in_block > 1024) return count(in_block, "thread") + " in a block; 1024 are allowed";
    if (b.z > 64) return both + "; a block may have (1024, 1024, 64)";
    if (g.x > 2147483647u || g.y > 65535 || g.z > 65535) return both + "; a grid may have (2147483647, 65535, 65535)";
    return "";
}

inline std::string too_much_shared(uint64_t bytes, uint64_t allowed) {
    return count(bytes, "byte") + " of dynamic shared memory; " + std::to_string(allowed) + " are allowed unless cudaFuncSetAttribute asks for more";
}
}  // namespace launch_shape
