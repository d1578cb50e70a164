// What softmax is taken of: the parameters of a call, and the sum of a row's scores, mask and
// alibi.
#pragma once

#include "kernels/softmax.h"
#include "kernels/softmax_row.cuh"
#include "kernels/tiling.h"

namespace fusedops::softmax_row {

// The parameters of a launch: y = 2^(factor (z - max z)) / sum, where z = scale score + alibi +
// mask. Where only slopes are added the factor contains the scale, and z = score + alibi / scale.
//
// Rows are numbered batch by batch, over `outer`, then `inner`. If heads are inside, heads that
// share a mask's row run together, and that row is read from memory once.
struct SoftmaxParams {
  Visibility<int> visibility;
  Divisor inner, outer;  // the numbers of heads and queries
  bool heads_inside;     // `inner` counts heads, `outer` queries; else the other way round
  bool alike;            // all rows see the same keys
  unsigned together;     // rows that the same threads compute, one after another
  float scale, factor;
  float slopes;  // a factor of the slopes
  ScoreBias mask, alibi;

  FUSEDOPS_DEVICE RowIndex<unsigned> index(unsigned at) const {
    if (alike) return {0, 0, 0};
    const unsigned rest = inner.quotient(at), in = at - rest * inner.by;
    const unsigned batch = outer.quotient(rest), out = rest - batch * outer.by;
    return heads_inside ? RowIndex<unsigned>{batch, in, out} : RowIndex<unsigned>{batch, out, in};
  }
  // The index of the row's first score.
  FUSEDOPS_DEVICE std::int64_t first(unsigned at, const RowIndex<unsigned>& index) const {
    const unsigned row =
        heads_inside ? (index.batch * inner.by + index.head) * outer.by + index.query : at;
    return static_cast<std::int64_t>(row) * visibility.keys;
  }
};

// What is added to the scores. plain: nothing; ragged: nothing, but queries see different keys.
// From like_scores on there is a mask of the named type, read in vectors like the scores, and there
// may be slopes. `boolean` also serves slopes without a mask. any: a mask that is read element by
// element, or none.
enum class Masking { plain, ragged, like_scores, float32, boolean, any };

// The element type of the mask.
template <class T, Masking kMasking>
using MaskOf = std::conditional_t<kMasking == Masking::boolean, bool,
                                  std::conditional_t<kMasking == Masking::float32, float, T>>;

template <int V>
FUSEDOPS_DEVICE float largest(const float (&z)[V]) {
  float most = z[0];
#pragma unroll
  for (int i = 1; i < V; ++i) most = fmaxf(most, z[i]);
  return most;
}

template <int V>
FUSEDOPS_DEVICE float sum_of(const float (&z)[V]) {
  float sum = 0;
#pragma unroll
  for (const float each : z) sum += each;
  return sum;
}

template <int V>
FUSEDOPS_DEVICE void scale(float (&z)[V], float by) {
#pragma unroll
  for (float& each : z) each *= by;
}

// What is added to one row, whose vectors begin `head` keys after the first visible key. With
// kAround a mask that starts anywhere is read in the vectors around those of the scores, not
// element by element; that takes more registers.
template <class T, Masking kMasking, bool kAround = false>
class Addend {
  static constexpr int V = kLanes<T>;
  using Type = ScoreBias::Type;

 public:
  FUSEDOPS_DEVICE Addend(const SoftmaxParams& params, const RowIndex<unsigned>& index,
                         const KeyRange<int>& seen, int head)
      : params_(params), head_(head), last_(seen.end - seen.first - 1) {
    if constexpr (kMasking <= Masking::ragged) return;
    const std::int64_t first = start(params.mask, index) + seen.first;
    const std::int64_t size = params.mask.type == Type::boolean   ? sizeof(bool)
                              : params.mask.type == Type::float32 ? sizeof(float)
                                                                  : sizeof(T);
    mask_ = static_cast<const char*>(params.mask.data) + first * size;
    sloped_ = params.alibi.type != Type::none;
    if (sloped_) slope_ = slope_of<T>(params.alibi, index.head);
  }

  using M = MaskOf<T, kMasking>;
  using Masks = Neighbours<M, V>;

  // The mask of vector v of the row, if it is read in vectors.
  FUSEDOPS_DEVICE Masks read(unsigned v, unsigned vectors) const {
    constexpr bool kInVectors = kMasking > Masking::ragged && kMasking != Masking::any;
    if (!kInVectors || params_.mask.type == Type::none || v >= vectors) return {};
    return Masks::read(reinterpret_cast<const M*>(mask_) + head_ + static_cast<int>(v) * V);
  }

