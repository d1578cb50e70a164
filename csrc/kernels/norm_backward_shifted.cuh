// Where the teams of norm_backward_once.cuh have rows that are not whole vectors.
#pragma once

#include "kernels/norm_backward_team.cuh"

namespace fusedops::kernels::norm_detail {

// WholeStages for rows that are not whole vectors. A warp copies the vectors of memory in which its
// part of a row lies, and its threads take it by words in turn: a thread's vector k are four of
// them, which lie a warp's width apart.
//
// In memory a row may begin off 16 bytes; and if it is an odd row of 16-bit elements, in the middle
// of a word.
template <class F, class S>
class ShiftedStages {
  using T = typename F::T;
  static constexpr unsigned kSize = sizeof(T), kWord = sizeof(unsigned);
  static constexpr int kWords = 4;                     // of a vector
  static constexpr int V = kLanes<T>, L = V / kWords;  // elements of a vector, and of a word
  static constexpr unsigned kOfEdges = (S::kVectorsOfWarp + 1) * kVectorBytes;  // place of a part

 public:
  FUSEDOPS_DEVICE ShiftedStages(Packed* places, const Columns<F, S>& columns, const T* x,
                                const T* grad)
      : columns_(columns),
        x_(x),
        grad_(grad),
        warp_(shared::address_of(places) + threadIdx.x / warp::kWidth * S::kBytesOfWarp),
        stage_(blockDim.x / warp::kWidth * S::kBytesOfWarp),
        bytes_(columns.vectors_of(columns.warp()) * kVectorBytes),
        left_(static_cast<int>(bytes_ / kWord - columns.lane())),
        inverse_of_first_(1 / fminf(warp::kWidth * V, fmaxf(1, bytes_ / kSize))) {}
  FUSEDOPS_DEVICE void start(const StagedRow& row, int k) const {
    start(x_, row, 0, k);
    start(grad_, row, 1, k);
  }
  FUSEDOPS_DEVICE void start_end(const StagedRow& row) const {
    start_end(x_, row, 0);
    start_end(grad_, row, 1);
  }
  FUSEDOPS_DEVICE void prefetch(const StagedRow& row) const {
    columns_.prefetch(x_ + row.first);
    columns_.prefetch(grad_ + row.first);
  }
  FUSEDOPS_DEVICE unsigned size() const { return S::kStages * stage_ / kVectorBytes; }
  FUSEDOPS_DEVICE void wait() {
    async_copy::wait_group(S::kAlone ? 0 : 1);
    warp::sync();  // after the copies of other threads
    ask_again();
  }
  FUSEDOPS_DEVICE static bool is_odd(const StagedRow& row) {
    return kSize < kWord && row.first % 2 != 0;
  }
  template <class Odd>
  FUSEDOPS_DEVICE void get(float (&x)[V], float (&grad)[V], const StagedRow& row, int k,
                           Odd odd) const {
    get(x, row, k, 0, odd);
    get(grad, row, k, 1, odd);
  }
  FUSEDOPS_DEVICE Two<float> edge(const StagedRow& row) const {
    return {edge(row, 0), edge(row, 1)};
  }
  FUSEDOPS_DEVICE float mean_of_first(const float (&x)[V]) const {
    const float sum = sum_of_lanes(x, [](float one) { return one; });
    return warp::reduce(sum, warp::kWidth, Sum{}) * inverse_of_first_;
  }
  FUSEDOPS_DEVICE float subtract(float (&x)[V], float pivot, int k) const {
#pragma unroll
    for (int i = 0; i < V; ++i) x[i] -= has(k, i / L) ? pivot : 0;
    return 0;
  }
  template <class Odd>
  FUSEDOPS_DEVICE Vector<T> load(const T* row, int k, Odd) const {
    const T* const from = of(row);
    Packed vector{};
#pragma unroll
    for (int i = 0; i < kWords; ++i) {
      if (!has(k, i)) continue;
      const T* const word = from + word_of(k, i) * L;
      if constexpr (Odd::value) {
        const T lanes[] = {word[0], word[L - 1]};
        memcpy(&vector.word[i], lanes, kWord);
      } else {
        vector.word[i] = *reinterpret_cast<const unsigned*>(word);
      }
    }
    return unpack<T>(vector);
  }
  template <class Odd>
  FUSEDOPS_DEVICE void write(T* result, const float (&vector)[V], const StagedRow& row, int k,
                             Odd) {
    if (k == 0) ask_again();
    T* const to = of(result + row.first);
    const Packed words = pack(narrow<T>(vector));
#pragma unroll
    for (int i = 0; i < kWords; ++i) {
      if constexpr (Odd::value) {
        write_odd(to + word_of(k, i) * L, words.word[i], k, i);
      } else {
        if (has(k, i)) *reinterpret_cast<unsigned*>(to + word_of(k, i) * L) = words.word[i];
      }
    }
  }
  FUSEDOPS_DEVICE void release() const { warp::sync(); }  // before copies of another row
  FUSEDOPS_DEVICE void write_sums(float* to, const float (&sums)[V], int k) const {
#pragma unroll
    for (int i = 0; i < V; ++i) {
      if (has(k, i / L)) of(to)[word_of(k, i / L) * L + i % L] = sums[i];
    }
  }

