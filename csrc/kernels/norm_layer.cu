#include "kernels/norm_launch.cuh"

namespace fusedops::kernels::norm_detail {

gpu::Status layer_norm(const Norm& call, const NormTensors& t, gpu::Stream stream) {
  return t.residual ? launch_norm<true, Adds::residual>(call, t, stream)
                    : launch_norm<true, Adds::nothing>(call, t, stream);
}

}  // namespace fusedops::kernels::norm_detail
