// Encoders, which make vectors of texts: BERT and what has its form (MiniLM, bge, e5).
#include "base/error.h"
#include "hf/family_tables.h"

namespace inferno::hf {
namespace {

constexpr NameRule kBertModel[] = {
    {"embeddings.word_embeddings.weight", "token_embd.weight"},
    {"embeddings.position_embeddings.weight", "position_embd.weight"},
    {"embeddings.token_type_embeddings.weight", "token_types.weight"},
    {"embeddings.LayerNorm.weight", "token_embd_norm.weight"},
    {"embeddings.LayerNorm.bias", "token_embd_norm.bias"},
};

constexpr NameRule kBert[] = {
    {"attention.self.query.weight", "attn_q.weight"},
    {"attention.self.query.bias", "attn_q.bias"},
    {"attention.self.key.weight", "attn_k.weight"},
    {"attention.self.key.bias", "attn_k.bias"},
    {"attention.self.value.weight", "attn_v.weight"},
    {"attention.self.value.bias", "attn_v.bias"},
    {"attention.output.dense.weight", "attn_output.weight"},
    {"attention.output.dense.bias", "attn_output.bias"},
    {"attention.output.LayerNorm.weight", "attn_output_norm.weight"},
    {"attention.output.LayerNorm.bias", "attn_output_norm.bias"},
    {"intermediate.dense.weight", "ffn_up.weight"},
    {"intermediate.dense.bias", "ffn_up.bias"},
    {"output.dense.weight", "ffn_down.weight"},
    {"output.dense.bias", "ffn_down.bias"},
    {"output.LayerNorm.weight", "layer_output_norm.weight"},
    {"output.LayerNorm.bias", "layer_output_norm.bias"},
};

void set_bert(const Config& config, MetadataList& metadata) {
  if (config.find_text("hidden_act").value_or("gelu") != "gelu") config.reject("hidden_act", "gelu");
  if (config.find_text("position_embedding_type").value_or("absolute") != "absolute")
    config.reject("position_embedding_type", "absolute");
  metadata.set(metadata.own("attention.causal"), false);
}

constexpr Family kEncoders[] = {
    {.model_type = "bert", .architecture = "bert", .rules = kBert, .model_rules = kBertModel, .set_metadata = set_bert},
};

}  // namespace

std::span<const Family> encoder_families() {
  return kEncoders;
}

}  // namespace inferno::hf
