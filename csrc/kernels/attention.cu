// One decode step of attention over a cache of keys and values. For each sequence and query head
//   out [head_dim] = softmax(scale K q + alibi + mask) V
// where q is the new token's, and K and V [keys, head_dim] are the cache's with the token's own
// row. q and k are rotated first. Blocks share the keys of a sequence, and merge their partial
// results (attention_merge.cuh): the last one of them does, or in a cluster each for some heads.
#include <algorithm>
#include <limits>

#include "kernels/attention.h"
#include "kernels/attention_merge.cuh"
#include "kernels/attention_plain.cuh"
#include "kernels/attention_tensor.cuh"
#include "kernels/tiling.h"
#include "kernels/types.h"
#include "kernels/vector.cuh"
#include "platform/device.h"
#include "platform/overlap.h"

namespace fusedops::attention {

constexpr int kMostSplits = 32;  // one thread of a warp merges each split

// How many blocks share the cache of one sequence's head. There are `pairs` heads of sequences, the
// GPU runs `slots` blocks at a time, and at most `most` blocks can leave partial results. Where the
// heads fill the GPU, a split only evens out the load: a last round of few blocks would leave most
// of the GPU idle.
inline int splits_of(std::int64_t pairs, std::int64_t slots, std::int64_t most) {
  const std::int64_t limit = std::min<std::int64_t>(kMostSplits, most / pairs);
  if (limit <= 1) return 1;
  if (pairs <= slots) return static_cast<int>(std::min(slots / pairs, limit));
  for (std::int64_t splits = 1; splits <= std::min<std::int64_t>(limit, 4); ++splits) {
    const double rounds = static_cast<double>(pairs * splits) / static_cast<double>(slots);
    const double whole = static_cast<double>(pairs * splits / slots);
    const double rest = rounds - whole;
    if (rounds >= 0.93 * (whole + (rest > 0 ? std::max(rest, 0.4) : 0))) {
      return static_cast<int>(splits);
    }
  }
  return 1;
}

}  // namespace fusedops::attention

