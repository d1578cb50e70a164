// softmax of long rows, which lie in clusters (row_cluster.cuh). A thread finds the maximum and the
// sum of its part in one pass, and the row's threads exchange them once.
#pragma once

#include "kernels/row_cluster.cuh"
#include "kernels/softmax_resident.cuh"

namespace fusedops::softmax_row {

template <class T, Masking kMasking>
__global__ void __launch_bounds__(row_cluster::kMostThreads, 3)
    softmax_cluster_kernel(T* __restrict__ y, const T* __restrict__ scores,
                           const SoftmaxParams params, unsigned held) {
  if constexpr (cluster::kSupported) {
    constexpr int V = kLanes<T>;
    __shared__ Peak<float> shared[kMostWarps + 1];
    FUSEDOPS_DYNAMIC_SHARED(Packed, places);
    overlap::wait();
    const unsigned at = blockIdx.x / cluster::size();
    const RowIndex<unsigned> index = params.index(at);
    const KeyRange<int> seen = params.visibility.of(static_cast<int>(index.query));
    const std::int64_t row = params.first(at, index);
    const std::int64_t begin = row + seen.first;
    const auto span = span_at<V>(begin, seen.end - seen.first);
    const auto vectors = static_cast<unsigned>(span.vectors);
    const row_cluster::ClusterRow<1> part(places, held, vectors);
    const Packed* const in[1] = {as_packed(scores + begin + span.head)};
    part.start(in);
    const bool has_edge = static_cast<int>(part.own) < span.edges;
    const int edge_column = span.template edge<V>(static_cast<int>(part.own));
    const Addend<T, kMasking, true> addend(params, index, seen, span.head);
    float edge = kNothing<float>;
    if (has_edge) edge = addend.complete(widen(scores[begin + edge_column]), edge_column);

    float top = edge, sum = two_to((edge - base_of(edge)) * params.factor);
    part.first_pass(in, [&](unsigned v, const Packed(&of)[1]) {
      float z[V];
      addend.complete(z, of[0], v, vectors);
      const float most = fmaxf(largest(z), top);
      const float base = base_of(most);
      sum *= two_to((top - base) * params.factor);
      top = most;
      float more = 0;
#pragma unroll
      for (const float each : z) more += two_to((each - base) * params.factor);
      sum += more;
    });
    const float most = warp::reduce(top, warp::kWidth, Max{});
    sum *= two_to((top - base_of(most)) * params.factor);
    sum = warp::reduce(sum, warp::kWidth, Sum{});
    Peak<float> peak =
        peak_of_row<float>({most, sum}, params.factor, static_cast<int>(blockDim.x), shared);
    peak = peak_of_cluster(peak, params.factor, shared[kMostWarps]);
    cluster::arrive();  // waits at the end: other blocks read this one's peak until here
    const float share = inverse(peak.sum);

    Packed* const out = as_packed(y + begin + span.head);
    part.next_pass(in, [&](unsigned v, const Packed(&of)[1]) {
      float z[V];
      addend.complete(z, of[0], v, vectors);
#pragma unroll
      for (float& each : z) each = two_to((each - peak.top) * params.factor) * share;
      out[v] = pack(narrow<T>(z));
    });
    if (has_edge) {
      y[begin + edge_column] = narrow<T>(two_to((edge - peak.top) * params.factor) * share);
    }
    // NaN if the row has a NaN.
    write_unseen(y, row, seen, params.visibility.keys, narrow<T>(0 * share),
                 static_cast<int>(part.own), static_cast<int>(part.all));
    cluster::wait();
  }
}

}  // namespace fusedops::softmax_row
