// What carries bytes between ranks: the part of a communicator that is MPI, or threads of one process. An interface
// without code of its own, so that a plug-in library can implement it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace inferno {

// How long a message may take: that of a step must come soon; for the next step, or the end, one may wait forever.
enum class Patience : uint8_t { step, idle };

struct Send {
  int rank = 0;
  std::span<const std::byte> bytes;
};
struct Receive {
  int rank = 0;
  std::span<std::byte> bytes;
};

// This rank among those on its machine, which share its devices.
struct LocalRank {
  int rank = 0;
  int size = 1;
};

// Used by one thread at a time, except for dead_peer().
class Transport {
 public:
  Transport() = default;
  virtual ~Transport() = default;
  Transport(const Transport&) = delete;
  Transport& operator=(const Transport&) = delete;

  [[nodiscard]] virtual int rank() const noexcept = 0;
  [[nodiscard]] virtual int size() const noexcept = 0;
  [[nodiscard]] virtual LocalRank local() const noexcept = 0;
  // Carries all of these messages, whose sizes both sides know; messages from one rank to another keep their order.
  // False: they did not get through, and failure() says why.
  [[nodiscard]] virtual bool transfer(std::span<const Send> sends, std::span<const Receive> receives,
                                      Patience patience) noexcept = 0;
  // One line that names the rank to blame, where one is known.
  [[nodiscard]] virtual const char* failure() const noexcept = 0;
  // A rank whose process has ended, as far as this machine can tell; -1: none. Safe in signal handlers.
  [[nodiscard]] virtual int dead_peer() const noexcept = 0;
  // "process 17 on host a"; valid as long as the transport, safe in signal handlers.
  [[nodiscard]] virtual const char* place(int rank) const noexcept = 0;
  // All ranks have said good-bye: nothing is transferred any more.
  virtual void close() noexcept = 0;
};

}  // namespace inferno
