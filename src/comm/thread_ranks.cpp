#include "comm/thread_ranks.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"

namespace inferno {

// Messages under way, by (from, to). A sender leaves where its bytes are and waits until they were copied.
class ThreadRanks::Mailboxes {
 public:
  Mailboxes() = default;

  // The dead rank that was waited for, or -1.
  int transfer(int self, std::span<const Send> sends, std::span<const Receive> receives) {
    std::unique_lock lock(mutex_);
    for (const Send& send : sends) boxes_[{self, send.rank}].push_back({send.bytes, false});
    changed_.notify_all();
    int dead = -1;
    for (const Receive& receive : receives) {
      Box& box = boxes_[{receive.rank, self}];
      const auto fresh = [&] { return std::ranges::find(box, false, &Letter::taken); };
      changed_.wait(lock, [&] { return fresh() != box.end() || first_dead_ >= 0; });
      const auto letter = fresh();
      if (letter == box.end()) {
        dead = first_dead_;
        break;
      }
      INFERNO_CHECK(letter->bytes.size() == receive.bytes.size());
      if (!receive.bytes.empty()) std::memcpy(receive.bytes.data(), letter->bytes.data(), receive.bytes.size());
      letter->taken = true;
      changed_.notify_all();
    }
    for (const Send& send : sends) {
      Box& box = boxes_[{self, send.rank}];
      changed_.wait(lock, [&] { return box.front().taken || first_dead_ >= 0 || dead >= 0; });
      if (!box.front().taken && dead < 0) dead = first_dead_;
      box.erase(box.begin());
    }
    return dead;
  }
  void kill(int rank) {
    const std::scoped_lock lock(mutex_);
    if (first_dead_ < 0) first_dead_ = rank;
    changed_.notify_all();
  }
  int first_dead() {
    const std::scoped_lock lock(mutex_);
    return first_dead_;
  }

 private:
  struct Letter {
    std::span<const std::byte> bytes;
    bool taken = false;
  };
  using Box = std::vector<Letter>;

  std::mutex mutex_;  // of all below
  std::condition_variable changed_;
  std::map<std::pair<int, int>, Box> boxes_;
  int first_dead_ = -1;  // nobody waits for anybody any more: a rank may wait for one that waits for it
};

class ThreadRanks::ThreadTransport final : public Transport {
 public:
  ThreadTransport(std::shared_ptr<Mailboxes> mailboxes, int rank, int size)
      : mailboxes_(std::move(mailboxes)), rank_(rank), size_(size) {}

  [[nodiscard]] int rank() const noexcept override { return rank_; }
  [[nodiscard]] int size() const noexcept override { return size_; }
  [[nodiscard]] LocalRank local() const noexcept override { return {rank_, size_}; }
  [[nodiscard]] bool transfer(std::span<const Send> sends, std::span<const Receive> receives,
                              Patience /*patience*/) noexcept override {
    const int dead = mailboxes_->transfer(rank_, sends, receives);
    if (dead >= 0) failure_ = "rank " + std::to_string(dead) + " (a thread) has ended";
    return dead < 0;
  }
  [[nodiscard]] const char* failure() const noexcept override { return failure_.c_str(); }
  [[nodiscard]] int dead_peer() const noexcept override { return mailboxes_->first_dead(); }
  [[nodiscard]] const char* place(int /*rank*/) const noexcept override { return "a thread"; }
  void close() noexcept override {}

 private:
  std::shared_ptr<Mailboxes> mailboxes_;
  int rank_;
  int size_;
  std::string failure_;
};

ThreadRanks::ThreadRanks(int size) : mailboxes_(std::make_shared<Mailboxes>()) {
  for (int rank = 0; rank < size; ++rank) {
    ranks_.push_back(std::make_unique<Communicator>(std::make_unique<ThreadTransport>(mailboxes_, rank, size)));
  }
}

void ThreadRanks::kill(int rank) {
  mailboxes_->kill(rank);
}

}  // namespace inferno
