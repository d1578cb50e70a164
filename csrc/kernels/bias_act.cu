// y[r, c] = f(x[r, c] + bias[c]): x and y are [rows, cols], bias is [cols], and f is the identity,
// relu or a GELU. The loads and stores are rows_map.cuh's.
#include "kernels/activation.cuh"
#include "kernels/bias_act.h"
#include "kernels/rows_map.cuh"

namespace fusedops::kernels {
// A named namespace: nvcc names an anonymous one after the source's folder, so another folder would
// give another wheel.
namespace bias_act_detail {

using Activations = activation::Among<activation::Identity, activation::Relu, activation::GeluTanh,
                                      activation::GeluErf>;

template <class T, class Act>
struct ActOfSum {
  using A = Accumulator<T>;
  static constexpr int kInputs = 1, kRows = 1, kPitch = 1;
  static constexpr bool kOptional = false, kLight = true;

  template <int V>
  FUSEDOPS_DEVICE void operator()(A (&out)[V], const A (&x)[1][V], const A (*bias)[V]) const {
#pragma unroll
    for (int i = 0; i < V; ++i) out[i] = Act::template value<T>(x[0][i] + bias[0][i]);
  }
};

}  // namespace bias_act_detail

using namespace bias_act_detail;

gpu::Status bias_act(const BiasAct& call, void* y, const void* x, const void* bias,
                     gpu::Stream stream) {
  return with_type(call.dtype, [&](auto type) {
    using T = typename decltype(type)::T;
    const Operands<T, 1, 1> operands{
        static_cast<T*>(y), {static_cast<const T*>(x)}, {static_cast<const T*>(bias)}};
    return Activations{call.activation}.fix([&](auto act) {
      return map_rows<T>(operands, ActOfSum<T, typename decltype(act)::T>{}, call.rows, call.cols,
                         stream);
    });
  });
}

TORCHWHEEL_EXPORT(bias_act)

}  // namespace fusedops::kernels
