// Counts what the launches of a traced call access (`protocol.MakeCalls.record`). Included by runtime.cpp alone.
//
// A request is one access by a warp, as a GPU makes it. Threads run one after another here, so a request is put together: the k-th
// execution of a place in the code by each lane of a warp, since the warp's last barrier or warp function, belongs to the k-th request of
// that place. A GPU does the same while lanes run through the same code. It differs where lanes come to a place by different ways, as in
// the branches of an `if` inside a loop, or skip some turns of a loop: the k-th execution is then another turn for each lane.
//
// g++ and clang++ load a float4 whose members are used one by one as four floats, a GPU loads it at once. Where `vectors` allows that,
// places next to each other are one access if they touch neighbouring bytes in all requests, at addresses that a vector may have.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace tracing {
constexpr int LANES = 32, SECTOR_BYTES = 32, BANKS = 32, BANK_BYTES = 4, VECTOR_BYTES = 16;
constexpr size_t MAX_LAUNCHES = 32, MAX_OPERATORS = 256;
constexpr uint64_t SAMPLED_BLOCKS = 16;               // a launch of more blocks runs in part
constexpr uint64_t ALIKE_LAUNCHES = 64;               // of alike launches in a row, so many run
constexpr uint64_t ENOUGH_ACCESSES = 4'000'000;       // after so many, no further block of the launch runs, nor of alike ones
constexpr uint64_t LAUNCH_ACCESSES = 10'000'000;      // then the running block is cut
constexpr uint64_t CALL_ACCESSES = 32'000'000;        // then no further block of the call runs
constexpr size_t OPEN_ACCESSES = 1 << 22;             // of a warp that has not come to a barrier
constexpr size_t BLOCK_SECTORS = 1 << 21;             // that one block may touch
constexpr int NO_TENSOR = -1, DYNAMIC_SHARED = -2;    // memory of `Key`; a static shared variable has DYNAMIC_SHARED - its number

struct Key {
    uintptr_t place;
    int memory;  // a tensor's number, or one of the above
    uint32_t width;
    bool write, atomic;
    bool operator==(const Key& o) const { return place == o.place && memory == o.memory && width == o.width && write == o.write && atomic == o.atomic; }
};
struct Hash {
    size_t operator()(const Key& k) const { return (k.place * 0x9E3779B97F4A7C15u) ^ (size_t(k.memory) << 20) ^ (k.width * 4 + k.write * 2 + k.atomic); }
};

// As in `protocol.TracedAccess`.
struct Counts {
    uint64_t requests, lanes, lanes_of_all, sectors, least_sectors, passes, least_passes;
};
struct Once {
    uint64_t read, written;
};

// The first and the last block are apart from the blocks between them, of which a few stand for all.
enum Part { EDGE, MIDDLE };
struct Sample {
    std::unordered_map<Key, Counts, Hash> accesses;
    std::unordered_map<int, Once> once;  // by tensor
    uint64_t blocks;
};

struct Launch {
    std::string kernel;
    uintptr_t place;
    uint32_t grid[3], block[3];
    size_t dynamic_bytes, static_bytes;
    std::vector<std::pair<int, int>> arguments;  // position of a parameter, and the tensor that it points into
    uint64_t launches, runs, accesses;           // all alike ones; those whose blocks ran; by these
    bool cut;
    Sample parts[2];
    bool alike(const Launch& o) const {
        return kernel == o.kernel && place == o.place && std::equal(grid, grid + 3, o.grid) && std::equal(block, block + 3, o.block) && dynamic_bytes == o.dynamic_bytes;
    }
    double blocks() const { return double(grid[0]) * grid[1] * grid[2]; }
};

struct Tensor {
    std::string name;
    size_t bytes;
    bool of_call;
    std::vector<uintptr_t> places;  // that allocated it, the innermost first
};
struct Operator {
    std::string name;
    std::vector<uintptr_t> places;
    uint64_t calls, read_bytes, written_bytes;
};

// The accesses of each lane of a warp at one place since the warp's last synchronisation, each as address << 16 | bytes.
struct Site {
    uint64_t key;
    uintptr_t place;
    bool write, atomic;
    std::vector<uint64_t> lanes[LANES];
    Key last;  // of its requests, and where they are counted
    Counts* counts;
    size_t requests() const {
        size_t most = 0;
        for (auto& lane : lanes) most = std::max(most, lane.size());
        return most;
    }
};

