// inferno inspect: what is in a file, without loading it.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/text.h"
#include "cli/cli.h"
#include "inferno/tools.h"

namespace inferno::cli {
namespace {

using Json = nlohmann::ordered_json;

// Files may hold any bytes in a string; JSON holds only UTF-8.
std::string as_utf8(std::string_view text) {
  return is_valid_utf8(text) ? std::string(text) : printable(text, text.size() * 4);
}

Json to_json(const MetadataItem& item) {
  return std::visit(
      [](const auto& value) -> Json {
        if constexpr (std::is_same_v<std::decay_t<decltype(value)>, std::string>) {
          return as_utf8(value);
        } else {
          return value;
        }
      },
      item);
}

// Long arrays (vocabularies) are given by their length and first items.
Json to_json(const MetadataInfo& entry) {
  if (!entry.length) return to_json(entry.items.front());
  Json items = Json::array();
  for (const MetadataItem& item : entry.items) items.push_back(to_json(item));
  return {{"length", *entry.length}, {"items", items}};
}

void print_json(const ModelInfo& info) {
  Json out;
  out["path"] = as_utf8(info.path);
  out["version"] = info.gguf_version;
  out["parts"] = info.parts;
  out["file_bytes"] = info.file_bytes;
  out["parameters"] = info.parameters;
  out["active_parameters"] = info.active_parameters;
  out["recurrent_layers"] = info.recurrent_layers;
  out["state_bytes"] = info.state_bytes;
  out["metadata"] = Json::object();
  for (const MetadataInfo& entry : info.metadata) out["metadata"][entry.key] = to_json(entry);
  out["tensors"] = Json::array();
  for (const TensorInfo& tensor : info.tensors) {
    out["tensors"].push_back({{"name", tensor.name},
                              {"type", tensor.type},
                              {"shape", tensor.shape},
                              {"bytes", tensor.bytes},
                              {"computable", tensor.computable}});
  }
  write_stdout(out.dump(1) + "\n");
}

void print_text(const ModelInfo& info) {
  const std::string format =
      info.gguf_version == 0 ? "Hugging Face folder" : fmt::format("GGUF version {}", info.gguf_version);
  write_stdout(fmt::format("{}: {}, {} in {} part{}, {} metadata keys, {} tensors\n\n", printable(info.path, 4096),
                           format, format_bytes(info.file_bytes), info.parts, info.parts == 1 ? "" : "s",
                           info.metadata.size(), info.tensors.size()));
  size_t width = 0;
  for (const MetadataInfo& entry : info.metadata) width = std::max(width, entry.key.size());
  for (const MetadataInfo& entry : info.metadata) {
    write_stdout(fmt::format("  {:<{}}  {:<15} {}\n", entry.key, width, entry.type, entry.value));
  }
  if (info.experts > 0) {
    write_stdout(fmt::format("\n  {} of {} experts: a token is computed with {} of {} parameters\n", info.experts_used,
                             info.experts, info.active_parameters, info.parameters));
  }
  if (info.recurrent_layers > 0) {
    write_stdout(fmt::format("\n  {} of {} layers keep a state in place of keys and values: {} for each sequence\n",
                             info.recurrent_layers, info.layers, format_bytes(info.state_bytes)));
  }
  width = 0;
  for (const TensorInfo& tensor : info.tensors) width = std::max(width, tensor.name.size());
  write_stdout("\n");
  for (const TensorInfo& tensor : info.tensors) {
    write_stdout(fmt::format("  {:<{}}  {:<8} {:<16} {:>10}{}\n", tensor.name, width, tensor.type,
                             fmt::format("[{}]", fmt::join(tensor.shape, ",")), format_bytes(tensor.bytes),
                             tensor.computable ? "" : "  (inferno cannot compute with this type)"));
  }
  write_stdout("\n");
  for (const TensorTypeTotal& total : info.types) {
    write_stdout(fmt::format("  {:<8} {:>5} tensors  {:>10}\n", total.type, total.tensors, format_bytes(total.bytes)));
  }
}

}  // namespace

void add_inspect(CLI::App& app) {
  struct Command {
    std::string model;
    bool json = false;
  };
  auto command = std::make_shared<Command>();
  CLI::App* sub = app.add_subcommand("inspect", "metadata, tensors and sizes of a file; checks it without loading it");
  sub->add_option("model", command->model, "a .gguf file or a Hugging Face folder (default: the built-in model)");
  sub->add_flag("--json", command->json, "as JSON");
  sub->callback([command] {
    const ModelInfo info = inspect_model(command->model);
    if (command->json) {
      print_json(info);
    } else {
      print_text(info);
    }
  });
}

}  // namespace inferno::cli
