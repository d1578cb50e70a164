// The binding of layer_norm, rms_norm, their forms with a residual, and the gradients.
#include "ops/norm.h"

#include <tuple>
#include <utility>

#include "torch/api.h"

namespace fusedops {

struct Norm {
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
                                    const OptionalTensor& grad_sum, double eps) {
    return backward("layer_norm_backward", true, grad, x, gamma, grad_sum, eps);
  }

  static Pair rms_norm_backward(const Tensor& grad, const Tensor& x, const Tensor& gamma,
                                const OptionalTensor& grad_sum, double eps) {
    const Triple gradients = backward("rms_norm_backward", false, grad, x, gamma, grad_sum, eps);
    return {std::get<0>(gradients), std::get<1>(gradients)};
  }

 private:
  using Results = std::pair<Tensor, OptionalTensor>;  // y, and the sum if the operator stores it

  static Pair both(const Results& results) { return {results.first, *results.second}; }

  static Results norm(const char* op, const Tensor& x, const OptionalTensor& bias,
                      const OptionalTensor& residual, const Tensor& gamma,
                      const OptionalTensor& beta, double eps, bool stores) {
    const Named from("x", x), scale("gamma", gamma);
    const NamedIf b("bias", bias), r("residual", residual), c("beta", beta);
    const auto call =
        ops::check_norm(op, from.argument, {b.get(), r.get(), &scale.argument, c.get()}, eps);
    check_on_gpu(op, from.argument);
    const Api::Guard guard(from.view.device.index);
    const Tensor in = on_16_bytes(x), weight = on_16_bytes(gamma);
    const OptionalTensor row = on_16_bytes_if(bias), more = on_16_bytes_if(residual),
                         shift = on_16_bytes_if(beta);
    Tensor y = Api::empty_like(in);
    const OptionalTensor sum = stores ? OptionalTensor(Api::empty_like(in)) : std::nullopt;
    ops::norm(op, call,
              {Api::data(in), data_of(row), data_of(more), Api::data(weight), data_of(shift),
               Api::data(y), data_of(sum)},
              gpu_of(from.view));
    return {y, sum};
  }

  static Triple backward(const char* op, bool centered, const Tensor& grad, const Tensor& x,
                         const Tensor& gamma, const OptionalTensor& grad_sum, double eps) {
    const Named from("x", x), scale("gamma", gamma), of_y("grad", grad);
    const NamedIf of_sum("grad_sum", grad_sum);
    const auto call = ops::check_norm_backward(op, centered, from.argument, scale.argument,
                                               {&of_y.argument, of_sum.get()}, eps);
    check_on_gpu(op, from.argument);
    const Api::Guard guard(from.view.device.index);
    const Tensor g = on_16_bytes(grad), in = on_16_bytes(x);
    const Tensor weight = on_16_bytes(gamma);
    const OptionalTensor add = on_16_bytes_if(grad_sum);
    Tensor grad_x = Api::empty_like(in), grad_gamma = Api::empty_like(weight);
    Tensor grad_beta = Api::empty_like(weight);
    const Gpu on = gpu_of(from.view);
    const Tensor scratch = Api::empty_bytes(in, FUSEDOPS_KERNEL(on, norm_backward_scratch)(call));
    ops::norm_backward(
        op, call,
        {Api::data(g), data_of(add), Api::data(in), Api::data(weight), Api::data(grad_x),
         Api::data(grad_gamma), Api::data(grad_beta), Api::data(scratch)},
        on);
    return {grad_x, grad_gamma, grad_beta};
  }
};

FUSEDOPS_FAMILY(norm, m) {
  FUSEDOPS_OPERATOR(m, "layer_norm", &Norm::layer_norm);
  FUSEDOPS_OPERATOR(m, "layer_norm_residual", &Norm::layer_norm_residual);
  FUSEDOPS_OPERATOR(m, "layer_norm_residual_store", &Norm::layer_norm_residual_store);
  FUSEDOPS_OPERATOR(m, "rms_norm", &Norm::rms_norm);
  FUSEDOPS_OPERATOR(m, "pre_rms_norm", &Norm::pre_rms_norm);
  m.impl("layer_norm_backward", FUSEDOPS_BOX(&Norm::layer_norm_backward));
  m.impl("rms_norm_backward", FUSEDOPS_BOX(&Norm::rms_norm_backward));
}

}  // namespace fusedops
