// The norms of long rows, whose threads are those of a cluster (row_cluster.cuh). A cluster takes
// one row after the other, and keeps gamma, beta and bias in its shared memory if there is room:
// read again for each row, they keep the L2 cache as busy as the rows keep memory.
#pragma once

#include "kernels/norm_part.cuh"
#include "kernels/row_cluster.cuh"
#include "platform/overlap.h"
#include "platform/shared.h"

namespace fusedops::kernels::norm_detail {

// The part of a row that a block has, in a norm of centered rows. Squares are taken relative to the
// mean of the block, and brought to that of the row once both are known: so the blocks exchange
// what they have once (Chan, Golub & LeVeque, "Updating formulae and a pairwise algorithm for
// computing sample variances", 1979).
struct PartialSum {
  float sum = 0, count = 0;

  FUSEDOPS_DEVICE float mean() const { return count > 0 ? sum / count : 0; }
};

// A row of one or two tensors that a cluster has in its shared memory (ClusterRow), and the
// elements outside its vectors, one a thread.
template <class T, RowLayout kLayout, int kInputs, unsigned kGroups = 1>
struct SharedRow {
  using Part = row_cluster::ClusterRow<kInputs, kGroups>;
  const RowSlice<T, kLayout> p;
  const std::int64_t begin;  // index of the first vector
  const Part part;
  typename Part::Starts in;
  const bool has_edge;
  const std::int64_t edge_column;

  FUSEDOPS_DEVICE SharedRow(unsigned row, const T* first, const T* second, std::int64_t cols,
                            Packed* places, unsigned held)
      : p(row, cols),
        begin(p.row + p.span.head),
        part(places, held, static_cast<unsigned>(p.span.vectors)),
        has_edge(!p.kWhole && part.own < static_cast<unsigned>(p.span.edges)),
        edge_column(p.span.template edge<kLanes<T>>(static_cast<int>(part.own))) {
    in[0] = as_packed(first + begin);
    if constexpr (kInputs > 1) in[1] = as_packed(second + begin);
  }
  // The number of elements of a block.
  FUSEDOPS_DEVICE float elements_of(unsigned block) const {
    return static_cast<float>(part.count_of(block) * p.V + (block == 0 ? p.span.edges : 0));
  }
  // Vector v of the row in a tensor of as many.
  template <class Element>
  FUSEDOPS_DEVICE Element* of(Element* data, unsigned v) const {
    return data + begin + std::int64_t{v} * p.V;
  }
};

// The mean of a row, of whose blocks each lane passes one.
FUSEDOPS_DEVICE float mean_of_row(const PartialSum& one, const Constants<float>& c) {
  return c.exact_mean(row_cluster::sum_of_blocks(one.sum));
}

// The scale of a row, of whose blocks each lane passes one, with its squares.
template <class F>
FUSEDOPS_DEVICE Scale<float> scale_of_row(const PartialSum& one, float squares,
                                          const Constants<float>& c) {
  float mean = 0;
  if constexpr (F::kCentered) {
    mean = mean_of_row(one, c);
    const float apart = one.mean() - mean;
    squares = fmaf(one.count, apart * apart, squares);
  }
  const float of_row = row_cluster::sum_of_blocks(squares);
  return {mean, math::inverse_sqrt(fmaf(of_row, c.inverse_n, c.eps))};
}

// A centered norm has much arithmetic: there blocks have S::kMost threads and neighbouring vectors,
// so that offsets are parts of instructions. In others they have as many as the row needs, and
// vectors in turn, which memory likes better.
template <class F, class S>
FUSEDOPS_DEVICE unsigned threads_of_block() {
  return F::kCentered ? S::kMost : blockDim.x;
}

// The part of a row that the calling thread has.
template <class F, class S, RowLayout kLayout>
FUSEDOPS_DEVICE RowSlice<typename F::T, kLayout> slice_of(unsigned row, int cols) {
  RowSlice<typename F::T, kLayout> p(row, cols);
  const unsigned threads = threads_of_block<F, S>();
  p.thread += cluster::rank() * threads * (F::kCentered ? S::kVectors : 1);
  p.threads = threads * (F::kCentered ? 1 : cluster::size());
  return p;
}

// The number of elements of the row that a block has in a centered norm.
template <class S, class P>
FUSEDOPS_DEVICE float elements_of(const P& p, unsigned block) {
  constexpr int kMost = S::kMost * S::kVectors;
  const int vectors = static_cast<int>(p.span.vectors) - static_cast<int>(block) * kMost;
  return static_cast<float>(max(min(vectors, kMost), 0) * P::V + (block == 0 ? p.span.edges : 0));
}

template <class F>
using ExchangeOf = row_cluster::ClusterExchange<F::kCentered ? 4 : 2>;

// The scale of a row whose blocks have `sum`, and squares relative to their mean. `taken` is what
// the first thread has got from the queue; each thread gets it back.
template <class F, class S, class P, class Meanwhile>
FUSEDOPS_DEVICE Scale<float> scale_of_blocks(float sum, float squares, unsigned& taken, const P& p,
                                             const Constants<float>& c, const ExchangeOf<F>& blocks,
                                             unsigned round, const Meanwhile& meanwhile) {
  typename ExchangeOf<F>::Sent own{{squares, math::from_bits(taken)}}, one{};
  if constexpr (F::kCentered) own.of[2] = sum;
  blocks.send(own);
  meanwhile();
  blocks.receive(round);
  taken = __float_as_uint(blocks.sent[0].of[1]);
  PartialSum of_lane;
  blocks.each([&](const auto& sent, unsigned block) {
    one = sent;
    if constexpr (F::kCentered) of_lane = {sent.of[2], elements_of<S>(p, block)};
  });
  return scale_of_row<F>(of_lane, one.of[0], c);
}

// What a block has in shared memory: a row of each input of the sum and, if S::kKeeps, gamma, beta
// and bias. A thread's vectors lie in places of its own. But where rows are shifted, those of
// gamma, beta and bias are read by the thread before it too.
template <class F, class S, RowLayout kLayout>
struct InShared {
  using T = typename F::T;
  using P = RowSlice<T, kLayout>;
  static constexpr int kInputs = F::kAdds == Adds::nothing ? 1 : 2;
  static constexpr int kColumns = S::kKeeps ? (F::kCentered ? kInputs + 1 : 1) : 0;
  static constexpr unsigned kMore = P::kWhole ? 0 : 1;  // places beyond those of the threads
  EdgeLoads<F, kLayout> edge;
  EdgeGain<F, kLayout> edge_gain{}, next_edge_gain{};

