// The gradients of a norm from one read of x and grad. A team, which is a block or a cluster, takes
// many rows, and a thread has the same columns of each: so their sums for gamma and beta stay in
// its registers, and are written once.
//
// A team works on several rows at a time, so that nothing waits: while the next rows are copied to
// shared memory, the warps send each other the sums of one row and write the results of the one
// before. A centered norm takes a row's mean a step before its sums, and sends it with those of the
// row before.
#pragma once

#include "kernels/norm_backward_rows.cuh"

namespace fusedops::kernels::norm_detail {

// What a team has of any norm.
struct TeamSize {
  static constexpr int kThreads = 512;  // of a block, at most, and of a multiprocessor
  static constexpr int kWarps = kThreads / warp::kWidth;   // of a block
  static constexpr int kFewVectors = 2, kMoreVectors = 4;  // of a thread

  // The rows in shared memory.
  static constexpr int stages(int vectors) { return vectors > kFewVectors ? 3 : 4; }
  // Sums: of squares and of g (x - mean), and if centered of g and of x.
  static constexpr int sums(bool centered) { return centered ? 4 : 2; }
};

// The steps of a team. In step i it sums row i, or if centered takes its mean and sums row i - 1.
template <class F, int kCount>
struct TeamSteps : TeamSize {
  static constexpr int kVectors = kCount, kStages = stages(kCount);
  static constexpr int kAhead = 1;  // rows that are copied beforehand; more are no faster
  static constexpr int kMeans = F::kCentered ? 1 : 0;  // steps from a row's mean to its sums
  static constexpr int kSums = sums(F::kCentered), kOfX = 3;
  static_assert(kAhead + kMeans + 2 <= kStages);
};

// The blocks or clusters that take the rows in turn. Their number is the same on every GPU, so that
// the sums' bits are too.
struct Teams {
  row_cluster::ClusterLayout by;
  std::int64_t count = 0;  // 0: the call is not for them
  int vectors = 0;         // of a thread
};

// The layout that keeps most threads busy, of those that need the fewest blocks. A thread has more
// vectors only where a row would not fit else, and not if centered: there is no room for its steps.
inline Teams teams_of(const Norm& call) {
  using S = TeamSize;
  constexpr std::int64_t kMostRows = 1 << 30, kLeastThreads = 32;
  const int lanes = kVectorBytes / element_size(call.dtype);
  constexpr std::int64_t kMostThreads = std::int64_t{S::kThreads} * cluster::kMostBlocks;
  const bool few = call.centered || call.cols / lanes <= kMostThreads * S::kFewVectors;
  Teams best{{}, 0, few ? S::kFewVectors : S::kMoreVectors};
  const std::int64_t threads = ceil_div(call.cols / lanes, best.vectors);
  if (call.dtype == DType::float64 || call.rows > kMostRows || call.cols % lanes != 0 ||
      threads < kLeastThreads || !gpu::has_clusters()) {
    return best;
  }
  std::int64_t most = 0;
  for (std::int64_t blocks = 1; blocks <= cluster::kMostBlocks; blocks *= 2) {
    const std::int64_t width = ceil_div(ceil_div(threads, blocks), warp::kWidth) * warp::kWidth;
    if (width > S::kThreads) continue;
    // Clusters of 4 and 8 blocks leave 12 of the 132 multiprocessors of an H200 free, those of 16
    // leave 20.
    const std::int64_t processors = blocks <= 2 ? 132 : blocks <= 8 ? 120 : 112;
    const std::int64_t count = processors * (S::kThreads / width) / blocks;
    if (count * threads <= most) continue;
    most = count * threads;
    const std::int64_t rooms =
        2 * blocks * width / warp::kWidth * S::sums(call.centered) * sizeof(float);
    const std::int64_t stages = S::stages(best.vectors) * 2 * best.vectors * width * kVectorBytes;
    best.by = {static_cast<unsigned>(blocks), static_cast<unsigned>(width), 0,
               static_cast<unsigned>(rooms + stages)};
    best.count = std::max<std::int64_t>(1, std::min(call.rows, count));
  }
  return best;
}

// The columns of the calling thread. A warp has neighbouring vectors, so that the offset of a
// thread's second one is a part of instructions.
template <class T>
struct Columns {
  unsigned first;    // vector
  unsigned vectors;  // of a row

  FUSEDOPS_DEVICE Columns(int cols, int of_thread) : vectors(cols / kLanes<T>) {
    const unsigned thread = cluster::rank() * blockDim.x + threadIdx.x;
    const unsigned lane = thread % warp::kWidth;
    first = (thread - lane) * of_thread + lane;
  }
  FUSEDOPS_DEVICE bool has(int k) const { return first + k * warp::kWidth < vectors; }
  template <class Element>
  FUSEDOPS_DEVICE Element* of(Element* row, int k) const {
    return row + std::int64_t{first} * kLanes<T> + k * warp::kWidth * kLanes<T>;
  }
};

// The part of the rows' x and grad that a thread has. The rows of a few steps are in shared memory,
// at places that no other thread touches.
template <class F, class S>
class Staged {
  using T = typename F::T;
  static constexpr int kBytes = S::kVectors * 2 * warp::kWidth * kVectorBytes;  // of a warp

