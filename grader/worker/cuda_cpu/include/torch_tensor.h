// PyTorch's C++ interface for `.cu` files of the torch form on a CPU, in place of <torch/extension.h> and PyTorch's other headers. A
// tensor is contiguous and a view of memory; there are no operators of PyTorch. A missing name ends the build, and `build.py` then says
// that the line needs a GPU.
#pragma once

#include <functional>
#include <initializer_list>
#include <iostream>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <tuple>
#include <vector>

#include "cuda_fp16.h"
#include "cuda_bf16.h"
#include "cuda_runtime.h"

extern "C" void* cuda_cpu_tensor(size_t bytes, int element, int on_device);  // memory that is not written yet

namespace c10 {
using Half = __half;
using BFloat16 = __nv_bfloat16;

struct Error : std::runtime_error {
    using std::runtime_error::runtime_error;
};
// A use that this header declares and only a GPU can run.
struct NotOnCpu : Error {
    using Error::Error;
};

template <class... Parts> std::string joined(const Parts&... parts) {
    std::ostringstream text;
    (text << ... << parts);
    return text.str();
}
template <class... Parts> [[noreturn]] void fail(const char* condition, const Parts&... parts) {
    throw Error(sizeof...(parts) ? joined(parts...) : joined("Expected ", condition, " to be true, but got false."));
}

// C++ type, and PyTorch's names of the type in C++ and in Python.
#define CUDA_CPU_SCALARS(each)                                                                                                       \
    each(uint8_t, Byte, uint8) each(int8_t, Char, int8) each(int16_t, Short, int16) each(int, Int, int32) each(int64_t, Long, int64)   \
    each(Half, Half, float16) each(float, Float, float32) each(double, Double, float64) each(bool, Bool, bool) each(BFloat16, BFloat16, bfloat16)
enum class ScalarType : int8_t {
#define CUDA_CPU_ENUM(T, Name, python) Name,
    CUDA_CPU_SCALARS(CUDA_CPU_ENUM) Undefined
};
inline const char* toString(ScalarType type) {
    static const char* const names[] = {
#define CUDA_CPU_NAME(T, Name, python) #Name,
        CUDA_CPU_SCALARS(CUDA_CPU_NAME) "Undefined"};
    return names[int(type)];
}
inline const char* python_name(ScalarType type) {
    static const char* const names[] = {
#define CUDA_CPU_PYTHON(T, Name, python) #python,
        CUDA_CPU_SCALARS(CUDA_CPU_PYTHON) "undefined"};
    return names[int(type)];
}
inline size_t elementSize(ScalarType type) {
    static const size_t sizes[] = {
#define CUDA_CPU_SIZE(T, Name, python) sizeof(T),
        CUDA_CPU_SCALARS(CUDA_CPU_SIZE) 1};
    return sizes[int(type)];
}
inline std::ostream& operator<<(std::ostream& out, ScalarType type) { return out << toString(type); }
template <class T> struct CppTypeToScalarType;
#define CUDA_CPU_TYPE(T, Name, python) \
    template <> struct CppTypeToScalarType<T> { static constexpr ScalarType value = ScalarType::Name; };
CUDA_CPU_SCALARS(CUDA_CPU_TYPE)
#define CUDA_CPU_CONSTANT(T, Name, python) constexpr ScalarType k##Name = ScalarType::Name;
CUDA_CPU_SCALARS(CUDA_CPU_CONSTANT)
constexpr ScalarType kUInt8 = kByte, kInt8 = kChar, kInt16 = kShort, kInt32 = kInt, kInt64 = kLong, kFloat16 = kHalf, kFloat32 = kFloat, kFloat64 = kDouble;

enum class DeviceType : int8_t { CPU, CUDA };
constexpr DeviceType kCPU = DeviceType::CPU, kCUDA = DeviceType::CUDA;
using DeviceIndex = int8_t;
inline std::ostream& operator<<(std::ostream& out, DeviceType type) { return out << (type == kCUDA ? "cuda" : "cpu"); }
struct Device {
    Device(DeviceType type, DeviceIndex index = -1) : type_(type), index_(index) {}
    Device(const std::string& name) : type_(name.rfind("cuda", 0) == 0 ? kCUDA : kCPU), index_(-1) {}
    Device(const char* name) : Device(std::string(name)) {}
    DeviceType type() const { return type_; }
    DeviceIndex index() const { return is_cuda() ? 0 : index_; }
    bool has_index() const { return index_ >= 0; }
    bool is_cuda() const { return type_ == kCUDA; }
    bool is_cpu() const { return type_ == kCPU; }
    std::string str() const { return is_cuda() ? "cuda:0" : "cpu"; }
    bool operator==(const Device& other) const { return type_ == other.type_ && index() == other.index(); }
    bool operator!=(const Device& other) const { return !(*this == other); }

private:
    DeviceType type_;
    DeviceIndex index_;
};
inline std::ostream& operator<<(std::ostream& out, const Device& device) { return out << device.str(); }

// A view of numbers, as of sizes.
class IntArrayRef {
public:
    IntArrayRef() = default;
    IntArrayRef(const int64_t* data, size_t length) : data_(data), length_(length) {}
    IntArrayRef(const int64_t& one) : IntArrayRef(&one, 1) {}
    IntArrayRef(const std::initializer_list<int64_t>& list) : IntArrayRef(list.begin(), list.size()) {}
    IntArrayRef(const std::vector<int64_t>& list) : IntArrayRef(list.data(), list.size()) {}
    size_t size() const { return length_; }
    bool empty() const { return !length_; }
    const int64_t* data() const { return data_; }
    const int64_t* begin() const { return data_; }
    const int64_t* end() const { return data_ + length_; }
    const int64_t& operator[](size_t at) const { return data_[at]; }
    const int64_t& back() const { return data_[length_ - 1]; }
    const int64_t& front() const { return data_[0]; }
    std::vector<int64_t> vec() const { return {begin(), end()}; }
    bool equals(IntArrayRef other) const { return vec() == other.vec(); }
    friend bool operator==(IntArrayRef one, IntArrayRef other) { return one.equals(other); }
    friend bool operator!=(IntArrayRef one, IntArrayRef other) { return !one.equals(other); }
    friend std::ostream& operator<<(std::ostream& out, IntArrayRef list) {
        for (size_t i = 0; i < list.size(); i++) out << (i ? ", " : "[") << list[i];
        return out << (list.empty() ? "[]" : "]");
    }

private:
    const int64_t* data_ = nullptr;
    size_t length_ = 0;
};
using IntList = IntArrayRef;

enum class Layout : int8_t { Strided };
constexpr Layout kStrided = Layout::Strided;
enum class MemoryFormat : int8_t { Contiguous, Preserve };

struct TensorOptions {
    ScalarType type = kFloat;
    Device place = kCPU;
    TensorOptions() = default;
    TensorOptions(ScalarType type) : type(type) {}
    TensorOptions(Device place) : place(place) {}
    TensorOptions(DeviceType place) : place(place) {}
    TensorOptions dtype(ScalarType wanted) const { return with([&](auto& one) { one.type = wanted; }); }
    TensorOptions device(Device wanted) const { return with([&](auto& one) { one.place = wanted; }); }
    TensorOptions device(DeviceType wanted, DeviceIndex index) const { return device(Device(wanted, index)); }
    TensorOptions layout(Layout) const { return *this; }
    TensorOptions memory_format(MemoryFormat) const { return *this; }
    TensorOptions requires_grad(bool = true) const { return *this; }
    ScalarType dtype() const { return type; }
    Device device() const { return place; }

private:
    template <class Change> TensorOptions with(Change change) const {
        TensorOptions changed = *this;
        return change(changed), changed;
    }
};
inline std::ostream& operator<<(std::ostream& out, const TensorOptions& options) {
    return out << "TensorOptions(dtype=" << options.type << ", device=" << options.place << ")";
}
inline TensorOptions dtype(ScalarType type) { return type; }
inline TensorOptions device(Device place) { return place; }
inline TensorOptions device(DeviceType place, DeviceIndex index) { return Device(place, index); }
inline TensorOptions layout(Layout) { return {}; }
inline TensorOptions requires_grad(bool = true) { return {}; }

// Shared memory of tensors; memory that was allocated here is freed with its last tensor.
class Storage {
public:
    Storage() = default;
    Storage(void* data, bool owned) : shared_(new Shared{static_cast<char*>(data), 1, owned}) {}
    Storage(const Storage& other) : shared_(other.shared_) { if (shared_) shared_->users++; }
    Storage(Storage&& other) noexcept : shared_(std::exchange(other.shared_, nullptr)) {}
    Storage& operator=(Storage other) noexcept { return std::swap(shared_, other.shared_), *this; }
    ~Storage() {
        if (!shared_ || --shared_->users) return;
        if (shared_->owned) (void)cudaFree(shared_->data);
        delete shared_;
    }
    char* data() const { return shared_ ? shared_->data : nullptr; }
    explicit operator bool() const { return shared_; }

private:
    struct Shared {
        char* data;
        int users;
        bool owned;
    };
    Shared* shared_ = nullptr;
};

inline int64_t product(IntArrayRef sizes) {
    int64_t count = 1;
    for (int64_t size : sizes) count *= size;
    return count;
}

template <class T> struct DefaultPtrTraits { using PtrType = T*; };
template <class T> struct RestrictPtrTraits { using PtrType = T* __restrict__; };
template <class T, size_t N, class Index> struct TensorAccessor {
    T* data;
    const Index *sizes_, *strides_;
    CUDA_CPU_INLINE decltype(auto) operator[](Index at) const {
        if constexpr (N == 1)
            return (data[at * strides_[0]]);
        else
            return TensorAccessor<T, N - 1, Index>{data + at * strides_[0], sizes_ + 1, strides_ + 1};
    }
    CUDA_CPU_INLINE Index size(int at) const { return sizes_[at]; }
    CUDA_CPU_INLINE Index stride(int at) const { return strides_[at]; }
};
template <class T, size_t N, template <class> class Traits = DefaultPtrTraits, class Index = int64_t> class GenericPackedTensorAccessor {
public:
    GenericPackedTensorAccessor(T* data, IntArrayRef sizes, IntArrayRef strides) : data_(data) {
        for (size_t i = 0; i < N; i++) sizes_[i] = Index(sizes[i]), strides_[i] = Index(strides[i]);
    }
    CUDA_CPU_INLINE decltype(auto) operator[](Index at) const { return TensorAccessor<T, N, Index>{data_, sizes_, strides_}[at]; }
    CUDA_CPU_INLINE Index size(int at) const { return sizes_[at]; }
    CUDA_CPU_INLINE Index stride(int at) const { return strides_[at]; }
    CUDA_CPU_INLINE T* data() const { return data_; }

private:
    T* data_;
    Index sizes_[N], strides_[N];
};
template <class T, size_t N, template <class> class Traits = DefaultPtrTraits> using PackedTensorAccessor32 = GenericPackedTensorAccessor<T, N, Traits, int32_t>;
template <class T, size_t N, template <class> class Traits = DefaultPtrTraits> using PackedTensorAccessor64 = GenericPackedTensorAccessor<T, N, Traits, int64_t>;

class Tensor {
public:
    Tensor() = default;
    Tensor(Storage storage, IntArrayRef sizes, TensorOptions options) : storage_(storage), sizes_(sizes.vec()), options_(options) {
        strides_.assign(sizes_.size(), 1);
        for (size_t i = sizes_.size(); i-- > 1;) strides_[i - 1] = strides_[i] * std::max<int64_t>(sizes_[i], 1);
    }
    bool defined() const { return bool(storage_); }
    int64_t dim() const { return int64_t(sizes_.size()); }
    int64_t ndimension() const { return dim(); }
    int64_t numel() const { return product(sizes_); }
    int64_t size(int64_t axis) const { return sizes_[at(axis)]; }
    int64_t stride(int64_t axis) const { return strides_[at(axis)]; }
    IntArrayRef sizes() const { return sizes_; }
    IntArrayRef strides() const { return strides_; }
    int64_t storage_offset() const { return 0; }
    size_t element_size() const { return elementSize(options_.type); }
    size_t itemsize() const { return element_size(); }
    size_t nbytes() const { return element_size() * size_t(numel()); }
    ScalarType scalar_type() const { return options_.type; }
    ScalarType dtype() const { return options_.type; }
    bool is_floating_point() const { return options_.type == kFloat || options_.type == kDouble || options_.type == kHalf || options_.type == kBFloat16; }
    Device device() const { return options_.place; }
    DeviceIndex get_device() const { return options_.place.index(); }
    bool is_cuda() const { return options_.place.is_cuda(); }
    bool is_cpu() const { return options_.place.is_cpu(); }
    bool requires_grad() const { return false; }
    TensorOptions options() const { return options_; }
    // The deprecated `x.type()`.
    struct Type {
        TensorOptions options;
        ScalarType scalarType() const { return options.type; }
        bool is_cuda() const { return options.place.is_cuda(); }
        operator ScalarType() const { return options.type; }
    };
    Type type() const { return {options_}; }

