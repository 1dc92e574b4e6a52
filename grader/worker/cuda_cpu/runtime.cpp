// The other half of cuda_runtime.h: runs the threads of a launch, and looks at every access to memory that they make.
//
// Threads are fibers on one thread of the CPU. A block's threads run one after another until they wait (at __syncthreads or a warp
// function) or end, in an order that `cuda_cpu_set_order` chooses; when all have come to the same point, they go on. Blocks run one
// after another.
//
// The student's file is compiled with -fsanitize=thread, which makes the compiler call __tsan_read4(address) and its like before
// each access; here those functions are ours. So every access is known with its thread and its place in the source:
// out of bounds, host memory, shared memory that was never written, and races, which are two accesses to the same bytes by two
// threads, one of them a write and not both atomic, with nothing between them that orders them.
#include <dlfcn.h>
#include <link.h>
#include <sys/mman.h>

#include <map>
#include <string>
#include <vector>

#include "cuda_runtime.h"

#undef threadIdx
#undef blockIdx
#undef blockDim
#undef gridDim

namespace {

constexpr size_t STACK_BYTES = 128 << 10;
constexpr size_t SHARED_BYTES = 227 << 10;  // what a block may ask for at most, as on compute capability 9.0
constexpr size_t STATIC_SHARED_BYTES = 48 << 10;
constexpr unsigned char POISON = 0x7B;

enum State : uint8_t { READY, AT_BARRIER, AT_WARP, DONE };

struct Thread {
    uint3 index;
    State state;
    int number, fiber;
    uintptr_t place;  // where it waits
    int value;        // what it brought to the barrier
    unsigned mask;    // what it brought to the warp
    uint64_t bits;
    uint64_t* inbox;
    unsigned* arrived;
    const char* what;
};

struct Fiber {
    char* stack = nullptr;
    void* pointer = nullptr;
    int thread = -1;
};

struct Access {
    uint32_t who = 0;  // number of the thread in its block + 1; 0 nobody
    uint32_t block = 0, epoch = 0, warp_epoch = 0;
    uintptr_t place = 0;
};

// The last accesses to a byte (of shared memory) or a word (of global memory); of another block or launch if `stamp` differs.
struct Touch {
    uint32_t stamp = 0;
    bool atomic_write = false;
    Access writer, reader, other_reader;  // two readers: the last may be the very thread that writes next
};

struct Region {
    uintptr_t start, end;
    std::string name;
    int element;
    size_t mapped;  // bytes to unmap when it is freed; 0 for memory that is not ours
    std::vector<Touch> touches;
};

struct Fault {
    bool is = false;
    std::string kind, text;
    uintptr_t place = 0, other = 0;
};

struct SharedVariable {
    std::string name;
    size_t offset, bytes;
};

Fault fault;
cudaError_t last_error = cudaSuccess, sticky = cudaSuccess;
std::map<uintptr_t, Region> regions;  // by end, so that upper_bound finds the one around an address
Region* recent[2] = {nullptr, nullptr};
std::vector<std::pair<uintptr_t, uintptr_t>> modules;
std::vector<Fiber> fibers;
std::vector<int> free_fibers;
std::vector<Thread> threads;
std::vector<uint32_t> warp_epochs;
const cuda_cpu::Config* config = nullptr;
void (*entry)(void*) = nullptr;
void* closure = nullptr;
Thread* self = nullptr;
void* scheduler = nullptr;
uint3 block_index;
uint32_t block_number = 0, block_stamp = 0, launch_stamp = 0, epoch = 0;
bool running = false, fenced = false;
uintptr_t host_low = 0, host_high = 0;
int order = 0;
size_t allowed_shared = STATIC_SHARED_BYTES, static_bytes = 0, dynamic_bytes = 0;
alignas(1024) unsigned char shared[SHARED_BYTES];
Touch shared_touches[SHARED_BYTES];
std::map<std::pair<int, size_t>, SharedVariable> shared_variables;

extern "C" void cuda_cpu_switch(void** save, void* load);
#if defined(__x86_64__)
asm(R"(
.text
.globl cuda_cpu_switch
.hidden cuda_cpu_switch
.type cuda_cpu_switch,@function
cuda_cpu_switch:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
)");
constexpr int SAVED = 6;
#elif defined(__aarch64__)
asm(R"(
.text
.globl cuda_cpu_switch
.hidden cuda_cpu_switch
.type cuda_cpu_switch,%function
cuda_cpu_switch:
    sub sp, sp, #160
    stp x19, x20, [sp, #0]
    stp x21, x22, [sp, #16]
    stp x23, x24, [sp, #32]
    stp x25, x26, [sp, #48]
    stp x27, x28, [sp, #64]
    stp x29, x30, [sp, #80]
    stp d8, d9, [sp, #96]
    stp d10, d11, [sp, #112]
    stp d12, d13, [sp, #128]
    stp d14, d15, [sp, #144]
    mov x9, sp
    str x9, [x0]
    mov sp, x1
    ldp x19, x20, [sp, #0]
    ldp x21, x22, [sp, #16]
    ldp x23, x24, [sp, #32]
    ldp x25, x26, [sp, #48]
    ldp x27, x28, [sp, #64]
    ldp x29, x30, [sp, #80]
    ldp d8, d9, [sp, #96]
    ldp d10, d11, [sp, #112]
    ldp d12, d13, [sp, #128]
    ldp d14, d15, [sp, #144]
    add sp, sp, #160
    ret
)");
#else
#error "the CPU stand-in for CUDA needs x86-64 or aarch64"
#endif

std::string triple(uint3 v) { return "(" + std::to_string(v.x) + ", " + std::to_string(v.y) + ", " + std::to_string(v.z) + ")"; }
std::string who() { return self ? "thread " + triple(self->index) + " of block " + triple(block_index) : "the host's code"; }
std::string who(uint32_t block, uint32_t number) {
    dim3 b = config->block, g = config->grid;
    uint3 t = {number % b.x, number / b.x % b.y, number / b.x / b.y}, k = {block % g.x, block / g.x % g.y, block / g.x / g.y};
    return "thread " + triple(t) + (block == block_number ? "" : " of block " + triple(k));
}

// A kernel that did wrong is not gone on with: back to the scheduler, which gives the launch up.
void give_up(const char* kind, const std::string& text, uintptr_t place, uintptr_t other = 0, cudaError_t error = cudaErrorLaunchFailure) {
    if (!fault.is) fault = {true, kind, text, place, other};
    sticky = last_error = error;
    if (self) {
        void* nowhere;
        self->state = DONE;
        cuda_cpu_switch(&nowhere, scheduler);
    }
}

void yield() { cuda_cpu_switch(&fibers[self->fiber].pointer, scheduler); }

void fiber_main() {
    for (;;) {
        entry(closure);
        self->state = DONE;
        yield();
    }
}

void make_stack(Fiber& fiber) {
    if (!fiber.stack) {
        fiber.stack = static_cast<char*>(mmap(nullptr, STACK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
        if (fiber.stack == MAP_FAILED) std::abort();
        mprotect(fiber.stack, 4096, PROT_NONE);
    }
    void** top = reinterpret_cast<void**>(fiber.stack + STACK_BYTES - 64);
#if defined(__x86_64__)
    *--top = nullptr;  // the stack as after a call: 8 bytes off a multiple of 16
    *--top = reinterpret_cast<void*>(fiber_main);
    for (int i = 0; i < SAVED; i++) *--top = nullptr;
#else
    top -= 20;
    for (int i = 0; i < 20; i++) top[i] = nullptr;
    top[11] = reinterpret_cast<void*>(fiber_main);  // x30
#endif
    fiber.pointer = top;
}

int take_fiber() {
    if (free_fibers.empty()) {
        fibers.emplace_back();
        make_stack(fibers.back());
        return int(fibers.size()) - 1;
    }
    int fiber = free_fibers.back();
    free_fibers.pop_back();
    return fiber;
}

void run_thread(Thread& thread) {
    if (thread.fiber < 0) thread.fiber = take_fiber();
    self = &thread;
    cuda_cpu_switch(&scheduler, fibers[thread.fiber].pointer);
    self = nullptr;
    if (thread.state == DONE && !fault.is) free_fibers.push_back(thread.fiber);
}

bool release_warps() {
    bool released = false;
    int count = int(threads.size());
    for (int first = 0; first < count; first += 32) {
        int lanes = std::min(32, count - first);
        unsigned alive = 0, here = 0;
        for (int lane = 0; lane < lanes; lane++) {
            Thread& t = threads[first + lane];
            if (t.state != DONE) alive |= 1u << lane;
            if (t.state == AT_WARP) here |= 1u << lane;
        }
        for (int lane = 0; lane < lanes; lane++) {
            Thread& t = threads[first + lane];
            unsigned group = t.mask & alive;
            if (t.state != AT_WARP || (group & here) != group || !(group >> lane & 1)) continue;
            bool together = true;
            for (int other = 0; other < lanes; other++)
                if (group >> other & 1) together &= threads[first + other].mask == t.mask && !strcmp(threads[first + other].what, t.what);
            if (!together) continue;
            warp_epochs[first / 32]++;
            uint64_t values[32];
            for (int other = 0; other < lanes; other++) values[other] = threads[first + other].bits;
            for (int other = 0; other < lanes; other++)
                if (group >> other & 1) {
                    Thread& o = threads[first + other];
                    memcpy(o.inbox, values, sizeof(uint64_t) * lanes);
                    *o.arrived = group;
                    o.state = READY;
                }
            released = true;
        }
    }
    return released;
}

bool release_barrier() {
    Thread *first = nullptr, *other = nullptr;
    int sum = 0;
    for (Thread& t : threads) {
        if (t.state == DONE) continue;
        if (t.state != AT_BARRIER) return false;
        if (!first) first = &t;
        if (t.place != first->place) other = &t;
        sum += t.value;
    }
    if (!first) return false;
    if (other) {
        give_up("divergent_barrier",
                "thread " + triple(first->index) + " of block " + triple(block_index) + " waits at the __syncthreads() in line {place}, thread " +
                    triple(other->index) + " at another one, in line {other}: all threads of a block must come to the same one",
                first->place, other->place);
        return false;
    }
    for (Thread& t : threads) t.value = sum, t.state = t.state == AT_BARRIER ? READY : t.state;
    epoch++;
    return true;
}

void stuck() {
    Thread *waits = nullptr, *missing = nullptr;
    for (Thread& t : threads)
        if (t.state == AT_WARP && !waits) waits = &t;
    for (Thread& t : threads)
        if (waits && t.state == AT_BARRIER && !missing) missing = &t;
    if (waits)
        give_up("deadlock",
                "thread " + triple(waits->index) + " of block " + triple(block_index) + " waits at " + waits->what + " in line {place} for lanes that never come" +
                    (missing ? "; thread " + triple(missing->index) + " waits at the __syncthreads() in line {other}" : "") +
                    ": every thread that the mask names must call it",
                waits->place, missing ? missing->place : 0);
}

void run_block() {
    dim3 size = config->block;
    int count = int(size.x * size.y * size.z);
    threads.assign(count, Thread{});
    warp_epochs.assign((count + 31) / 32, 0);
    memset(shared, POISON, std::max(static_bytes, size_t(64)) + dynamic_bytes + 1024 < SHARED_BYTES ? static_bytes + dynamic_bytes + 1024 : SHARED_BYTES);
    shared_variables.clear();
    static_bytes = 0;
    block_stamp++;
    epoch = 0;
    for (int i = 0; i < count; i++) {
        threads[i].index = {i % size.x, i / size.x % size.y, i / size.x / size.y};
        threads[i].number = i;
        threads[i].fiber = -1;
    }
    for (bool more = true; more && !fault.is;) {
        for (int i = 0; i < count && !fault.is; i++) {
            Thread& t = threads[order % 2 ? count - 1 - i : i];
            if (t.state == READY) run_thread(t);
        }
        if (fault.is) break;
        more = release_warps();
        more |= release_barrier();
        if (!more && !fault.is) {
            bool waiting = false;
            for (Thread& t : threads) waiting |= t.state != DONE;
            if (waiting) stuck();
        }
    }
}

void abandon() {
    free_fibers.clear();
    for (size_t i = 0; i < fibers.size(); i++) {
        make_stack(fibers[i]);
        free_fibers.push_back(int(i));
    }
}

// Memory --------------------------------------------------------------------------------------------------------------------------

Region* find_region(uintptr_t address) {
    for (Region* r : recent)
        if (r && address >= r->start && address < r->end) return r;
    auto found = regions.upper_bound(address);
    if (found == regions.end() || address < found->second.start) return nullptr;
    recent[1] = recent[0];
    return recent[0] = &found->second;
}

std::string element_of(const Region& r, uintptr_t address) {
    intptr_t index = (intptr_t(address) - intptr_t(r.start)) / r.element;
    intptr_t count = (r.end - r.start) / r.element;
    std::string text = r.name + "[" + std::to_string(index) + "]";
    if (address < r.start) return text + ", before its start";
    if (index >= count) return text + ", " + std::to_string(index - count + 1) + " past the last of its " + std::to_string(count) + " elements";
    return text;
}

void out_of_bounds(uintptr_t address, bool write, uintptr_t place) {
    const Region* nearest = nullptr;
    uintptr_t distance = uintptr_t(1) << 28;
    for (auto& [end, r] : regions) {
        uintptr_t far = address >= r.end ? address - r.end : address < r.start ? r.start - address : 0;
        if (far < distance) distance = far, nearest = &r;
    }
    std::string verb = write ? " writes " : " reads ";
    std::string what = nearest ? element_of(*nearest, address) : address < 4096 ? "address " + std::to_string(address) + ", a null pointer" : "memory that is not the device's";
    give_up("out_of_bounds", who() + verb + what + " (line {place})", place, 0, cudaErrorIllegalAddress);
}

// Whether what a thread did then comes before what this one does now.
bool ordered(const Access& then) {
    if (then.block != block_number) return fenced;  // blocks are ordered by fences and atomics alone, which is not followed further
    if (then.who == uint32_t(self->number) + 1 || then.epoch != epoch) return true;
    uint32_t warp = (then.who - 1) / 32;
    return warp == uint32_t(self->number) / 32 && then.warp_epoch != warp_epochs[warp];
}

// Two accesses to the same bytes: a fault unless something orders them. `what()` names the bytes, and is only asked for a fault.
template <class Name> void touch(Touch& t, uint32_t stamp, bool write, bool atomic, uintptr_t place, Name what) {
    if (t.stamp != stamp) t = Touch{}, t.stamp = stamp;
    auto race = [&](const Access& then, const char* did) {
        give_up("race", who() + (write ? " writes " : " reads ") + what() + " in line {place}, and " + who(then.block, then.who - 1) + did +
                            " it in line {other}: nothing orders the two", place, then.place);
    };
    if (t.writer.who && !(atomic && t.atomic_write) && !ordered(t.writer)) return race(t.writer, " writes");
    if (write)
        for (const Access* reader : {&t.reader, &t.other_reader})
            if (reader->who && !ordered(*reader)) return race(*reader, " reads");
    Access now = {uint32_t(self->number) + 1, block_number, epoch, warp_epochs[self->number / 32], place};
    if (write) {
        t.writer = now, t.atomic_write = atomic;
        return;
    }
    if (t.reader.who && (t.reader.who != now.who || t.reader.block != now.block)) t.other_reader = t.reader;
    t.reader = now;
}

void check_shared(uintptr_t address, size_t bytes, bool write, bool atomic, uintptr_t place) {
    size_t offset = address - uintptr_t(shared);
    const SharedVariable* at = nullptr;
    for (auto& [key, v] : shared_variables)
        if (offset >= v.offset && offset < v.offset + v.bytes) at = &v;
    size_t dynamic_start = (static_bytes + 127) / 128 * 128;
    bool dynamic = !at && offset >= dynamic_start && offset + bytes <= dynamic_start + dynamic_bytes;
    if (!(at ? offset + bytes <= at->offset + at->bytes : dynamic)) {
        const char* verb = write ? " writes" : " reads";
        return give_up("out_of_bounds", who() + verb + " shared memory beyond its variables (line {place}): " + std::to_string(static_bytes) +
                                            " bytes are declared, " + std::to_string(dynamic_bytes) + " were asked for by the launch",
                       place, 0, cudaErrorIllegalAddress);
    }
    auto name = [&] { return at ? "the shared variable " + at->name : std::string("dynamic shared memory"); };
    for (size_t i = 0; i < bytes && !fault.is; i++) {
        Touch& t = shared_touches[offset + i];
        if (!write && !atomic && (t.stamp != block_stamp || !t.writer.who))
            return give_up("uninitialised_shared", who() + " reads " + name() + " in line {place}, where no thread of the block has written yet", place);
        touch(t, block_stamp, write, atomic, place, name);
    }
}

void check(uintptr_t address, size_t bytes, bool write, bool atomic, uintptr_t place) {
    if (!running) {
        if (const Region* r = find_region(address))
            give_up("host_access", std::string("the host's code ") + (write ? "writes " : "reads ") + r->name + " in line {place}: it is device memory, which only kernels may touch", place);
        return;
    }
    if (!self || fault.is) return;
    uintptr_t stack = uintptr_t(fibers[self->fiber].stack);
    if (address - stack < STACK_BYTES) return;
    if (address - uintptr_t(shared) < SHARED_BYTES) return check_shared(address, bytes, write, atomic, place);
    if (Region* r = find_region(address)) {
        if (address + bytes > r->end) return out_of_bounds(r->end, write, place);
        if (bytes >= 4) {
            if (r->touches.empty()) r->touches.resize((r->end - r->start + 3) / 4);
            for (size_t i = 0; i < bytes && !fault.is; i += 4)
                touch(r->touches[(address + i - r->start) / 4], launch_stamp, write, atomic, place, [&] { return element_of(*r, address + i); });
        }
        return;
    }
    if (address >= host_low && address < host_high) return;  // the launch's own arguments
    for (auto& [low, high] : modules)
        if (address >= low && address < high) return;  // __device__ and __constant__ variables, string literals
    out_of_bounds(address, write, place);
}

int add_module(dl_phdr_info* info, size_t, void* wanted) {
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr)& header = info->dlpi_phdr[i];
        uintptr_t low = info->dlpi_addr + header.p_vaddr, high = low + header.p_memsz;
        if (header.p_type == PT_LOAD && uintptr_t(wanted) >= low && uintptr_t(wanted) < high) {
            for (int j = 0; j < info->dlpi_phnum; j++) {
                const ElfW(Phdr)& other = info->dlpi_phdr[j];
                if (other.p_type == PT_LOAD) modules.emplace_back(info->dlpi_addr + other.p_vaddr, info->dlpi_addr + other.p_vaddr + other.p_memsz);
            }
            return 1;
        }
    }
    return 0;
}

void add_region(const void* start, size_t bytes, const char* name, int element, size_t mapped) {
    uintptr_t low = uintptr_t(start);
    regions[low + bytes] = Region{low, low + bytes, name, element, mapped, {}};
    recent[0] = recent[1] = nullptr;
}

}  // namespace

// What the worker calls -----------------------------------------------------------------------------------------------------------
extern "C" {
void cuda_cpu_begin(int new_order) {
    for (auto at = regions.begin(); at != regions.end();) {
        if (at->second.mapped) munmap(reinterpret_cast<void*>(at->second.start), at->second.mapped);
        at = regions.erase(at);
    }
    recent[0] = recent[1] = nullptr;
    fault = Fault{};
    last_error = sticky = cudaSuccess;
    order = new_order;
    if (modules.empty()) dl_iterate_phdr(add_module, reinterpret_cast<void*>(shared));
}
void cuda_cpu_array(const void* start, size_t bytes, const char* name, int element) {
    if (bytes) add_region(start, bytes, name, element, 0);
}
const char* cuda_cpu_fault_kind() { return fault.is ? fault.kind.c_str() : nullptr; }
const char* cuda_cpu_fault_text() { return fault.text.c_str(); }
uintptr_t cuda_cpu_fault_place(int which) { return which ? fault.other : fault.place; }
uintptr_t cuda_cpu_base() {
    Dl_info info;
    return dladdr(reinterpret_cast<void*>(cuda_cpu_begin), &info) ? uintptr_t(info.dli_fbase) : 0;
}

// What the compiler calls ---------------------------------------------------------------------------------------------------------
#define PLACE (uintptr_t(__builtin_return_address(0)) - 1)
#define CUDA_CPU_CALLBACKS(size)                                                                                     \
    void __tsan_read##size(void* address) { check(uintptr_t(address), size, false, false, PLACE); }                 \
    void __tsan_write##size(void* address) { check(uintptr_t(address), size, true, false, PLACE); }                 \
    void __tsan_unaligned_read##size(void* address) { check(uintptr_t(address), size, false, false, PLACE); }       \
    void __tsan_unaligned_write##size(void* address) { check(uintptr_t(address), size, true, false, PLACE); }       \
    void __tsan_volatile_read##size(void* address) { check(uintptr_t(address), size, false, false, PLACE); }        \
    void __tsan_volatile_write##size(void* address) { check(uintptr_t(address), size, true, false, PLACE); }        \
    void __tsan_read_write##size(void* address) {                                                                   \
        check(uintptr_t(address), size, false, false, PLACE);                                                       \
        check(uintptr_t(address), size, true, false, PLACE);                                                        \
    }
CUDA_CPU_CALLBACKS(1) CUDA_CPU_CALLBACKS(2) CUDA_CPU_CALLBACKS(4) CUDA_CPU_CALLBACKS(8) CUDA_CPU_CALLBACKS(16)
void __tsan_read_range(void* address, size_t bytes) { check(uintptr_t(address), bytes, false, false, PLACE); }
void __tsan_write_range(void* address, size_t bytes) { check(uintptr_t(address), bytes, true, false, PLACE); }
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_vptr_update(void**, void*) {}
void __tsan_vptr_read(void**) {}
void __tsan_init() {}
void* __tsan_memcpy(void* to, const void* from, size_t bytes) { return memmove(to, from, bytes); }
void* __tsan_memset(void* to, int value, size_t bytes) { return memset(to, value, bytes); }
void* __tsan_memmove(void* to, const void* from, size_t bytes) { return memmove(to, from, bytes); }

struct Where { const char* file; uint32_t line, column; };
struct Mismatch { Where where; const void* type; unsigned char log_alignment, kind; };
void __ubsan_handle_type_mismatch_v1(Mismatch* data, uintptr_t pointer) {
    if (!running || !pointer) return;
    unsigned alignment = 1u << data->log_alignment;
    if (pointer % alignment)
        give_up("misaligned", who() + " takes " + std::to_string(alignment) + " bytes at once, in line " + std::to_string(data->where.line) +
                                  ", from an address that is not a multiple of " + std::to_string(alignment), PLACE, 0, cudaErrorMisalignedAddress);
}

// What the kernel calls -----------------------------------------------------------------------------------------------------------
namespace cuda_cpu {
uint3 cuda_cpu_thread_index() { return self ? self->index : uint3{}; }
uint3 cuda_cpu_block_index() { return block_index; }
uint3 cuda_cpu_block_size() { return config ? uint3(config->block) : uint3{}; }
uint3 cuda_cpu_grid_size() { return config ? uint3(config->grid) : uint3{}; }
int cuda_cpu_lane() { return self->number % 32; }
void cuda_cpu_fence() { fenced = true; }
void cuda_cpu_atomic(const void* address, size_t bytes) { check(uintptr_t(address), bytes, true, true, PLACE); }
int cuda_cpu_barrier(int value) {
    self->value = value;
    self->place = PLACE;
    self->state = AT_BARRIER;
    yield();
    return self->value;
}
void cuda_cpu_warp(unsigned mask, uint64_t value, uint64_t* inbox, unsigned* arrived, const char* what) {
    if (!(mask >> (self->number % 32) & 1))
        return give_up("warp_mask", who() + " calls " + what + " in line {place} with a mask that does not name it", PLACE);
    self->mask = mask, self->bits = value, self->inbox = inbox, self->arrived = arrived, self->what = what, self->place = PLACE;
    self->state = AT_WARP;
    yield();
}
void cuda_cpu_trap(const char* what) {
    give_up("trap", who() + " stopped the kernel: " + what + " in line {place}", PLACE);
    std::abort();
}
void* cuda_cpu_static_shared(const char* name, int line, size_t bytes, size_t alignment) {
    auto [at, fresh] = shared_variables.try_emplace({line * 1000 + int(strlen(name)), std::hash<std::string>{}(name) ^ bytes});
    if (fresh) {
        size_t offset = (static_bytes + alignment - 1) / alignment * alignment;
        if (offset + bytes > STATIC_SHARED_BYTES)
            give_up("too_much_shared", std::string("the shared variable ") + name + " in line " + std::to_string(line) + " brings the block's to " +
                                           std::to_string(offset + bytes) + " bytes; 49152 are allowed", PLACE, 0, cudaErrorLaunchOutOfResources);
        at->second = {name, offset, bytes};
        static_bytes = offset + bytes;
    }
    return shared + at->second.offset;
}
void* cuda_cpu_dynamic_shared() { return shared + (static_bytes + 127) / 128 * 128; }

void cuda_cpu_run(const Config* wanted, void (*new_entry)(void*), void* new_closure) {
    if (sticky != cudaSuccess) return;
    dim3 g = wanted->grid, b = wanted->block;
    uint64_t in_block = uint64_t(b.x) * b.y * b.z;
    if (!g.x || !g.y || !g.z || !in_block || in_block > 1024 || b.x > 1024 || b.y > 1024 || b.z > 64 || g.x > 2147483647u || g.y > 65535 || g.z > 65535) {
        last_error = cudaErrorInvalidConfiguration;
        return;
    }
    if (wanted->shared_bytes > allowed_shared) {
        last_error = cudaErrorInvalidValue;
        return;
    }
    config = wanted, entry = new_entry, closure = new_closure;
    dynamic_bytes = wanted->shared_bytes;
    static_bytes = 0;
    host_low = uintptr_t(__builtin_frame_address(0)), host_high = host_low + (1 << 20);
    launch_stamp++;
    running = true, fenced = false;
    uint64_t blocks = uint64_t(g.x) * g.y * g.z;
    for (uint64_t i = 0; i < blocks && !fault.is; i++) {
        block_number = uint32_t(order % 2 ? blocks - 1 - i : i);
        block_index = {block_number % g.x, block_number / g.x % g.y, block_number / g.x / g.y};
        run_block();
    }
    running = false;
    config = nullptr;
    if (fault.is) abandon();
}
}  // namespace cuda_cpu

// The host's API ------------------------------------------------------------------------------------------------------------------
cudaError_t cudaMalloc(void** pointer, size_t bytes) {
    size_t length = (bytes + 8191) / 4096 * 4096;
    void* memory = mmap(nullptr, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return last_error = cudaErrorMemoryAllocation;
    memset(memory, POISON, bytes);
    *pointer = memory;
    add_region(memory, std::max(bytes, size_t(1)), "memory from cudaMalloc", 1, length);
    return cudaSuccess;
}
cudaError_t cudaFree(void* pointer) {
    for (auto at = regions.begin(); at != regions.end(); ++at)
        if (at->second.start == uintptr_t(pointer)) {
            if (at->second.mapped) munmap(pointer, at->second.mapped);
            recent[0] = recent[1] = nullptr;
            regions.erase(at);
            return cudaSuccess;
        }
    return pointer ? last_error = cudaErrorInvalidValue : cudaSuccess;
}
cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind) { return memmove(to, from, bytes), cudaSuccess; }
cudaError_t cudaMemset(void* to, int value, size_t bytes) { return memset(to, value, bytes), cudaSuccess; }
cudaError_t cudaPeekAtLastError() { return last_error; }
cudaError_t cudaGetLastError() {
    cudaError_t error = last_error;
    last_error = sticky;
    return error;
}
const char* cudaGetErrorName(cudaError_t error) {
    switch (error) {
        case cudaSuccess: return "cudaSuccess";
        case cudaErrorInvalidValue: return "cudaErrorInvalidValue";
        case cudaErrorMemoryAllocation: return "cudaErrorMemoryAllocation";
        case cudaErrorInvalidConfiguration: return "cudaErrorInvalidConfiguration";
        case cudaErrorLaunchOutOfResources: return "cudaErrorLaunchOutOfResources";
        case cudaErrorIllegalAddress: return "cudaErrorIllegalAddress";
        case cudaErrorMisalignedAddress: return "cudaErrorMisalignedAddress";
        case cudaErrorLaunchFailure: return "cudaErrorLaunchFailure";
        default: return "cudaErrorUnknown";
    }
}
const char* cudaGetErrorString(cudaError_t error) { return cudaGetErrorName(error); }
cudaError_t cuda_cpu_allow_shared(size_t bytes) {
    if (bytes > SHARED_BYTES) return last_error = cudaErrorInvalidValue;
    allowed_shared = std::max(allowed_shared, bytes);
    return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* p, int) {
    *p = cudaDeviceProp{};
    strcpy(p->name, "CPU stand-in");
    p->totalGlobalMem = size_t(16) << 30, p->sharedMemPerBlock = STATIC_SHARED_BYTES, p->sharedMemPerBlockOptin = SHARED_BYTES;
    p->sharedMemPerMultiprocessor = 228 << 10, p->regsPerBlock = 65536, p->warpSize = 32, p->maxThreadsPerBlock = 1024;
    p->maxThreadsDim[0] = p->maxThreadsDim[1] = 1024, p->maxThreadsDim[2] = 64;
    p->maxGridSize[0] = 2147483647, p->maxGridSize[1] = p->maxGridSize[2] = 65535;
    p->major = 9, p->multiProcessorCount = 132, p->maxThreadsPerMultiProcessor = 2048, p->maxBlocksPerMultiProcessor = 32;
    return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
    switch (attribute) {
        case cudaDevAttrMaxThreadsPerBlock: return *value = 1024, cudaSuccess;
        case cudaDevAttrMaxSharedMemoryPerBlock: return *value = STATIC_SHARED_BYTES, cudaSuccess;
        case cudaDevAttrMaxSharedMemoryPerBlockOptin: return *value = SHARED_BYTES, cudaSuccess;
        case cudaDevAttrWarpSize: return *value = 32, cudaSuccess;
        case cudaDevAttrMultiProcessorCount: return *value = 132, cudaSuccess;
        case cudaDevAttrMaxThreadsPerMultiProcessor: return *value = 2048, cudaSuccess;
        case cudaDevAttrComputeCapabilityMajor: return *value = 9, cudaSuccess;
        case cudaDevAttrComputeCapabilityMinor: return *value = 0, cudaSuccess;
    }
    return last_error = cudaErrorInvalidValue;
}
}