// The different bytes of global memory that a block has touched, by sector.
class Touched {
public:
    void next_block() {
        used = 0;
        if (slots.empty()) slots.resize(1 << 12);
        block++;
    }
    bool full() const { return used >= BLOCK_SECTORS; }
    // Adds bytes of a sector. Returns how many of them are new.
    int add(uint64_t sector, uint32_t bytes, bool write) {
        if (2 * used >= slots.size()) grow();
        Slot& slot = find(slots, sector | block << 42);
        used += !slot.key, slot.key = sector | block << 42;
        uint32_t& seen = write ? slot.written : slot.read;
        int fresh = __builtin_popcount(bytes & ~seen);
        return seen |= bytes, fresh;
    }

private:
    struct Slot {
        uint64_t key;
        uint32_t read, written;
    };
    std::vector<Slot> slots;
    uint64_t block = 0;
    size_t used = 0;
    // The slot of a key, or a free one, or one that an earlier block has left, which is emptied.
    Slot& find(std::vector<Slot>& all, uint64_t key) {
        for (size_t at = key * 0x9E3779B97F4A7C15u >> 20;; at++) {
            Slot& slot = all[at & (all.size() - 1)];
            if (slot.key == key) return slot;
            if (slot.key >> 42 != block) return slot = Slot{};
        }
    }
    void grow() {
        std::vector<Slot> larger(slots.size() * 2);
        for (Slot& slot : slots)
            if (slot.key >> 42 == block) find(larger, slot.key) = slot;
        slots.swap(larger);
    }
};

bool on = false;
bool vectors = false;  // whether the student's code has vector types
std::vector<Launch> launches;
std::vector<Tensor> tensors;
std::vector<std::string> shared_names;
std::vector<Operator> operators;
int returned = NO_TENSOR;
Launch* launch = nullptr;
Sample* part = nullptr;
uint64_t call_accesses = 0;
Touched touched;
std::vector<Site> sites;  // the first `open_sites` of them are in use
size_t open_sites = 0, open_accesses = 0;
uint32_t recent[256];  // numbers of sites, by a hash of their key
std::unordered_map<uint64_t, uint32_t> site_numbers;

inline void begin(bool is_traced) {
    on = is_traced;
    launches.clear(), tensors.clear(), shared_names.clear(), operators.clear();
    launch = nullptr, part = nullptr, returned = NO_TENSOR, call_accesses = 0, open_sites = open_accesses = 0;
    site_numbers.clear();
}

inline int shared_number(const std::string& name) {
    auto at = std::find(shared_names.begin(), shared_names.end(), name);
    if (at == shared_names.end()) at = shared_names.insert(at, name);
    return DYNAMIC_SHARED - 1 - int(at - shared_names.begin());
}

inline int add_tensor(const char* name, size_t bytes, bool of_call, std::vector<uintptr_t> places) {
    tensors.push_back({name, bytes, of_call, std::move(places)});
    return int(tensors.size()) - 1;
}

inline void note_operator(const char* name, std::vector<uintptr_t> places, uint64_t read_bytes, uint64_t written_bytes) {
    auto at = std::find_if(operators.begin(), operators.end(), [&](const Operator& o) { return o.name == name && o.places == places; });
    if (at == operators.end()) {
        if (operators.size() >= MAX_OPERATORS) return;
        at = operators.insert(at, {name, std::move(places), 0, 0, 0});
    }
    at->calls++, at->read_bytes += read_bytes, at->written_bytes += written_bytes;
}

// Begins a launch. Returns whether its blocks are to run.
inline bool begin_launch(Launch wanted) {
    auto at = launches.rbegin();
    if (launches.size() >= MAX_LAUNCHES)  // alike ones are then folded that are not in a row
        at = std::find_if(launches.rbegin(), launches.rend(), [&](const Launch& one) { return one.alike(wanted); });
    else if (at == launches.rend() || !at->alike(wanted))
        launches.push_back(std::move(wanted)), at = launches.rbegin();
    launch = at == launches.rend() ? nullptr : &*at;
    if (!launch) return false;
    launch->launches++;
    bool runs = launch->runs < ALIKE_LAUNCHES && launch->accesses < ENOUGH_ACCESSES && call_accesses < CALL_ACCESSES;
    launch->cut |= !runs && !launch->runs;
    return runs;
}

