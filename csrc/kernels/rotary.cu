// Rotates pairs (a, b) of a head's elements by an angle w = position theta^(-2i / rotary_dim):
//   a' = a cos w - b sin w, b' = b cos w + a sin w
// in q and k, [batch, tokens, heads, head_dim] at any strides. Here is the choice of the pieces
// that a thread loads at once; the kernel is rotary.cuh's.
#include <algorithm>

#include "kernels/rotary.cuh"
#include "kernels/tiling.h"
#include "kernels/vector.cuh"

namespace fusedops::kernels {
namespace rotary_detail {

// Strides, with 0 for dimensions of size 1: those do not limit the alignment.
inline HeadStrides steps(const HeadStrides& strides, const Rotary& call, std::int64_t heads) {
  return {call.batch > 1 ? strides.batch : 0, call.tokens > 1 ? strides.token : 0,
          heads > 1 ? strides.head : 0};
}

inline bool in_pieces(const void* data, const HeadStrides& strides, int lanes, int bytes) {
  return reinterpret_cast<std::uintptr_t>(data) % bytes == 0 && strides.batch % lanes == 0 &&
         strides.token % lanes == 0 && strides.head % lanes == 0;
}

// Whether every head divides into aligned pieces of `lanes` elements.
inline bool in_pieces(const Rotary& call, int lanes) {
  const int bytes = lanes * element_size(call.dtype);
  const auto fits = [&](const RotarySide& side) {
    return in_pieces(side.from, steps(side.from_strides, call, side.heads), lanes, bytes) &&
           in_pieces(side.to, steps(side.to_strides, call, side.heads), lanes, bytes);
  };
  return call.rotary_dim % (2 * lanes) == 0 && (call.in_place || call.head_dim % lanes == 0) &&
         fits(call.q) && fits(call.k);
}

// The layout for pieces of `lanes` elements.
inline RotaryLayout layout_of(const Rotary& call, int lanes) {
  RotaryLayout l{};
  const RotarySide* const sides[2] = {&call.q, &call.k};
  for (int i = 0; i < 2; ++i) {
    const RotarySide& side = *sides[i];
    const HeadStrides from = steps(side.from_strides, call, side.heads);
    const HeadStrides to = steps(side.to_strides, call, side.heads);
    // The heads of k are numbered after those of q.
    const std::int64_t before = i == 0 ? 0 : call.q.heads * element_size(call.dtype);
    l.from[i] = {static_cast<const char*>(side.from) - before * from.head, from};
    l.to[i] = {static_cast<char*>(side.to) - before * to.head, to};
  }
  l.heads_q = static_cast<unsigned>(call.q.heads);
  l.heads = static_cast<unsigned>(call.q.heads + call.k.heads);
  l.positions = static_cast<unsigned>(call.batch * call.tokens);
  const std::int64_t past = call.in_place ? 0 : call.head_dim - call.rotary_dim;
  l.rotated = static_cast<unsigned>(call.rotary_dim / (2 * lanes));
  l.units = l.rotated + static_cast<unsigned>(ceil_div(past, 2 * lanes));
  // With one element a piece, the pair's elements are neighbours.
  const bool neighbours = lanes == 1 && call.interleaved;
  l.step = neighbours ? 2 : lanes;
  l.partner = static_cast<int>(neighbours ? 1 : call.rotary_dim / 2);
  l.head_dim = static_cast<int>(call.head_dim);
  l.rotary_dim = static_cast<int>(call.rotary_dim);
  l.log2_step = log2_step_of(call.theta, static_cast<int>(call.rotary_dim));
  l.direction = call.inverse ? -1 : 1;
  l.at = call.positions;
  return l;
}

// As few blocks as hold a position's heads, in equal parts; several positions in a block if their
// heads are few.
inline overlap::Blocks blocks_of(const RotaryLayout& l, int heads_in_flight) {
  const std::int64_t across = ceil_div(l.units, kMostSlots);
  const std::int64_t x = ceil_div(l.units, across);
  const std::int64_t down = ceil_div(l.heads, kMostThreads / x * heads_in_flight);
  const std::int64_t y = ceil_div(l.heads, down * heads_in_flight);
  const std::int64_t z = std::clamp<std::int64_t>(kThreads / (x * y), 1, kMostSlots / x);
  const auto dim = [](std::int64_t a, std::int64_t b, std::int64_t c) {
    return dim3(static_cast<unsigned>(a), static_cast<unsigned>(b), static_cast<unsigned>(c));
  };
  return {dim(ceil_div(l.positions, z), across, down), dim(x, y, z)};
}

template <class T, int V, int kHeads>
gpu::Status launch(const Rotary& call, gpu::Stream stream) {
  // Pieces of one element are paired by the layout alone.
  const auto kernel = V > 1 && call.interleaved ? &rotary_kernel<T, V, V != 1, kHeads>
                                                : &rotary_kernel<T, V, false, kHeads>;
  const RotaryLayout l = layout_of(call, V);
  return overlap::launch(kernel, blocks_of(l, kHeads), stream, l, Divisor(call.tokens));
}

// Uses pieces of 16 bytes if everything is aligned to them; else of 4 bytes, which suit 16-bit
// types with an odd number of pairs to a vector (known models have rotary_dim 20 and 24); else of
// one element. With whole vectors one head a thread is fastest; with float32 two are, because a
// position then fits into one block.
template <class T>
gpu::Status launch_rotary(const Rotary& call, gpu::Stream stream) {
  constexpr int V = kLanes<T>;
  if (in_pieces(call, V)) return launch<T, V, sizeof(T) == 4 ? 2 : 1>(call, stream);
  if constexpr (sizeof(T) == 2) {
    if (in_pieces(call, 2)) return launch<T, 2, 4>(call, stream);
  }
  return launch<T, 1, 4>(call, stream);
}

}  // namespace rotary_detail

gpu::Status rotary(const Rotary& call, gpu::Stream stream) {
  return with_type(call.dtype, [&](auto type) {
    return rotary_detail::launch_rotary<typename decltype(type)::T>(call, stream);
  });
}

TORCHWHEEL_EXPORT(rotary)

}  // namespace fusedops::kernels
