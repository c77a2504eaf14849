// What one does with models besides running them: look into a file, make it smaller, plan, check, measure. Every call
// returns plain data. A path names a .gguf file; an empty one is the built-in model.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "inferno/error.h"
#include "inferno/llm.h"
#include "inferno/types.h"

namespace inferno {

// ---- what is in a file

struct TensorInfo {
  std::string name = {};
  std::string type = {};            // as the file's format calls it: "Q4_K"
  std::vector<int64_t> shape = {};  // outermost first
  uint64_t bytes = 0;
  bool computable = true;  // false: inferno cannot compute with the type
};

using MetadataItem = std::variant<bool, int64_t, uint64_t, double, std::string>;

struct MetadataInfo {
  std::string key = {};
  std::string type = {};                // "u32", "array of string"
  std::string value = {};               // one line of about 80 bytes, safe for terminals
  std::optional<uint64_t> length = {};  // of an array
  // The value itself; of an array its first items. Strings are as in the file, whatever bytes they hold; an array in an
  // array is a line of text.
  std::vector<MetadataItem> items = {};
};
inline constexpr size_t kMaxMetadataItems = 16;

struct TensorTypeTotal {
  std::string type = {};
  size_t tensors = 0;
  uint64_t bytes = 0;
};

struct ModelInfo {
  std::string path = {};
  uint32_t gguf_version = 0;  // 0: a Hugging Face folder
  size_t parts = 1;           // files
  uint64_t file_bytes = 0;
  std::string architecture = {};  // empty: the file does not say
  std::string name = {};
  std::string unsupported = {};  // why inferno cannot run it, one line; empty: it can, as far as the metadata shows

  uint64_t parameters = 0;     // elements of all tensors
  double bits_per_weight = 0;  // of the tensors' data

  // Zero in a model that inferno does not support.
  int32_t layers = 0;
  int32_t width = 0;
  int32_t heads = 0;  // of the first layer with attention, as the next two
  int32_t kv_heads = 0;
  int32_t head_dim = 0;
  int32_t ffn = 0;                 // of the widest layer; of experts, those of a token together
  int32_t experts = 0;             // of the last layer; 0: none
  int32_t experts_used = 0;        // by a token
  int32_t recurrent_layers = 0;    // those with a state in place of a cache
  uint64_t state_bytes = 0;        // of all of them, for each sequence
  uint64_t active_parameters = 0;  // that a token is computed with; fewer than all where there are experts
  int32_t context = 0;
  int32_t vocabulary = 0;

