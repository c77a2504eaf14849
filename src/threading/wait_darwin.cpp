#include <dlfcn.h>

#include "threading/wait.h"

namespace inferno {
namespace {

static_assert(sizeof(std::atomic<uint32_t>) == sizeof(uint32_t) && std::atomic<uint32_t>::is_always_lock_free);

// Sleeping on an address, as of macOS 14.4; older systems and their headers do not have it, so it is looked up by name.
// Without it std::atomic waits, which is right but shares its sleeping places between addresses.
struct AddressWait {
  int (*wait)(void* address, uint64_t value, size_t size, uint32_t flags) = nullptr;
  int (*wake_all)(void* address, size_t size, uint32_t flags) = nullptr;

  AddressWait() {
    void* const wait_function = dlsym(RTLD_DEFAULT, "os_sync_wait_on_address");
    void* const wake_function = dlsym(RTLD_DEFAULT, "os_sync_wake_by_address_all");
    if (wait_function == nullptr || wake_function == nullptr) return;
    wait = reinterpret_cast<decltype(wait)>(wait_function);
    wake_all = reinterpret_cast<decltype(wake_all)>(wake_function);
  }
};

const AddressWait& address_wait() {
  static const AddressWait functions;
  return functions;
}

}  // namespace

void SystemPlatform::sleep_while_equal(std::atomic<uint32_t>& word, uint32_t value) {
  if (const AddressWait& functions = address_wait(); functions.wait != nullptr) {
    functions.wait(&word, value, sizeof value, 0);
  } else {
    word.wait(value, std::memory_order_relaxed);
  }
}

void SystemPlatform::wake_all(std::atomic<uint32_t>& word) {
  if (const AddressWait& functions = address_wait(); functions.wake_all != nullptr) {
    functions.wake_all(&word, sizeof(uint32_t), 0);
  } else {
    word.notify_all();
  }
}

uint64_t SystemPlatform::preemptions() {
  return 0;  // the system does not count them by thread
}

}  // namespace inferno
