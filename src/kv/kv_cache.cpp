#include "kv/kv_cache.h"

#include "base/checked.h"
#include "base/error.h"

namespace inferno {
namespace {

KvLayerView empty_view(const KvConfig& config) {
  KvLayerView view;
  view.page_size = KvCache::kPageSize;
  view.kv_heads = config.kv_heads;
  view.head_dim = config.head_dim;
  view.dtype = config.dtype;
  return view;
}

int32_t pages_for(int32_t positions) {
  return static_cast<int32_t>(ceil_div(positions, KvCache::kPageSize));
}

}  // namespace

uint64_t KvCache::bytes_needed(const KvConfig& config) {
  const int64_t pages = int64_t{pages_for(config.max_positions)} * config.max_sequences;
  return static_cast<uint64_t>(2 * config.layers * pages * empty_view(config).page_bytes());
}

KvCache::KvCache(Backend& backend, const KvConfig& config)
    : config_(config), max_pages_(pages_for(config.max_positions)) {
  const int32_t pages = max_pages_ * config.max_sequences;
  layer_bytes_ = pages * empty_view(config).page_bytes();
  for (int32_t i = 0; i < config.layers; ++i)
    memory_.push_back(backend.allocate_cache(i, static_cast<size_t>(2 * layer_bytes_)));
  free_.reserve(static_cast<size_t>(pages));
  for (int32_t page = pages - 1; page >= 0; --page) free_.push_back(page);
  sequences_.resize(static_cast<size_t>(config.max_sequences));
  for (Sequence& sequence : sequences_) sequence.pages.reserve(static_cast<size_t>(max_pages_));
}

KvLayerView KvCache::layer(int32_t index) const {
  KvLayerView view = empty_view(config_);
  view.k = memory_[static_cast<size_t>(index)].data();
  view.v = static_cast<char*>(view.k) + layer_bytes_;
  view.pages = max_pages_ * config_.max_sequences;
  return view;
}

bool KvCache::resize(int32_t sequence, int32_t length) {
  Sequence& s = sequences_[static_cast<size_t>(sequence)];
  const auto wanted = static_cast<size_t>(pages_for(length));
  if (length > config_.max_positions || (wanted > s.pages.size() && wanted - s.pages.size() > free_.size()))
    return false;
  while (s.pages.size() > wanted) {
    free_.push_back(s.pages.back());
    s.pages.pop_back();
  }
  while (s.pages.size() < wanted) {
    s.pages.push_back(free_.back());
    free_.pop_back();
  }
  s.length = length;
  return true;
}

std::span<const int32_t> KvCache::pages(int32_t sequence) const {
  return sequences_[static_cast<size_t>(sequence)].pages;
}

int32_t KvCache::slot(int32_t sequence, int32_t position) const {
  return pages(sequence)[static_cast<size_t>(position / kPageSize)] * kPageSize + position % kPageSize;
}

}  // namespace inferno