  std::vector<MetadataInfo> metadata = {};  // in file order, as the tensors
  std::vector<TensorInfo> tensors = {};
  std::vector<TensorTypeTotal> types = {};  // largest first
};

// Reads no tensor data. A file that inferno cannot run is no Error here.
[[nodiscard]] INFERNO_API ModelInfo inspect_model(const std::string& path);

// ---- another type of weights

struct QuantizeOptions {
  int threads = 0;               // 0: all that pay off
  std::string imatrix = {};      // file of importances (docs/quantize.md); empty: all values count alike
  std::string output_type = {};  // of the output head, or the embedding that serves as it; empty: what the mix says
  // For tensors whose name holds a match of the regular expression: this type. The first that matches decides.
  struct TensorType {
    std::string pattern = {};
    std::string type = {};
  };
  std::vector<TensorType> tensor_types = {};
  bool pure = false;            // the main type of a mix for every matrix, the output head too
  OnProgress on_progress = {};  // in bytes of the input
};

struct QuantizeReport {
  uint64_t bytes_in = 0;                    // of the files
  uint64_t bytes_out = 0;                   // of the file
  std::vector<TensorTypeTotal> types = {};  // of the written tensors, largest first
  // One line for each type that others had to take the place of:
  // "Q8_0 instead of Q6_K in 4 tensors, whose rows do not divide by 256 (blk.0.ffn_down.weight: 352)"
  std::vector<std::string> fallbacks = {};
  // One line each: the input is quantized already, the result is larger than the input, the imatrix lacks tensors.
  std::vector<std::string> warnings = {};
};

// Every type and mix that quantize_model() knows.
[[nodiscard]] INFERNO_API std::string weight_type_names();
// `type` is one of weight_type_names(), in any case; Q3_K, Q4_K and Q5_K are other names of the _M mixes. Matrices take
// the type, or what the mix says for them; vectors stay as they are, metadata is copied. The file appears under
// `output` only when it is complete. Its bytes do not depend on the number of threads.
INFERNO_API QuantizeReport quantize_model(const std::string& input, const std::string& output, std::string_view type,
                                          const QuantizeOptions& options = {});

// ---- before loading: where a model would run, what it would take, how fast it would be

struct PlanOptions {
  int32_t prompt_tokens = 512;  // of the prompt whose speed is predicted
  int32_t depth = 128;          // position of the single token that is
  int32_t ranks = 1;            // machines like this one that the model would be split over (docs/scale.md)
  // Between them: "1GbE", "10GbE", "25GbE", "100GbE", "nvlink", or Gbit/s and us, "0.94,45"; empty: 10GbE.
  std::string network = {};
  // Another machine than this one: what it reads and multiplies (8 bits) at most; 0: this one.
  double read_gb_per_s = 0;
  double multiply_top_per_s = 0;
};

struct OpPlacement {
  std::string op = {};
  int32_t first_layer = -1;  // -1: outside of layers
  int32_t last_layer = -1;
  std::string backend = {};
};

struct PlannedSpeed {
  std::string what = {};  // "decode at position 128"
  double tokens_per_second = 0;
  double limit = 0;  // what the machine allows at most; 0: not known
};

// What one of several ranks would have.
struct RankPlan {
  uint64_t weight_bytes = 0;
  uint64_t kv_bytes = 0;
  int32_t first_layer = 0;
  int32_t layers = 0;
  int32_t q_heads = 0;  // of the first layer, as the next two
  int32_t kv_heads = 0;
  int32_t ffn = 0;
  int32_t vocabulary = 0;  // 0: neither embedding nor head
};

// A kind of step over ranks, and alone.
struct SplitSpeed {
  std::string what = {};  // as PlannedSpeed
  double alone = 0;       // tokens per second of one rank that has all of the model
  double split = 0;
  double exchange_ms = 0;  // of a step: what ranks exchange
  double compute_ms = 0;   // the rest
};

// One way to split a model.
struct SplitPlan {
  int32_t stages = 1;  // that layers are divided among; 1: every rank has a part of every layer
  std::string network = {};
  double gbit_per_s = 0;  // each way
  double latency_us = 0;  // of one message
  std::vector<RankPlan> ranks = {};
  uint64_t sent_bytes_per_token = 0;  // by each rank, for a token that is decoded
  int32_t sums_per_token = 0;
  std::vector<SplitSpeed> speeds = {};
  bool fits_alone = true;         // one rank's memory would do
  bool pays = false;              // decoding is faster, or there is no other way
  bool pays_for_prompts = false;  // the last of the speeds
};

struct ModelPlan {
  std::string name = {};
  std::string architecture = {};
  int32_t layers = 0;
  int32_t width = 0;
  int32_t vocabulary = 0;
  int32_t context = 0;
  std::string kv_type = {};
  int32_t step_tokens = 0;  // largest step
  std::vector<OpPlacement> placement = {};
  // Layers from first_fallback_layer on do not fit `backend` and stay, with their cache, on fallback_backend.
  std::string backend = {};
  std::optional<int32_t> first_fallback_layer = {};
  std::string fallback_backend = {};

  std::vector<std::pair<std::string, uint64_t>> weight_bytes = {};  // by backend
  uint64_t active_weight_bytes = 0;  // that one token reads; fewer than all where there are experts
  uint64_t kv_bytes = 0;
  uint64_t state_bytes = 0;      // of recurrent layers, for all sequences
  uint64_t workspace_bytes = 0;  // about
  uint64_t program_bytes = 0;    // the program itself, with what it keeps of the file
  uint64_t total_bytes = 0;
  uint64_t ram_bytes = 0;                        // the part of the total that is in RAM; the rest is on a device
  std::optional<uint64_t> available_bytes = {};  // RAM, here and now; nothing: not known
  std::optional<uint64_t> device_bytes = {};     // memory of the device that is free
  std::optional<bool> fits = {};                 // whether both suffice

