// The gradients of a norm from one read of x and grad. A team, which is a block or a cluster, takes
// many rows, and a thread has the same columns of each: so their sums for gamma and beta stay in
// its registers, and are written once.
//
// A team works on several rows at a time, so that nothing waits: while the next rows are copied to
// shared memory, the warps send each other the sums of one row and write the results of the one
// before. In a centered norm a warp's sums are relative to the mean of its part of the row, and are
// brought to the row's mean by those who receive them.
#pragma once

#include "kernels/norm_backward_rows.cuh"

namespace fusedops::kernels::norm_detail {

// What a team has of any norm.
struct TeamSize {
  static constexpr int kThreads = 512;  // of a block, at most, and of a multiprocessor
  static constexpr int kWarps = kThreads / warp::kWidth;   // of a block
  static constexpr int kFewVectors = 2, kMoreVectors = 4;  // of a thread
  // In step i a team copies row i + 1, sums row i and writes row i - 1.
  static constexpr int kStages = 3;  // rows in shared memory

  // Sums: of squares and of g (x - mean), and if centered of g. And the mean.
  static constexpr int sums(bool centered) { return centered ? 4 : 2; }
};

template <class F, int kCount>
struct TeamSteps : TeamSize {
  static constexpr int kVectors = kCount;
  // A centered norm's sums leave no room for gamma as float32, nor, if halves are widened, for what
  // is added to a row.
  static constexpr bool kPacked =
      F::kCentered && sizeof(typename F::T) == 2 && kCount > kFewVectors;
  static constexpr bool kFull = kPacked && std::is_same_v<typename F::T, half>;
  static constexpr int kSums = sums(F::kCentered), kOfG = 2, kMean = 3;
};

// The blocks or clusters that take the rows in turn. Their number is the same on every GPU, so that
// the sums' bits are too.
struct Teams {
  row_cluster::ClusterLayout by;
  std::int64_t count = 0;  // 0: the call is not for them
  int vectors = 0;         // of a thread
};

// The layout that keeps most threads busy, of those that need the fewest blocks. A thread has more
// vectors only where a row would need the largest clusters else, which leave most of a GPU free.
inline Teams teams_of(const Norm& call) {
  using S = TeamSize;
  constexpr std::int64_t kMostRows = 1 << 30, kLeastThreads = 32;
  const int lanes = kVectorBytes / element_size(call.dtype);
  constexpr std::int64_t kMostThreads = std::int64_t{S::kThreads} * cluster::kMostBlocks;
  const bool few = call.cols / lanes <= kMostThreads / 2 * S::kFewVectors;
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
    const std::int64_t stages = S::kStages * 2 * best.vectors * width * kVectorBytes;
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
  // The number of elements of a warp of the team.
  FUSEDOPS_DEVICE float elements_of(unsigned warp, int of_thread) const {
    const unsigned of_warp = of_thread * warp::kWidth, before = min(vectors, warp * of_warp);
    return static_cast<float>(min(vectors - before, of_warp) * kLanes<T>);
  }
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

// Brings a centered norm's sums of `count` elements, which are relative to their mean, to `pivot`.
// The mean is replaced by what x - pivot adds up to.
template <class S>
FUSEDOPS_DEVICE void shift(float (&sums)[S::kSums], float count, float pivot) {
  const float apart = sums[S::kMean] - pivot;
  sums[S::kMean] = count * apart;
  sums[0] = fmaf(sums[S::kMean], apart, sums[0]);
  sums[1] = fmaf(sums[S::kOfG], apart, sums[1]);
}
// Brings sums from `pivot` to the mean of their elements.
template <class S>
FUSEDOPS_DEVICE void centre(float (&sums)[S::kSums], float inverse_count, float pivot) {
  const float apart = sums[S::kMean] * inverse_count;
  sums[0] = fmaf(-sums[S::kMean], apart, sums[0]);
  sums[1] = fmaf(-sums[S::kOfG], apart, sums[1]);
  sums[S::kMean] = pivot + apart;
}

// What a thread has of its columns, for all rows of the team.
template <class F, class S>
struct ColumnSums {
  using T = typename F::T;
  static constexpr int V = kLanes<T>, kVectors = S::kVectors;
  const Columns<T>& columns;
  RegisterVector<T, S::kPacked> gammas[kVectors] = {};
  float of_gamma[kVectors][V] = {}, of_beta[kVectors][V] = {};
  float inverse_count;  // of the warp's elements

  FUSEDOPS_DEVICE ColumnSums(const Columns<T>& columns, const T* gamma) : columns(columns) {
#pragma unroll
    for (int k = 0; k < kVectors; ++k) {
      if (columns.has(k)) gammas[k].put(load(columns.of(gamma, k)));
    }
    const float count = columns.elements_of(columns.first / (kVectors * warp::kWidth), kVectors);
    inverse_count = count > 0 ? 1 / count : 0;
  }
  // The sums of the warp's part of a row. In a centered norm they are taken relative to the mean of
  // its first vector. With n vectors, its square distance from that of the part is at most n times
  // their variance, so the sum of squares loses at most n units of rounding: 128, or 2^-17.
  FUSEDOPS_DEVICE void sum_row(float (&sums)[S::kSums], const Staged<F, S>& in, int step) const {
    float pivot = 0;
#pragma unroll
    for (int k = 0; k < kVectors; ++k) {
      float x[V], grad[V], gamma[V];
      in.x(x, step, k);
      in.grad(grad, step, k);
      gammas[k].get(gamma);
      if (F::kCentered && k == 0) {
        pivot = warp::shuffle(sum_of_lanes(x, [](float one) { return one; }) / V, 0);
      }
      add_products(sums, x, grad, gamma, columns.has(k) ? pivot : 0);
    }
    warp::reduce_all(sums, Sum{});
    if constexpr (F::kCentered) centre<S>(sums, inverse_count, pivot);
  }
  // Writes the thread's part of the row that begins at `row`, and adds it to the sums of the
  // columns. To what is written grad_sum is added, if there is any: as it was loaded early, if
  // there were registers for that.
  FUSEDOPS_DEVICE void take_row(const NormBackwardTensors& t, std::int64_t row,
                                const Staged<F, S>& in, int step, const Slope& slope,
                                const Vector<T> (&early)[kVectors]) {
#pragma unroll
    for (int k = 0; k < kVectors; ++k) {
      float x[V], grad[V], gamma[V];
      in.x(x, step, k);
      in.grad(grad, step, k);
      gammas[k].get(gamma);
#pragma unroll
      for (int i = 0; i < V; ++i) {
        x[i] -= slope.mean;
        if constexpr (F::kCentered) of_beta[k][i] += grad[i];
        grad[i] *= slope.scale;
        of_gamma[k][i] = fmaf(grad[i], x[i], of_gamma[k][i]);
        x[i] = fmaf(grad[i], gamma[i], slope.rest(x[i]));
      }
      if (t.grad_sum && (!S::kFull || columns.has(k))) {
        float add[V];
        const auto* const more = static_cast<const T*>(t.grad_sum) + row;
        widen(add, S::kFull ? load(columns.of(more, k)) : early[k]);
#pragma unroll
        for (int i = 0; i < V; ++i) x[i] += add[i];
      }
      if (columns.has(k)) store(columns.of(static_cast<T*>(t.grad_x) + row, k), narrow<T>(x));
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

// The sums of a row from those of the warps, which are brought to the first one's mean.
template <class F, class S, class Exchange>
FUSEDOPS_DEVICE void sum_warps(float (&got)[S::kSums], const Exchange& from,
                               const Columns<typename F::T>& columns, const Constants<float>& c) {
  if constexpr (F::kCentered) {
    const float pivot = from.sent[0].of[S::kMean];
#pragma unroll 4
    for (unsigned i = 0; i < from.kSenders / warp::kWidth; ++i) {
      const unsigned of = threadIdx.x % warp::kWidth + i * warp::kWidth;
      if (of >= from.senders()) break;
      auto one = from.sent[of];
      shift<S>(one.of, columns.elements_of(of, S::kVectors), pivot);
#pragma unroll
      for (int i = 0; i < S::kSums; ++i) got[i] += one.of[i];
    }
    warp::reduce_all(got, Sum{});
    centre<S>(got, c.inverse_n, pivot);
  } else {
    from.sum(got);
  }
}

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
    start(0);
    ColumnSums<F, S> sums(columns, static_cast<const T*>(t.gamma));
    cluster::wait();
    for (int step = 0; step <= count; ++step) {
      start(step + 1);
      const std::int64_t row = next - 3 * apart;  // that is written
      Vector<T> early[S::kVectors];
      if (t.grad_sum && step > 0) {
#pragma unroll
        for (int k = 0; k < S::kVectors; ++k) {
          if (!columns.has(k)) continue;
          const T* const more = columns.of(static_cast<const T*>(t.grad_sum) + row, k);
          if constexpr (S::kFull) {
            fetch::into_l2(reinterpret_cast<const char*>(more));
          } else {
            early[k] = load(more);
          }
        }
      }
      async_copy::wait_group(1);
      typename Exchange::Sent own{};
      if (step < count) sums.sum_row(own.of, in, step);
      float got[S::kSums] = {};
      if (step > 0) {
        const Exchange from = exchange(step - 1);
        from.receive((step - 1) / 2);
        sum_warps<F, S>(got, from, columns, c);
        from.reopen();
      }
      if (step < count) exchange(step).send(own);
      if (step == 0) continue;
      const float mean = F::kCentered ? got[S::kSums - 1] : 0;
      sums.take_row(t, row, in, step - 1, Slope(mean, got, c), early);
    }
    sums.write(of_gamma + std::int64_t{team} * cols, sums.of_gamma);
    if constexpr (F::kCentered) sums.write(of_beta + std::int64_t{team} * cols, sums.of_beta);
  }
}

template <class F>
gpu::Status launch_backward_once(const Norm& call, const NormBackwardTensors& t, const Teams& teams,
                                 float* of_gamma, float* of_beta, gpu::Stream stream) {
  const auto kernel = teams.vectors > TeamSize::kFewVectors
                          ? &backward_once_kernel<F, TeamSize::kMoreVectors>
                          : &backward_once_kernel<F, TeamSize::kFewVectors>;
  return row_cluster::launch(kernel, teams.count, teams.by, stream, t, of_gamma, of_beta,
                             static_cast<unsigned>(call.rows), static_cast<int>(call.cols),
                             constants_of<float>(call));
}

}  // namespace fusedops::kernels::norm_detail
