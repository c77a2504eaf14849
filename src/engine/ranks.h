// An engine over several ranks: the leader's tells the others what to load and which steps to run; what they cannot do
// becomes the leader's Error.
//
// Every rank makes its engine by the same code. Between its parts the ranks agree: where one of them failed, all give
// up, and each throws an Error, the leader one that names the rank.
#pragma once

#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "comm/rank_messages.h"
#include "engine/engine.h"

namespace inferno {

// On the leader, before anything is made.
void announce_engine(RankMessages& messages, const ModelFile& file, const EngineOptions& options);

// Keeps the ranks to one engine while it is held; an Error when another one has them.
[[nodiscard]] std::shared_ptr<void> occupy(Communicator& ranks);

// Runs a part of the work on this rank and waits for the others'. Without ranks, or with one: runs it.
void together(Communicator* ranks, const std::function<void()>& part);
// The least of all ranks' values.
[[nodiscard]] int32_t least_of_ranks(Communicator* ranks, int32_t value);

// A .gguf file, or the built-in model.
[[nodiscard]] std::unique_ptr<ModelFile> open_named_model(const std::string& path);
// Opens what the leader names.
using ModelOpener = std::function<std::unique_ptr<ModelFile>(const std::string& path)>;
// What a rank other than the leader does: makes the engines that the leader makes, and runs their steps, until the
// leader says that the program ends. Nothing is printed. False: a rank failed (Communicator::failure).
[[nodiscard]] bool follow_leader(Communicator& ranks, const ModelOpener& open = open_named_model);
// On the leader, at the end.
void dismiss_followers(Communicator& ranks);

// Metadata, tensors, and some bytes of each: enough to tell files apart without reading them.
[[nodiscard]] uint64_t file_mark(const ModelFile& file);

}  // namespace inferno