namespace fusedops::kernels {
// A named namespace: nvcc names an anonymous one after the source's folder, so another folder would
// give another wheel.
namespace attention_detail {

using namespace attention;

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr int kMostSlots = 6;        // tiles of a warp in flight
constexpr int kLeastTiles = 4;       // of a block: merging a block costs as much; measured (H200)
constexpr int kMostInCluster = 128;  // elements of a head; wider ones have no kernel for clusters

// The parameters of a launch.
struct StepParams {
  AttentionStep call;
  double log2_step;
  int group;          // query heads that share a head of the cache
  int chunks;         // chunks of such a group
  int slots;          // tiles that a warp has room for
  int room;           // bytes of shared memory of a warp
  bool short_caches;  // all of them are few bytes
  std::int32_t* counters;
  float* partials;
};

// The layout of a block, on a GPU with or without tensor cores (gpu::has_tensor_cores). Its shared
// memory holds the token, then for each warp the tiles, and in their place, at the end, the warp's
// result.
template <class T, int D, bool kModern>
struct StepLayout {
  static constexpr int kWarps = kModern ? 8 : 4, kThreads = kWarps * warp::kWidth;
  using Engine = std::conditional_t<kModern && sizeof(T) == 2, TensorEngine<T, D, D == 64 ? 2 : 1>,
                                    PlainEngine<T, D>>;
  using Tiles = attention::Tiles<T, D, Engine::kKeys>;
  static constexpr int kResident =
      sizeof(T) == 2 && D <= 128 ? 2 : 1;  // blocks of a multiprocessor that registers allow
};

template <class T, int D>
using LayoutOfArch = StepLayout<T, D, tensor_core::kSupported>;

// Merges the results of the block's warps, and writes them: to `results`, if no other block shares
// the sequence. Else the last of the `busy` blocks that do merges their results, or in a cluster
// each of them, with a mailbox, for the heads that are its own.
template <class T, int D, bool kInCluster>
FUSEDOPS_DEVICE void merge_and_write(const StepParams& params, const BlockHeads& block,
                                     const Partials& partials, const char* rooms, int of_warp,
                                     int busy, int pair, T* results, int dim,
                                     [[maybe_unused]] cluster::Mailbox& box) {
  constexpr int kWarps = LayoutOfArch<T, D>::kWarps, kThreads = LayoutOfArch<T, D>::kThreads;
  const int split = static_cast<int>(blockIdx.x);
  // Calls body(head, d) with two dimensions of one of `heads` heads for each thread.
  const auto each = [&](int heads, const auto& body) {
    const int lane = static_cast<int>(threadIdx.x) % warp::kWidth;
#pragma unroll 1
    for (int at = of_warp * warp::kWidth; at < heads * (D / 2); at += kThreads) {
      body(at / (D / 2), at % (D / 2) * 2 + lane * 2);
    }
  };
  const auto write = [&](int head, int d, const Merged& all) {
    const float inverse = softmax_row::inverse(all.peak.sum);
    const float2 own = all.own();
    T* const to = results + head * dim + d;
    if (d < dim) to[0] = narrow<T>(own.x * inverse);
    if (d + 1 < dim) to[1] = narrow<T>(own.y * inverse);
  };
  const auto write_merged = [&](int head, int d, int of_partials) {
    write(head, d, merge_blocks(partials, busy, of_partials, min(d, partials.row - 1) / 4 * 4));
  };
  if (kInCluster && busy > 1) cluster::wait();
  each(block.heads, [&](int head, int d) {
    const Merged all = merge_warps<kWarps, D>(rooms, params.room, head, d / 4 * 4);
    if (busy == 1) {
      write(head, d, all);
    } else if (d < partials.row) {
      const int at = kInCluster ? head / busy : head;
      const float2 own = all.own(), peak{all.peak.top, all.peak.sum};
      float2& to = *reinterpret_cast<float2*>(partials.out(split, at) + d);
      float2& peak_to = *reinterpret_cast<float2*>(&partials.peak(split, at));
      if constexpr (kInCluster) {
        cluster::send(own, to, box, head % busy);
        if (d == 0) cluster::send(peak, peak_to, box, head % busy);
      } else {
        to = own;
        if (d == 0) peak_to = peak;
      }
    }
  });
  if (busy == 1) return;
  if constexpr (kInCluster) {
    const int own = heads_of(split, busy, block.heads);
    if (own > 0) cluster::receive(box, 0);
    each(own, [&](int i, int d) { write_merged(split + i * busy, d, i); });
  } else if (last_of(params.counters + pair, busy)) {
    each(block.heads, [&](int head, int d) { write_merged(head, d, head); });
  }
}

// Asks for a warp's first tile, before the position can be known to need all of it.
template <class T>
FUSEDOPS_DEVICE void ask_early(const Attention& attention, const BlockHeads& block, int key,
                               int keys_of_tile) {
  const int lane = static_cast<int>(threadIdx.x) % warp::kWidth;
  const int keys = min(keys_of_tile, attention.cache.capacity - key);
  if (lane < 2 && keys > 0) {
    void* const of = lane == 0 ? attention.cache.keys : attention.cache.values;
    const auto bytes = static_cast<unsigned>(keys * attention.cache.row * sizeof(T));
    fetch::into_l2(cache_row<T>(of, attention, block, key), bytes / kVectorBytes * kVectorBytes);
  }
}

// Takes a warp's tiles: from `key` on each that is `step` keys further, up to the one that contains
// `position`, where the token is. appended(data) is where its row goes in the cache, or null.
template <class Engine, class Tiles, class Scores, class Token, class Appended>
FUSEDOPS_DEVICE void take_tiles(Engine& engine, Tiles& cache, const Scores& scores,
                                const Token& token, const Attention& attention, int key, int step,
                                int position, const Appended& appended) {
#pragma unroll 1
  for (; key <= position; key += step) {
    const int own = position - key;  // the token's row in the tile
    Tile tile = cache.wait();
    if (own < Engine::kKeys) {
      cache.put(tile, own, token.row[token.kKey], appended(attention.cache.keys));
    }
    engine.take_keys(tile);
    cache.ask();
    engine.weigh(scores, key);
    tile = cache.wait();
    if (own < Engine::kKeys) {
      cache.put(tile, own, token.row[token.kValue], appended(attention.cache.values));
    }
    engine.take_values(tile);
    cache.ask();
  }
}

// blockIdx.x is a share of the keys; y a head of the cache and a chunk of the query heads that
// share it; z a sequence. The warps of all blocks that share the keys take tiles of keys in turn,
// so that all get equally many. The new token is a key like the others: its row is put into its
// tile, because the cache may not have it yet. With kInCluster the blocks that share the keys are a
// cluster.
template <class T, int D, bool kInCluster>
__global__ void FUSEDOPS_LAUNCH_BOUNDS((LayoutOfArch<T, D>::kThreads),
                                       (LayoutOfArch<T, D>::kResident))
    step_kernel(T* out, const T* qkv, const StepParams params) {
  using F = LayoutOfArch<T, D>;
  using Engine = typename F::Engine;
  constexpr int kKeys = Engine::kKeys, kWarps = F::kWarps, kThreads = F::kThreads;
  if constexpr (kInCluster && !cluster::kSupported) return;
  FUSEDOPS_DYNAMIC_SHARED(char, memory);
  auto& token = *reinterpret_cast<Token<T, D>*>(memory);
  char* const rooms = memory + sizeof(token);
  const AttentionStep& call = params.call;
  const Attention& attention = call.attention;
  const int of_warp = warp::index();
  const int split = static_cast<int>(blockIdx.x), splits = static_cast<int>(gridDim.x);
  const int of_sequence = static_cast<int>(gridDim.y), pair = blockIdx.z * of_sequence + blockIdx.y;
  const BlockHeads block = block_heads(params.group, params.chunks);
  TokenPart<T, D, kThreads> part(attention, params.log2_step);
  typename F::Tiles cache(rooms + of_warp * params.room, params.slots, attention, block);
  if (params.short_caches) {
    overlap::allow_next();
    ask_early<T>(attention, block, (of_warp * splits + split) * kKeys, kKeys);
  }
  overlap::wait(false);
  const int position = attention.cache.positions[block.batch];
  part.fetch(attention, qkv, block);

  const int dim = attention.head_dim, row = attention.cache.row;
  T* const results =
      out + (static_cast<std::int64_t>(block.batch) * attention.heads + block.head) * dim;
  if (static_cast<unsigned>(position) >= static_cast<unsigned>(attention.cache.capacity)) {
    if (split > 0) return;
#pragma unroll 1
    for (int i = threadIdx.x; i < block.heads * dim; i += kThreads) results[i] = narrow<T>(kNaN);
    return;
  }
  const Scores<T> scores(call, block.batch, block.head, block.heads, position);
  const int first_tile = scores.first / kKeys;
  const int tiles = position / kKeys - first_tile + 1;  // the last contains the token
  const int busy = min(splits, (tiles + kLeastTiles - 1) / kLeastTiles);
  __shared__ cluster::Mailbox box;
  if (kInCluster && busy > 1) {
    const int own = heads_of(split, busy, block.heads);
    if (threadIdx.x == 0 && own > 0) {
      cluster::open(box, busy * own * (row + Partials::kPeakFloats));
    }
    cluster::arrive_relaxed();
    if (split >= busy) cluster::wait();
  }
  if (split < busy) {
    const int step = busy * kWarps * kKeys;
    const int key = (first_tile + of_warp * busy + split) * kKeys;
    cache.begin(key, step, scores.first, position);
    part.make(token, position);
    __syncthreads();
    Engine engine(token, scores);
    const auto appended = [&](void* data) {  // only one of the blocks that share the row appends it
      return block.chunk == 0 ? cache_row<T>(data, attention, block, position) : nullptr;
    };
    take_tiles(engine, cache, scores, token, attention, key, step, position, appended);
    // Earlier, the next kernel would take bandwidth from blocks that still read long caches.
    if (!params.short_caches) overlap::allow_next();
    warp::sync();
    engine.write(*reinterpret_cast<WarpResult<D>*>(rooms + of_warp * params.room));
    __syncthreads();
    Partials partials{params.partials, min(params.group, kHeads), row};
    if constexpr (kInCluster) {  // for the heads that are the block's own
      partials = {reinterpret_cast<float*>(rooms + kWarps * params.room),
                  (block.heads + busy - 1) / busy, row};
    } else {
      partials.data += static_cast<std::int64_t>(pair) * splits * partials.step();
    }
    merge_and_write<T, D, kInCluster>(params, block, partials, rooms, of_warp, busy, pair, results,
                                      dim, box);
  }
  if (call.advance) {  // after all blocks of the sequence have read the position
    std::int32_t* const counter = params.counters + gridDim.z * of_sequence + block.batch;
    if (last_of(counter, splits * of_sequence) && threadIdx.x == 0) {
      attention.cache.positions[block.batch] = position + 1;
    }
  }
}

// The numbers of a StepLayout that the launch depends on.
struct StepSizes {
  int warps, resident, keys;  // keys of a tile
  int token, tile, result;    // bytes