  std::string machine = {};
  std::optional<double> read_gb_per_s = {};  // its limits, where they are known
  std::optional<double> int8_gop_per_s = {};
  std::vector<PlannedSpeed> speeds = {};
  // With PlanOptions::ranks: every layer over all ranks, and layers in stages (LoadOptions::pipeline; else a rank
  // each); without those that the model cannot do.
  std::vector<SplitPlan> splits = {};
};

// Takes no memory for the model; times single ops.
[[nodiscard]] INFERNO_API ModelPlan plan_model(const std::string& path, const LoadOptions& options = {},
                                               const PlanOptions& what = {});

// ---- one backend against another

struct OpComparison {
  std::string ops = {};  // "attention", or "qkv_rope_store + attention + linear" for ops that run as one
  int32_t layer = -1;    // -1: outside of layers
  int64_t step = 0;
  int64_t index = 0;       // of the first op in its step
  std::string args = {};   // with shapes and types
  std::string field = {};  // the argument that differs most, and its worst element:
  int64_t element = 0;
  double reference = 0;
  double tested = 0;
  double max_abs = 0;
  uint64_t max_ulp = 0;
  double nmse = 0;
  double limit = 0;  // of nmse
  bool diverges = false;
  std::string blamed = {};  // of a group that diverges: the op that does by itself; empty: none
};

// All calls of one op, or group of ops.
struct OpComparisonTotals {
  std::string ops = {};
  int64_t calls = 0;
  int64_t diverging = 0;
  double max_abs = 0;
  uint64_t max_ulp = 0;
  double max_nmse = 0;
  double limit = 0;
};

struct VerifyOptions {
  std::string against = "scalar";
  Prompt prompt = "Once upon a time";
  int32_t tokens = 8;          // after the prompt
  std::string plant = {};      // compute this op wrongly, to see it found
  std::string dump_file = {};  // where the inputs of the first op that diverges go; empty: nowhere
};

struct VerifyReport {
  std::string tested = {};
  std::string reference = {};
  int64_t checked = 0;  // ops
  int32_t prompt_tokens = 0;
  std::vector<OpComparisonTotals> ops = {};
  std::vector<OpComparison> worst = {};  // worst first
  std::optional<OpComparison> first_divergence = {};
  bool dumped = false;    // dump_file was written
  std::string text = {};  // all of it as a table for people
};
// Every op of a run on both backends, each with the reference's inputs.
[[nodiscard]] INFERNO_API VerifyReport verify_model(const std::string& path, const LoadOptions& options = {},
                                                    const VerifyOptions& what = {});

struct ReplayReport {
  std::string tested = {};
  std::string reference = {};
  OpComparison check = {};
  std::string text = {};
};
// What a dump_file holds, alone. With a path, an Error when it was recorded with another model.
[[nodiscard]] INFERNO_API ReplayReport replay_dump(const std::string& dump_file, const std::string& against = "scalar",
                                                   const LoadOptions& options = {}, const std::string& path = {});

struct WholeModelOptions {
  std::string against = "scalar";
  Prompt prompt = "Once upon a time";
  int32_t prompts = 8;  // that one, and others
  int32_t tokens = 8;   // of each text
};
struct WholeModelReport {
  std::string tested = {};
  std::string reference = {};
  double mean_divergence = 0;                 // Kullback-Leibler
  double noise = 0;                           // root of the mean squared difference of the logits
  std::optional<double> parting_margin = {};  // the largest where greedy texts part
  double most_margin = 0;                     // that it may be
  std::string verdict = {};                   // why the two are not the same model; empty: they are
  std::string text = {};
};
// Logits and greedy texts instead of ops.
[[nodiscard]] INFERNO_API WholeModelReport verify_whole_model(const std::string& path, const LoadOptions& options = {},
                                                              const WholeModelOptions& what = {});

// ---- where the time goes

// All calls of one op in one phase; microseconds.
struct ProfiledOp {
  std::string op = {};
  int64_t calls = 0;
  double total_us = 0;    // from its first worker's start to the next op's start
  double work_us = 0;     // mean over the workers of their own work
  double barrier_us = 0;  // mean over the workers of their waits for each other
  double wake_us = 0;     // until a worker started the first op of a dispatch
  double slowest_us = 0;  // the slowest worker's own work
  double least_us = 0;    // what the machine's limits allow
  double bytes = 0;
  double operations = 0;
};

struct ProfiledPhase {
  std::string phase = {};  // "prefill": steps with several tokens of a sequence; "decode"
  int64_t tokens = 0;
  int64_t steps = 0;
  double step_us = 0;                             // inside steps
  double between_us = 0;                          // between them
  double profiler_us = 0;                         // the profiler's own time
  std::optional<double> replay_us_per_step = {};  // untimed, from a device's graph
  double tokens_per_second = 0;
  double least_us = 0;
  double share_of_limit = 0;                              // of all its time
  double stream_bytes = 0;                                // weights and cache
  std::string summary = {};                               // one line
  std::vector<std::pair<std::string, double>> lost = {};  // to what, and its share of the time; largest first
  std::vector<ProfiledOp> ops = {};                       // longest first
  std::vector<double> layer_us = {};
  double outside_layers_us = 0;
};

struct ProfileReport {
  std::string backend = {};
  int workers = 1;
  double most_of_limit = 0;  // above 1: the machine's limits were measured too low
  std::vector<ProfiledPhase> phases = {};
  std::string text = {};  // one screen for people
};

// ---- how fast

// Of several repeats of the same thing.
struct Repeats {
  double median = 0;
  double least = 0;
  double most = 0;

