// The GPU that a call runs on, and its kernels.
#pragma once

#include "platform/runtime.h"

namespace fusedops {

using torchwheel::kMostGpus;

struct Gpu {
  int index;  // as torch counts
  gpu::Stream stream;
};

}  // namespace fusedops

// A host function of kernels/, for the GPU `on`.
#define FUSEDOPS_KERNEL(on, name) \
  (*::torchwheel::kernel<&::fusedops::kernels::name>((on).index, #name))
