// Ranks that exchange through page-locked memory of the host (rank_exchange.h).
#include <algorithm>
#include <atomic>
#include <cstring>

#include "backend/cuda/error.h"
#include "backend/cuda/rank_exchange.h"
#include "backend/rank_gather.h"

namespace inferno::cuda {
namespace {

constexpr size_t kCountBytes = 64;                 // a cache line of its own
constexpr size_t kSumElements = size_t{1} << 20;   // of one exchange: longer sums are cut
constexpr size_t kKernelBytes = size_t{32} << 10;  // up to here a kernel copies sooner than the copy engine
constexpr int64_t kRowsBytes = int64_t{8} << 20;   // of logits at a time, unless one row is longer
constexpr uint32_t kPollsPerQuery = uint32_t{1} << 14;

class HostExchange final : public RankExchange {
 public:
  HostExchange(Communicator& ranks, const std::shared_ptr<FreeCount>& frees)
      : RankExchange(ranks),
        sums_(pinned_memory(kCountBytes + kSumElements * sizeof(float))),
        delivered_(sizeof(uint32_t), frees),
        scratch_(Communicator::all_reduce_bytes(kSumElements, ranks.size())) {
    std::memset(sums_.get(), 0, kCountBytes);
  }

  [[nodiscard]] std::string description() const override { return "through host memory"; }
  [[nodiscard]] bool runs_on_device() const override { return false; }

  void reserve(const AllGatherArgs& a) override {
    RankExchange::reserve(a);
    const int64_t rows = std::min(rows_at_once(a), a.x.rows());
    const int64_t out = ranks().is_leader() ? rows * a.out.cols() : 0;
    rows_ = pinned_memory(static_cast<size_t>(rows * a.x.cols() + out) * sizeof(float));
    gather_scratch_.resize(static_cast<size_t>(gather_logits_bytes(rows, a.out.cols(), ranks().size())));
    reserved_rows_ = rows;
  }

  void run(const LaunchContext& c, const AllReduceArgs& a) override {
    const auto count = static_cast<size_t>(a.x.elements());
    for (size_t at = 0; at < count; at += kSumElements) {
      const std::span part(sums(), std::min(kSumElements, count - at));
      to_host(c, a.x.f32() + at, part.size_bytes());
      ranks().all_reduce(part, scratch_, a.wire == DType::bf16 ? Wire::bf16 : Wire::f32);
      ranks().check();
      to_device(c, a.x.f32() + at, part.size_bytes());
    }
  }

  void run(const LaunchContext& c, const AllGatherArgs& a) override {
    INFERNO_CHECK(reserved_rows_ > 0 && a.begins.elements() == static_cast<int64_t>(begins().size()));
    auto* part = reinterpret_cast<float*>(rows_.get());
    float* out = part + reserved_rows_ * a.x.cols();
    for (int64_t first = 0; first < a.x.rows(); first += reserved_rows_) {
      const int64_t rows = std::min(reserved_rows_, a.x.rows() - first);
      const Tensor from = a.x.row_range(first, rows);
      check(cudaMemcpyAsync(part, from.data, static_cast<size_t>(from.bytes()), cudaMemcpyDeviceToHost, c.stream),
            "all_gather");
      check(cudaStreamSynchronize(c.stream), "all_gather");
      gather_logits({.x = {part, from.shape},
                     .begins = {const_cast<int32_t*>(begins().data()), a.begins.shape, DType::i32},
                     .most = a.most,
                     .out = {out, Shape(rows, a.out.cols())}},
                    gather_scratch_.data(), ranks());
      ranks().check();
      if (!ranks().is_leader()) continue;
      const Tensor to = a.out.row_range(first, rows);
      check(cudaMemcpyAsync(to.data, out, static_cast<size_t>(to.bytes()), cudaMemcpyHostToDevice, c.stream),
            "all_gather");
    }
  }

 private:
  // The same on all ranks.
  [[nodiscard]] static int64_t rows_at_once(const AllGatherArgs& a) {
    return std::max<int64_t>(1, kRowsBytes / (a.out.cols() * static_cast<int64_t>(sizeof(float))));
  }
  [[nodiscard]] float* sums() const { return reinterpret_cast<float*>(sums_.get() + kCountBytes); }

  void to_host(const LaunchContext& c, const float* from, size_t bytes) {
    if (bytes > kKernelBytes) {
      check(cudaMemcpyAsync(sums(), from, bytes, cudaMemcpyDeviceToHost, c.stream), "all_reduce");
      check(cudaStreamSynchronize(c.stream), "all_reduce");
      return;
    }
    auto* count = reinterpret_cast<uint32_t*>(sums_.get());
    launch_deliver(c, from, static_cast<int64_t>(bytes), sums(), static_cast<uint32_t*>(delivered_.data()), count);
    check(cudaGetLastError(), "all_reduce");
    ++expected_;
    const std::atomic_ref arrived(*count);
    for (uint32_t polls = 1; arrived.load(std::memory_order_acquire) != expected_; ++polls) {
      if (polls % kPollsPerQuery != 0 || cudaStreamQuery(c.stream) == cudaErrorNotReady) continue;
      // A kernel that failed never sends it.
      check(cudaStreamSynchronize(c.stream), "all_reduce, or an op before it,");
      return;
    }
  }

  // The memory is written again only once a later to_host() has arrived, which is behind this one on the stream.
  void to_device(const LaunchContext& c, float* to, size_t bytes) const {
    if (bytes > kKernelBytes || reinterpret_cast<uintptr_t>(to) % 16 != 0) {
      check(cudaMemcpyAsync(to, sums(), bytes, cudaMemcpyHostToDevice, c.stream), "all_reduce");
      return;
    }
    LaunchContext alone = c;
    alone.overlap = false;
    FetchTask task;
    task.pieces = 1;
    task.piece[0] = {.from = sums(), .to = to, .bytes = static_cast<uint32_t>(bytes)};
    launch_fetch(alone, task);
    check(cudaGetLastError(), "all_reduce");
  }

  PinnedMemory sums_;       // the count of deliveries, then kSumElements
  DeviceMemory delivered_;  // the count on the device
  uint32_t expected_ = 0;
  std::vector<std::byte> scratch_;  // of sums
  PinnedMemory rows_;               // logits [reserved_rows_, columns of this rank]; on the leader also those of all
  int64_t reserved_rows_ = 0;
  std::vector<std::byte> gather_scratch_;
};

}  // namespace

std::unique_ptr<RankExchange> make_host_exchange(Communicator& ranks, const std::shared_ptr<FreeCount>& frees) {
  return std::make_unique<HostExchange>(ranks, frees);
}

}  // namespace inferno::cuda