  // Widens vector v of the row and adds to it. A missing vector becomes -inf.
  FUSEDOPS_DEVICE void complete(float (&z)[V], const Packed& raw, unsigned v,
                                unsigned vectors) const {
    complete(z, raw, v, vectors, read(v, vectors));
  }
  FUSEDOPS_DEVICE void complete(float (&z)[V], const Packed& raw, unsigned v, unsigned vectors,
                                const Masks& mask) const {
    widen<T>(z, raw);
    if constexpr (kMasking <= Masking::ragged) return;
    const int column = head_ + static_cast<int>(v) * V;
    if (params_.mask.type == Type::none) {
      scale(z, params_.scale);
    } else if constexpr (kMasking == Masking::any) {
      // Between two vectors of the row it may read the mask's vectors around this one.
      if (kAround && vectors > 2 && v - 1 < vectors - 2) {
        around(z, column);
      } else if (v < vectors) {
        masked<V>(z, column);
      }
    } else {
      const auto lanes = mask.lanes();
#pragma unroll
      for (int i = 0; i < V; ++i) z[i] = with_mask(params_.scale, z[i], lanes.each[i]);
    }
    if (!sloped_) return;
    const auto from_last = static_cast<float>(column - last_);
#pragma unroll
    for (int i = 0; i < V; ++i) z[i] = fmaf(slope_, from_last + static_cast<float>(i), z[i]);
  }

  // The same for one element.
  FUSEDOPS_DEVICE float complete(float z, int column) const {
    if constexpr (kMasking <= Masking::ragged) return z;
    masked<1>(&z, column);
    // Alibi is taken relative to the row's last key, so that the numbers stay small.
    return sloped_ ? fmaf(slope_, static_cast<float>(column - last_), z) : z;
  }

  // Makes the compiler read the mask again instead of keeping it, after `after` is known.
  FUSEDOPS_DEVICE void forget(float after) {
    if constexpr (kMasking > Masking::ragged) mask_ += math::unknown_zero(after);
  }

 private:
  // Adds a mask that starts anywhere to the vector from `column` on.
  FUSEDOPS_DEVICE void around(float (&z)[V], int column) const {
    if (params_.mask.type == Type::like_scores) return add_around<T>(z, column);
    if (params_.mask.type == Type::float32) return add_around<float>(z, column);
#pragma unroll
    for (int i = 0; i < V; i += 4) {
      const auto address = reinterpret_cast<std::uintptr_t>(mask_) + column + i;
      const unsigned off = address % 4;
      const auto* const words = reinterpret_cast<const unsigned*>(address - off);
      const std::uint64_t both = words[0] | std::uint64_t{words[off == 0 ? 0 : 1]} << 32;
      const auto four = static_cast<unsigned>(both >> 8 * off);
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        z[i + j] = with_mask(params_.scale, z[i + j], (four >> 8 * j & 1) != 0);
      }
    }
  }
  template <class M>
  FUSEDOPS_DEVICE void add_around(float (&z)[V], int column) const {
#pragma unroll
    for (int i = 0; i < V; i += kLanes<M>) {
      const Vector<M> mask = load_anywhere(reinterpret_cast<const M*>(mask_) + column + i);
#pragma unroll
      for (int j = 0; j < kLanes<M>; ++j) {
        z[i + j] = with_mask(params_.scale, z[i + j], mask.lane[j]);
      }
    }
  }
  template <int kCount>
  FUSEDOPS_DEVICE void masked(float* z, int column) const {
    switch (params_.mask.type) {
      case Type::like_scores:
        return add<T, kCount>(z, column);
      case Type::float32:
        return add<float, kCount>(z, column);
      case Type::boolean:
        return add<bool, kCount>(z, column);
      default:
#pragma unroll
        for (int i = 0; i < kCount; ++i) z[i] *= params_.scale;
    }
  }
  template <class M, int kCount>
  FUSEDOPS_DEVICE void add(float* z, int column) const {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      z[i] = with_mask(params_.scale, z[i], reinterpret_cast<const M*>(mask_)[column + i]);
    }
  }

  const SoftmaxParams& params_;
  int head_, last_;
  const char* mask_ = nullptr;  // the mask at the first visible key
  bool sloped_ = false;
  float slope_ = 0;
};

}  // namespace fusedops::softmax_row

namespace fusedops::kernels {
// A named namespace: nvcc names an anonymous one after the source's folder, so another folder would
// give another wheel.
namespace softmax_detail {

using namespace softmax_row;

inline bool shares_mask(const Softmax& call) {
  return call.mask.type != ScoreBias::Type::none && call.mask.head == 0 && call.heads > 1;
}

inline bool is_plain(const Softmax& call) {
  return call.mask.type == ScoreBias::Type::none && call.alibi.type == ScoreBias::Type::none;
}

inline SoftmaxParams params_of(const Softmax& call, bool heads_inside, unsigned together) {
  const bool plain = is_plain(call);
  return {Visibility<int>(call),
          Divisor(heads_inside ? call.heads : call.queries),
          Divisor(heads_inside ? call.queries : call.heads),
          heads_inside,
          plain && !call.causal && call.window == 0,
          together,
          static_cast<float>(call.scale),
          static_cast<float>(plain ? kLog2E * call.scale : kLog2E),
          1.0f,
          call.mask,
          call.alibi};
}

}  // namespace softmax_detail
}  // namespace fusedops::kernels
