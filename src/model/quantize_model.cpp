#include "model/quantize_model.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <optional>

#include "base/error.h"
#include "base/progress.h"
#include "base/text.h"
#include "gguf/writer.h"
#include "model/tensor_names.h"
#include "quant/quant.h"
#include "threading/thread_pool.h"

namespace inferno {
namespace {

// Rows are converted in pieces of about this many values.
constexpr int64_t kPieceValues = int64_t{1} << 21;

struct Recipe {
  std::string_view name;
  DType base;
  std::optional<DType> better;  // a mix: for the tensors that suffer most
  uint32_t file_type;           // general.file_type, as other programs number it
};

constexpr std::array<Recipe, 15> kRecipes = {{
    {"F32", DType::f32, {}, 0},
    {"F16", DType::f16, {}, 1},
    {"BF16", DType::bf16, {}, 32},
    {"Q8_0", DType::q8_0, {}, 7},
    {"Q4_0", DType::q4_0, {}, 2},
    {"Q4_1", DType::q4_1, {}, 3},
    {"Q5_0", DType::q5_0, {}, 8},
    {"Q5_1", DType::q5_1, {}, 9},
    {"Q2_K", DType::q2_k, {}, 10},
    {"Q3_K", DType::q3_k, {}, 12},
    {"Q4_K", DType::q4_k, {}, 14},
    {"Q5_K", DType::q5_k, {}, 16},
    {"Q6_K", DType::q6_k, {}, 18},
    {"Q4_K_M", DType::q4_k, DType::q6_k, 15},
    {"Q5_K_M", DType::q5_k, DType::q6_k, 17},
}};

const Recipe& find_recipe(std::string_view name) {
  std::string upper;
  for (const char c : trim(name)) upper.push_back(static_cast<char>(std::toupper(static_cast<unsigned char>(c))));
  for (const Recipe& recipe : kRecipes) {
    if (recipe.name == upper) return recipe;
  }
  fail_usage("\"{}\" is not a type to quantize to (known: {})", printable(name), quantize_type_names());
}

// The mixes spend their better type on the output head, and on values and down projections of the first and last
// eighth of the layers and every third between: there errors cost most.
DType choose(const Recipe& recipe, std::string_view name, bool tied, int32_t layers) {
  if (!recipe.better) return recipe.base;
  if (name == "output.weight" || (tied && name == "token_embd.weight")) return *recipe.better;
  const std::optional<int32_t> layer = layer_of_tensor(name);
  if (!layer || !(name.ends_with("attn_v.weight") || name.ends_with("ffn_down.weight"))) return recipe.base;
  const int32_t eighth = layers / 8;
  const bool more = *layer < eighth || *layer >= 7 * layers / 8 || (*layer - eighth) % 3 == 2;
  return more ? *recipe.better : recipe.base;
}

// What takes the place of a type whose blocks do not fit the row.
DType fallback(DType wanted, int64_t cols) {
  const auto fits = [&](DType type) { return cols % dtype_info(type).block_size == 0; };
  if (fits(wanted)) return wanted;
  DType next = DType::f16;
  switch (wanted) {
    case DType::q2_k:
    case DType::q3_k:
    case DType::q4_k:
      next = DType::q5_0;
      break;
    case DType::q5_k:
      next = DType::q5_1;
      break;
    case DType::q6_k:
      next = DType::q8_0;
      break;
    default:
      break;
  }
  return fits(next) ? next : DType::f16;
}

struct RowJob {
  const std::byte* in;
  float* values;  // (threads, cols)
  std::byte* out;
  DType from, to;
  int64_t rows, cols;
};

void convert_rows(int ith, int nth, void* context) {
  const RowJob& job = *static_cast<const RowJob*>(context);
  float* values = job.values + ith * job.cols;
  const int64_t in_bytes = row_bytes(job.from, job.cols);
  const int64_t out_bytes = row_bytes(job.to, job.cols);
  for (int64_t r = job.rows * ith / nth; r < job.rows * (ith + 1) / nth; ++r) {
    dequantize_row(job.from, job.in + r * in_bytes, values, job.cols);
    quantize_row(job.to, values, job.out + r * out_bytes, job.cols);
  }
}

struct Target {
  const GgufTensor* tensor;
  DType dtype;
};

void write_tensor(const GgufFile& input, const Target& target, GgufWriter& writer, ThreadPool& pool,
                  Progress& progress) {
  const GgufTensor& tensor = *target.tensor;
  const int64_t cols = tensor.shape.cols();
  const int64_t rows = tensor.shape.rows();
  const int64_t in_bytes = row_bytes(*tensor.dtype, cols);
  const int64_t out_bytes = row_bytes(target.dtype, cols);
  const int64_t piece = std::clamp<int64_t>(kPieceValues / cols, 1, rows);
  std::vector<std::byte> in(static_cast<size_t>(piece * in_bytes));
  std::vector<std::byte> out(static_cast<size_t>(piece * out_bytes));
  std::vector<float> values(static_cast<size_t>(pool.threads() * cols));
  for (int64_t first = 0; first < rows; first += piece) {
    const int64_t count = std::min(piece, rows - first);
    const auto from = std::span(in).first(static_cast<size_t>(count * in_bytes));
    const auto to = std::span(out).first(static_cast<size_t>(count * out_bytes));
    input.read_tensor(tensor, from, static_cast<uint64_t>(first * in_bytes));
    if (target.dtype == *tensor.dtype) {
      writer.write_data(from);
    } else {
      RowJob job{in.data(), values.data(), out.data(), *tensor.dtype, target.dtype, count, cols};
      pool.dispatch(convert_rows, &job);
      writer.write_data(to);
    }
    progress.advance(static_cast<uint64_t>(count * in_bytes));
  }
}

}  // namespace

std::string quantize_type_names() {
  std::string names;
  for (const Recipe& recipe : kRecipes) names += fmt::format("{}{}", names.empty() ? "" : ", ", recipe.name);
  return names;
}

WeightType choose_weight_type(std::string_view type, std::string_view tensor, const Shape& shape, bool tied,
                              int32_t layers) {
  const DType wanted = choose(find_recipe(type), tensor, tied, layers);
  return {fallback(wanted, shape.cols()), wanted};
}

uint32_t gguf_file_type(std::string_view type) {
  return find_recipe(type).file_type;
}

std::string_view file_type_name(uint64_t file_type) {
  for (const Recipe& recipe : kRecipes) {
    if (recipe.file_type == file_type) return recipe.name;
  }
  return {};
}

QuantizeReport quantize_model(const GgufFile& input, const std::string& output, std::string_view type, int threads,
                              bool quiet) {
  const Recipe& recipe = find_recipe(type);
  for (size_t part = 0; part < input.part_count(); ++part) {
    if (same_file(input.part_path(part), output)) fail_usage("\"{}\" is the input itself; name another file", output);
  }
  QuantizeReport report;
  report.bytes_in = input.file_bytes();
  const bool tied = input.find_tensor("output.weight") == nullptr;
  int32_t layers = 0;
  for (const GgufTensor& tensor : input.tensors())
    layers = std::max(layers, layer_of_tensor(tensor.name).value_or(-1) + 1);

  std::vector<Target> targets;
  uint64_t total = 0;
  for (const GgufTensor& tensor : input.tensors()) {
    if (!tensor.dtype) {
      fail("\"{}\": tensor {} is stored as {}, which inferno cannot read (supported: {})", input.path(), tensor.name,
           tensor.type->name, weight_dtype_names());
    }
    DType dtype = *tensor.dtype;
    const bool matrix = tensor.shape.rank >= 2 && dtype != DType::i32;
    if (matrix) {
      const auto [chosen, wanted] = choose_weight_type(recipe.name, tensor.name, tensor.shape, tied, layers);
      dtype = chosen;
      if (dtype != wanted) {
        report.fallbacks.push_back(fmt::format("{}: rows of {} do not divide by {}: {} instead of {}", tensor.name,
                                               tensor.shape.cols(), dtype_info(wanted).block_size, dtype_name(dtype),
                                               dtype_name(wanted)));
      }
    }
    targets.push_back({&tensor, dtype});
    total += tensor.bytes;
  }

  GgufWriter writer(output);
  for (const MetadataEntry& entry : input.metadata()) {
    // The result is one file whatever the input was.
    if (entry.key == "general.file_type" || entry.key.starts_with("split.")) continue;
    writer.set(entry.key, entry.value);
  }
  writer.set("general.file_type", MetadataValue(recipe.file_type));
  for (const Target& target : targets) writer.add_tensor(target.tensor->name, target.dtype, target.tensor->shape);

  ThreadPool pool({.threads = threads});
  Progress progress(fmt::format("quantizing to {}", recipe.name), total, quiet);
  for (const Target& target : targets) write_tensor(input, target, writer, pool, progress);
  report.bytes_out = writer.finish();
  return report;
}

}  // namespace inferno
