#include <ATen/ATen.h>
#include <c10/cuda/CUDAStream.h>
#include <torch/library.h>

namespace {

__global__ void halve(const float* x, float* y, long n) {
  const long i = blockIdx.x * 256l + threadIdx.x;
  if (i < n) {
    y[i] = x[i] / 2;
  }
}

at::Tensor halved_cuda(const at::Tensor& x) {
  const at::Tensor in = x.contiguous().to(at::kFloat), out = at::empty_like(in);
  const long n = in.numel();
  if (n) {
    const auto stream = c10::cuda::getCurrentCUDAStream();
    halve<<<(n + 255) / 256, 256, 0, stream>>>(in.const_data_ptr<float>(),
                                               out.mutable_data_ptr<float>(), n);
  }
  return out;
}

}  // namespace

TORCH_LIBRARY_IMPL(halved, CUDA, m) { m.impl("halved", halved_cuda); }
