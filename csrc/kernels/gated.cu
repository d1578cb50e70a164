// y[r, c] = (x[r, c] + bias[c]) f(x[r, cols + c] + bias[cols + c]): x is [rows, 2 cols], y is
// [rows, cols], and bias is [2 cols] or missing. The loads and stores are rows_map.cuh's.
#include "kernels/activation.cuh"
#include "kernels/gated.h"
#include "kernels/rows_map.cuh"

namespace fusedops::kernels {
// A named namespace: nvcc names an anonymous one after the source's folder, so another folder would
// give another wheel.
namespace gated_detail {

using activation::Fixed;

template <class T, class Act, bool kBias>
struct Gate {
  using A = Accumulator<T>;
  static constexpr int kInputs = 2, kRows = kBias ? 2 : 0, kPitch = 2;
  static constexpr bool kOptional = false, kLight = false;

  Act act;

  template <int V>
  FUSEDOPS_DEVICE void operator()(A (&out)[V], const A (&in)[2][V], const A (*bias)[V]) const {
    act.with([&](auto f) {
#pragma unroll
      for (int i = 0; i < V; ++i) {
        A value = in[0][i], gate = in[1][i];
        if constexpr (kBias) {
          value += bias[0][i];
          gate += bias[1][i];
        }
        out[i] = value * decltype(f)::template value<T>(gate);
      }
    });
  }
};

template <bool kBias, class T>
gpu::Status launch_gate(const Gated& call, const Operands<T, 2, kBias ? 2 : 0>& operands,
                        gpu::Stream stream) {
  const Gates gates{call.gate};
  if constexpr (kMapsWholeRows<T>) {
    if (has_whole_rows(operands, call.rows, call.cols)) {
      return gates.fix([&](auto gate) {
        using F = Gate<T, Fixed<typename decltype(gate)::T>, kBias>;
        return map_whole_rows<T>(operands, F{}, call.rows, call.cols, stream);
      });
    }
  }
  return map_any_rows<T>(operands, Gate<T, Gates, kBias>{gates}, call.rows, call.cols, stream);
}

template <class T>
gpu::Status launch_gated(const Gated& call, T* y, const T* x, const T* bias, gpu::Stream stream) {
  const T* second = x + call.cols;
  if (!bias) return launch_gate<false, T>(call, {y, {x, second}, {}}, stream);
  return launch_gate<true, T>(call, {y, {x, second}, {bias, bias + call.cols}}, stream);
}

}  // namespace gated_detail

gpu::Status gated(const Gated& call, void* y, const void* x, const void* bias, gpu::Stream stream) {
  return with_type(call.dtype, [&](auto type) {
    using T = typename decltype(type)::T;
    return gated_detail::launch_gated(call, static_cast<T*>(y), static_cast<const T*>(x),
                                      static_cast<const T*>(bias), stream);
  });
}

TORCHWHEEL_EXPORT(gated)

}  // namespace fusedops::kernels
