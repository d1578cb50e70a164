// to[b, h, t, :] = from[b, t, h, :] and zeros after it: heads of head_bytes bytes, at any strides,
// become a contiguous [batch, heads, tokens, padded_bytes] tensor.
#include "kernels/layout.h"
#include "kernels/tiling.h"
#include "kernels/vector.cuh"
#include "platform/overlap.h"

namespace fusedops::kernels {
// A named namespace: nvcc names an anonymous one after the source's folder, so another folder would
// give another wheel.
namespace layout_detail {

constexpr int kPerThread = 2;  // vectors of a thread in flight

// A vector that is written at once, of granules that are read at once.
template <int kBytes>
struct alignas(kVectorBytes) Whole {
  Granule<kBytes> granule[kVectorBytes / kBytes];
};

// Threads: x along the vectors of a padded head, y along the heads. Heads are taken in the order
// [batch, tokens, heads], as they lie in the input: reads may then end within a sector, while
// writes are whole sectors.
template <int kBytes>
__global__ void __launch_bounds__(kThreads)
    pad_kernel(char* to, const char* from, const PadHeads p, unsigned rows, const Divisor heads,
               const Divisor tokens) {
  const int at = static_cast<int>(threadIdx.x) * kVectorBytes;
  const unsigned first = blockIdx.x * (blockDim.y * kPerThread) + threadIdx.y;
  Whole<kBytes> whole[kPerThread] = {};
  std::int64_t place[kPerThread];
  overlap::wait_in_turn();
#pragma unroll
  for (int k = 0; k < kPerThread; ++k) {
    // Threads past the last head read it again and do not write. A branch would separate the loads.
    const unsigned row = min(first + k * blockDim.y, rows - 1);
    const unsigned position = heads.quotient(row), head = row - position * heads.by;
    const unsigned sequence = tokens.quotient(position), token = position - sequence * tokens.by;
    const char* const in =
        from + sequence * p.batch_stride + token * p.token_stride + head * p.head_stride + at;
    place[k] = ((sequence * p.heads + head) * p.tokens + token) * p.padded_bytes + at;
#pragma unroll
    for (int i = 0; i < kVectorBytes / kBytes; ++i) {
      if (at + i * kBytes < p.head_bytes) {
        whole[k].granule[i] = *reinterpret_cast<const Granule<kBytes>*>(in + i * kBytes);
      }
    }
  }
#pragma unroll
  for (int k = 0; k < kPerThread; ++k) {
    if (first + k * blockDim.y < rows) {
      *reinterpret_cast<Whole<kBytes>*>(to + place[k]) = whole[k];
    }
  }
}

template <int kBytes>
gpu::Status launch(const PadHeads& call, void* to, const void* from, gpu::Stream stream) {
  const std::int64_t rows = call.batch * call.tokens * call.heads;
  const unsigned width = call.padded_bytes / kVectorBytes, height = kThreads / width;
  return overlap::launch(&pad_kernel<kBytes>, ceil_div(rows, height * kPerThread),
                         dim3(width, height), stream, static_cast<char*>(to),
                         static_cast<const char*>(from), call, static_cast<unsigned>(rows),
                         Divisor(call.heads), Divisor(call.tokens));
}

}  // namespace layout_detail

using namespace layout_detail;

gpu::Status pad_heads(const PadHeads& call, void* to, const void* from, gpu::Stream stream) {
  // The lowest bit set in any of these is the widest possible read.
  const auto bits = reinterpret_cast<std::uintptr_t>(from) | call.head_bytes | call.batch_stride |
                    call.token_stride | call.head_stride;
  if (bits % 16 == 0) return launch<16>(call, to, from, stream);
  if (bits % 8 == 0) return launch<8>(call, to, from, stream);
  if (bits % 4 == 0) return launch<4>(call, to, from, stream);
  return launch<2>(call, to, from, stream);
}

TORCHWHEEL_EXPORT(pad_heads)

}  // namespace fusedops::kernels