 public:
  FUSEDOPS_DEVICE Staged(Packed* places) {
    const unsigned lane = threadIdx.x % warp::kWidth;
    places_ =
        shared::address_of(places) + threadIdx.x / warp::kWidth * kBytes + lane * kVectorBytes;
    stage_ = blockDim.x / warp::kWidth * kBytes;
  }
  // Starts to copy a row of a step. Vectors that the thread has not become zeros.
  FUSEDOPS_DEVICE void start(const T* x, const T* grad, const Columns<T>& columns,
                             unsigned step) const {
#pragma unroll
    for (int k = 0; k < S::kVectors; ++k) {
      async_copy::start(place(step, k, 0), columns.of(x, k), columns.has(k));
      async_copy::start(place(step, k, 1), columns.of(grad, k), columns.has(k));
    }
  }
  FUSEDOPS_DEVICE float sum_of_x(unsigned step) const {
    float sum = 0;
#pragma unroll
    for (int k = 0; k < S::kVectors; ++k) {
      float values[kLanes<T>];
      x(values, step, k);
      sum += sum_of_lanes(values, [](float one) { return one; });
    }
    return sum;
  }
  FUSEDOPS_DEVICE void x(float (&to)[kLanes<T>], unsigned step, int k) const {
    get(to, place(step, k, 0));
  }
  FUSEDOPS_DEVICE void grad(float (&to)[kLanes<T>], unsigned step, int k) const {
    get(to, place(step, k, 1));
  }

 private:
  FUSEDOPS_DEVICE static void get(float (&to)[kLanes<T>], shared::Address from) {
    const uint4 bits = shared::load_16(from);
    Packed words;
    memcpy(&words, &bits, sizeof(words));
    widen<T>(to, words);
  }
  FUSEDOPS_DEVICE shared::Address place(unsigned step, int k, int input) const {
    return places_ + step % S::kStages * stage_ + (k * 2 + input) * warp::kWidth * kVectorBytes;
  }
  shared::Address places_;
  unsigned stage_;  // bytes
};

// What a thread has of its columns, for all rows of the team.
template <class F, class S>
struct ColumnSums {
  using T = typename F::T;
  static constexpr int V = kLanes<T>, kVectors = S::kVectors;
  static constexpr int kOfRow = F::kCentered ? 3 : 2;  // sums of a row that need its mean
  const Columns<T>& columns;
  float gamma[kVectors][V] = {}, of_gamma[kVectors][V] = {}, of_beta[kVectors][V] = {};

