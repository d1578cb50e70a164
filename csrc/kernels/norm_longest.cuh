// The norms of rows that are too long for the registers of a cluster: they lie in its shared memory
// (row_cluster.cuh), and what has no room there is read twice.
#pragma once

#include "kernels/norm_cluster.cuh"
#include "kernels/norm_kernels.cuh"

namespace fusedops::kernels::norm_detail {

// Adds elements of a row to its moments.
template <class F, int kCount>
FUSEDOPS_DEVICE void gather(Moments<float>& moments, const float (&x)[kCount]) {
  float sum = 0, squares = 0;
  if constexpr (F::kCentered) {
#pragma unroll
    for (const float each : x) sum += each;
  }
  const float mean = sum / kCount;
#pragma unroll
  for (const float each : x) squares = fmaf(each - mean, each - mean, squares);
  if constexpr (F::kCentered) {
    moments.merge(kCount, mean, squares);
  } else {
    moments.squares += squares;
  }
}

// The scale of a row, of which each thread passes the moments of its part.
template <class F, class Row, class Exchange>
FUSEDOPS_DEVICE Scale<float> scale_of_threads(const Moments<float>& own, const Row& row,
                                              const Constants<float>& c, const Exchange& blocks,
                                              unsigned round) {
  __shared__ float of_warp[2][2][1][kMostWarps];
  auto& sums = of_warp[round % 2];
  float sum[1] = {own.count * own.mean}, squares[1] = {own.squares};
  if constexpr (F::kCentered) {
    row_cluster::sum_of_block(sum, sums[0]);
    const PartialSum block{sum[0], row.elements_of(cluster::rank())};
    const float apart = own.mean - block.mean();
    squares[0] = fmaf(own.count, apart * apart, squares[0]);
  }
  row_cluster::sum_of_block(squares, sums[1]);
  blocks.send({{squares[0], sum[0]}});
  blocks.receive(round / 2);
  PartialSum of_lane;
  float its_squares = 0;
  blocks.each([&](const auto& sent, unsigned block) {
    its_squares = sent.of[0];
    of_lane = {sent.of[1], row.elements_of(block)};
  });
  return scale_of_row<F>(of_lane, its_squares, c);
}

// The sum of the inputs of a vector.
template <class F, class Of>
FUSEDOPS_DEVICE void sum_inputs(float (&x)[kLanes<typename F::T>], const Of& of,
                                const Tensors<typename F::T>& t,
                                const Vector<typename F::T>& bias) {
  widen<typename F::T>(x, of[0]);
  if (F::adds_bias(t)) add(x, bias);
  if constexpr (F::kAdds != Adds::nothing) {
    float more[kLanes<typename F::T>];
    widen<typename F::T>(more, of[1]);
#pragma unroll
    for (int i = 0; i < kLanes<typename F::T>; ++i) x[i] += more[i];
  }
}

// The sum of the inputs of the element outside the vectors that the thread has. It is stored too.
template <class F, class Row>
FUSEDOPS_DEVICE float sum_edge(const Row& row, const Tensors<typename F::T>& t) {
  if (!row.has_edge) return 0;
  const std::int64_t at = row.p.row + row.edge_column;
  float x = widen(t.x[at]);
  if (F::adds_bias(t)) x += widen(t.bias[row.edge_column]);
  if (F::adds_residual(t)) x += widen(t.residual[at]);
  if (F::kAdds != Adds::nothing && t.sum) t.sum[at] = narrow<typename F::T>(x);
  return x;
}

template <class F, class Row>
FUSEDOPS_DEVICE void write_edge(const Row& row, float x, const Scale<float>& by,
                                const Tensors<typename F::T>& t) {
  if (!row.has_edge) return;
  x = (x - by.mean) * by.scale * widen(t.gamma[row.edge_column]);
  if constexpr (F::kCentered) x += widen(t.beta[row.edge_column]);
  t.y[row.p.row + row.edge_column] = narrow<typename F::T>(x);
}

// Each cluster takes one row after the other. While it writes one, the next is copied to the places
// that it no longer needs.
template <class F, RowLayout kLayout>
__global__ void FUSEDOPS_LAUNCH_BOUNDS(row_cluster::kMostThreads, 2)
    norm_longest_kernel(const row_cluster::Queue queue, const Tensors<typename F::T> t,
                        std::int64_t cols, const Constants<float> c, unsigned held) {
  if constexpr (cluster::kSupported) {
    using T = typename F::T;
    constexpr bool kSums = F::kAdds != Adds::nothing;
    constexpr unsigned kGroups = 3;
    using Row = SharedRow<T, kLayout, kSums ? 2 : 1, kGroups>;
    using Part = typename Row::Part;
    using Exchange = row_cluster::ClusterExchange<2>;
    __shared__ typename Exchange::Room rooms[2];
    FUSEDOPS_DYNAMIC_SHARED(Packed, places);
    overlap::wait_in_turn();
    row_cluster::open(Exchange(rooms[0]), Exchange(rooms[1]));
    const auto row_of = [&](unsigned round) {
      return Row(queue.given(round), t.x, t.residual, cols, places, held);
    };
    {
      const Row first = row_of(0);
      first.part.start(first.in);
    }
    cluster::wait();
    for (unsigned round = 0; queue.given(round) < queue.rows; ++round) {
      const Row row = row_of(round);
      const Exchange blocks(rooms[round % 2]);
      Moments<float> own;
      const float edge[1] = {sum_edge<F>(row, t)};
      if (row.has_edge) gather<F>(own, edge);
      Vector<T> biases[Part::kBatch];
      const auto ask_bias = [&](unsigned v, int j) {
        if (F::adds_bias(t)) biases[j] = row.p.columns(t.bias, v);
      };
      row.part.first_pass(row.in, ask_bias, [&](unsigned v, const auto& of, int j) {
        float x[kLanes<T>];
        sum_inputs<F>(x, of, t, biases[j]);
        if (kSums && t.sum) store(row.of(t.sum, v), narrow<T>(x));
        gather<F>(own, x);
      });
      const Scale<float> by = scale_of_threads<F>(own, row, c, blocks, round);
      Gain<T> gains[Part::kBatch];
      const auto ask_gain = [&](unsigned v, int j) {
        gains[j].gamma = row.p.columns(t.gamma, v);
        if constexpr (F::kCentered) gains[j].beta = row.p.columns(t.beta, v);
      };
      const auto ask = [&](unsigned v, int j) {
        ask_bias(v, j);
        ask_gain(v, j);
      };
      const auto write = [&](unsigned v, const auto& of, int j) {
        float x[kLanes<T>];
        sum_inputs<F>(x, of, t, biases[j]);
        normalise<F>(x, by, gains[j]);
        write_once(as_packed(row.of(t.y, v)), pack(narrow<T>(x)));
      };
      const bool goes_on = queue.given(round + 1) < queue.rows;
#pragma unroll 1
      for (unsigned group = 0; group < kGroups; ++group) {
        row.part.held(group, ask, write);
        if (goes_on) {
          const Row next = row_of(round + 1);
          next.part.start(next.in, group);
        }
      }
      if (kSums && sizeof(T) == sizeof(float) && t.sum) {
        // A sum as it was stored is one tensor to read instead of two.
        const row_cluster::ClusterRow<1> sums(places, held, row.part.vectors);
        sums.template others<fetch::Leaves::first>(
            {as_packed(row.of(t.sum, 0))}, ask_gain, [&](unsigned v, const auto& of, int j) {
              float x[kLanes<T>];
              widen<T>(x, of[0]);
              normalise<F>(x, by, gains[j]);
              write_once(as_packed(row.of(t.y, v)), pack(narrow<T>(x)));
            });
      } else {
        row.part.template others<fetch::Leaves::first>(row.in, ask, write);
      }
      write_edge<F>(row, edge[0], by, t);
      blocks.reopen();
    }
  }
}

}  // namespace fusedops::kernels::norm_detail
