// The teams of norm_backward_once.cuh, the columns that a thread of one has, and where it has the
// rows of a few steps, if they are whole vectors.
#pragma once

#include "kernels/norm_backward_rows.cuh"

namespace fusedops::kernels::norm_detail {

// What a team has of any norm.
struct TeamSize {
  static constexpr int kThreads = 512;  // of a block, at most, and of a multiprocessor
  static constexpr int kWarps = kThreads / warp::kWidth;  // of a block
  // Vectors of a thread; kMostVectors only of float32.
  static constexpr int kFewVectors = 2, kMoreVectors = 4, kMostVectors = 8;

  // Rows in shared memory. With 3, in step i a team copies row i + 1, sums row i and writes row
  // i - 1. Where there is room for one alone, it sums and writes row i; row i + 1 is asked for from
  // L2 when the step begins, and copied as row i is written. gamma is in shared memory then, too.
  static constexpr int stages(int vectors) { return vectors > kMoreVectors ? 1 : 3; }
  // The bytes in shared memory of a warp's part of a row, of x and grad: its vectors and, if rows
  // are not whole vectors, an end of one more, and two for the edges.
  static constexpr int bytes_of_warp(int vectors, bool whole) {
    return 2 * (vectors * warp::kWidth + (whole ? 0 : 3)) * kVectorBytes;
  }
  static constexpr int bytes_of_gamma(int vectors) {
    return vectors > kMoreVectors ? vectors * warp::kWidth * kVectorBytes : 0;
  }
  // Sums: of squares and of g (x - mean), and if centered of g. And the mean.
  static constexpr int sums(bool centered) { return centered ? 4 : 2; }
};

template <class F, int kCount, RowLayout kLayout>
struct TeamSteps : TeamSize {
  static constexpr int kVectors = kCount, kStages = stages(kCount);
  static constexpr bool kAlone = kStages == 1;
  static constexpr bool kWhole = kLayout == RowLayout::whole;
  static constexpr unsigned kBytesOfWarp = bytes_of_warp(kCount, kWhole);
  static constexpr unsigned kVectorsOfWarp = kCount * warp::kWidth;
  // There are no registers for gamma as float32, nor for what is added to a row, beside a centered
  // norm's sums of 16-bit elements.
  static constexpr bool kPacked =
      (F::kCentered || !kWhole) && sizeof(typename F::T) == 2 && kCount > kFewVectors;
  static constexpr bool kFull = !kWhole || kAlone || kPacked;
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
  constexpr std::int64_t kMostThreads = std::int64_t{S::kThreads} * cluster::kMostBlocks;
  const int lanes = kVectorBytes / element_size(call.dtype);
  const std::int64_t vectors = call.cols / lanes;
  Teams best{{}, 0, S::kMoreVectors};
  if (vectors <= kMostThreads / 2 * S::kFewVectors) {
    best.vectors = S::kFewVectors;
  } else if (vectors > kMostThreads * S::kMoreVectors && call.dtype == DType::float32) {
    best.vectors = S::kMostVectors;
  }
  const std::int64_t threads = ceil_div(vectors, best.vectors);
  if (call.dtype == DType::float64 || call.rows > kMostRows || threads < kLeastThreads ||
      !gpu::has_clusters()) {
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
    const std::int64_t of_warp =
        S::stages(best.vectors) * S::bytes_of_warp(best.vectors, call.cols % lanes == 0) +
        S::bytes_of_gamma(best.vectors);
    best.by = {static_cast<unsigned>(blocks), static_cast<unsigned>(width), 0,
               static_cast<unsigned>(rooms + width / warp::kWidth * of_warp)};
    best.count = std::max<std::int64_t>(1, std::min(call.rows, count));
  }
  return best;
}

// The columns of the calling thread. A warp has neighbouring vectors, so that the offset of a
// thread's second one is a part of instructions. If rows are not whole vectors, the threads of the
// last warp that has one may have an element after them, the edge.
template <class F, class S>
struct Columns {
  using T = typename F::T;
  static constexpr int V = kLanes<T>;
  const unsigned vectors, edges;  // of a row
  const unsigned first;           // vector of the thread

  FUSEDOPS_DEVICE Columns(int cols)
      : vectors(static_cast<unsigned>(cols) / V),
        edges(S::kWhole ? 0 : static_cast<unsigned>(cols) % V),
        first((cluster::rank() * blockDim.x + threadIdx.x - lane()) * S::kVectors + lane()) {}
  FUSEDOPS_DEVICE static unsigned lane() { return threadIdx.x % warp::kWidth; }
  FUSEDOPS_DEVICE unsigned warp() const { return first / S::kVectorsOfWarp; }  // of the team
  FUSEDOPS_DEVICE bool has(int k) const { return first + k * warp::kWidth < vectors; }
  // The numbers of vectors, edges and elements of a warp of the team.
  FUSEDOPS_DEVICE unsigned vectors_of(unsigned warp) const {
    return min(vectors - min(vectors, warp * S::kVectorsOfWarp), S::kVectorsOfWarp);
  }
  FUSEDOPS_DEVICE unsigned edges_of(unsigned warp) const {
    return !S::kWhole && warp == (vectors - 1) / S::kVectorsOfWarp ? edges : 0;
  }
  FUSEDOPS_DEVICE float elements_of(unsigned warp) const {
    return static_cast<float>(vectors_of(warp) * V + edges_of(warp));
  }
  FUSEDOPS_DEVICE bool has_edge() const { return lane() < edges_of(warp()); }
  // Asks for the warp's part of a row from L2.
  FUSEDOPS_DEVICE void prefetch(const T* row) const {
    const unsigned bytes = vectors_of(warp()) * kVectorBytes;
    const T* const from = of(row, 0);
    const auto off = static_cast<unsigned>(reinterpret_cast<std::uintptr_t>(from) % kVectorBytes);
    if (lane() == 0 && bytes > 0) fetch::into_l2(from - off / sizeof(T), bytes);
  }
  // Vector k, and the edge, of a row.
  template <class Element>
  FUSEDOPS_DEVICE Element* of(Element* row, int k) const {
    return row + std::int64_t{first} * V + k * warp::kWidth * V;
  }
  template <class Element>
  FUSEDOPS_DEVICE Element& edge_of(Element* row) const {
    return row[std::int64_t{vectors} * V + lane()];
  }
};

// A step's row: the index of its first element in x.
struct StagedRow {
  int step;
  std::int64_t first;
};

// The part of the rows' x and grad that a thread has, if rows are whole vectors. The rows of a few
// steps are in shared memory, at places that no other thread touches.
template <class F, class S>
class WholeStages {
  using T = typename F::T;
  static constexpr int V = kLanes<T>;

