// Reductions over the threads that share a row.
#pragma once

#include <limits>

#include "platform/warp.h"

namespace fusedops {

struct Sum {
  template <class T>
  FUSEDOPS_DEVICE static T identity() {
    return T{};
  }
  template <class T>
  FUSEDOPS_DEVICE T operator()(T a, T b) const {
    return a + b;
  }
};

// The maximum of a number and a NaN is the number.
struct Max {
  template <class T>
  FUSEDOPS_DEVICE static T identity() {
    constexpr T kLowest = -std::numeric_limits<T>::infinity();
    return kLowest;
  }
  template <class T>
  FUSEDOPS_DEVICE T operator()(T a, T b) const {
    return fmax(a, b);
  }
};

// Two values that are reduced together, with one barrier instead of two.
template <class T>
struct Two {
  T first, second;
  FUSEDOPS_DEVICE Two operator+(const Two& other) const {
    return {first + other.first, second + other.second};
  }
};

constexpr int kMostWarps = 1024 / warp::kWidth;  // of a block

// Combines the values of the block's `threads` threads, a multiple of a warp's width, and returns
// the result in each of them. A smaller kMostThreads takes fewer steps.
//
// `shared` has room for kMostWarps values. It may be written again after the block's next barrier:
// two reductions in a row need two such arrays and no barrier of their own.
template <class Op, int kMostThreads = kMostWarps * warp::kWidth, class T>
FUSEDOPS_DEVICE T reduce_block(T value, int threads, T* shared) {
  constexpr int kWarps = kMostThreads / warp::kWidth;
  static_assert((kWarps & (kWarps - 1)) == 0, "a power of two");
  value = warp::reduce(value, warp::kWidth, Op{});
  const int thread = static_cast<int>(threadIdx.x);
  if (thread % warp::kWidth == 0) shared[thread / warp::kWidth] = value;
  __syncthreads();
  const int other = thread % kWarps;
  value = other < threads / warp::kWidth ? shared[other] : Op::template identity<T>();
  return warp::reduce(value, kWarps, Op{});
}

// Combines the values of the `threads` threads of a row, threadIdx.x from 0 on, and returns the
// result in each of them. Either `threads` is a power of two up to a warp's width, and such rows
// fill the block's warps; or the block is one row, with threads as reduce_block requires.
template <class Op, class T>
FUSEDOPS_DEVICE T reduce_row(T value, int threads, T* shared) {
  return threads > warp::kWidth ? reduce_block<Op>(value, threads, shared)
                                : warp::reduce(value, threads, Op{});
}

}  // namespace fusedops
