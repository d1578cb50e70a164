// What is said about a fault: kernel, block, thread, line.
#include <dlfcn.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <map>

#include "platform/cpu/state.h"

namespace fusedops::model {
namespace {

// Runs addr2line on an address of this library: functions and lines, the innermost first.
std::vector<std::string> lines_of(const void* address) {
  Dl_info info{};
  if (!dladdr(address, &info)) return {};
  char offset[32];
  std::snprintf(offset, sizeof(offset), "%#tx",
                static_cast<const char*>(address) - static_cast<const char*>(info.dli_fbase));
  std::string file = info.dli_fname;
  char program[] = "addr2line", option[] = "-Cfie";
  char* const arguments[] = {program, option, file.data(), offset, nullptr};
  char preload[] = "LD_PRELOAD=", path[] = "PATH=/usr/local/bin:/usr/bin:/bin";
  char* const environment[] = {preload, path, nullptr};
  int ends[2];
  if (pipe(ends) != 0) return {};
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], 1);
  posix_spawn_file_actions_addclose(&actions, ends[0]);
  pid_t child = 0;
  const int failed = posix_spawnp(&child, program, &actions, nullptr, arguments, environment);
  posix_spawn_file_actions_destroy(&actions);
  close(ends[1]);
  std::string text;
  char part[4096];
  if (!failed) {
    for (ssize_t n; (n = read(ends[0], part, sizeof(part))) > 0;) {
      text.append(part, static_cast<std::size_t>(n));
    }
    waitpid(child, nullptr, 0);
  }
  close(ends[0]);
  std::vector<std::string> lines;
  for (std::size_t begin = 0, end; (end = text.find('\n', begin)) != std::string::npos;) {
    lines.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return lines;
}

// "src/csrc/kernels/norm.cuh:12 (discriminator 3)" as "kernels/norm.cuh:12".
std::string short_place(const std::string& line) {
  std::string place = line.substr(0, line.find(' '));
  for (const char* const folder : {"/kernels/", "/platform/"}) {
    const std::size_t at = place.rfind(folder);
    if (at != std::string::npos) return place.substr(at + 1);
  }
  return place;
}

// "void fusedops::kernels::norm_detail::row_kernel<float>(…)" as "norm_detail::row_kernel".
std::string kernel_name() {
  const std::vector<std::string> lines = lines_of(machine.kernel);
  if (lines.empty()) return "unknown";
  std::string name = lines[0].substr(0, lines[0].find_first_of("<("));
  name = name.substr(name.rfind(' ') + 1);
  for (const char* const space : {"fusedops::", "kernels::"}) {
    if (name.rfind(space, 0) == 0) name = name.substr(std::string(space).size());
  }
  return name;
}

}  // namespace

std::string text_of(const uint3& index) {
  return "(" + std::to_string(index.x) + ", " + std::to_string(index.y) + ", " +
         std::to_string(index.z) + ")";
}

std::string name_of(const Thread& thread) { return "thread " + text_of(thread.index); }

// The innermost line that is not one of platform/ itself, where there is one.
std::string place_of(const void* pc) {
  static std::map<const void*, std::string> known;
  if (!pc) return "its end";
  const auto found = known.find(pc);
  if (found != known.end()) return found->second;
  const std::vector<std::string> lines = lines_of(static_cast<const char*>(pc) - 1);
  std::string place;
  for (std::size_t i = 1; i < lines.size(); i += 2) {
    const std::string one = short_place(lines[i]);
    if (place.empty()) place = one;
    if (one.rfind("kernels/", 0) == 0 && one.rfind("kernels/vector.cuh", 0) != 0) {
      place = one;
      break;
    }
  }
  return known[pc] = place.empty() ? "an unknown line" : place;
}

void record(const Thread& thread, const void* pc, const std::string& text) {
  if (machine.faulted) return;
  machine.faulted = true;
  machine.fault = {thread.block->index, thread.index, pc, text};
}

void fail(const void* pc, const std::string& text) {
  Thread* const thread = machine.current;
  if (!thread) {
    std::fprintf(stderr, "the host side of a kernel, %s: %s\n", place_of(pc).c_str(), text.c_str());
    std::abort();
  }
  record(*thread, pc, text);
  switch_contexts(thread->context, machine.host);
  std::abort();  // the host does not come back
}

std::string sentence() {
  const Fault& fault = machine.fault;
  return std::string("model ") + gpu().name + ": kernel " + kernel_name() + ", block " +
         text_of(fault.block) + ", thread " + text_of(fault.thread) + ", " + place_of(fault.pc) +
         ": " + fault.text + (machine.other ? place_of(machine.other) : "");
}

}  // namespace fusedops::model
