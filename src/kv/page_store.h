// Pages of the cache as files, so that they come back after a restart.
//
// FOLDER/FINGERPRINT/KEY.page is one full page: its tokens, the key of what comes before it, keys and values of all
// layers, and a hash over all of that. The fingerprint stands for the model and everything else that decides what a
// page holds. A file that is cut, changed, of another model or no page at all is left alone and counted. The files
// together have a limit of bytes: those that were not used for longest are removed first (by their time of change).
//
// Files are written by a thread of its own and appear whole or not at all. What was asked in a prompt can be read from
// them: the folder is made for its owner alone.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <functional>
#include <mutex>
#include <set>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "base/content_hash.h"
#include "kv/page_pool.h"

namespace inferno {

struct StoredPage {
  PageKey parent;
  std::vector<int32_t> tokens;
  std::vector<std::byte> data;
};

struct PageStoreOptions {
  std::string folder;
  uint64_t max_bytes = 0;
  Fingerprint model;
  size_t page_bytes = 0;
  int32_t page_size = 0;   // tokens
  int32_t vocabulary = 0;  // tokens of a page are below this
};

class PageStore {
 public:
  // An Error when the folder cannot be made or written to.
  explicit PageStore(const PageStoreOptions& options);
  ~PageStore() { finish(); }
  PageStore(const PageStore&) = delete;
  PageStore& operator=(const PageStore&) = delete;

  // Reads the `most` pages that were used last, the least recently used of them first. Says in the log how many files
  // were none.
  void restore(size_t most, const std::function<void(const StoredPage&)>& take);

  // ---- one thread at a time
  [[nodiscard]] bool has(const PageKey& key) const { return known_.contains({key.low, key.high}); }
  // Enough waits to be written; more should wait, too.
  [[nodiscard]] bool is_busy() const;
  // Written soon, where nothing went wrong so far.
  void add(StoredPage page);
  // These were used, the least recently used one first.
  void touch(std::span<const PageKey> keys) const;
  // Writes what was added, and no more after that.
  void finish();

 private:
  struct File {
    std::filesystem::path path;
    uint64_t bytes = 0;
    std::filesystem::file_time_type used;
  };

  [[nodiscard]] std::filesystem::path path_of(const PageKey& key) const;
  [[nodiscard]] size_t file_bytes() const;
  [[nodiscard]] bool read(const std::filesystem::path& path, StoredPage& page) const;
  [[nodiscard]] std::vector<File> files() const;
  void write(const StoredPage& page);
  void work();
  void trim();

  PageStoreOptions options_;
  std::filesystem::path folder_;                   // of this model
  std::set<std::pair<uint64_t, uint64_t>> known_;  // keys of pages that are there or will be
  uint64_t bytes_ = 0;                             // of all files, about; the writer's once it runs
  mutable std::mutex mutex_;                       // of what follows
  std::condition_variable changed_;
  std::deque<StoredPage> waiting_;
  bool ending_ = false;
  bool failed_ = false;  // nothing is written any more
  std::thread writer_;
};

}  // namespace inferno
