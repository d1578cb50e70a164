// Stands for NVIDIA's management library: answers as the file named by FAKE_NVML says, line by
// line:
//   init STATUS | driver RELEASE | cuda NUMBER | board MAJOR MINOR UUID CORES CLOCK NAME... | lost
//   slice UUID        (of the board before)
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

namespace {

enum Status { Ok = 0, Uninitialized = 1, InvalidArgument = 2, NotFound = 6, Lost = 15 };

struct Device {
  int major = 0, minor = 0;
  std::string uuid, name;
  unsigned cores = 0, clock = 0;
  bool lost = false;
  std::vector<Device> slices;
};

int started = 0;
int refusal = Ok;
unsigned cuda = 0;
std::string driver;
std::vector<Device> devices;

void read() {
  refusal = Ok;
  cuda = 0;
  driver.clear();
  devices.clear();
  std::ifstream file(std::getenv("FAKE_NVML"));
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string what;
    words >> what;
    if (what == "init") {
      words >> refusal;
    } else if (what == "driver") {
      words >> driver;
    } else if (what == "cuda") {
      words >> cuda;
    } else if (what == "board") {
      Device d;
      words >> d.major >> d.minor >> d.uuid >> d.cores >> d.clock >> std::ws;
      std::getline(words, d.name);
      devices.push_back(d);
    } else if (what == "lost") {
      devices.emplace_back();
      devices.back().lost = true;
    } else if (what == "slice") {
      Device d;
      words >> d.uuid;
      devices.back().slices.push_back(d);
    }
  }
}

int give(const std::string& value, char* text, unsigned size) {
  if (!started) return Uninitialized;
  if (value.size() >= size) return 7;  // NVML_ERROR_INSUFFICIENT_SIZE
  std::snprintf(text, size, "%s", value.c_str());
  return Ok;
}

template <class T>
int give(T value, T* out) {
  if (!started) return Uninitialized;
  *out = value;
  return Ok;
}

}  // namespace

extern "C" {

const char* nvmlErrorString(int status) {
  return status == 18 ? "Driver/library version mismatch" : status == 9 ? "Driver Not Loaded" : "?";
}

int nvmlInit_v2() {
  read();
  if (refusal == Ok) ++started;
  return refusal;
}

int nvmlShutdown() { return started ? (--started, Ok) : Uninitialized; }

int nvmlSystemGetDriverVersion(char* text, unsigned size) { return give(driver, text, size); }

int nvmlSystemGetCudaDriverVersion_v2(unsigned* number) {
  return cuda ? give(cuda, number) : NotFound;
}

int nvmlDeviceGetCount_v2(unsigned* count) { return give(unsigned(devices.size()), count); }

int nvmlDeviceGetHandleByIndex_v2(unsigned index, Device** device) {
  if (index >= devices.size()) return InvalidArgument;
  return devices[index].lost ? Lost : give(&devices[index], device);
}

int nvmlDeviceGetCudaComputeCapability(Device* device, int* major, int* minor) {
  return give(device->major, major) + give(device->minor, minor);
}

int nvmlDeviceGetName(Device* device, char* text, unsigned size) {
  return give(device->name, text, size);
}

int nvmlDeviceGetUUID(Device* device, char* text, unsigned size) {
  return give(device->uuid, text, size);
}

#ifndef OLD  // an old driver has none of these
int nvmlDeviceGetNumGpuCores(Device* device, unsigned* cores) { return give(device->cores, cores); }

int nvmlDeviceGetMaxClockInfo(Device* device, unsigned kind, unsigned* clock) {
  return kind == 1 ? give(device->clock, clock) : InvalidArgument;
}

int nvmlDeviceGetMaxMigDeviceCount(Device* device, unsigned* count) {
  return give(device->slices.empty() ? 0u : 7u, count);
}

int nvmlDeviceGetMigDeviceHandleByIndex(Device* device, unsigned index, Device** part) {
  return index < device->slices.size() ? give(&device->slices[index], part) : NotFound;
}
#endif
}
