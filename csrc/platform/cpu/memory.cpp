// Every access of device code to memory, as the compiler reports it: bounds, alignment, races,
// copies that have not arrived, and reads before the kernel's turn.
#include <cstring>
#include <utility>

#include "platform/cpu/state.h"

// AddressSanitizer's runtime, which has the bounds of what the host allocates.
extern "C" __attribute__((weak)) int __asan_address_is_poisoned(const volatile void*);

namespace fusedops::model {
namespace {

constexpr std::uint64_t kMostAccesses = 4'000'000'000;  // of a launch: more is an endless loop
constexpr std::uintptr_t kPage = 4096;
struct Page {
  Word words[kPage / 4];
};

std::unordered_map<std::uintptr_t, std::unique_ptr<Page>>& pages() {
  static std::unordered_map<std::uintptr_t, std::unique_ptr<Page>> all;
  return all;
}

struct Recent {
  std::uintptr_t number = 0;
  Word* words = nullptr;
} recent[256];

Word& word_of_global(std::uintptr_t address) {
  const std::uintptr_t number = address / kPage;
  Recent& one = recent[number % 256];
  if (one.number != number || !one.words) {
    std::unique_ptr<Page>& page = pages()[number];
    if (!page) page = std::make_unique<Page>();
    one = {number, page->words};
  }
  return one.words[address % kPage / 4];
}

std::uint32_t cluster_of(std::uint32_t block) {
  return (block - machine.first_serial) / machine.cluster;
}

// Whether the barriers between them order an earlier access before one of now.
bool is_before(const Touch& earlier, const Touch& now, const Thread& thread) {
  if (earlier.block == 0 || earlier.block < machine.first_serial) return true;
  if (earlier.block == now.block) {
    if (earlier.epoch < now.epoch) return true;
    if (earlier.many == 2) return false;
    if (earlier.thread / kHalf != now.thread / kHalf) return false;
    if (earlier.warp_epoch < now.warp_epoch) return true;
    return earlier.many == 0 && earlier.thread == now.thread;
  }
  const std::uint32_t at = earlier.block - machine.first_serial;
  if (cluster_of(earlier.block) == cluster_of(now.block)) {
    if (earlier.phase < now.phase) return true;
    const Block& other = *machine.blocks[at % machine.cluster];
    return earlier.counted < other.counts.size() &&
           other.counts[earlier.counted] < thread.block->seen_until;
  }
  if (at >= machine.counts.size()) return false;
  const std::vector<std::uint32_t>& counts = machine.counts[at];
  return earlier.counted < counts.size() && counts[earlier.counted] < thread.block->seen_until;
}

[[noreturn]] void fail_for(const Touch& earlier, bool wrote, bool writes, const Thread& thread,
                           const void* pc) {
  const dim3& dim = machine.grid.threads;
  const unsigned n = earlier.thread;
  std::string who = "thread " + text_of({n % dim.x, n / dim.x % dim.y, n / (dim.x * dim.y)});
  if (earlier.block != thread.block->serial) {
    who += " of block " + text_of(machine.places[earlier.block - machine.first_serial]);
  }
  // Lines are looked up once the host runs again.
  machine.other = earlier.pc;
  fail(pc, std::string(writes ? "writes" : "reads") + " what " + who +
               (wrote ? " writes" : " reads") + " at the same time, at ");
}

// A write beside another one is right if it changes nothing: threads past the last row may compute
// and write it again. What is there before the write is compared at the thread's next access.
struct Same {
  const char* address = nullptr;
  char before[4];
  std::uint8_t bytes;
  Touch earlier;
  const void* pc;
} same;

void check_race(Word& word, const char* address, const Touch& now, bool writes, bool shared,
                const Thread& thread) {
  // A read of global memory that belongs to nobody's result is no fault: threads past the last row
  // read it again. So reads are compared with the writes of other clusters alone.
  const auto matters = [&](const Touch& earlier) {
    return shared || (earlier.block >= machine.first_serial &&
                      cluster_of(earlier.block) != cluster_of(now.block));
  };
  if ((word.write.bytes & now.bytes) && !is_before(word.write, now, thread)) {
    if (writes) {
      same = {address, {}, now.bytes, word.write, now.pc};
      std::memcpy(same.before, address, 4);
    } else if (matters(word.write)) {
      fail_for(word.write, true, false, thread, now.pc);
    }
  }
  if (writes) {
    if ((word.read.bytes & now.bytes) && matters(word.read) && !is_before(word.read, now, thread)) {
      fail_for(word.read, false, true, thread, now.pc);
    }
    word.write = now;
    return;
  }
  Touch& read = word.read;
  Touch next = now;
  if (read.block == now.block && read.epoch == now.epoch) {
    next.bytes |= read.bytes;
    const bool same_warp = read.thread / kHalf == now.thread / kHalf;
    const bool same_time = read.warp_epoch == now.warp_epoch;
    if (!same_warp || read.many == 2) {
      next.many = 2;
    } else if (same_time && (read.thread != now.thread || read.many == 1)) {
      next.many = 1;
    }
  }
  read = next;
}

// The bytes of a word that an access from `at` to `end` touches.
std::uint8_t bytes_of(std::uintptr_t word, std::uintptr_t at, std::uintptr_t end) {
  unsigned bytes = 15;
  if (at > word) bytes &= 15u << (at - word);
  if (end < word + 4) bytes &= 15u >> (word + 4 - end);
  return static_cast<std::uint8_t>(bytes & 15u);
}

void touch_shared(std::vector<Word>& words, const char* base, std::uintptr_t at, std::size_t bytes,
                  bool writes, const Thread& thread, const void* pc) {
  for (std::uintptr_t word = at / 4 * 4; word < at + bytes; word += 4) {
    Word& one = words[word / 4];
    if (one.pending == thread.block->serial) {
      fail(pc, std::string(writes ? "writes" : "reads") +
                   " shared memory that an asynchronous copy has not been waited for");
    }
    if (one.mail && one.write.block == thread.block->serial && !has_received(thread, one.mail)) {
      fail(pc, std::string(writes ? "writes" : "reads") +
                   " shared memory of a mailbox that the thread has not received");
    }
    // What is left of the blocks that had this room before.
    if (one.write.block != thread.block->serial) {
      one.write = {};
      one.mail = nullptr;
    }
    if (one.read.block != thread.block->serial) one.read = {};
    if (one.mail) one.write = {};  // its threads have received it
    check_race(one, base + word, touch_of(thread, bytes_of(word, at, at + bytes), pc), writes, true,
               thread);
  }
}

bool is_in_tensor(const char* first, std::size_t bytes) {
  return !__asan_address_is_poisoned ||
         (!__asan_address_is_poisoned(first) && !__asan_address_is_poisoned(first + bytes - 1));
}

// Whether the launch says that nothing writes this memory while it may wait.
bool is_constant(std::uintptr_t at, std::size_t bytes) {
  for (const auto& one : machine.grid.constants) {
    const auto begin = reinterpret_cast<std::uintptr_t>(one.data);
    if (at >= begin && at + bytes <= begin + static_cast<std::size_t>(one.bytes)) return true;
  }
  return false;
}

void touch_global(std::uintptr_t at, std::size_t bytes, bool writes, const Thread& thread,
                  const void* pc) {
  const char* const what = writes ? "writes " : "reads ";
  if (machine.grid.overlaps && !thread.waited && (writes || !is_constant(at, bytes))) {
    fail(pc, std::string(what) + "memory before overlap::wait()");
  }
  if (!is_in_tensor(reinterpret_cast<const char*>(at), bytes)) {
    fail(pc, what + std::to_string(bytes) + " bytes outside of any tensor");
  }
  for (std::uintptr_t word = at / 4 * 4; word < at + bytes; word += 4) {
    check_race(word_of_global(word), reinterpret_cast<const char*>(word),
               touch_of(thread, bytes_of(word, at, at + bytes), pc), writes, false, thread);
  }
}

}  // namespace

Touch touch_of(const Thread& thread, std::uint8_t bytes, const void* pc) {
  const Block& block = *thread.block;
  Touch touch;
  touch.block = block.serial;
  touch.epoch = block.epoch;
  // Past its arrival at the cluster's barrier a thread runs beside those that are past the barrier.
  std::uint32_t phase = machine.phase;
  if (thread.arrived && phase == thread.arrived_phase) {
    ++touch.epoch;
    ++phase;
  }
  touch.warp_epoch = thread.warp->epochs[thread.lane / kHalf];
  touch.thread = static_cast<std::uint16_t>(thread.number);
  touch.phase = static_cast<std::uint16_t>(phase);
  touch.counted = static_cast<std::uint16_t>(block.counts.size());
  touch.bytes = bytes;
  touch.pc = pc;
  return touch;
}

void check_same() {
  if (!same.address) return;
  const char* const address = std::exchange(same.address, nullptr);
  for (int i = 0; i < 4; ++i) {
    if (same.bytes >> i & 1 && address[i] != same.before[i]) {
      fail_for(same.earlier, true, true, *machine.current, same.pc);
    }
  }
}

void touch(const void* address, std::size_t bytes, bool writes, const void* pc) {
  Thread* const current = machine.current;
  if (!current) return;
  machine.pc = pc;
  check_same();
  if (within(address, current->context.stack, kStackBytes)) return;
  const Thread& thread = *current;
  Block& block = *thread.block;
  const auto at = reinterpret_cast<std::uintptr_t>(address);
  if ((bytes & (bytes - 1)) == 0 && bytes <= 16 && at % bytes != 0) {
    fail(pc,
         (writes ? "writes " : "reads ") + std::to_string(bytes) + " bytes off their alignment");
  }
  if (++machine.accesses > kMostAccesses) fail(pc, "does not end");
  if (within(address, machine.static_shared, machine.static_bytes)) {
    const std::uintptr_t begin = at - reinterpret_cast<std::uintptr_t>(machine.static_shared);
    if (writes) {
      block.low = std::min<std::size_t>(block.low, begin);
      block.high = std::max<std::size_t>(block.high, begin + bytes);
    }
    touch_shared(block.of_static, machine.static_shared, begin, bytes, writes, thread, pc);
  } else if (within(address, block.dynamic - kZone, machine.grid.shared + 2 * kZone)) {
    const std::uintptr_t begin = at - reinterpret_cast<std::uintptr_t>(block.dynamic);
    if (begin + bytes > machine.grid.shared) {
      fail(pc, std::string(writes ? "writes" : "reads") + " outside of the block's " +
                   std::to_string(machine.grid.shared) + " bytes of dynamic shared memory");
    }
    touch_shared(block.of_dynamic, block.dynamic, begin, bytes, writes, thread, pc);
  } else if (in_stacks(address)) {
    fail(pc, "uses a variable of another thread");
  } else if (!within(address, machine.arguments, machine.argument_bytes) &&
             !within(address, machine.image, machine.image_bytes)) {
    touch_global(at, bytes, writes, thread, pc);
  }
}

void forget_memory() {
  constexpr std::size_t kMostPages = 4096;  // of 200 KB each, with 4 KB of a tensor in each
  if (pages().size() < kMostPages) return;
  pages().clear();
  std::memset(static_cast<void*>(recent), 0, sizeof(recent));
}

void prefetch(const void* address, unsigned bytes) {
  const void* const pc = __builtin_return_address(0);
  const auto at = reinterpret_cast<std::uintptr_t>(address);
  if (at % 16 != 0 || bytes % 16 != 0) fail(pc, "prefetches what is not whole 16 bytes");
  if (bytes != 0 && !is_in_tensor(static_cast<const char*>(address), bytes)) {
    fail(pc, "prefetches outside of any tensor");
  }
}

}  // namespace fusedops::model
