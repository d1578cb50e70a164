// Long rows: the blocks of a cluster keep a row in their shared memory from its one read to its one
// write, and send each other what they have found in their parts of it.
//
// A block is small, so that a multiprocessor has several: while one waits for its copies or for the
// others of its cluster, others compute and write. A row that is longer than the shared memory of a
// cluster is held in part; each further pass reads the rest again, from the L2 cache if it is still
// there.
#pragma once

#include <algorithm>
#include <type_traits>

#include "kernels/packed.cuh"
#include "kernels/reduce.cuh"
#include "kernels/tiling.h"
#include "platform/cluster.h"
#include "platform/device.h"
#include "platform/overlap.h"
#include "platform/shared.h"
#include "platform/stream.h"

namespace fusedops::row_cluster {

constexpr int kMostThreads = 512;         // of a block
constexpr std::int64_t kLeastBlocks = 2;  // a block alone has no one to send to (cluster.h)
constexpr std::int64_t kKiB = 1024;

// How rows lie in clusters. It depends on their length alone.
struct ClusterLayout {
  unsigned cluster = 0;  // blocks that share a row
  unsigned threads = 0;  // of a block
  unsigned held = 0;     // vectors of a thread, of each input, in shared memory
  unsigned shared = 0;   // bytes of a block
};

// The layout of rows of `vectors` vectors, of each of `inputs` tensors. A block takes `wanted`
// bytes of a row if a cluster may have so many blocks.
inline ClusterLayout layout(std::int64_t vectors, int inputs, std::int64_t wanted) {
  constexpr std::int64_t kMost = 110 * kKiB;  // of a block; two blocks of a multiprocessor
  const std::int64_t row = vectors * kVectorBytes * inputs;
  std::int64_t blocks = kLeastBlocks;
  while (blocks < cluster::kMostBlocks && row > blocks * wanted) blocks *= 2;
  const std::int64_t threads = row > blocks * wanted ? kMostThreads : kMostThreads / 2;
  const std::int64_t vector = threads * kVectorBytes * inputs;
  const std::int64_t held = std::min(ceil_div(vectors, blocks * threads), kMost / vector);
  return {static_cast<unsigned>(blocks), static_cast<unsigned>(threads),
          static_cast<unsigned>(held), static_cast<unsigned>(held * vector)};
}

// The layout of rows of `vectors` vectors that stay with their threads, S::kVectors a thread, with
// at most S::kMost threads of a block, and `wanted` if a cluster may have so many blocks. They come
// by way of shared memory, from `inputs` tensors; 0: they do not. A row that is too long has more
// threads than S::kMost.
template <class S>
ClusterLayout layout_of(std::int64_t vectors, int inputs, int wanted = S::kMost) {
  const std::int64_t threads = ceil_div(vectors, S::kVectors);
  std::int64_t blocks = kLeastBlocks;
  while (blocks < cluster::kMostBlocks && blocks * wanted < threads) blocks *= 2;
  const std::int64_t width = ceil_div(ceil_div(threads, blocks), warp::kWidth) * warp::kWidth;
  return {static_cast<unsigned>(blocks), static_cast<unsigned>(width), 0,
          static_cast<unsigned>(inputs * S::kVectors * width * kVectorBytes)};
}

// The calling thread's vectors of a row of each of kInputs tensors: number k is vector own + k all
// of the row. The first `held` lie in places of shared memory that no other thread touches, so a
// thread waits for its own copies alone, by kGroups_ groups of them. What is not held should stay
// in the L2 cache until the last pass.
template <int kInputs, unsigned kGroups_ = 1>
class ClusterRow {
 public:
  using OfInputs = Packed[kInputs];        // one of each input
  using Starts = const Packed* [kInputs];  // the first vectors of the row
  static constexpr int kBatch = 2;         // vectors taken together
  static constexpr unsigned kGroups = kGroups_;

  const unsigned own = cluster::rank() * blockDim.x + threadIdx.x;
  const unsigned all = cluster::size() * blockDim.x;
  const unsigned vectors;  // of the row

  FUSEDOPS_DEVICE ClusterRow(Packed* places, unsigned held, unsigned vectors)
      : vectors(vectors),
        places_(places + threadIdx.x),
        end_(min(vectors, own + held * all)),
        group_((held + kGroups - 1) / kGroups) {}

