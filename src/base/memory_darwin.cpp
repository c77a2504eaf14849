#include <mach/mach.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/sysctl_darwin.h"

namespace inferno {

// There are no files to describe another machine by, so `root` changes nothing here.
std::optional<uint64_t> available_memory(const std::string& /*root*/) {
  vm_statistics64_data_t pages{};
  mach_msg_type_number_t count = HOST_VM_INFO64_COUNT;
  const mach_port_t host = mach_host_self();
  const kern_return_t result = host_statistics64(host, HOST_VM_INFO64, reinterpret_cast<host_info64_t>(&pages), &count);
  mach_port_deallocate(mach_task_self(), host);
  if (result != KERN_SUCCESS) return std::nullopt;
  // File pages and purgeable ones can be dropped. Speculative pages are counted as free ones.
  const uint64_t usable = uint64_t{pages.free_count} + pages.external_page_count + pages.purgeable_count;
  return usable * static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
}

uint64_t free_swap(const std::string& /*root*/) {
  // The system adds swap files as it needs them; those that exist are what is certain.
  xsw_usage swap{};
  size_t bytes = sizeof swap;
  return sysctlbyname("vm.swapusage", &swap, &bytes, nullptr, 0) == 0 ? swap.xsu_avail : 0;
}

uint64_t resident_memory() {
  mach_task_basic_info_data_t info{};
  mach_msg_type_number_t count = MACH_TASK_BASIC_INFO_COUNT;
  const kern_return_t result =
      task_info(mach_task_self(), MACH_TASK_BASIC_INFO, reinterpret_cast<task_info_t>(&info), &count);
  return result == KERN_SUCCESS ? info.resident_size : 0;
}

}  // namespace inferno
