// The CUDA runtime on a CPU, declared in cuda_runtime.h: runs the threads of a launch, and checks every access to memory.
//
// Device threads are fibers on one thread of the CPU. A block's threads run one after another until they wait (at __syncthreads or a
// warp function) or end, in the order that `cuda_cpu_begin` sets. When all threads have come to the same point, they go on. Blocks run
// one after another.
//
// The student's file is compiled with -fsanitize=thread: the compiler calls __tsan_read4(address) and the like before each access, and
// this file defines these functions. So the runtime knows every access with its thread and its place in the source, and finds accesses
// out of bounds or to host memory, reads of shared memory that was never written, and races. A race is two accesses to the same bytes by
// two threads, one of them a write and not both atomic, in no order.
//
// Work on billions of elements is sampled if the worker asks for that: a few blocks of a launch run, with the first and the last, and
// each thread makes a limited number of accesses. Only the addresses of the accesses are checked then, not the results. A traced call is
// sampled too; its accesses are counted (tracing.h).
#include <dlfcn.h>
#include <execinfo.h>
#include <link.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <chrono>
#include <map>
#include <set>
#include <string>
#include <vector>

#define CUDA_CPU_RUNTIME
#include "cuda_runtime.h"
#include "../launch.h"
#include "tracing.h"

using launch_shape::count;
using launch_shape::triple;

// Where the linker puts __managed__ variables, if there are any.
extern char __start_cuda_cpu_managed[] __attribute__((weak, visibility("hidden"))), __stop_cuda_cpu_managed[] __attribute__((weak, visibility("hidden")));

uint3 threadIdx, blockIdx, blockDim, gridDim;  // constants to the student's code: the values of the running thread

