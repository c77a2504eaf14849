// The arguments of fused ops that only some model families use.
//
// Every backend runs the plain form of an op, without them. A backend that lacks code for some says so when it is asked
// about an op (Backend::supports), which happens while a model is loaded; one whose memory the host sees can always run
// the default body.
#pragma once

#include <string>
#include <string_view>

#include "backend/op_args.h"
#include "backend/plan.h"

namespace inferno {

// Calls f(name, used) for each of them.
template <typename Args, typename F>
void visit_extras(const Args& /*args*/, F&& /*f*/) {}

template <typename F>
void visit_extras(const EmbedArgs& a, F&& f) {
  f("scale", a.scale != 1);
}
template <typename F>
void visit_extras(const RmsNormArgs& a, F&& f) {
  f("no weight", a.weight == nullptr);
}
template <typename F>
void visit_extras(const KvStoreArgs& a, F&& f) {
  f("values unlike keys", a.kv.value_dim() != a.kv.head_dim);
}
template <typename F>
void visit_extras(const LinearArgs& a, F&& f) {
  f("post_norm", a.post_norm != nullptr);
  f("residual_scale", a.residual_scale != 1);
  f("out_scale", a.out_scale != 1);
}
template <typename F>
void visit_extras(const QkvRopeStoreArgs& a, F&& f) {
  const auto of_row = [&](const Weight* norm) { return norm != nullptr && norm->cols() != a.kv.head_dim; };
  f("norms of whole rows", of_row(a.q_norm) || of_row(a.k_norm));
  f("v_norm", a.v_norm);
  f("no k", a.w[1] == nullptr);
  f("v = k", a.w[1] != nullptr && a.w[2] == nullptr);
  f("q_rope", !a.q_rope.empty());
  f("gate", a.w_gate != nullptr);
  f("values unlike keys", a.kv.value_dim() != a.kv.head_dim);
}
template <typename F>
void visit_extras(const AttentionArgs& a, F&& f) {
  f("not causal", !a.causal);
  f("window", a.window != 0);
  f("softcap", a.softcap != 0);
  f("sinks", a.sinks != nullptr);
  f("gate", !a.gate.empty());
  f("values unlike keys", a.kv.value_dim() != a.kv.head_dim);
}
template <typename F>
void visit_extras(const GatedMlpArgs& a, F&& f) {
  f("activation", a.activation != Activation::silu);
  f("no gate", a.gate == nullptr);
  f("bias", a.bias[0] != nullptr || a.bias[1] != nullptr || a.bias[2] != nullptr);
  f("post_norm", a.post_norm != nullptr);
  f("residual_scale", a.residual_scale != 1);
  f("out_scale", a.out_scale != 1);
}
template <typename F>
void visit_extras(const MoeMlpArgs& a, F&& f) {
  f("router_norm", a.router_norm != nullptr);
  f("logit_scale", a.routing.logit_scale != 1);
  f("groups", a.routing.groups != 1);
  f("expert_scale", a.expert_scale != nullptr);
  f("no gate", a.gate == nullptr);
  f("experts_norm", a.experts_norm != nullptr);
  f("out_scale", a.out_scale != 1);
}
template <typename F>
void visit_extras(const ShortConvArgs& a, F&& f) {
  f("bias", a.bias != nullptr);
}
template <typename F>
void visit_extras(const LogitsArgs& a, F&& f) {
  f("scale", a.scale != 1);
  f("softcap", a.softcap != 0);
}

template <typename Args>
[[nodiscard]] bool is_plain(const Args& args) {
  bool plain = true;
  visit_extras(args, [&](std::string_view /*name*/, bool used) { plain = plain && !used; });
  return plain;
}

// The used ones, for messages: "window, sinks"; empty when the op is plain.
[[nodiscard]] inline std::string extras_of(const OpRecord& record) {
  std::string names;
  record.visit([&](const auto& args) {
    visit_extras(args, [&](std::string_view name, bool used) {
      if (used) names += (names.empty() ? "" : ", ") + std::string(name);
    });
  });
  return names;
}

}  // namespace inferno
