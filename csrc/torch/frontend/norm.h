// Norms as torch sees them, written once over `Api` (api.h lists what an Api has).
#pragma once

#include <optional>
#include <tuple>
#include <utility>

#include "ops/norm.h"
#include "torch/api.h"

namespace fusedops {

template <class Api>
struct Norm {
  using Tensor = typename Api::Tensor;
  using Optional = std::optional<Tensor>;
  using Pair = std::tuple<Tensor, Tensor>;
  using Triple = std::tuple<Tensor, Tensor, Tensor>;

  static Tensor layer_norm(const Tensor& x, const Tensor& gamma, const Tensor& beta, double eps) {
    return norm("layer_norm", x, {}, {}, gamma, beta, eps, false).first;
  }

  static Tensor layer_norm_residual(const Tensor& x, const Tensor& bias, const Tensor& residual,
                                    const Tensor& gamma, const Tensor& beta, double eps) {
    return norm("layer_norm_residual", x, bias, residual, gamma, beta, eps, false).first;
  }

  static Pair layer_norm_residual_store(const Tensor& x, const Tensor& bias, const Tensor& residual,
                                        const Tensor& gamma, const Tensor& beta, double eps) {
    return both(norm("layer_norm_residual_store", x, bias, residual, gamma, beta, eps, true));
  }

  static Tensor rms_norm(const Tensor& x, const Tensor& gamma, double eps) {
    return norm("rms_norm", x, {}, {}, gamma, {}, eps, false).first;
  }

  static Pair pre_rms_norm(const Tensor& x, const Tensor& residual, const Tensor& gamma,
                           double eps) {
    return both(norm("pre_rms_norm", x, {}, residual, gamma, {}, eps, true));
  }

  static Triple layer_norm_backward(const Tensor& grad, const Tensor& x, const Tensor& gamma,
                                    const Optional& grad_sum, double eps) {
    return backward("layer_norm_backward", true, grad, x, gamma, grad_sum, eps);
  }

  static Pair rms_norm_backward(const Tensor& grad, const Tensor& x, const Tensor& gamma,
                                const Optional& grad_sum, double eps) {
    const Triple found = backward("rms_norm_backward", false, grad, x, gamma, grad_sum, eps);
    return {std::get<0>(found), std::get<1>(found)};
  }

 private:
  using Results = std::pair<Tensor, Optional>;  // y, and the sum if it is stored

  static Pair both(const Results& results) { return {results.first, *results.second}; }

  // The view of a tensor that need not be there, as an argument.
  class Given {
   public:
    Given(const char* name, const Optional& tensor)
        : view_(tensor ? Api::view(*tensor) : TensorView{}),
          argument_{name, view_},
          given_(tensor.has_value()) {}
    Given(const Given&) = delete;
    const Argument* get() const { return given_ ? &argument_ : nullptr; }

   private:
    TensorView view_;
    Argument argument_;
    bool given_;
  };

  static Optional aligned_if(const Optional& tensor) {
    return tensor ? Optional(on_16_bytes<Api>(*tensor)) : std::nullopt;
  }

  static Results norm(const char* op, const Tensor& x, const Optional& bias,
                      const Optional& residual, const Tensor& gamma, const Optional& beta,
                      double eps, bool stores) {
    const TensorView view = Api::view(x), gamma_view = Api::view(gamma);
    const Argument x_argument{"x", view}, gamma_argument{"gamma", gamma_view};
    const Given b("bias", bias), r("residual", residual), c("beta", beta);
    const auto call =
        ops::check_norm(op, x_argument, {b.get(), r.get(), &gamma_argument, c.get()}, eps);
    check_on_gpu(op, x_argument);
    const typename Api::Guard guard(view.device.index);
    const Tensor in = on_16_bytes<Api>(x), weight = on_16_bytes<Api>(gamma);
    const Optional row = aligned_if(bias), more = aligned_if(residual), shift = aligned_if(beta);
    Tensor y = Api::empty_like(in);
    const Optional sum = stores ? Optional(Api::empty_like(in)) : std::nullopt;
    ops::norm(op, call,
              {Api::data(in), data_of<Api>(row), data_of<Api>(more), Api::data(weight),
               data_of<Api>(shift), Api::data(y), data_of<Api>(sum)},
              Api::stream(view.device.index));
    return {y, sum};
  }

  static Triple backward(const char* op, bool centered, const Tensor& grad, const Tensor& x,
                         const Tensor& gamma, const Optional& grad_sum, double eps) {
    const TensorView view = Api::view(x), gamma_view = Api::view(gamma), g_view = Api::view(grad);
    const Argument x_argument{"x", view}, grad_argument{"grad", g_view};
    const Given more("grad_sum", grad_sum);
    const auto call = ops::check_norm_backward(op, centered, x_argument, {"gamma", gamma_view},
                                               {&grad_argument, more.get()}, eps);
    check_on_gpu(op, x_argument);
    const typename Api::Guard guard(view.device.index);
    const Tensor g = on_16_bytes<Api>(grad), in = on_16_bytes<Api>(x);
    const Tensor weight = on_16_bytes<Api>(gamma);
    const Optional add = aligned_if(grad_sum);
    Tensor grad_x = Api::empty_like(in), grad_gamma = Api::empty_like(weight);
    Tensor grad_beta = Api::empty_like(weight);
    const Tensor scratch = Api::empty_bytes(in, kernels::norm_backward_scratch(call));
    ops::norm_backward(
        op, call,
        {Api::data(g), data_of<Api>(add), Api::data(in), Api::data(weight), Api::data(grad_x),
         Api::data(grad_gamma), Api::data(grad_beta), Api::data(scratch)},
        Api::stream(view.device.index));
    return {grad_x, grad_gamma, grad_beta};
  }
};

}  // namespace fusedops
