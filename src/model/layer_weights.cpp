#include "model/layer_weights.h"

namespace inferno {
namespace {

using W = LayerWeights;

class List {
 public:
  void add(std::string_view part, const Shape& shape, std::unique_ptr<Weight> W::* weight,
           SplitBy split = SplitBy::whole) {
    tensors.push_back({part, shape, weight, split});
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
  list.add("attn_q.weight", Shape(layer.attention_width(), d), &W::wq, SplitBy::q_rows);
  if (layer.gate_in_q) {
    list.add("attn_gate.weight", Shape(layer.gate_width(), d), &W::w_gate, SplitBy::q_rows);
    list.fuse(first, "attn_q.weight", layer.q_heads);
  }
  if (own_cache) list.add("attn_k.weight", Shape(layer.kv_width(), d), &W::wk, SplitBy::kv_rows);
  if (own_values) list.add("attn_v.weight", Shape(layer.value_width(), d), &W::wv, SplitBy::kv_rows);
  if (layer.fused_qkv) list.fuse(first, "attn_qkv.weight");
  if (!layer.qkv_bias) return;
  first = list.tensors.size();
  list.add("attn_q.bias", Shape(layer.attention_width()), &W::bq, SplitBy::q_rows);
  if (own_cache) list.add("attn_k.bias", Shape(layer.kv_width()), &W::bk, SplitBy::kv_rows);
  if (own_values) list.add("attn_v.bias", Shape(layer.value_width()), &W::bv, SplitBy::kv_rows);
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
  if (layer.sinks) list.add("attn_sinks.weight", Shape(layer.q_heads), &W::sinks, SplitBy::q_rows);
  if (layer.output_gate != OutputGate::none && !layer.gate_in_q) {
    list.add("attn_gate.weight", Shape(layer.gate_width(), d), &W::w_gate, SplitBy::q_rows);
  }
  list.add("attn_output.weight", Shape(d, layer.output_width()), &W::wo, SplitBy::q_columns);
  if (layer.output_bias) list.add("attn_output.bias", Shape(d), &W::bo, SplitBy::first_rank);
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

void add_mamba2(List& list, const RecurrentConfig& r, int64_t d) {
  const size_t first = list.tensors.size();
  list.add("ssm_in.weight", Shape(r.value_width(), d), &W::z);
  list.add("ssm_in_xbc.weight", Shape(r.conv_channels, d), &W::conv_in);
  list.add("ssm_in_dt.weight", Shape(r.v_heads, d), &W::alpha);
  list.fuse(first, "ssm_in.weight");
  add_taps(list, "ssm_conv1d.weight", r);
  if (r.conv_bias) list.add("ssm_conv1d.bias", Shape(r.conv_channels), &W::conv_bias);
  list.add("ssm_dt.bias", Shape(r.v_heads), &W::dt);
  list.add("ssm_a", Shape(r.v_heads), &W::decay);
  list.tensors.back().file_shape = Shape(r.v_heads, 1);
  list.add("ssm_d", Shape(r.v_heads), &W::skip);
  list.tensors.back().file_shape = Shape(r.v_heads, 1);
  list.add("ssm_norm.weight", Shape(r.value_width()), &W::value_norm);
  list.tensors.back().file_shape = Shape(r.k_heads, r.value_width() / r.k_heads);
  list.add("ssm_out.weight", Shape(d, r.value_width()), &W::wo);
}

void add_latent_attention(List& list, const LayerConfig& layer, int64_t d) {
  const LatentConfig& l = layer.latent;
  const int64_t heads = layer.q_heads;
  const int64_t queries = heads * (l.kept + l.rotated);
  if (l.query_rank > 0) {
    list.add("attn_q_a.weight", Shape(l.query_rank, d), &W::q_a);
    list.add("attn_q_a_norm.weight", Shape(l.query_rank), &W::q_a_norm);
    list.add("attn_q_b.weight", Shape(queries, l.query_rank), &W::q_b);
  } else {
    list.add("attn_q.weight", Shape(queries, d), &W::wq);
  }
  list.add("attn_kv_a_mqa.weight", Shape(l.rank + l.rotated, d), &W::kv_a);
  list.add("attn_kv_a_norm.weight", Shape(l.rank), &W::kv_a_norm);
  list.add("attn_k_b.weight", Shape(heads, l.rank, l.kept), &W::k_b);
  list.add("attn_v_b.weight", Shape(heads, l.value_dim, l.rank), &W::v_b);
  list.add("attn_output.weight", Shape(d, heads * l.value_dim), &W::wo);
}

void add_mixer(List& list, const LayerConfig& layer, int64_t d) {
  switch (layer.mixer) {
    case Mixer::attention:
      return add_attention(list, layer, d);
    case Mixer::latent_attention:
      return add_latent_attention(list, layer, d);
    case Mixer::short_conv:
      return add_short_conv(list, layer.recurrent, d);
    case Mixer::delta_net:
      return add_delta_net(list, layer.recurrent, d);
    case Mixer::mamba2:
      return add_mamba2(list, layer.recurrent, d);
    case Mixer::none:
      return;
  }
}

void add_mlp(List& list, const LayerConfig& layer, int64_t d) {
  const int64_t ffn = layer.ffn;
  const size_t first = list.tensors.size();
  if (layer.gated) list.add("ffn_gate.weight", Shape(ffn, d), &W::gate, SplitBy::ffn_rows);
  list.add("ffn_up.weight", Shape(ffn, d), &W::up, SplitBy::ffn_rows);
  if (layer.fused_gate_up) list.fuse(first, "ffn_up.weight");
  list.add("ffn_down.weight", Shape(d, ffn), &W::down, SplitBy::ffn_columns);
  if (!layer.ffn_bias) return;
  if (layer.gated) list.add("ffn_gate.bias", Shape(ffn), &W::gate_bias, SplitBy::ffn_rows);
  list.add("ffn_up.bias", Shape(ffn), &W::up_bias, SplitBy::ffn_rows);
  list.add("ffn_down.bias", Shape(d), &W::down_bias, SplitBy::first_rank);
}

// Biases of all experts are one vector.
void add_expert_biases(List& list, int64_t experts, int64_t ffn, int64_t d) {
  const auto add = [&](std::string_view part, int64_t rows, std::unique_ptr<Weight> W::* weight, SplitBy split) {
    list.add(part, Shape(experts * rows), weight, split);
    list.tensors.back().file_shape = Shape(experts, rows);
  };
  add("ffn_gate_exps.bias", ffn, &W::gate_exps_bias, SplitBy::ffn_rows);
  add("ffn_up_exps.bias", ffn, &W::up_exps_bias, SplitBy::ffn_rows);
  add("ffn_down_exps.bias", d, &W::down_exps_bias, SplitBy::first_rank);
}

// The norms and scales of experts beside a plain MLP.
void add_beside_mlp(List& list, const ExpertsConfig& e, int64_t d) {
  list.add("post_ffw_norm_1.weight", Shape(d), &W::shared_post_norm);
  list.add("pre_ffw_norm_2.weight", Shape(d), &W::experts_norm);
  list.add("post_ffw_norm_2.weight", Shape(d), &W::experts_post_norm);
  list.add("ffn_gate_inp.scale", Shape(d), &W::router_norm);
  list.add("ffn_down_exps.scale", Shape(e.count), &W::expert_scale);
}

void add_experts(List& list, const LayerConfig& layer, int64_t d) {
  const ExpertsConfig& e = layer.experts;
  list.add("ffn_gate_inp.weight", Shape(e.count, d), &W::router);
  if (e.router_bias) list.add("ffn_gate_inp.bias", Shape(e.count), &W::router_bias);
  if (e.selection_bias) list.add("exp_probs_b.bias", Shape(e.count), &W::selection_bias);
  const size_t first = list.tensors.size();
  if (layer.gated) list.add("ffn_gate_exps.weight", Shape(e.count, e.ffn, d), &W::gate_exps, SplitBy::ffn_rows);
  list.add("ffn_up_exps.weight", Shape(e.count, e.ffn, d), &W::up_exps, SplitBy::ffn_rows);
  if (e.fused_gate_up) list.fuse(first, "ffn_gate_up_exps.weight");
  list.add("ffn_down_exps.weight", Shape(e.count, d, e.ffn), &W::down_exps, SplitBy::ffn_columns);
  if (e.bias) add_expert_biases(list, e.count, e.ffn, d);
  if (e.beside_mlp) add_beside_mlp(list, e, d);
  if (e.shared_ffn == 0) return;
  const auto name = [&](std::string_view own, std::string_view plain) { return e.beside_mlp ? plain : own; };
  if (layer.gated) {
    list.add(name("ffn_gate_shexp.weight", "ffn_gate.weight"), Shape(e.shared_ffn, d), &W::gate, SplitBy::shared_rows);
  }
  list.add(name("ffn_up_shexp.weight", "ffn_up.weight"), Shape(e.shared_ffn, d), &W::up, SplitBy::shared_rows);
  list.add(name("ffn_down_shexp.weight", "ffn_down.weight"), Shape(d, e.shared_ffn), &W::down, SplitBy::shared_columns);
  if (e.shared_gate) list.add("ffn_gate_inp_shexp.weight", Shape(d), &W::shared_gate);
}

void add_layer_input(List& list, int64_t n, int64_t d) {
  list.add("inp_gate.weight", Shape(n, d), &W::input_gate);
  list.add("proj.weight", Shape(d, n), &W::input_proj);
  list.add("post_norm.weight", Shape(d), &W::input_norm);
}

}  // namespace

std::vector<LayerTensor> layer_tensors(const ModelConfig& config, int32_t index) {
  const LayerConfig& layer = config.layers[static_cast<size_t>(index)];
  const int64_t d = config.width;
  const bool mixes = layer.mixer != Mixer::none;
  List list;
  if (mixes && layer.pre_norms && layer.attn_norm) list.add("attn_norm.weight", Shape(d), &W::attn_norm);
  add_mixer(list, layer, d);
  if (mixes && layer.post_norms) list.add("post_attention_norm.weight", Shape(d), &W::attn_post_norm);
  if (layer.sum_norms) {
    list.add("attn_output_norm.weight", Shape(d), &W::attn_sum_norm);
    list.add("attn_output_norm.bias", Shape(d), &W::attn_sum_norm_bias);
  }
  if (layer.mlp && layer.pre_norms) list.add(layer.ffn_norm_tensor, Shape(d), &W::ffn_norm);
  if (layer.experts.count > 0) {
    add_experts(list, layer, d);
  } else if (layer.mlp) {
    add_mlp(list, layer, d);
  }
  if (layer.mlp && layer.post_norms) list.add("post_ffw_norm.weight", Shape(d), &W::ffn_post_norm);
  if (layer.sum_norms) {
    list.add("layer_output_norm.weight", Shape(d), &W::ffn_sum_norm);
    list.add("layer_output_norm.bias", Shape(d), &W::ffn_sum_norm_bias);
  }
  if (config.layer_inputs > 0) add_layer_input(list, config.layer_inputs, d);
  return std::move(list.tensors);
}

}  // namespace inferno
