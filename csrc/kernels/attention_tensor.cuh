// A warp's share of a decode step on tensor cores, for 16-bit elements.
//
// The products are transposed: scores [16 keys, 8 heads] = K q, then out [dims, 8 heads] += V^T
// weights. So the query heads are padded to 8, not to 16.
#pragma once

#include "kernels/attention_merge.cuh"
#include "kernels/attention_tiles.cuh"
#include "platform/tensor_core.h"

namespace fusedops::attention {

template <class T, int D, int kTiles>
class TensorEngine {
 public:
  static constexpr int kKeys = 16 * kTiles;  // keys that a warp takes at a time

  FUSEDOPS_DEVICE TensorEngine(const Token<T, D>& token, const Scores<T>& scores) {
    const shared::Address query =
        shared::address_of(&token.row[Token<T, D>::kQuery + lane() % 8][lane() / 8 * 8]);
#pragma unroll
    for (int i = 0; i < D / 16; i += 2) {
      unsigned words[4];
      tensor_core::load_matrices(words, query + i * 32);
      query_[i][0] = words[0], query_[i][1] = words[1];
      query_[i + 1][0] = words[2], query_[i + 1][1] = words[3];
    }
    slope_[0] = scores.slope(2 * t_);
    slope_[1] = scores.slope(2 * t_ + 1);
  }

  // Computes the scores of a tile of keys.
  FUSEDOPS_DEVICE void take_keys(const Tile& tile) {
#pragma unroll
    for (int i = 0; i < kTiles; ++i) products(z_[i], tile.at + i * kRows16);
  }

  // Turns the scores into weights; the tile's first key is `key`.
  FUSEDOPS_DEVICE void weigh(const Scores<T>& scores, int key) {
    float (&z)[kTiles][4] = z_;
    if (scores.biased()) {
      float* const all = &z[0][0];
#pragma unroll 1
      for (int i = 0; i < kTiles * 4; ++i) {  // rotates through `all`, so that the code exists once
        const int h = i % 2, at = key + i / 2 * 8 + g_;
        const float bias = scores.bias(h == 0 ? slope_[0] : slope_[1], 2 * t_ + h, at);
        const float first = scores.value(all[0], bias, at);
#pragma unroll
        for (int j = 0; j + 1 < kTiles * 4; ++j) all[j] = all[j + 1];
        all[kTiles * 4 - 1] = first;
      }
    } else {
#pragma unroll
      for (int i = 0; i < kTiles; ++i) {
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          z[i][j] = scores.value(z[i][j], key + i * 16 + j / 2 * 8 + g_);
        }
      }
    }
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float top = top_[h];
#pragma unroll
      for (int i = 0; i < kTiles; ++i) top = fmaxf(top, fmaxf(z[i][h], z[i][2 + h]));
      top = over_keys(top, Max{});
      const float fade = weight(top_[h], base_of(top));
      top_[h] = top;
      sum_[h] *= fade;
#pragma unroll
      for (int m = 0; m < D / 16; ++m) {
        out_[m][h] *= fade;
        out_[m][2 + h] *= fade;
      }
    }
#pragma unroll
    for (int i = 0; i < kTiles; ++i) {
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        z[i][j] = weight(z[i][j], base_of(top_[j % 2]));
        sum_[j % 2] += z[i][j];
      }
      weights_[i][0] = tensor_core::transpose(pair(z[i][0], z[i][1]));
      weights_[i][1] = tensor_core::transpose(pair(z[i][2], z[i][3]));
    }
  }

  // Adds the tile's values times their weights.
  FUSEDOPS_DEVICE void take_values(const Tile& tile) {
    const int row = lane() % 8 + lane() / 16 * 8, odd = lane() / 8 % 2;
#pragma unroll
    for (int i = 0; i < kTiles; ++i) {
#pragma unroll
      for (int m = 0; m < D / 16; ++m) {
        unsigned words[4];
        tensor_core::load_matrices<true>(words, tile.at + i * kRows16 + place(row, odd, m));
        tensor_core::multiply_add<T>(out_[m], words, weights_[i]);
      }
    }
  }

  // Writes the warp's result.
  FUSEDOPS_DEVICE void write(WarpResult<D>& result) const {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const float sum = over_keys(sum_[h], Sum{});
      if (g_ == 0) result.peak[2 * t_ + h] = {top_[h], sum};
    }
#pragma unroll
    for (int m = 0; m < D / 16; ++m) {
#pragma unroll
      for (int i = 0; i < 4; ++i) result.out[2 * t_ + i % 2][m * 16 + i / 2 * 8 + g_] = out_[m][i];
    }
  }

 private:
  static constexpr int kVectors = D / 8;
  static constexpr int kRows16 = 16 * kVectors * kVectorBytes;

  FUSEDOPS_DEVICE static int lane() { return static_cast<int>(threadIdx.x % warp::kWidth); }

  // vector_place of vector 2 pair + odd.
  FUSEDOPS_DEVICE static int place(int row, int odd, int pair) {
    const int begin = vector_place<kVectors>(row, odd);
    return (begin ^ (pair % 4 * 2 * kVectorBytes)) + pair / 4 * 8 * kVectorBytes;
  }

  // The scores of 16 keys: keys g, g + 8 and heads 2t, 2t + 1. Two independent sums halve the wait.
  FUSEDOPS_DEVICE void products(float (&z)[4], shared::Address tile) const {
    float other[4] = {};
#pragma unroll
    for (int i = 0; i < 4; ++i) z[i] = 0;
#pragma unroll
    for (int k = 0; k < D / 16; ++k) {
      unsigned words[4];
      tensor_core::load_matrices(words, tile + place(lane() % 16, lane() / 16, k));
      tensor_core::multiply_add<T>(k % 2 == 0 ? z : other, words, query_[k]);
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) z[i] += other[i];
  }

  FUSEDOPS_DEVICE static unsigned pair(float low, float high) {
    const T lanes[2] = {narrow<T>(low), narrow<T>(high)};
    unsigned word;
    memcpy(&word, lanes, sizeof(word));
    return word;
  }

  // Reduces over the threads that hold other keys of the same heads.
  template <class Op>
  FUSEDOPS_DEVICE static float over_keys(float value, Op op) {
#pragma unroll
    for (int mask = 4; mask < warp::kWidth; mask *= 2) {
      value = op(value, warp::shuffle_xor(value, mask));
    }
    return value;
  }

  int g_ = lane() / 4, t_ = lane() % 4;  // named as in tensor_core.h
  unsigned query_[D / 16][2];
  float slope_[2];
  float z_[kTiles][4];
  unsigned weights_[kTiles][2];
  float out_[D / 16][4] = {};
  float top_[2] = {kNothing<float>, kNothing<float>};
  float sum_[2] = {};
};

}  // namespace fusedops::attention
