// What an operator asks of the framework whose tensors it was called with. torch/ implements it for
// each of torch's ABIs and for DLPack.
#pragma once

#include <cstdint>

#include "families/gpu.h"
#include "families/tensor.h"

namespace fusedops {

class Framework {
 public:
  // A new tensor with the sizes and the dtype of `wanted`, on the device of `like`, contiguous.
  virtual Tensor allocate(const Tensor& like, const TensorView& wanted) = 0;
  virtual Tensor allocate_bytes(const Tensor& like, std::int64_t count) = 0;
  // A contiguous copy.
  virtual Tensor contiguous(const Tensor& tensor) = 0;
  virtual Tensor clone(const Tensor& tensor) = 0;
  virtual gpu::Stream current_stream(int gpu) = 0;

 protected:
  ~Framework() = default;
};

// The sizes and strides of a matrix over a contiguous tensor's elements.
struct Matrix {
  std::int64_t sizes[2];
  std::int64_t strides[2];
};

inline Matrix matrix_of(std::int64_t rows, std::int64_t cols) { return {{rows, cols}, {cols, 1}}; }

inline Matrix transposed(const Matrix& m) {
  return {{m.sizes[1], m.sizes[0]}, {m.strides[1], m.strides[0]}};
}

// torch, which also has products of matrices: they call the GPU's BLAS library. A product is summed
// in float32 (float64 for float64) and rounded once.
class Torch : public Framework {
 public:
  virtual Tensor matrix(const Tensor& contiguous, const Matrix& layout) = 0;
  // A tensor like `wanted` over the bytes of `memory` from `offset` on.
  virtual Tensor over(const Tensor& memory, std::int64_t offset, const TensorView& wanted) = 0;
  virtual void zero(const Tensor& tensor) = 0;
  virtual void copy(const Tensor& to, const Tensor& from) = 0;
  // out = a b
  virtual void mm(const Tensor& out, const Tensor& a, const Tensor& b) = 0;
  // out = a b + row
  virtual void addmm(const Tensor& out, const Tensor& row, const Tensor& a, const Tensor& b) = 0;
  virtual bool has_addmm_activation() = 0;
  // gelu(a b + row) in its tanh form, or relu(a b + row)
  virtual Tensor addmm_activation(const Tensor& row, const Tensor& a, const Tensor& b,
                                  bool gelu) = 0;

 protected:
  ~Torch() = default;
};

}  // namespace fusedops
