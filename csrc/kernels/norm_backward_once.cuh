// The gradients of a norm from one read of x and grad. A block, or a cluster, takes many rows, and
// a thread has the same columns of each: so their sums for gamma and beta stay in its registers,
// and are written once.
#pragma once

#include "kernels/norm_backward_rows.cuh"

namespace fusedops::kernels::norm_detail {

template <class T>
using Once = Schedule<16 / kLanes<T>, 512, 0>;  // 16 columns of a thread, of any type

// The blocks or clusters that take the rows in turn. Their number is the same on every GPU, so that
// the sums' bits are too.
struct Teams {
  row_cluster::ClusterLayout by;
  std::int64_t count = 0;  // 0: the call is not for them
};

// A block has few threads, so that a multiprocessor runs two, unless a row needs no cluster then,
// or does not fit one.
template <class T>
Teams teams_of(const Norm& call) {
  using S = Once<T>;
  constexpr std::int64_t kLeast = 128, kAll = 132 * 512;  // threads of a team, and of all (H200)
  const std::int64_t threads = ceil_div(call.cols / kLanes<T>, S::kVectors);
  constexpr std::int64_t kMostRows = 1 << 30;
  if (call.rows > kMostRows || call.cols % kLanes<T> != 0 || threads < kLeast ||
      !gpu::has_clusters()) {
    return {};
  }
  std::int64_t blocks = 1;
  while (threads > blocks * (blocks == 1 ? S::kMost : S::kMost / 2) &&
         blocks < cluster::kMostBlocks) {
    blocks *= 2;
  }
  const std::int64_t width = ceil_div(ceil_div(threads, blocks), warp::kWidth) * warp::kWidth;
  if (width > S::kMost) return {};
  constexpr std::int64_t kStages = 2, kInputs = 2;
  const std::int64_t shared = kStages * kInputs * S::kVectors * width * kVectorBytes;
  return {{static_cast<unsigned>(blocks), static_cast<unsigned>(width), 0,
           static_cast<unsigned>(shared)},
          std::max<std::int64_t>(1, std::min(call.rows, kAll / (blocks * width)))};
}

// The part of a row's x and grad that a thread has: while it works on one, the next is copied to
// shared memory, to places that no other thread touches.
template <class T>
class Staged {
 public:
  using P = RowSlice<T, RowLayout::whole>;
  static constexpr int kVectors = Once<T>::kVectors;

  FUSEDOPS_DEVICE Staged(const NormBackwardTensors& t, Packed* places)
      : x_(static_cast<const T*>(t.x)),
        grad_(static_cast<const T*>(t.grad)),
        places_(places + threadIdx.x) {}

  FUSEDOPS_DEVICE void start(const P& p, unsigned stage) const {
#pragma unroll
    for (int k = 0; k < kVectors; ++k) {
      copy(place(stage, k, 0), p.of_row(x_, k));
      copy(place(stage, k, 1), p.of_row(grad_, k));
    }
  }
  FUSEDOPS_DEVICE void get(float (&x)[kLanes<T>], float (&grad)[kLanes<T>], unsigned stage,
                           int k) const {
    widen<T>(x, *place(stage, k, 0));
    widen<T>(grad, *place(stage, k, 1));
  }