 private:
  // The place of word i of vector k, after the thread's first word.
  FUSEDOPS_DEVICE static constexpr int word_of(int k, int i) {
    return (k * kWords + i) * warp::kWidth;
  }
  FUSEDOPS_DEVICE bool has(int k, int i) const { return word_of(k, i) < left_; }
  // The compiler must ask has() again: its answers, if kept, take registers that a row needs.
  FUSEDOPS_DEVICE void ask_again() { fetch::make_opaque(left_); }
  // The thread's first word of a row.
  template <class Element>
  FUSEDOPS_DEVICE Element* of(Element* row) const {
    return columns_.of(row, 0) - columns_.lane() * (V - L);
  }
  // How many elements the row begins off 16 bytes.
  FUSEDOPS_DEVICE static unsigned off(const StagedRow& row) {
    return static_cast<unsigned>(row.first) % V;
  }
  // The word in the middle of two.
  FUSEDOPS_DEVICE static unsigned between(unsigned low, unsigned high) {
    return low >> 16 | high << 16;
  }
  // Copies the first `end` bytes of the warp's part of a row, of which 16 begin at `at`.
  FUSEDOPS_DEVICE void copy(const T* data, const StagedRow& row, int input, unsigned place,
                            unsigned at, unsigned end) const {
    const T* const first = columns_.of(data + row.first, 0) - columns_.lane() * V - off(row);
    const unsigned bytes = min(end - min(end, at), unsigned{kVectorBytes});
    async_copy::start_part(part(row, input) + place, reinterpret_cast<const char*>(first) + at,
                           bytes);
  }
  // The bytes of memory, from a whole vector on, that have the warp's vectors.
  FUSEDOPS_DEVICE unsigned end_of(const StagedRow& row) const {
    return bytes_ > 0 ? bytes_ + off(row) * kSize : 0;
  }
  FUSEDOPS_DEVICE void start(const T* data, const StagedRow& row, int input, int k) const {
    constexpr unsigned kFull = S::kVectorsOfWarp * kVectorBytes;
    const unsigned at = (k * warp::kWidth + columns_.lane()) * kVectorBytes;
    copy(data, row, input, at, at, bytes_ == kFull ? kFull + kVectorBytes : end_of(row));
  }
  FUSEDOPS_DEVICE void start_end(const T* data, const StagedRow& row, int input) const {
    const unsigned lane = columns_.lane(), edges = columns_.edges_of(columns_.warp());
    constexpr unsigned kFull = S::kVectorsOfWarp * kVectorBytes;
    if (lane == 0) copy(data, row, input, kFull, kFull, end_of(row));
    if (edges > 0 && lane < 2) {
      const unsigned begin = lane * kVectorBytes;
      copy(data, row, input, kOfEdges + begin, bytes_ + begin, end_of(row) + edges * kSize);
    }
  }
  template <class Odd>
  FUSEDOPS_DEVICE void get(float (&to)[V], const StagedRow& row, int k, int input, Odd) const {
    const shared::Address from =
        part(row, input) + (off(row) * kSize / kWord + columns_.lane()) * kWord;
    Packed vector;
#pragma unroll
    for (int i = 0; i < kWords; ++i) {
      const shared::Address word = from + word_of(k, i) * kWord;
      vector.word[i] = shared::load_4(word);
      if (Odd::value) vector.word[i] = between(vector.word[i], shared::load_4(word + kWord));
    }
    widen<T>(to, vector);
  }
  FUSEDOPS_DEVICE float edge(const StagedRow& row, int input) const {
    const unsigned at = kOfEdges + (off(row) + columns_.lane()) * kSize;
    const unsigned word = shared::load_4(part(row, input) + at / kWord * kWord);
    T lanes[L];
    memcpy(lanes, &word, sizeof(lanes));
    return widen(at % kWord > 0 ? lanes[L - 1] : lanes[0]);
  }
  // Writes the word of memory that ends with the first element of `word`, which belongs to `to`.
  FUSEDOPS_DEVICE void write_odd(T* to, unsigned word, int k, int i) {
    constexpr unsigned kLast = warp::kWidth - 1;
    const unsigned lane = columns_.lane();
    const unsigned before = warp::shuffle(lane == kLast ? word_before_ : word,
                                          static_cast<int>((lane + kLast) % warp::kWidth));
    word_before_ = word;
    if (!has(k, i)) return;
    T lanes[L];
    memcpy(lanes, &word, sizeof(lanes));
    if (word_of(k, i) == 0 && lane == 0) {
      to[0] = lanes[0];
    } else {
      *reinterpret_cast<unsigned*>(to - 1) = between(before, word);
    }
    if (word_of(k, i) + 1 == left_) to[L - 1] = lanes[L - 1];
  }
  // The warp's part of a row.
  FUSEDOPS_DEVICE shared::Address part(const StagedRow& row, int input) const {
    return warp_ + static_cast<unsigned>(row.step) % S::kStages * stage_ +
           input * (S::kBytesOfWarp / 2);
  }

  const Columns<F, S>& columns_;
  const T *const x_, *const grad_;
  const shared::Address warp_;
  const unsigned stage_, bytes_;  // of a stage, and of the warp's vectors
  int left_;                      // words of them from the thread's first one on
  const float inverse_of_first_;  // 1 / the number of the warp's first elements
  unsigned word_before_ = 0;      // of the thread, that was written before
};

}  // namespace fusedops::kernels::norm_detail
