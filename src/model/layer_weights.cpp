#include "model/layer_weights.h"

namespace inferno {
namespace {

using W = LayerWeights;

class List {
 public:
  void add(std::string_view part, const Shape& shape, std::unique_ptr<Weight> W::* weight) {
    tensors.push_back({part, shape, weight});
  }
  // Those added from `first` on are the rows of one tensor, one after another; with `blocks` in each of so many blocks.
  void fuse(size_t first, std::string_view part, int64_t blocks = 1) {
    int64_t rows = 0;
    for (size_t i = first; i < tensors.size(); ++i) {
      tensors[i].fused_part = part;
      tensors[i].first_row = rows;
      tensors[i].blocks = blocks;
      rows += tensors[i].shape[tensors[i].shape.rank == 3 ? 1 : 0] / blocks;
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
  if (layer.gate_in_q) {
    list.add("attn_gate.weight", Shape(layer.gate_width(), d), &W::w_gate);
    list.fuse(first, "attn_q.weight", layer.q_heads);
  }
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

void add_attention(List& list, const LayerConfig& layer, int64_t d) {
  add_projections(list, layer, d);
  if (layer.qk_norm != QkNorm::none) {
    const bool rows = layer.qk_norm == QkNorm::rows;
    list.add("attn_q_norm.weight", Shape(rows ? layer.attention_width() : layer.head_dim), &W::q_norm);
    if (layer.kv_source == kOwnCache) {
      list.add("attn_k_norm.weight", Shape(rows ? layer.kv_width() : layer.head_dim), &W::k_norm);
    }
  }
  if (layer.sinks) list.add("attn_sinks.weight", Shape(layer.q_heads), &W::sinks);
  if (layer.output_gate != OutputGate::none && !layer.gate_in_q) {
    list.add("attn_gate.weight", Shape(layer.gate_width(), d), &W::w_gate);
  }
  list.add("attn_output.weight", Shape(d, layer.output_width()), &W::wo);
  if (layer.output_bias) list.add("attn_output.bias", Shape(d), &W::bo);
}

// Taps are used as plain floats.
void add_taps(List& list, std::string_view part, const RecurrentConfig& r) {
  list.add(part, Shape(int64_t{r.conv_channels} * r.conv_taps), &W::conv);
  list.tensors.back().file_shape = Shape(r.conv_channels, r.conv_taps);
}

void add_short_conv(List& list, const RecurrentConfig& r, int64_t d) {
  const size_t first = list.tensors.size();
  list.add("shortconv.in_proj.weight", Shape(r.conv_channels, d), &W::conv_factor);
  list.add("shortconv.in_c.weight", Shape(r.conv_channels, d), &W::conv_gate);
  list.add("shortconv.in_x.weight", Shape(r.conv_channels, d), &W::conv_in);
  list.fuse(first, "shortconv.in_proj.weight");
  add_taps(list, "shortconv.conv.weight", r);
  list.add("shortconv.out_proj.weight", Shape(d, r.conv_channels), &W::wo);
}

void add_delta_net(List& list, const RecurrentConfig& r, int64_t d) {
  list.add("attn_qkv.weight", Shape(r.conv_channels, d), &W::conv_in);
  list.add("attn_gate.weight", Shape(r.value_width(), d), &W::z);
  const size_t first = list.tensors.size();
  list.add("ssm_beta.weight", Shape(r.v_heads, d), &W::beta);
  list.add("ssm_alpha.weight", Shape(r.v_heads, d), &W::alpha);
  if (r.fused_beta_alpha) list.fuse(first, "ssm_ba.weight", r.k_heads);
  add_taps(list, "ssm_conv1d.weight", r);
  list.add("ssm_dt.bias", Shape(r.v_heads), &W::dt);
  list.add("ssm_a", Shape(r.v_heads), &W::decay);
  list.add("ssm_norm.weight", Shape(r.head_dim), &W::value_norm);
  list.add("ssm_out.weight", Shape(d, r.value_width()), &W::wo);
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

// Biases of all experts are one vector.
void add_expert_biases(List& list, int64_t experts, int64_t ffn, int64_t d) {
  const auto add = [&](std::string_view part, int64_t rows, std::unique_ptr<Weight> W::* weight) {
    list.add(part, Shape(experts * rows), weight);
    list.tensors.back().file_shape = Shape(experts, rows);
  };
  add("ffn_gate_exps.bias", ffn, &W::gate_exps_bias);
  add("ffn_up_exps.bias", ffn, &W::up_exps_bias);
  add("ffn_down_exps.bias", d, &W::down_exps_bias);
}

void add_experts(List& list, const ExpertsConfig& e, int64_t d) {
  list.add("ffn_gate_inp.weight", Shape(e.count, d), &W::router);
  if (e.router_bias) list.add("ffn_gate_inp.bias", Shape(e.count), &W::router_bias);
  if (e.selection_bias) list.add("exp_probs_b.bias", Shape(e.count), &W::selection_bias);
  const size_t first = list.tensors.size();
  list.add("ffn_gate_exps.weight", Shape(e.count, e.ffn, d), &W::gate_exps);
  list.add("ffn_up_exps.weight", Shape(e.count, e.ffn, d), &W::up_exps);
  if (e.fused_gate_up) list.fuse(first, "ffn_gate_up_exps.weight");
  list.add("ffn_down_exps.weight", Shape(e.count, d, e.ffn), &W::down_exps);
  if (e.bias) add_expert_biases(list, e.count, e.ffn, d);
  if (e.shared_ffn == 0) return;
  list.add("ffn_gate_shexp.weight", Shape(e.shared_ffn, d), &W::gate);
  list.add("ffn_up_shexp.weight", Shape(e.shared_ffn, d), &W::up);
  list.add("ffn_down_shexp.weight", Shape(d, e.shared_ffn), &W::down);
  if (e.shared_gate) list.add("ffn_gate_inp_shexp.weight", Shape(d), &W::shared_gate);
}

}  // namespace

std::vector<LayerTensor> layer_tensors(const LayerConfig& layer, int32_t width) {
  const int64_t d = width;
  List list;
  if (layer.pre_norms) list.add("attn_norm.weight", Shape(d), &W::attn_norm);
  if (layer.mixer == Mixer::short_conv) {
    add_short_conv(list, layer.recurrent, d);
  } else if (layer.mixer == Mixer::delta_net) {
    add_delta_net(list, layer.recurrent, d);
  } else {
    add_attention(list, layer, d);
  }
  if (layer.post_norms) list.add("post_attention_norm.weight", Shape(d), &W::attn_post_norm);
  if (layer.pre_norms) list.add(layer.ffn_norm_tensor, Shape(d), &W::ffn_norm);
  if (layer.experts.count > 0) {
    add_experts(list, layer.experts, d);
  } else {
    add_mlp(list, layer, d);
  }
  if (layer.post_norms) list.add("post_ffw_norm.weight", Shape(d), &W::ffn_post_norm);
  return std::move(list.tensors);
}

}  // namespace inferno