 private:
  FUSEDOPS_DEVICE Packed* place(unsigned stage, int k, int input) const {
    return places_ + ((stage * kVectors + k) * 2 + input) * blockDim.x;
  }
  FUSEDOPS_DEVICE static void copy(Packed* to, const T* from) {
    async_copy::start(shared::address_of(to), from, true);
  }
  const T *x_, *grad_;
  Packed* places_;
};

// Writes a thread's sums of the columns, of `team`.
template <class T, int kVectors>
FUSEDOPS_DEVICE void write_sums(float* out, const float (&sums)[kVectors][kLanes<T>],
                                const RowSlice<T, RowLayout::whole>& p, unsigned team, int cols) {
  constexpr int V = kLanes<T>, kFloats = kLanes<float>;
#pragma unroll
  for (int k = 0; k < kVectors; ++k) {
    if (!p.has(k)) continue;
    float* const to = out + std::int64_t{team} * cols + (p.thread + k * p.threads) * V;
#pragma unroll
    for (int i = 0; i < V; i += kFloats) {
      Vector<float> part;
      memcpy(&part, &sums[k][i], sizeof(part));
      store(to + i, part);
    }
  }
}

template <class F, bool kInCluster>
__global__ void FUSEDOPS_LAUNCH_BOUNDS(Once<typename F::T>::kMost, 1)
    backward_once_kernel(const NormBackwardTensors t, float* __restrict__ of_gamma,
                         float* __restrict__ of_beta, unsigned rows, int cols,
                         const Constants<float> c) {
  if constexpr (cluster::kSupported) {
    using T = typename F::T;
    using P = RowSlice<T, RowLayout::whole>;
    constexpr int V = kLanes<T>, kVectors = Once<T>::kVectors, kSums = F::kCentered ? 3 : 2;
    __shared__ float of_warp[2][kSums + 2][kMostWarps];
    __shared__ row_cluster::BlockExchange<kSums + (F::kCentered ? 2 : 0)> rooms[2];
    FUSEDOPS_DYNAMIC_SHARED(Packed, places);
    overlap::wait_in_turn();
    const unsigned blocks = kInCluster ? cluster::size() : 1, teams = gridDim.x / blocks;
    const unsigned team = kInCluster ? cluster::number() : blockIdx.x;
    const auto slice = [&](unsigned row) {
      P p(row, cols);
      p.thread += kInCluster ? cluster::rank() * blockDim.x : 0;
      p.threads *= blocks;
      return p;
    };
    if constexpr (kInCluster) row_cluster::open(rooms[0], rooms[1]);
    const Staged<T> in(t, places);
    P p = slice(team);
    in.start(p, 0);
    async_copy::commit_group();
    Vector<T> gammas[kVectors];
    float count = 0, gamma_sums[kVectors][V] = {}, beta_sums[kVectors][V] = {};
#pragma unroll
    for (int k = 0; k < kVectors; ++k) {
      gammas[k] = p.of_columns(static_cast<const T*>(t.gamma), k);
      count += p.has(k) ? V : 0;
    }
    for (unsigned row = team, round = 0; row < rows; row += teams, ++round) {
      const unsigned half = round % 2;
      p = slice(row);
      if (row + teams < rows) in.start(slice(row + teams), half ^ 1);
      async_copy::commit_group();
      Vector<T> more[kVectors] = {};
      if (t.grad_sum) {
#pragma unroll
        for (int k = 0; k < kVectors; ++k) {
          more[k] = load(p.of_row(static_cast<const T*>(t.grad_sum), k));
        }
      }
      async_copy::wait_group(1);
      // Calls take(x, grad, k) for each of the thread's vectors.
      const auto each = [&](const auto& take) {
#pragma unroll
        for (int k = 0; k < kVectors; ++k) {
          if (!p.has(k)) continue;
          float x[V], grad[V];
          in.get(x, grad, half, k);
          take(x, grad, k);
        }
      };
      float mean = 0;
      PartialSum block{};
      if constexpr (F::kCentered) {
        float sum[2] = {0, count};
        each([&](const float (&x)[V], const float (&)[V], int) {
          sum[0] += sum_of_lanes(x, [](float one) { return one; });
        });
        row_cluster::sum_of_block(sum, of_warp[half] + kSums);
        block = {sum[0], sum[1]};
        mean = kInCluster ? block.mean() : c.exact_mean(block.sum);
      }
      float sums[kSums] = {};
      each([&](float (&x)[V], float (&grad)[V], int k) {
        float gamma[V];
        widen(gamma, gammas[k]);
        add_products(sums, x, grad, gamma, mean);
      });
      row_cluster::sum_of_block(sums, of_warp[half]);
      if constexpr (kInCluster) {
        if (round == 0) cluster::wait();
        mean = sum_of_row<F>(sums, block, c, rooms[half], round / 2);
      }
      const Slope slope(mean, sums, c);
      each([&](float (&x)[V], const float (&grad)[V], int k) {
        float gamma[V], add[V];
        widen(gamma, gammas[k]);
        widen(add, more[k]);
#pragma unroll
        for (int i = 0; i < V; ++i) {
          gamma_sums[k][i] = fmaf(grad[i], slope.normalised(x[i]), gamma_sums[k][i]);
          if constexpr (F::kCentered) beta_sums[k][i] += grad[i];
          x[i] = slope.of(grad[i] * gamma[i], x[i]) + add[i];
        }
        store(p.of_row(static_cast<T*>(t.grad_x), k), narrow<T>(x));
      });
      if constexpr (kInCluster) row_cluster::reopen(rooms[half]);
    }
    write_sums<T>(of_gamma, gamma_sums, p, team, cols);
    if constexpr (F::kCentered) write_sums<T>(of_beta, beta_sums, p, team, cols);
  }
}

template <class F>
gpu::Status launch_backward_once(const Norm& call, const NormBackwardTensors& t, const Teams& teams,
                                 float* of_gamma, float* of_beta, gpu::Stream stream) {
  const bool in_cluster = teams.by.cluster > 1;
  auto* const kernel =
      in_cluster ? &backward_once_kernel<F, true> : &backward_once_kernel<F, false>;
  return row_cluster::launch(kernel, teams.count, teams.by, stream, t, of_gamma, of_beta,
                             static_cast<unsigned>(call.rows), static_cast<int>(call.cols),
                             constants_of<float>(call));
}

}  // namespace fusedops::kernels::norm_detail
