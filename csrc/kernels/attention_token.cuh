// The token of a decode step: its query, turned, for all warps of the block, and its key and value,
// which one block of each head appends to the cache.
#pragma once

#include "kernels/attention_scores.cuh"
#include "kernels/rotation.cuh"

namespace fusedops::attention {

// A block's heads: those of q that share a head of the cache, or a chunk of them.
struct Place {
  int batch, kv_head;
  int chunk;
  int head;   // the chunk's first
  int heads;  // of the chunk
};

// By the block's place in the grid: x shares the keys, y has the heads, z the sequence.
FUSEDOPS_DEVICE Place place_of(int group, int chunks) {
  const int y = static_cast<int>(blockIdx.y), kv_head = chunks > 1 ? y / chunks : y;
  const int chunk = y - kv_head * chunks, before = chunk * kHeads;
  return {static_cast<int>(blockIdx.z), kv_head, chunk, kv_head * group + before,
          min(group - before, kHeads)};
}

template <class T>
FUSEDOPS_DEVICE T* cache_row(void* data, const kernels::Attention& call, const Place& place,
                             int position) {
  const unsigned head = place.batch * call.kv_heads + place.kv_head;
  const std::uint64_t rows = std::uint64_t{head} * static_cast<unsigned>(call.cache.capacity);
  return static_cast<T*>(data) + (rows + position) * static_cast<unsigned>(call.cache.row);
}

// What the block knows of the token: rows of k, v and the heads of q, turned, as the cache has
// them.
template <class T, int D>
struct Token {
  static constexpr int kKey = 0, kValue = 1, kQuery = 2, kRows = kQuery + kHeads;
  static constexpr int kStride = D + kLanes<T>;  // rows begin in different banks
  alignas(kVectorBytes) T row[kRows][kStride];
};

// A thread's part in making it: two elements that turn together, of each of some rows.
template <class T, int D, int kThreads>
class TokenPart {
 public:
  // Needs nothing that another kernel has written.
  FUSEDOPS_DEVICE TokenPart(const kernels::Attention& call, double log2_step) {
    const int half = call.rotary_dim / 2, pair = threadIdx.x % kPairs;
    turns_ = pair < half;
    const bool apart = turns_ && !call.interleaved;
    first_ = apart ? pair : 2 * pair;
    second_ = apart ? pair + half : 2 * pair + 1;
    if (turns_) per_position_ = angle_per_position(log2_step, pair);
  }

  // Asks for the elements.
  FUSEDOPS_DEVICE void fetch(const kernels::Attention& call, const T* qkv, const Place& place) {
    const int dim = call.head_dim;
    const unsigned packed = (call.heads + 2 * call.kv_heads) * dim;
    qkv += std::uint64_t{packed} * static_cast<unsigned>(place.batch);
    rows_ = Held::kQuery + place.heads;
#pragma unroll
    for (int i = 0; i < kMost; ++i) {
      const int row = row_of(i);
      const int head = row >= Held::kQuery ? place.head + row - Held::kQuery
                                           : call.heads + row * call.kv_heads + place.kv_head;
      const T* const from = qkv + head * dim;
      x_[i][0] = x_[i][1] = T{};
      if (row < rows_ && first_ < dim) x_[i][0] = from[first_];
      if (row < rows_ && second_ < dim) x_[i][1] = from[second_];
    }
  }

  // Turns all but v. Rows of heads that there are not stay as they are: nobody asks for what comes
  // of them.
  FUSEDOPS_DEVICE void make(Token<T, D>& token, int position) {
    Turn<float> by{1, 0};
    if (turns_) by = turn_by<float>(per_position_ * static_cast<Angle>(position));
#pragma unroll
    for (int i = 0; i < kMost; ++i) {
      const int row = row_of(i);
      if (row >= rows_) break;
      float first = widen(x_[i][0]), second = widen(x_[i][1]);
      if (turns_ && row != Held::kValue) {
        const float x = first;
        first = fmaf(x, by.cos, -(second * by.sin));
        second = fmaf(second, by.cos, x * by.sin);
      }
      token.row[row][first_] = narrow<T>(first);
      token.row[row][second_] = narrow<T>(second);
    }
  }

 private:
  using Held = Token<T, D>;
  static constexpr int kPairs = D / 2, kRowsAtOnce = kThreads / kPairs;
  static constexpr int kMost = (Held::kRows + kRowsAtOnce - 1) / kRowsAtOnce;
  static_assert(kThreads % kPairs == 0);

  FUSEDOPS_DEVICE static int row_of(int i) {
    return static_cast<int>(threadIdx.x) / kPairs + i * kRowsAtOnce;
  }

  int rows_;
  bool turns_;
  int first_, second_;  // the elements' places in a row
  Angle per_position_ = 0;
  T x_[kMost][2];
};

}  // namespace fusedops::attention
