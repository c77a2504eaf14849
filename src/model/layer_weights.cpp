#include "model/layer_weights.h"

namespace inferno {
namespace {

using W = LayerWeights;

class List {
 public:
  void add(std::string_view part, const Shape& shape, std::unique_ptr<Weight> W::* weight) {
    tensors.push_back({part, shape, weight});
  }
  // Those added from `first` on are the rows of one tensor, one after another.
  void fuse(size_t first, std::string_view part) {
    int64_t rows = 0;
    for (size_t i = first; i < tensors.size(); ++i) {
      tensors[i].fused_part = part;
      tensors[i].first_row = rows;
      rows += tensors[i].shape[0];
    }
    for (size_t i = first; i < tensors.size(); ++i) tensors[i].fused_rows = rows;
  }
  std::vector<LayerTensor> tensors;
};

void add_projections(List& list, const LayerConfig& layer, int64_t d) {
  const bool own_cache = layer.kv_source == kOwnCache;
  const bool own_values = own_cache && !layer.v_is_k;
  size_t first = list.tensors.size();
  list.add("attn_q.weight", Shape(layer.attention_width(), d), &W::wq);
  if (own_cache) list.add("attn_k.weight", Shape(layer.kv_width(), d), &W::wk);
  if (own_values) list.add("attn_v.weight", Shape(layer.value_width(), d), &W::wv);
  if (layer.fused_qkv) list.fuse(first, "attn_qkv.weight");
  if (!layer.qkv_bias) return;
  first = list.tensors.size();
  list.add("attn_q.bias", Shape(layer.attention_width()), &W::bq);
  if (own_cache) list.add("attn_k.bias", Shape(layer.kv_width()), &W::bk);
  if (own_values) list.add("attn_v.bias", Shape(layer.value_width()), &W::bv);
  if (layer.fused_qkv) list.fuse(first, "attn_qkv.bias");
}

void add_mlp(List& list, const LayerConfig& layer, int64_t d) {
  const int64_t ffn = layer.ffn;
  const size_t first = list.tensors.size();
  if (layer.gated) list.add("ffn_gate.weight", Shape(ffn, d), &W::gate);
  list.add("ffn_up.weight", Shape(ffn, d), &W::up);
  if (layer.fused_gate_up) list.fuse(first, "ffn_up.weight");
  list.add("ffn_down.weight", Shape(d, ffn), &W::down);
  if (!layer.ffn_bias) return;
  if (layer.gated) list.add("ffn_gate.bias", Shape(ffn), &W::gate_bias);
  list.add("ffn_up.bias", Shape(ffn), &W::up_bias);
  list.add("ffn_down.bias", Shape(d), &W::down_bias);
}

}  // namespace

std::vector<LayerTensor> layer_tensors(const LayerConfig& layer, int32_t width) {
  const int64_t d = width;
  List list;
  if (layer.pre_norms) list.add("attn_norm.weight", Shape(d), &W::attn_norm);
  add_projections(list, layer, d);
  if (layer.qk_norm != QkNorm::none) {
    const bool rows = layer.qk_norm == QkNorm::rows;
    list.add("attn_q_norm.weight", Shape(rows ? layer.attention_width() : layer.head_dim), &W::q_norm);
    if (layer.kv_source == kOwnCache) {
      list.add("attn_k_norm.weight", Shape(rows ? layer.kv_width() : layer.head_dim), &W::k_norm);
    }
  }
  if (layer.sinks) list.add("attn_sinks.weight", Shape(layer.q_heads), &W::sinks);
  if (layer.output_gate != OutputGate::none) list.add("attn_gate.weight", Shape(layer.gate_width(), d), &W::w_gate);
  list.add("attn_output.weight", Shape(d, layer.output_width()), &W::wo);
  if (layer.output_bias) list.add("attn_output.bias", Shape(d), &W::bo);
  if (layer.post_norms) list.add("post_attention_norm.weight", Shape(d), &W::attn_post_norm);
  if (layer.pre_norms) list.add(layer.ffn_norm_tensor, Shape(d), &W::ffn_norm);
  add_mlp(list, layer, d);
  if (layer.post_norms) list.add("post_ffw_norm.weight", Shape(d), &W::ffn_post_norm);
  return std::move(list.tensors);
}

}  // namespace inferno
