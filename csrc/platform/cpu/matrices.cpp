// Products, loads and transposes of small matrices by a warp, by the layouts that the PTX manual
// documents for mma.m16n8k16, ldmatrix and movmatrix (platform/tensor_core.h repeats them).
#include <cstring>

#include "platform/cpu/state.h"

namespace fusedops::model {
namespace {

constexpr int kLanes = 32;

struct ProductOfLane {
  float* c;
  const unsigned *a, *b;
  Elements elements;
  bool whole = true;
};

// c [16, 8] += a [16, 16] b [16, 8]. The sum is rounded once; tensor cores round in between.
void multiply(void* const* arguments, int) {
  float a[16][16], b[16][8];
  bool whole = true;
  for (int lane = 0; lane < kLanes; ++lane) whole = whole && arguments[lane];
  for (int lane = 0; lane < kLanes; ++lane) {
    if (!arguments[lane]) continue;
    auto& one = *static_cast<ProductOfLane*>(arguments[lane]);
    one.whole = whole;
    const int g = lane / 4, t = lane % 4;
    for (int i = 0; i < 4; ++i) {
      float pair[2];
      one.elements(one.a[i], pair);
      for (int j = 0; j < 2; ++j) a[g + i % 2 * 8][2 * t + i / 2 * 8 + j] = pair[j];
    }
    for (int i = 0; i < 2; ++i) {
      float pair[2];
      one.elements(one.b[i], pair);
      for (int j = 0; j < 2; ++j) b[2 * t + i * 8 + j][g] = pair[j];
    }
  }
  if (!whole) return;
  for (int lane = 0; lane < kLanes; ++lane) {
    auto& one = *static_cast<ProductOfLane*>(arguments[lane]);
    const int g = lane / 4, t = lane % 4;
    for (int i = 0; i < 4; ++i) {
      const int row = g + i / 2 * 8, col = 2 * t + i % 2;
      double sum = one.c[i];
      for (int k = 0; k < 16; ++k) sum += double{a[row][k]} * double{b[k][col]};
      one.c[i] = static_cast<float>(sum);
    }
  }
}

struct RowOfLane {
  std::uint16_t row[8];  // the one that the thread passes
  unsigned* words;
  bool transposed;
  bool whole = true;
};

void load(void* const* arguments, int) {
  const RowOfLane* rows[kLanes];
  bool whole = true;
  for (int lane = 0; lane < kLanes; ++lane) {
    rows[lane] = static_cast<const RowOfLane*>(arguments[lane]);
    whole = whole && rows[lane];
  }
  for (int lane = 0; lane < kLanes; ++lane) {
    if (!arguments[lane]) continue;
    auto& one = *static_cast<RowOfLane*>(arguments[lane]);
    one.whole = whole;
    if (!whole) continue;
    const int g = lane / 4, t = lane % 4;
    for (int matrix = 0; matrix < 4; ++matrix) {
      std::uint16_t pair[2];
      for (int j = 0; j < 2; ++j) {
        const int row = one.transposed ? 2 * t + j : g, col = one.transposed ? g : 2 * t + j;
        pair[j] = rows[matrix * 8 + row]->row[col];
      }
      one.words[matrix] = pair[0] | static_cast<unsigned>(pair[1]) << 16;
    }
  }
}

struct WordOfLane {
  unsigned in, out = 0;
  bool whole = true;
};

void transpose_all(void* const* arguments, int) {
  const WordOfLane* all[kLanes];
  bool whole = true;
  for (int lane = 0; lane < kLanes; ++lane) {
    all[lane] = static_cast<const WordOfLane*>(arguments[lane]);
    whole = whole && all[lane];
  }
  const auto element = [&](int row, int col) {
    return all[row * 4 + col / 2]->in >> col % 2 * 16 & 0xffffu;
  };
  for (int lane = 0; lane < kLanes; ++lane) {
    if (!arguments[lane]) continue;
    auto& one = *static_cast<WordOfLane*>(arguments[lane]);
    one.whole = whole;
    const int g = lane / 4, t = lane % 4;
    if (whole) one.out = element(2 * t, g) | element(2 * t + 1, g) << 16;
  }
}

void check(bool whole, const void* pc) {
  if (!whole) fail(pc, "uses the tensor cores without all 32 threads of its warp");
}

}  // namespace

void multiply_add(float (&c)[4], const unsigned (&a)[4], const unsigned (&b)[2],
                  Elements elements) {
  ProductOfLane mine{c, a, b, elements};
  meet_at(multiply, &mine, __builtin_return_address(0));
  check(mine.whole, __builtin_return_address(0));
}

void load_matrices(unsigned (&words)[4], unsigned row, bool transposed) {
  const void* const pc = __builtin_return_address(0);
  RowOfLane mine{{}, words, transposed};
  const void* const from = shared_pointer(row);
  touch(from, sizeof(mine.row), false, pc);
  std::memcpy(mine.row, from, sizeof(mine.row));
  meet_at(load, &mine, pc);
  check(mine.whole, pc);
}

unsigned transpose(unsigned word) {
  WordOfLane mine{word};
  meet_at(transpose_all, &mine, __builtin_return_address(0));
  check(mine.whole, __builtin_return_address(0));
  return mine.out;
}

}  // namespace fusedops::model
