#include "model/split.h"

#include <fmt/core.h>

#include <algorithm>
#include <numeric>
#include <string>

#include "base/error.h"
#include "model/layer_weights.h"
#include "model/tensor_names.h"

namespace inferno {
namespace {

// Rows where types do not ask for more: a vector register and a cache line of results.
constexpr int32_t kRowUnit = 32;

// Divides things among ranks by their sizes.
class Divider {
 public:
  Divider(const ModelFile& file, int ranks, std::span<const int32_t> sizes) : file_(file), ranks_(ranks) {
    if (!sizes.empty() && sizes.size() != static_cast<size_t>(ranks)) {
      fail_usage("`split` has {} sizes for {} ranks; give one for each", sizes.size(), ranks);
    }
    ends_.push_back(0);
    for (int r = 0; r < ranks; ++r) {
      const int32_t size = sizes.empty() ? 1 : sizes[static_cast<size_t>(r)];
      if (size < 1) fail_usage("`split` has the size {}; every rank needs 1 or more", size);
      ends_.push_back(ends_.back() + size);
    }
  }

  [[nodiscard]] int ranks() const { return ranks_; }
  [[nodiscard]] const ModelFile& file() const { return file_; }
  // The elements of one rank when `count` are cut at multiples of `unit`; nothing when a rank would have none.
  [[nodiscard]] std::vector<Part> divide(int64_t count, int64_t unit) const {
    const int64_t units = (count + unit - 1) / unit;
    if (units < ranks_) return {};
    std::vector<Part> parts;
    int64_t begin = 0;
    for (int r = 0; r < ranks_; ++r) {
      const int64_t share = ends_[static_cast<size_t>(r) + 1];
      int64_t end = (2 * units * share + ends_.back()) / (2 * ends_.back());  // to the nearest
      // At least one, and one for each that comes after.
      end = std::clamp<int64_t>(end, begin + 1, units - (ranks_ - 1 - r));
      parts.push_back(
          {static_cast<int32_t>(begin * unit), static_cast<int32_t>(std::min(end * unit, count) - begin * unit)});
      begin = end;
    }
    return parts;
  }
  // Elements of a block of a tensor's columns.
  [[nodiscard]] int64_t block_of(const std::string& tensor) const {
    const FileTensor* found = file_.find_tensor(tensor);
    return found == nullptr || !found->dtype ? 1 : dtype_info(*found->dtype).block_size;
  }
  [[noreturn]] void fail_blocks(const std::string& tensor, int64_t columns, int64_t unit) const {
    fail(
        "\"{}\": {} has {} columns, which can only be cut every {}: too few pieces for {} ranks; use fewer ranks or "
        "a type with smaller blocks",
        file_.path(), tensor, columns, unit, ranks_);
  }

