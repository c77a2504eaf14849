// What ranks exchange, on the CPU: worker 0 does it, the others wait at the barrier after the op.
#include <algorithm>

#include "backend/cpu/cpu_ops.h"
#include "backend/rank_gather.h"
#include "comm/communicator.h"

namespace inferno::cpu {

void run(const AllReduceArgs& a, const Worker& w) noexcept {
  if (w.ranks == nullptr || w.ith != 0) return;
  const auto count = static_cast<size_t>(a.x.elements());
  const RankRange range{a.first_rank, a.ranks == 0 ? w.ranks->size() : a.ranks};
  w.ranks->all_reduce({a.x.f32(), count}, {w.shared, Communicator::all_reduce_bytes(count, range.count)},
                      a.wire == DType::bf16 ? Wire::bf16 : Wire::f32, range);
}

OpScratch scratch_of(const PassOnArgs& a, const KernelTable& /*kernels*/, int /*threads*/) {
  return {.shared = a.rows.elements() * a.x.cols() * static_cast<int64_t>(sizeof(float))};
}

void run(const PassOnArgs& a, const Worker& w) noexcept {
  if (w.ranks == nullptr || w.ith != 0) return;
  Tensor x = a.x;
  if (!a.rows.empty()) {
    x = {w.shared, Shape(a.rows.elements(), a.x.cols())};
    for (int64_t r = 0; r < x.rows(); ++r) {
      std::copy_n(a.x.f32() + a.rows.as<int32_t>()[r] * a.x.cols(), a.x.cols(), x.f32() + r * x.cols());
    }
  }
  const std::span<float> values(x.f32(), static_cast<size_t>(x.elements()));
  if (w.ranks->rank() == a.from) {
    w.ranks->send(a.to, std::as_bytes(values));
  } else {
    w.ranks->receive(a.from, std::as_writable_bytes(values));
  }
}

OpScratch scratch_of(const AllGatherArgs& a, const KernelTable& /*kernels*/, int /*threads*/) {
  const int64_t ranks = a.begins.elements() - 1;
  if (ranks == 1) return {};
  return {.shared = gather_logits_bytes(a.x.rows(), a.out.cols(), ranks)};
}

void run(const AllGatherArgs& a, const Worker& w) noexcept {
  if (w.ith != 0) return;
  if (w.ranks == nullptr) {
    std::copy_n(a.x.f32(), a.x.elements(), a.out.f32());
    return;
  }
  gather_logits(a, w.shared, *w.ranks);
}

}  // namespace inferno::cpu
