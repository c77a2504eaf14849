// Ranks that are threads, and models for them.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "comm/rank_failure.h"
#include "comm/thread_ranks.h"
#include "engine/ranks.h"
#include "model_runs.h"
#include "synthetic/synthetic_model.h"

namespace inferno::testing {

// Sums in another order: of f32 weights only their rounding differs, of others also what is rounded to 8 bits.
inline constexpr double kFloatTolerance = 2e-4;
inline constexpr double kQuantizedTolerance = 0.05;

inline const ModelFile& wide_model(std::string_view type) {
  static std::map<std::string, std::unique_ptr<SyntheticModel>> models;
  std::unique_ptr<SyntheticModel>& model = models[std::string(type)];
  if (model == nullptr) model = std::make_unique<SyntheticModel>(find_model_shape("tiny-wide"), std::string(type));
  return *model;
}

// A file that another object owns.
class Borrowed final : public ModelFile {
 public:
  explicit Borrowed(const ModelFile& file) : file_(file) {}
  [[nodiscard]] const std::string& path() const override { return file_.path(); }
  [[nodiscard]] uint64_t file_bytes() const override { return file_.file_bytes(); }
  [[nodiscard]] const MetadataValue* find(std::string_view key) const override { return file_.find(key); }
  [[nodiscard]] std::span<const MetadataEntry> metadata() const override { return file_.metadata(); }
  [[nodiscard]] size_t tensor_count() const override { return file_.tensor_count(); }
  [[nodiscard]] const FileTensor& tensor(size_t index) const override { return file_.tensor(index); }
  [[nodiscard]] const FileTensor* find_tensor(std::string_view name) const override { return file_.find_tensor(name); }
  void read_tensor(const FileTensor& tensor, std::span<std::byte> out, uint64_t begin) const override {
    file_.read_tensor(tensor, out, begin);
  }

 private:
  const ModelFile& file_;
};

// Ranks whose followers live as long as this.
class Group {
 public:
  explicit Group(int size, const ModelFile* file = nullptr) : ranks_(size) {
    for (int r = 1; r < size; ++r) {
      followers_.emplace_back([this, r, file] {
        const ModelOpener borrow = [file](const std::string&) { return std::make_unique<Borrowed>(*file); };
        (void)follow_leader(ranks_[r], file == nullptr ? ModelOpener(open_named_model) : borrow);
      });
    }
  }
  ~Group() {
    dismiss_followers(ranks_[0]);
    for (std::thread& thread : followers_) thread.join();
  }
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;
  [[nodiscard]] Communicator& leader() { return ranks_[0]; }
  void kill(int rank) { ranks_.kill(rank); }

 private:
  ThreadRanks ranks_;
  std::vector<std::thread> followers_;
};

inline EngineOptions options_of(Communicator* ranks, const std::string& backend = "simd", bool all = true) {
  EngineOptions options;
  options.backend = backend;
  options.kv_dtype = DType::f32;
  options.all_logits = all;
  options.ranks = ranks;
  options.limits.max_sequences = 4;
  return options;
}

inline std::vector<float> logits_of(const ModelFile& file, const EngineOptions& options,
                                    std::span<const int32_t> tokens, int32_t chunk = 7) {
  Engine engine(file, options);
  return all_logits(engine, tokens, chunk);
}

// The request that runs when rank 1 of the group ends, and those that come after.
inline void expect_requests_fail_once_a_rank_ends(Engine& engine, Group& group) {
  Request request{.prompt = tokens_of(1, 5, 4000), .max_new_tokens = 50};
  request.stop_at_end = false;
  request.on_token = [&, made = 0](const TokenEvent&) mutable {
    if (++made == 3) group.kill(1);
    return true;
  };
  EXPECT_THROW((void)generate(engine, request), RankFailure);
  request.on_token = {};
  EXPECT_THROW((void)generate(engine, request), RankFailure);
}

inline double scale_of(std::span<const float> values) {
  const std::vector<float> zeros(values.size());
  return rms_difference(values, zeros);
}

}  // namespace inferno::testing