  // The number of vectors of a block.
  FUSEDOPS_DEVICE unsigned count_of(unsigned block) const {
    const unsigned rest = vectors % all, before = min(rest, block * blockDim.x);
    return vectors / all * blockDim.x + min(rest - before, blockDim.x);
  }

  // Starts to copy the vectors that are held, or a group of them.
  FUSEDOPS_DEVICE void start(const Starts& rows) const {
#pragma unroll 1
    for (unsigned group = 0; group < kGroups; ++group) start(rows, group);
  }
  FUSEDOPS_DEVICE void start(const Starts& rows, unsigned group) const {
    const unsigned end = end_of(group);
    Packed* place = place_of(group);
#pragma unroll 4
    for (unsigned v = first_of(group); v < end; v += all) {
#pragma unroll
      for (int i = 0; i < kInputs; ++i, place += blockDim.x) {
        async_copy::start(shared::address_of(place), rows[i] + v, true);
      }
    }
    async_copy::commit_group();
  }

  // Calls take(v, of, j) for each vector v of the thread: of[i] is that of input i. Before that it
  // calls ask(v, j) for kBatch vectors, j from 0 on, to start what take() needs beside them. The
  // first pass waits for the copies; vectors that are not held come before them.
  template <class Ask, class Take>
  FUSEDOPS_DEVICE void first_pass(const Starts& rows, const Ask& ask, const Take& take) const {
    others<fetch::Leaves::last>(rows, ask, take);
#pragma unroll 1
    for (unsigned group = 0; group < kGroups; ++group) {
      async_copy::wait_group(static_cast<int>(kGroups - 1 - group));
      held(group, ask, take);
    }
  }
  template <fetch::Leaves kWhen, class Ask, class Take>
  FUSEDOPS_DEVICE void next_pass(const Starts& rows, const Ask& ask, const Take& take) const {
#pragma unroll 1
    for (unsigned group = 0; group < kGroups; ++group) held(group, ask, take);
    others<kWhen>(rows, ask, take);
  }
  // The same for a take() that needs nothing beside them, take(v, of).
  template <class Take>
  FUSEDOPS_DEVICE void first_pass(const Starts& rows, const Take& take) const {
    first_pass(
        rows, [](unsigned, int) {}, [&](unsigned v, const OfInputs& of, int) { take(v, of); });
  }
  template <class Take>
  FUSEDOPS_DEVICE void last_pass(const Starts& rows, const Take& take) const {
    next_pass<fetch::Leaves::first>(
        rows, [](unsigned, int) {}, [&](unsigned v, const OfInputs& of, int) { take(v, of); });
  }

  // The parts of a next pass: a group of the vectors that are held, and those that are not.
  template <class Ask, class Take>
  FUSEDOPS_DEVICE void held(unsigned group, const Ask& ask, const Take& take) const {
    const unsigned end = end_of(group);
    Packed* place = place_of(group);
    unsigned v = first_of(group);
    const auto batch = [&](auto count) {
#pragma unroll
      for (int j = 0; j < count.value; ++j) ask(v + j * all, j);
#pragma unroll
      for (int j = 0; j < count.value; ++j, v += all, place += kInputs * blockDim.x) {
        OfInputs of;
#pragma unroll
        for (int i = 0; i < kInputs; ++i) of[i] = place[i * blockDim.x];
        take(v, of, j);
      }
    };
    // Whole batches need no branches in them, so their loads are in flight together.
    while (v + (kBatch - 1) * all < end) batch(std::integral_constant<int, kBatch>{});
    while (v < end) batch(std::integral_constant<int, 1>{});
  }
  template <fetch::Leaves kWhen, class Ask, class Take>
  FUSEDOPS_DEVICE void others(const Starts& rows, const Ask& ask, const Take& take) const {
    // The first vector of the thread that is not held.
    unsigned v = end_ > own ? own + (end_ - own + all - 1) / all * all : own;
    const auto batch = [&](auto count) {
      OfInputs of[count.value];
#pragma unroll
      for (int j = 0; j < count.value; ++j) {
#pragma unroll
        for (int i = 0; i < kInputs; ++i) of[j][i] = load_leaving<kWhen>(rows[i] + v + j * all);
      }
#pragma unroll
      for (int j = 0; j < count.value; ++j, v += all) {
        ask(v, 0);
        take(v, of[j], 0);
      }
    };
    constexpr int kInFlight = 4 / kInputs;
    while (v + (kInFlight - 1) * all < vectors) batch(std::integral_constant<int, kInFlight>{});
    while (v < vectors) batch(std::integral_constant<int, 1>{});
  }

