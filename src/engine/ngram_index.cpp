#include "engine/ngram_index.h"

#include <algorithm>
#include <bit>

namespace inferno {
namespace {

constexpr int32_t kGap = -1;  // no token: nothing agrees across it

}  // namespace

NgramIndex::NgramIndex(std::span<const int32_t> prediction, int32_t longest) {
  const size_t room = prediction.size() + 1 + static_cast<size_t>(longest);
  tokens_.reserve(room);
  earlier_.reserve(room);
  latest_.assign(std::bit_ceil(room), -1);
  if (prediction.empty()) return;
  for (const int32_t token : prediction) add(token);
  add(kGap);
  text_begin_ = static_cast<int32_t>(tokens_.size());
}

// Fibonacci hashing of both ids as one number.
size_t NgramIndex::bucket(int32_t first, int32_t second) const {
  const uint64_t pair = static_cast<uint64_t>(static_cast<uint32_t>(first)) << 32 | static_cast<uint32_t>(second);
  return ((pair * 0x9E3779B97F4A7C15ULL) >> 32) & (latest_.size() - 1);
}

void NgramIndex::add(int32_t token) {
  const auto at = static_cast<int32_t>(tokens_.size());
  tokens_.push_back(token);
  earlier_.push_back(-1);
  if (at == 0) return;
  int32_t& latest = latest_[bucket(tokens_[static_cast<size_t>(at) - 1], token)];
  earlier_.back() = latest;
  latest = at;
}

void NgramIndex::update(std::span<const int32_t> text) {
  for (size_t i = tokens_.size() - static_cast<size_t>(text_begin_); i < text.size(); ++i) add(text[i]);
}

int32_t NgramIndex::match_length(int32_t end) const {
  const auto last = static_cast<int32_t>(tokens_.size()) - 1;
  // The text itself is not longer than that.
  const int32_t most = std::min({kMostMatch, end + 1, last + 1 - text_begin_});
  int32_t length = 0;
  while (length < most && tokens_[static_cast<size_t>(end - length)] == tokens_[static_cast<size_t>(last - length)]) {
    ++length;
  }
  return length;
}

int32_t NgramIndex::draft(std::span<int32_t> out) const {
  const auto size = static_cast<int32_t>(tokens_.size());
  if (size - text_begin_ < kLeastMatch) return 0;
  int32_t best = -1;
  int32_t best_length = kLeastMatch - 1;
  int32_t place = earlier_.back();
  for (int32_t i = 0; i < kMostPlaces && place >= 0 && best_length < kMostMatch; ++i) {
    const int32_t length = match_length(place);
    if (length > best_length && tokens_[static_cast<size_t>(place) + 1] != kGap) {
      best = place;
      best_length = length;
    }
    place = earlier_[static_cast<size_t>(place)];
  }
  if (best < 0) return 0;
  int32_t count = 0;
  for (; count < static_cast<int32_t>(out.size()); ++count) {
    const int32_t from = best + 1 + count;
    const int32_t token = from < size ? tokens_[static_cast<size_t>(from)] : out[static_cast<size_t>(from - size)];
    if (token == kGap) break;
    out[static_cast<size_t>(count)] = token;
  }
  return count;
}

}  // namespace inferno