namespace {

constexpr size_t STACK_BYTES = 128 << 10, GUARD_BYTES = 4096;
constexpr size_t SHARED_BYTES = 227 << 10;  // the most that a block may ask for, as on compute capability 9.0
constexpr size_t STATIC_SHARED_BYTES = 48 << 10;
// Dynamic shared memory begins at one place, for a thread may ask where it is before another declares its variables.
constexpr size_t DYNAMIC_START = STATIC_SHARED_BYTES, SHARED_SPACE = DYNAMIC_START + SHARED_BYTES;
constexpr unsigned char POISON = 0x7B;
constexpr uint64_t SAMPLED_BLOCKS = 16;            // a launch of more blocks is sampled
constexpr uint64_t THREAD_ACCESSES = 100'000;      // of a sampled thread: enough for a grid-stride loop over 2^31 elements
constexpr uint64_t LAUNCH_ACCESSES = 100'000'000;  // of a sampled launch
constexpr size_t LARGE_BYTES = 256 << 20;          // in a sample, copies and fills end after so much, which is many windows
constexpr size_t TRACED_LARGE_BYTES = 1 << 20;     // in a trace, copies, fills and poison of so much are left out
constexpr int ALLOCATION_FRAMES = 16;
constexpr size_t TOTAL_BYTES = size_t(16) << 30;   // of the device
constexpr size_t KEPT_BYTES = 1 << 30;             // of memory from earlier calls, and of mappings kept for the next call

enum State : uint8_t { READY, AT_BARRIER, AT_WARP, DONE };

struct Thread {
    uint3 index;
    State state;
    int number, fiber;
    uintptr_t place;  // of the call in which the thread waits
    int value;        // given to the barrier
    unsigned mask;    // given to the warp function
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

// An earlier access: the stretch in which it was made (the code that a thread runs between two waits, numbered over all launches), and
// its place in the code. Numbers only grow, so accesses of earlier launches (for shared memory, of other blocks) have lower numbers.
struct Access {
    uint32_t stretch, place : 31, atomic : 1;
};

// A stretch of the running block.
struct Stretch {
    uint32_t epoch, warp_epoch;
};

// The last accesses to each word of global memory. Two readers, because the last may be the thread that writes next. Mapped on first
// use, so that memory which is only read, or only written, has one map.
struct Touches {
    Access *writer = nullptr, *reader = nullptr, *other_reader = nullptr;
    size_t bytes = 0;  // of each
};

enum Kind : uint8_t { DEVICE, MANAGED, PINNED, PAGEABLE };  // PAGEABLE memory is the host's, and out of kernels' reach

struct Region {
    uintptr_t start, end;
    std::string name;
    int element;
    size_t mapped;  // bytes to unmap when it is freed; 0 for the arena's memory
    Kind kind;
    uint32_t written_in, read_in;  // first stretch of the last launch that did
    Touches touches;
    std::vector<uint8_t> written;  // for each word of an output or of new memory: whether it was written
    int tensor;                    // its number in a trace
};

struct Fault {
    bool is = false;
    std::string kind, text;
    uintptr_t place = 0, other = 0, third = 0;
};

// A write of the running thread to where another has written, and nothing orders the two: a fault unless both write the same bytes,
// which shows once the write is made.
struct Rewrite {
    uintptr_t address, place;
    unsigned char before[4], bytes;
    Access then;
};

struct SharedVariable {
    std::string name;
    size_t offset, bytes;
};

Fault fault;
std::vector<Rewrite> rewrites;
std::map<uintptr_t, std::string> same_value;  // by the places of such writes of the same bytes: what the first one wrote to
Fault same_work;           // the first of them: a fault after all if elements of the output are left unwritten
bool is_left_out = false;  // whether elements of a returned tensor are
cudaError_t last_error = cudaSuccess, sticky = cudaSuccess, refused = cudaSuccess;
std::string refusal;  // why a launch was refused, with the error `refused`
uintptr_t refusal_place = 0, base = 0;
std::map<uintptr_t, std::string> off_stream;  // work that is not behind the given stream's, by its place in the host's code
std::set<cudaStream_t> own_streams, behind;   // streams that calls have made; those of them that wait for the given stream in this call
bool host_waited = false;                     // for the given stream's work

bool is_behind(cudaStream_t stream) { return !own_streams.count(stream) || behind.count(stream) || host_waited; }
void note_stream(cudaStream_t stream, const std::string& what, uintptr_t place) {
    if ((uintptr_t(stream) <= uintptr_t(cudaStreamPerThread) || !is_behind(stream)) && off_stream.size() < 8) off_stream.emplace(place, what);
}
std::map<uintptr_t, Region> regions;  // by end, so that upper_bound finds the region around an address
Region* recent[2] = {nullptr, nullptr};
std::vector<std::pair<uintptr_t, uintptr_t>> modules;
std::vector<Fiber> fibers;
std::vector<int> free_fibers;
std::vector<Thread> threads;
std::vector<uint32_t> warp_epochs;
std::vector<Stretch> stretches;                            // of the running block
std::vector<uint16_t> runners;                             // the thread of each stretch of the launch
std::vector<std::pair<uint32_t, uint32_t>> block_starts;   // first stretch and number of each block of the launch
uint32_t stretch = 0, block_first = 1, launch_first = 1;   // the running one; the first of the block, of the launch
std::multimap<size_t, void*> spare;                        // mappings for touches, from earlier calls
size_t spare_bytes = 0;
std::vector<std::pair<uintptr_t, std::string>> empties;    // tensors without elements
std::vector<std::pair<uintptr_t, uintptr_t>> freed;        // by the student's code in this call
std::vector<std::pair<uintptr_t, uintptr_t>> symbols;      // variables whose device address was asked for
const cuda_cpu::Config* config = nullptr;
void (*entry)(void*) = nullptr;
void* closure = nullptr;
Thread* self = nullptr;
void* scheduler = nullptr;
uint32_t block_number = 0, epoch = 0;
bool running = false, fenced = false;
int exceeded = 0;              // the __launch_bounds__ that this launch's block exceeds
bool asked_for_block = false;  // whether the host asked for a block's limit, which ignores bounds
uintptr_t host_low = 0, host_high = 0, stack_low = 0;
int order = 0;
bool sample = false, cut = false;  // whether launches are sampled, and whether the last thread to run was cut short
// Of a sample: the output, how far its launches and the running block have written, and whether that shows a full run's end.
uintptr_t output_low = 0, output_high = 0, output_end = 0, block_end = 0;
bool end_known = false;
uint64_t thread_accesses = 0, launch_accesses = 0, launches = 0;
size_t allowed_shared = STATIC_SHARED_BYTES, static_bytes = 0, dynamic_bytes = 0;
alignas(1024) unsigned char shared[SHARED_SPACE];
Access shared_writer[SHARED_SPACE], shared_reader[SHARED_SPACE], shared_other_reader[SHARED_SPACE];
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

std::string who() { return self ? "thread " + triple(self->index) + " of block " + triple(blockIdx) : "the host's code"; }
// The thread of a stretch in words, with its block if that is not the running block.
std::string who(uint32_t then) {
    auto at = std::upper_bound(block_starts.begin(), block_starts.end(), then, [](uint32_t value, const auto& start) { return value < start.first; });
    uint32_t block = at[-1].second, number = runners[then - launch_first];
    dim3 b = config->block, g = config->grid;
    uint3 t = {number % b.x, number / b.x % b.y, number / b.x / b.y}, k = {block % g.x, block / g.x % g.y, block / g.x / g.y};
    return "thread " + triple(t) + (block == block_number ? "" : " of block " + triple(k));
}

// Ends a faulty kernel: returns to the scheduler, which gives the launch up.
void give_up(const char* kind, const std::string& text, uintptr_t place, uintptr_t other = 0, cudaError_t error = cudaErrorLaunchFailure,
             uintptr_t third = 0) {
    if (!fault.is) fault = {true, kind, text, place, other, third};
    sticky = last_error = error;
    if (self) {
        void* nowhere;
        self->state = DONE;
        cuda_cpu_switch(&nowhere, scheduler);
    }
}

void settle();
void yield() {
    settle();
    cuda_cpu_switch(&fibers[self->fiber].pointer, scheduler);
}

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
        mprotect(fiber.stack, GUARD_BYTES, PROT_NONE);
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

Region* find_region(uintptr_t address) {
    for (Region* r : recent)
        if (r && address >= r->start && address < r->end) return r;
    auto found = regions.upper_bound(address);
    if (found == regions.end() || address < found->second.start) return nullptr;
    recent[1] = recent[0];
    return recent[0] = &found->second;
}

Access* take_touches(size_t bytes) {
    auto found = spare.lower_bound(bytes);
    if (found != spare.end() && found->first <= 2 * bytes) {
        void* memory = found->second;
        spare_bytes -= found->first;
        return spare.erase(found), static_cast<Access*>(memory);
    }
    void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) std::abort();
    return static_cast<Access*>(memory);
}

void give_back_touches(Touches& touches) {
    for (Access* memory : {touches.writer, touches.reader, touches.other_reader})
        if (memory && spare_bytes + touches.bytes <= KEPT_BYTES)
            spare.emplace(touches.bytes, memory), spare_bytes += touches.bytes;
        else if (memory)
            munmap(memory, touches.bytes);
    touches = {};
}

// Stretches are numbered anew when 32 bits are full: no old number may be left.
void forget_touches() {
    for (auto& [end, r] : regions) give_back_touches(r.touches), r.written_in = r.read_in = 0;
    for (auto& [bytes, memory] : spare) munmap(memory, bytes);
    spare.clear();
    spare_bytes = 0;
    for (Access* touches : {shared_writer, shared_reader, shared_other_reader}) memset(touches, 0, SHARED_SPACE * sizeof(Access));
    stretch = 0, block_first = launch_first = 1;
    stretches.clear(), runners.clear();
    block_starts = {{1, block_number}};
}

void run_thread(Thread& thread) {
    if (thread.fiber < 0) thread.fiber = take_fiber();
    if (stretch == UINT32_MAX) forget_touches();
    stretch++;
    runners.push_back(uint16_t(thread.number));
    stretches.push_back({epoch, warp_epochs[thread.number / 32]});
    self = &thread;
    threadIdx = thread.index;
    stack_low = uintptr_t(fibers[thread.fiber].stack);
    thread_accesses = 0, rewrites.clear();
    cuda_cpu_switch(&scheduler, fibers[thread.fiber].pointer);
    self = nullptr;
    if (thread.state == DONE && !fault.is) {
        if (cut) make_stack(fibers[thread.fiber]);
        cut = false;
        free_fibers.push_back(thread.fiber);
    }
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
            if (t.state == AT_WARP && !t.mask)  // __activemask: the threads at the same place
                for (int other = group = 0; other < lanes; other++) {
                    const Thread& o = threads[first + other];
                    group |= unsigned(o.state == AT_WARP && !o.mask && o.place == t.place) << other;
                }
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
                "thread " + triple(first->index) + " of block " + triple(blockIdx) + " waits at the __syncthreads() in line {place}, thread " +
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
    if (!waits) return;
    for (Thread& t : threads) {
        bool named = t.number / 32 == waits->number / 32 && (waits->mask >> t.number % 32 & 1);
        bool elsewhere = t.state == AT_BARRIER || (t.state == AT_WARP && (t.mask != waits->mask || strcmp(t.what, waits->what)));
        if (named && elsewhere && !missing) missing = &t;
    }
    give_up("deadlock",
            "thread " + triple(waits->index) + " of block " + triple(blockIdx) + " waits at " + waits->what + " in line {place} for lanes that never come" +
                (missing ? "; thread " + triple(missing->index) + " waits at " + (missing->state == AT_BARRIER ? "the __syncthreads()" : missing->what) + " in line {other}" : "") +
                ": every thread that the mask names must call it",
            waits->place, missing ? missing->place : 0);
}

// The memory of an address in a trace.
int traced_memory(uintptr_t address) {
    size_t offset = address - uintptr_t(shared);
    if (offset < SHARED_SPACE) {
        for (auto& [key, v] : shared_variables)
            if (offset >= v.offset && offset < v.offset + v.bytes) return tracing::shared_number(v.name);
        return tracing::DYNAMIC_SHARED;
    }
    const Region* r = find_region(address);
    return r ? r->tensor : tracing::NO_TENSOR;
}

void run_block() {
    dim3 size = config->block;
    int count = int(size.x * size.y * size.z);
    threads.assign(count, Thread{});
    warp_epochs.assign((count + 31) / 32, 0);
    memset(shared, POISON, static_bytes);
    memset(shared + DYNAMIC_START, POISON, dynamic_bytes);
    shared_variables.clear();
    static_bytes = 0;
    epoch = 0;
    if (stretch == UINT32_MAX) forget_touches();
    block_first = stretch + 1;
    stretches.clear();
    block_starts.emplace_back(block_first, block_number);
    for (int i = 0; i < count; i++) {
        threads[i].index = {i % size.x, i / size.x % size.y, i / size.x / size.y};
        threads[i].number = i;
        threads[i].fiber = -1;
    }
    for (bool more = true; more && !fault.is;) {
        for (int i = 0; i < count && !fault.is; i++) {
            Thread& t = threads[order % 2 ? count - 1 - i : i];
            if (t.state == READY) run_thread(t);
            if (tracing::on && (i % 32 == 31 || i == count - 1)) tracing::close_warp(i % 32 + 1, traced_memory);
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

std::string element_of(const Region& r, uintptr_t address) {
    intptr_t index = (intptr_t(address) - intptr_t(r.start)) / r.element;
    intptr_t length = (r.end - r.start) / r.element;
    const char* unit = r.element == 1 ? "byte" : "element";
    std::string text = r.element == 1 ? "byte " + std::to_string(index) + " of " + r.name : r.name + "[" + std::to_string(index) + "]";
    if (address < r.start) return text + ", before its start";
    if (index >= length) return text + ", " + std::to_string(index - length + 1) + " past the last of its " + count(length, unit);
    return text;
}

void out_of_bounds(uintptr_t address, bool write, uintptr_t place) {
    const Region* nearest = nullptr;
    uintptr_t distance = uintptr_t(1) << (sample ? 34 : 28);
    for (auto& [end, r] : regions) {
        uintptr_t far = address >= r.end ? address - r.end : address < r.start ? r.start - address : 0;
        if (far < distance) distance = far, nearest = &r;
    }
    std::string empty;  // tensors without elements have no address of their own
    for (auto& [start, name] : empties)
        if (address - start < 4096) empty += (empty.empty() ? "" : " or ") + name;
    bool is_freed = false;
    for (auto& [start, end] : freed) is_freed |= address >= start && address < end;
    if (is_freed) nearest = nullptr, empty.clear();
    std::string what = is_freed         ? "memory that has been freed"
                       : nearest        ? element_of(*nearest, address)
                       : !empty.empty() ? empty + ", which has no elements"
                       : address < 4096 ? "address " + std::to_string(address) + ", a null pointer"
                                        : "memory that is not the device's";
    bool past = nearest ? (!nearest->mapped || nearest->element > 1) && address >= nearest->end && distance < 1024 * uintptr_t(nearest->element) : !empty.empty();
    give_up(is_freed ? "use_after_free" : "out_of_bounds", who() + (write ? " writes " : " reads ") + what + " (line {place})" +
                                 (past ? ": consistent with a missing or wrong check of the index against {sizes}" : ""),
            place, 0, cudaErrorIllegalAddress);
}

// Whether a stretch of this launch is ordered before the running thread's next access.
bool ordered(uint32_t then) {
    if (then == stretch) return true;
    if (then < block_first) return fenced;  // only fences and atomics order blocks; after a fence all count as ordered
    int number = runners[then - launch_first];
    Stretch s = stretches[then - block_first];
    if (number == self->number || s.epoch != epoch) return true;
    return number / 32 == self->number / 32 && s.warp_epoch != warp_epochs[number / 32];
}

template <class Name> std::string race_text(Access then, const char* did, bool write, Name what) {
    return who() + (write ? " writes " : " reads ") + what() + " in line {place}, and " + who(then.stretch) + did + " it in line {other}: nothing orders the two";
}

template <class Name> void race(Access then, const char* did, bool write, uintptr_t place, Name what) {
    const Thread& other = threads[runners[then.stretch - launch_first]];
    bool waits = then.stretch >= block_first && other.state == AT_BARRIER;
    give_up("race",
            race_text(then, did, write, what) +
                (waits ? "; " + who(then.stretch) + " waits at the __syncthreads() in line {third}, where thread " + triple(self->index) + " has not come yet" : ""),
            place, base + then.place, cudaErrorLaunchFailure, waits ? other.place : 0);
}

std::string name_of(uintptr_t address) {
    if (const Region* r = find_region(address)) return element_of(*r, address);
    size_t offset = address - uintptr_t(shared);
    for (auto& [key, v] : shared_variables)
        if (offset >= v.offset && offset < v.offset + v.bytes) return "the shared variable " + v.name;
    return "dynamic shared memory";
}

// Looks at what the running thread has written to where another had.
void settle() {
    if (rewrites.empty()) return;
    std::vector<Rewrite> made;
    made.swap(rewrites);
    for (const Rewrite& one : made) {
        if (fault.is) return;
        if (memcmp(reinterpret_cast<void*>(one.address), one.before, one.bytes))
            return race(one.then, " writes", true, one.place, [&] { return name_of(one.address); });
        if (!same_work.is) same_work = {true, "race", race_text(one.then, " writes", true, [&] { return name_of(one.address); }), one.place, base + one.then.place};
        if (same_value.size() < 8 && !same_value.count(one.place)) same_value.emplace(one.place, name_of(one.address));
    }
}

// Two accesses to the same bytes: a fault unless they are ordered, or write the same. `what()` names the bytes, and is called for a fault only. Accesses count
// from the stretch `first` on; null if there was no write, or no read, since then.
template <class Name>
inline void touch(Access* writer, Access* reader, Access* other_reader, uint32_t first, uintptr_t address, size_t bytes, bool write, bool atomic,
                  uintptr_t place, Name what) {
    if (writer && writer->stretch >= first && !(atomic && writer->atomic) && !ordered(writer->stretch)) {
        if (!write || atomic || writer->atomic) return race(*writer, " writes", write, place, what);
        Rewrite one = {address, place, {}, uint8_t(bytes), *writer};
        memcpy(one.before, reinterpret_cast<void*>(address), bytes);
        rewrites.push_back(one);
    }
    Access now = {stretch, uint32_t(place - base), atomic};
    if (write) {
        for (const Access* then : {reader, other_reader})
            if (then && then->stretch >= first && !ordered(then->stretch)) return race(*then, " reads", write, place, what);
        *writer = now;
        return;
    }
    if (reader->stretch >= first && reader->stretch != stretch && (reader->stretch < block_first || runners[reader->stretch - launch_first] != self->number))
        *other_reader = *reader;
    *reader = now;
}

void touch_global(Region& r, uintptr_t address, size_t bytes, bool write, bool atomic, uintptr_t place) {
    size_t words = (r.end - r.start + 3) / 4, index = (address - r.start) / 4;
    Touches& t = r.touches;
    if (write && r.written_in != launch_first) {
        t.bytes = words * sizeof(Access), r.written_in = launch_first;
        if (!t.writer) t.writer = take_touches(t.bytes);
    }
    if (!write && r.read_in != launch_first) {
        t.bytes = words * sizeof(Access), r.read_in = launch_first;
        if (!t.reader) t.reader = take_touches(t.bytes), t.other_reader = take_touches(t.bytes);
    }
    bool was_written = r.written_in == launch_first, was_read = r.read_in == launch_first;
    for (size_t i = 0; i < bytes && !fault.is; i += 4, index++)
        touch(was_written ? t.writer + index : nullptr, was_read ? t.reader + index : nullptr, was_read ? t.other_reader + index : nullptr, launch_first,
              address + i, std::min<size_t>(4, bytes - i), write, atomic, place, [&] { return element_of(r, address + i); });
}

// The bytes of an output, and of new memory, must be written before they are read.
void check_written(Region& r, uintptr_t address, size_t bytes, bool write, bool reads, uintptr_t place) {
    for (size_t offset = address - r.start; offset < address + bytes - r.start; offset += 4) {
        if (reads && !r.written[offset / 4])
            return give_up(r.mapped ? "unwritten_memory" : "unwritten_output",
                           who() + " reads " + element_of(r, r.start + offset) + " in line {place}, where nothing has been written yet: " +
                               (r.mapped ? "its" : "the output's") + " old contents are arbitrary", place);
        r.written[offset / 4] |= write;
    }
}

void check_shared(uintptr_t address, size_t bytes, bool write, bool atomic, uintptr_t place) {
    size_t offset = address - uintptr_t(shared);
    const SharedVariable* at = nullptr;
    for (auto& [key, v] : shared_variables)
        if (offset >= v.offset && offset < v.offset + v.bytes) at = &v;
    bool dynamic = offset >= DYNAMIC_START && offset + bytes <= DYNAMIC_START + dynamic_bytes;
    if (!(at ? offset + bytes <= at->offset + at->bytes : dynamic)) {
        const char* verb = write ? " writes" : " reads";
        return give_up("out_of_bounds", who() + verb + " shared memory beyond its variables (line {place}): " + std::to_string(static_bytes) +
                                            " bytes are declared, " + std::to_string(dynamic_bytes) + " were asked for by the launch",
                       place, 0, cudaErrorIllegalAddress);
    }
    auto name = [&] { return name_of(address); };
    for (size_t i = offset; i < offset + bytes && !fault.is; i++) {
        if (!write && !atomic && shared_writer[i].stretch < block_first)
            return give_up("uninitialised_shared", who() + " reads " + name() + " in line {place}, where no thread of the block has written yet", place);
        touch(shared_writer + i, shared_reader + i, shared_other_reader + i, block_first, uintptr_t(shared) + i, 1, write, atomic, place, name);
    }
}

void cut_thread() {
    self->state = DONE, cut = true, end_known = false;
    yield();
}

bool in_modules(uintptr_t address) {
    for (auto& [low, high] : modules)
        if (address >= low && address < high) return true;  // __device__ and __constant__ variables, string literals
    return false;
}

// Whether this is a variable whose address the device has: one that cudaGetSymbolAddress gave, or a __managed__ one.
bool is_symbol(uintptr_t start, size_t bytes) {
    for (auto& [low, high] : symbols)
        if (start >= low && start + bytes <= high) return true;
    return start >= uintptr_t(__start_cuda_cpu_managed) && start < uintptr_t(__stop_cuda_cpu_managed);
}

// The number of the launch's argument that is the address of a variable of the host's; 0 if there is none.
int variable_of_the_host(uintptr_t address) {
    for (int i = 0; i < config->argument_count; i++)
        if (uintptr_t(config->arguments[i]) == address && !is_symbol(address, 1)) return i + 1;
    return 0;
}

// Counts an access of a traced call, where there is memory.
__attribute__((noinline)) void trace(uintptr_t address, size_t bytes, bool write, bool atomic, uintptr_t place) {
    if (address - stack_low < STACK_BYTES || (address >= host_low && address < host_high)) return;  // local memory; the launch's own arguments
    if (address - uintptr_t(shared) >= SHARED_SPACE && !find_region(address) && !in_modules(address)) return out_of_bounds(address, write, place);
    if (++thread_accesses > tracing::thread_accesses()) tracing::launch->cut = true;
    else if (tracing::note(place, address, bytes, write, atomic, self->number % 32)) return;
    cut_thread();
}

void check(uintptr_t address, size_t bytes, bool write, bool atomic, uintptr_t place, bool reads) {
    if (!running) {
        const Region* r = find_region(address);
        if (r && r->kind == DEVICE)
            give_up("host_access", std::string("the host's code ") + (write ? "writes " : "reads ") + r->name + " in line {place}: it is device memory, which only kernels may touch", place);
        return;
    }
    if (!self || fault.is) return;
    settle();
    if (sample) {
        if (tracing::on) return trace(address, bytes, write, atomic, place);
        if (++thread_accesses > THREAD_ACCESSES || ++launch_accesses > LAUNCH_ACCESSES) return cut_thread();
    }
    if (address - stack_low < STACK_BYTES) return;
    if (address - uintptr_t(shared) < SHARED_SPACE) return check_shared(address, bytes, write, atomic, place);
    if (Region* r = find_region(address)) {
        if (address + bytes > r->end) return out_of_bounds(r->end, write, place);
        if (r->kind == PAGEABLE)
            return give_up("host_memory", who() + (write ? " writes " : " reads ") + element_of(*r, address) +
                                              " in line {place}, which lies in the host's memory: a new tensor goes there unless its options name the GPU, as x.options() do",
                           place, 0, cudaErrorIllegalAddress);
        if (sample && write && address >= output_low && address < output_high) block_end = std::max(block_end, address + bytes);
        if (!r->written.empty()) check_written(*r, address, bytes, write, reads, place);
        if (bytes >= 4 && !sample && !fault.is) touch_global(*r, address, bytes, write, atomic, place);
        return;
    }
    if (!(address >= host_low && address < host_high) && !in_modules(address)) return out_of_bounds(address, write, place);
    if (int argument = variable_of_the_host(address))  // and not the launch's own arguments, or a variable that the kernel names
        give_up("host_memory", who() + (write ? " writes" : " reads") + " what argument " + std::to_string(argument) +
                                   " of its launch points to (line {place}): the host's address of a variable, which no kernel can use. Copy the variable to memory "
                                   "from cudaMalloc; a __device__ or __constant__ one is named in the kernel itself, or has its address from cudaGetSymbolAddress",
                place, 0, cudaErrorIllegalAddress);
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

Region& add_region(const void* start, size_t bytes, const char* name, int element, size_t mapped = 0, Kind kind = DEVICE) {
    uintptr_t low = uintptr_t(start);
    recent[0] = recent[1] = nullptr;
    return regions[low + bytes] = Region{low, low + bytes, name, element, mapped, kind, 0, 0, {}, {}, tracing::NO_TENSOR};
}

auto remove_region(std::map<uintptr_t, Region>::iterator at) {
    give_back_touches(at->second.touches);
    if (at->second.mapped) munmap(reinterpret_cast<void*>(at->second.start), at->second.mapped);
    recent[0] = recent[1] = nullptr;
    return regions.erase(at);
}

// Ends of calls in the host's code: a signal such as SIGSEGV ends a call, and another thread may ask for the place of a call that does
// not end.
constexpr int STACK_DEPTH = 48;
constexpr int ENDING[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL};
constexpr int SIGNAL_FRAMES = 2;  // the handler and its caller; the interrupted function comes after them
struct sigaction earlier[4];
sigjmp_buf before_call;
pthread_t caller;
volatile sig_atomic_t calling, stack_depth;
void* call_stack[STACK_DEPTH];
const volatile void* reached_for;
uintptr_t call_began;  // on the stack

bool is_here(const void* code) {
    for (auto& [low, high] : modules)
        if (uintptr_t(code) >= low && uintptr_t(code) < high) return true;
    return false;
}

// Leaves the call if the student's code, or a function that it called directly, was interrupted. Deeper code, as an allocator, may hold
// locks that the worker needs: its signal goes to the handler before this one.
void end_call(int number, siginfo_t* info, void*) {
    if (calling && pthread_equal(pthread_self(), caller)) {
        int count = backtrace(call_stack, STACK_DEPTH);
        for (int i = SIGNAL_FRAMES; i < std::min(count, SIGNAL_FRAMES + 2); i++)
            if (is_here(call_stack[i])) {
                stack_depth = count, reached_for = info->si_code == SI_KERNEL ? &calling : info->si_addr;  // SI_KERNEL: the address is unknown
                siglongjmp(before_call, number);
            }
    }
    for (int i = 0; i < 4; i++)
        if (ENDING[i] == number) sigaction(number, &earlier[i], nullptr);
}

// The student's code that called, the innermost first.
std::vector<uintptr_t> callers() {
    void* all[ALLOCATION_FRAMES];
    std::vector<uintptr_t> found;
    for (int i = 0, count = backtrace(all, ALLOCATION_FRAMES); i < count; i++)
        if (is_here(all[i])) found.push_back(uintptr_t(all[i]) - 1);
    return found;
}

void note_place(int) { stack_depth = calling ? backtrace(call_stack, STACK_DEPTH) : 0; }

cudaError_t allocate(void** pointer, size_t bytes, const char* name, Kind kind);

// The device's memory is not mapped for the host's code of a call, as where there is a GPU. Only this runtime opens it, for a launch or
// a copy: what a function of the C library does with a pointer is seen by no check.
uintptr_t arena_start;  // of the pages that hold the inputs and outputs
size_t arena_bytes;     // 0: they stay open, as in a sample
int opened;

void map_device(int protection) {
    if (arena_bytes) mprotect(reinterpret_cast<void*>(arena_start), arena_bytes, protection);
    for (auto& [end, r] : regions)
        if (r.mapped && r.kind == DEVICE) mprotect(reinterpret_cast<void*>(r.start), r.mapped, protection);
}

struct Opened {
    Opened() {
        if (calling && !opened++) map_device(PROT_READ | PROT_WRITE);
    }
    ~Opened() {
        if (calling && !--opened) map_device(PROT_NONE);
    }
};

}  // namespace

// The worker's calls --------------------------------------------------------------------------------------------------------------
extern "C" {
uintptr_t cuda_cpu_base() {
    Dl_info info;
    return dladdr(reinterpret_cast<void*>(cuda_cpu_base), &info) ? uintptr_t(info.dli_fbase) : 0;
}
using W = uint64_t;
using F = double;
typedef void cuda_cpu_function(W, W, W, W, W, W, W, W, W, W, W, W, F, F, F, F, F, F, F, F);
// Calls the student's function with 12 words and 8 floats. Returns the signal that ended it, or 0.
// In the calling conventions of x86-64 and 64-bit ARM, integers and pointers have places of their own, floats others, and a function may
// get more arguments than it takes. So one function type serves all signatures, and each float is the low half of a double.
int cuda_cpu_call(cuda_cpu_function* function, const uint64_t* w, const double* f) {
    static char stack[64 << 10];  // the student's stack may be full
    stack_t own = {}, other;
    own.ss_sp = stack, own.ss_size = sizeof stack;
    struct sigaction ending = {}, noting = {};
    ending.sa_sigaction = end_call, noting.sa_handler = note_place;
    ending.sa_flags = SA_SIGINFO | SA_ONSTACK, noting.sa_flags = SA_ONSTACK | SA_RESTART;
    backtrace(call_stack, 1), stack_depth = 0, reached_for = nullptr;  // the first call of backtrace loads a library
    sigaltstack(&own, &other);
    sigaction(SIGUSR2, &noting, nullptr);
    for (int i = 0; i < 4; i++) sigaction(ENDING[i], &ending, &earlier[i]);
    caller = pthread_self(), call_began = uintptr_t(&own);
    int number = sigsetjmp(before_call, 1);
    if (!number)
        map_device(PROT_NONE), opened = 0, calling = 1, function(w[0], w[1], w[2], w[3], w[4], w[5], w[6], w[7], w[8], w[9], w[10], w[11], f[0], f[1], f[2], f[3], f[4], f[5], f[6], f[7]);
    calling = 0;
    map_device(PROT_READ | PROT_WRITE);
    for (int i = 0; i < 4; i++) sigaction(ENDING[i], &earlier[i], nullptr);
    sigaltstack(&other, nullptr);
    const Region* reached = number && !running ? find_region(uintptr_t(reached_for)) : nullptr;
    if (reached && reached->kind == DEVICE) {
        uintptr_t place = 0;
        for (int i = 0; i < stack_depth && !place; i++) place = is_here(call_stack[i]) && i > SIGNAL_FRAMES ? uintptr_t(call_stack[i]) - 1 : 0;
        give_up("host_access", "a function that the host's code calls in line {place} reaches " + reached->name + ": it is device memory, which only kernels may touch", place);
    }
    return number;
}
// The pages of the arena, which the host's code must not touch in the calls that follow.
void cuda_cpu_pages(const void* start, size_t bytes) { arena_start = uintptr_t(start), arena_bytes = bytes; }
// Locates the call that another thread makes. Returns how many addresses of its stack `cuda_cpu_stack` has now; 0 without a call.
int cuda_cpu_locate() {
    stack_depth = -1;
    if (!calling || pthread_kill(caller, SIGUSR2)) return 0;
    for (int i = 0; i < 1000 && stack_depth < 0; i++) usleep(1000);
    return stack_depth < 0 ? 0 : stack_depth;
}
// The i-th address of a located or ended call's stack, the innermost first; 0 outside the student's code, or after the last.
uintptr_t cuda_cpu_stack(int i) {
    i += SIGNAL_FRAMES;
    if (i >= stack_depth || !is_here(call_stack[i])) return 0;
    return uintptr_t(call_stack[i]) - (i > SIGNAL_FRAMES);  // a caller's address is that of its next instruction
}
int cuda_cpu_stack_depth() { return std::max(0, int(stack_depth) - SIGNAL_FRAMES); }
int cuda_cpu_in_a_kernel() { return running; }
uintptr_t cuda_cpu_reached_for() { return uintptr_t(reached_for); }
// Whether the address was in the guard of the device thread's stack, or so far below the call's beginning that the host's must have been full.
int cuda_cpu_stack_was_full() {
    uintptr_t address = uintptr_t(reached_for);
    return running ? address - stack_low < GUARD_BYTES : call_began - address - (256 << 10) < (1 << 30);
}
void cuda_cpu_begin(int new_order, int may_sample, int is_traced) {
    tracing::begin(false);
    sample = may_sample || is_traced;
    std::vector<size_t> sizes;  // scratch memory may be kept from call to call, but leaks must not fill the machine
    for (auto& [end, r] : regions) sizes.push_back(r.mapped);
    std::sort(sizes.begin(), sizes.end());
    size_t sum = 0, limit = SIZE_MAX;
    for (size_t bytes : sizes)
        if ((sum += bytes) > KEPT_BYTES) limit = std::min(limit, bytes);
    for (auto at = regions.begin(); at != regions.end();) {
        bool keep = at->second.mapped && at->second.mapped < limit && !fault.is;
        if (keep) give_back_touches(at->second.touches);
        if (sample) at->second.written.clear();
        at = keep ? std::next(at) : remove_region(at);
    }
    fault = Fault{};
    rewrites.clear(), same_value.clear(), same_work = Fault{}, is_left_out = false;
    last_error = sticky = refused = cudaSuccess;
    launches = 0;
    running = false, self = nullptr;  // a signal may have ended a kernel
    off_stream.clear(), behind.clear(), host_waited = false;
    output_low = output_high = output_end = 0, end_known = true;
    empties.clear(), freed.clear();
    order = new_order;
    base = cuda_cpu_base();
    if (modules.empty()) dl_iterate_phdr(add_module, reinterpret_cast<void*>(shared));
    tracing::begin(is_traced);
    if (is_traced)
        for (auto& [end, r] : regions) r.tensor = tracing::add_tensor(r.name.c_str(), r.end - r.start, false, {});
}
void cuda_cpu_trace_vectors(int has_vectors) { tracing::vectors = has_vectors; }
// The trace of the last call, which tracing.py reads.
const char* cuda_cpu_trace() {
    static std::string text;
    return (text = tracing::text()).c_str();
}
void cuda_cpu_array(const void* start, size_t bytes, const char* name, int element, int output) {
    if (!bytes) return void(empties.emplace_back(uintptr_t(start), name));
    Region& r = add_region(start, bytes, name, element);
    if (tracing::on) r.tensor = tracing::add_tensor(name, bytes, true, {});
    if (output && !sample) r.written.resize((bytes + 3) / 4);
    if (output && sample) output_low = r.start, output_high = r.end;
}
// Memory for a tensor of PyTorch's C++ interface; on the device it is an output, not written yet.
void* cuda_cpu_tensor(size_t bytes, int element, int on_device) {
    void* memory = nullptr;
    if (sample && on_device && bytes && bytes == output_high - output_low) return reinterpret_cast<void*>(output_low);
    if (allocate(&memory, bytes, "the new tensor", on_device ? DEVICE : PAGEABLE) != cudaSuccess || !memory) return nullptr;
    Region& r = regions.find(uintptr_t(memory) + bytes)->second;
    r.element = element;
    return memory;
}
// Copies a returned tensor into the judge's output. Bytes that were never written are not copied.
void cuda_cpu_give_tensor(void* output, const void* tensor, size_t bytes) {
    const Region* r = find_region(uintptr_t(tensor));
    if (tracing::on && r && r->mapped) tracing::returned = r->tensor;
    if (sample || fault.is) return;
    Opened memory;
    auto copy_word = [&](size_t at, size_t size) { memcpy(static_cast<char*>(output) + at, static_cast<const char*>(tensor) + at, size); };
    if (!r || r->written.empty()) return copy_word(0, bytes);
    for (size_t at = 0, first = uintptr_t(tensor) - r->start; at < bytes; at += 4)
        if (r->written[(first + at) / 4]) copy_word(at, std::min<size_t>(4, bytes - at));
        else is_left_out = true;
}
// The bytes at the end of a sample's output that a full run would leave unwritten; 0 if the sample does not tell.
size_t cuda_cpu_unwritten_end() { return end_known && output_end ? output_high - output_end : 0; }
uint64_t cuda_cpu_launches() { return launches; }
int cuda_cpu_off_stream_count() { return int(off_stream.size()); }
uintptr_t cuda_cpu_off_stream_place(int which) { return std::next(off_stream.begin(), which)->first; }
const char* cuda_cpu_off_stream_what(int which) { return std::next(off_stream.begin(), which)->second.c_str(); }
int cuda_cpu_same_value_count() { return int(same_value.size()); }
uintptr_t cuda_cpu_same_value_place(int which) { return std::next(same_value.begin(), which)->first; }
const char* cuda_cpu_same_value_what(int which) { return std::next(same_value.begin(), which)->second.c_str(); }
const char* cuda_cpu_fault_kind() {
    for (auto& [end, r] : regions)
        if (!r.mapped && !sample) is_left_out |= std::count(r.written.begin(), r.written.end(), 0) > 0;
    if (!fault.is && same_work.is && is_left_out) fault = same_work;
    return fault.is ? fault.kind.c_str() : nullptr;
}
const char* cuda_cpu_fault_text() { return fault.text.c_str(); }
const char* cuda_cpu_refusal() { return refused != cudaSuccess ? refusal.c_str() : nullptr; }
int cuda_cpu_refused() { return refused; }
uintptr_t cuda_cpu_place(int which) { return which == 0 ? fault.place : which == 1 ? fault.other : which == 2 ? fault.third : refusal_place; }

// The compiler's calls ------------------------------------------------------------------------------------------------------------
#define PLACE (uintptr_t(__builtin_return_address(0)) - 1)
#define CUDA_CPU_CALLBACKS(size)                                                                                     \
    void __tsan_read##size(void* address) { check(uintptr_t(address), size, false, false, PLACE, true); }                 \
    void __tsan_write##size(void* address) { check(uintptr_t(address), size, true, false, PLACE, false); }                 \
    void __tsan_unaligned_read##size(void* address) { check(uintptr_t(address), size, false, false, PLACE, true); }       \
    void __tsan_unaligned_write##size(void* address) { check(uintptr_t(address), size, true, false, PLACE, false); }       \
    void __tsan_volatile_read##size(void* address) { check(uintptr_t(address), size, false, false, PLACE, true); }        \
    void __tsan_volatile_write##size(void* address) { check(uintptr_t(address), size, true, false, PLACE, false); }        \
    void __tsan_read_write##size(void* address) {                                                                   \
        check(uintptr_t(address), size, false, false, PLACE, true);                                                       \
        check(uintptr_t(address), size, true, false, PLACE, false);                                                        \
    }
CUDA_CPU_CALLBACKS(1) CUDA_CPU_CALLBACKS(2) CUDA_CPU_CALLBACKS(4) CUDA_CPU_CALLBACKS(8) CUDA_CPU_CALLBACKS(16)
void __tsan_read_range(void* address, size_t bytes) { check(uintptr_t(address), bytes, false, false, PLACE, true); }
void __tsan_write_range(void* address, size_t bytes) { check(uintptr_t(address), bytes, true, false, PLACE, false); }
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_vptr_update(void**, void*) {}
void __tsan_vptr_read(void**) {}
void __tsan_init() {}
// Atomics of C++, for std::atomic and std::call_once. Device threads run one at a time, but the host may have several.
#define CUDA_CPU_ATOMIC_CHANGE(bits, name, builtin)                                                   \
    uint##bits##_t __tsan_atomic##bits##_##name(volatile uint##bits##_t* at, uint##bits##_t value, int) { \
        check(uintptr_t(at), bits / 8, true, true, PLACE, true);                                       \
        return builtin(at, value, __ATOMIC_SEQ_CST);                                                  \
    }
#define CUDA_CPU_ATOMIC_EXCHANGE(bits, name)                                                                                        \
    int __tsan_atomic##bits##_##name(volatile uint##bits##_t* at, uint##bits##_t* expected, uint##bits##_t value, int, int) {          \
        check(uintptr_t(at), bits / 8, true, true, PLACE, true);                                                                      \
        return __atomic_compare_exchange_n(at, expected, value, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);                         \
    }
#define CUDA_CPU_ATOMICS(bits)                                                                                                          \
    uint##bits##_t __tsan_atomic##bits##_load(const volatile uint##bits##_t* at, int) {                                                   \
        check(uintptr_t(at), bits / 8, running, true, PLACE, true); /* a kernel's as a write: atomics are no races of each other */      \
        return __atomic_load_n(at, __ATOMIC_SEQ_CST);                                                                                  \
    }                                                                                                                                   \
    void __tsan_atomic##bits##_store(volatile uint##bits##_t* at, uint##bits##_t value, int) {                                            \
        check(uintptr_t(at), bits / 8, true, true, PLACE, false);                                                                         \
        __atomic_store_n(at, value, __ATOMIC_SEQ_CST);                                                                                 \
    }                                                                                                                                   \
    uint##bits##_t __tsan_atomic##bits##_compare_exchange_val(volatile uint##bits##_t* at, uint##bits##_t expected, uint##bits##_t value, int, int) { \
        check(uintptr_t(at), bits / 8, true, true, PLACE, true);                                                                          \
        __atomic_compare_exchange_n(at, &expected, value, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);                                  \
        return expected;                                                                                                               \
    }                                                                                                                                   \
    CUDA_CPU_ATOMIC_EXCHANGE(bits, compare_exchange_strong) CUDA_CPU_ATOMIC_EXCHANGE(bits, compare_exchange_weak)                         \
    CUDA_CPU_ATOMIC_CHANGE(bits, exchange, __atomic_exchange_n) CUDA_CPU_ATOMIC_CHANGE(bits, fetch_add, __atomic_fetch_add)               \
    CUDA_CPU_ATOMIC_CHANGE(bits, fetch_sub, __atomic_fetch_sub) CUDA_CPU_ATOMIC_CHANGE(bits, fetch_and, __atomic_fetch_and)               \
    CUDA_CPU_ATOMIC_CHANGE(bits, fetch_or, __atomic_fetch_or) CUDA_CPU_ATOMIC_CHANGE(bits, fetch_xor, __atomic_fetch_xor)                 \
    CUDA_CPU_ATOMIC_CHANGE(bits, fetch_nand, __atomic_fetch_nand)
