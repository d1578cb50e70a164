// Attention over a cache of keys and values: a prompt fills the cache; a step adds a token to each
// sequence, which attends to all that the cache holds of it.
#pragma once

#include "kernels/softmax.h"
#include "kernels/types.h"
#include "platform/runtime.h"

namespace fusedops::kernels {

constexpr int kMostHeadDim = 256;

// Of one layer. Keys and values lie as [sequences, kv_heads, capacity, row]; a row is a head of a
// token, padded with zeros to whole 16 bytes, and starts on 16 bytes.
struct Cache {
  void* keys;
  void* values;
  std::int32_t* positions;  // [sequences]: the tokens that the cache holds, and the next's place
  int capacity;             // tokens
  int row;                  // elements
};

// What the tokens that come are: rows of the heads of q, then k, then v.
struct Attention {
  DType dtype;
  int batch;  // sequences, the first of the cache
  int heads;  // of q, a multiple of kv_heads
  int kv_heads;
  int head_dim;  // up to kMostHeadDim
  int rotary_dim;
  bool interleaved;  // rotary pairs (2i, 2i + 1), else (i, i + rotary_dim / 2)
  double theta;
  Cache cache;
};

struct AttentionStep {
  Attention attention;
  bool advance;  // positions move on: the step's last layer
  float scale;
  int window;     // keys that are attended to, the token's own with them; 0: all
  Beside mask;    // additive, or boolean: what is true is kept
  int mask_keys;  // keys it tells of; later ones are kept
  Beside alibi;   // a slope a head
};

constexpr int kHeadsTogether = 8;  // query heads that share a head of the cache and a block

// The zeros that attention_step wants to count with.
inline std::int64_t attention_counters(std::int64_t batch, std::int64_t heads,
                                       std::int64_t kv_heads) {
  const std::int64_t chunks = (heads / kv_heads + kHeadsTogether - 1) / kHeadsTogether;
  return batch * (kv_heads * chunks + 1);
}

// Appends the `tokens` tokens of each sequence of qkv [batch, tokens, (heads + 2 kv_heads)
// head_dim], the first at position 0, and writes q, turned, to queries [batch, tokens, heads,
// head_dim]. Nothing is empty.
gpu::Status attention_prompt(const Attention& call, std::int64_t tokens, void* queries,
                             const void* qkv, gpu::Stream stream);

// Appends the token of each sequence of qkv [batch, (heads + 2 kv_heads) head_dim] and writes its
// attention to out [batch, heads, head_dim]: softmax(scale q k + alibi + mask) v. A token for which
// the cache has no room gives NaN and is not appended. `counters` holds attention_counters() zeros
// before and after; `room` floats of `partials` are for the blocks that share a sequence.
gpu::Status attention_step(const AttentionStep& call, void* out, const void* qkv,
                           std::int32_t* counters, float* partials, std::int64_t room,
                           gpu::Stream stream);

}  // namespace fusedops::kernels
