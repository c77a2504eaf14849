// What each operating system does in its own way. platform_linux.cpp and platform_darwin.cpp implement it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "base/cpu_features.h"

namespace inferno::platform {

#if defined(__aarch64__)
[[nodiscard]] CpuFeatures arm_features();
#endif

// The CPU's name, "" where it is not known.
[[nodiscard]] std::string cpu_name();
// The same of the first CPU in a text as Linux's /proc/cpuinfo.
[[nodiscard]] std::string cpu_name_in(const std::string& cpuinfo);

// The system's version, to the build: text that an update changes. "" where it is not known.
[[nodiscard]] std::string system_build();

// CPU time that all processes have used since the machine started.
struct MachineTime {
  double seconds = 0;
  int cpus = 0;  // of the machine; 0: not known
};
[[nodiscard]] MachineTime machine_time();

// A name for the calling thread that debuggers and `top` show; at most 15 characters.
void name_this_thread(const char* name);

// The calling thread gives way to others from now on.
void lower_thread_priority();

// A hint that `bytes` from `data` be backed by large pages.
void hint_huge_pages(void* data, size_t bytes);

// For a file that is read once, into memory of the same size: keeps the system from caching it where the cache and the
// copy would compete for memory.
void hint_read_once(int fd, uint64_t file_bytes);

// Gives memory that was freed back to the system.
void return_free_memory() noexcept;
// Large blocks go back to the system whenever they are freed, from now on and in the whole process. glibc would keep
// them from the second time on, in every thread's arena, and a server that large requests come to would grow with them.
void return_large_blocks();

// Lets this process have as many open files and connections as the system allows.
void raise_descriptor_limit();

}  // namespace inferno::platform
