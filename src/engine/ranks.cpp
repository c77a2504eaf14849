#include "engine/ranks.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/content_hash.h"
#include "base/error.h"
#include "engine/builtin_model.h"

namespace inferno {
namespace {

using Json = nlohmann::json;

// Ranks with different messages or computations do not work together: raised with either.
constexpr int32_t kProtocol = 2;
constexpr size_t kReasonBytes = 512;
constexpr uint64_t kMarkBytes = 1024;  // of each end of a tensor
constexpr size_t kMostText = 4096;     // of one value of the metadata

std::vector<int32_t> as_words(const std::string& text) {
  std::vector<int32_t> words(1 + (text.size() + 3) / 4);
  words[0] = static_cast<int32_t>(text.size());
  std::memcpy(words.data() + 1, text.data(), text.size());
  return words;
}

std::string as_text(std::span<const int32_t> words) {
  INFERNO_CHECK(!words.empty() && static_cast<size_t>(words[0]) <= 4 * (words.size() - 1));
  return {reinterpret_cast<const char*>(words.data() + 1), static_cast<size_t>(words[0])};
}

// All of the options that decide what a rank makes; how many threads it uses is its own business, unless it was said.
Json describe(const ModelFile& file, const EngineOptions& o) {
  return {{"protocol", kProtocol},
          {"version", INFERNO_VERSION},
          {"path", file.path()},
          {"mark", file_mark(file)},
          {"backend", o.backend},
          {"threads", o.backend_options.threads},
          {"fused", o.backend_options.fused},
          {"context", o.context},
          {"kv_dtype", o.kv_dtype ? static_cast<int>(*o.kv_dtype) : -1},
          {"max_tokens", o.limits.max_tokens},
          {"max_sequences", o.limits.max_sequences},
          {"max_logit_rows", o.limits.max_logit_rows},
          {"kv_memory", o.kv_memory},
          {"check_memory", o.check_memory},
          {"all_logits", o.all_logits},
          {"split", o.split},
          {"pipeline", o.pipeline},
          {"wire", static_cast<int>(o.wire)}};
}

EngineOptions options_of(const Json& message, Communicator& ranks) {
  EngineOptions o;
  o.backend = message["backend"];
  o.backend_options.threads = message["threads"];
  o.backend_options.fused = message["fused"];
  o.context = message["context"];
  if (const int dtype = message["kv_dtype"]; dtype >= 0) o.kv_dtype = static_cast<DType>(dtype);
  o.limits.max_tokens = message["max_tokens"];
  o.limits.max_sequences = message["max_sequences"];
  o.limits.max_logit_rows = message["max_logit_rows"];
  o.kv_memory = message["kv_memory"];
  o.check_memory = message["check_memory"];
  o.all_logits = message["all_logits"];
  o.split = message["split"].get<std::vector<int32_t>>();
  o.pipeline = message["pipeline"];
  o.wire = static_cast<DType>(message["wire"].get<int>());
  o.ranks = &ranks;
  return o;
}

std::string what_of(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const std::bad_alloc&) {
    return "out of memory";
  } catch (const std::exception& e) {
    return e.what();
  } catch (...) {
    return "it failed";
  }
}

// Throws this rank's own error, or one about the first rank that has one.
void agree(Communicator& ranks, const std::exception_ptr& error) {
  std::array<char, kReasonBytes> mine{};
  if (error) {
    const std::string text = what_of(error);
    std::copy_n(text.begin(), std::min(text.size(), mine.size() - 1), mine.begin());
    if (mine[0] == '\0') mine[0] = '?';
  }
  std::vector<char> all(mine.size() * static_cast<size_t>(ranks.size()));
  ranks.all_gather(std::as_bytes(std::span(mine)), std::as_writable_bytes(std::span(all)));
  ranks.check();
  if (error) std::rethrow_exception(error);
  for (int r = 0; r < ranks.size(); ++r) {
    const char* reason = all.data() + static_cast<size_t>(r) * mine.size();
    if (*reason != '\0') fail("rank {} ({}): {}", r, ranks.transport()->place(r), reason);
  }
}

// The file that the leader opened, where it is the same.
std::unique_ptr<ModelFile> open_same(const Json& message, const ModelOpener& open) {
  if (message["protocol"] != kProtocol || message["version"] != INFERNO_VERSION) {
    fail("this is inferno {}, and that of rank 0 is {}; install the same everywhere", INFERNO_VERSION,
         message["version"].get<std::string>());
  }
  const std::string path = message["path"];
  std::unique_ptr<ModelFile> file = open(path);
  if (file_mark(*file) != message["mark"].get<uint64_t>()) {
    fail("\"{}\" is another file here than on rank 0; copy it there", path);
  }
  return file;
}

// One engine of the leader's, from its beginning to its end.
void follow_engine(Communicator& ranks, RankMessages& messages, const ModelOpener& open) {
  std::unique_ptr<ModelFile> file;
  std::optional<EngineOptions> options;
  std::exception_ptr error;
  try {
    const Json message = Json::parse(as_text(messages.words()));
    options = options_of(message, ranks);
    file = open_same(message, open);
  } catch (...) {
    error = std::current_exception();
  }
  std::unique_ptr<Engine> engine;
  try {
    agree(ranks, error);
    engine = std::make_unique<Engine>(*file, *options);
    file.reset();
  } catch (const std::exception&) {
    return;  // the leader tells
  }
  while (messages.receive() == RankMessage::step) {
    try {
      engine->decoder().follow(messages.words(), engine->cache());
    } catch (const std::exception&) {
      // Of a step that cannot be run to its end the others would wait for this rank.
      if (!ranks.failed()) throw;
      return;
    }
  }
}

}  // namespace

