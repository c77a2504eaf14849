// Keeps the pages of a cache in a folder (kv/page_store.h): those that are there come back when it is made, full pages
// that are listed are written while there is nothing else to do, and what is left at the end.
//
// Only for caches in the host's memory and without recurrent states.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "file/model_file.h"
#include "kv/kv_cache.h"
#include "kv/page_store.h"

namespace inferno {

// Of everything that decides what a page holds beside its tokens: weights, metadata, kernels, type of the cache, this
// program. Reads the whole file.
[[nodiscard]] Fingerprint fingerprint_of(const ModelFile& file, const Backend& backend, const KvConfig& config,
                                         bool fused);

class PageSaver {
 public:
  PageSaver(KvCache& cache, const PageStoreOptions& options);
  ~PageSaver();
  PageSaver(const PageSaver&) = delete;
  PageSaver& operator=(const PageSaver&) = delete;

  enum class Left : uint8_t { none, some, later };
  // Hands one page to the writer, between steps. Whether there are more, and whether they have to wait for it.
  Left save_one();

 private:
  void find_unsaved();

  KvCache& cache_;
  PageStore store_;
  std::vector<PagePool::Listed> unsaved_;  // the next one last
  uint64_t seen_version_ = UINT64_MAX;     // of the pool, when unsaved_ was found
};

}  // namespace inferno
