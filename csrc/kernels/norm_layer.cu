// The layer norm, y = (s - mean) / sqrt(variance + eps) gamma + beta, of each row s of x, or of
// x + bias + residual: [rows, cols]. A file of its own, so that compilers run side by side.
#include "kernels/norm_launch.cuh"

namespace fusedops::kernels::norm_detail {

gpu::Status layer_norm(const Norm& call, const NormTensors& t, gpu::Stream stream) {
  return t.residual ? launch_norm<true, Adds::residual>(call, t, stream)
                    : launch_norm<true, Adds::nothing>(call, t, stream);
}

}  // namespace fusedops::kernels::norm_detail