 private:
  FUSEDOPS_DEVICE unsigned first_of(unsigned group) const { return own + group * group_ * all; }
  FUSEDOPS_DEVICE unsigned end_of(unsigned group) const { return min(end_, first_of(group + 1)); }
  FUSEDOPS_DEVICE Packed* place_of(unsigned group) const {
    return places_ + group * group_ * kInputs * blockDim.x;
  }

  Packed* const places_;
  const unsigned end_;    // the thread holds its vectors before this one
  const unsigned group_;  // vectors of a thread
};

// Where the senders of a cluster leave kCount floats for each other, once a round. Each warp sends,
// of which a block has at most kOfBlock: that is sooner than by way of the block. Or, with 1, each
// block's first warp does, for the block.
template <int kCount, int kOfBlock = 1>
struct ClusterExchange {
  static_assert(kCount == 1 || kCount == 2 || kCount == 4);
  struct alignas(kCount * sizeof(float)) Sent {
    float of[kCount];
  };
  static constexpr unsigned kSenders = kOfBlock * cluster::kMostBlocks;
  struct Room {
    Sent sent[kSenders];
    cluster::Mailbox box;
  };
  Sent* const sent;  // a place for each sender
  cluster::Mailbox& box;

  FUSEDOPS_DEVICE ClusterExchange(Sent* sent, cluster::Mailbox& box) : sent(sent), box(box) {}
  FUSEDOPS_DEVICE ClusterExchange(Room& room) : ClusterExchange(room.sent, room.box) {}

  FUSEDOPS_DEVICE static unsigned of_block() {
    return kOfBlock == 1 ? 1 : blockDim.x / warp::kWidth;
  }
  FUSEDOPS_DEVICE static unsigned senders() { return of_block() * cluster::size(); }
  FUSEDOPS_DEVICE static unsigned floats() { return kCount * senders(); }  // of a round

  // Gives all blocks the values of the calling sender. They may come in a round after all threads
  // of all blocks have read those of the round before: as when another exchange lies between.
  FUSEDOPS_DEVICE void send(const Sent& own) const {
    const unsigned lane = threadIdx.x % warp::kWidth, of_warp = threadIdx.x / warp::kWidth;
    if (kOfBlock == 1 && of_warp > 0) return;
    const unsigned at = cluster::rank() * of_block() + of_warp;
    if (lane < cluster::size()) cluster::send(own, sent[at], box, lane);
  }
  FUSEDOPS_DEVICE void receive(unsigned round) const { cluster::receive(box, round); }
  // Lets the values of one more round come. All threads call it after they have read these.
  FUSEDOPS_DEVICE void reopen() const {
    if (threadIdx.x == 0) cluster::reopen(box, floats());
  }

  // Calls take() for those of some senders, each lane for its own.
  template <class Take>
  FUSEDOPS_DEVICE void each(const Take& take) const {
    constexpr unsigned kTogether = kSenders < warp::kWidth ? kSenders : warp::kWidth;
#pragma unroll 4
    for (unsigned i = 0; i < kSenders / kTogether; ++i) {
      const unsigned at = threadIdx.x % kTogether + i * kTogether;
      if (at < senders()) take(sent[at], at);
    }
  }
  // The sums over all senders. The order of a row's sum depends on its layout alone.
  FUSEDOPS_DEVICE void sum(float (&values)[kCount]) const {
    const unsigned lane = threadIdx.x % warp::kWidth;
    const auto* const sent_floats = reinterpret_cast<const float*>(sent);
    float one = 0;
#pragma unroll 4
    for (unsigned at = lane; at < floats(); at += warp::kWidth) one += sent_floats[at];
#pragma unroll
    for (unsigned mask = warp::kWidth / 2; mask >= kCount; mask /= 2) {
      one += warp::shuffle_xor(one, static_cast<int>(mask));
    }
#pragma unroll
    for (int i = 0; i < kCount; ++i) values[i] = warp::shuffle(one, i);
  }
};

// Opens exchanges. All threads call it, and cluster::wait() before the first send(): until then
// other blocks may not have opened theirs.
template <class... Exchanges>
FUSEDOPS_DEVICE void open(const Exchanges&... exchanges) {
  if (threadIdx.x == 0) (cluster::open(exchanges.box, exchanges.floats()), ...);
  cluster::arrive_relaxed();
}

// Adds up kCount values over the threads of the block. `of_warp` may be used again after the
// block's next barrier.
template <int kCount>
FUSEDOPS_DEVICE void sum_of_block(float (&values)[kCount], float (*of_warp)[kMostWarps]) {
  const unsigned lane = threadIdx.x % warp::kWidth, warps = blockDim.x / warp::kWidth;
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    values[i] = warp::reduce(values[i], warp::kWidth, Sum{});
    if (lane == 0) of_warp[i][threadIdx.x / warp::kWidth] = values[i];
  }
  __syncthreads();
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    values[i] = warp::reduce(lane < warps ? of_warp[i][lane] : 0, warp::kWidth, Sum{});
  }
}

