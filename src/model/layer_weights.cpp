#include "model/layer_weights.h"

namespace inferno {

std::vector<LayerTensor> layer_tensors(const LayerConfig& layer, int32_t width) {
  using W = LayerWeights;
  const int64_t d = width;
  const int64_t q = layer.attention_width();
  const int64_t kv = layer.kv_width();
  const int64_t ffn = layer.ffn;
  std::vector<LayerTensor> tensors;
  const auto add = [&](std::string_view part, const Shape& shape, std::unique_ptr<Weight> W::* weight) {
    tensors.push_back({part, shape, weight});
  };
  add("attn_norm.weight", Shape(d), &W::attn_norm);
  add("attn_q.weight", Shape(q, d), &W::wq);
  add("attn_k.weight", Shape(kv, d), &W::wk);
  add("attn_v.weight", Shape(kv, d), &W::wv);
  if (layer.qkv_bias) {
    add("attn_q.bias", Shape(q), &W::bq);
    add("attn_k.bias", Shape(kv), &W::bk);
    add("attn_v.bias", Shape(kv), &W::bv);
  }
  if (layer.qk_norm) {
    add("attn_q_norm.weight", Shape(layer.head_dim), &W::q_norm);
    add("attn_k_norm.weight", Shape(layer.head_dim), &W::k_norm);
  }
  add("attn_output.weight", Shape(d, q), &W::wo);
  add("ffn_norm.weight", Shape(d), &W::ffn_norm);
  add("ffn_gate.weight", Shape(ffn, d), &W::gate);
  add("ffn_up.weight", Shape(ffn, d), &W::up);
  add("ffn_down.weight", Shape(d, ffn), &W::down);
  return tensors;
}

}  // namespace inferno