  // Half the distance between the extremes, in percent of the median.
  [[nodiscard]] double spread_percent() const { return median > 0 ? 50 * (most - least) / median : 0; }
};

struct BenchOptions {
  int32_t prompt = 512;                // tokens; 0: no prefill
  int32_t generate = 64;               // tokens; 0: no decode
  int32_t depth = 0;                   // positions in the cache before the first token
  std::vector<int32_t> batches = {1};  // sequences decoded together, a row each
  int32_t repeat = 3;                  // measurements of each row; 0: only run
  // Decode once more with tokens guessed ahead from the text; and by LoadOptions::draft, where it is set.
  bool lookup = false;
  int32_t max_draft = 15;
};

// One phase of one model, or one op.
struct BenchRow {
  std::string phase = {};  // prefill, decode
  std::string name = {};   // of the model or the op
  std::string type = {};   // of the weights
  std::string kv_type = {};
  std::string backend = {};
  int threads = 1;
  int32_t batch = 1;   // sequences in a step
  int32_t depth = 0;   // positions cached before the first token
  int32_t tokens = 0;  // measured, of each sequence
  Repeats tokens_per_second = {};
  double gb_per_s = 0;                          // weights, cache and activations that had to move, each once
  double gop_per_s = 0;                         // a multiplication and its addition are two
  std::optional<double> percent_of_limit = {};  // empty: this machine's limit is not known for the backend
  std::optional<double> microseconds = {};      // of an op
  // Where tokens were guessed ahead: the share that was right, and the speed as a multiple of that without.
  std::optional<double> accepted_percent = {};
  std::optional<double> gain = {};
};

// options.max_sequences is not looked at: the largest batch counts. A context of 0 is as long as what is measured.
[[nodiscard]] INFERNO_API std::vector<BenchRow> bench_model(const std::string& path, const LoadOptions& options = {},
                                                            const BenchOptions& what = {});
// Every op of the op list alone, at the shapes of a 0.6B model. Those that the backend cannot run are left out.
[[nodiscard]] INFERNO_API std::vector<BenchRow> bench_ops(const LoadOptions& options = {}, int32_t repeat = 3);

}  // namespace inferno
