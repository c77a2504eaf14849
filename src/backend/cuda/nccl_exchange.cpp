#include "backend/cuda/nccl_exchange.h"

#include <fmt/core.h>

#include <algorithm>

#include "backend/cuda/error.h"
#include "comm/rank_failure.h"
#include "comm/rank_timeout.h"

namespace inferno::cuda {
namespace {

using namespace std::chrono_literals;

constexpr auto kBetweenLooks = 50ms;

class NcclExchange final : public RankExchange {
 public:
  NcclExchange(Communicator& ranks, const NcclLibrary& nccl, const NcclLibrary::UniqueId& id,
               const std::shared_ptr<FreeCount>& frees)
      : RankExchange(ranks), nccl_(nccl), frees_(frees) {
    checked(nccl.comm_init_rank(&comm_, ranks.size(), id, ranks.rank()), "joining the ranks");
  }
  // Graphs with its ops are gone.
  ~NcclExchange() override {
    if (comm_ == nullptr) return;
    (void)(ranks().failed() ? nccl_.comm_abort(comm_) : nccl_.comm_destroy(comm_));
  }
  NcclExchange(const NcclExchange&) = delete;
  NcclExchange& operator=(const NcclExchange&) = delete;

  [[nodiscard]] std::string description() const override {
    int version = 0;
    (void)nccl_.get_version(&version);
    return fmt::format("by NCCL {}.{}.{}", version / 10'000, version / 100 % 100, version % 100);
  }
  [[nodiscard]] bool runs_on_device() const override { return true; }

  void reserve(const AllGatherArgs& a) override {
    RankExchange::reserve(a);
    const int64_t received = is_alone() ? a.x.cols() : ranks().is_leader() ? a.out.cols() - a.x.cols() : 0;
    parts_ = DeviceMemory(static_cast<size_t>(a.x.rows() * received) * sizeof(float), frees_);
  }

  void run(const LaunchContext& c, const AllReduceArgs& a) override {
    ranks().check();
    checked(nccl_.all_reduce(a.x.data, a.x.data, static_cast<size_t>(a.x.elements()), NcclLibrary::kFloat32,
                             NcclLibrary::kSum, comm_, c.stream),
            "all_reduce");
  }

  // All columns, also where candidates would do: sending them takes less than finding those.
  void run(const LaunchContext& c, const AllGatherArgs& a) override {
    ranks().check();
    INFERNO_CHECK(a.begins.elements() == static_cast<int64_t>(begins().size()));
    const int64_t rows = a.x.rows();
    const auto columns = [&](int r) {
      return static_cast<int64_t>(begins()[static_cast<size_t>(r) + 1]) - begins()[static_cast<size_t>(r)];
    };
    // Rank 0 has its own part; one that is alone sends it to itself.
    const int first = is_alone() ? 0 : 1;
    const auto part = [&](int r) {  // [rows, columns(r)]
      return static_cast<float*>(parts_.data()) +
             rows * (begins()[static_cast<size_t>(r)] - begins()[static_cast<size_t>(first)]);
    };
    checked(nccl_.group_start(), "all_gather");
    for (int r = first; r < ranks().size() && ranks().is_leader(); ++r) {
      checked(nccl_.receive(part(r), static_cast<size_t>(rows * columns(r)), NcclLibrary::kFloat32, r, comm_, c.stream),
              "all_gather");
    }
    if (is_alone() || !ranks().is_leader()) {
      checked(nccl_.send(a.x.data, static_cast<size_t>(a.x.elements()), NcclLibrary::kFloat32, 0, comm_, c.stream),
              "all_gather");
    }
    checked(nccl_.group_end(), "all_gather");
    for (int r = 0; r < ranks().size() && ranks().is_leader(); ++r) {
      const size_t width = static_cast<size_t>(columns(r)) * sizeof(float);
      check(cudaMemcpy2DAsync(a.out.f32() + begins()[static_cast<size_t>(r)],
                              static_cast<size_t>(a.out.cols()) * sizeof(float), r < first ? a.x.f32() : part(r), width,
                              width, static_cast<size_t>(rows), cudaMemcpyDeviceToDevice, c.stream),
            "all_gather");
    }
  }

  void look(Clock::time_point began) override {
    const Clock::time_point now = Clock::now();
    if (comm_ == nullptr || now - looked_ < kBetweenLooks) return;
    looked_ = now;
    int error = NcclLibrary::kSuccess;
    Transport* transport = ranks().transport();
    if (const int dead = transport == nullptr ? -1 : transport->dead_peer(); dead >= 0) {
      end(fmt::format("rank {} ({}) has ended", dead, transport->place(dead)));
    } else if (nccl_.comm_get_async_error(comm_, &error) != NcclLibrary::kSuccess ||
               (error != NcclLibrary::kSuccess && error != NcclLibrary::kInProgress)) {
      end(fmt::format("NCCL: {}", nccl_.get_error_string(error)));
    } else if (ranks().size() > 1 && now - began > rank_timeout()) {
      end(fmt::format("a rank has not answered for {} s", rank_timeout().count()));
    }
  }

 private:
  // One rank, to test what several do (INFERNO_NCCL=1).
  [[nodiscard]] bool is_alone() const { return ranks().size() == 1; }
  // The kernels that wait for other ranks end.
  [[noreturn]] void end(const std::string& reason) {
    (void)nccl_.comm_abort(comm_);
    comm_ = nullptr;
    ranks().give_up(reason);
    throw RankFailure(reason);
  }
  void checked(int result, std::string_view what) const {
    if (result != NcclLibrary::kSuccess) fail("NCCL: {} failed: {}", what, nccl_.get_error_string(result));
  }

  const NcclLibrary& nccl_;
  std::shared_ptr<FreeCount> frees_;
  NcclLibrary::Comm comm_ = nullptr;
  DeviceMemory parts_;  // logits that the leader receives
  Clock::time_point looked_;
};

}  // namespace

std::unique_ptr<RankExchange> make_nccl_exchange(Communicator& ranks, const NcclLibrary& nccl,
                                                 const NcclLibrary::UniqueId& id,
                                                 const std::shared_ptr<FreeCount>& frees) {
  return std::make_unique<NcclExchange>(ranks, nccl, id, frees);
}

}  // namespace inferno::cuda
