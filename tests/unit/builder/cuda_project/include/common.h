#pragma once
#include <cuda_runtime.h>
#define CHECK(call) do { cudaError_t e = (call); if (e != cudaSuccess) return static_cast<int>(e); } while (0)