  template <class T, int D, bool kModern>
  static constexpr StepSizes of() {
    using F = StepLayout<T, D, kModern>;
    return {F::kWarps,           F::kResident,     F::Engine::kKeys,
            sizeof(Token<T, D>), F::Tiles::kBytes, sizeof(WarpResult<D>)};
  }
};

// Chooses the number of tiles, the split and the blocks for a GPU and a call.
gpu::Status plan(const StepSizes& sizes, std::int64_t room, StepParams& params,
                 overlap::Blocks& blocks) {
  const Attention& attention = params.call.attention;
  const int heads = attention.kv_heads * params.chunks;
  const std::int64_t pairs = std::int64_t{attention.batch} * heads;
  int processors = 0, memory = 0;
  gpu::Status status = gpu::multiprocessors(processors);
  if (status != gpu::kSuccess) return status;
  // Two blocks a multiprocessor if there are many: one computes while the other begins.
  const int resident = pairs > processors ? sizes.resident : 1;
  status = gpu::shared_memory(resident, memory);
  if (status != gpu::kSuccess) return status;
  const int together = std::min(params.group, kHeads), row = attention.cache.row;
  const std::int64_t one = Partials::floats_of(together, row);
  int splits = splits_of(pairs, processors * resident, room / one);
  constexpr std::int64_t kFew = 4 << 20;  // bytes of 16-bit keys
  params.short_caches = pairs * attention.cache.capacity * row * 2 <= kFew;
  // The blocks that a full cache has work for are a cluster, if they may be one.
  const std::int64_t tiles = ceil_div(attention.cache.capacity, sizes.keys);
  const std::int64_t needed = ceil_div(tiles, kLeastTiles);
  int merged = 0;  // bytes of the partial results that a block merges, at most
  if (row <= kMostInCluster && params.short_caches && needed > 1 && needed <= splits &&
      needed <= cluster::kAlwaysAllowed && gpu::has_clusters()) {
    splits = static_cast<int>(needed);
    blocks.cluster = splits;
    merged = (together + splits) * (row + 4) * static_cast<int>(sizeof(float));
  }
  params.slots =
      std::clamp((memory - sizes.token - merged) / sizes.warps / sizes.tile, 1, kMostSlots);
  params.room = std::max(params.slots * sizes.tile, sizes.result);
  blocks.grid = dim3(splits, heads, attention.batch);
  blocks.threads = dim3(sizes.warps * warp::kWidth);
  blocks.shared = sizes.token + sizes.warps * params.room + merged;
  return gpu::kSuccess;
}

template <class T, int D>
gpu::Status launch_step(StepParams params, void* out, const void* qkv, std::int64_t room,
                        gpu::Stream stream) {
  overlap::Blocks blocks{};
  gpu::Status status =
      plan(gpu::has_tensor_cores() ? StepSizes::of<T, D, true>() : StepSizes::of<T, D, false>(),
           room, params, blocks);
  if (status != gpu::kSuccess) return status;
  auto* kernel = &step_kernel<T, D, false>;
  if constexpr (D <= kMostInCluster) {
    if (blocks.cluster > 1) kernel = &step_kernel<T, D, true>;
  }
  status = gpu::allow_shared(kernel, blocks.shared);
  if (status != gpu::kSuccess) return status;
  return overlap::launch(kernel, blocks, stream, static_cast<T*>(out), static_cast<const T*>(qkv),
                         params);
}

}  // namespace attention_detail

using namespace attention_detail;

gpu::Status attention_step(const AttentionStep& call, void* out, const void* qkv,
                           std::int32_t* counters, float* partials, std::int64_t room,
                           gpu::Stream stream) {
  const Attention& attention = call.attention;
  const int row = attention.cache.row;
  StepParams params{};
  params.call = call;
  if (attention.rotary_dim > 0) {
    params.log2_step = log2_step_of(attention.theta, attention.rotary_dim);
  }
  params.group = attention.heads / attention.kv_heads;
  params.chunks = (params.group + kHeads - 1) / kHeads;
  params.counters = counters;
  params.partials = partials;
  return with_type(attention.dtype, [&](auto type) {
    using T = typename decltype(type)::T;
    if constexpr (sizeof(T) <= 4) {
      auto* const launch = row <= 64    ? &launch_step<T, 64>
                           : row <= 128 ? &launch_step<T, 128>
                                        : &launch_step<T, kMostHeadDim>;
      return launch(params, out, qkv, room, stream);
    } else {
      return gpu::kInvalidValue;
    }
  });
}

TORCHWHEEL_EXPORT(attention_step)

}  // namespace fusedops::kernels