CUDA_CPU_ATOMICS(8) CUDA_CPU_ATOMICS(16) CUDA_CPU_ATOMICS(32) CUDA_CPU_ATOMICS(64)
void __tsan_atomic_thread_fence(int) { fenced |= running, __atomic_thread_fence(__ATOMIC_SEQ_CST); }
void __tsan_atomic_signal_fence(int) {}
void* __tsan_memcpy(void* to, const void* from, size_t bytes) { return memmove(to, from, bytes); }
void* __tsan_memset(void* to, int value, size_t bytes) { return memset(to, value, bytes); }
void* __tsan_memmove(void* to, const void* from, size_t bytes) { return memmove(to, from, bytes); }

struct Where { const char* file; uint32_t line, column; };
struct Mismatch { Where where; const void* type; unsigned char log_alignment, kind; };
void __ubsan_handle_type_mismatch_v1(Mismatch* data, uintptr_t pointer) {
    if (!running || !pointer) return;
    unsigned alignment = 1u << data->log_alignment;
    if (pointer % alignment == 0) return;
    const Region* r = find_region(pointer);
    const std::string of = std::to_string(alignment), from = r ? element_of(*r, pointer) + ", whose address" : "an address that";
    give_up("misaligned", who() + " takes " + of + " bytes at once, in line {place}, from " + from + " is not a multiple of " + of, PLACE, 0,
            cudaErrorMisalignedAddress);
}