 private:
  const ModelFile& file_;
  int ranks_;
  std::vector<int64_t> ends_;  // sums of the sizes
};

// Ranks share kv heads: each rank has query heads of one of them.
void share_kv_heads(const Divider& divider, const LayerConfig& layer, const std::string& output, int64_t block,
                    size_t index, std::vector<ModelShare>& shares) {
  const int32_t group = layer.q_heads / layer.kv_heads;
  if (divider.ranks() % layer.kv_heads != 0) {
    fail_usage(
        "\"{}\": {} kv heads cannot be divided among {} ranks; use a number of ranks that they divide, or at "
        "most {}",
        divider.file().path(), layer.kv_heads, divider.ranks(), layer.kv_heads);
  }
  const int32_t ranks_per_head = divider.ranks() / layer.kv_heads;
  const int64_t unit = block / std::gcd<int64_t>(block, layer.value_dim());
  if (group / unit < ranks_per_head) divider.fail_blocks(output, layer.output_width(), block);
  const Divider within(divider.file(), ranks_per_head, {});
  const std::vector<Part> parts = within.divide(group, unit);
  for (int r = 0; r < divider.ranks(); ++r) {
    const int32_t head = r / ranks_per_head;
    const Part& part = parts[static_cast<size_t>(r % ranks_per_head)];
    LayerShare& share = shares[static_cast<size_t>(r)].layers[index];
    share.kv_heads = {head, 1};
    share.q_heads = {head * group + part.begin, part.count};
  }
}

void divide_heads(const Divider& divider, const LayerConfig& layer, size_t index, std::vector<ModelShare>& shares) {
  const std::string output = layer_tensor_name(static_cast<int32_t>(index), "attn_output.weight");
  const int32_t group = layer.q_heads / layer.kv_heads;
  if (divider.ranks() > layer.q_heads) {
    fail_usage("\"{}\" has {} attention heads, fewer than the {} ranks; use at most {}", divider.file().path(),
               layer.q_heads, divider.ranks(), layer.q_heads);
  }
  const int64_t block = divider.block_of(output);
  // Columns of the output projection that go with one kv head, and kv heads that make whole blocks.
  const int64_t columns = int64_t{group} * layer.value_dim();
  const int64_t unit = block / std::gcd(block, columns);
  const std::vector<Part> parts = divider.divide(layer.kv_heads, unit);
  if (parts.empty()) {
    if (layer.kv_heads >= divider.ranks()) divider.fail_blocks(output, layer.output_width(), unit * columns);
    return share_kv_heads(divider, layer, output, block, index, shares);
  }
  for (size_t r = 0; r < shares.size(); ++r) {
    shares[r].layers[index].kv_heads = parts[r];
    shares[r].layers[index].q_heads = {parts[r].begin * group, parts[r].count * group};
  }
}

void divide_ffn(const Divider& divider, int32_t index, std::string_view part, int32_t ffn, Part LayerShare::* share,
                std::vector<ModelShare>& shares) {
  if (ffn == 0) return;
  const std::string down = layer_tensor_name(index, part);
  const int64_t block = divider.block_of(down);
  std::vector<Part> parts = divider.divide(ffn, std::lcm<int64_t>(block, kRowUnit));
  if (parts.empty()) parts = divider.divide(ffn, block);
  if (parts.empty()) divider.fail_blocks(down, ffn, block);
  for (size_t r = 0; r < shares.size(); ++r) shares[r].layers[static_cast<size_t>(index)].*share = parts[r];
}

// What the ranks' sums cannot express.
void refuse(const ModelFile& file, const ModelConfig& config, size_t index) {
  const LayerConfig& layer = config.layers[index];
  const char* what = layer.is_recurrent()                     ? "is recurrent, and states are"
                     : layer.mixer == Mixer::latent_attention ? "has latent attention, whose cache is"
                     : layer.mixer != Mixer::attention        ? "has no attention, and such layers are"
                     : layer.qk_norm == QkNorm::rows          ? "normalizes whole rows of queries, which are"
                     : config.layer_inputs > 0 || !layer.mlp  ? "has inputs or parts that are"
                     : layer.output_scale != 1                ? "scales the stream, whose parts are"
                     : layer.experts.beside_mlp               ? "has experts beside an MLP, which are"
                                                              : nullptr;
  if (what == nullptr) return;
  fail("\"{}\": layer {} {} not divided among ranks; run this model on one rank", file.path(), index, what);
}

}  // namespace

ModelShare whole_share(const ModelConfig& config) {
  ModelShare share{.vocabulary = {0, config.vocabulary}};
  for (const LayerConfig& layer : config.layers) {
    share.layers.push_back({.q_heads = {0, layer.q_heads},
                            .kv_heads = {0, layer.kv_heads},
                            .ffn = {0, layer.experts.count > 0 ? layer.experts.ffn : layer.ffn},
                            .shared_ffn = {0, layer.experts.shared_ffn}});
  }
  return share;
}

std::vector<ModelShare> split_model(const ModelFile& file, const ModelConfig& config, int ranks,
                                    std::span<const int32_t> sizes) {
  if (ranks == 1) return {whole_share(config)};
  const Divider divider(file, ranks, sizes);
  std::vector<Part> rows = divider.divide(config.vocabulary, kRowUnit);
  if (rows.empty()) rows = divider.divide(config.vocabulary, 1);
  if (rows.empty()) fail_usage("\"{}\" has fewer tokens than there are ranks ({})", file.path(), ranks);
  std::vector<ModelShare> shares(static_cast<size_t>(ranks));
  for (int r = 0; r < ranks; ++r) {
    ModelShare& share = shares[static_cast<size_t>(r)];
    share = {.rank = r, .ranks = ranks, .vocabulary = rows[static_cast<size_t>(r)]};
    share.layers.resize(config.layers.size());
  }
  for (size_t i = 0; i < config.layers.size(); ++i) {
    const LayerConfig& layer = config.layers[i];
    const auto index = static_cast<int32_t>(i);
    refuse(file, config, i);
    divide_heads(divider, layer, i, shares);
    // A cache is read by the heads that it was written for.
    if (const int32_t from = layer.kv_source; from != kOwnCache) {
      for (const ModelShare& share : shares) {
        if (share.layers[static_cast<size_t>(from)].kv_heads == share.layers[i].kv_heads) continue;
        fail("\"{}\": layer {} reads the cache of layer {} and is divided differently; run this model on one rank",
             file.path(), i, from);
      }
    }
    const bool experts = layer.experts.count > 0;
    divide_ffn(divider, index, experts ? "ffn_down_exps.weight" : "ffn_down.weight",
               experts ? layer.experts.ffn : layer.ffn, &LayerShare::ffn, shares);
    divide_ffn(divider, index, "ffn_down_shexp.weight", layer.experts.shared_ffn, &LayerShare::shared_ffn, shares);
  }
  return shares;
}

ModelConfig config_of(const ModelConfig& whole, const ModelShare& share) {
  ModelConfig config = whole;
  if (share.is_whole()) return config;
  for (size_t i = 0; i < config.layers.size(); ++i) {
    LayerConfig& layer = config.layers[i];
    const LayerShare& own = share.layers[i];
    layer.q_heads = own.q_heads.count;
    layer.kv_heads = own.kv_heads.count;
    (layer.experts.count > 0 ? layer.experts.ffn : layer.ffn) = own.ffn.count;
    layer.experts.shared_ffn = own.shared_ffn.count;
  }
  return config;
}

}  // namespace inferno