// Adds up what the lanes pass for the blocks of ClusterExchange::each().
FUSEDOPS_DEVICE float sum_of_blocks(float of_lane) {
  return warp::reduce(of_lane, cluster::kMostBlocks, Sum{});
}

// The rows of a grid whose clusters take one after the other: three that are given to them, and
// then the next that none has taken. So rows that are worked on at one time lie close together, and
// memory is up to 5 % faster than where all are given to clusters beforehand.
struct Queue {
  static constexpr unsigned kGiven = 3;  // so the counter is asked a row before that is sent on

  unsigned rows;
  std::int32_t* taken;  // of the others; null: all are given

  FUSEDOPS_DEVICE unsigned clusters() const { return gridDim.x / cluster::size(); }
  // Row number `at` of those given to the cluster.
  FUSEDOPS_DEVICE unsigned given(unsigned at) const { return cluster::number() + at * clusters(); }
  // Takes the cluster's row number `at`. Its first thread gets the row, the others 0.
  FUSEDOPS_DEVICE unsigned take(unsigned at) const {
    if (cluster::rank() > 0 || threadIdx.x > 0) return 0;
    return taken == nullptr ? given(at) : cluster::draw(taken) + kGiven * clusters();
  }
};

// Lets a kernel have clusters of that layout.
template <class Kernel>
gpu::Status allow(Kernel* kernel, const ClusterLayout& layout) {
  const gpu::Status status = gpu::allow_shared(kernel, static_cast<int>(layout.shared));
  return status == gpu::kSuccess && layout.cluster > cluster::kAlwaysAllowed
             ? gpu::allow_large_clusters(kernel)
             : status;
}

// The configuration of a launch of `clusters` clusters.
inline overlap::Blocks blocks_of(std::int64_t clusters, const ClusterLayout& layout) {
  return {dim3(static_cast<unsigned>(clusters) * layout.cluster), dim3(layout.threads),
          layout.cluster, layout.shared};
}

// Launches a kernel that has a cluster for each of `rows` rows.
template <class... Parameters, class... Arguments>
gpu::Status launch(void (*kernel)(Parameters...), std::int64_t rows, const ClusterLayout& layout,
                   gpu::Stream stream, Arguments... arguments) {
  if (rows > gpu::kMostBlocks / layout.cluster) return gpu::kInvalidValue;
  const gpu::Status status = allow(kernel, layout);
  if (status != gpu::kSuccess) return status;
  return overlap::launch(kernel, blocks_of(rows, layout), stream, arguments...);
}

// Launches a kernel that has as many clusters as the GPU runs at once, and a Queue of `rows` rows
// before the other arguments. `counter` is memory for it; null: none is drawn.
template <class... Parameters, class... Arguments>
gpu::Status launch_queue(void (*kernel)(Queue, Parameters...), std::int64_t rows,
                         const ClusterLayout& layout, std::int32_t* counter, gpu::Stream stream,
                         Arguments... arguments) {
  if (rows > gpu::kMostBlocks) return gpu::kInvalidValue;
  int at_once = 0;
  gpu::Status status = allow(kernel, layout);
  if (status == gpu::kSuccess) {
    status = gpu::clusters_at_once(kernel, layout.cluster, layout.threads, layout.shared, at_once);
  }
  if (status == gpu::kSuccess && at_once == 0) status = gpu::kInvalidValue;
  if (rows <= std::int64_t{Queue::kGiven} * at_once) counter = nullptr;
  if (status == gpu::kSuccess && counter) {
    status = gpu::fill_with_zeros(counter, sizeof(*counter), stream);
  }
  if (status != gpu::kSuccess) return status;
  return overlap::launch(kernel, blocks_of(std::min<std::int64_t>(rows, at_once), layout), stream,
                         Queue{static_cast<unsigned>(rows), counter}, arguments...);
}

}  // namespace fusedops::row_cluster
