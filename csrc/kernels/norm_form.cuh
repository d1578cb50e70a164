// What the norm kernels are compiled for, and the numbers they are called with.
#pragma once

#include "kernels/norm.h"
#include "kernels/vector.cuh"
#include "platform/warp.h"

namespace fusedops::kernels::norm_detail {

// NormTensors of a known type.
template <class T>
struct Tensors {
  const T *x, *bias, *residual, *gamma, *beta;
  T *y, *sum;
};

// What is added to x: nothing, residual (and bias, if centered), or whatever is not null.
enum class Adds { nothing, residual, any };

// What a kernel computes.
template <class Type, bool kCenteredNorm, Adds kWhatIsAdded>
struct Form {
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

constexpr int kNarrowBlock = 128;  // threads of a block of rows that are parts of a warp

// How a kernel is laid out.
template <int kVectorsOfThread, int kMostThreads, int kBlocksOfMostThreads, int kColumnsAhead,
          bool kSeveralBlocks = false, bool kPackedElements = false>
struct Shape {
  static constexpr int kVectors = kVectorsOfThread;
  static constexpr int kMost = kMostThreads;              // of a block that share a row
  static constexpr bool kNarrow = kMost <= warp::kWidth;  // several rows share a block
  static constexpr int kBlock = kNarrow ? kNarrowBlock : kMost;
  static constexpr int kBlocks = kBlocksOfMostThreads;  // of a multiprocessor, at least
  // A thread asks for the gamma, beta and bias of so many vectors before it wants the first.
  static constexpr int kAhead = kColumnsAhead;
  static constexpr bool kClusters = kSeveralBlocks;  // share a row
  static constexpr bool kPacked = kPackedElements;   // 16-bit elements stay so in the registers
};

// Where rows lie.
enum class Rows {
  whole,    // they are whole vectors
  shifted,  // they are not, and longer than one
  any
};

// n, 1/n and eps.
template <class A>
struct Constants {
  A n, inverse_n, eps;

  // sum / n, nearly always correctly rounded, so that a row of equal numbers has that mean. Of an
  // infinite sum it is NaN.
  FUSEDOPS_DEVICE A exact_mean(A sum) const {
    const A q = sum * inverse_n;
    return fma(fma(-q, n, sum), inverse_n, q);
  }
};

// A row's elements x become (x - mean) scale.
template <class A>
struct Scale {
  A mean, scale;
};

}  // namespace fusedops::kernels::norm_detail