// The blocks that run of a launch: the first, the last, and others that are spread without a period.
inline std::vector<uint64_t> sampled(uint64_t blocks) {
    std::vector<uint64_t> some;
    if (blocks <= SAMPLED_BLOCKS) {
        for (uint64_t i = 0; i < blocks; i++) some.push_back(i);
        return some;
    }
    some = {0, blocks - 1};
    for (int i = 1; some.size() < SAMPLED_BLOCKS; i++) {
        double along = i * 0.6180339887498949;
        uint64_t block = 1 + uint64_t((along - std::floor(along)) * double(blocks - 2));
        if (std::find(some.begin(), some.end(), block) == some.end()) some.push_back(block);
    }
    return some;
}

inline bool has_enough() { return launch->accesses >= ENOUGH_ACCESSES || call_accesses >= CALL_ACCESSES; }

inline void begin_block(bool edge) {
    part = &launch->parts[edge ? EDGE : MIDDLE];
    part->blocks++;
    touched.next_block();
}

// The number of accesses between two barriers after which a thread is cut.
inline uint64_t thread_accesses() { return LAUNCH_ACCESSES / (uint64_t(launch->block[0]) * launch->block[1] * launch->block[2]); }

inline Site& site_of(uintptr_t place, bool write, bool atomic) {
    uint64_t key = place * 4 + write * 2 + atomic;
    uint32_t& guess = recent[(key * 0x9E3779B97F4A7C15u) >> 56];
    if (guess < open_sites && sites[guess].key == key) return sites[guess];
    auto [at, fresh] = site_numbers.try_emplace(key, uint32_t(open_sites));
    if (fresh) {
        if (open_sites == sites.size()) sites.emplace_back();
        Site& s = sites[open_sites++];
        s.key = key, s.place = place, s.write = write, s.atomic = atomic, s.counts = nullptr;
        for (auto& lane : s.lanes) lane.clear();
    }
    return sites[guess = at->second];
}

// Records an access by a lane. Returns false if the thread is to be cut.
inline bool note(uintptr_t place, uintptr_t address, size_t bytes, bool write, bool atomic, int lane) {
    call_accesses++;
    if (++launch->accesses > LAUNCH_ACCESSES || ++open_accesses > OPEN_ACCESSES || touched.full()) return launch->cut = true, false;
    site_of(place, write, atomic).lanes[lane].push_back(address << 16 | std::min<size_t>(bytes, 0xFFFF));
    return true;
}

// The bytes of a request in global memory, by sector.
struct Sectors {
    std::pair<uint64_t, uint32_t> all[3 * LANES];  // number of a sector, and a bit for each byte
    int count = 0;
    void add(uintptr_t address, uint32_t width) {
        for (uintptr_t end = address + width; address < end;) {
            uintptr_t next = std::min<uintptr_t>(end, (address / SECTOR_BYTES + 1) * SECTOR_BYTES);
            uint32_t bytes = uint32_t((uint64_t(1) << (next - address)) - 1) << address % SECTOR_BYTES;
            int at = count - 1;
            if (count && address / SECTOR_BYTES <= all[at].first)
                while (at >= 0 && all[at].first != address / SECTOR_BYTES) at--;
            else
                at = -1;
            if (at < 0) at = count++, all[at] = {address / SECTOR_BYTES, 0};
            all[at].second |= bytes;
            address = next;
        }
    }
};

// How often the banks must be asked for a request, if lanes at the same word are one: 8 bytes for each lane are asked for by half a
// warp, 16 bytes by a quarter.
inline uint64_t passes(const uintptr_t* addresses, uint32_t mask, uint32_t width, uint64_t& least) {
    int lanes = width <= BANK_BYTES ? LANES : LANES * BANK_BYTES / int(width);
    uint64_t sum = 0;
    for (int first = 0; first < LANES; first += lanes) {
        uintptr_t words[BANKS][LANES];
        int count[BANKS] = {}, most = 0;
        for (int lane = first; lane < first + lanes; lane++)
            for (uintptr_t word = addresses[lane] / BANK_BYTES; mask >> lane & 1 && word <= (addresses[lane] + width - 1) / BANK_BYTES; word++) {
                int bank = int(word % BANKS);
                if (std::find(words[bank], words[bank] + count[bank], word) != words[bank] + count[bank]) continue;
                words[bank][count[bank]++] = word;
                most = std::max(most, count[bank]);
            }
        sum += most, least += most > 0;
    }
    return sum;
}

