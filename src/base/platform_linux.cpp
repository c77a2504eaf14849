#include <malloc.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <fstream>
#include <iterator>
#include <sstream>

#include "base/platform.h"

#if defined(__aarch64__)
#include <sys/auxv.h>
#endif

namespace inferno::platform {

#if defined(__aarch64__)
CpuFeatures arm_features() {
  // Bits of the kernel's hardware capability words; older system headers do not name all of them.
  constexpr unsigned long kAsimd = 1UL << 1;
  constexpr unsigned long kAsimdHp = 1UL << 10;
  constexpr unsigned long kAsimdDp = 1UL << 20;
  constexpr unsigned long kAsimdFhm = 1UL << 23;
  constexpr unsigned long kI8mm = 1UL << 13;  // second word
  constexpr unsigned long kBf16 = 1UL << 14;  // second word
  const unsigned long first = getauxval(AT_HWCAP);
  const unsigned long second = getauxval(AT_HWCAP2);
  CpuFeatures has;
  has.neon = (first & kAsimd) != 0;
  has.fp16 = (first & kAsimdHp) != 0;
  has.dotprod = (first & kAsimdDp) != 0;
  has.fp16fml = (first & kAsimdFhm) != 0;
  has.i8mm = (second & kI8mm) != 0;
  has.bf16 = (second & kBf16) != 0;
  return has;
}
#endif

std::string cpu_name() {
  std::ifstream file("/proc/cpuinfo");
  return cpu_name_in({std::istreambuf_iterator<char>(file), {}});
}

MachineTime machine_time() {
  constexpr double kTicksPerSecond = 100;  // USER_HZ, part of the interface
  MachineTime time;
  std::ifstream file("/proc/stat");
  for (std::string line; std::getline(file, line) && line.starts_with("cpu");) {
    if (line[3] != ' ') {
      ++time.cpus;
      continue;
    }
    std::istringstream fields(line.substr(4));
    double ticks = 0;
    for (int i = 0; i < 8 && fields >> ticks; ++i) {
      const bool idle = i == 3 || i == 4;
      if (!idle) time.seconds += ticks / kTicksPerSecond;
    }
  }
  return time;
}

std::string system_build() {
  utsname system{};
  if (uname(&system) != 0) return "";
  return std::string(system.release) + " " + system.version;
}

void name_this_thread(const char* name) {
  pthread_setname_np(pthread_self(), name);
}

void lower_thread_priority() {
  // Of a thread, not of the process, in spite of the name; failing is no harm.
  setpriority(PRIO_PROCESS, static_cast<id_t>(syscall(SYS_gettid)), 10);
}

void hint_huge_pages(void* data, size_t bytes) {
  madvise(data, bytes, MADV_HUGEPAGE);  // failing is no harm
}

void hint_read_once(int /*fd*/, uint64_t /*file_bytes*/) {
  // Cached pages are the first that the kernel drops, and a second start is quicker with them.
}

void return_free_memory() noexcept {
#if defined(__GLIBC__)
  malloc_trim(0);
#endif
}

void return_large_blocks() {
#if defined(__GLIBC__)
  mallopt(M_MMAP_THRESHOLD, 1 << 18);
#endif
}

void raise_descriptor_limit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  (void)setrlimit(RLIMIT_NOFILE, &limit);
}

}  // namespace inferno::platform
