// out[i] = gamma a[i] + b[i]. The loads and stores are rows_map.cuh's: all elements are one row.
#include "kernels/rows_map.cuh"
#include "kernels/vector.cuh"
#include "kernels/vector_add.h"

namespace fusedops::kernels {
// A named namespace: nvcc names an anonymous one after the source's folder, so another folder would
// give another wheel.
namespace vector_add_detail {

template <class T>
struct ScaledSum {
  using A = Accumulator<T>;
  static constexpr int kInputs = 2, kRows = 0, kPitch = 1;
  static constexpr bool kOptional = false, kLight = true;

  A gamma;

  template <int V>
  FUSEDOPS_DEVICE void operator()(A (&out)[V], const A (&in)[2][V], const A (*)[V]) const {
#pragma unroll
    for (int i = 0; i < V; ++i) out[i] = fma(gamma, in[0][i], in[1][i]);
  }
};

}  // namespace vector_add_detail

gpu::Status vector_add(DType dtype, std::int64_t elements, double gamma, void* out, const void* a,
                       const void* b, gpu::Stream stream) {
  return with_type(dtype, [&](auto type) {
    using T = typename decltype(type)::T;
    const vector_add_detail::ScaledSum<T> sum{static_cast<Accumulator<T>>(gamma)};
    return map_rows<T>(
        {static_cast<T*>(out), {static_cast<const T*>(a), static_cast<const T*>(b)}, {}}, sum, 1,
        elements, stream);
  });
}

TORCHWHEEL_EXPORT(vector_add)

}  // namespace fusedops::kernels
