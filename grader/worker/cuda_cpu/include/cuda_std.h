// In place of <cuda/cmath> and the headers of cuda::std, which is std here.
#pragma once
#include <algorithm>
#include <array>
#include <climits>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <numeric>
#include <tuple>
#include <type_traits>
#include <utility>

namespace cuda {
namespace std = ::std;
template <class T, class U> constexpr std::common_type_t<T, U> ceil_div(T a, U b) { return std::common_type_t<T, U>(a / b + (a % b != 0)); }
}  // namespace cuda