  static unsigned bytes(unsigned threads) {
    return (kInputs * threads + kColumns * (threads + kMore)) * S::kVectors * kVectorBytes;
  }

  // Starts to copy what all rows share.
  FUSEDOPS_DEVICE void start_columns(const Tensors<T>& t, const P& p, int cols) const {
    if constexpr (S::kKeeps) {
      copy_columns(t.gamma, kGamma, p, cols);
      if constexpr (F::kCentered) copy_columns(t.beta, kBeta, p, cols);
      if (F::adds_bias(t)) copy_columns(t.bias, kBias, p, cols);
    }
  }
  FUSEDOPS_DEVICE void start(const Tensors<T>& t, const P& p) {
    copy(t.x, p, 0);
    if (kInputs > 1) copy(t.residual, p, 1);
    async_copy::commit_group();
    edge.start(t, p);
    if constexpr (S::kKeeps) next_edge_gain.load(t, p);
  }
  // Must be called before the copies are used.
  FUSEDOPS_DEVICE void wait(bool first) {
    async_copy::wait_group(0);
    if constexpr (!P::kWhole) edge_gain = next_edge_gain;
    if (kColumns > kBias && !P::kWhole && first) __syncthreads();  // no barrier before its use
  }

  FUSEDOPS_DEVICE Vector<T> x_of(int k) const { return vector_at(place_of(0, k)); }
  FUSEDOPS_DEVICE Vector<T> residual_of(int k) const { return vector_at(place_of(1, k)); }
  FUSEDOPS_DEVICE Vector<T> next_bias(int k, const Tensors<T>&, const P& p) const {
    return of_columns(kBias, k, p);
  }
  FUSEDOPS_DEVICE Gain<T> next(int k, const Tensors<T>&, const P& p) const {
    Gain<T> gain;
    gain.gamma = of_columns(kGamma, k, p);
    if constexpr (F::kCentered) gain.beta = of_columns(kBeta, k, p);
    return gain;
  }
  FUSEDOPS_DEVICE const EdgeGain<F, kLayout>& edge_of(const Tensors<T>&, const P&) const {
    return edge_gain;
  }

 private:
  static constexpr int kGamma = 0, kBeta = 1, kBias = 2;  // the order of the columns

