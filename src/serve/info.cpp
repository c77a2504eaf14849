#include "serve/info.h"

#include <nlohmann/json.hpp>

#include "inferno/inferno.h"
#include "serve/reply.h"
#include "serve/request_log.h"

namespace inferno::serve {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kShownSteps = 64;

Json model_of(const Info& info) {
  const ModelConfig& config = info.engine.model().config();
  return {{"id", info.model},
          {"object", "model"},
          {"created", info.created},
          {"owned_by", "inferno"},
          {"max_model_len", info.engine.context()},
          {"meta",
           {{"architecture", config.architecture},
            {"n_ctx", info.engine.context()},
            {"n_ctx_train", config.context},
            {"n_embd", config.width},
            {"n_layer", config.layer_count()},
            {"n_vocab", config.vocabulary},
            {"size", info.engine.model().weight_bytes()}}}};
}

Json ollama_details(const Info& info) {
  const std::string& family = info.engine.model().config().architecture;
  return {{"parent_model", ""},   {"format", "gguf"},        {"family", family}, {"families", Json::array({family})},
          {"parameter_size", ""}, {"quantization_level", ""}};
}

Json ollama_model(const Info& info) {
  return {{"name", info.model},
          {"model", info.model},
          {"size", info.engine.model().weight_bytes()},
          {"digest", ""},
          {"details", ollama_details(info)}};
}

std::string token_text(const Tokenizer* tokenizer, std::optional<int32_t> id) {
  return tokenizer != nullptr && id ? std::string(tokenizer->piece(*id)) : std::string();
}

Json step_json(const StepRecord& step) {
  Json members = Json::array();
  for (int32_t i = 0; i < step.members; ++i) {
    const StepRecord::Member& member = step.member[static_cast<size_t>(i)];
    members.push_back({{"request", fmt::format("{:016x}", member.tag)},
                       {"tokens", member.tokens},
                       {"position", member.position},
                       {"left", member.left}});
  }
  return {{"step", step.number},
          {"end_s", rounded(step.end_seconds)},
          {"ms", rounded(step.seconds * 1e3)},
          {"expected_ms", rounded(step.expected_seconds * 1e3)},
          {"target_ms", rounded(step.target_seconds * 1e3)},
          {"sequences", step.sequences},
          {"decode_tokens", step.decodes},
          {"prompt_tokens", step.prompt_tokens},
          {"waiting", step.waiting},
          {"members", std::move(members)}};
}

}  // namespace

std::string Info::model_json() const {
  return dump(model_of(*this));
}

std::string Info::models_json() const {
  return dump({{"object", "list"}, {"data", Json::array({model_of(*this)})}});
}

std::string Info::props_json() const {
  const Tokenizer* tokenizer = engine.tokenizer();
  return dump({{"default_generation_settings", {{"n_ctx", engine.context()}}},
               {"total_slots", engine.decoder().limits().max_sequences},
               {"model_alias", model},
               {"model_path", ""},
               {"chat_template", tokenizer == nullptr ? "" : tokenizer->chat_template()},
               {"bos_token", tokenizer == nullptr ? "" : token_text(tokenizer, tokenizer->bos())},
               {"eos_token", tokenizer == nullptr ? "" : token_text(tokenizer, tokenizer->eos())},
               {"modalities", {{"vision", false}, {"audio", false}}},
               {"build_info", "inferno " + version()}});
}

std::string Info::slots_json(std::span<const CompletionJob::State> open) const {
  Json slots = Json::array();
  const int32_t count = engine.decoder().limits().max_sequences;
  for (int32_t i = 0; i < count; ++i) {
    Json slot = {{"id", i}, {"n_ctx", engine.context()}, {"is_processing", false}};
    if (static_cast<size_t>(i) < open.size()) {
      const CompletionJob::State& state = open[static_cast<size_t>(i)];
      slot["is_processing"] = true;
      slot["request"] = state.id;
      slot["stream"] = state.stream;
      slot["prompt_tokens"] = state.prompt_tokens;
      slot["generated_tokens"] = state.generated_tokens;
    }
    slots.push_back(std::move(slot));
  }
  return dump(slots);
}

std::string Info::steps_json() const {
  Json steps = Json::array();
  for (const StepRecord& step : engine.scheduler().log().last(kShownSteps)) steps.push_back(step_json(step));
  const PageCounts pages = engine.scheduler().pages();
  const EngineStats stats = engine.scheduler().stats();
  return dump({{"running", stats.running},
               {"waiting", stats.waiting},
               {"pages",
                {{"total", pages.total},
                 {"used", pages.used},
                 {"cached", pages.cached},
                 {"free", pages.total - pages.used - pages.cached},
                 {"evicted", pages.evictions}}},
               {"steps", std::move(steps)}});
}

std::string Info::tags_json() const {
  Json body = ollama_model(*this);
  body["modified_at"] = utc_time(created);
  return dump({{"models", Json::array({std::move(body)})}});
}

std::string Info::processes_json() const {
  Json body = ollama_model(*this);
  body["expires_at"] = "9999-12-31T23:59:59Z";
  body["size_vram"] = engine.backend().host_visible() ? 0 : engine.model().weight_bytes();
  body["context_length"] = engine.context();
  return dump({{"models", Json::array({std::move(body)})}});
}

std::string Info::show_json() const {
  const ModelConfig& config = engine.model().config();
  const std::string& name = config.architecture;
  const Tokenizer* tokenizer = engine.tokenizer();
  return dump({{"modelfile", ""},
               {"parameters", ""},
               {"template", tokenizer == nullptr ? "" : tokenizer->chat_template()},
               {"details", ollama_details(*this)},
               {"model_info",
                {{"general.architecture", name},
                 {"general.name", config.name},
                 {name + ".context_length", config.context},
                 {name + ".embedding_length", config.width},
                 {name + ".block_count", config.layer_count()},
                 {name + ".vocab_size", config.vocabulary}}},
               {"capabilities", Json::array({"completion"})},
               {"modified_at", utc_time(created)}});
}

}  // namespace inferno::serve
