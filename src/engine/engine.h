// Everything one model needs to run: backend, weights, tokenizer, cache, decoder and the scheduler over them, made
// together and owned by one object. The command line, the public API and the tests all start here.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "backend/factory.h"
#include "base/progress.h"
#include "comm/rank_messages.h"
#include "engine/constraints.h"
#include "engine/draft_model.h"
#include "engine/driver.h"
#include "engine/embedder.h"
#include "engine/page_saver.h"
#include "engine/scheduler.h"
#include "file/model_file.h"
#include "hf/any_model_file.h"
#include "kv/kv_cache.h"
#include "model/decoder.h"
#include "model/model.h"

namespace inferno {

class Tokenizer;

struct EngineOptions {
  std::string backend;  // empty: the default one
  BackendOptions backend_options;
  int32_t context = 0;            // positions per sequence; 0: the model's own, at most kDefaultContext
  std::optional<DType> kv_dtype;  // empty: the backend's default
  StepLimits limits;
  std::string draft = {};          // a model that guesses tokens ahead; empty: none
  uint64_t kv_memory = 0;          // bytes of the cache; 0: max_sequences of the whole context, or what fits of it
  std::string page_folder = {};    // where pages of prompts are kept for the next start; empty: nowhere
  uint64_t page_folder_bytes = 0;  // of all files in it
  SchedulerOptions scheduler = {};
  // Where the model is split over several ranks (docs/scale.md); null, or one rank: not. Outlives the engine, of which
  // there is one at a time then.
  Communicator* ranks = nullptr;
  std::vector<int32_t> split = {};  // the sizes of the ranks' parts relative to each other; empty: all alike
  int32_t pipeline = 1;             // stages that layers are divided among, each of as many ranks
  DType wire = DType::f32;          // what sums over ranks are sent as: f32, bf16
  bool check_memory = true;         // an Error before anything is loaded where the host's memory does not suffice
  bool all_logits = false;          // make room for as many logit rows as a step can usefully have
  // What a user may want to see while the engine is made; nothing is printed. Warnings go to the log (base/log.h).
  OnProgress on_progress = {};                           // of loading the weights, in bytes
  std::function<void(const std::string&)> on_info = {};  // one line: the device, when it is not the host
  std::function<void()> on_step = {};                    // after each step, on the thread that makes it
  // Puts decorators around the backend (profiles, checks) before anything is loaded.
  std::function<std::unique_ptr<Backend>(std::unique_ptr<Backend>)> decorate = {};
};

class Engine {
 public:
  // A model's own context may be far longer than anybody's memory; this much is used when none is chosen.
  static constexpr int32_t kDefaultContext = 4096;
  // Logit rows of a step for tokens guessed ahead, of all sequences together, and memory that they may take beyond
  // those of one sequence.
  static constexpr int32_t kDraftRows = 64;
  static constexpr int64_t kDraftBytes = int64_t{64} << 20;

  // `file` is only read while the engine is made.
  Engine(const ModelFile& file, const EngineOptions& options);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  [[nodiscard]] Backend& backend() { return *backend_; }
  [[nodiscard]] const Model& model() const { return *model_; }
  // Whether the model makes text; one that does not has no cache, decoder, scheduler and driver: an Error each.
  [[nodiscard]] bool makes_text() const { return decoder_ != nullptr; }
  [[nodiscard]] KvCache& cache() { return need(cache_); }
  [[nodiscard]] Decoder& decoder() { return need(decoder_); }
  // Null: there is none.
  [[nodiscard]] const DraftModel* draft_model() const { return draft_model_.get(); }
  [[nodiscard]] Scheduler& scheduler() { return need(scheduler_); }
  // Steps the scheduler; who uses it steps no more by himself.
  [[nodiscard]] Driver& driver() { return need(driver_); }
  // Vectors of texts; every model on one rank has it, not every one can.
  [[nodiscard]] Embedder& embedder();
  // Of texts that are made and of vectors together.
  [[nodiscard]] EngineStats stats() const;
  [[nodiscard]] Constraints& constraints() { return *constraints_; }
  // Null when the build has no tokenizers or the file no vocabulary.
  [[nodiscard]] const Tokenizer* tokenizer() const { return tokenizer_.get(); }
  // Tokens that end a text; known even without a tokenizer.
  [[nodiscard]] const std::vector<int32_t>& end_tokens() const { return end_tokens_; }
  [[nodiscard]] int32_t context() const { return model_->context(); }

  // Why the logits after these tokens are no finite numbers, one line. `sequence` is theirs; no step may run.
  [[nodiscard]] std::string explain(const KvSequence& sequence, std::span<const int32_t> tokens);
  // An Error when an id is outside the vocabulary.
  void check_tokens(std::span<const int32_t> ids) const;

 private:
  // What is decided before anything is loaded.
  struct Design {
    ModelConfig whole;
    std::vector<ModelShare> shares;
    int32_t context = 0;
    StepLimits limits;
    KvConfig kv;
    std::optional<AnyModelFile> draft_file;
  };
  [[nodiscard]] Design design(const ModelFile& file, const EngineOptions& options);
  void design_encoder(const ModelFile& file, const EngineOptions& options, Design& design);
  void load_tokenizer(const ModelFile& file, const ModelConfig& config);
  void check_ranks(const EngineOptions& options) const;
  void load(const ModelFile& file, const EngineOptions& options, const Design& design);
  template <typename Part>
  [[nodiscard]] Part& need(const std::unique_ptr<Part>& part) const {
    if (part == nullptr) fail_no_text();
    return *part;
  }
  [[noreturn]] void fail_no_text() const;
  void make_embedder(const ModelFile& file);
  void keep_pages(const ModelFile& file, const EngineOptions& options);
  void load_draft_model(const ModelFile& file, const OnProgress& on_progress);

  Communicator* ranks_ = nullptr;           // null: one rank
  std::unique_ptr<RankMessages> messages_;  // the leader's
  std::shared_ptr<void> occupied_;          // nobody else uses the ranks
  bool is_announced_ = false;               // the other ranks have this engine, too
  std::unique_ptr<Backend> backend_;        // first: everything below lives in its memory
  std::unique_ptr<const Tokenizer> tokenizer_;
  std::unique_ptr<Constraints> constraints_;
  std::vector<int32_t> end_tokens_;
  std::unique_ptr<Model> model_;
  std::unique_ptr<KvCache> cache_;
  std::unique_ptr<PageSaver> saver_;  // null: pages are not kept; saves the last ones when nothing steps any more
  std::unique_ptr<Decoder> decoder_;
  std::unique_ptr<DraftModel> draft_model_;  // null: there is none
  StepTurn turn_;
  std::unique_ptr<Embedder> embedder_;  // null: the model is split over ranks
  std::unique_ptr<Scheduler> scheduler_;
  std::unique_ptr<Driver> driver_;
};

}  // namespace inferno