  // Those of the thread's vector k: of input `tensor`, and of columns.
  FUSEDOPS_DEVICE static Packed* place_of(int tensor, int k) {
    FUSEDOPS_DYNAMIC_SHARED(Packed, places);
    return places + (tensor * S::kVectors + k) * threads_of_block<F, S>() + threadIdx.x;
  }
  FUSEDOPS_DEVICE static Packed* place_of_columns(int tensor, int k) {
    const int number = tensor * S::kVectors + k;
    return place_of(kInputs, number) + number * static_cast<int>(kMore);
  }
  FUSEDOPS_DEVICE static void copy(const T* from, const P& p, int tensor) {
#pragma unroll
    for (int k = 0; k < S::kVectors; ++k) {
      async_copy::start(shared::address_of(place_of(tensor, k)), p.template own_of_row<S>(from, k),
                        p.has(k));
    }
  }
  FUSEDOPS_DEVICE static void copy_columns(const T* from, int tensor, const P& p, int cols) {
    const unsigned last = static_cast<unsigned>(cols) / P::V - 1;
    const auto start = [&](int k, unsigned more) {
      const unsigned v = min(p.thread + k * p.threads + more, last);
      async_copy::start(shared::address_of(place_of_columns(tensor, k) + more), from + v * P::V,
                        true);
    };
#pragma unroll 1
    for (int k = 0; k < S::kVectors; ++k) {
      start(k, 0);
      if (kMore > 0 && threadIdx.x + 1 == threads_of_block<F, S>()) start(k, 1);
    }
  }
  FUSEDOPS_DEVICE static Vector<T> vector_at(const Packed* place) {
    Vector<T> out;
    memcpy(&out, place, sizeof(out));
    return out;
  }
  FUSEDOPS_DEVICE static Vector<T> of_columns(int tensor, int k, const P& p) {
    const Packed* const place = place_of_columns(tensor, k);
    if constexpr (P::kWhole) return vector_at(place);
    return joined(vector_at(place), vector_at(place + (p.span.head == 0 ? 0 : 1)),
                  static_cast<unsigned>(p.span.head * sizeof(T)));
  }
};

// Each cluster takes rows from `queue`. While it works on one, the next is copied, if there is
// room.
template <class F, class S, RowLayout kLayout>
__global__ void FUSEDOPS_LAUNCH_BOUNDS(S::kMost, S::kBlocks)
    norm_cluster_kernel(const row_cluster::Queue queue, const Tensors<typename F::T> t, int cols,
                        const Constants<float> c) {
  if constexpr (cluster::kSupported) {
    using P = RowSlice<typename F::T, kLayout>;
    __shared__ float of_warp[2][2][kMostWarps];
    __shared__ typename ExchangeOf<F>::Room rooms[2];
    overlap::wait_in_turn();
    row_cluster::open(ExchangeOf<F>(rooms[0]), ExchangeOf<F>(rooms[1]));
    unsigned next = queue.given(1);
    unsigned taken = threadIdx.x == 0 && cluster::rank() == 0 ? queue.given(2) : 0;
    P p = slice_of<F, S, kLayout>(queue.given(0), cols);
    InShared<F, S, kLayout> in;
    in.start_columns(t, p, cols);
    RegisterRow<F, S> part;
    in.start(t, p);
    for (unsigned round = 0;; ++round) {
      const unsigned half = round % 2, later = queue.take(round + queue.kGiven);
      const ExchangeOf<F> blocks = rooms[half];
      // The threads that send it get it from the first one.
      if (threadIdx.x < warp::kWidth) taken = warp::reduce(taken, warp::kWidth, Sum{});
      if (round == 0) cluster::wait();
      in.wait(round == 0);
      take<F, S, kLayout>(part, in, t, p, t.sum);
      const P after = slice_of<F, S, kLayout>(min(next, queue.rows - 1), cols);
      if (next < queue.rows) in.start(t, after);
      PartialSum block;
      if constexpr (F::kCentered) {
        float sum[1] = {sum_of(part, p, [](float x) { return x; })};
        row_cluster::sum_of_block(sum, of_warp[half]);
        block = {sum[0], elements_of<S>(p, cluster::rank())};
        part.end_pass(sum[0]);
      }
      const float mean = part.subtract(block.mean());
      float squares[1] = {sum_of(part, p, [=](float x) { return (x - mean) * (x - mean); })};
      row_cluster::sum_of_block(squares, of_warp[half] + 1);
      part.end_pass(squares[0]);
      const auto finish = [&](auto& gains, const auto& ask) {
        Scale<float> by =
            scale_of_blocks<F, S>(block.sum, squares[0], taken, p, c, blocks, round / 2, ask);
        by.mean -= block.mean() - mean;
        write(part, by, t, gains, p);
      };
      if constexpr (S::kKeeps) {
        finish(in, [] {});
      } else {
        Gains<F, S, kLayout> gains;
        finish(gains, [&] { gains.start(t, p); });
      }
      if (next >= queue.rows) return;
      blocks.reopen();
      p = after;
      next = taken;
      taken = later;
    }
  }
}

}  // namespace fusedops::kernels::norm_detail