 public:
  FUSEDOPS_DEVICE WholeStages(Packed* places, const Columns<F, S>& columns, const T* x,
                              const T* grad)
      : columns_(columns),
        x_(x),
        grad_(grad),
        places_(shared::address_of(places) + threadIdx.x / warp::kWidth * S::kBytesOfWarp +
                columns.lane() * kVectorBytes),
        stage_(blockDim.x / warp::kWidth * S::kBytesOfWarp) {}
  // Starts to copy vector k of a row, which becomes zeros if the thread has none; and what comes
  // after all vectors.
  FUSEDOPS_DEVICE void start(const StagedRow& row, int k) const {
    async_copy::start(place(row, k, 0), columns_.of(x_ + row.first, k), columns_.has(k));
    async_copy::start(place(row, k, 1), columns_.of(grad_ + row.first, k), columns_.has(k));
  }
  FUSEDOPS_DEVICE void start_end(const StagedRow&) const {}
  // Asks for a row from L2.
  FUSEDOPS_DEVICE void prefetch(const StagedRow& row) const {
    columns_.prefetch(x_ + row.first);
    columns_.prefetch(grad_ + row.first);
  }
  // The places of all rows.
  FUSEDOPS_DEVICE unsigned size() const { return S::kStages * stage_ / kVectorBytes; }
  // Waits for all rows but, if there are several, the last one that was started.
  FUSEDOPS_DEVICE void wait() { async_copy::wait_group(S::kAlone ? 0 : 1); }
  // Lets others of the warp write where the thread has read.
  FUSEDOPS_DEVICE void release() const {}
  FUSEDOPS_DEVICE static constexpr bool is_odd(const StagedRow&) { return false; }
  // Vector k of x and of grad; and the edge.
  template <class Odd>
  FUSEDOPS_DEVICE void get(float (&x)[V], float (&grad)[V], const StagedRow& row, int k,
                           Odd) const {
    get(x, place(row, k, 0));
    get(grad, place(row, k, 1));
  }
  FUSEDOPS_DEVICE Two<float> edge(const StagedRow&) const { return {}; }
  // The mean of some of the warp's first elements, from x of vector 0 of all threads.
  FUSEDOPS_DEVICE float mean_of_first(const float (&x)[V]) const {
    return warp::shuffle(sum_of_lanes(x, [](float one) { return one; }) / V, 0);
  }
  // Subtracts from elements that the thread has. Returns what is left to subtract.
  FUSEDOPS_DEVICE float subtract(float (&)[V], float pivot, int k) const {
    return columns_.has(k) ? pivot : 0;
  }
  // Vector k of a row of another tensor.
  template <class Odd>
  FUSEDOPS_DEVICE Vector<T> load(const T* row, int k, Odd) const {
    return columns_.has(k) ? fusedops::load(columns_.of(row, k)) : Vector<T>{};
  }
  // Writes vector k of a row, for each k in turn.
  template <class Odd>
  FUSEDOPS_DEVICE void write(T* result, const float (&vector)[V], const StagedRow& row, int k,
                             Odd) {
    if (columns_.has(k)) store(columns_.of(result + row.first, k), narrow<T>(vector));
  }
  // Writes vector k of sums of columns.
  FUSEDOPS_DEVICE void write_sums(float* to, const float (&sums)[V], int k) const {
    if (!columns_.has(k)) return;
#pragma unroll
    for (int i = 0; i < V; i += kLanes<float>) {
      Vector<float> part;
      memcpy(&part, &sums[i], sizeof(part));
      store(columns_.of(to, k) + i, part);
    }
  }

 private:
  FUSEDOPS_DEVICE static void get(float (&to)[V], shared::Address from) {
    const uint4 bits = shared::load_16(from);
    Packed words;
    memcpy(&words, &bits, sizeof(words));
    widen<T>(to, words);
  }
  FUSEDOPS_DEVICE shared::Address place(const StagedRow& row, int k, int input) const {
    return places_ + static_cast<unsigned>(row.step) % S::kStages * stage_ +
           (k * 2 + input) * warp::kWidth * kVectorBytes;
  }

  const Columns<F, S>& columns_;
  const T *const x_, *const grad_;
  const shared::Address places_;
  const unsigned stage_;  // bytes
};

}  // namespace fusedops::kernels::norm_detail
