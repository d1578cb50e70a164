// The GPUs that are modelled. A library is compiled for one of them: FUSEDOPS_MODEL is its name.
#include "platform/cpu/machine.h"

#define FUSEDOPS_TEXT_OF(name) #name
#define FUSEDOPS_TEXT(name) FUSEDOPS_TEXT_OF(name)

namespace fusedops::model {
namespace {

constexpr int kKiB = 1024;
constexpr GpuModel kGpus[] = {
    {"sm_75", 32, 7, 72, 64 * kKiB, 64 * kKiB},     // Turing
    {"sm_80", 32, 8, 108, 164 * kKiB, 163 * kKiB},  // Ampere
    {"sm_90", 32, 9, 132, 228 * kKiB, 227 * kKiB},  // Hopper
    {"gfx90a", 64, 0, 104, 64 * kKiB, 64 * kKiB},   // CDNA 2
    {"gfx1100", 32, 0, 96, 64 * kKiB, 64 * kKiB},   // RDNA 3
};

constexpr bool same(const char* a, const char* b) {
  while (*a && *a == *b) ++a, ++b;
  return *a == *b;
}

constexpr int find(const char* name) {
  for (int i = 0; i < static_cast<int>(sizeof(kGpus) / sizeof(GpuModel)); ++i) {
    if (same(kGpus[i].name, name)) return i;
  }
  return -1;
}

constexpr int kIndex = find(FUSEDOPS_TEXT(FUSEDOPS_MODEL));
static_assert(kIndex >= 0, "FUSEDOPS_MODEL is none of the modelled GPUs");

}  // namespace

const GpuModel& gpu() { return kGpus[kIndex]; }

}  // namespace fusedops::model
