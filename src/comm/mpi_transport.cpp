// Ranks joined by MPI: the library libinferno_mpi, which is loaded when mpirun started the program (world.h).
//
// Messages are sent and received without blocking and waited for here, so that a rank that waits yields its core to
// others, sleeps when nothing happens for long, and notices when a rank has ended.
#include <mpi.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include "comm/rank_timeout.h"
#include "comm/world.h"

namespace inferno {
namespace {

using Clock = std::chrono::steady_clock;
using namespace std::chrono_literals;

// Between looks at the clock, and at the processes of the other ranks.
constexpr int kSpinsPerLook = 256;
constexpr auto kBetweenPeerChecks = 50ms;
// Whoever waits for the next step longer than this sleeps in between.
constexpr auto kAwake = 2ms;
constexpr auto kNap = 200us;
// A message's bytes are counted by an int.
constexpr size_t kMostBytes = size_t{1} << 30;
constexpr int kTag = 7;

// What ranks tell each other when they join.
struct Identity {
  char host[96];
  char system[64];     // equal on one machine
  char processes[64];  // and where processes see each other
  int64_t process;
};

void copy_text(char* to, size_t capacity, const std::string& from) {
  std::snprintf(to, capacity, "%s", from.c_str());
}

// The running system.
std::string system_id() {
  std::string id;
  if (std::FILE* file = std::fopen("/proc/sys/kernel/random/boot_id", "r"); file != nullptr) {
    char line[64] = "";
    if (std::fgets(line, sizeof line, file) != nullptr) id = line;
    std::fclose(file);
  }
  return id;
}

// Its numbering of processes, of which containers have their own.
std::string processes_id() {
  char link[64] = "";
  return ::readlink("/proc/self/ns/pid", link, sizeof link - 1) > 0 ? link : "";
}

Identity own_identity() {
  Identity identity{};
  char host[96] = "";
  ::gethostname(host, sizeof host - 1);
  copy_text(identity.host, sizeof identity.host, host);
  const std::string system = system_id();
  copy_text(identity.system, sizeof identity.system, system.empty() ? host : system);
  copy_text(identity.processes, sizeof identity.processes, processes_id());
  identity.process = ::getpid();
  return identity;
}

bool same_system(const Identity& a, const Identity& b) {
  return std::strcmp(a.system, b.system) == 0;
}
bool sees(const Identity& a, const Identity& b) {
  return same_system(a, b) && std::strcmp(a.processes, b.processes) == 0;
}

class MpiTransport final : public Transport {
 public:
  MpiTransport(int rank, int size, std::vector<Identity> ranks) : rank_(rank), size_(size), ranks_(std::move(ranks)) {
    for (const Identity& one : ranks_) {
      places_.push_back("process " + std::to_string(one.process) + " on " + one.host);
    }
    requests_.reserve(2 * static_cast<size_t>(size));
  }

  [[nodiscard]] int rank() const noexcept override { return rank_; }
  [[nodiscard]] int size() const noexcept override { return size_; }
  [[nodiscard]] LocalRank local() const noexcept override {
    const Identity& own = ranks_[static_cast<size_t>(rank_)];
    const auto on_this = [&](const Identity& other) { return same_system(own, other); };
    return {static_cast<int>(std::count_if(ranks_.begin(), ranks_.begin() + rank_, on_this)),
            static_cast<int>(std::count_if(ranks_.begin(), ranks_.end(), on_this))};
  }
  [[nodiscard]] const char* failure() const noexcept override { return failure_; }
  [[nodiscard]] const char* place(int rank) const noexcept override {
    return places_[static_cast<size_t>(rank)].c_str();
  }
  [[nodiscard]] int dead_peer() const noexcept override {
    const Identity& own = ranks_[static_cast<size_t>(rank_)];
    for (int r = 0; r < size_; ++r) {
      const Identity& other = ranks_[static_cast<size_t>(r)];
      if (r == rank_ || !sees(own, other)) continue;
      const int error = errno;  // of whom a signal interrupted
      const bool dead = ::kill(static_cast<pid_t>(other.process), 0) != 0 && errno == ESRCH;
      errno = error;
      if (dead) return r;
    }
    return -1;
  }
  void close() noexcept override { MPI_Finalize(); }

