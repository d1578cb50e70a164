// What the softmax kernels are told of a call.
#pragma once

#include "kernels/softmax.h"
#include "kernels/softmax_kept.cuh"

namespace fusedops::kernels {
// Named: nvcc names an anonymous one after the folder, and the wheel's bytes would follow.
namespace softmax_detail {

using namespace softmax_row;

inline bool shares_mask(const Softmax& call) {
  return call.mask.type != Beside::Type::none && call.mask.head == 0 && call.heads > 1;
}

inline bool is_plain(const Softmax& call) {
  return call.mask.type == Beside::Type::none && call.alibi.type == Beside::Type::none;
}

inline Job job_of(const Softmax& call, bool heads_inside, unsigned together) {
  const bool plain = is_plain(call);
  return {Sight<int>(call),
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

template <class T>
using Kernel = void (*)(T*, const T*, unsigned, Job);

}  // namespace softmax_detail
}  // namespace fusedops::kernels
