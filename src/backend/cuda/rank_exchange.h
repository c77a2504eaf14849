// What ranks with a GPU each, or with parts of one, exchange in a step (docs/scale.md): sums and logits.
//
// Two ways. Through the host: the device copies to page-locked memory, the stepping thread exchanges it by the
// communicator and has it copied back; nothing on the device waits for another rank, so ranks may share one. By NCCL:
// the device itself exchanges, as one more kernel of the step, also of a captured one; then a rank that is gone leaves
// the others' devices waiting, which whoever waits for the device must look for.
#pragma once

#include <chrono>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "backend/cuda/device_memory.h"
#include "backend/cuda/kernels/kernels.h"
#include "comm/communicator.h"

namespace inferno::cuda {

class RankExchange {
 public:
  using Clock = std::chrono::steady_clock;

  explicit RankExchange(Communicator& ranks) : ranks_(ranks) {}
  virtual ~RankExchange() = default;
  RankExchange(const RankExchange&) = delete;
  RankExchange& operator=(const RankExchange&) = delete;

  // For people: "through host memory".
  [[nodiscard]] virtual std::string description() const = 0;
  // Whether its ops are only enqueued: they can be part of a captured step, and the device may wait for other ranks.
  [[nodiscard]] virtual bool runs_on_device() const = 0;

  // Before steps, with the largest there will be and an idle stream.
  virtual void reserve(const AllGatherArgs& a);
  // Throw a RankFailure once the ranks have failed.
  virtual void run(const LaunchContext& c, const AllReduceArgs& a) = 0;
  virtual void run(const LaunchContext& c, const AllGatherArgs& a) = 0;
  // Of one that runs on the device, from time to time while somebody waits for it since `began`: a RankFailure when a
  // rank is gone, and then the device waits no longer.
  virtual void look(Clock::time_point /*began*/) {}

 protected:
  [[nodiscard]] Communicator& ranks() const { return ranks_; }
  // AllGatherArgs::begins, as reserve() read them.
  [[nodiscard]] std::span<const int32_t> begins() const { return begins_; }

 private:
  Communicator& ranks_;
  std::vector<int32_t> begins_;
};

[[nodiscard]] std::unique_ptr<RankExchange> make_host_exchange(Communicator& ranks,
                                                               const std::shared_ptr<FreeCount>& frees);

// INFERNO_NCCL; a value that is none of its own is a usage Error.
enum class NcclWish : int32_t { if_possible, never, always };
[[nodiscard]] NcclWish nccl_wish();

// How the ranks exchange, and how many of them have this device.
struct JoinedRanks {
  std::unique_ptr<RankExchange> exchange;  // null: there is nothing to exchange
  int sharing = 1;
};
// Called by all ranks. By NCCL where it is there and each rank has a device of its own, unless they wish otherwise.
[[nodiscard]] JoinedRanks join_devices(Communicator& ranks, const cudaUUID_t& device, NcclWish wish,
                                       const std::shared_ptr<FreeCount>& frees);

}  // namespace inferno::cuda