uint64_t file_mark(const ModelFile& file) {
  ContentHash hash;
  for (const MetadataEntry& entry : file.metadata()) {
    if (entry.key.starts_with("tokenizer.")) continue;  // the leader alone reads it, and may have a template of its own
    hash.add(std::string_view(entry.key));
    hash.add(std::string_view(value_to_string(entry.value, kMostText)));
  }
  std::vector<std::byte> bytes;
  for (size_t i = 0; i < file.tensor_count(); ++i) {
    const FileTensor& tensor = file.tensor(i);
    hash.add(std::string_view(tensor.name));
    hash.add(tensor.type_name);
    hash.add(tensor.bytes);
    bytes.resize(static_cast<size_t>(std::min(kMarkBytes, tensor.bytes)));
    for (const uint64_t at : {uint64_t{0}, tensor.bytes - bytes.size()}) {
      file.read_tensor(tensor, bytes, at);
      hash.add(std::span<const std::byte>(bytes));
    }
  }
  return hash.value().low;
}

void announce_engine(RankMessages& messages, const ModelFile& file, const EngineOptions& options) {
  messages.send(RankMessage::load, as_words(describe(file, options).dump()));
  agree(*options.ranks, nullptr);
}

std::shared_ptr<void> occupy(Communicator& ranks) {
  if (!ranks.try_occupy()) fail_usage("one model at a time runs over several ranks, and there is one already");
  return {&ranks, [](void* held) { static_cast<Communicator*>(held)->release(); }};
}

void together(Communicator* ranks, const std::function<void()>& part) {
  if (ranks == nullptr) return part();
  std::exception_ptr error;
  try {
    part();
  } catch (...) {
    error = std::current_exception();
  }
  agree(*ranks, error);
}

int32_t least_of_ranks(Communicator* ranks, int32_t value) {
  if (ranks == nullptr) return value;
  std::vector<int32_t> all(static_cast<size_t>(ranks->size()));
  ranks->all_gather(std::as_bytes(std::span(&value, 1)), std::as_writable_bytes(std::span(all)));
  ranks->check();
  return *std::ranges::min_element(all);
}

std::unique_ptr<ModelFile> open_named_model(const std::string& path) {
  return std::make_unique<AnyModelFile>(path == kBuiltinModelPath ? AnyModelFile(open_builtin_model())
                                                                  : AnyModelFile::open(path));
}

bool follow_leader(Communicator& ranks, const ModelOpener& open) {
  RankMessages messages(ranks);
  while (!ranks.failed()) {
    switch (messages.receive()) {
      case RankMessage::load:
        follow_engine(ranks, messages, open);
        break;
      case RankMessage::quit:
        return true;
      default:
        break;
    }
  }
  return false;
}

void dismiss_followers(Communicator& ranks) {
  if (ranks.size() == 1 || ranks.failed()) return;
  RankMessages(ranks).send(RankMessage::quit, {});
}

}  // namespace inferno
