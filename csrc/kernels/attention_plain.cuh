// A warp's share of a decode step without tensor cores: for float32, and for GPUs that have none.
//
// Eight threads share two query heads and divide their dimensions among them. Each of the eight
// holds the weights of one key of a tile.
#pragma once

#include "kernels/attention_merge.cuh"
#include "kernels/attention_tiles.cuh"

namespace fusedops::attention {

template <class T, int D>
class PlainEngine {
 public:
  static constexpr int kKeys = 8;  // keys that a warp takes at a time

  FUSEDOPS_DEVICE PlainEngine(const Token<T, D>& token, const Scores<T>& scores) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      slope_[h] = scores.slope(head_ + h);
#pragma unroll
      for (int d = 0; d < kDims; ++d) {
        query_[h][d] = widen(token.row[Token<T, D>::kQuery + head_ + h][dim_of(d)]);
      }
    }
  }

  // Computes the scores of a tile of keys.
  FUSEDOPS_DEVICE void take_keys(const Tile& tile) {
#pragma unroll 2
    for (int k = 0; k < kKeys; ++k) {
      float z[2] = {};
#pragma unroll
      for (int c = 0; c < kAcross; ++c) {
        float in[V];
        widen(in, vector_of(tile, k, c));
#pragma unroll
        for (int i = 0; i < V; ++i) {
          z[0] = fmaf(query_[0][c * V + i], in[i], z[0]);
          z[1] = fmaf(query_[1][c * V + i], in[i], z[1]);
        }
      }
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        z[h] = warp::reduce(z[h], kParts, Sum{});
        if (k == part_) weight_[h] = z[h];
      }
    }
  }

  // Turns the scores into weights; the tile's first key is `key`.
  FUSEDOPS_DEVICE void weigh(const Scores<T>& scores, int key) {
    const bool biased = scores.biased();
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int at = key + part_;
      const float z = biased ? scores.value(weight_[h], scores.bias(slope_[h], head_ + h, at), at)
                             : scores.value(weight_[h], at);
      const float top = fmaxf(top_[h], warp::reduce(z, kParts, Max{}));
      const float fade = weight(top_[h], base_of(top));
      top_[h] = top;
      weight_[h] = weight(z, base_of(top));
      sum_[h] = fmaf(sum_[h], fade, weight_[h]);
#pragma unroll
      for (int d = 0; d < kDims; ++d) out_[h][d] *= fade;
    }
  }

  // Adds the tile's values times their weights.
  FUSEDOPS_DEVICE void take_values(const Tile& tile) {
#pragma unroll 2
    for (int k = 0; k < kKeys; ++k) {
      const float some[2] = {warp::shuffle_xor(weight_[0], part_ ^ k),
                             warp::shuffle_xor(weight_[1], part_ ^ k)};
#pragma unroll
      for (int c = 0; c < kAcross; ++c) {
        float in[V];
        widen(in, vector_of(tile, k, c));
#pragma unroll
        for (int i = 0; i < V; ++i) {
          out_[0][c * V + i] = fmaf(some[0], in[i], out_[0][c * V + i]);
          out_[1][c * V + i] = fmaf(some[1], in[i], out_[1][c * V + i]);
        }
      }
    }
  }

  // Writes the warp's result.
  FUSEDOPS_DEVICE void write(WarpResult<D>& result) const {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const float sum = warp::reduce(sum_[h], kParts, Sum{});
      if (part_ == 0) result.peak[head_ + h] = {top_[h], sum};
#pragma unroll
      for (int d = 0; d < kDims; ++d) result.out[head_ + h][dim_of(d)] = out_[h][d];
    }
  }

 private:
  static constexpr int V = kLanes<T>;
  static constexpr int kParts = 8;  // threads that share a head
  static constexpr int kAcross = D / V / kParts;
  static constexpr int kDims = kAcross * V;  // dimensions of a thread

  FUSEDOPS_DEVICE int dim_of(int d) const { return (d / V * kParts + part_) * V + d % V; }

  FUSEDOPS_DEVICE Vector<T> vector_of(const Tile& tile, int key, int c) const {
    return load(
        reinterpret_cast<const T*>(tile.data + vector_place<D / V>(key, c * kParts + part_)));
  }

  int part_ = threadIdx.x % kParts, head_ = threadIdx.x % warp::kWidth / kParts * 2;
  float query_[2][kDims];
  float slope_[2];
  float weight_[2];
  float out_[2][kDims] = {};
  float top_[2] = {kNothing<float>, kNothing<float>};
  float sum_[2] = {};
};

}  // namespace fusedops::attention