// Counts one request. `memory_of(address)`: the memory of a `Key`.
template <class MemoryOf> void count(Site& s, const uintptr_t* addresses, uint32_t mask, uint32_t width, int warp_threads, MemoryOf memory_of) {
    int first = __builtin_ctz(mask), memory = memory_of(addresses[first]);
    if (memory == NO_TENSOR && !s.write) {  // of a variable that all lanes read at once, nothing is moved: it is cached, mostly as __constant__
        bool together = true;
        for (int lane = first; lane < LANES; lane++) together &= !(mask >> lane & 1) || addresses[lane] == addresses[first];
        if (together) return;
    }
    Key key = {s.place, memory, width, s.write, s.atomic};
    if (!s.counts || !(s.last == key)) s.last = key, s.counts = &part->accesses[key];
    Counts& c = *s.counts;
    c.requests++, c.lanes += __builtin_popcount(mask), c.lanes_of_all += warp_threads;
    if (memory <= DYNAMIC_SHARED) {
        c.passes += passes(addresses, mask, width, c.least_passes);
        return;
    }
    Sectors sectors;
    for (int lane = 0; lane < LANES; lane++)
        if (mask >> lane & 1) sectors.add(addresses[lane], width);
    uint64_t bytes = 0, fresh = 0;
    for (int i = 0; i < sectors.count; i++) {
        bytes += __builtin_popcount(sectors.all[i].second);
        fresh += touched.add(sectors.all[i].first, sectors.all[i].second, s.write);
    }
    c.sectors += sectors.count, c.least_sectors += (bytes + SECTOR_BYTES - 1) / SECTOR_BYTES;
    if (memory < 0) return;
    Once& once = part->once[memory];
    (s.write ? once.written : once.read) += fresh;
}

// Whether `parts` sites from `first` on are the parts of one vector access in all requests; `backwards`: the last part first.
inline bool is_vector(const std::vector<Site*>& order, size_t first, size_t parts, bool backwards) {
    if (first + parts > order.size()) return false;
    auto part_at = [&](size_t p) -> const Site& { return *order[backwards ? first + parts - 1 - p : first + p]; };
    const Site& a = part_at(0);
    uint64_t width = 0;
    for (int lane = 0; lane < LANES && !width; lane++)
        if (!a.lanes[lane].empty()) width = a.lanes[lane][0] & 0xFFFF;
    if (!width || width * parts > VECTOR_BYTES || a.atomic) return false;
    for (size_t p = 0; p < parts; p++) {
        const Site& b = part_at(p);
        if (b.write != a.write || b.atomic) return false;
        for (int lane = 0; lane < LANES; lane++) {
            if (b.lanes[lane].size() != a.lanes[lane].size()) return false;
            for (size_t i = 0; i < a.lanes[lane].size(); i++) {
                uint64_t word = a.lanes[lane][i];
                if (b.lanes[lane][i] != word + (p * width << 16) || (word >> 16) % (parts * width) || (word & 0xFFFF) != width) return false;
            }
        }
    }
    return true;
}

// Counts the requests of a warp that has run up to a synchronisation or to its end.
template <class MemoryOf> void close_warp(int warp_threads, MemoryOf memory_of) {
    std::vector<Site*> order;
    for (size_t i = 0; i < open_sites; i++) order.push_back(&sites[i]);
    std::sort(order.begin(), order.end(), [](const Site* a, const Site* b) { return std::pair(a->write, a->place) < std::pair(b->write, b->place); });
    for (size_t at = 0; at < order.size();) {
        size_t parts = 1, first = at;
        for (size_t wanted : {8, 4, 2})
            for (bool backwards : {false, true})
                if (vectors && parts == 1 && is_vector(order, at, wanted, backwards)) parts = wanted, first = backwards ? at + wanted - 1 : at;
        at += parts;
        Site& s = *order[first];
        for (size_t request = 0, requests = s.requests(); request < requests; request++) {
            uintptr_t addresses[LANES] = {}, all = 0;
            uint32_t mask = 0, width = 0;
            for (int lane = 0; lane < LANES; lane++)
                if (request < s.lanes[lane].size()) {
                    uint64_t word = s.lanes[lane][request];
                    addresses[lane] = word >> 16, mask |= 1u << lane;
                    width = std::max(width, uint32_t(word & 0xFFFF) * uint32_t(parts)), all |= addresses[lane];
                }
            // A structure is loaded in the largest pieces that its alignment allows.
            uint32_t piece = width;
            if (width > VECTOR_BYTES || width & (width - 1))
                for (piece = VECTOR_BYTES; (width | all) % piece; piece /= 2) {}
            for (uint32_t done = 0; done < width; done += piece) {
                count(s, addresses, mask, piece, warp_threads, memory_of);
                for (uintptr_t& address : addresses) address += piece;
            }
        }
    }
    open_sites = open_accesses = 0;
    site_numbers.clear();
}