// The kernel's calls --------------------------------------------------------------------------------------------------------------
namespace cuda_cpu {
int cuda_cpu_lane() { return self->number % 32; }
void cuda_cpu_fence() { fenced = true; }
void cuda_cpu_bounds(int most) {
    if (!self || most < 1 || int(threads.size()) <= most || asked_for_block) return;
    exceeded = most;
    give_up("", "", PLACE);  // until cuda_cpu_run has refused the launch
}
void cuda_cpu_atomic(const void* address, size_t bytes, bool reads) { check(uintptr_t(address), bytes, true, true, PLACE, reads); }
int cuda_cpu_barrier(int value) {
    self->value = value;
    self->place = PLACE;
    self->state = AT_BARRIER;
    yield();
    return self->value;
}
unsigned cuda_cpu_active() {
    uint64_t inbox[32];
    unsigned arrived = 0;
    self->mask = 0, self->inbox = inbox, self->arrived = &arrived, self->what = "__activemask", self->place = PLACE;
    self->state = AT_WARP;
    yield();
    return arrived;
}
void cuda_cpu_warp(unsigned mask, uint64_t value, uint64_t* inbox, unsigned* arrived, const char* what) {
    if (!(mask >> (self->number % 32) & 1))
        return give_up("warp_mask", who() + " calls " + what + " in line {place} with a mask that does not name it", PLACE);
    self->mask = mask, self->bits = value, self->inbox = inbox, self->arrived = arrived, self->what = what, self->place = PLACE;
    self->state = AT_WARP;
    yield();
}
void cuda_cpu_shuffled(int source, const char* what) {
    size_t lane = self->number / 32 * 32 + source;
    bool is_there = lane < threads.size();
    if (sample || (is_there && threads[lane].state != DONE)) return;
    const std::string of = is_there ? "thread " + triple(threads[lane].index) + ", which has returned" : "lane " + std::to_string(source) + ", which the block does not have";
    give_up("lane_that_is_gone",
            who() + " reads by " + what + " in line {place} from " + of + ": what it gets is undefined. " +
                (is_there ? "Let all lanes of a warp come to the shuffle: check the index where memory is read and written, and not by an early return"
                          : "Take a multiple of 32 threads a block, or stop before the lanes that are not there"),
            PLACE);
}
void cuda_cpu_trap(const char* what) {
    give_up("trap", who() + " stopped the kernel: " + what + " in line {place}", PLACE);
    std::abort();
}
void* cuda_cpu_static_shared(const char* name, int line, size_t bytes, size_t alignment) {
    auto [at, fresh] = shared_variables.try_emplace({line * 1000 + int(strlen(name)), std::hash<std::string>{}(name) ^ bytes});
    if (fresh) {
        size_t offset = (static_bytes + alignment - 1) / alignment * alignment;
        std::string brings = std::string("the shared variable ") + name + " in line {place} brings the block's to ";
        if (offset + bytes > STATIC_SHARED_BYTES)
            give_up("too_much_shared", brings + std::to_string(offset + bytes) + " bytes; 49152 are allowed", PLACE, 0, cudaErrorLaunchOutOfResources);
        size_t most = allowed_shared > STATIC_SHARED_BYTES ? SHARED_BYTES : STATIC_SHARED_BYTES;
        if (offset + bytes + dynamic_bytes > most)
            give_up("too_much_shared", brings + std::to_string(offset + bytes + dynamic_bytes) + " bytes, with " + std::to_string(dynamic_bytes) +
                                           " of the launch; " + std::to_string(most) + " are allowed" +
                                           (most < SHARED_BYTES ? " unless cudaFuncSetAttribute asks for more" : ""), PLACE, 0, cudaErrorInvalidValue);
        at->second = {name, offset, bytes};
        static_bytes = offset + bytes;
    }
    return shared + at->second.offset;
}
void* cuda_cpu_dynamic_shared() { return shared + DYNAMIC_START; }

cudaError_t cuda_cpu_run(const Config* wanted, void (*new_entry)(void*), void* new_closure) {
    if (sticky != cudaSuccess) return sticky;
    dim3 g = wanted->grid, b = wanted->block;
    uintptr_t place = PLACE;
    auto refuse = [&](cudaError_t error, const std::string& why) {
        refusal = std::string("line {refused} launches ") + wanted->name + " with " + why, refusal_place = place;
        return last_error = refused = error;
    };
    uint64_t in_block = uint64_t(b.x) * b.y * b.z;
    if (std::string why = launch_shape::refusal(g, b); !why.empty()) return refuse(cudaErrorInvalidConfiguration, why);
    if (wanted->shared_bytes > SHARED_BYTES)
        return refuse(cudaErrorInvalidValue, count(wanted->shared_bytes, "byte") + " of dynamic shared memory; " + std::to_string(SHARED_BYTES) + " are allowed at most");
    if (wanted->shared_bytes > allowed_shared) return refuse(cudaErrorInvalidValue, launch_shape::too_much_shared(wanted->shared_bytes, allowed_shared));
    Opened memory;
    launches++;
    note_stream(wanted->stream, std::string("the launch of ") + wanted->name, place);
    config = wanted, entry = new_entry, closure = new_closure;
    blockDim = b, gridDim = g;
    dynamic_bytes = wanted->shared_bytes;
    static_bytes = 0;
    host_low = uintptr_t(__builtin_frame_address(0)), host_high = host_low + (1 << 20);
    launch_first = stretch + 1;
    runners.clear(), block_starts.clear();
    running = true, fenced = false;
    uint64_t blocks = uint64_t(g.x) * g.y * g.z;
    auto run = [&](uint64_t number) {
        if (fault.is) return;
        block_number = uint32_t(number), block_end = 0;
        blockIdx = {block_number % g.x, block_number / g.x % g.y, block_number / g.x / g.y};
        run_block();
        output_end = std::max(output_end, block_end);
    };
    launch_accesses = 0;
    if (tracing::on) {
        bool runs = tracing::begin_launch({wanted->name, place, {g.x, g.y, g.z}, {b.x, b.y, b.z}, dynamic_bytes, 0, {}, 0, 0, 0, false, {}});
        if (runs) {
            auto& arguments = tracing::launch->arguments;
            for (int i = 0; i < wanted->argument_count && !tracing::launch->runs; i++)
                if (const Region* r = find_region(uintptr_t(wanted->arguments[i]))) arguments.emplace_back(i, r->tensor);
            tracing::launch->runs++;
        }
        for (uint64_t number : runs ? tracing::sampled(blocks) : std::vector<uint64_t>()) {
            if (tracing::has_enough() && number) break;
            tracing::begin_block(number == 0 || number == blocks - 1);
            run(number);
            tracing::launch->static_bytes = std::max(tracing::launch->static_bytes, static_bytes);
        }
    } else if (sample && blocks > SAMPLED_BLOCKS) {
        std::set<uint64_t> some = {0, 1, blocks - 2, blocks - 1};
        for (double part : {0.236, 0.382, 0.5, 0.618, 0.854}) some.insert(uint64_t(double(blocks) * part));
        // If each block wrote further than the blocks before it, and all threads ended, the last block's end is the launch's.
        uintptr_t before = 0;
        bool rising = true, writes = false;
        for (uint64_t number : some) run(number), rising &= block_end > before, writes |= block_end > 0, before = block_end;
        end_known &= rising || !writes;
    } else {
        for (uint64_t i = 0; i < blocks && !fault.is; i++) run(order % 2 ? blocks - 1 - i : i);
    }
    running = false;
    config = nullptr;
    if (fault.is) abandon();
    if (exceeded) {
        fault = Fault{}, sticky = cudaSuccess, launches--;
        int most = std::exchange(exceeded, 0);
        return refuse(cudaErrorInvalidValue, count(in_block, "thread") + " in a block; its __launch_bounds__ allow " + std::to_string(most));
    }
    return cudaSuccess;  // later calls return a kernel's error
}
}  // namespace cuda_cpu
}

