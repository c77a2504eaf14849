// Ranks that are threads of one process: for tests, and for machines without MPI. Each rank is used by its own thread.
#pragma once

#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "comm/communicator.h"

namespace inferno {

class ThreadRanks {
 public:
  explicit ThreadRanks(int size);

  [[nodiscard]] Communicator& operator[](int rank) { return *ranks_[static_cast<size_t>(rank)]; }
  [[nodiscard]] int size() const { return static_cast<int>(ranks_.size()); }
  // The rank is gone: the others find out when they wait for it.
  void kill(int rank);

 private:
  class Mailboxes;
  class ThreadTransport;

  std::shared_ptr<Mailboxes> mailboxes_;
  std::vector<std::unique_ptr<Communicator>> ranks_;
};

}  // namespace inferno
