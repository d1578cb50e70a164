// Rotary position embedding: rotates pairs of a head's elements by an angle that depends on the
// position.
#pragma once

#include "kernels/types.h"
#include "platform/runtime.h"

namespace fusedops::kernels {

// Strides in elements.
struct HeadStrides {
  std::int64_t batch;
  std::int64_t token;
  std::int64_t head;
};

// q or k. `to` may be the same memory as `from`.
struct RotarySide {
  const void* from;
  void* to;
  HeadStrides from_strides;
  HeadStrides to_strides;
  std::int64_t heads;
};

// The position of token s of sequence b: offset + counts * s + data[b * batch + s * token].
struct Positions {
  std::int64_t offset;
  std::int64_t counts;  // 1 if tokens have consecutive positions, 0 if `data` has one for each
  const void* data;     // may be null
  bool wide;            // data is int64, not int32
  std::int64_t batch;
  std::int64_t token;
};

struct Rotary {
  DType dtype;
  bool interleaved;  // pairs (2i, 2i + 1), else (i, i + rotary_dim / 2)
  bool inverse;      // rotates in the other direction
  bool in_place;     // elements past rotary_dim are not touched
  std::int64_t batch;
  std::int64_t tokens;  // tokens of a sequence
  std::int64_t head_dim;
  std::int64_t rotary_dim;
  double theta;
  Positions positions;
  RotarySide q;
  RotarySide k;
};

// There is at least one token and one head. The elements of a head are neighbours. batch * tokens
// is less than 2^31.
gpu::Status rotary(const Rotary& call, gpu::Stream stream);

}  // namespace fusedops::kernels
