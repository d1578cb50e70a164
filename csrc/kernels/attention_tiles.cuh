// A warp's keys and values on their way through shared memory.
#pragma once

#include "kernels/attention_token.cuh"
#include "platform/shared.h"

namespace fusedops::attention {

// Where 16 bytes of a row of a tile lie: rows that are read together lie in different banks.
template <int kVectors>
FUSEDOPS_DEVICE int vector_place(int row, int vector) {
  static_assert(kVectors % 8 == 0);
  return (row * kVectors + (vector ^ (row % 8))) * kVectorBytes;
}

struct Tile {
  char* data;
  shared::Address at;  // the same place
};

// Tiles of kKeys keys, and as many values, in turn: first a tile of keys, then that of their
// values. As many as there is room for are on their way at any time; no other warp waits for them.
template <class T, int D, int kKeys>
class Tiles {
 public:
  static constexpr int kVectors = D / kLanes<T>;                  // of a row
  static constexpr int kBytes = kKeys * kVectors * kVectorBytes;  // of a tile

  // Of the cache's rows from `from` on, with room for some tiles.
  FUSEDOPS_DEVICE Tiles(char* room, int slots, const kernels::Attention& call, const Place& place)
      : room_{room, shared::address_of(room)},
        slots_(slots),
        row_(call.cache.row * static_cast<unsigned>(sizeof(T))) {
    next_.from = own(call.cache.keys, call, place);
    after_.from = own(call.cache.values, call, place);
  }

  // Asks for as many as there is room for: those that begin with `key`, `step` further and so on.
  // Keys from `first` up to `end` are there, what else there is of a tile is zeros.
  FUSEDOPS_DEVICE void begin(int key, int step, int first, int end) {
    first_ = first;
    end_ = end;
    step_ = step;
    for (Stream* stream : {&next_, &after_}) {
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

  // The next tile, once it is there.
  FUSEDOPS_DEVICE Tile wait() {
    async_copy::wait_but(slots_ - 1);
    warp::sync();
    return {room_.data + slot_ * kBytes, room_.at + slot_ * kBytes};
  }

  // Asks for another one in place of the tile that was waited for.
  FUSEDOPS_DEVICE void ask() {
    warp::sync();
    if (next_.key <= end_) copy(next_, room_.at + slot_ * kBytes);
    async_copy::close_group();
    next_.key += step_;
    next_.from += static_cast<std::uint64_t>(row_) * static_cast<unsigned>(step_);
    const Stream other = after_;
    after_ = next_;
    next_ = other;
    slot_ = slot_ + 1 == slots_ ? 0 : slot_ + 1;
  }

  // Writes a row of a tile, and of the cache unless it is null.
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
  struct Stream {
    const char* from;  // the thread's own
    int key;           // the tile's first
  };
  static constexpr int kAcross = kVectors < warp::kWidth ? kVectors : warp::kWidth;  // of a row
  static constexpr int kAsks = kVectors / kAcross;      // of a thread for a row
  static constexpr int kRows = warp::kWidth / kAcross;  // that the warp asks for at once

  FUSEDOPS_DEVICE static int lane() { return static_cast<int>(threadIdx.x % warp::kWidth); }
  FUSEDOPS_DEVICE static int own_row() { return lane() / kAcross; }
  FUSEDOPS_DEVICE static int own_vector() { return lane() % kAcross; }

  FUSEDOPS_DEVICE static const char* own(void* cache, const kernels::Attention& call,
                                         const Place& place) {
    const T* const row = cache_row<T>(cache, call, place, own_row());
    return reinterpret_cast<const char*>(row + own_vector() * kLanes<T>);
  }

  FUSEDOPS_DEVICE void copy(const Stream& stream, shared::Address to) const {
    const unsigned at = stream.key + own_row() - first_;
    const int place = vector_place<kVectors>(own_row(), own_vector());
#pragma unroll
    for (unsigned row = 0; row < kKeys; row += kRows) {
      const char* const from = stream.from + static_cast<std::uint64_t>(row_) * row;
#pragma unroll
      for (int i = 0; i < kAsks; ++i) {
        constexpr int kRowBytes = kVectors * kVectorBytes;
        const int turned = place ^ (row % 8 * kVectorBytes);
        async_copy::start(to + turned + row * kRowBytes + i * kAcross * kVectorBytes,
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
  int count_[kAsks];  // of the keys that are there
  Stream next_, after_;
};

}  // namespace fusedops::attention
