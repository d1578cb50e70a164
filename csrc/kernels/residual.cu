// Sums of [rows, cols] matrices and [cols] rows, element by element:
//   bias_residual      out = x + bias + residual
//   residual_add_bias  out = hidden + a attention + s (residual + final_bias + attention_bias)
//   moe_res_matmul     out = output coef2 + residual coef1
// The loads and stores are rows_map.cuh's.
#include "kernels/residual.h"
#include "kernels/rows_map.cuh"
#include "kernels/vector.cuh"

namespace fusedops::kernels {
// A named namespace: nvcc names an anonymous one after the source's folder, so another folder would
// give another wheel.
namespace residual_detail {

template <class T>
struct BiasResidual {
  using A = Accumulator<T>;
  static constexpr int kInputs = 2, kRows = 1, kPitch = 1;
  static constexpr bool kOptional = false, kLight = false;

  template <int V>
  FUSEDOPS_DEVICE void operator()(A (&out)[V], const A (&in)[2][V], const A (*bias)[V]) const {
#pragma unroll
    for (int i = 0; i < V; ++i) out[i] = in[0][i] + bias[0][i] + in[1][i];
  }
};

// The inputs are hidden, residual and attention; the rows final_bias and attention_bias.
template <class T>
struct BlockSum {
  using A = Accumulator<T>;
  static constexpr int kInputs = 3, kRows = 2, kPitch = 1;
  static constexpr bool kOptional = true, kLight = false;

  A attention_scale, scale;

  template <int V>
  FUSEDOPS_DEVICE void operator()(A (&out)[V], const A (&in)[3][V], const A (*bias)[V]) const {
#pragma unroll
    for (int i = 0; i < V; ++i) {
      const A sum = scale * (in[1][i] + (bias[0][i] + bias[1][i]));
      out[i] = fma(attention_scale, in[2][i], sum) + in[0][i];
    }
  }
};

// The inputs are the residual and the output; the rows are their coefficients.
template <class T>
struct Mixture {
  using A = Accumulator<T>;
  static constexpr int kInputs = 2, kRows = 2, kPitch = 1;
  static constexpr bool kOptional = false, kLight = false;

  template <int V>
  FUSEDOPS_DEVICE void operator()(A (&out)[V], const A (&in)[2][V], const A (*coef)[V]) const {
#pragma unroll
    for (int i = 0; i < V; ++i) out[i] = fma(in[1][i], coef[1][i], in[0][i] * coef[0][i]);
  }
};

// The pointer with its element type.
template <class T>
const T* as(const void* data) {
  return static_cast<const T*>(data);
}

}  // namespace residual_detail

using namespace residual_detail;

gpu::Status bias_residual(const Matrices& call, void* out, const void* x, const void* residual,
                          const void* bias, gpu::Stream stream) {
  return with_type(call.dtype, [&](auto type) {
    using T = typename decltype(type)::T;
    return map_rows<T>({static_cast<T*>(out), {as<T>(x), as<T>(residual)}, {as<T>(bias)}},
                       BiasResidual<T>{}, call.rows, call.cols, stream);
  });
}

gpu::Status residual_add_bias(const Matrices& call, void* out, const ResidualAddBias& of,
                              gpu::Stream stream) {
  return with_type(call.dtype, [&](auto type) {
    using T = typename decltype(type)::T;
    using A = Accumulator<T>;
    const BlockSum<T> sum{static_cast<A>(of.attention_scale), static_cast<A>(of.scale)};
    return map_rows<T>({static_cast<T*>(out),
                        {as<T>(of.hidden), as<T>(of.residual), as<T>(of.attention)},
                        {as<T>(of.final_bias), as<T>(of.attention_bias)}},
                       sum, call.rows, call.cols, stream);
  });
}

gpu::Status moe_res_matmul(const Matrices& call, void* out, const void* residual, const void* coef,
                           const void* output, gpu::Stream stream) {
  return with_type(call.dtype, [&](auto type) {
    using T = typename decltype(type)::T;
    const T* rows = as<T>(coef);
    return map_rows<T>(
        {static_cast<T*>(out), {as<T>(residual), as<T>(output)}, {rows, rows + call.cols}},
        Mixture<T>{}, call.rows, call.cols, stream);
  });
}

TORCHWHEEL_EXPORT(bias_residual)
TORCHWHEEL_EXPORT(residual_add_bias)
TORCHWHEEL_EXPORT(moe_res_matmul)

}  // namespace fusedops::kernels
