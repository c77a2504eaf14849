#include "model/quantize_model.h"

#include <fmt/core.h>

#include <algorithm>
#include <span>

#include "base/error.h"
#include "base/file.h"
#include "base/progress.h"
#include "gguf/writer.h"
#include "model/imatrix.h"
#include "model/quantize_plan.h"
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
  int64_t first_row;             // of the tensor
  std::span<const float> means;  // (matrices, cols), or empty
  int64_t rows_per_matrix;
};

void convert_rows(int ith, int nth, void* context) {
  const RowJob& job = *static_cast<const RowJob*>(context);
  float* values = job.values + ith * job.cols;
  const int64_t in_bytes = row_bytes(job.from, job.cols);
  const int64_t out_bytes = row_bytes(job.to, job.cols);
  for (int64_t r = job.rows * ith / nth; r < job.rows * (ith + 1) / nth; ++r) {
    const int64_t matrix = (job.first_row + r) / job.rows_per_matrix;
    const float* importance = job.means.empty() ? nullptr : job.means.data() + matrix * job.cols;
    dequantize_row(job.from, job.in + r * in_bytes, values, job.cols);
    quantize_row(job.to, values, job.out + r * out_bytes, job.cols, importance);
  }
}

void write_tensor(const ModelFile& input, const PlannedTensor& target, std::span<const float> means, GgufWriter& writer,
                  ThreadPool& pool, ProgressCounter& progress) {
  const FileTensor& tensor = *target.tensor;
  const int64_t cols = tensor.shape.cols();
  const int64_t rows = tensor.shape.rows();
  const int64_t in_bytes = row_bytes(*tensor.dtype, cols);
  const int64_t out_bytes = row_bytes(target.dtype, cols);
  const int64_t piece = std::clamp<int64_t>(kPieceValues / cols, 1, rows);
  const int64_t matrices = std::max<int64_t>(1, static_cast<int64_t>(means.size()) / cols);
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
      RowJob job{in.data(), values.data(), out.data(), *tensor.dtype, target.dtype,
                 count,     cols,          first,      means,         rows / matrices};
      pool.dispatch(convert_rows, &job);
      writer.write_data(to);
    }
    progress.advance(static_cast<uint64_t>(count * in_bytes));
  }
}

void set_metadata(const ModelFile& input, std::string_view type, const QuantizeOptions& options, GgufWriter& writer) {
  for (const MetadataEntry& entry : input.metadata()) {
    // The result is one file whatever the input was.
    if (entry.key == "general.file_type" || entry.key.starts_with("split.") ||
        entry.key.starts_with("quantize.imatrix.")) {
      continue;
    }
    writer.set(entry.key, entry.value);
  }
  writer.set("general.file_type", MetadataValue(gguf_file_type(type)));
  if (!options.imatrix.empty())
    writer.set("quantize.imatrix.file", MetadataValue(options.imatrix.substr(options.imatrix.find_last_of('/') + 1)));
}

// The importances of all tensors, checked before anything is written: (matrices, cols) of each, or empty.
std::vector<std::vector<float>> find_means(const QuantizePlan& plan, const QuantizeOptions& options,
                                           QuantizeReport& report) {
  std::vector<std::vector<float>> means(plan.tensors.size());
  if (options.imatrix.empty()) return means;
  const Imatrix imatrix = Imatrix::read(options.imatrix);
  size_t found = 0;
  size_t missing = 0;
  for (size_t i = 0; i < means.size(); ++i) {
    const PlannedTensor& target = plan.tensors[i];
    if (!is_quantized(target.dtype)) continue;
    means[i] = imatrix.means(target.tensor->name, target.tensor->shape);
    (means[i].empty() ? missing : found) += layer_of_tensor(target.tensor->name) ? 1 : 0;
  }
  if (found == 0) fail("\"{}\" names none of the model's tensors: it was made with another model", options.imatrix);
  if (missing > 0) {
    report.warnings.push_back(
        fmt::format("the imatrix lacks {} of {} tensors: their values count alike", missing, missing + found));
  }
  return means;
}

// input_bytes: of all tensors.
void add_warnings(const QuantizePlan& plan, uint64_t input_bytes, QuantizeReport& report) {
  if (plan.from_quantized) {
    report.warnings.emplace_back(
        "the input is quantized already: errors add up; a file in F32, F16 or BF16 gives a better result");
  }
  uint64_t output_bytes = 0;
  for (const TensorTypeTotal& type : report.types) output_bytes += type.bytes;
  if (output_bytes > input_bytes) report.warnings.emplace_back("the result is larger than the input");
}

}  // namespace

QuantizeReport quantize_model(const ModelFile& input, const std::string& output, std::string_view type,
                              const QuantizeOptions& options) {
  if (options.threads < 0) fail_usage("`threads` is {}; give 1 or more, or 0 for the default", options.threads);
  const std::string_view name = weight_type_name(type);
  for (const std::string& part : input.files()) {
    if (same_file(part, output)) fail_usage("\"{}\" is the input itself; name another file", output);
  }
  QuantizePlan plan = plan_quantize(input, name, options);
  QuantizeReport report;
  report.bytes_in = input.file_bytes();
  report.fallbacks = std::move(plan.fallbacks);
  const std::vector<std::vector<float>> means = find_means(plan, options, report);

  uint64_t total = 0;
  GgufWriter writer(output);
  set_metadata(input, name, options, writer);
  for (const auto& [tensor, dtype] : plan.tensors) {
    writer.add_tensor(tensor->name, dtype, tensor->shape);
    count_tensor(dtype_name(dtype),
                 static_cast<uint64_t>(tensor->shape.rows() * row_bytes(dtype, tensor->shape.cols())), report.types);
    total += tensor->bytes;
  }
  ThreadPool pool({.threads = options.threads});
  ProgressCounter progress(options.on_progress, total);
  for (size_t i = 0; i < plan.tensors.size(); ++i) {
    write_tensor(input, plan.tensors[i], means[i], writer, pool, progress);
  }
  report.bytes_out = writer.finish();
  add_warnings(plan, total, report);
  return report;
}

}  // namespace inferno
