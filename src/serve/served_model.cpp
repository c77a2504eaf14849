#include "serve/served_model.h"

#include <optional>
#include <utility>

#include "tokenizer/tokenizer.h"

namespace inferno::serve {
namespace {

CompletionLimits limits_of(const ModelFacts& facts) {
  return {.context = facts.context, .has_template = !facts.chat_template.empty(), .thinks = facts.thinks};
}

}  // namespace

ModelFacts facts_of(Engine& engine) {
  const Tokenizer* tokenizer = engine.tokenizer();
  const auto text = [&](std::optional<int32_t> id) { return id ? std::string(tokenizer->piece(*id)) : std::string(); };
  ModelFacts facts{.config = engine.model().config(),
                   .context = engine.context(),
                   .slots = engine.makes_text() ? engine.decoder().limits().max_sequences : 0,
                   .weight_bytes = engine.model().weight_bytes(),
                   .memory_bytes = engine.model().weight_bytes() + (engine.makes_text() ? engine.cache().bytes() : 0),
                   .on_device = !engine.backend().cpu_numerics()};
  if (tokenizer != nullptr) {
    facts.chat_template = tokenizer->chat_template();
    facts.bos = text(tokenizer->bos());
    facts.eos = text(tokenizer->eos());
  }
  return facts;
}

ServedModel::ServedModel(ModelSource source)
    : name(std::move(source.name)),
      facts(std::move(source.facts)),
      limits(limits_of(facts)),
      load(std::move(source.load)),
      state(source.loaded.engine != nullptr ? State::loaded : State::unloaded),
      loaded(std::move(source.loaded)) {}

}  // namespace inferno::serve
