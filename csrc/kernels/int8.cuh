// Signed bytes as 16-bit floating point: exact.
#pragma once

#include "kernels/vector.cuh"

namespace fusedops::int8 {

// Two of the four bytes of a word, the first or the last two, as a word of two elements of T.
template <class T>
FUSEDOPS_DEVICE unsigned pair(unsigned bytes, bool last) {
  unsigned out;
  if constexpr (std::is_same_v<T, half>) {
    // 0x6400 is 1024, and its lowest bit is worth 1. Each byte is made more by 128.
    const unsigned bits = __byte_perm(bytes ^ 0x80808080u, 0x64646464u, last ? 0x4342 : 0x4140);
    half2 value;
    memcpy(&value, &bits, sizeof(bits));
    value = __hsub2(value, __float2half2_rn(1024.0f + 128.0f));
    memcpy(&out, &value, sizeof(out));
  } else {
    // 0x4300 is 128, 0x4380 is 256, and the lowest bit of both is worth 1 or 2: the byte's lower
    // seven bits give 128 more than they are worth, its sign 128 or 256.
    const unsigned bits = __byte_perm(bytes, 0x43434343u, last ? 0x4342 : 0x4140);
    const unsigned lower = bits & 0xff7fff7fu, sign = bits & 0xff80ff80u;
    gpu::bfloat162 one, other;
    memcpy(&one, &lower, sizeof(lower));
    memcpy(&other, &sign, sizeof(sign));
    one = __hsub2(one, other);
    memcpy(&out, &one, sizeof(out));
  }
  return out;
}

// The transpose of a [4, 4] matrix of bytes, a row a word.
FUSEDOPS_DEVICE void transpose(unsigned (&rows)[4]) {
  const unsigned a = __byte_perm(rows[0], rows[1], 0x5140);
  const unsigned b = __byte_perm(rows[2], rows[3], 0x5140);
  const unsigned c = __byte_perm(rows[0], rows[1], 0x7362);
  const unsigned d = __byte_perm(rows[2], rows[3], 0x7362);
  rows[0] = __byte_perm(a, b, 0x5410);
  rows[1] = __byte_perm(a, b, 0x7632);
  rows[2] = __byte_perm(c, d, 0x5410);
  rows[3] = __byte_perm(c, d, 0x7632);
}

}  // namespace fusedops::int8
