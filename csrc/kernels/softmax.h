// y = softmax(scale scores + alibi + mask) of every row of attention scores, and its gradient.
#pragma once

#include "kernels/types.h"
#include "platform/runtime.h"

namespace fusedops::kernels {

// A tensor that is read beside the scores, by its strides in elements: 0 where it is broadcast.
struct Beside {
  enum class Type : int { none, like_scores, float32, boolean };
  Type type;
  const void* data;
  std::int64_t batch, head, query, key;  // strides; that of the keys is 0 or 1
};

struct Softmax {
  DType dtype;                               // of scores and y
  std::int64_t batch, heads, queries, keys;  // none is 0
  double scale;
  bool causal;          // query i sees keys up to i + keys - queries
  std::int64_t window;  // and no more than so many, itself with them; 0: all
  Beside mask;          // additive, or boolean: what is true is kept
  Beside alibi;         // never boolean
  bool slopes;          // alibi is a slope a head, not a value a head and key

  std::int64_t rows() const { return batch * heads * queries; }
};

// Bytes of scratch memory that a call wants: 0, unless few long rows are taken by several blocks
// each.
std::int64_t softmax_scratch(const Softmax& call);

// scores and y are contiguous [batch, heads, queries, keys] and start on 16 bytes. Keys that are
// dropped get 0, and so does all of a row that has no others.
gpu::Status softmax(const Softmax& call, void* y, const void* scores, void* scratch,
                    gpu::Stream stream);

// The same for what the kernels of softmax.cu do not take, by a kernel that takes everything. It
// reads the scores twice.
gpu::Status softmax_streamed(const Softmax& call, void* y, const void* scores, void* scratch,
                             gpu::Stream stream);

struct SoftmaxBackward {
  DType dtype;  // of every tensor
  std::int64_t rows;
  std::int64_t keys;
  double scale;
};

// grad_scores = scale y (grad - sum of grad y over the row). All three are contiguous [rows, keys],
// start on 16 bytes and are not empty.
gpu::Status softmax_backward(const SoftmaxBackward& call, void* grad_scores, const void* grad,
                             const void* y, gpu::Stream stream);

}  // namespace fusedops::kernels