    bool is_contiguous(MemoryFormat = MemoryFormat::Contiguous) const { return true; }
    Tensor contiguous(MemoryFormat = MemoryFormat::Contiguous) const { return *this; }
    Tensor detach() const { return *this; }
    Tensor cuda() const { return to(kCUDA); }
    Tensor cpu() const { return to(kCPU); }
    Tensor to(TensorOptions wanted) const { return same(wanted.type == options_.type && wanted.place == options_.place); }
    Tensor to(ScalarType wanted) const { return same(wanted == options_.type); }
    Tensor to(Device wanted) const { return same(wanted.type() == options_.place.type()); }
    Tensor to(DeviceType wanted) const { return to(Device(wanted)); }
    Tensor view(IntArrayRef sizes) const {
        std::vector<int64_t> wanted = sizes.vec();
        int64_t known = 1, *open = nullptr;
        for (int64_t& size : wanted) size < 0 ? (void)(open = &size) : (void)(known *= size);
        if (open) *open = known ? numel() / known : 0;
        if (product(wanted) != numel()) fail("", "shape '", sizes, "' is invalid for input of size ", numel());
        return Tensor(storage_, wanted, options_);
    }
    Tensor view_as(const Tensor& other) const { return view(other.sizes()); }
    Tensor reshape(IntArrayRef sizes) const { return view(sizes); }
    Tensor flatten() const { return view({-1}); }
    inline Tensor clone() const;
    inline Tensor new_empty(IntArrayRef sizes) const;
    inline Tensor new_empty(IntArrayRef sizes, TensorOptions options) const;
    inline Tensor new_zeros(IntArrayRef sizes) const;
    const Tensor& copy_(const Tensor& from) const {
        if (from.numel() != numel() || from.scalar_type() != scalar_type()) throw NotOnCpu("copy_ between tensors of different shapes or types");
        if (numel()) (void)cudaMemcpy(data_ptr(), from.data_ptr(), nbytes(), cudaMemcpyDefault);
        return *this;
    }
    const Tensor& zero_() const {
        if (numel()) is_cuda() ? (void)cudaMemset(data_ptr(), 0, nbytes()) : (void)std::memset(data_ptr(), 0, nbytes());
        return *this;
    }

