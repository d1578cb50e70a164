// Norms as torch sees them, written once over `Api` (api.h lists what an Api has).
#pragma once

#include <optional>
#include <tuple>
#include <utility>

#include "ops/norm.h"
#include "torch/api.h"
#include "torch/named.h"

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

  // Every operator, with a registrar of the Api.
  template <class M>
  static void register_with(M m) {
    m.template impl<&Norm::layer_norm>("layer_norm");
    m.template impl<&Norm::layer_norm_residual>("layer_norm_residual");
    m.template impl<&Norm::layer_norm_residual_store>("layer_norm_residual_store");
    m.template impl<&Norm::rms_norm>("rms_norm");
    m.template impl<&Norm::pre_rms_norm>("pre_rms_norm");
    m.template impl<&Norm::layer_norm_backward>("layer_norm_backward");
    m.template impl<&Norm::rms_norm_backward>("rms_norm_backward");
  }

 private:
  using Results = std::pair<Tensor, Optional>;  // y, and the sum if it is stored

  static Pair both(const Results& results) { return {results.first, *results.second}; }

  static Results norm(const char* op, const Tensor& x, const Optional& bias,
                      const Optional& residual, const Tensor& gamma, const Optional& beta,
                      double eps, bool stores) {
    const Named<Api> from("x", x), scale("gamma", gamma);
    const NamedIf<Api> b("bias", bias), r("residual", residual), c("beta", beta);
    const auto call =
        ops::check_norm(op, from.argument, {b.get(), r.get(), &scale.argument, c.get()}, eps);
    check_on_gpu(op, from.argument);
    const typename Api::Guard guard(from.view.device.index);
    const Tensor in = on_16_bytes<Api>(x), weight = on_16_bytes<Api>(gamma);
    const Optional row = on_16_bytes_if<Api>(bias), more = on_16_bytes_if<Api>(residual),
                   shift = on_16_bytes_if<Api>(beta);
    Tensor y = Api::empty_like(in);
    const Optional sum = stores ? Optional(Api::empty_like(in)) : std::nullopt;
    ops::norm(op, call,
              {Api::data(in), data_of<Api>(row), data_of<Api>(more), Api::data(weight),
               data_of<Api>(shift), Api::data(y), data_of<Api>(sum)},
              Api::stream(from.view.device.index));
    return {y, sum};
  }

  static Triple backward(const char* op, bool centered, const Tensor& grad, const Tensor& x,
                         const Tensor& gamma, const Optional& grad_sum, double eps) {
    const Named<Api> from("x", x), scale("gamma", gamma), of_y("grad", grad);
    const NamedIf<Api> of_sum("grad_sum", grad_sum);
    const auto call = ops::check_norm_backward(op, centered, from.argument, scale.argument,
                                               {&of_y.argument, of_sum.get()}, eps);
    check_on_gpu(op, from.argument);
    const typename Api::Guard guard(from.view.device.index);
    const Tensor g = on_16_bytes<Api>(grad), in = on_16_bytes<Api>(x);
    const Tensor weight = on_16_bytes<Api>(gamma);
    const Optional add = on_16_bytes_if<Api>(grad_sum);
    Tensor grad_x = Api::empty_like(in), grad_gamma = Api::empty_like(weight);
    Tensor grad_beta = Api::empty_like(weight);
    const Tensor scratch = Api::empty_bytes(in, kernels::norm_backward_scratch(call));
    ops::norm_backward(
        op, call,
        {Api::data(g), data_of<Api>(add), Api::data(in), Api::data(weight), Api::data(grad_x),
         Api::data(grad_gamma), Api::data(grad_beta), Api::data(scratch)},
        Api::stream(from.view.device.index));
    return {grad_x, grad_gamma, grad_beta};
  }
};

}  // namespace fusedops
