// An ordinary CUDA source: runtime calls, a launch, warp shuffles, headers of its own.
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#ifdef WITH_RANDOM
#include <curand_kernel.h>
#endif
#include <common.h>
#include "cuda/tools.cuh"
#include "plain.h"

__global__ void scale(float* out, const float* in, int n, float by) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float x = i < n ? in[i] : 0.f;
  float sum = warp_sum(x);
  if (i < n) out[i] = x * by + sum + plain();
}

extern "C" int run(const float* in, float* out, int n, cudaStream_t stream) {
  float* copy = nullptr;
  CHECK(cudaMalloc(&copy, n * sizeof(float)));
  CHECK(cudaMemcpyAsync(copy, in, n * sizeof(float), cudaMemcpyDeviceToDevice, stream));
  scale<<<(n + 255) / 256, 256, 0, stream>>>(out, copy, n, 2.f);
  CHECK(cudaGetLastError());
  return static_cast<int>(cudaFree(copy));
}
