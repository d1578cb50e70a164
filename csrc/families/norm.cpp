// layer_norm, rms_norm, their forms with a residual, and the gradients.
#include "families/norm.h"

#include <tuple>
#include <utility>

#include "families/api.h"

namespace fusedops {

struct NormOps {
  using Pair = std::tuple<Tensor, Tensor>;
  using Triple = std::tuple<Tensor, Tensor, Tensor>;

  static Tensor layer_norm(const Tensor& x, const Tensor& gamma, const Tensor& beta, double eps) {
    return norm(x, {}, {}, gamma, beta, eps, false).first;
  }

  static Tensor layer_norm_residual(const Tensor& x, const Tensor& bias, const Tensor& residual,
                                    const Tensor& gamma, const Tensor& beta, double eps) {
    return norm(x, bias, residual, gamma, beta, eps, false).first;
  }

  static Pair layer_norm_residual_store(const Tensor& x, const Tensor& bias, const Tensor& residual,
                                        const Tensor& gamma, const Tensor& beta, double eps) {
    return both(norm(x, bias, residual, gamma, beta, eps, true));
  }

  static Tensor rms_norm(const Tensor& x, const Tensor& gamma, double eps) {
    return norm(x, {}, {}, gamma, {}, eps, false).first;
  }

  static Pair pre_rms_norm(const Tensor& x, const Tensor& residual, const Tensor& gamma,
                           double eps) {
    return both(norm(x, {}, residual, gamma, {}, eps, true));
  }

  static Triple layer_norm_backward(const Tensor& grad, const Tensor& x, const Tensor& gamma,
                                    const OptionalTensor& grad_sum, double eps) {
    return backward(true, grad, x, gamma, grad_sum, eps);
  }

  static Pair rms_norm_backward(const Tensor& grad, const Tensor& x, const Tensor& gamma,
                                const OptionalTensor& grad_sum, double eps) {
    const Triple gradients = backward(false, grad, x, gamma, grad_sum, eps);
    return {std::get<0>(gradients), std::get<1>(gradients)};
  }

 private:
  using Results = std::pair<Tensor, OptionalTensor>;  // y, and the sum if the operator stores it

  static Pair both(const Results& results) { return {results.first, *results.second}; }

  static Results norm(const Tensor& x, const OptionalTensor& bias, const OptionalTensor& residual,
                      const Tensor& gamma, const OptionalTensor& beta, double eps, bool stores) {
    require(has_rows(x) && is_row_of_if(bias, x) && is_alike_if(residual, x) &&
            is_row_of(gamma, x) && is_row_of_if(beta, x));
    check_on_gpu("x", x);
    const Tensor in = on_16_bytes(x), weight = on_16_bytes(gamma);
    const OptionalTensor row = on_16_bytes_if(bias), more = on_16_bytes_if(residual),
                         shift = on_16_bytes_if(beta);
    Tensor y = empty_like(in);
    const OptionalTensor sum = stores ? OptionalTensor(empty_like(in)) : std::nullopt;
    launch_norm(norm_of(x, beta.has_value(), eps), in,
                {in.data(), data_of(row), data_of(more), weight.data(), data_of(shift), y.data(),
                 data_of(sum)},
                gpu_of(x));
    return {y, sum};
  }

  static Triple backward(bool centered, const Tensor& grad, const Tensor& x, const Tensor& gamma,
                         const OptionalTensor& grad_sum, double eps) {
    require(has_rows(x) && is_row_of(gamma, x) && is_alike(grad, x) && is_alike_if(grad_sum, x));
    check_on_gpu("x", x);
    const kernels::Norm call = norm_of(x, centered, eps);
    const Tensor g = on_16_bytes(grad), in = on_16_bytes(x);
    const Tensor weight = on_16_bytes(gamma);
    const OptionalTensor add = on_16_bytes_if(grad_sum);
    const Tensor grad_x = empty_like(in), grad_gamma = empty_like(weight);
    const Tensor grad_beta = empty_like(weight);
    const Gpu on = gpu_of(x);
    const OptionalTensor room = scratch(in, FUSEDOPS_KERNEL(on, norm_backward_scratch)(call));
    const kernels::NormBackwardTensors tensors{g.data(),         data_of(add),  in.data(),
                                               weight.data(),    grad_x.data(), grad_gamma.data(),
                                               grad_beta.data(), data_of(room)};
    if (call.cols > 0) {  // with no rows, zero gradients of gamma and beta must still be written
      check_launch(on, FUSEDOPS_KERNEL(on, norm_backward)(call, tensors, on.stream));
    }
    return {grad_x, grad_gamma, grad_beta};
  }
};

FUSEDOPS_FAMILY(norm, m) {
  m.op<&NormOps::layer_norm>("layer_norm");
  m.op<&NormOps::layer_norm_residual>("layer_norm_residual");
  m.op<&NormOps::layer_norm_residual_store>("layer_norm_residual_store");
  m.op<&NormOps::rms_norm>("rms_norm");
  m.op<&NormOps::pre_rms_norm>("pre_rms_norm");
  m.op_without_out<&NormOps::layer_norm_backward>("layer_norm_backward");
  m.op_without_out<&NormOps::rms_norm_backward>("rms_norm_backward");
}

}  // namespace fusedops
