// Sums with a residual as torch sees them, written once over `Api` (api.h lists what an Api has).
#pragma once

#include <optional>

#include "ops/residual.h"
#include "torch/api.h"

namespace fusedops {

template <class Api>
struct Residual {
  using Tensor = typename Api::Tensor;
  using Optional = std::optional<Tensor>;

  static Tensor bias_residual(const Tensor& x, const Tensor& residual, const Tensor& bias) {
    constexpr const char* op = "bias_residual";
    const TensorView view = Api::view(x);
    const auto call = ops::check_bias_residual(op, view, Api::view(residual), Api::view(bias));
    const typename Api::Guard guard(view.device.index);
    const Tensor in = Api::contiguous(x), r = Api::contiguous(residual), b = Api::contiguous(bias);
    Tensor out = Api::empty_like(in);
    ops::bias_residual(op, call, Api::data(out), Api::data(in), Api::data(r), Api::data(b),
                       Api::stream(view.device.index));
    return out;
  }

  static Tensor residual_add_bias(const Tensor& hidden, const Tensor& residual,
                                  const Optional& attention, const Optional& attention_bias,
                                  const Tensor& final_bias, std::int64_t mp_size,
                                  bool mlp_after_attn, bool add_bias, bool preln) {
    constexpr const char* op = "residual_add_bias";
    const ops::ResidualOptions options{mp_size, mlp_after_attn, add_bias, preln};
    const TensorView view = Api::view(hidden);
    const auto call =
        ops::check_residual_add_bias(op, view, Api::view(residual), view_if<Api>(attention),
                                     view_if<Api>(attention_bias), Api::view(final_bias), options);
    const typename Api::Guard guard(view.device.index);
    const Tensor h = Api::contiguous(hidden), r = Api::contiguous(residual);
    const Tensor b = Api::contiguous(final_bias);
    const Optional a = contiguous_if<Api>(attention), a_bias = contiguous_if<Api>(attention_bias);
    Tensor out = Api::empty_like(h);
    const ops::Parts parts{Api::data(h), Api::data(r), data_of<Api>(a), data_of<Api>(a_bias),
                           Api::data(b)};
    ops::residual_add_bias(op, call, Api::data(out), parts, options,
                           Api::stream(view.device.index));
    return out;
  }

  static Tensor moe_res_matmul(const Tensor& residual, const Tensor& coef, const Tensor& output) {
    constexpr const char* op = "moe_res_matmul";
    const TensorView view = Api::view(residual);
    const auto call = ops::check_moe_res_matmul(op, view, Api::view(coef), Api::view(output));
    const typename Api::Guard guard(view.device.index);
    const Tensor r = Api::contiguous(residual), c = Api::contiguous(coef);
    const Tensor o = Api::contiguous(output);
    Tensor out = Api::empty_like(r);
    ops::moe_res_matmul(op, call, Api::data(out), Api::data(r), Api::data(c), Api::data(o),
                        Api::stream(view.device.index));
    return out;
  }

  // Every operator, with a registrar of the Api.
  template <class M>
  static void register_with(M m) {
    m.template impl<&Residual::bias_residual>("bias_residual");
    m.template impl<&Residual::residual_add_bias>("residual_add_bias");
    m.template impl<&Residual::moe_res_matmul>("moe_res_matmul");
  }
};

}  // namespace fusedops
