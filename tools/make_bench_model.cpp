// make_bench_model: model files with random weights in the shapes of well-known models, for benchmarks.
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/standard_streams.h"
#include "base/text.h"
#include "cli/progress_bar.h"
#include "gguf/writer.h"
#include "model/weight_types.h"
#include "synthetic/synthetic_model.h"

namespace inferno {
namespace {

// Returns the size of the file.
uint64_t write_model(const SyntheticModel& model, const std::string& output, bool weights, bool quiet) {
  GgufWriter writer(output);
  for (const MetadataEntry& entry : model.metadata()) writer.set(entry.key, entry.value);
  for (size_t i = 0; i < model.tensor_count(); ++i) {
    const FileTensor& tensor = model.tensor(i);
    writer.add_tensor(tensor.name, *tensor.dtype, tensor.shape);
  }
  if (!weights) {
    writer.skip_data();
    return writer.finish();
  }
  const OnProgress on_progress = cli::draw_progress(fmt::format("writing {}", model.path()), quiet);
  ProgressCounter progress(on_progress, model.file_bytes());
  constexpr uint64_t kPieceBytes = uint64_t{1} << 20;
  std::vector<std::byte> piece;
  for (size_t i = 0; i < model.tensor_count(); ++i) {
    const FileTensor& tensor = model.tensor(i);
    for (uint64_t begin = 0; begin < tensor.bytes; begin += kPieceBytes) {
      piece.resize(std::min(kPieceBytes, tensor.bytes - begin));
      model.read_tensor(tensor, piece, begin);
      writer.write_data(piece);
      progress.advance(piece.size());
    }
  }
  return writer.finish();
}

int run(int argc, char** argv) {
  std::string shape, type, output;
  uint64_t seed = 1;
  bool no_weights = false;
  bool quiet = false;
  CLI::App app{"make_bench_model writes a GGUF file with random weights in the shape of a well-known model."};
  app.footer("Shapes: " + model_shape_names() + "\nTypes: " + weight_type_names() +
             "\nExample:\n  make_bench_model qwen3-0.6b Q4_K_M qwen3-0.6b-q4_k_m.gguf");
  app.add_option("shape", shape, "the model whose shape the file has")->required();
  app.add_option("type", type, "type of the matrices, or a mix")->required();
  app.add_option("output", output, "the .gguf file to write")->required();
  app.add_option("--seed", seed, "another seed gives other weights");
  app.add_flag("--no-weights", no_weights, "zeros that take no space instead, for inferno plan and inspect");
  app.add_flag("--quiet", quiet, "no progress");
  CLI11_PARSE(app, argc, argv);
  const uint64_t size = write_model(SyntheticModel(find_model_shape(shape), type, seed), output, !no_weights, quiet);
  if (!quiet) inferno::print_stderr("{}: {}\n", output, format_bytes(size));
  return 0;
}

}  // namespace
}  // namespace inferno

int main(int argc, char** argv) {
  try {
    return inferno::run(argc, argv);
  } catch (const inferno::Error& error) {
    inferno::print_stderr("make_bench_model: error: {}\n", error.what());
    return error.kind() == inferno::Error::Kind::usage ? 2 : 1;
  } catch (const std::exception& error) {
    inferno::print_stderr("make_bench_model: error: {}\n", error.what());
    return 1;
  }
}
