// The gradients of a norm from one read of x and grad. A team, which is a block or a cluster, takes
// many rows, and a thread has the same columns of each: so their sums for gamma and beta stay in
// its registers, and are written once.
//
// A team works on several rows at a time, so that nothing waits: while the next rows are copied to
// shared memory, the warps send each other the sums of one row and write the results of the one
// before. If rows are so long that there is room for one, the next is on its way to L2 meanwhile.
//
// In a centered norm a warp's sums are relative to the mean of its part of the row, and are
// brought to the row's mean by those who receive them.
#pragma once

#include "kernels/norm_backward_shifted.cuh"

namespace fusedops::kernels::norm_detail {

template <class F, class S>
using Stages = std::conditional_t<S::kWhole, WholeStages<F, S>, ShiftedStages<F, S>>;

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

// gamma of a thread's columns: in registers,
template <class F, class S>
class RegisterGammas {
  using T = typename F::T;
  RegisterVector<T, S::kPacked> vectors_[S::kVectors];

 public:
  FUSEDOPS_DEVICE RegisterGammas(Packed*) {}
  FUSEDOPS_DEVICE void put(int k, const Vector<T>& gamma) { vectors_[k].put(gamma); }
  // Where registers are few the compiler must widen packed elements again instead of keeping both.
  FUSEDOPS_DEVICE void get(int k, float (&gamma)[kLanes<T>]) const {
    if constexpr (S::kPacked) {
      auto packed = vectors_[k];
#pragma unroll
      for (unsigned& word : packed.word) fetch::make_opaque(word);
      packed.get(gamma);
    } else {
      vectors_[k].get(gamma);
    }
  }
};
// or in shared memory.
template <class F, class S>
class SharedGammas {
  using T = typename F::T;
  Packed* const places_;

 public:
  FUSEDOPS_DEVICE SharedGammas(Packed* places) : places_(places + threadIdx.x) {}
  FUSEDOPS_DEVICE void put(int k, const Vector<T>& gamma) { places_[k * blockDim.x] = pack(gamma); }
  FUSEDOPS_DEVICE void get(int k, float (&gamma)[kLanes<T>]) const {
    widen<T>(gamma, places_[k * blockDim.x]);
  }
};

// What a thread has of its columns, for all rows of the team.
template <class F, class S>
struct ColumnSums {
  using T = typename F::T;
  static constexpr int V = kLanes<T>, kVectors = S::kVectors;
  const Columns<F, S>& columns;
  std::conditional_t<S::kAlone, SharedGammas<F, S>, RegisterGammas<F, S>> gammas;
  float of_gamma[kVectors][V] = {}, of_beta[kVectors][V] = {};
  float edge_gamma = 0, edge_of_gamma = 0, edge_of_beta = 0;
  float inverse_count;  // of the warp's elements

