#include "backend/cuda/rank_exchange.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "backend/cuda/error.h"
#include "backend/cuda/nccl_exchange.h"
#include "base/log.h"
#include "base/text.h"

namespace inferno::cuda {
namespace {

// What ranks tell each other.
struct RankDevice {
  char uuid[16] = {};
  int32_t has_nccl = 0;
  NcclWish wish = NcclWish::if_possible;

  [[nodiscard]] bool shares(const RankDevice& other) const { return std::memcmp(uuid, other.uuid, sizeof uuid) == 0; }
};

template <typename T>
std::vector<T> gather_all(Communicator& ranks, const T& mine) {
  std::vector<T> all(static_cast<size_t>(ranks.size()));
  ranks.all_gather(std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(all)));
  ranks.check();
  return all;
}

// Why these ranks do not use NCCL; empty: they can.
std::string nccl_obstacle(const std::vector<RankDevice>& all, const std::string& own_reason) {
  for (size_t r = 0; r < all.size(); ++r) {
    if (all[r].has_nccl == 0) {
      return fmt::format("rank {} cannot load NCCL{}", r, own_reason.empty() ? "" : " (" + own_reason + ")");
    }
    for (size_t other = 0; other < r; ++other) {
      if (all[r].shares(all[other])) return fmt::format("ranks {} and {} share a GPU", other, r);
    }
  }
  return "";
}

// All ranks or none: null.
std::unique_ptr<RankExchange> join_by_nccl(Communicator& ranks, const NcclLibrary& nccl,
                                           const std::shared_ptr<FreeCount>& frees, std::string& reason) {
  struct Invitation {
    NcclLibrary::UniqueId id{};
    int32_t valid = 0;
  } invitation;
  if (ranks.is_leader()) invitation.valid = nccl.get_unique_id(&invitation.id) == NcclLibrary::kSuccess ? 1 : 0;
  ranks.broadcast(std::as_writable_bytes(std::span(&invitation, 1)));
  ranks.check();
  if (invitation.valid == 0) {
    reason = "NCCL gives no id";
    return nullptr;
  }
  std::unique_ptr<RankExchange> made;
  try {
    made = make_nccl_exchange(ranks, nccl, invitation.id, frees);
  } catch (const Error& error) {
    reason = error.what();
  }
  const std::vector<int32_t> joined = gather_all(ranks, int32_t{made != nullptr ? 1 : 0});
  const auto failed = std::ranges::find(joined, 0);
  if (failed == joined.end()) return made;
  if (reason.empty()) reason = fmt::format("rank {} cannot join the others by NCCL", failed - joined.begin());
  return nullptr;
}

}  // namespace

NcclWish nccl_wish() {
  const char* text = std::getenv("INFERNO_NCCL");
  if (text == nullptr || *text == '\0') return NcclWish::if_possible;
  if (std::string_view(text) == "0") return NcclWish::never;
  if (std::string_view(text) == "1") return NcclWish::always;
  fail_usage("INFERNO_NCCL=\"{}\" is neither 0 nor 1", printable(text));
}

void RankExchange::reserve(const AllGatherArgs& a) {
  begins_.resize(static_cast<size_t>(a.begins.elements()));
  check(cudaMemcpy(begins_.data(), a.begins.data, begins_.size() * sizeof(int32_t), cudaMemcpyDeviceToHost),
        "all_gather");
}

JoinedRanks join_devices(Communicator& ranks, const cudaUUID_t& device, NcclWish wish,
                         const std::shared_ptr<FreeCount>& frees) {
  RankDevice mine{.wish = wish};
  std::string reason;
  const NcclLibrary* nccl = wish == NcclWish::never ? nullptr : NcclLibrary::load(reason);
  std::memcpy(mine.uuid, device.bytes, sizeof mine.uuid);
  mine.has_nccl = nccl != nullptr ? 1 : 0;
  const std::vector<RankDevice> all = gather_all(ranks, mine);
  JoinedRanks joined;
  joined.sharing =
      static_cast<int>(std::ranges::count_if(all, [&](const RankDevice& other) { return other.shares(mine); }));
  const bool must = std::ranges::any_of(all, [](const RankDevice& one) { return one.wish == NcclWish::always; });
  if (ranks.size() == 1 && !must) return joined;
  std::string obstacle = nccl_obstacle(all, reason);
  if (obstacle.empty()) joined.exchange = join_by_nccl(ranks, *nccl, frees, obstacle);
  if (joined.exchange != nullptr) return joined;
  if (must) fail("INFERNO_NCCL=1, but {}", obstacle);
  log(LogLevel::info, "ranks exchange through host memory: {}", obstacle);
  joined.exchange = make_host_exchange(ranks, frees);
  return joined;
}

}  // namespace inferno::cuda
