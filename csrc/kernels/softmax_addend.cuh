// What is added to the scores of a row that stays in registers: a mask, and the slopes of alibi.
#pragma once

#include "kernels/divisor.h"
#include "kernels/softmax_row.cuh"

namespace fusedops::softmax_row {

// y = 2^(factor (z - max z)) / sum, z = scale score + alibi + mask; where nothing is added but
// slopes the factor has the scale in it, and z = score + alibi / scale.
struct Job {
  Sight<int> sight;
  Divisor inner, outer;  // rows are taken for each batch, outer and inner
  bool heads_inside;     // inner are the heads, so that the heads that share a
                         // mask's row run together and it is read from memory once; else the
                         // queries
  bool alike;            // all rows are
  unsigned together;     // rows that the same threads take, one after another
  float scale, factor;
  float slopes;  // what they are multiplied by
  Beside mask, alibi;

  FUSEDOPS_DEVICE Place<unsigned> place(unsigned at) const {
    if (alike) return {0, 0, 0};
    const unsigned rest = inner.quotient(at), in = at - rest * inner.by;
    const unsigned batch = outer.quotient(rest), out = rest - batch * outer.by;
    return heads_inside ? Place<unsigned>{batch, in, out} : Place<unsigned>{batch, out, in};
  }
  FUSEDOPS_DEVICE unsigned row(unsigned at, const Place<unsigned>& place) const {
    return heads_inside ? (place.batch * inner.by + place.head) * outer.by + place.query : at;
  }
};

// What is added. ragged: nothing, but queries see different keys. From like_scores on: a mask of
// that type, which is read in vectors where the scores are, and perhaps slopes; boolean: or no
// mask; any: a mask that is read one by one, or none.
enum class Form { plain, ragged, like_scores, float32, boolean, any };

// Of one row, whose vectors begin `head` keys after the first that is seen.
template <class T, Form kForm>
class Addend {
  static_assert(kForm != Form::float32 && kForm != Form::boolean, "these are fetched ahead");
  static constexpr int V = kLanes<T>;
  using Type = Beside::Type;

 public:
  FUSEDOPS_DEVICE Addend(const Job& job, const Place<unsigned>& place, const Keys<int>& seen,
                         int head)
      : job_(job), head_(head), last_(seen.end - seen.first - 1) {
    if constexpr (kForm <= Form::ragged) return;
    const std::int64_t first = start(job.mask, place) + seen.first;
    const std::int64_t size = job.mask.type == Type::boolean   ? sizeof(bool)
                              : job.mask.type == Type::float32 ? sizeof(float)
                                                               : sizeof(T);
    mask_ = static_cast<const char*>(job.mask.data) + first * size;
    sloped_ = job.alibi.type != Type::none;
    if (sloped_) slope_ = slope_of<T>(job.alibi, place.head);
  }

  // Widens vector v of the row, and adds to it. Where there is none it is -inf.
  FUSEDOPS_DEVICE void complete(float (&z)[V], const Words& raw, unsigned v,
                                unsigned vectors) const {
    widen<T>(z, raw);
    if constexpr (kForm <= Form::ragged) return;
    const int column = head_ + static_cast<int>(v) * V;
    if constexpr (kForm == Form::any) {
      if (job_.mask.type == Type::none) {
#pragma unroll
        for (float& each : z) each *= job_.scale;
      } else if (v < vectors) {
        // At 16 bits so many loads pay for a branch, and take less code.
        constexpr int kAtOnce = sizeof(T) < sizeof(float) ? V : 1;
#pragma unroll
        for (int i = 0; i < V; i += kAtOnce) masked<kAtOnce>(&z[i], column + i);
      }
    } else {
      using Masks = Neighbours<T, V>;
      Masks mask{};
      if (v < vectors) mask = Masks::read(reinterpret_cast<const T*>(mask_) + column);
      const auto lanes = mask.lanes();
#pragma unroll
      for (int i = 0; i < V; ++i) z[i] = with_mask(job_.scale, z[i], lanes.each[i]);
    }
    if (!sloped_) return;
    const auto from_last = static_cast<float>(column - last_);
#pragma unroll
    for (int i = 0; i < V; ++i) z[i] = fmaf(slope_, from_last + static_cast<float>(i), z[i]);
  }

  // The same for one element.
  FUSEDOPS_DEVICE float complete(float z, int column) const {
    if constexpr (kForm <= Form::ragged) return z;
    masked<1>(&z, column);
    // The alibi of a key, less that of the row's last: the numbers stay small.
    return sloped_ ? fmaf(slope_, static_cast<float>(column - last_), z) : z;
  }

  // What has been read is read again, and not before `after` is known.
  FUSEDOPS_DEVICE void forget(float after) {
    if constexpr (kForm > Form::ragged) mask_ += math::unknown_zero(after);
  }

 private:
  template <int kCount>
  FUSEDOPS_DEVICE void masked(float* z, int column) const {
    switch (job_.mask.type) {
      case Type::like_scores:
        return add<T, kCount>(z, column);
      case Type::float32:
        return add<float, kCount>(z, column);
      case Type::boolean:
        return add<bool, kCount>(z, column);
      default:
#pragma unroll
        for (int i = 0; i < kCount; ++i) z[i] *= job_.scale;
    }
  }
  template <class M, int kCount>
  FUSEDOPS_DEVICE void add(float* z, int column) const {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      z[i] = with_mask(job_.scale, z[i], reinterpret_cast<const M*>(mask_)[column + i]);
    }
  }

  const Job& job_;
  int head_, last_;
  const char* mask_ = nullptr;  // that of the first key that is seen
  bool sloped_ = false;
  float slope_ = 0;
};

}  // namespace fusedops::softmax_row
