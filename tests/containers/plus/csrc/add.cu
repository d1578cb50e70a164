#include <cuda_runtime.h>

__global__ void add_kernel(long long n, const float* a, const float* b, float* out) {
  const long long i = blockIdx.x * static_cast<long long>(blockDim.x) + threadIdx.x;
  if (i < n) out[i] = a[i] + b[i];
}

int add(long long n, const float* a, const float* b, float* out) {
  add_kernel<<<static_cast<unsigned>((n + 255) / 256), 256>>>(n, a, b, out);
  return cudaGetLastError();
}
