#include "comm/nccl_library.h"

#include <dlfcn.h>
#include <fmt/core.h>

#include "base/text.h"

namespace inferno {
namespace {

constexpr const char* kNccl = "libnccl.so.2";
constexpr size_t kMostNcclReason = 200;

}  // namespace

bool NcclLibrary::open(const char* name, NcclLibrary& library, std::string& reason) {
  void* handle = ::dlopen(name, RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    reason = printable(::dlerror(), kMostNcclReason);
    return false;
  }
  const auto find = [&](auto& function, const char* symbol) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(::dlsym(handle, symbol));
    if (function == nullptr && reason.empty()) reason = fmt::format("{} has no function {}", name, symbol);
  };
  reason.clear();
  find(library.get_version, "ncclGetVersion");
  find(library.get_unique_id, "ncclGetUniqueId");
  find(library.comm_init_rank, "ncclCommInitRank");
  find(library.comm_get_async_error, "ncclCommGetAsyncError");
  find(library.comm_destroy, "ncclCommDestroy");
  find(library.comm_abort, "ncclCommAbort");
  find(library.get_error_string, "ncclGetErrorString");
  find(library.all_reduce, "ncclAllReduce");
  find(library.send, "ncclSend");
  find(library.receive, "ncclRecv");
  find(library.group_start, "ncclGroupStart");
  find(library.group_end, "ncclGroupEnd");
  return reason.empty();
}

const NcclLibrary* NcclLibrary::load(std::string& reason) {
  struct Loaded {
    NcclLibrary library;
    std::string reason;
    bool found = open(kNccl, library, reason);
  };
  static const Loaded kLoaded;
  reason = kLoaded.reason;
  return kLoaded.found ? &kLoaded.library : nullptr;
}

}  // namespace inferno
