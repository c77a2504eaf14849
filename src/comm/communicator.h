// The ranks that run one model together, and what they do together.
//
// Every collective is called by all ranks in the same order with the same sizes. None of them throws or allocates: when
// a rank does not answer, it returns without having done its work, failed() is true from then on, and so does every
// later one at once. With one rank all of them are free.
//
// A sum over ranks adds in rank order whatever the number of elements, so a number of ranks always gives the same bits.
// Used by one thread at a time; failed() and failure() by any.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "comm/transport.h"

namespace inferno {

// What a sum's parts are sent as: bf16 halves the bytes, and rounds each part before it is added.
enum class Wire : uint8_t { f32, bf16 };

// Ranks that follow each other.
struct RankRange {
  int first = 0;
  int count = 0;  // 0: all
};

class Communicator {
 public:
  // Sums of fewer elements are sent whole: they take longer to start than to send.
  static constexpr size_t kLeastSegmented = size_t{1} << 14;

  // One rank.
  Communicator() = default;
  explicit Communicator(std::unique_ptr<Transport> transport);

  [[nodiscard]] int rank() const noexcept { return rank_; }
  [[nodiscard]] int size() const noexcept { return size_; }
  [[nodiscard]] bool is_leader() const noexcept { return rank_ == 0; }

  // Bytes of scratch memory that sums of up to `count` elements over so many ranks need.
  [[nodiscard]] static size_t all_reduce_bytes(size_t count, int ranks) noexcept;
  // Over the ranks of the range, of which this is one; the others do not call it.
  void all_reduce(std::span<float> x, std::span<std::byte> scratch, Wire wire = Wire::f32,
                  RankRange range = {}) noexcept;
  // all: as many bytes from every rank, in rank order.
  void all_gather(std::span<const std::byte> mine, std::span<std::byte> all) noexcept;
  // From the first `count` ranks to the leader, where place(rank) says where the bytes of each other one go.
  template <typename Place>
  void gather(std::span<const std::byte> mine, int count, const Place& place) noexcept {
    if (count == 1 || failed()) return;
    if (is_leader()) {
      for (int r = 1; r < count; ++r) receives_.push_back({r, place(r)});
    } else {
      sends_.push_back({0, mine});
    }
    transfer();
  }
  // From one rank to another; only these two call it.
  void send(int to, std::span<const std::byte> bytes) noexcept;
  void receive(int from, std::span<std::byte> bytes) noexcept;
  // From the leader to all others.
  void broadcast(std::span<std::byte> bytes, Patience patience = Patience::step) noexcept;
  void barrier() noexcept;

  [[nodiscard]] bool failed() const noexcept { return failed_.load(std::memory_order_acquire); }
  // One line; empty while nothing failed.
  [[nodiscard]] std::string failure() const;
  // Says that the ranks cannot go on, for a reason that this rank found: nothing is exchanged any more.
  void give_up(const std::string& reason);
  // A RankFailure once it failed.
  void check() const;
  // Who runs something over the ranks has them to himself.
  [[nodiscard]] bool try_occupy() noexcept { return !occupied_.exchange(true); }
  void release() noexcept { occupied_.store(false); }
  // For programs: who is dead, and where a rank runs (Transport). Null with one rank.
  [[nodiscard]] Transport* transport() noexcept { return transport_.get(); }

 private:
  void transfer(Patience patience = Patience::step) noexcept;
  // Ranks of a sum are counted from the first of its range.
  void reduce_whole(std::span<float> x, std::span<std::byte> scratch, RankRange range) noexcept;
  void reduce_rounded(std::span<float> x, std::span<std::byte> scratch, RankRange range) noexcept;
  // Each rank adds up a segment and sends it to the others: less to send where ranks are many.
  void reduce_segments(std::span<float> x, std::span<std::byte> scratch, RankRange range) noexcept;
  void reduce_rounded_segments(std::span<float> x, std::span<std::byte> scratch, RankRange range) noexcept;
  // What each has added up, to the others.
  void share_segments(std::span<float> x, RankRange range) noexcept;

  std::unique_ptr<Transport> transport_;
  int rank_ = 0;
  int size_ = 1;
  std::atomic<bool> failed_{false};
  std::string reason_;  // where this rank gave up; written before failed_
  std::atomic<bool> occupied_{false};
  // Of the collective that runs; room for all ranks, made once.
  std::vector<Send> sends_;
  std::vector<Receive> receives_;
};

}  // namespace inferno
