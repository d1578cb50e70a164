// What a family's operators are written with. They are compiled once, for every torch and for
// DLPack: families/tensor.h is a tensor, families/framework.h what they ask of its framework.
//
//   FUSEDOPS_FAMILY(vector_add, m) { m.op<&VectorAddOps::vector_add>("vector_add"); }
//
// registers a family's operators (families/registrar.h). Their schemas are defined in Python, on
// the family's page: fusedops/families/NAME.py.
#pragma once

#include <cstdint>
#include <vector>

#include "families/call.h"
#include "families/checks.h"
#include "families/registrar.h"
#include "families/tensor.h"

namespace fusedops {

// Where to run a call on this tensor: the tensor's GPU and the caller's stream.
Gpu gpu_of(const TensorView& tensor);

// The functions ..._if and data_of take a tensor argument that may be None.
void* data_of(const OptionalTensor& tensor);

// The tensor, or a contiguous copy.
Tensor contiguous(const Tensor& tensor);
OptionalTensor contiguous_if(const OptionalTensor& tensor);
// A contiguous tensor that starts on 16 bytes, for kernels that need both.
Tensor on_16_bytes(const Tensor& tensor);
OptionalTensor on_16_bytes_if(const OptionalTensor& tensor);

// An operator's results are made by the first two, in their order.
Tensor empty_like(const Tensor& tensor);
Tensor empty(const Tensor& like, const std::vector<std::int64_t>& sizes, DType dtype);
Tensor temporary(const Tensor& like, const std::vector<std::int64_t>& sizes, DType dtype);
// Memory for kernels, on the GPU of `like`; none for 0 bytes.
OptionalTensor scratch(const Tensor& like, std::int64_t bytes);

}  // namespace fusedops
