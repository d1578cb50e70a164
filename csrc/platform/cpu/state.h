// The state of the model: the threads, warps and blocks of a launch, and what is known of each word
// of memory. Not for device code.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "platform/cpu/fibre.h"
#include "platform/cpu/machine.h"

namespace fusedops::model {

struct Block;
struct Warp;

// Threads that a barrier of the warp promises to join (platform/warp.h): half a wavefront of 64.
constexpr int kHalf = 32;

// An access to a word of memory.
struct Touch {
  std::uint32_t block = 0;       // serial number of the block; 0 for none
  std::uint32_t epoch = 0;       // before it: 2 for a barrier of the block, 1 for the cluster's
  std::uint32_t warp_epoch = 0;  // barriers of the warp before it
  std::uint16_t thread = 0;
  std::uint16_t phase = 0;    // barriers of the cluster before it
  std::uint16_t counted = 0;  // count_up calls of the block before it
  std::uint8_t bytes = 0;     // which bytes of the word
  std::uint8_t many = 0;      // 1: several threads of a warp did the same; 2: of several warps
  const void* pc = nullptr;
};

struct Word {
  Touch write, read;
  std::uint32_t pending = 0;   // the block that an asynchronous copy has not arrived in
  const void* mail = nullptr;  // the box of the value that was sent here
};

// A box for values from the blocks of the cluster (platform/cluster.h).
struct MailState {
  unsigned missing = 0;      // values that have not come
  bool sent = false;         // whether any has come
  std::uint32_t phase = 0;   // barriers of the cluster before it was opened
  std::uint32_t rounds = 0;  // of values that have all come
};

struct Copy {
  char* to;
  const char* from;
  std::size_t bytes;  // zeros follow them
  const void* pc;
};

enum class At { ready, block_barrier, warp, cluster, mail, end };

struct Thread {
  Context context;
  uint3 index;
  int number = 0;  // in the block
  int lane = 0;    // in the warp
  Warp* warp = nullptr;
  Block* block = nullptr;
  At at = At::ready;
  const void* pc = nullptr;  // where it waits
  Act act = nullptr;
  void* arguments = nullptr;
  bool waited = false;   // has called wait_for_previous
  bool arrived = false;  // at the cluster's barrier, and has not waited there
  std::uint32_t arrived_phase = 0;
  std::vector<const void*> received;      // boxes whose values it may read
  std::vector<Copy> copies;               // not in a group yet
  std::vector<std::vector<Copy>> groups;  // oldest first
};

struct Warp {
  int first = 0, count = 0, live = 0, waiting = 0;
  std::uint32_t epochs[2] = {};  // barriers of each half
};

struct Block {
  uint3 index;
  unsigned rank = 0;  // in the cluster
  std::uint32_t serial = 0, epoch = 0;
  int live = 0, waiting = 0;
  std::vector<Thread> threads;
  std::vector<Warp> warps;
  std::vector<int> ready;
  std::vector<std::uint32_t> counts;  // times of its count_up calls
  std::uint32_t seen_until = 0;       // the latest count that it has seen
  std::unordered_map<const void*, MailState> mail;
  bool read_remotely = false;  // by another block, since the cluster's last barrier
  // Shared memory. The static part lies in `saved` while another block runs.
  std::size_t low = 0, high = 0;  // the bytes of the static part that were written
  std::vector<char> saved, room;
  char* dynamic = nullptr;
  std::vector<Word> of_static, of_dynamic;
};

struct Fault {
  uint3 block, thread;
  const void* pc;
  std::string text;
};

struct Machine {
  // Of a launch.
  Grid grid;
  const void* kernel = nullptr;
  void (*call)(const void*) = nullptr;
  const char* arguments = nullptr;
  std::size_t argument_bytes = 0;
  std::uint32_t first_serial = 1, next_serial = 1, time = 0;
  std::vector<uint3> places;                       // of the blocks, by serial number
  std::vector<std::vector<std::uint32_t>> counts;  // of the blocks, by serial number
  std::uint64_t accesses = 0;
  bool faulted = false;
  Fault fault;
  const void* other = nullptr;  // the line at the end of its sentence

  // Of a cluster; most are of one block.
  std::vector<std::unique_ptr<Block>> blocks;
  unsigned cluster = 1;
  std::uint32_t phase = 0;
  int arrived = 0, live = 0;
  Block* active = nullptr;    // its static shared memory is in place
  Thread* current = nullptr;  // nullptr while the host runs
  const void* pc = nullptr;   // its last access
  Context host;

  // Of the library: its constants, and the calling thread's static shared memory.
  const char* image = nullptr;
  std::size_t image_bytes = 0;
  char* static_shared = nullptr;
  std::size_t static_bytes = 0;

  std::uint64_t random = 1;
  std::uint64_t launches = 0, blocks_run = 0, switches = 0;
};

extern Machine machine;

constexpr unsigned char kPoison = 0xff;  // NaN in every floating-point type
constexpr std::size_t kZone = 64 << 10;  // bytes beside dynamic shared memory that belong to no one

// fault.cpp: the first fault of a launch. fail() ends the launch for the current thread.
void record(const Thread& thread, const void* pc, const std::string& text);
[[noreturn]] void fail(const void* pc, const std::string& text);
// The fault as a sentence, and its parts.
std::string sentence();
std::string place_of(const void* pc);
std::string name_of(const Thread& thread);
std::string text_of(const uint3& index);

// meeting.cpp: meet() for a line that is known; and what threads do at a barrier of their warp.
void meet_at(Act act, void* arguments, const void* pc);
void barrier_of_warp(void* const* arguments, int lanes);
// Goes on with the host, which picks the next thread.
void leave(Thread& thread);

inline bool within(const void* address, const void* begin, std::size_t bytes) {
  return reinterpret_cast<std::uintptr_t>(address) - reinterpret_cast<std::uintptr_t>(begin) <
         bytes;
}

// memory.cpp: an access of the current thread.
void touch(const void* address, std::size_t bytes, bool writes, const void* pc);
// Compares what a write beside another one has changed, if that is still to be done.
void check_same();
Touch touch_of(const Thread& thread, std::uint8_t bytes, const void* pc);
// Forgets what is known of memory that another kernel has touched, where it takes much room.
void forget_memory();
// shared.cpp: reads another block's shared memory.
void touch_remote(Block& owner, const char* mine, const void* pc);
float* in_block(Block& owner, const char* mine);
// Whether the thread may read what was sent to it with this box.
bool has_received(const Thread& thread, const void* box);

}  // namespace fusedops::model
