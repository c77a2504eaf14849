#include "comm/rank_messages.h"

#include <algorithm>

namespace inferno {

void RankMessages::send(RankMessage kind, std::span<const int32_t> words) noexcept {
  first_[0] = static_cast<int32_t>(kind);
  first_[1] = static_cast<int32_t>(words.size());
  const size_t begin = std::min(words.size(), kFirst - kHead);
  std::copy_n(words.begin(), begin, first_.begin() + kHead);
  ranks_.broadcast(std::as_writable_bytes(std::span(first_)));
  if (words.size() == begin) return;
  // A broadcast reads the leader's bytes and writes those of others.
  const std::span<const int32_t> rest = words.subspan(begin);
  ranks_.broadcast({reinterpret_cast<std::byte*>(const_cast<int32_t*>(rest.data())), rest.size_bytes()});
}

RankMessage RankMessages::receive() {
  first_[0] = static_cast<int32_t>(RankMessage::none);
  ranks_.broadcast(std::as_writable_bytes(std::span(first_)), Patience::idle);
  if (ranks_.failed()) return RankMessage::none;
  words_.resize(static_cast<size_t>(first_[1]));
  const size_t begin = std::min(words_.size(), kFirst - kHead);
  std::copy_n(first_.begin() + kHead, begin, words_.begin());
  if (words_.size() > begin) {
    ranks_.broadcast(std::as_writable_bytes(std::span(words_).subspan(begin)));
    if (ranks_.failed()) return RankMessage::none;
  }
  return static_cast<RankMessage>(first_[0]);
}

}  // namespace inferno