// The host's API ------------------------------------------------------------------------------------------------------------------
namespace {

// One side of a copy or a fill: its rows, and whether it is written.
struct Side {
    const void* start;
    size_t pitch, width, height;
    bool write;
    size_t span() const { return pitch * (height - 1) + width; }
    // What is copied or filled: all, or of a sample the first LARGE_BYTES.
    size_t rows() const { return sample ? std::min(height, std::max<size_t>(1, LARGE_BYTES / std::max<size_t>(1, width))) : height; }
    size_t row_bytes() const { return sample ? std::min(width, LARGE_BYTES) : width; }
};

sigjmp_buf no_such_memory;
void leave(int) { siglongjmp(no_such_memory, 1); }

// Runs a copy that touches unchecked memory of the host; false if there is no memory at the address.
template <class Copy> bool guarded(Copy copy) {
    struct sigaction action = {}, before[2];
    action.sa_handler = leave;
    sigaction(SIGSEGV, &action, &before[0]), sigaction(SIGBUS, &action, &before[1]);
    bool there = !sigsetjmp(no_such_memory, 1);
    if (there) copy();
    sigaction(SIGSEGV, &before[0], nullptr), sigaction(SIGBUS, &before[1], nullptr);
    return there;
}

bool on_device(const void* pointer) { return find_region(uintptr_t(pointer)) || is_symbol(uintptr_t(pointer), 1); }

cudaError_t wrong_side(const char* function, const Side& side, const std::string& what, uintptr_t place) {
    give_up("out_of_bounds", std::string(function) + " in line {place} " + (side.write ? "writes " : "reads ") + count(side.width * side.height, "byte") +
                                 (side.write ? " to " : " from ") + what, place, 0, cudaErrorInvalidValue);
    sticky = cudaSuccess;  // the call is refused, the device lives
    return cudaErrorInvalidValue;
}

cudaError_t check_side(const char* function, const Side& side, bool device, const std::string& why, uintptr_t place) {
    uintptr_t start = uintptr_t(side.start);
    if (!start) return wrong_side(function, side, "a null pointer", place);
    Region* r = find_region(start);
    if (r && side.span() > r->end - start) return wrong_side(function, side, r->name + ", which has " + std::to_string(r->end - start) + " left", place);
    const char* symbol = in_modules(start) ? "; or a __device__ or __constant__ variable is meant, which takes cudaMemcpyToSymbol or cudaMemcpyFromSymbol" : "";
    if (device && !r && !is_symbol(start, side.span())) return wrong_side(function, side, "memory that is not the device's" + why + symbol, place);
    if (!device && r && r->kind == DEVICE) return wrong_side(function, side, r->name + ", which is the device's" + why, place);
    if (r && side.write && start >= output_low && start < output_high) output_end = std::max(output_end, start + side.span());
    if (r && side.write && !r->written.empty())
        for (size_t row = 0; row < side.height; row++) {
            size_t first = start + row * side.pitch - r->start;
            memset(&r->written[first / 4], 1, (first + side.width - 1) / 4 - first / 4 + 1);
        }
    return cudaSuccess;
}

// Whether a copy or a fill is not made.
bool left_out(size_t bytes) { return sample && bytes >= (tracing::on ? TRACED_LARGE_BYTES : LARGE_BYTES); }

cudaError_t copy(const char* function, Side to, Side from, cudaMemcpyKind kind, uintptr_t place) {
    if (sticky != cudaSuccess) return sticky;
    if (to.pitch < to.width || from.pitch < from.width) return last_error = cudaErrorInvalidPitchValue;
    if (unsigned(kind) > cudaMemcpyDefault) return last_error = cudaErrorInvalidMemcpyDirection;
    if (!to.width || !to.height) return cudaSuccess;
    bool to_device = kind == cudaMemcpyDefault ? on_device(to.start) : kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
    bool from_device = kind == cudaMemcpyDefault ? on_device(from.start) : kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
    const char* why = ": the direction does not match the pointers";
    if (cudaError_t error = check_side(function, from, from_device, why, place)) return last_error = error;
    if (cudaError_t error = check_side(function, to, to_device, why, place)) return last_error = error;
    if (tracing::on)
        tracing::note_operator(function, callers(), on_device(from.start) ? from.width * from.height : 0, on_device(to.start) ? to.width * to.height : 0);
    if (tracing::on && left_out(to.width * to.height)) return cudaSuccess;
    Opened memory;
    bool there = guarded([&] {
        for (size_t row = 0; row < to.rows(); row++)
            memmove(const_cast<char*>(static_cast<const char*>(to.start)) + row * to.pitch, static_cast<const char*>(from.start) + row * from.pitch, to.row_bytes());
    });
    return there ? cudaSuccess : last_error = wrong_side(function, to_device ? from : to, "host memory that is not there", place);
}

cudaError_t fill(const char* function, Side to, int value, uintptr_t place) {
    if (sticky != cudaSuccess) return sticky;
    if (to.pitch < to.width) return last_error = cudaErrorInvalidPitchValue;
    if (!to.width || !to.height) return cudaSuccess;
    if (cudaError_t error = check_side(function, to, true, "", place)) return last_error = error;
    if (tracing::on) tracing::note_operator(function, callers(), 0, to.width * to.height);
    if (tracing::on && left_out(to.width * to.height)) return cudaSuccess;
    Opened memory;
    for (size_t row = 0; row < to.rows(); row++) memset(const_cast<char*>(static_cast<const char*>(to.start)) + row * to.pitch, value, to.row_bytes());
    return cudaSuccess;
}

cudaError_t allocate(void** pointer, size_t bytes, const char* name, Kind kind) {
    if (sticky != cudaSuccess) return sticky;
    if (!pointer) return last_error = cudaErrorInvalidValue;
    *pointer = nullptr;
    if (!bytes) return cudaSuccess;
    size_t length = bytes > SIZE_MAX - 8191 ? 0 : (bytes + 8191) / 4096 * 4096;
    void* memory = mmap(nullptr, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) return last_error = cudaErrorMemoryAllocation;
    if (!left_out(bytes)) memset(memory, POISON, bytes);
    *pointer = memory;
    Region& r = add_region(memory, bytes, name, 1, length, kind);
    if (kind == DEVICE && !sample && bytes <= LARGE_BYTES) r.written.resize((bytes + 3) / 4);
    if (kind == DEVICE && calling && !opened) mprotect(memory, length, PROT_NONE);
    if (tracing::on && (kind == DEVICE || kind == MANAGED)) r.tensor = tracing::add_tensor(name, bytes, false, callers());
    return cudaSuccess;
}

double now_ms() { return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

const std::pair<cudaError_t, std::pair<const char*, const char*>> ERRORS[] = {
    {cudaSuccess, {"cudaSuccess", "no error"}},
    {cudaErrorInvalidValue, {"cudaErrorInvalidValue", "invalid argument"}},
    {cudaErrorMemoryAllocation, {"cudaErrorMemoryAllocation", "out of memory"}},
    {cudaErrorInvalidConfiguration, {"cudaErrorInvalidConfiguration", "invalid configuration argument"}},
    {cudaErrorInvalidPitchValue, {"cudaErrorInvalidPitchValue", "invalid pitch argument"}},
    {cudaErrorInvalidSymbol, {"cudaErrorInvalidSymbol", "invalid device symbol"}},
    {cudaErrorInvalidDevicePointer, {"cudaErrorInvalidDevicePointer", "invalid device pointer"}},
    {cudaErrorInvalidMemcpyDirection, {"cudaErrorInvalidMemcpyDirection", "invalid copy direction for memcpy"}},
    {cudaErrorInvalidDevice, {"cudaErrorInvalidDevice", "invalid device ordinal"}},
    {cudaErrorInvalidResourceHandle, {"cudaErrorInvalidResourceHandle", "invalid resource handle"}},
    {cudaErrorNotReady, {"cudaErrorNotReady", "device not ready"}},
    {cudaErrorContextIsDestroyed, {"cudaErrorContextIsDestroyed", "context is destroyed"}},
    {cudaErrorNoDevice, {"cudaErrorNoDevice", "no CUDA-capable device is detected"}},
    {cudaErrorInitializationError, {"cudaErrorInitializationError", "initialization error"}},
    {cudaErrorAssert, {"cudaErrorAssert", "device-side assert triggered"}},
    {cudaErrorIllegalAddress, {"cudaErrorIllegalAddress", "an illegal memory access was encountered"}},
    {cudaErrorLaunchOutOfResources, {"cudaErrorLaunchOutOfResources", "too many resources requested for launch"}},
    {cudaErrorMisalignedAddress, {"cudaErrorMisalignedAddress", "misaligned address"}},
    {cudaErrorLaunchFailure, {"cudaErrorLaunchFailure", "unspecified launch failure"}},
    {cudaErrorNotSupported, {"cudaErrorNotSupported", "operation not supported"}},
    {cudaErrorUnknown, {"cudaErrorUnknown", "unknown error"}},
};

}  // namespace

struct CUevent_st {
    double ms;
    bool behind;  // the given stream's work in this call
};

extern "C" {
cudaError_t cudaMalloc(void** pointer, size_t bytes) { return allocate(pointer, bytes, "memory from cudaMalloc", DEVICE); }
cudaError_t cudaMallocManaged(void** pointer, size_t bytes, unsigned) { return allocate(pointer, bytes, "memory from cudaMallocManaged", MANAGED); }
cudaError_t cudaMallocHost(void** pointer, size_t bytes, unsigned) { return allocate(pointer, bytes, "memory from cudaMallocHost", PINNED); }
cudaError_t cudaFree(void* pointer) {
    if (sticky != cudaSuccess || !pointer) return sticky;
    for (auto at = regions.begin(); at != regions.end(); ++at)
        if (at->second.start == uintptr_t(pointer)) {
            freed.emplace_back(at->second.start, at->second.end);
            return remove_region(at), cudaSuccess;
        }
    return last_error = cudaErrorInvalidValue;
}
cudaError_t cudaFreeHost(void* pointer) { return cudaFree(pointer); }
cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
    return copy("cudaMemcpy", {to, bytes, bytes, 1, true}, {from, bytes, bytes, 1, false}, kind, PLACE);
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
    note_stream(stream, "cudaMemcpyAsync", PLACE);
    return copy("cudaMemcpyAsync", {to, bytes, bytes, 1, true}, {from, bytes, bytes, 1, false}, kind, PLACE);
}
cudaError_t cudaMemcpy2D(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width, size_t height, cudaMemcpyKind kind) {
    return copy("cudaMemcpy2D", {to, to_pitch, width, height, true}, {from, from_pitch, width, height, false}, kind, PLACE);
}
cudaError_t cudaMemcpy2DAsync(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width, size_t height, cudaMemcpyKind kind, cudaStream_t stream) {
    note_stream(stream, "cudaMemcpy2DAsync", PLACE);
    return copy("cudaMemcpy2DAsync", {to, to_pitch, width, height, true}, {from, from_pitch, width, height, false}, kind, PLACE);
}
cudaError_t cudaMemset(void* to, int value, size_t bytes) { return fill("cudaMemset", {to, bytes, bytes, 1, true}, value, PLACE); }
cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t stream) {
    note_stream(stream, "cudaMemsetAsync", PLACE);
    return fill("cudaMemsetAsync", {to, bytes, bytes, 1, true}, value, PLACE);
}
cudaError_t cudaMemset2D(void* to, size_t pitch, int value, size_t width, size_t height) { return fill("cudaMemset2D", {to, pitch, width, height, true}, value, PLACE); }
cudaError_t cudaMemset2DAsync(void* to, size_t pitch, int value, size_t width, size_t height, cudaStream_t stream) {
    note_stream(stream, "cudaMemset2DAsync", PLACE);
    return fill("cudaMemset2DAsync", {to, pitch, width, height, true}, value, PLACE);
}
// A symbol is the variable itself; `to_symbol` or from it.
cudaError_t cuda_cpu_copy_symbol(void* symbol, size_t size, void* other, size_t bytes, size_t offset, cudaMemcpyKind kind, bool to_symbol) {
    if (sticky != cudaSuccess) return sticky;
    const char* function = to_symbol ? "cudaMemcpyToSymbol" : "cudaMemcpyFromSymbol";
    Side inside = {static_cast<char*>(symbol) + offset, bytes, bytes, 1, to_symbol}, outside = {other, bytes, bytes, 1, !to_symbol};
    if (offset > size || bytes > size - offset)
        return last_error = wrong_side(function, inside, "a variable of " + count(size, "byte") + ", from its byte " + std::to_string(offset) + " on", PLACE);
    symbols.emplace_back(uintptr_t(symbol), uintptr_t(symbol) + size);
    cudaError_t error = to_symbol ? copy(function, inside, outside, kind, PLACE) : copy(function, outside, inside, kind, PLACE);
    symbols.pop_back();
    return error;
}
cudaError_t cuda_cpu_symbol_address(void** pointer, void* symbol, size_t size) {
    symbols.emplace_back(uintptr_t(symbol), uintptr_t(symbol) + size);
    return *pointer = symbol, sticky;
}
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* a, const void* pointer) {
    const Region* r = find_region(uintptr_t(pointer));
    void* p = const_cast<void*>(pointer);
    Kind kind = r ? r->kind : DEVICE;
    *a = !on_device(pointer) ? cudaPointerAttributes{cudaMemoryTypeUnregistered, -2, nullptr, p}
                             : cudaPointerAttributes{kind == DEVICE ? cudaMemoryTypeDevice : kind == MANAGED ? cudaMemoryTypeManaged : cudaMemoryTypeHost, 0, p,
                                                     kind == DEVICE ? nullptr : p};
    return sticky;
}
cudaError_t cudaMemGetInfo(size_t* unused, size_t* total) {
    size_t used = 0;
    for (auto& [end, r] : regions) used += r.end - r.start;
    *total = TOTAL_BYTES;
    *unused = TOTAL_BYTES - std::min(used, TOTAL_BYTES);
    return sticky;
}
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned, int) {
    *stream = reinterpret_cast<cudaStream_t>(new char);
    if (calling) own_streams.insert(*stream);
    return sticky;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) { return own_streams.erase(stream), delete reinterpret_cast<char*>(stream), sticky; }
