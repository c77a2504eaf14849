#include "backend/rank_gather.h"

#include <algorithm>
#include <limits>
#include <span>

#include "backend/sampling.h"

namespace inferno {
namespace {

constexpr float kLeastLogit = -std::numeric_limits<float>::infinity();

bool is_likelier(const SampleCandidate& a, const SampleCandidate& b) {
  return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
}

// The `most` largest of a row, as column numbers of all ranks that begin with `first`; ids of -1 where there are fewer.
void find_largest(const float* row, int64_t columns, int32_t first, std::span<SampleCandidate> found) {
  std::fill(found.begin(), found.end(), SampleCandidate{kLeastLogit, -1});
  if (found.size() == 1) {
    const SampleCandidate largest = first_largest(row, 0, columns);
    if (largest.logit > kLeastLogit) found[0] = {largest.logit, largest.id + first};
    return;
  }
  // A heap whose front is the smallest of them.
  size_t count = 0;
  for (int64_t i = 0; i < columns; ++i) {
    if (!(row[i] > (count < found.size() ? kLeastLogit : found.front().logit))) continue;  // a NaN is never larger
    if (count == found.size()) std::pop_heap(found.begin(), found.end(), is_likelier);
    count = std::min(count + 1, found.size());
    found[count - 1] = {row[i], first + static_cast<int32_t>(i)};
    std::push_heap(found.begin(), found.begin() + static_cast<ptrdiff_t>(count), is_likelier);
  }
}

void gather_candidates(const AllGatherArgs& a, std::byte* scratch, Communicator& ranks) {
  const auto count = static_cast<int>(a.begins.elements() - 1);
  const auto rows = static_cast<size_t>(a.x.rows());
  const auto most = static_cast<size_t>(a.most);
  const size_t each = rows * most;
  auto* all = reinterpret_cast<SampleCandidate*>(scratch);  // of every rank [rows, most]; the own ones first
  const auto of_rank = [&](int r) { return std::span(all + static_cast<size_t>(r) * each, each); };
  for (size_t r = 0; r < rows; ++r) {
    find_largest(a.x.f32() + static_cast<int64_t>(r) * a.x.cols(), a.x.cols(), a.begins.as<int32_t>()[ranks.rank()],
                 of_rank(0).subspan(r * most, most));
  }
  ranks.gather(std::as_bytes(of_rank(0)), count, [&](int r) { return std::as_writable_bytes(of_rank(r)); });
  if (!ranks.is_leader() || ranks.failed()) return;
  std::fill_n(a.out.f32(), a.out.elements(), kLeastLogit);
  for (size_t i = 0; i < each * static_cast<size_t>(count); ++i) {
    const auto row = static_cast<int64_t>(i / most % rows);
    if (all[i].id >= 0) a.out.f32()[row * a.out.cols() + all[i].id] = all[i].logit;
  }
}

void gather_columns(const AllGatherArgs& a, std::byte* scratch, Communicator& ranks) {
  const auto count = static_cast<int>(a.begins.elements() - 1);
  const auto* begins = a.begins.as<int32_t>();
  const int64_t rows = a.x.rows();
  const auto columns = [&](int r) { return int64_t{begins[r + 1]} - begins[r]; };
  const auto part = [&](int r) { return reinterpret_cast<float*>(scratch) + begins[r] * rows; };
  ranks.gather(std::as_bytes(std::span(a.x.f32(), static_cast<size_t>(a.x.elements()))), count, [&](int r) {
    return std::as_writable_bytes(std::span(part(r), static_cast<size_t>(rows * columns(r))));
  });
  if (!ranks.is_leader() || ranks.failed()) return;
  for (int r = 0; r < count; ++r) {
    const float* from = r == 0 ? a.x.f32() : part(r);
    for (int64_t row = 0; row < rows; ++row) {
      std::copy_n(from + row * columns(r), columns(r), a.out.f32() + row * a.out.cols() + begins[r]);
    }
  }
}

}  // namespace

int64_t gather_logits_bytes(int64_t rows, int64_t columns, int64_t ranks) {
  const int64_t candidates = rows * AllGatherArgs::kMost * ranks * static_cast<int64_t>(sizeof(SampleCandidate));
  return std::max(candidates, rows * columns * static_cast<int64_t>(sizeof(float)));
}

void gather_logits(const AllGatherArgs& a, std::byte* scratch, Communicator& ranks) noexcept {
  a.most > 0 ? gather_candidates(a, scratch, ranks) : gather_columns(a, scratch, ranks);
}

}  // namespace inferno
