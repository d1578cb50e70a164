// y = norm(s) gamma + beta for each row s of x, or of x + bias + residual: [rows, cols]. A layer
// norm is (s - mean) / sqrt(variance + eps), an RMS norm s / sqrt(mean of squares + eps). Here is
// the choice between norm_layer.cu, norm_rms.cu, and the kernel for rows of any length and type.
#include "kernels/norm_launch.cuh"

namespace fusedops::kernels {
namespace norm_detail {

gpu::Status general_norm(const Norm& call, const NormTensors& tensors, gpu::Stream stream) {
  return with_type(call.dtype, [&](auto type) {
    using T = typename decltype(type)::T;
    return call.centered ? launch_general<Formula<T, true, Adds::any>>(call, tensors, stream)
                         : launch_general<Formula<T, false, Adds::any>>(call, tensors, stream);
  });
}

}  // namespace norm_detail

std::int64_t norm_scratch(const Norm& call) {
  constexpr std::int64_t kFewRows = 4, kShortRow = 16 << 10;  // bytes; none such is in clusters
  const bool may_be_in_clusters = call.rows > kFewRows &&
                                  call.cols * element_size(call.dtype) > kShortRow &&
                                  gpu::has_clusters();
  return may_be_in_clusters ? std::int64_t{sizeof(std::int32_t)} : 0;
}

gpu::Status norm(const Norm& call, const NormTensors& tensors, gpu::Stream stream) {
  using namespace norm_detail;
  if (!call.centered) return rms_norm(call, tensors, stream);
  // The layer norm kernels add both bias and residual, or neither.
  const bool only_residual = tensors.residual && !tensors.bias;
  return only_residual ? general_norm(call, tensors, stream) : layer_norm(call, tensors, stream);
}

TORCHWHEEL_EXPORT(norm)
TORCHWHEEL_EXPORT(norm_scratch)

}  // namespace fusedops::kernels