// The trace as text, which tracing.py reads: a record in each line, with a name at its end.
inline std::string text() {
    std::string out;
    auto number = [&](auto value) { out += ' ', out += std::to_string(value); };
    auto places = [&](const std::vector<uintptr_t>& all) {
        out += ' ';
        for (uintptr_t place : all) out += std::to_string(place) + ',';
    };
    auto name = [&](std::string text) {
        std::replace(text.begin(), text.end(), '\n', ' ');
        out += ' ' + text + '\n';
    };
    for (size_t i = 0; i < tensors.size(); i++)
        out += "tensor", number(i), number(tensors[i].bytes), number(int(tensors[i].of_call || int(i) == returned)), places(tensors[i].places), name(tensors[i].name);
    for (size_t i = 0; i < shared_names.size(); i++) out += "shared", number(DYNAMIC_SHARED - 1 - int(i)), name(shared_names[i]);
    out += "returned", number(returned), name("");
    for (const Operator& o : operators) out += "operator", number(o.calls), number(o.read_bytes), number(o.written_bytes), places(o.places), name(o.name);
    for (const Launch& l : launches) {
        const Sample &edge = l.parts[EDGE], &middle = l.parts[MIDDLE];
        double runs = std::max<double>(1, double(l.runs)), ran = double(edge.blocks + middle.blocks);
        // Of a launch with few blocks that ran, the first and the last count as two of all blocks, not as two of those that ran.
        double edges = std::min(2.0, l.blocks()), share = edges / l.blocks();
        auto weigh = [&](uint64_t at_edges, uint64_t between) {
            double mean = !middle.blocks ? double(at_edges) / double(edge.blocks)
                                         : share * double(at_edges) / double(edge.blocks) + (1 - share) * double(between) / double(middle.blocks);
            return uint64_t(std::llround(mean * ran / runs));
        };
        out += "launch", number(l.place);
        for (uint32_t size : l.grid) number(size);
        number(uint64_t(l.block[0]) * l.block[1] * l.block[2]), number(uint64_t(std::llround(ran / runs))), number(l.dynamic_bytes), number(l.static_bytes);
        number(int(l.cut)), number(l.launches), name(l.kernel);
        for (auto& [position, tensor] : l.arguments) out += "argument", number(position), number(tensor), name("");
        std::unordered_map<Key, std::pair<Counts, Counts>, Hash> accesses;
        std::unordered_map<int, std::pair<Once, Once>> once;
        for (auto& [key, counts] : edge.accesses) accesses[key].first = counts;
        for (auto& [key, counts] : middle.accesses) accesses[key].second = counts;
        for (auto& [tensor, bytes] : edge.once) once[tensor].first = bytes;
        for (auto& [tensor, bytes] : middle.once) once[tensor].second = bytes;
        for (auto& [key, c] : accesses) {
            out += "access", number(key.place), number(key.memory), number(key.width), number(int(key.write)), number(int(key.atomic));
            for (auto member : {&Counts::requests, &Counts::lanes, &Counts::lanes_of_all, &Counts::sectors, &Counts::least_sectors, &Counts::passes, &Counts::least_passes})
                number(weigh(c.first.*member, c.second.*member));
            name("");
        }
        for (auto& [tensor, bytes] : once)
            out += "once", number(tensor), number(weigh(bytes.first.read, bytes.second.read)), number(weigh(bytes.first.written, bytes.second.written)), name("");
    }
    return out;
}
}  // namespace tracing
