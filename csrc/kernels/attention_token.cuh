// The token of a decode step. Its rotated query is for all warps of the block; one block of each
// head appends its key and value to the cache.
#pragma once

#include "kernels/attention_scores.cuh"
#include "kernels/rotation.cuh"

namespace fusedops::attention {

// The heads of a block: the query heads that share a head of the cache, or a chunk of them.
struct BlockHeads {
  int batch, kv_head;
  int chunk;
  int head;   // first query head of the chunk
  int heads;  // query heads of the chunk
};

// The block's heads by its place in the grid: x shares the keys, y is the heads, z the sequence.
FUSEDOPS_DEVICE BlockHeads block_heads(int group, int chunks) {
  const int y = static_cast<int>(blockIdx.y), kv_head = chunks > 1 ? y / chunks : y;
  const int chunk = y - kv_head * chunks, before = chunk * kHeads;
  return {static_cast<int>(blockIdx.z), kv_head, chunk, kv_head * group + before,
          min(group - before, kHeads)};
}

template <class T>
FUSEDOPS_DEVICE T* cache_row(void* data, const kernels::Attention& call, const BlockHeads& block,
                             int position) {
  const unsigned head = block.batch * call.kv_heads + block.kv_head;
  const std::uint64_t rows = std::uint64_t{head} * static_cast<unsigned>(call.cache.capacity);
  return static_cast<T*>(data) + (rows + position) * static_cast<unsigned>(call.cache.row);
}

// The token in shared memory: rows of k, v and the heads of q, rotated, as the cache stores them.
template <class T, int D>
struct Token {
  static constexpr int kKey = 0, kValue = 1, kQuery = 2, kRows = kQuery + kHeads;
  static constexpr int kStride = D + kLanes<T>;  // puts rows into different banks
  alignas(kVectorBytes) T row[kRows][kStride];
};

// The part of the token that a thread makes: one pair of elements in some of the rows.
template <class T, int D, int kThreads>
class TokenPart {
 public:
  // Reads nothing that another kernel has written.
  FUSEDOPS_DEVICE TokenPart(const kernels::Attention& call, double log2_step) {
    const int half = call.rotary_dim / 2, pair = threadIdx.x % kPairs;
    rotates_ = pair < half;
    const bool apart = rotates_ && !call.interleaved;
    first_ = apart ? pair : 2 * pair;
    second_ = apart ? pair + half : 2 * pair + 1;
    if (rotates_) per_position_ = angle_per_position(log2_step, pair);
  }

  // Starts to load the elements.
  FUSEDOPS_DEVICE void fetch(const kernels::Attention& call, const T* qkv,
                             const BlockHeads& block) {
    const int dim = call.head_dim;
    const unsigned packed = (call.heads + 2 * call.kv_heads) * dim;
    qkv += std::uint64_t{packed} * static_cast<unsigned>(block.batch);
    rows_ = TokenRows::kQuery + block.heads;
#pragma unroll
    for (int i = 0; i < kMost; ++i) {
      const int row = row_of(i);
      const int head = row >= TokenRows::kQuery ? block.head + row - TokenRows::kQuery
                                                : call.heads + row * call.kv_heads + block.kv_head;
      const T* const from = qkv + head * dim;
      x_[i][0] = x_[i][1] = T{};
      if (row < rows_ && first_ < dim) x_[i][0] = from[first_];
      if (row < rows_ && second_ < dim) x_[i][1] = from[second_];
    }
  }

  // Rotates every row except v, and writes it to `token`. Rows of missing heads are left as
  // they are: nothing uses them.
  FUSEDOPS_DEVICE void make(Token<T, D>& token, int position) {
    Rotation<float> by{1, 0};
    if (rotates_) by = rotation_by<float>(per_position_ * static_cast<Angle>(position));
#pragma unroll
    for (int i = 0; i < kMost; ++i) {
      const int row = row_of(i);
      if (row >= rows_) break;
      float first = widen(x_[i][0]), second = widen(x_[i][1]);
      if (rotates_ && row != TokenRows::kValue) {
        const float x = first;
        first = fmaf(x, by.cos, -(second * by.sin));
        second = fmaf(second, by.cos, x * by.sin);
      }
      token.row[row][first_] = narrow<T>(first);
      token.row[row][second_] = narrow<T>(second);
    }
  }

 private:
  using TokenRows = Token<T, D>;
  static constexpr int kPairs = D / 2, kRowsAtOnce = kThreads / kPairs;
  static constexpr int kMost = (TokenRows::kRows + kRowsAtOnce - 1) / kRowsAtOnce;
  static_assert(kThreads % kPairs == 0);

  FUSEDOPS_DEVICE static int row_of(int i) {
    return static_cast<int>(threadIdx.x) / kPairs + i * kRowsAtOnce;
  }

  int rows_;
  bool rotates_;
  int first_, second_;  // columns of the pair
  Angle per_position_ = 0;
  T x_[kMost][2];
};

}  // namespace fusedops::attention
