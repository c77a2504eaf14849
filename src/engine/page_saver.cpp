#include "engine/page_saver.h"

#include <algorithm>
#include <chrono>
#include <filesystem>

#include "base/log.h"

namespace inferno {
namespace {

// For what is not saved when the engine ends.
constexpr std::chrono::seconds kEndTime{10};
constexpr size_t kReadBytes = size_t{4} << 20;
constexpr size_t kMostText = size_t{1} << 20;  // of one value of the metadata

void add_program(ContentHash& hash) {
  // Another build may compute other bits.
  const std::filesystem::path program = "/proc/self/exe";
  std::error_code error;
  hash.add(uint64_t{std::filesystem::file_size(program, error)});
  const auto time = std::filesystem::last_write_time(program, error);
  hash.add(static_cast<uint64_t>(time.time_since_epoch().count()));
}

void add_weights(ContentHash& hash, const ModelFile& file) {
  std::vector<std::byte> bytes;
  for (size_t i = 0; i < file.tensor_count(); ++i) {
    const FileTensor& tensor = file.tensor(i);
    hash.add(std::string_view(tensor.name));
    hash.add(tensor.type_name);
    hash.add(tensor.bytes);
    for (uint64_t at = 0; at < tensor.bytes; at += bytes.size()) {
      bytes.resize(static_cast<size_t>(std::min<uint64_t>(kReadBytes, tensor.bytes - at)));
      file.read_tensor(tensor, bytes, at);
      hash.add(std::span<const std::byte>(bytes));
    }
  }
}

}  // namespace

Fingerprint fingerprint_of(const ModelFile& file, const Backend& backend, const KvConfig& config, bool fused) {
  ContentHash hash;
  add_program(hash);
  // The number of threads, which comes after the comma, changes no bit.
  const std::string description = backend.description();
  hash.add(backend.name());
  hash.add(uint64_t{fused});
  hash.add(std::string_view(description).substr(0, description.find(',')));
  hash.add(static_cast<uint64_t>(config.dtype));
  hash.add(static_cast<uint64_t>(config.max_positions));
  for (size_t i = 0; i < config.layers.size(); ++i) hash.add(KvCache::layer_page_bytes(config, i));
  for (const MetadataEntry& entry : file.metadata()) {
    if (entry.key.starts_with("tokenizer.") || entry.key.starts_with("general.")) continue;  // of texts, not of pages
    hash.add(std::string_view(entry.key));
    hash.add(std::string_view(value_to_string(entry.value, kMostText)));
  }
  add_weights(hash, file);
  return hash.value();
}

PageSaver::PageSaver(KvCache& cache, const PageStoreOptions& options) : cache_(cache), store_(options) {
  PagePool& pool = cache_.pool();
  size_t restored = 0;
  store_.restore(static_cast<size_t>(pool.unused()), [&](const StoredPage& page) {
    const int32_t at = pool.allocate();
    if (at < 0) return;
    cache_.write_page(at, page.data);
    pool.list(at, page.parent, page.tokens);
    pool.release(at);
    ++restored;
  });
  if (restored > 0) log(LogLevel::info, "{} pages of prompts came back from \"{}\"", restored, options.folder);
}

PageSaver::~PageSaver() {
  try {
    const auto end = std::chrono::steady_clock::now() + kEndTime;
    while (std::chrono::steady_clock::now() < end) {
      const Left left = save_one();
      if (left == Left::none) break;
      if (left == Left::later) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    store_.finish();
    std::vector<PageKey> used;
    for (const PagePool::Listed& listed : cache_.pool().listed()) used.push_back(listed.key);
    store_.touch(used);
  } catch (const std::exception& error) {
    log(LogLevel::warn, "not all pages were saved: {}", error.what());
  }
}

// The most recently used ones are first to be saved: what texts begin with is among them.
void PageSaver::find_unsaved() {
  const uint64_t version = cache_.pool().version();
  if (version == seen_version_) return;
  seen_version_ = version;
  unsaved_ = cache_.pool().listed();
  std::erase_if(unsaved_, [&](const PagePool::Listed& listed) { return store_.has(listed.key); });
}

PageSaver::Left PageSaver::save_one() {
  find_unsaved();
  while (!unsaved_.empty()) {
    if (store_.is_busy()) return Left::later;
    const PagePool::Listed next = unsaved_.back();
    unsaved_.pop_back();
    if (!cache_.pool().is_listed(next.page, next.key) || store_.has(next.key)) continue;
    const std::span<const int32_t> tokens = cache_.pool().tokens_of(next.page);
    StoredPage page{.parent = next.parent, .tokens = {tokens.begin(), tokens.end()}};
    page.data.resize(KvCache::page_bytes(cache_.config()));
    cache_.read_page(next.page, page.data);
    store_.add(std::move(page));
    return unsaved_.empty() ? Left::none : Left::some;
  }
  return Left::none;
}

}  // namespace inferno
