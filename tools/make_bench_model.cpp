// make_bench_model: model files with random weights in the shapes of well-known models, for benchmarks.
//
// Every matrix row is drawn block by block from a pool of quantized random blocks of its type, so that a file takes
// about as long as writing it, and no two rows are equal. The vocabulary is the 256 bytes and names nobody types.
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <map>
#include <numbers>
#include <random>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/progress.h"
#include "base/text.h"
#include "gguf/writer.h"
#include "model/quantize_model.h"
#include "quant/quant.h"

namespace inferno {
namespace {

struct ModelShape {
  std::string_view name;
  std::string_view architecture;
  std::string_view pre_tokenizer;
  uint32_t layers, width, ffn, q_heads, kv_heads, head_dim, vocabulary, context;
  float rope_base, norm_eps;
  bool tied, qkv_bias, qk_norm, rope_factors;
};

constexpr std::array<ModelShape, 5> kShapes = {{
    {"qwen3-0.6b", "qwen3", "qwen2", 28, 1024, 3072, 16, 8, 128, 151936, 40960, 1e6F, 1e-6F, true, false, true, false},
    {"qwen3-1.7b", "qwen3", "qwen2", 28, 2048, 6144, 16, 8, 128, 151936, 40960, 1e6F, 1e-6F, true, false, true, false},
    {"qwen3-8b", "qwen3", "qwen2", 36, 4096, 12288, 32, 8, 128, 151936, 40960, 1e6F, 1e-6F, false, false, true, false},
    {"qwen2-0.5b", "qwen2", "qwen2", 24, 896, 4864, 14, 2, 64, 151936, 32768, 1e6F, 1e-6F, true, true, false, false},
    {"llama-3.2-1b", "llama", "llama-bpe", 16, 2048, 8192, 32, 8, 64, 128256, 131072, 5e5F, 1e-5F, true, false, false,
     true},
}};

std::string shape_names() {
  std::string names;
  for (const ModelShape& shape : kShapes) names += fmt::format("{}{}", names.empty() ? "" : ", ", shape.name);
  return names;
}

const ModelShape& find_shape(std::string_view name) {
  for (const ModelShape& shape : kShapes) {
    if (shape.name == name) return shape;
  }
  fail_usage("\"{}\" is not a known shape (known: {})", printable(name), shape_names());
}

// The 256 bytes as byte-level vocabularies spell them: printable ones as themselves, the rest from U+0100 on.
std::string spell_byte(int byte) {
  static const std::array<int, 256> kCodePoints = [] {
    std::array<int, 256> points{};
    int next = 256;
    for (int b = 0; b < 256; ++b) {
      const bool itself = (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
      points[static_cast<size_t>(b)] = itself ? b : next++;
    }
    return points;
  }();
  const int point = kCodePoints[static_cast<size_t>(byte)];
  if (point < 0x80) return std::string(1, static_cast<char>(point));
  return {static_cast<char>(0xC0 | (point >> 6)), static_cast<char>(0x80 | (point & 0x3F))};
}

void set_vocabulary(GgufWriter& writer, const ModelShape& shape) {
  constexpr int32_t kNormal = 1;
  constexpr int32_t kControl = 3;
  std::vector<std::string> tokens;
  for (int byte = 0; byte < 256; ++byte) tokens.push_back(spell_byte(byte));
  tokens.emplace_back("th");  // so that the list of merges is not empty, which some programs refuse
  while (tokens.size() + 1 < shape.vocabulary) tokens.push_back(fmt::format("unused_{}", tokens.size()));
  tokens.emplace_back("<|endoftext|>");
  std::vector<int32_t> types(tokens.size(), kNormal);
  types.back() = kControl;
  const auto end = static_cast<uint32_t>(tokens.size() - 1);
  writer.set("tokenizer.ggml.model", MetadataValue("gpt2"));
  writer.set("tokenizer.ggml.pre", MetadataValue(std::string(shape.pre_tokenizer)));
  writer.set("tokenizer.ggml.tokens", MetadataValue(MetadataArray{StringList(tokens)}));
  writer.set("tokenizer.ggml.token_type", MetadataValue(MetadataArray{types}));
  writer.set("tokenizer.ggml.merges", MetadataValue(MetadataArray{StringList({"t h"})}));
  writer.set("tokenizer.ggml.eos_token_id", MetadataValue(end));
  writer.set("tokenizer.ggml.bos_token_id", MetadataValue(end));
  writer.set("tokenizer.ggml.add_bos_token", MetadataValue(false));
}

void set_config(GgufWriter& writer, const ModelShape& shape, std::string_view type) {
  const std::string prefix = std::string(shape.architecture) + ".";
  const auto number = [&](const char* key, uint32_t value) { writer.set(prefix + key, MetadataValue(value)); };
  writer.set("general.architecture", MetadataValue(std::string(shape.architecture)));
  writer.set("general.name", MetadataValue(fmt::format("{} with random weights", shape.name)));
  writer.set("general.file_type", MetadataValue(gguf_file_type(type)));
  number("block_count", shape.layers);
  number("context_length", shape.context);
  number("embedding_length", shape.width);
  number("feed_forward_length", shape.ffn);
  number("attention.head_count", shape.q_heads);
  number("attention.head_count_kv", shape.kv_heads);
  number("attention.key_length", shape.head_dim);
  number("attention.value_length", shape.head_dim);
  number("rope.dimension_count", shape.head_dim);
  number("vocab_size", shape.vocabulary);
  writer.set(prefix + "attention.layer_norm_rms_epsilon", MetadataValue(shape.norm_eps));
  writer.set(prefix + "rope.freq_base", MetadataValue(shape.rope_base));
}

// Users' files of fewer than six bits keep the output head in six.
std::string_view type_of(std::string_view type, std::string_view tensor, bool tied) {
  const bool head = tensor == "output.weight" || (tied && tensor == "token_embd.weight");
  const bool few_bits = type.size() > 1 && (type[0] == 'Q' || type[0] == 'q') && type[1] < '6';
  return head && few_bits ? "Q6_K" : type;
}

struct TensorSpec {
  enum class Kind : uint8_t { matrix, norm, bias, rope_factors };
  std::string name;
  Shape shape;
  Kind kind;
  DType dtype;
};

std::vector<TensorSpec> list_tensors(const ModelShape& m, std::string_view type) {
  using Kind = TensorSpec::Kind;
  std::vector<TensorSpec> list;
  const auto vector = [&](std::string name, int64_t n, Kind kind) {
    list.push_back({std::move(name), Shape(n), kind, DType::f32});
  };
  const auto matrix = [&](std::string name, int64_t rows, int64_t cols) {
    const Shape shape(rows, cols);
    const DType dtype = choose_weight_type(type_of(type, name, m.tied), name, shape, m.tied, m.layers).dtype;
    list.push_back({std::move(name), shape, Kind::matrix, dtype});
  };
  const int64_t q = int64_t{m.q_heads} * m.head_dim;
  const int64_t kv = int64_t{m.kv_heads} * m.head_dim;
  matrix("token_embd.weight", m.vocabulary, m.width);
  if (m.rope_factors) vector("rope_freqs.weight", m.head_dim / 2, Kind::rope_factors);
  for (uint32_t i = 0; i < m.layers; ++i) {
    const auto name = [&](const char* part) { return fmt::format("blk.{}.{}", i, part); };
    vector(name("attn_norm.weight"), m.width, Kind::norm);
    matrix(name("attn_q.weight"), q, m.width);
    matrix(name("attn_k.weight"), kv, m.width);
    matrix(name("attn_v.weight"), kv, m.width);
    if (m.qkv_bias) {
      vector(name("attn_q.bias"), q, Kind::bias);
      vector(name("attn_k.bias"), kv, Kind::bias);
      vector(name("attn_v.bias"), kv, Kind::bias);
    }
    if (m.qk_norm) {
      vector(name("attn_q_norm.weight"), m.head_dim, Kind::norm);
      vector(name("attn_k_norm.weight"), m.head_dim, Kind::norm);
    }
    matrix(name("attn_output.weight"), m.width, q);
    vector(name("ffn_norm.weight"), m.width, Kind::norm);
    matrix(name("ffn_gate.weight"), m.ffn, m.width);
    matrix(name("ffn_up.weight"), m.ffn, m.width);
    matrix(name("ffn_down.weight"), m.width, m.ffn);
  }
  vector("output_norm.weight", m.width, Kind::norm);
  if (!m.tied) matrix("output.weight", m.vocabulary, m.width);
  return list;
}

// Blocks of one type whose values have deviation 1/sqrt(cols), so that products with unit vectors stay near 1.
class BlockPool {
 public:
  BlockPool(DType dtype, int64_t cols, std::mt19937& random) {
    // Plain types are drawn in pieces of 32 values; a power of two makes drawing a mask.
    const int values = std::max(dtype_info(dtype).block_size, 32);
    if (cols % values != 0) fail("rows of {} do not divide into blocks of {}", cols, values);
    bytes_ = static_cast<size_t>(row_bytes(dtype, values));
    blocks_per_row_ = cols / values;
    memory_.resize(kBlocks * bytes_);
    std::normal_distribution<float> normal(0, 1 / std::sqrt(static_cast<float>(cols)));
    std::vector<float> block(static_cast<size_t>(values));
    for (size_t i = 0; i < kBlocks; ++i) {
      for (float& value : block) value = normal(random);
      quantize_row(dtype, block.data(), memory_.data() + i * bytes_, values);
    }
  }

  void draw_row(std::byte* out, std::mt19937& random) const {
    for (int64_t b = 0; b < blocks_per_row_; ++b) {
      std::memcpy(out + static_cast<size_t>(b) * bytes_, memory_.data() + random() % kBlocks * bytes_, bytes_);
    }
  }

 private:
  static constexpr size_t kBlocks = 4096;
  size_t bytes_ = 0;
  int64_t blocks_per_row_ = 0;
  std::vector<std::byte> memory_;  // (kBlocks, bytes_)
};

// Llama 3's: wavelengths beyond 8192 positions are stretched 32-fold, those below 2048 not at all, smoothly between.
std::vector<float> rope_factors(const ModelShape& m, int64_t count) {
  std::vector<float> factors;
  for (int64_t i = 0; i < count; ++i) {
    const double wavelength =
        2 * std::numbers::pi * std::pow(m.rope_base, static_cast<double>(2 * i) / static_cast<double>(m.head_dim));
    const double smooth = std::clamp((8192 / wavelength - 1) / (4 - 1), 0.0, 1.0);
    factors.push_back(static_cast<float>(1 / ((1 - smooth) / 32 + smooth)));
  }
  return factors;
}

void write_vector(const TensorSpec& tensor, const ModelShape& m, GgufWriter& writer, std::mt19937& random) {
  std::vector<float> values(static_cast<size_t>(tensor.shape.cols()));
  std::normal_distribution<float> normal(0, 0.1F);
  const float mean = tensor.kind == TensorSpec::Kind::norm ? 1.0F : 0.0F;
  for (float& value : values) value = mean + normal(random);
  if (tensor.kind == TensorSpec::Kind::rope_factors) values = rope_factors(m, tensor.shape.cols());
  writer.write_data(std::as_bytes(std::span(values)));
}

void make_model(const ModelShape& m, const std::string& type, const std::string& output, uint32_t seed, bool quiet) {
  const std::vector<TensorSpec> tensors = list_tensors(m, type);
  GgufWriter writer(output);
  set_config(writer, m, type);
  set_vocabulary(writer, m);
  uint64_t total = 0;
  for (const TensorSpec& tensor : tensors) {
    writer.add_tensor(tensor.name, tensor.dtype, tensor.shape);
    total += static_cast<uint64_t>(tensor.shape.rows() * row_bytes(tensor.dtype, tensor.shape.cols()));
  }
  std::mt19937 random(seed);
  std::map<std::pair<DType, int64_t>, BlockPool> pools;
  Progress progress(fmt::format("writing {} {}", m.name, type), total, quiet);
  std::vector<std::byte> piece;
  for (const TensorSpec& tensor : tensors) {
    if (tensor.kind != TensorSpec::Kind::matrix) {
      write_vector(tensor, m, writer, random);
      continue;
    }
    const int64_t cols = tensor.shape.cols();
    const BlockPool& pool = pools.try_emplace({tensor.dtype, cols}, tensor.dtype, cols, random).first->second;
    const int64_t bytes = row_bytes(tensor.dtype, cols);
    constexpr int64_t kPieceRows = 1024;
    for (int64_t first = 0; first < tensor.shape.rows(); first += kPieceRows) {
      const int64_t rows = std::min(kPieceRows, tensor.shape.rows() - first);
      piece.resize(static_cast<size_t>(rows * bytes));
      for (int64_t r = 0; r < rows; ++r) pool.draw_row(piece.data() + r * bytes, random);
      writer.write_data(piece);
      progress.advance(piece.size());
    }
  }
  const uint64_t size = writer.finish();
  if (!quiet) fmt::print(stderr, "{}: {}\n", output, format_bytes(size));
}

int run(int argc, char** argv) {
  std::string shape, type, output;
  uint32_t seed = 1;
  bool quiet = false;
  CLI::App app{"make_bench_model writes a GGUF file with random weights in the shape of a well-known model."};
  app.footer("Shapes: " + shape_names() + "\nTypes: " + quantize_type_names() +
             "\nExample:\n  make_bench_model qwen3-0.6b Q4_K_M qwen3-0.6b-q4_k_m.gguf");
  app.add_option("shape", shape, "the model whose shape the file has")->required();
  app.add_option("type", type, "type of the matrices, or a mix")->required();
  app.add_option("output", output, "the .gguf file to write")->required();
  app.add_option("--seed", seed, "another seed gives other weights");
  app.add_flag("--quiet", quiet, "no progress");
  CLI11_PARSE(app, argc, argv);
  make_model(find_shape(shape), type, output, seed, quiet);
  return 0;
}

}  // namespace
}  // namespace inferno

int main(int argc, char** argv) {
  try {
    return inferno::run(argc, argv);
  } catch (const inferno::Error& error) {
    fmt::print(stderr, "make_bench_model: error: {}\n", error.what());
    return error.kind() == inferno::Error::Kind::usage ? 2 : 1;
  } catch (const std::exception& error) {
    fmt::print(stderr, "make_bench_model: error: {}\n", error.what());
    return 1;
  }
}
