#include <fcntl.h>
#include <mach/mach.h>
#include <malloc/malloc.h>
#include <pthread.h>
#include <pthread/qos.h>
#include <sys/resource.h>
#include <sys/syslimits.h>
#include <unistd.h>

#include <algorithm>

#include "base/platform.h"
#include "base/sysctl_darwin.h"

namespace inferno::platform {

#if defined(__aarch64__)
CpuFeatures arm_features() {
  const auto has_feature = [](const char* name) { return sysctl_number(name).value_or(0) != 0; };
  CpuFeatures has;
  has.neon = true;  // part of every Apple silicon CPU
  has.fp16 = has_feature("hw.optional.arm.FEAT_FP16");
  has.dotprod = has_feature("hw.optional.arm.FEAT_DotProd");
  has.fp16fml = has_feature("hw.optional.arm.FEAT_FHM");
  has.i8mm = has_feature("hw.optional.arm.FEAT_I8MM");  // from the M2 on, like bf16
  has.bf16 = has_feature("hw.optional.arm.FEAT_BF16");
  return has;
}
#endif

std::string cpu_name() {
  return sysctl_text("machdep.cpu.brand_string");
}

MachineTime machine_time() {
  host_cpu_load_info_data_t load{};
  mach_msg_type_number_t count = HOST_CPU_LOAD_INFO_COUNT;
  const mach_port_t host = mach_host_self();
  const kern_return_t result = host_statistics(host, HOST_CPU_LOAD_INFO, reinterpret_cast<host_info_t>(&load), &count);
  mach_port_deallocate(mach_task_self(), host);
  if (result != KERN_SUCCESS) return {};
  const double ticks = static_cast<double>(load.cpu_ticks[CPU_STATE_USER]) + load.cpu_ticks[CPU_STATE_SYSTEM] +
                       load.cpu_ticks[CPU_STATE_NICE];
  return {.seconds = ticks / static_cast<double>(sysconf(_SC_CLK_TCK)),
          .cpus = static_cast<int>(sysctl_number("hw.logicalcpu").value_or(0))};
}

std::string system_build() {
  return sysctl_text("kern.osversion");
}

void name_this_thread(const char* name) {
  pthread_setname_np(name);
}

void lower_thread_priority() {
  pthread_set_qos_class_self_np(QOS_CLASS_UTILITY, 0);  // failing is no harm
}

void hint_huge_pages(void* /*data*/, size_t /*bytes*/) {
  // Pages have 16 KiB and the system offers no larger ones.
}

void hint_read_once(int fd, uint64_t file_bytes) {
  // The GPU's memory is this memory too, and the system compresses or swaps before it drops cached files.
  const uint64_t memory = static_cast<uint64_t>(sysctl_number("hw.memsize").value_or(0));
  if (file_bytes > memory / 4) (void)::fcntl(fd, F_NOCACHE, 1);
}

void return_free_memory() noexcept {
  malloc_zone_pressure_relief(nullptr, 0);
}

void return_large_blocks() {
  // Its allocator does so.
}

void raise_descriptor_limit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = std::min<rlim_t>(limit.rlim_max, OPEN_MAX);  // more is refused, although the limit says "none"
  (void)setrlimit(RLIMIT_NOFILE, &limit);
}

}  // namespace inferno::platform
