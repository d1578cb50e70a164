// The template parameters of the norm kernels, and the numbers they are called with.
#pragma once

#include "kernels/norm.h"
#include "kernels/vector.cuh"
#include "platform/warp.h"

namespace fusedops::kernels::norm_detail {

// NormTensors with a known element type.
template <class T>
struct Tensors {
  const T *x, *bias, *residual, *gamma, *beta;
  T *y, *sum;
};

// What is added to x: nothing; the residual (and, if centered, the bias); or every tensor that is
// not null.
enum class Adds { nothing, residual, any };

// What a kernel computes.
template <class Type, bool kCenteredNorm, Adds kWhatIsAdded>
struct Formula {
  using T = Type;
  static constexpr bool kCentered = kCenteredNorm;
  static constexpr Adds kAdds = kWhatIsAdded;

  FUSEDOPS_DEVICE static bool adds_residual(const Tensors<T>& t) {
    return kAdds == Adds::any ? t.residual != nullptr : kAdds == Adds::residual;
  }
  FUSEDOPS_DEVICE static bool adds_bias(const Tensors<T>& t) {
    return kAdds == Adds::any ? t.bias != nullptr : kAdds == Adds::residual && kCentered;
  }
};

constexpr int kNarrowBlock = 128;  // threads of a block whose rows are narrower than a warp

// How a kernel uses threads, registers and blocks.
template <int kVectorsOfThread, int kMostThreads, int kColumnsPrefetched>
struct Schedule {
  static constexpr int kVectors = kVectorsOfThread;
  static constexpr int kMost = kMostThreads;  // threads of a block that share a row
  // A thread prefetches gamma, beta and bias for so many of its vectors.
  static constexpr int kPrefetched = kColumnsPrefetched;
  static constexpr bool kNarrow = kMost <= warp::kWidth;  // several rows share a block
  static constexpr int kBlock = kNarrow ? kNarrowBlock : kMost;
  static constexpr int kBlocks = 1;         // blocks of a multiprocessor, at least
  static constexpr bool kClusters = false;  // the threads of a cluster share a row
  static constexpr bool kPacked = false;    // 16-bit elements stay packed in registers
  static constexpr bool kKeeps = false;     // clusters keep gamma, beta and bias for all their rows
};
template <int kCount, class S>
struct WithBlocks : S {
  static constexpr int kBlocks = kCount;
};
template <class S>
struct InClusters : S {
  static constexpr bool kClusters = true;
};
template <class S>
struct StayPacked : S {
  static constexpr bool kPacked = true;
};
template <class S>
struct KeepsColumns : S {
  static constexpr bool kKeeps = true;
};

// How rows lie in memory.
enum class RowLayout {
  whole,    // rows are whole vectors
  shifted,  // rows are longer than a vector, but not whole vectors
  any
};

// n, 1/n and eps, where n is the number of columns.
template <class A>
struct Constants {
  A n, inverse_n, eps;

  // sum / n, correctly rounded in nearly all cases, so that a row of equal numbers has that number
  // as mean. NaN for an infinite sum.
  FUSEDOPS_DEVICE A exact_mean(A sum) const {
    const A q = sum * inverse_n;
    return fma(fma(-q, n, sum), inverse_n, q);
  }
};

// An element x becomes (x - mean) scale.
template <class A>
struct Scale {
  A mean, scale;
};

}  // namespace fusedops::kernels::norm_detail