  [[nodiscard]] bool transfer(std::span<const Send> sends, std::span<const Receive> receives,
                              Patience patience) noexcept override {
    requests_.clear();
    for (const Receive& receive : receives) {
      if (!begin(receive.bytes, [&](std::byte* data, int count, MPI_Request* request) {
            return MPI_Irecv(data, count, MPI_BYTE, receive.rank, kTag, MPI_COMM_WORLD, request);
          })) {
        return false;
      }
    }
    for (const Send& send : sends) {
      if (!begin(send.bytes, [&](const std::byte* data, int count, MPI_Request* request) {
            return MPI_Isend(data, count, MPI_BYTE, send.rank, kTag, MPI_COMM_WORLD, request);
          })) {
        return false;
      }
    }
    return wait(patience, sends, receives);
  }

 private:
  // Begins a message in pieces that MPI can count.
  template <typename Bytes, typename Start>
  bool begin(Bytes bytes, Start start) noexcept {
    do {
      const size_t piece = std::min(bytes.size(), kMostBytes);
      MPI_Request request = MPI_REQUEST_NULL;
      if (!succeeded(start(bytes.data(), static_cast<int>(piece), &request))) return false;
      requests_.push_back(request);
      bytes = bytes.subspan(piece);
    } while (!bytes.empty());
    return true;
  }

  bool wait(Patience patience, std::span<const Send> sends, std::span<const Receive> receives) noexcept {
    Clock::time_point began{};
    Clock::time_point checked{};
    for (int spins = 1;; ++spins) {
      int done = 0;
      if (!succeeded(MPI_Testall(static_cast<int>(requests_.size()), requests_.data(), &done, MPI_STATUSES_IGNORE))) {
        return false;
      }
      if (done != 0) return true;
      if (spins % kSpinsPerLook != 0) continue;
      // Gives the core to whom it waits for, where ranks share one.
      std::this_thread::yield();
      const Clock::time_point now = Clock::now();
      if (began == Clock::time_point{}) began = checked = now;
      if (now - checked > kBetweenPeerChecks) {
        checked = now;
        if (const int dead = dead_peer(); dead >= 0) {
          std::snprintf(failure_, sizeof failure_, "rank %d (%s) has ended", dead, place(dead));
          return false;
        }
      }
      if (patience == Patience::step) {
        if (now - began > timeout_) return fail_silent(sends, receives);
      } else if (now - began > kAwake) {
        std::this_thread::sleep_for(kNap);
      }
    }
  }

  bool fail_silent(std::span<const Send> sends, std::span<const Receive> receives) noexcept {
    const int other = receives.empty() ? sends.front().rank : receives.front().rank;
    std::snprintf(failure_, sizeof failure_, "rank %d (%s), or one beside it, has not answered for %lld s", other,
                  place(other), static_cast<long long>(timeout_.count()));
    return false;
  }

  bool succeeded(int code) noexcept {
    if (code == MPI_SUCCESS) return true;
    char text[MPI_MAX_ERROR_STRING] = "";
    int length = 0;
    MPI_Error_string(code, text, &length);
    const int dead = dead_peer();
    if (dead >= 0) {
      std::snprintf(failure_, sizeof failure_, "rank %d (%s) has ended", dead, place(dead));
    } else {
      std::snprintf(failure_, sizeof failure_, "the ranks cannot reach each other: %.300s", text);
    }
    return false;
  }

  int rank_;
  int size_;
  std::vector<Identity> ranks_;
  std::vector<std::string> places_;
  std::vector<MPI_Request> requests_;
  std::chrono::seconds timeout_ = rank_timeout();
  char failure_[512] = "";
};

}  // namespace
}  // namespace inferno

extern "C" __attribute__((visibility("default"))) inferno::Transport* inferno_join_mpi(char* error,
                                                                                       size_t error_bytes) {
  using inferno::Identity;
  int provided = 0;
  // One thread at a time calls MPI, but not always the same one.
  if (MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &provided) != MPI_SUCCESS ||
      provided < MPI_THREAD_SERIALIZED) {
    std::snprintf(error, error_bytes, "this MPI cannot be used by several threads in turn");
    return nullptr;
  }
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  int rank = 0;
  int size = 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  const Identity own = inferno::own_identity();
  std::vector<Identity> ranks(static_cast<size_t>(size));
  constexpr int kBytes = static_cast<int>(sizeof(Identity));
  if (MPI_Allgather(&own, kBytes, MPI_BYTE, ranks.data(), kBytes, MPI_BYTE, MPI_COMM_WORLD) != MPI_SUCCESS) {
    std::snprintf(error, error_bytes, "the ranks do not reach each other");
    return nullptr;
  }
  return new (std::nothrow) inferno::MpiTransport(rank, size, std::move(ranks));
}
