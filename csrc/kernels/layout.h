// Heads copied into wider ones, which zeros fill up.
#pragma once

#include "kernels/types.h"
#include "platform/runtime.h"

namespace fusedops::kernels {

// In bytes: a zero is zero bits in every element type.
struct PadHeads {
  std::int64_t batch;
  std::int64_t tokens;
  std::int64_t heads;
  int head_bytes;
  int padded_bytes;           // 64 to 1024, a power of 2
  std::int64_t batch_stride;  // of what is read
  std::int64_t token_stride;
  std::int64_t head_stride;
};

// From heads at these strides to a contiguous [batch, heads, tokens, padded_bytes] on 16 bytes, of
// 1 to 2^31 - 1 heads.
gpu::Status pad_heads(const PadHeads& call, void* to, const void* from, gpu::Stream stream);

}  // namespace fusedops::kernels
