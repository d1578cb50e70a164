// Copies heads into wider ones and fills these up with zeros.
#pragma once

#include "kernels/types.h"
#include "platform/runtime.h"

namespace fusedops::kernels {

// Sizes and strides in bytes: zero is zero bits in every element type.
struct PadHeads {
  std::int64_t batch;
  std::int64_t tokens;
  std::int64_t heads;
  int head_bytes;
  int padded_bytes;           // 64 to 1024, a power of 2
  std::int64_t batch_stride;  // strides of the input
  std::int64_t token_stride;
  std::int64_t head_stride;
};

// Copies heads at these strides to a contiguous [batch, heads, tokens, padded_bytes] tensor that
// starts on 16 bytes. There are 1 to 2^31 - 1 heads.
gpu::Status pad_heads(const PadHeads& call, void* to, const void* from, gpu::Stream stream);

}  // namespace fusedops::kernels
