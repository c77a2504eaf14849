#include "kv/kv_cache.h"

#include <algorithm>
#include <utility>

#include "base/checked.h"
#include "base/error.h"

namespace inferno {
namespace {

KvLayerView empty_view(const KvConfig& config, size_t layer) {
  KvLayerView view;
  view.page_size = KvCache::kPageSize;
  view.kv_heads = config.layers[layer].kv_heads;
  view.head_dim = config.layers[layer].head_dim;
  view.v_head_dim = config.layers[layer].v_head_dim;
  view.v_in_k = config.layers[layer].v_in_k;
  view.dtype = config.dtype;
  return view;
}

// Keys and values, or keys that hold both.
template <typename F>
void for_parts(const KvLayerView& view, F f) {
  if (view.page_bytes() == 0) return;
  f(view);
  if (!view.v_in_k) f(view.values());
}

StateConfig states_of(const KvConfig& config) {
  StateConfig states;
  for (const KvLayerShape& layer : config.layers) states.layer_floats.push_back(layer.state_floats);
  states.slots = config.state_slots;
  return states;
}

KvConfig with_pages(KvConfig config) {
  if (config.pages == 0) config.pages = KvCache::pages_for(config.max_positions);
  return config;
}

}  // namespace

int32_t KvCache::pages_for(int64_t positions) {
  return static_cast<int32_t>(ceil_div(positions, kPageSize));
}

uint64_t KvCache::layer_page_bytes(const KvConfig& config, size_t layer) {
  const KvLayerView view = empty_view(config, layer);
  return static_cast<uint64_t>(view.page_bytes() + (view.v_in_k ? 0 : view.values().page_bytes()));
}

uint64_t KvCache::page_bytes(const KvConfig& config) {
  uint64_t sum = 0;
  for (size_t i = 0; i < config.layers.size(); ++i) sum += layer_page_bytes(config, i);
  return sum;
}

KvCache::KvCache(Backend& backend, const KvConfig& config)
    : backend_(backend),
      config_(with_pages(config)),
      pool_(config_.pages, kPageSize),
      slots_(backend, states_of(config_)) {
  for (size_t i = 0; i < config_.layers.size(); ++i) {
    const size_t bytes = layer_page_bytes(config_, i) * static_cast<size_t>(config_.pages);
    memory_.push_back(bytes == 0 ? Buffer() : backend.allocate_cache(static_cast<int32_t>(i), bytes));
  }
}

uint64_t KvCache::state_bytes(const KvConfig& config) {
  uint64_t floats = 0;  // added up here: steps ask, and allocate nothing
  for (const KvLayerShape& layer : config.layers) {
    for (const int64_t part : layer.state_floats) floats += static_cast<uint64_t>(part);
  }
  return floats * sizeof(float);
}

KvLayerView KvCache::layer(int32_t index) const {
  const auto i = static_cast<size_t>(index);
  KvLayerView view = empty_view(config_, i);
  view.pages = config_.pages;
  view.k = memory_[i].data();
  view.v = static_cast<std::byte*>(view.k) + (view.v_in_k ? 0 : view.pages * view.page_bytes());
  return view;
}

void KvCache::copy_page(int32_t from, int32_t to) {
  if (on_copy_) on_copy_(from, to);
  for (int32_t i = 0; i < static_cast<int32_t>(config_.layers.size()); ++i) {
    for_parts(layer(i), [&](const KvLayerView& rows) {
      auto* memory = static_cast<std::byte*>(rows.k);
      backend_.copy_cache(i, memory + to * rows.page_bytes(), memory + from * rows.page_bytes(),
                          static_cast<size_t>(rows.page_bytes()));
    });
  }
}

namespace {

// Calls `use` with the bytes of a page in one layer after the other, keys and values.
template <typename Use>
void each_part(const KvCache& cache, int32_t page, const Use& use) {
  for (int32_t i = 0; i < static_cast<int32_t>(cache.config().layers.size()); ++i) {
    for_parts(cache.layer(i), [&](const KvLayerView& rows) {
      const auto bytes = static_cast<size_t>(rows.page_bytes());
      use(std::span(static_cast<std::byte*>(rows.k) + static_cast<size_t>(page) * bytes, bytes));
    });
  }
}

}  // namespace

void KvCache::read_page(int32_t page, std::span<std::byte> out) const {
  INFERNO_CHECK(backend_.host_visible() && out.size() == page_bytes(config_));
  each_part(*this, page, [&](std::span<std::byte> part) {
    std::ranges::copy(part, out.begin());
    out = out.subspan(part.size());
  });
}

void KvCache::write_page(int32_t page, std::span<const std::byte> bytes) {
  INFERNO_CHECK(backend_.host_visible() && bytes.size() == page_bytes(config_));
  each_part(*this, page, [&](std::span<std::byte> part) {
    std::ranges::copy(bytes.first(part.size()), part.begin());
    bytes = bytes.subspan(part.size());
  });
}

KvSequence::KvSequence(KvCache& cache) : cache_(cache) {
  pages_.reserve(static_cast<size_t>(cache.max_pages()));
}

bool KvSequence::resize(int32_t length) {
  const auto wanted = static_cast<size_t>(KvCache::pages_for(length));
  if (length > cache_.config().max_positions) return false;
  if (wanted > pages_.size() && wanted - pages_.size() > static_cast<size_t>(cache_.pool().available())) return false;
  if (cache_.has_states() && state_slot_ < 0) {
    state_slot_ = cache_.slots().allocate();
    if (state_slot_ < 0) return false;
  }
  while (pages_.size() > wanted) {
    cache_.pool().release(pages_.back());
    pages_.pop_back();
  }
  while (pages_.size() < wanted) pages_.push_back(cache_.pool().allocate());
  return true;
}

void KvSequence::share(std::span<const int32_t> pages) {
  INFERNO_CHECK(pages_.empty());
  for (const int32_t page : pages) {
    cache_.pool().retain(page);
    pages_.push_back(page);
  }
}

void KvSequence::clear() {
  if (state_slot_ >= 0) cache_.slots().release(std::exchange(state_slot_, -1));
  while (!pages_.empty()) {
    cache_.pool().release(pages_.back());
    pages_.pop_back();
  }
}

}  // namespace inferno
