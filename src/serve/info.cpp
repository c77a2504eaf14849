#include "serve/info.h"

#include <nlohmann/json.hpp>

#include "inferno/inferno.h"
#include "serve/reply.h"
#include "serve/request_log.h"

namespace inferno::serve {
namespace {

using OrderedJson = nlohmann::ordered_json;

constexpr size_t kShownSteps = 64;

std::string_view state_name(ServedModel::State state) {
  switch (state) {
    case ServedModel::State::loading:
      return "loading";
    case ServedModel::State::loaded:
      return "loaded";
    default:
      return "unloaded";
  }
}

OrderedJson model_of(const Info& info, const ServedModel& model) {
  const ModelFacts& facts = model.facts;
  return {{"id", model.name},
          {"object", "model"},
          {"created", info.created},
          {"owned_by", "inferno"},
          {"max_model_len", facts.context},
          {"status", {{"value", state_name(info.models.status(model).state)}}},
          {"meta",
           {{"architecture", facts.config.architecture},
            {"n_ctx", facts.context},
            {"n_ctx_train", facts.config.context},
            {"n_embd", facts.config.width},
            {"n_layer", facts.config.layer_count()},
            {"n_vocab", facts.config.vocabulary},
            {"size", facts.weight_bytes}}}};
}

OrderedJson ollama_details(const ServedModel& model) {
  const std::string& family = model.facts.config.architecture;
  return {{"parent_model", ""},   {"format", "gguf"},
          {"family", family},     {"families", OrderedJson::array({family})},
          {"parameter_size", ""}, {"quantization_level", ""}};
}

OrderedJson ollama_model(const ServedModel& model) {
  return {{"name", model.name},
          {"model", model.name},
          {"size", model.facts.weight_bytes},
          {"digest", ""},
          {"details", ollama_details(model)}};
}

OrderedJson step_json(const StepRecord& step) {
  OrderedJson members = OrderedJson::array();
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

// In Ollama's words.
OrderedJson capabilities_of(const ModelConfig& config) {
  OrderedJson words = OrderedJson::array();
  if (!config.encoder.only) words.push_back("completion");
  const bool pools = config.encoder.pooling != Pooling::none && config.encoder.pooling != Pooling::rank;
  if (pools || (config.encoder.only && config.encoder.classes == 0)) words.push_back("embedding");
  return words;
}

}  // namespace

std::string Info::model_json(const ServedModel& model) const {
  return dump(model_of(*this, model));
}

std::string Info::models_json() const {
  OrderedJson list = OrderedJson::array();
  for (const ServedModel& model : models.all()) list.push_back(model_of(*this, model));
  return dump({{"object", "list"}, {"data", std::move(list)}});
}

std::string Info::props_json(const ServedModel& model) const {
  const ModelFacts& facts = model.facts;
  const SamplingSettings sampling = native_sampling();
  const OrderedJson params = {{"seed", seed ? OrderedJson(*seed) : OrderedJson(-1)},
                              {"temperature", rounded(sampling.temperature)},
                              {"top_k", sampling.top_k},
                              {"top_p", rounded(sampling.top_p)},
                              {"min_p", rounded(sampling.min_p)},
                              {"n_predict", -1}};
  return dump({{"default_generation_settings", {{"n_ctx", facts.context}, {"params", params}}},
               {"total_slots", facts.slots},
               {"model_alias", model.name},
               {"model_path", facts.file},
               {"chat_template", facts.chat_template},
               {"bos_token", facts.bos},
               {"eos_token", facts.eos},
               {"modalities", {{"vision", false}, {"audio", false}}},
               {"build_info", "inferno " + version()}});
}

std::string Info::slots_json(const ServedModel& model, std::span<const CompletionJob::State> open) const {
  OrderedJson slots = OrderedJson::array();
  for (int32_t i = 0; i < model.facts.slots; ++i) {
    OrderedJson slot = {{"id", i}, {"n_ctx", model.facts.context}, {"is_processing", false}};
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

std::string Info::steps_json(const ServedModel& model) const {
  OrderedJson steps = OrderedJson::array();
  PageCounts pages;
  EngineStats stats;
  Engine* engine = Models::engine_of(model);
  if (engine != nullptr && engine->makes_text()) {
    for (const StepRecord& step : engine->scheduler().log().last(kShownSteps)) steps.push_back(step_json(step));
    pages = engine->scheduler().pages();
    stats = engine->scheduler().stats();
  }
  return dump({{"model", model.name},
               {"running", stats.running},
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
  OrderedJson list = OrderedJson::array();
  for (const ServedModel& model : models.all()) {
    list.push_back(ollama_model(model));
    list.back()["modified_at"] = utc_time(created);
  }
  return dump({{"models", std::move(list)}});
}

std::string Info::processes_json() const {
  const auto idle_time = models.options().idle_time;
  OrderedJson list = OrderedJson::array();
  for (const ServedModel& model : models.all()) {
    const Models::Status at = models.status(model);
    if (at.state != ServedModel::State::loaded) continue;
    const auto rest =
        std::chrono::duration_cast<std::chrono::seconds>(at.last_used + idle_time - ServedModel::Clock::now());
    list.push_back(ollama_model(model));
    list.back()["expires_at"] = idle_time.count() == 0 ? "9999-12-31T23:59:59Z" : utc_time(unix_now() + rest.count());
    list.back()["size_vram"] = model.facts.on_device ? model.facts.weight_bytes : 0;
    list.back()["context_length"] = model.facts.context;
  }
  return dump({{"models", std::move(list)}});
}

std::string Info::show_json(const ServedModel& model) const {
  const ModelConfig& config = model.facts.config;
  const std::string& name = config.architecture;
  return dump({{"modelfile", ""},
               {"parameters", ""},
               {"template", model.facts.chat_template},
               {"details", ollama_details(model)},
               {"model_info",
                {{"general.architecture", name},
                 {"general.name", config.name},
                 {name + ".context_length", config.context},
                 {name + ".embedding_length", config.width},
                 {name + ".block_count", config.layer_count()},
                 {name + ".vocab_size", config.vocabulary}}},
               {"capabilities", capabilities_of(config)},
               {"modified_at", utc_time(created)}});
}

}  // namespace inferno::serve
