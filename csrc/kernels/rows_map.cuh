// Element-wise operators of matrices and rows: out[r, c] = f(matrices at [r, c], rows at [c]).
//
// A functor F computes V columns at once from kInputs matrices and kRows rows, where A is
// Accumulator<T>:
//   void operator()(A (&out)[V], const A (&in)[kInputs][V], const A (*row)[V]) const
// F also defines
//   kInputs, kRows
//   kPitch     the rows of a matrix are kPitch rows of the result apart: 2 for the halves of one
//              matrix, else 1
//   kOptional  whether a row may be missing; a missing row counts as zeros
//   kLight     whether the arithmetic fits into the registers of a full multiprocessor; where it
//              does not, a spill costs more than the waiting threads hide
#pragma once

#include "kernels/tiling.h"
#include "kernels/unaligned.cuh"
#include "platform/overlap.h"

namespace fusedops {

// `out` is contiguous and starts on 16 bytes. The inputs and rows may start anywhere.
template <class T, int kInputs, int kRows>
struct Operands {
  T* out;
  const T* in[kInputs];
  const T* row[kRows ? kRows : 1];
};

template <class T, class F>
using OperandsOf = Operands<T, F::kInputs, F::kRows>;

namespace rows_map_detail {

template <class T, int kCount>
struct Vectors {
  Vector<T> each[kCount ? kCount : 1];
};

template <class T, class F>
FUSEDOPS_DEVICE Vector<T> apply(const F& f, const Vectors<T, F::kInputs>& in,
                                const Vectors<T, F::kRows>& row) {
  constexpr int V = kLanes<T>;
  Accumulator<T> inputs[F::kInputs][V], rows[F::kRows ? F::kRows : 1][V], out[V];
#pragma unroll
  for (int k = 0; k < F::kInputs; ++k) widen(inputs[k], in.each[k]);
#pragma unroll
  for (int k = 0; k < F::kRows; ++k) widen(rows[k], row.each[k]);
  f(out, inputs, rows);
  return narrow<T>(out);
}

// Whether the next kernel may start early. Blocks that allow it are replaced later, which slows
// kernels of many short blocks down (H200: at least 1.2 ns a block, 20 % behind a copy).
FUSEDOPS_DEVICE bool has_few_blocks() { return gridDim.x * gridDim.y * gridDim.z <= 2048; }

// The usual case: rows of whole aligned vectors, in as few instructions as possible. With one
// 16-bit input the GPU has time for 28 instructions an element before they take longer than memory.
// A thread has kAcross vectors of a row in flight, a block's width apart. The rows' vectors are
// loaded first.
template <class T, class F, int kAcross>
__global__ void __launch_bounds__(kThreads, (F::kLight ? FUSEDOPS_FULL_SM(kThreads) : 1))
    whole_rows_kernel(const OperandsOf<T, F> operands, const F f, unsigned rows, unsigned period) {
  overlap::wait(has_few_blocks());
  constexpr int V = kLanes<T>;
  const unsigned p = blockIdx.x * (blockDim.x * kAcross) + threadIdx.x;
  const unsigned r = (blockIdx.z * gridDim.y + blockIdx.y) * blockDim.y + threadIdx.y;
  if (r >= rows) return;
  const std::uint64_t before = static_cast<std::uint64_t>(r) * period;
  const std::uint64_t first = (before + p) * V, first_in = (before * F::kPitch + p) * V;
  Vectors<T, F::kRows> row[kAcross];
  Vectors<T, F::kInputs> in[kAcross];
#pragma unroll
  for (int k = 0; k < kAcross; ++k) {
    if (p + k * blockDim.x < period) {
#pragma unroll
      for (int i = 0; i < F::kRows; ++i) {
        row[k].each[i] = load(operands.row[i] + (p + k * blockDim.x) * V);
      }
    }
  }
#pragma unroll
  for (int k = 0; k < kAcross; ++k) {
    if (p + k * blockDim.x < period) {
#pragma unroll
      for (int i = 0; i < F::kInputs; ++i) {
        in[k].each[i] = load(operands.in[i] + first_in + k * blockDim.x * V);
      }
    }
  }
#pragma unroll
  for (int k = 0; k < kAcross; ++k) {
    if (p + k * blockDim.x < period) {
      store(operands.out + first + k * blockDim.x * V, apply(f, in[k], row[k]));
    }
  }
}

// Any number of columns from a vector's on, one input with the alignment of the result, and fewer
// than 2^31 elements. The matrix is loaded as whole vectors, wherever its rows end in them, and the
// rows' elements are gathered around that. A thread has kAcross vectors in flight.
template <class T, class F, int kAcross>
__global__ void __launch_bounds__(kThreads, (F::kLight ? FUSEDOPS_FULL_SM(kThreads) : 1))
    one_input_kernel(const OperandsOf<T, F> operands, const F f, unsigned elements,
                     const Divisor cols) {
  overlap::wait(has_few_blocks());
  constexpr int V = kLanes<T>;
  const unsigned step = blockDim.x * V,
                 first = (blockIdx.x * blockDim.x * kAcross + threadIdx.x) * V;
  Vectors<T, 1> in[kAcross];
  Vectors<T, F::kRows> row[kAcross];
#pragma unroll
  for (int k = 0; k < kAcross; ++k) {
    const unsigned at = first + k * step;
    if (at + V <= elements) {
      in[k].each[0] = load(operands.in[0] + at);
    } else {
#pragma unroll
      for (unsigned i = 0; i < V; ++i) {
        if (at + i < elements) in[k].each[0].lane[i] = operands.in[0][at + i];
      }
    }
  }
#pragma unroll
  for (int k = 0; k < kAcross; ++k) {
    const unsigned at = first + k * step;
    if (at >= elements) continue;
    const unsigned c = at - cols.quotient(at) * cols.by;
    // Four loads of 32 bits take less time than two of 16 bytes that are joined; eight take more.
    const bool inside = V > 4 && c >= V && c + 2 * V <= cols.by;
#pragma unroll
    for (int j = 0; j < F::kRows; ++j) {
      if (inside) {
        row[k].each[j] = load_anywhere(operands.row[j] + c);
      } else {
#pragma unroll
        for (unsigned i = 0; i < V; ++i) {
          row[k].each[j].lane[i] = operands.row[j][c + i < cols.by ? c + i : c + i - cols.by];
        }
      }
    }
  }
#pragma unroll
  for (int k = 0; k < kAcross; ++k) {
    const unsigned at = first + k * step;
    if (at >= elements) continue;
    const Vector<T> out = apply(f, in[k], row[k]);
    if (at + V <= elements) {
      store(operands.out + at, out);
    } else {
#pragma unroll
      for (unsigned i = 0; i < V; ++i) {
        if (at + i < elements) operands.out[at + i] = out.lane[i];
      }
    }
  }
}

// Any number of columns, and inputs of any alignment: the threads walk the vectors of the result.
// Vectors that begin at one of the `inside` columns from V on lie in their row together with the
// next vector, so the aligned vectors around them can be read. `direct`: all inputs have the
// alignment of the result. `divisor` is cols if all indices fit into 31 bits.
template <class T, class F>
__global__ void __launch_bounds__(kThreads)
    any_rows_kernel(const OperandsOf<T, F> operands, const F f, std::int64_t elements,
                    std::int64_t cols, const Divisor divisor, std::int64_t inside, bool direct) {
  overlap::wait(has_few_blocks());
  constexpr int V = kLanes<T>;
  const std::int64_t at = (static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) * V;
  if (at >= elements) return;
  std::int64_t r = 0, c = at;
  if constexpr (F::kRows > 0 || F::kPitch > 1) {
    if (is_narrow(elements)) {
      const auto number = static_cast<unsigned>(at);
      const unsigned quotient = divisor.quotient(number);
      r = quotient;
      c = number - quotient * divisor.by;
    } else {
      r = static_cast<std::uint64_t>(at) / static_cast<std::uint64_t>(cols);
      c = at - r * cols;
    }
  }
  std::int64_t at_in = at + r * (F::kPitch - 1) * cols;
  int count = V;
  Vectors<T, F::kInputs> in;
  Vectors<T, F::kRows> row;
  if (static_cast<std::uint64_t>(c - V) < static_cast<std::uint64_t>(inside)) {
#pragma unroll
    for (int k = 0; k < F::kRows; ++k) {
      const bool missing = F::kOptional && !operands.row[k];
      row.each[k] = missing ? Vector<T>{} : load_anywhere(operands.row[k] + c);
    }
#pragma unroll
    for (int k = 0; k < F::kInputs; ++k) {
      const T* data = operands.in[k] + at_in;
      in.each[k] = F::kPitch == 1 && direct ? load(data) : load_anywhere(data);
    }
  } else {  // at the ends of a row, element by element
    if (elements - at < V) count = static_cast<int>(elements - at);
    const int width = static_cast<int>(cols < V ? cols : V);
    int left = static_cast<int>(cols - c < V ? cols - c : V);
#pragma unroll
    for (int i = 0; i < V; ++i) {
      if (i < count) {
#pragma unroll
        for (int k = 0; k < F::kRows; ++k) {
          const bool missing = F::kOptional && !operands.row[k];
          row.each[k].lane[i] = missing ? T{} : operands.row[k][c];
        }
#pragma unroll
        for (int k = 0; k < F::kInputs; ++k) in.each[k].lane[i] = operands.in[k][at_in];
      }
      ++c;
      ++at_in;
      if (--left == 0) {
        left = width;
        c = 0;
        at_in += (F::kPitch - 1) * cols;
      }
    }
  }
  const Vector<T> out = apply(f, in, row);
  if (count == V) {
    store(operands.out + at, out);
  } else {
#pragma unroll
    for (int i = 0; i < V; ++i) {
      if (i < count) operands.out[at + i] = out.lane[i];
    }
  }
}

}  // namespace rows_map_detail

// float64 is for gradient checks: one kernel is enough.
template <class T>
constexpr bool kMapsWholeRows = sizeof(T) < 8;

// Whether every row of every operand is present and consists of aligned vectors.
template <class T, int kInputs, int kRows>
bool has_whole_rows(const Operands<T, kInputs, kRows>& operands, std::int64_t rows,
                    std::int64_t cols) {
  bool whole = cols % kLanes<T> == 0 && is_narrow(rows) && is_narrow(cols);
  whole = whole && aligned(operands.out);
  for (const T* in : operands.in) whole = whole && aligned(in);
  for (int k = 0; k < kRows; ++k) whole = whole && operands.row[k] && aligned(operands.row[k]);
  return whole;
}

// Vectors of a thread: measured (H200), with a single 32-bit input two are up to 5 % faster in
// large matrices and up to 20 % slower in small ones. In all other cases one is faster.
template <class T, class F, class Launch>
gpu::Status with_across(std::int64_t vectors, const Launch& launch) {
  if constexpr (F::kInputs == 1 && sizeof(T) == 4) {
    constexpr std::int64_t kLarge = std::int64_t{1} << 18;  // vectors, 4 MiB
    if (vectors >= kLarge) return launch(std::integral_constant<int, 2>{});
  }
  return launch(std::integral_constant<int, 1>{});
}

// The operands must have whole rows (has_whole_rows).
template <class T, class F>
gpu::Status map_whole_rows(const OperandsOf<T, F>& operands, const F& f, std::int64_t rows,
                           std::int64_t cols, gpu::Stream stream) {
  using namespace rows_map_detail;
  const std::int64_t period = cols / kLanes<T>;
  return with_across<T, F>(rows * period, [&](auto across) {
    const RowGrid grid = row_grid(rows, period, across.value);
    return overlap::launch(&whole_rows_kernel<T, F, across.value>, grid.blocks, grid.threads,
                           stream, operands, f, static_cast<unsigned>(rows),
                           static_cast<unsigned>(period));
  });
}

// rows and cols must not be 0.
template <class T, class F>
gpu::Status map_any_rows(const OperandsOf<T, F>& operands, const F& f, std::int64_t rows,
                         std::int64_t cols, gpu::Stream stream) {
  using namespace rows_map_detail;
  constexpr std::int64_t V = kLanes<T>;
  if (!aligned(operands.out)) return gpu::kInvalidValue;
  const std::int64_t elements = rows * cols, vectors = ceil_div(elements, V);
  const std::int64_t inside = std::max<std::int64_t>(cols - 3 * V + 1, 0);
  bool direct = true;
  for (const T* in : operands.in) direct = direct && aligned(in);
  // Measured (H200), 4097 columns: 5 % faster than any_rows_kernel, 10 % in small matrices; float16
  // and two inputs are slower.
  constexpr bool kOne = F::kInputs == 1 && F::kPitch == 1 && !F::kOptional;
  if constexpr (kMapsWholeRows<T> && kOne && !std::is_same_v<T, half>) {
    // 64 Ki more: the last block counts past the elements.
    if (direct && cols >= V && is_narrow(elements + (1 << 16))) {
      return with_across<T, F>(vectors, [&](auto across) {
        const int threads = block_threads(ceil_div(vectors, across.value));
        return overlap::launch(&one_input_kernel<T, F, across.value>,
                               ceil_div(vectors, std::int64_t{threads} * across.value),
                               dim3(static_cast<unsigned>(threads)), stream, operands, f,
                               static_cast<unsigned>(elements), Divisor(cols));
      });
    }
  }
  const int threads = block_threads(vectors);
  return overlap::launch(&any_rows_kernel<T, F>, ceil_div(vectors, threads),
                         dim3(static_cast<unsigned>(threads)), stream, operands, f, elements, cols,
                         Divisor(is_narrow(elements) ? cols : 1), inside, direct);
}

// Uses the fast kernel if the operands allow it.
template <class T, class F>
gpu::Status map_rows(const OperandsOf<T, F>& operands, const F& f, std::int64_t rows,
                     std::int64_t cols, gpu::Stream stream) {
  if constexpr (kMapsWholeRows<T>) {
    if (has_whole_rows(operands, rows, cols)) {
      return map_whole_rows<T>(operands, f, rows, cols, stream);
    }
  }
  return map_any_rows<T>(operands, f, rows, cols, stream);
}

}  // namespace fusedops