  // `places` are those of gamma in shared memory.
  FUSEDOPS_DEVICE ColumnSums(const Columns<F, S>& columns, const Stages<F, S>& in, const T* gamma,
                             Packed* places)
      : columns(columns), gammas(places) {
#pragma unroll
    for (int k = 0; k < kVectors; ++k) gammas.put(k, in.load(gamma, k, std::false_type{}));
    if (columns.has_edge()) edge_gamma = widen(columns.edge_of(gamma));
    const float count = columns.elements_of(columns.warp());
    inverse_count = count > 0 ? 1 / count : 0;
  }
  // The sums of the warp's part of a row. In a centered norm they are taken relative to the mean of
  // its first elements. If they are one of n parts, its square distance from that of the whole is
  // at most n times the variance, so the sum of squares loses at most n units of rounding: with 4
  // vectors of a thread 128, or 2^-17.
  template <class Odd>
  FUSEDOPS_DEVICE void sum_row(float (&sums)[S::kSums], const Stages<F, S>& in,
                               const StagedRow& row, Odd odd) const {
    float pivot = 0;
#pragma unroll
    for (int k = 0; k < kVectors; ++k) {
      float x[V], grad[V], gamma[V], mean = 0;
      in.get(x, grad, row, k, odd);
      gammas.get(k, gamma);
      if constexpr (F::kCentered) {
        if (k == 0) pivot = in.mean_of_first(x);
        mean = in.subtract(x, pivot, k);
      }
      add_products(sums, x, grad, gamma, mean);
    }
    if (columns.has_edge()) {
      const Two<float> edge = in.edge(row);
      float x[1] = {edge.first}, grad[1] = {edge.second};
      const float gamma[1] = {edge_gamma};
      add_products(sums, x, grad, gamma, pivot);
    }
    warp::reduce_all(sums, Sum{});
    if constexpr (F::kCentered) centre<S>(sums, inverse_count, pivot);
  }
  // Loads a row of grad_sum, or asks for it from L2.
  FUSEDOPS_DEVICE void ask_for_sum(Vector<T> (&early)[kVectors], const NormBackwardTensors& t,
                                   const StagedRow& row) const {
#pragma unroll
    for (int k = 0; k < kVectors; ++k) {
      if (!columns.has(k)) continue;
      const T* const more = columns.of(static_cast<const T*>(t.grad_sum) + row.first, k);
      if constexpr (S::kFull) {
        fetch::into_l2(reinterpret_cast<const char*>(more));
      } else {
        early[k] = load(more);
      }
    }
  }
  // Writes the thread's part of a row, and adds it to the sums of the columns. To what is written
  // grad_sum is added, if there is any: as it was loaded early, if there were registers for that.
  // When no thread of the warp needs vector k of the row any more, it calls taken(k).
  template <class Odd, class Taken>
  FUSEDOPS_DEVICE void take_row(const NormBackwardTensors& t, Stages<F, S>& in,
                                const StagedRow& row, const Slope& slope,
                                const Vector<T> (&early)[kVectors], Odd odd, const Taken& taken) {
    const auto* const more = static_cast<const T*>(t.grad_sum) + row.first;
    auto* const out = static_cast<T*>(t.grad_x);
#pragma unroll
    for (int k = 0; k < kVectors; ++k) {
      float x[V], grad[V], gamma[V];
      in.get(x, grad, row, k, odd);
      if constexpr (S::kAlone) {
        in.release();
        taken(k);
      }
      gammas.get(k, gamma);
#pragma unroll
      for (int i = 0; i < V; ++i) {
        x[i] = take(x[i], grad[i], gamma[i], of_gamma[k][i], of_beta[k][i], slope);
      }
      if (t.grad_sum) {
        float add[V];
        widen(add, S::kFull ? in.load(more, k, odd) : early[k]);
#pragma unroll
        for (int i = 0; i < V; ++i) x[i] += add[i];
      }
      in.write(out, x, row, k, odd);
    }
    if (columns.has_edge()) {
      const Two<float> edge = in.edge(row);
      const float result =
          take(edge.first, edge.second, edge_gamma, edge_of_gamma, edge_of_beta, slope);
      columns.edge_of(out + row.first) =
          narrow<T>(result + (t.grad_sum ? widen(columns.edge_of(more)) : 0));
    }
    in.release();
  }
  // Writes `sums`, one of the two, and that of the edge.
  FUSEDOPS_DEVICE void write(float* to, const Stages<F, S>& in, const float (&sums)[kVectors][V],
                             float edge) const {
#pragma unroll
    for (int k = 0; k < kVectors; ++k) in.write_sums(to, sums[k], k);
    if (columns.has_edge()) columns.edge_of(to) = edge;
  }