cudaError_t cudaStreamSynchronize(cudaStream_t stream) { return host_waited |= is_behind(stream), sticky; }
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags) {
    if (!event) return last_error = cudaErrorInvalidResourceHandle;
    if (flags) return last_error = cudaErrorInvalidValue;  // cudaEventWaitExternal belongs to the capture of a graph
    if (event->behind) behind.insert(stream);
    return sticky;
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) { return *event = new CUevent_st{-1, false}, sticky; }
cudaError_t cudaEventDestroy(cudaEvent_t event) { return delete event, sticky; }
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
    if (!event) return last_error = cudaErrorInvalidResourceHandle;
    return event->ms = now_ms(), event->behind = uintptr_t(stream) > uintptr_t(cudaStreamPerThread) && is_behind(stream), sticky;
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
    if (!event) return last_error = cudaErrorInvalidResourceHandle;
    return host_waited |= event->behind, sticky;
}
cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t start, cudaEvent_t end) {
    if (!start || !end || start->ms < 0 || end->ms < 0) return last_error = cudaErrorInvalidResourceHandle;
    return *ms = float(end->ms - start->ms), sticky;
}
cudaError_t cudaPeekAtLastError() { return last_error; }
cudaError_t cudaGetLastError() {
    cudaError_t error = last_error;
    last_error = sticky;
    return error;
}
cudaError_t cudaDeviceSynchronize() { return host_waited = true, sticky; }
cudaError_t cudaDeviceReset() { return sticky = last_error = cudaErrorContextIsDestroyed, cudaSuccess; }
const char* cudaGetErrorName(cudaError_t error) {
    for (auto& [value, words] : ERRORS)
        if (value == error) return words.first;
    return "unrecognized error code";
}
const char* cudaGetErrorString(cudaError_t error) {
    for (auto& [value, words] : ERRORS)
        if (value == error) return words.second;
    return "unrecognized error code";
}
void cuda_cpu_asked_for_block() { asked_for_block = true; }
cudaError_t cuda_cpu_allow_shared(size_t bytes) {
    if (bytes > SHARED_BYTES) return last_error = cudaErrorInvalidValue;
    allowed_shared = std::max(allowed_shared, bytes);
    return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* p, int device) {
    if (device) return last_error = cudaErrorInvalidDevice;
    *p = cudaDeviceProp{};
    strcpy(p->name, "CPU stand-in");
    auto ask = [](cudaDeviceAttr attribute) {
        int value = 0;
        return cudaDeviceGetAttribute(&value, attribute, 0), value;
    };
    p->totalGlobalMem = TOTAL_BYTES, p->sharedMemPerBlock = STATIC_SHARED_BYTES, p->sharedMemPerBlockOptin = SHARED_BYTES;
    p->sharedMemPerMultiprocessor = 228 << 10, p->reservedSharedMemPerBlock = 1024, p->totalConstMem = 65536, p->memPitch = INT_MAX;
    p->textureAlignment = 512, p->texturePitchAlignment = 32, p->surfaceAlignment = 512;
    p->regsPerBlock = p->regsPerMultiprocessor = 65536, p->warpSize = 32, p->maxThreadsPerBlock = 1024;
    p->maxThreadsDim[0] = p->maxThreadsDim[1] = 1024, p->maxThreadsDim[2] = 64;
    p->maxGridSize[0] = 2147483647, p->maxGridSize[1] = p->maxGridSize[2] = 65535;
    p->major = 9, p->multiProcessorCount = 132, p->maxThreadsPerMultiProcessor = 2048, p->maxBlocksPerMultiProcessor = 32;
    p->memoryBusWidth = ask(cudaDevAttrGlobalMemoryBusWidth), p->l2CacheSize = ask(cudaDevAttrL2CacheSize);
    p->asyncEngineCount = ask(cudaDevAttrAsyncEngineCount), p->persistingL2CacheMaxSize = ask(cudaDevAttrMaxPersistingL2CacheSize);
    p->accessPolicyMaxWindowSize = ask(cudaDevAttrMaxAccessPolicyWindowSize);
    p->canMapHostMemory = p->concurrentKernels = p->ECCEnabled = p->unifiedAddressing = p->streamPrioritiesSupported = p->globalL1CacheSupported = 1;
    p->localL1CacheSupported = p->managedMemory = p->concurrentManagedAccess = p->computePreemptionSupported = p->canUseHostPointerForRegisteredMem = 1;
    p->cooperativeLaunch = p->hostRegisterSupported = p->memoryPoolsSupported = p->clusterLaunch = 1;
    return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
    if (device) return last_error = cudaErrorInvalidDevice;
    switch (attribute) {
        case cudaDevAttrMaxThreadsPerBlock: case cudaDevAttrMaxBlockDimX: case cudaDevAttrMaxBlockDimY: return *value = 1024, cudaSuccess;
        case cudaDevAttrMaxBlockDimZ: return *value = 64, cudaSuccess;
        case cudaDevAttrMaxGridDimX: case cudaDevAttrMaxPitch: return *value = 2147483647, cudaSuccess;
        case cudaDevAttrMaxGridDimY: case cudaDevAttrMaxGridDimZ: return *value = 65535, cudaSuccess;
        case cudaDevAttrMaxSharedMemoryPerBlock: return *value = STATIC_SHARED_BYTES, cudaSuccess;
        case cudaDevAttrMaxSharedMemoryPerBlockOptin: return *value = SHARED_BYTES, cudaSuccess;
        case cudaDevAttrMaxSharedMemoryPerMultiprocessor: return *value = 228 << 10, cudaSuccess;
        case cudaDevAttrReservedSharedMemoryPerBlock: return *value = 1024, cudaSuccess;
        case cudaDevAttrTotalConstantMemory: case cudaDevAttrMaxRegistersPerBlock: case cudaDevAttrMaxRegistersPerMultiprocessor: return *value = 65536, cudaSuccess;
        case cudaDevAttrWarpSize: case cudaDevAttrMaxBlocksPerMultiprocessor: return *value = 32, cudaSuccess;
        case cudaDevAttrMultiProcessorCount: return *value = 132, cudaSuccess;
        case cudaDevAttrMaxThreadsPerMultiProcessor: return *value = 2048, cudaSuccess;
        case cudaDevAttrClockRate: return *value = 1980000, cudaSuccess;  // kHz; this and the following as an H100's
        case cudaDevAttrMemoryClockRate: return *value = 2619000, cudaSuccess;
        case cudaDevAttrGlobalMemoryBusWidth: return *value = 5120, cudaSuccess;
        case cudaDevAttrL2CacheSize: return *value = 50 << 20, cudaSuccess;
        case cudaDevAttrMaxPersistingL2CacheSize: return *value = 32768000, cudaSuccess;
        case cudaDevAttrMaxAccessPolicyWindowSize: return *value = 128 << 20, cudaSuccess;
        case cudaDevAttrAsyncEngineCount: return *value = 3, cudaSuccess;
        case cudaDevAttrSingleToDoublePrecisionPerfRatio: return *value = 2, cudaSuccess;
        case cudaDevAttrComputeCapabilityMajor: return *value = 9, cudaSuccess;
        case cudaDevAttrComputeCapabilityMinor: case cudaDevAttrComputeMode: case cudaDevAttrIntegrated: case cudaDevAttrKernelExecTimeout: return *value = 0, cudaSuccess;
        case cudaDevAttrGpuOverlap: case cudaDevAttrCanMapHostMemory: case cudaDevAttrConcurrentKernels: case cudaDevAttrEccEnabled:
        case cudaDevAttrUnifiedAddressing: case cudaDevAttrStreamPrioritiesSupported: case cudaDevAttrGlobalL1CacheSupported:
        case cudaDevAttrLocalL1CacheSupported: case cudaDevAttrManagedMemory: case cudaDevAttrConcurrentManagedAccess:
        case cudaDevAttrComputePreemptionSupported: case cudaDevAttrCooperativeLaunch: case cudaDevAttrHostRegisterSupported:
        case cudaDevAttrMemoryPoolsSupported: case cudaDevAttrClusterLaunch: return *value = 1, cudaSuccess;
    }
    return last_error = cudaErrorInvalidValue;
}
}
