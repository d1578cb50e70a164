#include <cuda_runtime.h>
#include <torch/csrc/stable/accelerator.h>
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>

namespace {

using torch::stable::Tensor;

__global__ void axpy_kernel(float* out, float a, const float* x, const float* y, int64_t n) {
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i < n) out[i] = a * x[i] + y[i];
}

Tensor axpy_cuda(double a, const Tensor& x, const Tensor& y) {
  STD_TORCH_CHECK(x.scalar_type() == torch::headeronly::ScalarType::Float,
                  "axpy: float32 expected");
  STD_TORCH_CHECK(x.sizes().equals(y.sizes()), "axpy: tensors of one shape expected");
  const torch::stable::accelerator::DeviceGuard guard(x.get_device_index());
  const Tensor xs = torch::stable::contiguous(x), ys = torch::stable::contiguous(y);
  Tensor out = torch::stable::empty_like(xs);
  if (out.numel() == 0) return out;
  void* stream = nullptr;
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_current_cuda_stream(x.get_device_index(), &stream));
  axpy_kernel<<<static_cast<unsigned>((out.numel() + 255) / 256), 256, 0,
                static_cast<cudaStream_t>(stream)>>>(
      static_cast<float*>(out.data_ptr()), static_cast<float>(a),
      static_cast<const float*>(xs.data_ptr()), static_cast<const float*>(ys.data_ptr()),
      out.numel());
  const cudaError_t error = cudaGetLastError();
  STD_TORCH_CHECK(error == cudaSuccess, "axpy: ", cudaGetErrorString(error));
  return out;
}

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(axpy, CUDA, m) { m.impl("axpy", TORCH_BOX(&axpy_cuda)); }
