#include "kv/page_store.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <numeric>

namespace inferno {
namespace {

namespace fs = std::filesystem;

class PageStoreTest : public ::testing::Test {
 protected:
  static constexpr int32_t kTokens = 4;

  ~PageStoreTest() override { fs::remove_all(folder_); }

  [[nodiscard]] PageStoreOptions options() const {
    return {.folder = folder_.string(),
            .max_bytes = 1 << 20,
            .model = {1, 2},
            .page_bytes = 100,
            .page_size = kTokens,
            .vocabulary = 1000};
  }
  static StoredPage page(int32_t first, const PageKey& parent = {}) {
    StoredPage made{.parent = parent, .tokens = std::vector<int32_t>(kTokens)};
    std::iota(made.tokens.begin(), made.tokens.end(), first);
    for (int i = 0; i < 100; ++i) made.data.push_back(static_cast<std::byte>(first + i));
    return made;
  }
  static PageKey key_of(const StoredPage& page) { return page_key(page.parent, page.tokens); }
  static std::vector<int32_t> restored(const PageStoreOptions& options, size_t most = 100) {
    PageStore store(options);
    std::vector<int32_t> first;
    store.restore(most, [&](const StoredPage& got) {
      EXPECT_EQ(got.data, page(got.tokens[0]).data);
      first.push_back(got.tokens[0]);
    });
    return first;
  }
  [[nodiscard]] std::vector<fs::path> files() const {
    std::vector<fs::path> found;
    for (const auto& entry : fs::recursive_directory_iterator(folder_)) {
      if (entry.is_regular_file()) found.push_back(entry.path());
    }
    return found;
  }
  void save(const std::vector<int32_t>& firsts, const PageStoreOptions& to) const {
    PageStore store(to);
    std::vector<PageKey> keys;
    for (const int32_t first : firsts) {
      while (store.is_busy()) std::this_thread::yield();
      store.add(page(first));
      keys.push_back(key_of(page(first)));
    }
    store.finish();
    store.touch(keys);
  }

  fs::path folder_ = fs::temp_directory_path() / ("inferno_page_store_" + std::to_string(::getpid()));
};

TEST_F(PageStoreTest, PagesComeBackTheLeastRecentlyUsedFirst) {
  save({10, 20, 30, 40, 50, 60}, options());
  EXPECT_EQ(restored(options()), (std::vector<int32_t>{10, 20, 30, 40, 50, 60}));
  EXPECT_EQ(restored(options(), 2), (std::vector<int32_t>{50, 60}));
  PageStore store(options());
  EXPECT_FALSE(store.has(key_of(page(10))));
  store.restore(100, [](const StoredPage&) {});
  EXPECT_TRUE(store.has(key_of(page(10))));
  store.touch(std::vector{key_of(page(20)), key_of(page(10))});
  EXPECT_EQ(restored(options(), 2), (std::vector<int32_t>{20, 10}));
}

TEST_F(PageStoreTest, PagesOfAnotherModelAreNotThere) {
  save({10}, options());
  PageStoreOptions other = options();
  other.model.high = 3;
  EXPECT_TRUE(restored(other).empty());
}

TEST_F(PageStoreTest, AChangedByteACutOrAForeignFileIsNoPage) {
  save({10}, options());
  const fs::path path = files().at(0);
  std::ifstream in(path, std::ios::binary);
  const std::string whole(std::istreambuf_iterator<char>(in), {});
  const auto put = [](const fs::path& to, const std::string& text) {
    std::ofstream(to, std::ios::binary | std::ios::trunc) << text;
  };
  for (size_t i = 0; i < whole.size(); ++i) {
    std::string changed = whole;
    changed[i] = static_cast<char>(changed[i] ^ 4);
    put(path, changed);
    EXPECT_TRUE(restored(options()).empty()) << i;
  }
  for (const size_t length : {size_t{0}, size_t{7}, whole.size() - 1}) {
    put(path, whole.substr(0, length));
    EXPECT_TRUE(restored(options()).empty()) << length;
  }
  put(path, whole + "x");
  EXPECT_TRUE(restored(options()).empty());
  // Under another page's name, and beside what nobody wrote here.
  put(path, whole);
  fs::rename(path, path.parent_path() / (std::string(32, 'a') + ".page"));
  put(path.parent_path() / "notes.txt", "hello");
  fs::create_directory(path.parent_path() / (std::string(32, 'b') + ".page"));
  EXPECT_TRUE(restored(options()).empty());
  put(path, whole);
  EXPECT_EQ(restored(options()), std::vector<int32_t>{10});
}

TEST_F(PageStoreTest, TokensOutsideTheVocabularyAreNoPage) {
  save({997}, options());
  EXPECT_TRUE(restored(options()).empty());
}

TEST_F(PageStoreTest, TheLeastRecentlyUsedFilesGoWhenThereAreTooManyBytes) {
  save({1}, options());
  const uint64_t one = fs::file_size(files().at(0));
  PageStoreOptions few = options();
  few.max_bytes = 10 * one;
  for (int32_t i = 2; i <= 30; ++i) save({i}, few);
  uint64_t bytes = 0;
  for (const fs::path& file : files()) bytes += fs::file_size(file);
  EXPECT_LE(bytes, few.max_bytes);
  const std::vector<int32_t> left = restored(few);
  EXPECT_GE(left.size(), 8U);
  EXPECT_EQ(left.back(), 30);
  EXPECT_EQ(left.front(), 31 - static_cast<int32_t>(left.size()));
}

TEST_F(PageStoreTest, AFolderThatCannotBeWrittenToIsAnError) {
  std::ofstream(folder_) << "a file";
  EXPECT_THROW(PageStore store(options()), Error);
}

}  // namespace
}  // namespace inferno
