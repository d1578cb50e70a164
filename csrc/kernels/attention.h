// Attention over a cache of keys and values. A prompt fills the cache. A step appends a token to
// each sequence; the token attends to all that the cache holds of its sequence.
#pragma once

#include "kernels/softmax.h"
#include "kernels/types.h"
#include "platform/runtime.h"

namespace fusedops::kernels {

constexpr int kMostHeadDim = 256;

// The cache of one layer. Keys and values are [sequences, kv_heads, capacity, row]. A row is a head
// of a token, padded with zeros to a multiple of 16 bytes, and starts on 16 bytes.
struct Cache {
  void* keys;
  void* values;
  std::int32_t* positions;  // [sequences]: how many tokens the cache holds; the next token's place
  int capacity;             // tokens
  int row;                  // elements
};

// The new tokens, each with rows of the heads of q, then k, then v.
struct Attention {
  DType dtype;
  int batch;  // sequences: the first of the cache
  int heads;  // heads of q: a multiple of kv_heads
  int kv_heads;
  int head_dim;  // up to kMostHeadDim
  int rotary_dim;
  bool interleaved;  // rotary pairs (2i, 2i + 1), else (i, i + rotary_dim / 2)
  double theta;
  Cache cache;
};

struct AttentionStep {
  Attention attention;
  bool advance;  // advance the positions: set for a step's last layer
  float scale;
  int window;       // a token attends to so many keys, including its own; 0: all
  ScoreBias mask;   // additive; or boolean, where true keeps a key
  int mask_keys;    // keys that the mask covers; later keys are kept
  ScoreBias alibi;  // one slope a head
};

constexpr int kHeadsTogether =
    8;  // at most so many query heads share a head of the cache and a block

// How many counters attention_step needs.
inline std::int64_t attention_counters(std::int64_t batch, std::int64_t heads,
                                       std::int64_t kv_heads) {
  const std::int64_t chunks = (heads / kv_heads + kHeadsTogether - 1) / kHeadsTogether;
  return batch * (kv_heads * chunks + 1);
}

// Appends the token of each sequence of qkv [batch, (heads + 2 kv_heads) head_dim], and writes its
// attention, softmax(scale q k + alibi + mask) v, to out [batch, heads, head_dim]. If the cache has
// no room for a token, its result is NaN and it is not appended. `counters` has
// attention_counters() zeros before and after the call. `partials`, with `room` floats, is scratch
// memory for the blocks that share a sequence.
gpu::Status attention_step(const AttentionStep& call, void* out, const void* qkv,
                           std::int32_t* counters, float* partials, std::int64_t room,
                           gpu::Stream stream);

}  // namespace fusedops::kernels