    void* data_ptr() const { return storage_.data(); }
    const void* const_data_ptr() const { return storage_.data(); }
    void* mutable_data_ptr() const { return storage_.data(); }
    template <class T> T* data_ptr() const {
        constexpr ScalarType asked = CppTypeToScalarType<std::remove_const_t<T>>::value;
        if (asked != options_.type) fail("", "expected scalar type ", asked, " but found ", options_.type);
        return reinterpret_cast<T*>(storage_.data());
    }
    template <class T> T* data() const { return data_ptr<T>(); }
    template <class T> const T* const_data_ptr() const { return data_ptr<std::remove_const_t<T>>(); }
    template <class T> T* mutable_data_ptr() const { return data_ptr<T>(); }
    template <class T, size_t N, template <class> class Traits = DefaultPtrTraits> PackedTensorAccessor32<T, N, Traits> packed_accessor32() const {
        return packed<PackedTensorAccessor32<T, N, Traits>, T>(N);
    }
    template <class T, size_t N, template <class> class Traits = DefaultPtrTraits> PackedTensorAccessor64<T, N, Traits> packed_accessor64() const {
        return packed<PackedTensorAccessor64<T, N, Traits>, T>(N);
    }
    template <class T, size_t N, template <class> class Traits = DefaultPtrTraits, class Index = int64_t>
    GenericPackedTensorAccessor<T, N, Traits, Index> packed_accessor() const {
        return packed<GenericPackedTensorAccessor<T, N, Traits, Index>, T>(N);
    }

private:
    size_t at(int64_t axis) const {
        if (axis < -dim() || axis >= dim()) fail("", "Dimension out of range (expected to be in range of [", -dim(), ", ", dim() - 1, "], but got ", axis, ")");
        return size_t(axis < 0 ? axis + dim() : axis);
    }
    Tensor same(bool is) const { return is ? *this : throw NotOnCpu("a conversion to another type or device"); }
    template <class Accessor, class T> Accessor packed(size_t axes) const {
        if (int64_t(axes) != dim()) fail("", "TensorAccessor expected ", axes, " dims but tensor has ", dim());
        return Accessor(data_ptr<T>(), sizes_, strides_);
    }
    Storage storage_;
    std::vector<int64_t> sizes_, strides_;
    TensorOptions options_;
};

inline Tensor empty(IntArrayRef sizes, TensorOptions options = {}) {
    size_t bytes = size_t(product(sizes)) * elementSize(options.type);
    void* memory = cuda_cpu_tensor(bytes, int(elementSize(options.type)), options.place.is_cuda());
    return Tensor(Storage(memory, true), sizes, options);
}
inline Tensor empty_like(const Tensor& like) { return empty(like.sizes(), like.options()); }
inline Tensor empty_like(const Tensor& like, TensorOptions options) { return empty(like.sizes(), options); }
inline Tensor empty_like(const Tensor& like, TensorOptions options, MemoryFormat) { return empty(like.sizes(), options); }
inline Tensor empty_like(const Tensor& like, MemoryFormat) { return empty_like(like); }
inline Tensor zeros(IntArrayRef sizes, TensorOptions options = {}) { return empty(sizes, options).zero_(); }
inline Tensor zeros_like(const Tensor& like) { return zeros(like.sizes(), like.options()); }
inline Tensor zeros_like(const Tensor& like, TensorOptions options) { return zeros(like.sizes(), options); }
inline Tensor Tensor::clone() const { return empty(sizes(), options()).copy_(*this); }
inline Tensor Tensor::new_empty(IntArrayRef sizes) const { return empty(sizes, options()); }
inline Tensor Tensor::new_empty(IntArrayRef sizes, TensorOptions options) const { return empty(sizes, options); }
inline Tensor Tensor::new_zeros(IntArrayRef sizes) const { return zeros(sizes, options()); }
inline std::optional<Device> device_of(const Tensor& tensor) { return tensor.device(); }

using TensorList = std::vector<Tensor>;

namespace cuda {
static cudaStream_t current = nullptr;
struct CUDAStream {
    cudaStream_t handle;
    cudaStream_t stream() const { return handle; }
    operator cudaStream_t() const { return handle; }
    void synchronize() const { (void)cudaStreamSynchronize(handle); }
    bool query() const { return cudaStreamQuery(handle) == cudaSuccess; }
    DeviceIndex device_index() const { return 0; }
};
inline CUDAStream getCurrentCUDAStream(DeviceIndex = -1) { return {current}; }
inline CUDAStream getDefaultCUDAStream(DeviceIndex = -1) { return {nullptr}; }
inline CUDAStream getStreamFromPool(bool = false, DeviceIndex = -1) {
    cudaStream_t stream;
    return (void)cudaStreamCreate(&stream), CUDAStream{stream};
}
inline void setCurrentCUDAStream(CUDAStream stream) { current = stream; }
struct CUDAStreamGuard {
    cudaStream_t before;
    explicit CUDAStreamGuard(CUDAStream stream) : before(std::exchange(current, stream.handle)) {}
    ~CUDAStreamGuard() { current = before; }
};
struct CUDAGuard {
    template <class... Which> explicit CUDAGuard(Which&&...) {}
    ~CUDAGuard() {}
};
using OptionalCUDAGuard = CUDAGuard;
inline DeviceIndex current_device() { return 0; }
inline DeviceIndex device_count() { return 1; }
inline void device_synchronize() { (void)cudaDeviceSynchronize(); }
static cudaDeviceProp properties;
inline cudaDeviceProp* getDeviceProperties(DeviceIndex device) {
    return (void)cudaGetDeviceProperties(&properties, device), &properties;
}
inline cudaDeviceProp* getCurrentDeviceProperties() { return getDeviceProperties(0); }
inline void synchronize(DeviceIndex = -1) { (void)cudaDeviceSynchronize(); }
inline bool is_available() { return true; }
namespace compat {
using std::abs, std::ceil, std::cos, std::erf, std::exp, std::expm1, std::floor, std::log, std::max, std::min, std::pow, std::sin, std::sqrt, std::tanh;
}
inline void check(cudaError_t error) {
    if (error != cudaSuccess) fail("", "CUDA error: ", cudaGetErrorString(error));
}
}  // namespace cuda
using DeviceGuard = cuda::CUDAGuard;
using OptionalDeviceGuard = cuda::CUDAGuard;
struct NoGradGuard {
    NoGradGuard() {}  // so that an unused guard is no warning
};
template <class T> constexpr T ceil_div(T number, T by) { return (number + by - 1) / by; }
// The type to compute in: float for the 16-bit types.
template <class T> using opmath_type = std::conditional_t<std::is_same_v<T, Half> || std::is_same_v<T, BFloat16>, float, T>;
template <class T, bool> using acc_type = opmath_type<T>;
template <ScalarType> struct ScalarTypeToCppType;
#define CUDA_CPU_COMPUTED(T, Name, python) \
    template <> struct ScalarTypeToCppType<ScalarType::Name> { using type = T; };
CUDA_CPU_SCALARS(CUDA_CPU_COMPUTED)
template <ScalarType type> using computed_t = opmath_type<typename ScalarTypeToCppType<type>::type>;
template <class T> CUDA_CPU_INLINE T load(const T* address) { return *address; }
template <class T> using optional = std::optional<T>;
constexpr std::nullopt_t nullopt = std::nullopt;
}  // namespace c10

