#include "cli/serve_models.h"

#include <filesystem>
#include <memory>
#include <optional>

#include "base/error.h"
#include "cli/chat_template.h"
#include "engine/builtin_model.h"
#include "engine/chat.h"
#include "profile/dry_backend.h"
#include "profile/profiling_backend.h"

namespace inferno::cli {
namespace {

// An engine, and what it fills while it lives.
struct Instance {
  std::optional<Profile> profile;
  std::unique_ptr<Engine> engine;
};

// The engine's steps are timed from now on; what is seen of them are the profile's figures between two steps.
serve::ProfileSource watch(EngineOptions& options, Instance& instance) {
  auto watching = std::make_shared<ProfilingBackend*>(nullptr);
  options.decorate = [&instance, watching](std::unique_ptr<Backend> backend) -> std::unique_ptr<Backend> {
    instance.profile.emplace(*backend);
    auto watched = std::make_unique<ProfilingBackend>(std::move(backend), &*instance.profile, nullptr);
    *watching = watched.get();
    return watched;
  };
  const auto share = [&instance, watching](Phase phase) {
    const auto held = (*watching)->hold();
    const PhaseTotals& totals = instance.profile->phase(phase);
    return totals.steps == 0 ? 0 : totals.least_us() / totals.wall_us();
  };
  return {.json =
              [&instance, watching] {
                const auto held = (*watching)->hold();
                return instance.profile->json();
              },
          .prefill_share = [share] { return share(Phase::prefill); },
          .decode_share = [share] { return share(Phase::decode); }};
}

// Calls `use` with the file, which has the other chat template where there is one.
template <typename Use>
auto with_file(const NamedModel& model, const std::string& chat_template, const Use& use) {
  const AnyModelFile file = open_model(model.path);
  if (chat_template.empty()) return use(static_cast<const ModelFile&>(file));
  const FileWithTemplate with_template(file, chat_template);
  return use(static_cast<const ModelFile&>(with_template));
}

serve::LoadedModel load(const NamedModel& model, const ModelSettings& settings, const OnProgress& on_progress) {
  auto instance = std::make_shared<Instance>();
  EngineOptions options = engine_options(settings.load);
  options.on_progress = on_progress;
  options.page_folder = settings.cache_folder;
  options.page_folder_bytes = settings.cache_bytes;
  serve::LoadedModel loaded;
  if (settings.measure) loaded.profile = watch(options, *instance);
  instance->engine = with_file(model, settings.chat_template,
                               [&](const ModelFile& file) { return std::make_unique<Engine>(file, options); });
  // A template that does not compile is found now, not by the first client.
  const Tokenizer* tokenizer = instance->engine->tokenizer();
  if (!settings.chat_template.empty() && tokenizer != nullptr) (void)ChatFormat::from_tokenizer(*tokenizer);
  loaded.engine = {instance, instance->engine.get()};
  return loaded;
}

serve::ModelSource::Load loader(const NamedModel& model, ModelSettings settings) {
  settings.load.on_info = {};  // said once is enough
  return [model, settings](const std::atomic<bool>& cancelled) {
    return load(model, settings, [&cancelled](uint64_t /*done*/, uint64_t /*total*/) {
      if (cancelled) fail("the server is shutting down");
    });
  };
}

// Of a model on a backend that reserves memory and computes nothing.
serve::ModelFacts planned_facts(const ModelFile& file, EngineOptions options) {
  DryBackend* dry = nullptr;
  options.on_progress = {};
  options.on_info = {};
  options.check_memory = false;
  options.ranks = nullptr;
  options.decorate = [&](std::unique_ptr<Backend> backend) -> std::unique_ptr<Backend> {
    auto made = std::make_unique<DryBackend>(std::move(backend));
    dry = made.get();
    return made;
  };
  Engine engine(file, options);
  serve::ModelFacts facts = serve::facts_of(engine);
  facts.on_device = !dry->like().cpu_numerics();
  facts.memory_bytes = facts.weight_bytes + dry->allocated();
  return facts;
}

// What only the command line knows of it.
serve::ModelFacts named(serve::ModelFacts facts, const NamedModel& model, const ModelSettings& settings) {
  facts.file = std::filesystem::path(model.path).filename().string();
  facts.thinks = settings.thinks;
  return facts;
}

}  // namespace

NamedModel parse_named_model(const std::string& argument) {
  const size_t equals = argument.find('=');
  const bool is_named =
      equals != std::string::npos && equals > 0 && argument.find('/') > equals && !std::filesystem::exists(argument);
  if (is_named) {
    if (equals + 1 == argument.size()) fail_usage("\"{}\" names no file after the =", argument);
    return {.name = argument.substr(0, equals), .path = argument.substr(equals + 1)};
  }
  if (argument.empty()) return {.name = "builtin", .path = ""};
  const std::filesystem::path file = std::filesystem::path(argument).filename();
  return {.name = file.extension() == ".gguf" ? file.stem().string() : file.string(), .path = argument};
}

serve::ModelSource loaded_model(const NamedModel& model, const ModelSettings& settings) {
  serve::LoadedModel loaded = load(model, settings, settings.load.on_progress);
  serve::ModelFacts facts = named(serve::facts_of(*loaded.engine), model, settings);
  return {.name = model.name, .facts = std::move(facts), .load = loader(model, settings), .loaded = std::move(loaded)};
}

serve::ModelSource model_on_demand(const NamedModel& model, const ModelSettings& settings) {
  serve::ModelFacts facts = with_file(model, settings.chat_template, [&](const ModelFile& file) {
    return planned_facts(file, engine_options(settings.load));
  });
  return {.name = model.name, .facts = named(std::move(facts), model, settings), .load = loader(model, settings)};
}

}  // namespace inferno::cli
