#pragma once
#include <cuda_runtime.h>
__device__ inline float warp_sum(float x) {
  for (int step = 16; step > 0; step /= 2) x += __shfl_down_sync(0xffffffffffffffffull, x, step);
  return x;
}
