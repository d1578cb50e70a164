// The RMS norm, y = s / sqrt(mean of squares + eps) gamma, of each row s of x, or of x + residual:
// [rows, cols]. A file of its own, so that compilers run side by side.
#include "kernels/norm_launch.cuh"

namespace fusedops::kernels::norm_detail {

gpu::Status rms_norm(const Norm& call, const NormTensors& t, gpu::Stream stream) {
  return t.residual ? launch_norm<false, Adds::residual>(call, t, stream)
                    : launch_norm<false, Adds::nothing>(call, t, stream);
}

}  // namespace fusedops::kernels::norm_detail
