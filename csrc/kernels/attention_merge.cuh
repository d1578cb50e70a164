// Merges the partial results of the online softmax: first those of a block's warps, then those of
// the blocks that share a sequence. The order is fixed, so two runs give the same bits.
#pragma once

#include "kernels/attention_token.cuh"
#include "platform/cluster.h"

namespace fusedops::attention {

// The maximum of some scores, and the sum of their weights relative to it.
struct alignas(8) HeadPeak {
  float top, sum;
};

// A warp's result: sums of values times weights.
template <int D>
struct WarpResult {
  static constexpr int kStride = D + 4;  // eight banks apart for every two heads
  alignas(kVectorBytes) float out[kHeads][kStride];
  HeadPeak peak[kHeads];
};

// The results of the blocks that share a sequence: in global memory, or in a cluster those for the
// heads of a block in its shared memory.
struct Partials {
  static constexpr int kPeakFloats = 2;  // floats of a head's peak

  float* data;
  int heads, row;

  // The floats of a block's result. Everything but the peaks is whole vectors, so this is too.
  __host__ __device__ static constexpr int floats_of(int heads, int row) {
    return heads * row + (heads * kPeakFloats + 3) / 4 * 4;
  }
  FUSEDOPS_DEVICE int step() const { return floats_of(heads, row); }
  FUSEDOPS_DEVICE float* out(int block, int head) const {
    return data + block * step() + head * row;
  }
  FUSEDOPS_DEVICE HeadPeak& peak(int block, int head) const {
    return *reinterpret_cast<HeadPeak*>(out(block, heads) + head * kPeakFloats);
  }
};

// How many of `heads` heads block number `first` of a cluster of `blocks` merges: `first`, `first +
// blocks` and so on.
FUSEDOPS_DEVICE int heads_of(int first, int blocks, int heads) {
  return max(heads - first + blocks - 1, 0) / blocks;
}

// Four dimensions of a head, merged from parts. Two neighbouring threads compute the same four
// dimensions, from half the parts each.
struct Merged {
  HeadPeak peak{kNothing<float>, 0};
  float4 out{};

  template <int kParts>
  FUSEDOPS_DEVICE void add(const HeadPeak (&peaks)[kParts], const float4 (&outs)[kParts]) {
    float top = peak.top;
#pragma unroll
    for (int i = 0; i < kParts; ++i) top = fmaxf(top, peaks[i].top);
    const float base = base_of(top), fade = weight(peak.top, base);
    peak = {top, peak.sum * fade};
    out = {out.x * fade, out.y * fade, out.z * fade, out.w * fade};
#pragma unroll
    for (int i = 0; i < kParts; ++i) {
      const float share = weight(peaks[i].top, base);
      peak.sum = fmaf(share, peaks[i].sum, peak.sum);
      out.x = fmaf(share, outs[i].x, out.x);
      out.y = fmaf(share, outs[i].y, out.y);
      out.z = fmaf(share, outs[i].z, out.z);
      out.w = fmaf(share, outs[i].w, out.w);
    }
  }

  // Merges the results of the two threads. The even thread's comes first in both, for the same
  // bits.
  FUSEDOPS_DEVICE void join() {
    const bool odd = threadIdx.x % 2;
    const Merged other = warp::shuffle_xor(*this, 1);
    const HeadPeak peaks[] = {odd ? other.peak : peak, odd ? peak : other.peak};
    const float4 outs[] = {odd ? other.out : out, odd ? out : other.out};
    *this = {};
    add(peaks, outs);
  }

  // The two of the four dimensions that this thread writes.
  FUSEDOPS_DEVICE float2 own() const {
    return threadIdx.x % 2 ? float2{out.z, out.w} : float2{out.x, out.y};
  }
};

// Merges the warps' results, which lie `step` bytes apart, for four dimensions from `d` on.
template <int kWarps, int D>
FUSEDOPS_DEVICE Merged merge_warps(const char* results, int step, int head, int d) {
  constexpr int kParts = kWarps / 2;
  HeadPeak peaks[kParts];
  float4 outs[kParts];
  results += threadIdx.x % 2 * step;
#pragma unroll
  for (int i = 0; i < kParts; ++i) {
    const auto& result = *reinterpret_cast<const WarpResult<D>*>(results + i * 2 * step);
    peaks[i] = result.peak[head];
    outs[i] = *reinterpret_cast<const float4*>(&result.out[head][d]);
  }
  Merged merged;
  merged.add(peaks, outs);
  merged.join();
  return merged;
}

FUSEDOPS_DEVICE Merged merge_blocks(const Partials& partials, int blocks, int head, int d) {
  constexpr int kParts = 8;
  Merged merged;
#pragma unroll 1
  for (int begin = threadIdx.x % 2; begin < blocks; begin += 2 * kParts) {
    HeadPeak peaks[kParts];
    float4 outs[kParts];
#pragma unroll
    for (int i = 0; i < kParts; ++i) {
      const int block = begin + 2 * i;
      const int valid = min(block, blocks - 1);
      peaks[i] = partials.peak(valid, head);
      outs[i] = *reinterpret_cast<const float4*>(partials.out(valid, head) + d);
      if (block >= blocks) {
        peaks[i].top = kNothing<float>;
        outs[i] = {};  // infinity times 0 would be NaN
      }
    }
    merged.add(peaks, outs);
  }
  merged.join();
  return merged;
}

// Counts the blocks that call it. Returns true in all threads of the last of `expected` blocks,
// which then sees what the others have written. It resets the counter to 0.
FUSEDOPS_DEVICE bool last_of(std::int32_t* counter, int expected) {
  __shared__ bool last;
  __syncthreads();
  if (threadIdx.x == 0) {
    last = count_up(counter) == expected - 1;
    if (last) *counter = 0;
  }
  __syncthreads();
  return last;
}

}  // namespace fusedops::attention