  FUSEDOPS_DEVICE ColumnSums(const Columns<T>& columns, const T* gammas) : columns(columns) {
#pragma unroll
    for (int k = 0; k < kVectors; ++k) {
      if (columns.has(k)) widen(gamma[k], load(columns.of(gammas, k)));
    }
  }
  // Sets the first of `sums` to those of the thread's part of a row.
  template <int kSums>
  FUSEDOPS_DEVICE void sum_row(float (&sums)[kSums], const Staged<F, S>& in, int step,
                               float mean) const {
    float own[kOfRow] = {};
#pragma unroll
    for (int k = 0; k < kVectors; ++k) {
      float x[V], grad[V];
      in.x(x, step, k);
      in.grad(grad, step, k);
      add_products(own, x, grad, gamma[k], columns.has(k) ? mean : 0);
    }
#pragma unroll
    for (int i = 0; i < kOfRow; ++i) sums[i] = own[i];
  }
  // Writes the thread's part of a row to `to`, with `more` added if there is any, and adds it to
  // the sums of the columns.
  FUSEDOPS_DEVICE void take_row(T* to, const Staged<F, S>& in, int step, const Slope& slope,
                                const Vector<T> (&more)[kVectors], bool has_more) {
#pragma unroll
    for (int k = 0; k < kVectors; ++k) {
      float x[V], grad[V];
      in.x(x, step, k);
      in.grad(grad, step, k);
#pragma unroll
      for (int i = 0; i < V; ++i) {
        x[i] -= slope.mean;
        if constexpr (F::kCentered) of_beta[k][i] += grad[i];
        grad[i] *= slope.scale;
        of_gamma[k][i] = fmaf(grad[i], x[i], of_gamma[k][i]);
        x[i] = fmaf(grad[i], gamma[k][i], slope.rest(x[i]));
      }
      if (has_more) {
        float add[V];
        widen(add, more[k]);
#pragma unroll
        for (int i = 0; i < V; ++i) x[i] += add[i];
      }
      if (columns.has(k)) store(columns.of(to, k), narrow<T>(x));
    }
  }
  // Writes `sums`, one of the two.
  FUSEDOPS_DEVICE void write(float* to, const float (&sums)[kVectors][V]) const {
    constexpr int kFloats = kLanes<float>;
#pragma unroll
    for (int k = 0; k < kVectors; ++k) {
      if (!columns.has(k)) continue;
#pragma unroll
      for (int i = 0; i < V; i += kFloats) {
        Vector<float> part;
        memcpy(&part, &sums[k][i], sizeof(part));
        store(columns.of(to, k) + i, part);
      }
    }
  }
};

template <class F, int kVectors>
__global__ void FUSEDOPS_LAUNCH_BOUNDS(TeamSize::kThreads, 1)
    backward_once_kernel(const NormBackwardTensors t, float* __restrict__ of_gamma,
                         float* __restrict__ of_beta, unsigned rows, int cols,
                         const Constants<float> c) {
  if constexpr (cluster::kSupported) {
    using T = typename F::T;
    using S = TeamSteps<F, kVectors>;
    using Exchange = row_cluster::ClusterExchange<S::kSums, S::kWarps>;
    __shared__ cluster::Mailbox boxes[2];
    FUSEDOPS_DYNAMIC_SHARED(Packed, places);
    const auto exchange = [&](int step) {
      auto* const all = reinterpret_cast<typename Exchange::Sent*>(places);
      return Exchange(all + step % 2 * Exchange::senders(), boxes[step % 2]);
    };
    overlap::wait_in_turn();
    row_cluster::open(exchange(0), exchange(1));
    const unsigned teams = gridDim.x / cluster::size(), team = cluster::number();
    const int count = static_cast<int>((rows - team + teams - 1) / teams);
    const Columns<T> columns(cols, S::kVectors);
    const Staged<F, S> in(places + 2 * Exchange::senders() * sizeof(typename Exchange::Sent) /
                                       sizeof(Packed));
    const std::int64_t apart = std::int64_t{teams} * cols;
    std::int64_t next = std::int64_t{team} * cols;  // the first element of the next row to copy
    const auto start = [&](int step) {
      const T *x = static_cast<const T*>(t.x) + next, *grad = static_cast<const T*>(t.grad) + next;
      if (step < count) in.start(x, grad, columns, step);
      next += apart;
      async_copy::commit_group();
    };
    for (int step = 0; step < S::kAhead; ++step) start(step);
    ColumnSums<F, S> sums(columns, static_cast<const T*>(t.gamma));
    cluster::wait();
    float mean = 0;
    for (int step = 0; step <= count + S::kMeans; ++step) {
      start(step + S::kAhead);
      const int last = step - 1 - S::kMeans;  // the step whose row is written
      const std::int64_t row = next - (S::kAhead + 2 + S::kMeans) * apart;
      Vector<T> more[S::kVectors];
      if (t.grad_sum && last >= 0) {
#pragma unroll
        for (int k = 0; k < S::kVectors; ++k) {
          if (!columns.has(k)) continue;
          more[k] = load(columns.of(static_cast<const T*>(t.grad_sum) + row, k));
        }
      }
      async_copy::wait_group(S::kAhead);
      float own[S::kSums] = {}, got[S::kSums] = {};
      if (step < count) {
        if constexpr (F::kCentered) {
          own[S::kOfX] = in.sum_of_x(step);
        } else {
          sums.sum_row(own, in, step, 0);
        }
      }
      const float mean_of_last = mean;
      if (step > 0) {
        const Exchange from = exchange(step - 1);
        from.receive((step - 1) / 2);
        from.sum(got);
        from.reopen();
        if constexpr (F::kCentered) {
          mean = c.exact_mean(got[S::kOfX]);
          if (step <= count) sums.sum_row(own, in, step - 1, mean);
        }
      }
      if (step < count + S::kMeans) {
        typename Exchange::Sent to_all;
        warp::reduce_all(own, Sum{});
        memcpy(&to_all, own, sizeof(to_all));
        exchange(step).send(to_all);
      }
      if (last < 0) continue;
      sums.take_row(static_cast<T*>(t.grad_x) + row, in, last, Slope(mean_of_last, got, c), more,
                    t.grad_sum != nullptr);
    }
    sums.write(of_gamma + std::int64_t{team} * cols, sums.of_gamma);
    if constexpr (F::kCentered) sums.write(of_beta + std::int64_t{team} * cols, sums.of_beta);
  }
}

template <class F>
gpu::Status launch_backward_once(const Norm& call, const NormBackwardTensors& t, const Teams& teams,
                                 float* of_gamma, float* of_beta, gpu::Stream stream) {
  auto kernel = &backward_once_kernel<F, TeamSize::kFewVectors>;
  if constexpr (!F::kCentered) {
    if (teams.vectors > TeamSize::kFewVectors) {
      kernel = &backward_once_kernel<F, TeamSize::kMoreVectors>;
    }
  }
  return row_cluster::launch(kernel, teams.count, teams.by, stream, t, of_gamma, of_beta,
                             static_cast<unsigned>(call.rows), static_cast<int>(call.cols),
                             constants_of<float>(call));
}

}  // namespace fusedops::kernels::norm_detail
