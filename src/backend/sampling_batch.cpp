#include "backend/sampling_batch.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/error.h"

namespace inferno {
namespace {

constexpr int64_t kRowBytes = sizeof(SampleRow);
constexpr int64_t kEditBytes = sizeof(TokenEdit);
constexpr int64_t kWordBytes = sizeof(uint32_t);

// The tokens that the penalties look back on.
std::span<const int32_t> penalized(const SampleRequest& request, int32_t most) {
  const SamplingSettings& s = request.settings;
  if (s.repeat_penalty == 1 && s.presence_penalty == 0 && s.frequency_penalty == 0) return {};
  const auto window = static_cast<size_t>(s.penalty_window < 0 ? most : std::min(s.penalty_window, most));
  return request.history.last(std::min(request.history.size(), window));
}

}  // namespace

HostSampleBatch::HostSampleBatch(const SampleCapacity& capacity)
    : capacity_(capacity),
      block_(std::make_unique_for_overwrite<std::byte[]>(static_cast<size_t>(request_bytes()))),
      edit_at_(static_cast<size_t>(capacity.vocabulary), -1),
      results_(static_cast<size_t>(result_bytes()) / sizeof(int32_t)),
      logprobs_(static_cast<size_t>(capacity.max_rows) * kLogprobColumns) {}

// The edits of a row are of different tokens.
int64_t HostSampleBatch::max_edits() const {
  return capacity_.max_rows * std::min(capacity_.vocabulary, int64_t{capacity_.max_history} + kMaxLogitBias);
}

int64_t HostSampleBatch::request_bytes() const {
  return capacity_.max_rows * (kRowBytes + bitset_words(capacity_.vocabulary) * kWordBytes) + max_edits() * kEditBytes;
}

int64_t HostSampleBatch::result_bytes() const {
  return capacity_.max_rows * int64_t{1 + 2 * kLogprobColumns} * static_cast<int64_t>(sizeof(int32_t));
}

TokenEdit& HostSampleBatch::edit_of(int32_t id, int64_t first) {
  int32_t& at = edit_at_[static_cast<size_t>(id)];
  if (at < 0) {
    at = static_cast<int32_t>(edit_count_ - first);
    edits_[edit_count_++] = {.id = id};
  }
  return edits_[first + at];
}

void HostSampleBatch::add_edits(const SampleRequest& request) {
  INFERNO_CHECK(request.bias.size() <= kMaxLogitBias);
  const auto known = [&](int32_t id) { return id >= 0 && id < capacity_.vocabulary; };
  const int64_t first = edit_count_;
  for (const LogitBias& entry : request.bias) {
    if (known(entry.id)) edit_of(entry.id, first).bias += entry.bias;
  }
  for (const int32_t id : penalized(request, capacity_.max_history)) {
    if (known(id)) ++edit_of(id, first).count;
  }
  for (int64_t i = first; i < edit_count_; ++i) edit_at_[static_cast<size_t>(edits_[i].id)] = -1;
}

void HostSampleBatch::set(std::span<const SampleRequest> requests) {
  INFERNO_CHECK(requests.size() <= static_cast<size_t>(capacity_.max_rows));
  const auto words = static_cast<size_t>(bitset_words(capacity_.vocabulary));
  rows_ = {reinterpret_cast<SampleRow*>(block_.get()), requests.size()};
  edits_ = reinterpret_cast<TokenEdit*>(block_.get() + rows_.size_bytes());
  edit_count_ = 0;
  masks_ = 0;
  wants_logprobs_ = false;
  for (size_t i = 0; i < requests.size(); ++i) {
    const SampleRequest& request = requests[i];
    INFERNO_CHECK(request.allowed.empty() || request.allowed.size() == words);
    INFERNO_CHECK(request.top_logprobs <= kMaxTopLogprobs);
    const int64_t first = edit_count_;
    add_edits(request);
    rows_[i] = {.settings = request.settings,
                .sample_index = request.sample_index,
                .position = request.position,
                .edits_begin = static_cast<int32_t>(first),
                .edits_count = static_cast<int32_t>(edit_count_ - first),
                .allowed = request.allowed.empty() ? -1 : static_cast<int32_t>(masks_++),
                .top_logprobs = request.top_logprobs};
    wants_logprobs_ = wants_logprobs_ || request.top_logprobs >= 0;
  }
  // A power of two: a step is captured again only when the edits have doubled.
  constexpr uint64_t kLeastEdits = 64;
  edit_room_ =
      edit_count_ == 0
          ? 0
          : std::min(static_cast<int64_t>(std::max(kLeastEdits, std::bit_ceil(static_cast<uint64_t>(edit_count_)))),
                     max_edits());
  std::fill(edits_ + edit_count_, edits_ + edit_room_, TokenEdit{});
  auto* masks = reinterpret_cast<std::byte*>(edits_ + edit_room_);
  for (const SampleRequest& request : requests) {
    if (request.allowed.empty()) continue;
    std::memcpy(masks, request.allowed.data(), request.allowed.size_bytes());
    masks += request.allowed.size_bytes();
  }
  bytes_ = masks - block_.get();
}

SampleArgs HostSampleBatch::args(const Tensor& logits, void* requests, void* results) const {
  const auto rows = static_cast<int64_t>(rows_.size());
  auto* base = static_cast<std::byte*>(requests);
  std::byte* edits = base + rows * kRowBytes;
  auto* out = static_cast<int32_t*>(results);
  SampleArgs args{
      .logits = logits, .rows = {base, Shape(rows, kRowBytes / 4), DType::i32}, .out = {out, Shape(rows), DType::i32}};
  if (edit_room_ > 0) args.edits = {edits, Shape(edit_room_, kEditBytes / 4), DType::i32};
  if (masks_ > 0) {
    args.allowed = {edits + edit_room_ * kEditBytes, Shape(masks_, bitset_words(capacity_.vocabulary)), DType::i32};
  }
  if (wants_logprobs_) {
    args.top_ids = {out + rows, Shape(rows, kLogprobColumns), DType::i32};
    args.logprobs = {out + rows + rows * kLogprobColumns, Shape(rows, kLogprobColumns), DType::f32};
  }
  return args;
}

std::span<int32_t> HostSampleBatch::results() {
  return std::span(results_).first(rows_.size() * (wants_logprobs_ ? 1 + 2 * kLogprobColumns : 1));
}

std::span<const TokenLogprob> HostSampleBatch::logprobs(int32_t row) {
  INFERNO_CHECK(row >= 0 && static_cast<size_t>(row) < rows_.size());
  const auto r = static_cast<size_t>(row);
  if (rows_[r].top_logprobs < 0) return {};
  const int32_t* ids = results_.data() + rows_.size() + r * kLogprobColumns;
  const int32_t* values = ids + rows_.size() * kLogprobColumns;
  TokenLogprob* found = logprobs_.data() + r * kLogprobColumns;
  size_t count = 0;
  while (count < kLogprobColumns && (count == 0 || ids[count] >= 0)) {
    found[count] = {ids[count], std::bit_cast<float>(values[count])};
    ++count;
  }
  return {found, count};
}

}  // namespace inferno
