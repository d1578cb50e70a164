// What an operator asks of the framework whose tensors it was called with. torch/ implements it for
// each of torch's ABIs and for DLPack.
#pragma once

#include <cstdint>

#include "families/gpu.h"
#include "families/tensor.h"

namespace fusedops {

// The sizes and strides of a matrix over a contiguous tensor's elements.
struct Matrix {
  std::int64_t sizes[2];
  std::int64_t strides[2];
};

inline Matrix matrix_of(std::int64_t rows, std::int64_t cols) { return {{rows, cols}, {cols, 1}}; }

inline Matrix transposed(const Matrix& m) {
  return {{m.sizes[1], m.sizes[0]}, {m.strides[1], m.strides[0]}};
}

class Torch;

class Framework {
 public:
  // torch, if it is that.
  virtual Torch* torch() { return nullptr; }
  // A new tensor with the sizes and the dtype of `wanted`, on the device of `like`, contiguous.
  virtual Tensor allocate(const Tensor& like, const TensorView& wanted) = 0;
  virtual Tensor allocate_bytes(const Tensor& like, std::int64_t count) = 0;
  // A contiguous copy.
  virtual Tensor contiguous(const Tensor& tensor) = 0;
  virtual Tensor clone(const Tensor& tensor) = 0;
  virtual Tensor matrix(const Tensor& contiguous, const Matrix& layout) = 0;
  virtual gpu::Stream current_stream(int gpu) = 0;

 protected:
  ~Framework() = default;
};

// torch's dispatcher, which also has products of matrices of every type. A product is summed in
// float32 (float64 for float64) and rounded once.
class Torch : public Framework {
 public:
  Torch* torch() final { return this; }
  // A tensor like `wanted` over the bytes of `memory` from `offset` on.
  virtual Tensor over(const Tensor& memory, std::int64_t offset, const TensorView& wanted) = 0;
  virtual void copy(const Tensor& to, const Tensor& from) = 0;
  // out = a b
  virtual void mm(const Tensor& out, const Tensor& a, const Tensor& b) = 0;
  // out = a b + row
  virtual void addmm(const Tensor& out, const Tensor& row, const Tensor& a, const Tensor& b) = 0;

 protected:
  ~Torch() = default;
};

}  // namespace fusedops
