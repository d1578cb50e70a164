// Rotary position embedding: pairs of a head's elements turned by an angle of their position.
#pragma once

#include "kernels/types.h"
#include "platform/runtime.h"

namespace fusedops::kernels {

// In elements.
struct HeadStrides {
  std::int64_t batch;
  std::int64_t token;
  std::int64_t head;
};

// q or k. `to` may be `from`.
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
  std::int64_t counts;  // 1 where tokens follow one another, 0 where data has each of them
  const void* data;     // may be null
  bool wide;            // of int64, not int32
  std::int64_t batch;
  std::int64_t token;
};

struct Rotary {
  DType dtype;
  bool interleaved;  // pairs (2i, 2i + 1), else (i, i + rotary_dim / 2)
  bool inverse;      // turns the other way
  bool in_place;     // what lies past rotary_dim is not touched
  std::int64_t batch;
  std::int64_t tokens;  // of a sequence
  std::int64_t head_dim;
  std::int64_t rotary_dim;
  double theta;
  Positions positions;
  RotarySide q;
  RotarySide k;
};

// There is a token and a head; elements of a head are neighbours; batch * tokens is under 2^31.
gpu::Status rotary(const Rotary& call, gpu::Stream stream);

}  // namespace fusedops::kernels
