// y = softmax(scale scores + alibi + mask) of every row of attention scores, and its gradient.
#pragma once

#include "kernels/types.h"
#include "platform/runtime.h"

namespace fusedops::kernels {

// A tensor that is added to the scores, with its strides in elements: 0 where it is broadcast.
struct ScoreBias {
  enum class Type : int { none, like_scores, float32, boolean };
  Type type;
  const void* data;
  std::int64_t batch, head, query, key;  // strides; the key's is 0 or 1
};

struct Softmax {
  DType dtype;                               // dtype of scores and y
  std::int64_t batch, heads, queries, keys;  // none of them is 0
  double scale;
  bool causal;          // query i sees keys up to i + keys - queries
  std::int64_t window;  // and only the last `window` of these, including its own; 0: all
  ScoreBias mask;       // additive; or boolean, where true keeps a key
  ScoreBias alibi;      // never boolean
  bool slopes;          // alibi has one slope a head, not one value a head and key

  std::int64_t rows() const { return batch * heads * queries; }
};

// The bytes of scratch memory that softmax() needs on the current GPU: 0 unless it uses
// softmax_streamed() and several blocks share a long row.
std::int64_t softmax_scratch(const Softmax& call);

// scores and y are contiguous [batch, heads, queries, keys] and start on 16 bytes. The result is 0
// for dropped keys, and for all keys of a row that drops every key.
gpu::Status softmax(const Softmax& call, void* y, const void* scores, void* scratch,
                    gpu::Stream stream);

// A kernel that takes every call; softmax() uses it where its faster kernels do not fit. It reads
// the scores twice.
gpu::Status softmax_streamed(const Softmax& call, void* y, const void* scores, void* scratch,
                             gpu::Stream stream);
// The bytes of scratch memory that it needs.
std::int64_t softmax_streamed_scratch(const Softmax& call);

struct SoftmaxBackward {
  DType dtype;  // of every tensor
  std::int64_t rows;
  std::int64_t keys;
  double scale;
};

// grad_scores = scale y (grad - sum of grad y over the row). All three tensors are contiguous
// [rows, keys], start on 16 bytes and are not empty.
gpu::Status softmax_backward(const SoftmaxBackward& call, void* grad_scores, const void* grad,
                             const void* y, gpu::Stream stream);

}  // namespace fusedops::kernels
