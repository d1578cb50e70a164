// Streams a warp's keys and values through shared memory.
#pragma once

#include "kernels/attention_token.cuh"
#include "platform/shared.h"

namespace fusedops::attention {

// Where vector `vector` of row `row` lies in a tile. Rows that are read together lie in
// different banks.
template <int kVectors>
FUSEDOPS_DEVICE int vector_place(int row, int vector) {
  static_assert(kVectors % 8 == 0);
  return (row * kVectors + (vector ^ (row % 8))) * kVectorBytes;
}

struct Tile {
  char* data;
  shared::Address at;  // the same place as an address in shared memory
};

// Tiles of kKeys keys and of as many values, alternating. As many tiles are in flight as there is
// room for. No other warp waits for them.
template <class T, int D, int kKeys>
class Tiles {
 public:
  static constexpr int kVectors = D / kLanes<T>;                  // vectors of a row
  static constexpr int kBytes = kKeys * kVectors * kVectorBytes;  // bytes of a tile

  // `room` has space for `slots` tiles.
  FUSEDOPS_DEVICE Tiles(char* room, int slots, const kernels::Attention& call,
                        const BlockHeads& block)
      : room_{room, shared::address_of(room)},
        slots_(slots),
        row_(call.cache.row * static_cast<unsigned>(sizeof(T))) {
    next_.from = own(call.cache.keys, call, block);
    after_.from = own(call.cache.values, call, block);
  }

  // Starts to copy tiles: the first begins with key `key`, the next `step` keys later, and so on.
  // Keys before `first` and after `end` become zeros.
  FUSEDOPS_DEVICE void begin(int key, int step, int first, int end) {
    first_ = first;
    end_ = end;
    step_ = step;
    for (TileStream* stream : {&next_, &after_}) {
      stream->key = key;
      stream->from += static_cast<std::uint64_t>(row_) * static_cast<unsigned>(key);
    }
#pragma unroll
    for (int i = 0; i < kAsks; ++i) {
      const unsigned at = (i * kAcross + own_vector()) * kVectorBytes;
      count_[i] = at < row_ ? end - first : 0;
    }
#pragma unroll 1
    for (int i = 0; i < slots_; ++i) ask();
  }

  // Waits for the next tile.
  FUSEDOPS_DEVICE Tile wait() {
    async_copy::wait_group(slots_ - 1);
    warp::sync();
    return {room_.data + slot_ * kBytes, room_.at + slot_ * kBytes};
  }

  // Starts to copy another tile to the place of the one that was returned last.
  FUSEDOPS_DEVICE void ask() {
    warp::sync();
    if (next_.key <= end_) copy(next_, room_.at + slot_ * kBytes);
    async_copy::commit_group();
    next_.key += step_;
    next_.from += static_cast<std::uint64_t>(row_) * static_cast<unsigned>(step_);
    const TileStream other = after_;
    after_ = next_;
    next_ = other;
    slot_ = slot_ + 1 == slots_ ? 0 : slot_ + 1;
  }

  // Writes a row of a tile, and to the cache unless `cache` is null.
  FUSEDOPS_DEVICE void put(const Tile& tile, int row, const T* data, T* cache) const {
#pragma unroll
    for (int i = 0; i < kAsks; ++i) {
      const int vector = i * warp::kWidth + lane(), at = vector * kLanes<T>;
      if (vector >= kVectors) break;
      const Vector<T> some = load(data + at);
      store(reinterpret_cast<T*>(tile.data + vector_place<kVectors>(row, vector)), some);
      if (cache != nullptr && static_cast<unsigned>(vector * kVectorBytes) < row_)
        store(cache + at, some);
    }
    warp::sync();
  }

 private:
  struct TileStream {
    const char* from;  // the thread's own part
    int key;           // first key of the tile
  };
  static constexpr int kAcross =
      kVectors < warp::kWidth ? kVectors : warp::kWidth;  // threads that share a row
  static constexpr int kAsks = kVectors / kAcross;        // vectors of a row that a thread copies
  static constexpr int kRows = warp::kWidth / kAcross;    // rows that the warp copies at once

  FUSEDOPS_DEVICE static int lane() { return static_cast<int>(threadIdx.x % warp::kWidth); }
  FUSEDOPS_DEVICE static int own_row() { return lane() / kAcross; }
  FUSEDOPS_DEVICE static int own_vector() { return lane() % kAcross; }

  FUSEDOPS_DEVICE static const char* own(void* cache, const kernels::Attention& call,
                                         const BlockHeads& block) {
    const T* const row = cache_row<T>(cache, call, block, own_row());
    return reinterpret_cast<const char*>(row + own_vector() * kLanes<T>);
  }

  FUSEDOPS_DEVICE void copy(const TileStream& stream, shared::Address to) const {
    const unsigned at = stream.key + own_row() - first_;
    const int place = vector_place<kVectors>(own_row(), own_vector());
#pragma unroll
    for (unsigned row = 0; row < kKeys; row += kRows) {
      const char* const from = stream.from + static_cast<std::uint64_t>(row_) * row;
#pragma unroll
      for (int i = 0; i < kAsks; ++i) {
        constexpr int kRowBytes = kVectors * kVectorBytes;
        const int swizzled = place ^ (row % 8 * kVectorBytes);
        async_copy::start(to + swizzled + row * kRowBytes + i * kAcross * kVectorBytes,
                          from + i * kAcross * kVectorBytes,
                          at + row < static_cast<unsigned>(count_[i]));
      }
    }
  }

  Tile room_;
  int slots_, slot_ = 0;
  unsigned row_;  // bytes
  int step_;
  int first_, end_;
  int count_[kAsks];  // keys to copy
  TileStream next_, after_;
};

}  // namespace fusedops::attention