 private:
  // Adds an element to the sums of its column, and returns its gradient.
  FUSEDOPS_DEVICE static float take(float x, float grad, float gamma, float& of_gamma,
                                    float& of_beta, const Slope& slope) {
    x -= slope.mean;
    if constexpr (F::kCentered) of_beta += grad;
    grad *= slope.scale;
    of_gamma = fmaf(grad, x, of_gamma);
    return fmaf(grad, gamma, slope.rest(x));
  }
};

// The sums of a row from those of the warps, which are brought to the first one's mean.
template <class F, class S, class Exchange>
FUSEDOPS_DEVICE void sum_warps(float (&got)[S::kSums], const Exchange& from,
                               const Columns<F, S>& columns, const Constants<float>& c) {
  if constexpr (F::kCentered) {
    const float pivot = from.sent[0].of[S::kMean];
#pragma unroll 4
    for (unsigned i = 0; i < from.kSenders / warp::kWidth; ++i) {
      const unsigned of = threadIdx.x % warp::kWidth + i * warp::kWidth;
      if (of >= from.senders()) break;
      auto one = from.sent[of];
      shift<S>(one.of, columns.elements_of(of), pivot);
#pragma unroll
      for (int i = 0; i < S::kSums; ++i) got[i] += one.of[i];
    }
    warp::reduce_all(got, Sum{});
    centre<S>(got, c.inverse_n, pivot);
  } else {
    from.sum(got);
  }
}

// Calls body(odd) for a row, where odd.value says whether it is an odd one (ShiftedStages).
template <class In, class Body>
FUSEDOPS_DEVICE void with_parity(const In& in, const StagedRow& row, const Body& body) {
  if (in.is_odd(row)) {
    body(std::true_type{});
  } else {
    body(std::false_type{});
  }
}

template <class F, int kVectors, RowLayout kLayout>
__global__ void FUSEDOPS_LAUNCH_BOUNDS(TeamSize::kThreads, 1)
    backward_once_kernel(const NormBackwardTensors t, float* __restrict__ of_gamma,
                         float* __restrict__ of_beta, unsigned rows, int cols,
                         const Constants<float> c) {
  if constexpr (cluster::kSupported) {
    using T = typename F::T;
    using S = TeamSteps<F, kVectors, kLayout>;
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
    const auto row_of = [&](int step) {
      return StagedRow{step, (team + static_cast<std::int64_t>(step) * teams) * cols};
    };
    const Columns<F, S> columns(cols);
    Packed* const staged =
        places + 2 * Exchange::senders() * sizeof(typename Exchange::Sent) / sizeof(Packed);
    Stages<F, S> in(staged, columns, static_cast<const T*>(t.x), static_cast<const T*>(t.grad));
    const auto start = [&](int step) {
      if (step < count) {
#pragma unroll
        for (int k = 0; k < S::kVectors; ++k) in.start(row_of(step), k);
        in.start_end(row_of(step));
      }
      async_copy::commit_group();
    };
    start(0);
    ColumnSums<F, S> sums(columns, in, static_cast<const T*>(t.gamma), staged + in.size());
    cluster::wait();
    constexpr int kBehind = S::kAlone ? 0 : 1;  // steps until a row is written
    for (int step = 0; step < count + kBehind; ++step) {
      if constexpr (!S::kAlone) {
        start(step + 1);
      } else if (step + 1 < count) {
        in.prefetch(row_of(step + 1));
      }
      const StagedRow written = row_of(step - kBehind);
      Vector<T> early[S::kVectors];
      if (t.grad_sum && step >= kBehind) sums.ask_for_sum(early, t, written);
      in.wait();
      typename Exchange::Sent own{};
      if (step < count) {
        const StagedRow row = row_of(step);
        with_parity(in, row, [&](auto odd) { sums.sum_row(own.of, in, row, odd); });
      }
      if (S::kAlone) exchange(step).send(own);
      float got[S::kSums] = {};
      if (step >= kBehind) {
        const Exchange from = exchange(written.step);
        from.receive(written.step / 2);
        sum_warps<F, S>(got, from, columns, c);
        from.reopen();
      }
      if (!S::kAlone && step < count) exchange(step).send(own);
      if (step < kBehind) continue;
      const Slope slope(F::kCentered ? got[S::kSums - 1] : 0, got, c);
      const auto taken = [&](int k) {
        if (step + 1 < count) in.start(row_of(step + 1), k);
      };
      with_parity(in, written,
                  [&](auto odd) { sums.take_row(t, in, written, slope, early, odd, taken); });
      if constexpr (S::kAlone) {
        if (step + 1 < count) in.start_end(row_of(step + 1));
        async_copy::commit_group();
      }
    }
    const std::int64_t at = std::int64_t{team} * cols;
    sums.write(of_gamma + at, in, sums.of_gamma, sums.edge_of_gamma);
    if constexpr (F::kCentered) sums.write(of_beta + at, in, sums.of_beta, sums.edge_of_beta);
  }
}

template <class F>
gpu::Status launch_backward_once(const Norm& call, const NormBackwardTensors& t, const Teams& teams,
                                 float* of_gamma, float* of_beta, gpu::Stream stream) {
  using T = typename F::T;
  const auto with = [&](auto vectors) {
    return call.cols % kLanes<T> == 0 ? &backward_once_kernel<F, vectors.value, RowLayout::whole>
                                      : &backward_once_kernel<F, vectors.value, RowLayout::shifted>;
  };
  auto* kernel = teams.vectors == TeamSize::kFewVectors
                     ? with(std::integral_constant<int, TeamSize::kFewVectors>{})
                     : with(std::integral_constant<int, TeamSize::kMoreVectors>{});
  if constexpr (std::is_same_v<T, float>) {
    if (teams.vectors == TeamSize::kMostVectors) {
      kernel = with(std::integral_constant<int, TeamSize::kMostVectors>{});
    }
  }
  return row_cluster::launch(kernel, teams.count, teams.by, stream, t, of_gamma, of_beta,
                             static_cast<unsigned>(call.rows), static_cast<int>(call.cols),
                             constants_of<float>(call));
}

}  // namespace fusedops::kernels::norm_detail
