#include "comm/world.h"

#include <dlfcn.h>
#include <fmt/core.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <memory>

#include "base/error.h"
#include "base/text.h"

namespace inferno {
namespace {

#ifdef __APPLE__
constexpr const char* kLibrary = "libinferno_mpi.dylib";
#else
constexpr const char* kLibrary = "libinferno_mpi.so";
#endif

std::unique_ptr<Communicator>& joined() {
  static std::unique_ptr<Communicator> communicator;
  return communicator;
}
// The same for signal handlers, which may not enter the initialisation of a local variable.
std::atomic<Transport*> joined_transport{nullptr};
std::atomic<bool> reported{false};

constexpr size_t kMostReason = 200;
// More ranks than any cluster has.
constexpr int64_t kMaxRanks = 1 << 20;

// A number that the launcher set; a value that is none is as good as none.
int number_of(const char* text, int fallback) {
  if (text == nullptr) return fallback;
  const std::optional<int64_t> value = parse_int(text);
  return value && *value >= 0 && *value <= kMaxRanks ? static_cast<int>(*value) : fallback;
}

// Where the program, or the library that this code is part of, lies.
std::filesystem::path own_folder() {
  std::error_code error;
  std::filesystem::path file = std::filesystem::read_symlink("/proc/self/exe", error);
  Dl_info info{};
  if (error && ::dladdr(reinterpret_cast<const void*>(&joined), &info) != 0) file = info.dli_fname;
  return file.parent_path();
}

// Beside the program, in the lib folder beside the program's folder, or where the system looks for libraries. A library
// that is there and cannot be loaded is the reason to tell.
void* open_library(std::string& reason) {
  const std::filesystem::path folder = own_folder();
  for (const std::filesystem::path& path : {folder / kLibrary, folder / ".." / INFERNO_LIBDIR / kLibrary}) {
    std::error_code error;
    if (!std::filesystem::exists(path, error)) continue;
    // Global: MPI's own plug-ins look for its symbols among those of the program.
    if (void* library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL); library != nullptr) return library;
    reason = printable(::dlerror(), kMostReason);
    return nullptr;
  }
  void* library = ::dlopen(kLibrary, RTLD_NOW | RTLD_GLOBAL);
  if (library == nullptr) reason = fmt::format("there is no {}", kLibrary);
  return library;
}

}  // namespace

Launch detect_launch(const char* (*environment)(const char* name)) {
  struct Names {
    const char *rank, *size, *local_size;
  };
  constexpr Names kLaunchers[] = {{"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE"},
                                  {"PMI_RANK", "PMI_SIZE", "MPI_LOCALNRANKS"},
                                  {"PMIX_RANK", "SLURM_STEP_NUM_TASKS", "SLURM_STEP_TASKS_PER_NODE"}};
  for (const Names& names : kLaunchers) {
    const int size = number_of(environment(names.size), 1);
    const int rank = number_of(environment(names.rank), -1);
    if (size < 2 || rank < 0 || rank >= size) continue;
    return {.rank = rank, .size = size, .local_size = std::clamp(number_of(environment(names.local_size), 1), 1, size)};
  }
  return {};
}

Launch detect_launch() {
  return detect_launch([](const char* name) -> const char* { return std::getenv(name); });
}

void join_world() {
  const Launch launch = detect_launch();
  if (launch.size == 1 || joined() != nullptr) return;
  std::string reason;
  void* library = open_library(reason);
  if (library == nullptr) {
    fail(
        "{} ranks were started, and the library that joins them cannot be loaded ({}); install Open MPI and a build "
        "made with it (Debian: libopenmpi-dev, openmpi-bin), or start one rank",
        launch.size, reason);
  }
  auto* join = reinterpret_cast<JoinFunction*>(::dlsym(library, kJoinFunction));
  if (join == nullptr) fail("{} is not of this version of inferno", kLibrary);
  char error[512] = "";
  Transport* transport = join(error, sizeof error);
  if (transport == nullptr) fail("the {} ranks cannot be joined: {}", launch.size, error);
  joined() = std::make_unique<Communicator>(std::unique_ptr<Transport>(transport));
  joined_transport.store(transport, std::memory_order_release);
}

Communicator& world() {
  static Communicator alone;
  return joined() == nullptr ? alone : *joined();
}

size_t describe_dead_rank(char* text, size_t capacity) noexcept {
  const Transport* transport = joined_transport.load(std::memory_order_acquire);
  const int dead = transport == nullptr ? -1 : transport->dead_peer();
  if (dead < 0) return 0;
  size_t length = 0;
  const auto append = [&](const char* piece) {
    for (; *piece != '\0' && length + 1 < capacity; ++piece) text[length++] = *piece;
  };
  char number[16] = "";
  *std::to_chars(number, number + sizeof number - 1, dead).ptr = '\0';
  append("rank ");
  append(number);
  append(" (");
  append(transport->place(dead));
  append(") has ended");
  text[length] = '\0';
  return length;
}

bool may_report_failure() noexcept {
  const Transport* transport = joined_transport.load(std::memory_order_acquire);
  if (transport == nullptr) return true;
  // Of those that live the first speaks; only the death of the first ones makes another one of them.
  const int dead = transport->dead_peer();
  const int first_alive = dead == 0 ? 1 : 0;
  return transport->rank() == first_alive && !reported.exchange(true, std::memory_order_relaxed);
}

}  // namespace inferno
