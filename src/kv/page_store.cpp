#include "kv/page_store.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "base/block_signals.h"
#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "base/platform.h"

namespace inferno {
namespace {

namespace fs = std::filesystem;

constexpr std::array<char, 8> kMagic = {'I', 'N', 'F', 'P', 'A', 'G', 'E', '1'};
constexpr std::string_view kEnding = ".page";
constexpr size_t kMostWaiting = 4;  // pages whose bytes are held until they are written

// What every file begins with; then come tokens, data and the hash of everything.
struct Head {
  std::array<char, 8> magic = kMagic;
  Fingerprint model;
  PageKey parent;
  uint64_t data_bytes = 0;
};
static_assert(sizeof(Head) == 48);

std::string hex(uint64_t low, uint64_t high) {
  return fmt::format("{:016x}{:016x}", high, low);
}

// Tells a page's files from whatever else lies in the folder.
bool is_page_name(const fs::path& path) {
  const std::string name = path.filename().string();
  return name.size() == 32 + kEnding.size() && name.ends_with(kEnding) &&
         name.find_first_not_of("0123456789abcdef") == 32;
}

}  // namespace

PageStore::PageStore(const PageStoreOptions& options)
    : options_(options), folder_(fs::path(options.folder) / hex(options.model.low, options.model.high)) {
  std::error_code error;
  const bool is_new = !fs::exists(options.folder, error);
  fs::create_directories(folder_, error);
  if (error) fail("the folder \"{}\" for pages cannot be made: {}", folder_.string(), error.message());
  if (is_new) fs::permissions(options.folder, fs::perms::owner_all, error);
  fs::permissions(folder_, fs::perms::owner_all, error);
  // Said now, not when the first page is lost.
  AtomicOutputFile probe((folder_ / "probe").string());
  for (const File& file : files()) bytes_ += file.bytes;
}

fs::path PageStore::path_of(const PageKey& key) const {
  return folder_ / (hex(key.low, key.high) + std::string(kEnding));
}

size_t PageStore::file_bytes() const {
  return sizeof(Head) + static_cast<size_t>(options_.page_size) * sizeof(int32_t) + options_.page_bytes +
         sizeof(Fingerprint);
}

// Of all models. What cannot be looked at is not there.
std::vector<PageStore::File> PageStore::files() const {
  std::vector<File> all;
  std::error_code error;
  for (fs::directory_iterator models(options_.folder, error), end; !error && models != end; models.increment(error)) {
    std::error_code inner;
    for (fs::directory_iterator at(models->path(), inner); !inner && at != end; at.increment(inner)) {
      std::error_code gone;
      if (!is_page_name(at->path()) || !at->is_regular_file(gone) || at->is_symlink(gone)) continue;
      File file{.path = at->path(), .bytes = at->file_size(gone), .used = at->last_write_time(gone)};
      if (!gone) all.push_back(std::move(file));
    }
  }
  return all;
}

bool PageStore::read(const fs::path& path, StoredPage& page) const {
  const InputFile file(path.string());
  if (file.size() != file_bytes()) return false;
  Head head;
  ContentHash hash;
  uint64_t at = 0;
  const auto next = [&](std::span<std::byte> bytes) {
    file.read_at(at, bytes);
    at += bytes.size();
    hash.add(bytes);
  };
  next(std::as_writable_bytes(std::span(&head, 1)));
  if (head.magic != kMagic || head.model != options_.model || head.data_bytes != options_.page_bytes) return false;
  page.parent = head.parent;
  page.tokens.resize(static_cast<size_t>(options_.page_size));
  page.data.resize(options_.page_bytes);
  next(std::as_writable_bytes(std::span(page.tokens)));
  next(page.data);
  Fingerprint expected;
  file.read_at(at, std::as_writable_bytes(std::span(&expected, 1)));
  const auto is_token = [&](int32_t id) { return id >= 0 && id < options_.vocabulary; };
  return hash.value() == expected && std::ranges::all_of(page.tokens, is_token) &&
         path.filename() == path_of(page_key(page.parent, page.tokens)).filename();
}

void PageStore::restore(size_t most, const std::function<void(const StoredPage&)>& take) {
  std::vector<File> own = files();
  std::erase_if(own, [&](const File& file) { return file.path.parent_path() != folder_; });
  std::ranges::sort(own, std::greater(), &File::used);
  if (own.size() > most) own.resize(most);
  StoredPage page;
  size_t refused = 0;
  std::ranges::reverse(own);
  for (const File& file : own) {
    bool is_page = false;
    try {
      is_page = read(file.path, page);
    } catch (const Error&) {
      is_page = false;  // it went away, or cannot be read
    }
    refused += is_page ? 0 : 1;
    if (!is_page) continue;
    const PageKey key = page_key(page.parent, page.tokens);
    known_.insert({key.low, key.high});
    take(page);
  }
  if (refused > 0) {
    log(LogLevel::warn, "{} of the {} files in \"{}\" are no whole pages of this model and are not used", refused,
        own.size(), folder_.string());
  }
}

bool PageStore::is_busy() const {
  const std::scoped_lock lock(mutex_);
  return waiting_.size() >= kMostWaiting;
}

void PageStore::add(StoredPage page) {
  const PageKey key = page_key(page.parent, page.tokens);
  known_.insert({key.low, key.high});
  const std::scoped_lock lock(mutex_);
  if (failed_ || ending_) return;
  waiting_.push_back(std::move(page));
  changed_.notify_one();
  if (writer_.joinable()) return;
  const BlockSignals block;
  writer_ = std::thread([this] { work(); });
}

void PageStore::touch(std::span<const PageKey> keys) const {
  auto time = fs::file_time_type::clock::now() - std::chrono::microseconds(keys.size());
  for (const PageKey& key : keys) {
    std::error_code gone;
    fs::last_write_time(path_of(key), time += std::chrono::microseconds(1), gone);
  }
}

void PageStore::finish() {
  {
    const std::scoped_lock lock(mutex_);
    ending_ = true;
  }
  changed_.notify_all();
  if (writer_.joinable()) writer_.join();
}

// ---- the writer

void PageStore::work() {
  platform::name_this_thread("inferno-pages");
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return ending_ || !waiting_.empty(); });
    if (waiting_.empty()) return;
    const StoredPage page = std::move(waiting_.front());
    waiting_.pop_front();
    lock.unlock();
    bool is_written = false;
    try {
      write(page);
      is_written = true;
    } catch (const std::exception& error) {
      log(LogLevel::warn, "no more pages are written: {}", error.what());
    }
    lock.lock();
    if (is_written) continue;
    failed_ = true;
    waiting_.clear();
  }
}

