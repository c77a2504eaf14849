#include "model/quantize_model.h"

#include <fmt/core.h>

#include <algorithm>

#include "base/error.h"
#include "gguf/writer.h"
#include "model/tensor_names.h"
#include "model/weight_types.h"
#include "quant/quant.h"
#include "threading/thread_pool.h"

namespace inferno {
namespace {

// Rows are converted in pieces of about this many values.
constexpr int64_t kPieceValues = int64_t{1} << 21;

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
                  ProgressCounter& progress) {
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

QuantizeReport quantize_model(const GgufFile& input, const std::string& output, std::string_view type, int threads,
                              const OnProgress& on_progress) {
  const std::string_view name = weight_type_name(type);
  for (size_t part = 0; part < input.part_count(); ++part) {
    if (same_file(input.part_path(part), output)) fail_usage("\"{}\" is the input itself; name another file", output);
  }
  QuantizeReport report;
  report.bytes_in = input.file_bytes();
  const bool tied = input.find_tensor(kHeadTensor) == nullptr;
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
      const auto [chosen, wanted] = choose_weight_type(name, tensor.name, tensor.shape, tied, layers);
      dtype = chosen;
      if (dtype != wanted) {
        report.fallbacks.push_back(fmt::format("{}: rows of {} do not divide by {}: {} instead of {}", tensor.name,
                                               tensor.shape.cols(), dtype_info(wanted).block_size, dtype_name(dtype),
                                               dtype_name(wanted)));
      }
    }
    targets.push_back({&tensor, dtype});
    count_tensor(dtype_name(dtype), static_cast<uint64_t>(tensor.shape.rows() * row_bytes(dtype, tensor.shape.cols())),
                 report.types);
    total += tensor.bytes;
  }

  GgufWriter writer(output);
  for (const MetadataEntry& entry : input.metadata()) {
    // The result is one file whatever the input was.
    if (entry.key == "general.file_type" || entry.key.starts_with("split.")) continue;
    writer.set(entry.key, entry.value);
  }
  writer.set("general.file_type", MetadataValue(gguf_file_type(name)));
  for (const Target& target : targets) writer.add_tensor(target.tensor->name, target.dtype, target.tensor->shape);

  ThreadPool pool({.threads = threads});
  ProgressCounter progress(on_progress, total);
  for (const Target& target : targets) write_tensor(input, target, writer, pool, progress);
  report.bytes_out = writer.finish();
  return report;
}

}  // namespace inferno