namespace at {
using namespace c10;
namespace cuda {
using namespace c10::cuda;
}
}  // namespace at
namespace torch {
using namespace at;
namespace cuda {
using namespace c10::cuda;
}
}  // namespace torch

#define TORCH_CHECK(condition, ...)                                  \
    do {                                                             \
        if (!(condition)) ::c10::fail(#condition, ##__VA_ARGS__); \
    } while (0)
#define TORCH_CHECK_VALUE TORCH_CHECK
#define TORCH_CHECK_TYPE TORCH_CHECK
#define TORCH_CHECK_INDEX TORCH_CHECK
#define TORCH_CHECK_NOT_IMPLEMENTED TORCH_CHECK
#define TORCH_INTERNAL_ASSERT TORCH_CHECK
#define TORCH_CHECK_EQ(one, other) TORCH_CHECK((one) == (other))
#define TORCH_CHECK_GT(one, other) TORCH_CHECK((one) > (other))
#define TORCH_CHECK_GE(one, other) TORCH_CHECK((one) >= (other))
#define AT_ASSERT TORCH_CHECK
#define AT_ASSERTM TORCH_CHECK
#define AT_ERROR(...) ::c10::fail("", __VA_ARGS__)
#define TORCH_WARN(...) ((void)::c10::joined(__VA_ARGS__))
#define C10_CUDA_CHECK(call) ::c10::cuda::check(call)
#define AT_CUDA_CHECK C10_CUDA_CHECK
// The error is left for the worker, which reports it with the launch's line.
#define C10_CUDA_KERNEL_LAUNCH_CHECK() ::c10::cuda::check(cudaPeekAtLastError())
#define C10_HOST_DEVICE
#define C10_DEVICE
#define C10_HOST
#define C10_RESTRICT __restrict__
#define C10_WARP_SIZE 32
#define C10_LAUNCH_BOUNDS_0  // `rewrite.py` has put the two others into the kernel
#define C10_LAUNCH_BOUNDS_1(...)
#define C10_LAUNCH_BOUNDS_2(...)

// Calls on a CPU have float32. What a 16-bit type would run is compiled for float, and needs a GPU.
#define AT_DISPATCH_CASE(which, ...)                                      \
    case which: {                                                         \
        using scalar_t [[maybe_unused]] = ::c10::computed_t<which>; \
        return __VA_ARGS__();                                             \
    }
#define AT_DISPATCH_SWITCH(type, name, ...)                                                        \
    [&] {                                                                                          \
        ::c10::ScalarType cuda_cpu_asked = type;                                                   \
        switch (cuda_cpu_asked) {                                                                  \
            __VA_ARGS__                                                                            \
            default: ::c10::fail("", "\"", name, "\" not implemented for '", cuda_cpu_asked, "'"); \
        }                                                                                          \
    }()
#define AT_DISPATCH_CASE_FLOATING_TYPES(...)                     \
    AT_DISPATCH_CASE(::c10::ScalarType::Float, __VA_ARGS__) \
    AT_DISPATCH_CASE(::c10::ScalarType::Double, __VA_ARGS__)
#define AT_DISPATCH_CASE_FLOATING_TYPES_AND_HALF AT_DISPATCH_CASE_FLOATING_TYPES
#define AT_DISPATCH_CASE_FLOATING_TYPES_AND(also, ...) AT_DISPATCH_CASE_FLOATING_TYPES(__VA_ARGS__)
#define AT_DISPATCH_CASE_FLOATING_TYPES_AND2(also, too, ...) AT_DISPATCH_CASE_FLOATING_TYPES(__VA_ARGS__)
#define AT_DISPATCH_FLOATING_TYPES(type, name, ...) AT_DISPATCH_SWITCH(type, name, AT_DISPATCH_CASE_FLOATING_TYPES(__VA_ARGS__))
#define AT_DISPATCH_FLOATING_TYPES_AND_HALF AT_DISPATCH_FLOATING_TYPES
#define AT_DISPATCH_ALL_TYPES AT_DISPATCH_FLOATING_TYPES
#define AT_DISPATCH_FLOATING_TYPES_AND(also, ...) AT_DISPATCH_FLOATING_TYPES(__VA_ARGS__)
#define AT_DISPATCH_ALL_TYPES_AND(also, ...) AT_DISPATCH_FLOATING_TYPES(__VA_ARGS__)
#define AT_DISPATCH_FLOATING_TYPES_AND2(also, too, ...) AT_DISPATCH_FLOATING_TYPES(__VA_ARGS__)
#define AT_DISPATCH_ALL_TYPES_AND2(also, too, ...) AT_DISPATCH_FLOATING_TYPES(__VA_ARGS__)

// The worker's calls --------------------------------------------------------------------------------------------------------------
extern "C" {
// An argument: a tensor of float32 where `data` is not null, else an option, as a number of both kinds.
struct cuda_cpu_value {
    void* data;
    const int64_t* sizes;
    int64_t dims, whole;
    double real;
};
// A call's result, in the words of `protocol.Returned`; `told` is the exception's message, `unsupported` whether only a GPU can run the call.
struct cuda_cpu_result {
    void* output;
    int64_t output_bytes;
    char told[1024], kind[16], type[64], dtype[16], device[16];
    int64_t sizes[16], dims;
    int32_t unsupported;
};
void cuda_cpu_give_tensor(void* output, const void* tensor, size_t bytes);  // copies the bytes of a tensor that were written
}

namespace pybind11 {
struct arg {
    explicit arg(const char*) {}
    template <class T> arg& operator=(T&&) { return *this; }
};
using Values = const cuda_cpu_value*;
template <class T> struct Cast {
    static_assert(std::is_arithmetic_v<T>, "c10: a parameter of a type that the CPU's CUDA does not know");
    static T from(const cuda_cpu_value& value) { return std::is_floating_point_v<T> ? T(value.real) : T(value.whole); }
};
template <> struct Cast<c10::Tensor> {
    static c10::Tensor from(const cuda_cpu_value& v) {
        c10::IntArrayRef sizes(v.sizes, size_t(v.dims));
        return c10::Tensor(c10::Storage(v.data, false), sizes, c10::TensorOptions(c10::kFloat).device(c10::kCUDA));
    }
};
template <class T> struct Cast<std::optional<T>> {
    static std::optional<T> from(const cuda_cpu_value& value) { return Cast<T>::from(value); }
};
inline void say(char* to, size_t length, const std::string& text) { std::snprintf(to, length, "%s", text.c_str()); }
inline void tell(const c10::Tensor& y, Values inputs, size_t count, cuda_cpu_result& result) {
    bool input = false;
    for (size_t i = 0; i < count; i++) input |= y.numel() && inputs[i].data == y.data_ptr();
    bool fits = y.scalar_type() == c10::kFloat && y.is_cuda() && int64_t(y.nbytes()) == result.output_bytes;
    if (fits && y.numel()) cuda_cpu_give_tensor(result.output, y.data_ptr(), y.nbytes());
    say(result.kind, sizeof result.kind, y.defined() ? input ? "input" : "tensor" : "other");
    say(result.type, sizeof result.type, y.defined() ? "Tensor" : "NoneType");
    say(result.dtype, sizeof result.dtype, c10::python_name(y.scalar_type()));
    say(result.device, sizeof result.device, y.is_cuda() ? "cpu" : "the host");
    result.dims = std::min<int64_t>(y.dim(), 16);
    for (int64_t i = 0; i < result.dims; i++) result.sizes[i] = y.size(i);
}
template <class Other> void tell(const Other&, Values, size_t, cuda_cpu_result& result) {
    say(result.kind, sizeof result.kind, "other");
    say(result.type, sizeof result.type, std::is_arithmetic_v<Other> ? "number" : "list");
}
struct module_ {
    struct Bound {
        std::string name;
        size_t parameters;
        std::function<void(Values, cuda_cpu_result&)> call;
    };
    std::vector<Bound> bound;
    template <class R, class... A, class... Extra> module_& def(const char* name, R (*function)(A...), const Extra&...) {
        return add(name, std::function<R(A...)>(function));
    }
    template <class Lambda, class... Extra> module_& def(const char* name, Lambda lambda, const Extra&...) { return add(name, std::function(lambda)); }
    std::string doc() const { return {}; }

private:
    template <class R, class... A> module_& add(const char* name, std::function<R(A...)> function) {
        bound.push_back({name, sizeof...(A), [function](Values values, cuda_cpu_result& result) { run(function, values, result, std::index_sequence_for<A...>{}); }});
        return *this;
    }
    template <class R, class... A, size_t... I> static void run(const std::function<R(A...)>& function, Values values, cuda_cpu_result& result, std::index_sequence<I...>) {
        if constexpr (std::is_void_v<R>)
            function(Cast<std::decay_t<A>>::from(values[I])...), tell(c10::Tensor(), values, sizeof...(A), result);
        else
            tell(function(Cast<std::decay_t<A>>::from(values[I])...), values, sizeof...(A), result);
    }
};
using module = module_;
static module_ only;  // not in a function that several libraries would share
}  // namespace pybind11
namespace py = pybind11;

#define PYBIND11_MODULE(name, m)                                                                                     \
    static void cuda_cpu_bind(pybind11::module_& m);                                                                 \
    static const int cuda_cpu_is_bound = (cuda_cpu_bind(pybind11::only), 0);                               \
    static void cuda_cpu_bind([[maybe_unused]] pybind11::module_& m)

// Operators for PyTorch's dispatcher are not called here: the entry is.
#define TORCH_LIBRARY(space, m) template <class Library> static void cuda_cpu_library_##space([[maybe_unused]] Library& m)
#define TORCH_LIBRARY_FRAGMENT(space, m) template <class Library> static void cuda_cpu_fragment_##space([[maybe_unused]] Library& m)
#define TORCH_LIBRARY_IMPL(space, key, m) template <class Library> static void cuda_cpu_library_##space##_##key([[maybe_unused]] Library& m)

extern "C" {
// The i-th function that the file binds; null after the last.
__attribute__((used)) inline const char* cuda_cpu_bound(size_t at) {
    auto& bound = pybind11::only.bound;
    return at < bound.size() ? bound[at].name.c_str() : nullptr;
}
__attribute__((used)) inline void cuda_cpu_torch(const char* entry, const cuda_cpu_value* values, size_t count, cuda_cpu_result* result) {
    using pybind11::say;
    try {
        for (auto& one : pybind11::only.bound)
            if (one.name == entry) {
                if (one.parameters != count)
                    c10::fail("", entry, "(): incompatible function arguments: it takes ", one.parameters, ", and ", count, " are given");
                return one.call(values, *result);
            }
    } catch (const c10::NotOnCpu& error) {
        say(result->told, sizeof result->told, error.what()), result->unsupported = 1;
    } catch (const std::exception& error) {
        say(result->told, sizeof result->told, error.what());
        if (!*result->told) say(result->told, sizeof result->told, "an exception without words");
    } catch (...) {
        say(result->told, sizeof result->told, "an exception that is no std::exception");
    }
}
}