void PageStore::write(const StoredPage& page) {
  if (file_bytes() > options_.max_bytes) return;
  bytes_ += file_bytes();
  if (bytes_ > options_.max_bytes) trim();
  const Head head{.model = options_.model, .parent = page.parent, .data_bytes = options_.page_bytes};
  ContentHash hash;
  AtomicOutputFile file(path_of(page_key(page.parent, page.tokens)).string());
  for (const std::span<const std::byte> part :
       {std::as_bytes(std::span(&head, 1)), std::as_bytes(std::span(page.tokens)), std::span(page.data)}) {
    hash.add(part);
    file.write(part);
  }
  const Fingerprint value = hash.value();
  file.write(std::as_bytes(std::span(&value, 1)));
  file.commit();
}

// Makes room for some more than one, or every page would look at all files.
void PageStore::trim() {
  std::vector<File> all = files();
  std::ranges::sort(all, {}, &File::used);
  bytes_ = file_bytes();
  for (const File& file : all) bytes_ += file.bytes;
  const uint64_t wanted = std::max(options_.max_bytes / 10 * 9, uint64_t{file_bytes()});
  for (const File& file : all) {
    if (bytes_ <= wanted) return;
    std::error_code gone;
    fs::remove(file.path, gone);
    bytes_ -= std::min(file.bytes, bytes_);
  }
}

}  // namespace inferno
