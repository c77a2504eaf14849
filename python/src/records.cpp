#include "records.h"

namespace inferno::python {
namespace {

// dictionary("name", value, ...): every kind of value that reports have.
template <typename T>
nb::object value(const T& v);
template <typename T, typename... Rest>
void put(nb::dict& into, const char* name, const T& v, const Rest&... rest) {
  into[name] = value(v);
  if constexpr (sizeof...(rest) > 0) put(into, rest...);
}
template <typename... Pairs>
nb::object dictionary(const Pairs&... pairs) {
  nb::dict made;
  put(made, pairs...);
  return made;
}

nb::object record(const TensorInfo& t) {
  return dictionary("name", t.name, "type", t.type, "shape", t.shape, "bytes", t.bytes, "computable", t.computable);
}
nb::object record(const MetadataInfo& m) {
  return dictionary("key", m.key, "type", m.type, "value", m.value, "length", m.length, "items", m.items);
}
nb::object record(const TensorTypeTotal& t) {
  return dictionary("type", t.type, "tensors", t.tensors, "bytes", t.bytes);
}
nb::object record(const OpPlacement& p) {
  return dictionary("op", p.op, "first_layer", p.first_layer, "last_layer", p.last_layer, "backend", p.backend);
}
nb::object record(const PlannedSpeed& s) {
  return dictionary("what", s.what, "tokens_per_second", s.tokens_per_second, "limit", s.limit);
}
nb::object record(const OpComparison& c) {
  return dictionary("ops", c.ops, "layer", c.layer, "step", c.step, "index", c.index, "args", c.args, "field", c.field,
                    "element", c.element, "reference", c.reference, "tested", c.tested, "max_abs", c.max_abs, "max_ulp",
                    c.max_ulp, "nmse", c.nmse, "limit", c.limit, "diverges", c.diverges, "blamed", c.blamed);
}
nb::object record(const OpComparisonTotals& c) {
  return dictionary("ops", c.ops, "calls", c.calls, "diverging", c.diverging, "max_abs", c.max_abs, "max_ulp",
                    c.max_ulp, "max_nmse", c.max_nmse, "limit", c.limit);
}
nb::object record(const ProfiledOp& o) {
  return dictionary("op", o.op, "calls", o.calls, "total_us", o.total_us, "work_us", o.work_us, "barrier_us",
                    o.barrier_us, "wake_us", o.wake_us, "slowest_us", o.slowest_us, "least_us", o.least_us, "bytes",
                    o.bytes, "operations", o.operations);
}
nb::object record(const ProfiledPhase& p) {
  return dictionary("phase", p.phase, "tokens", p.tokens, "steps", p.steps, "step_us", p.step_us, "between_us",
                    p.between_us, "profiler_us", p.profiler_us, "replay_us_per_step", p.replay_us_per_step,
                    "tokens_per_second", p.tokens_per_second, "least_us", p.least_us, "share_of_limit",
                    p.share_of_limit, "stream_bytes", p.stream_bytes, "summary", p.summary, "lost", p.lost, "ops",
                    p.ops, "layer_us", p.layer_us, "outside_layers_us", p.outside_layers_us);
}
nb::object record(const Repeats& r) {
  return dictionary("median", r.median, "least", r.least, "most", r.most, "spread_percent", r.spread_percent());
}
nb::object record(const TokenLogprob& t) {
  return nb::make_tuple(t.id, t.logprob);
}
nb::object record(const Completion& c) {
  return dictionary("ids", c.ids, "text", c.text, "reason", std::string(to_string(c.reason)), "logprobs", c.logprobs);
}
nb::object record(const GenerateMetrics& m) {
  return dictionary("prompt_tokens", m.prompt_tokens, "generated_tokens", m.generated_tokens, "reused_tokens",
                    m.reused_tokens, "reuse_end", std::string(to_string(m.reuse_end)), "drafted_tokens",
                    m.drafted_tokens, "accepted_tokens", m.accepted_tokens, "preemptions", m.preemptions, "queue_ms",
                    m.queue_ms, "time_to_first_token_ms", m.time_to_first_token_ms, "prompt_tokens_per_second",
                    m.prompt_tokens_per_second, "decode_tokens_per_second", m.decode_tokens_per_second,
                    "forward_min_ms", m.forward_min_ms, "forward_max_ms", m.forward_max_ms, "forward_mean_ms",
                    m.forward_mean_ms, "forwards", m.forwards);
}

template <typename T>
inline constexpr bool is_optional = false;
template <typename T>
inline constexpr bool is_optional<std::optional<T>> = true;
template <typename T>
inline constexpr bool is_vector = false;
template <typename T>
inline constexpr bool is_vector<std::vector<T>> = true;
template <typename T>
inline constexpr bool is_pair = false;
template <typename A, typename B>
inline constexpr bool is_pair<std::pair<A, B>> = true;

template <typename T>
nb::object value(const T& v) {
  if constexpr (std::is_same_v<T, std::string>) {
    return text(v);
  } else if constexpr (std::is_arithmetic_v<T>) {
    return nb::cast(v);
  } else if constexpr (is_optional<T>) {
    return v ? value(*v) : nb::none();
  } else if constexpr (is_vector<T>) {
    nb::list made;
    for (const auto& item : v) made.append(value(item));
    return made;
  } else if constexpr (is_pair<T>) {
    return nb::make_tuple(value(v.first), value(v.second));
  } else if constexpr (std::is_same_v<T, MetadataItem>) {
    return std::visit([](const auto& item) { return value(item); }, v);
  } else {
    return record(v);
  }
}

}  // namespace

nb::object to_python(const ModelInfo& m) {
  return dictionary("path", m.path, "gguf_version", m.gguf_version, "parts", m.parts, "file_bytes", m.file_bytes,
                    "architecture", m.architecture, "name", m.name, "unsupported", m.unsupported, "parameters",
                    m.parameters, "bits_per_weight", m.bits_per_weight, "layers", m.layers, "width", m.width, "heads",
                    m.heads, "kv_heads", m.kv_heads, "head_dim", m.head_dim, "ffn", m.ffn, "experts", m.experts,
                    "experts_used", m.experts_used, "active_parameters", m.active_parameters, "context", m.context,
                    "vocabulary", m.vocabulary, "metadata", m.metadata, "tensors", m.tensors, "types", m.types);
}
nb::object to_python(const QuantizeReport& r) {
  return dictionary("bytes_in", r.bytes_in, "bytes_out", r.bytes_out, "types", r.types, "fallbacks", r.fallbacks,
                    "warnings", r.warnings);
}
nb::object to_python(const ModelPlan& p) {
  return dictionary(
      "name", p.name, "architecture", p.architecture, "layers", p.layers, "width", p.width, "vocabulary", p.vocabulary,
      "context", p.context, "kv_type", p.kv_type, "step_tokens", p.step_tokens, "placement", p.placement, "backend",
      p.backend, "first_fallback_layer", p.first_fallback_layer, "fallback_backend", p.fallback_backend, "weight_bytes",
      p.weight_bytes, "active_weight_bytes", p.active_weight_bytes, "kv_bytes", p.kv_bytes, "workspace_bytes",
      p.workspace_bytes, "program_bytes", p.program_bytes, "total_bytes", p.total_bytes, "ram_bytes", p.ram_bytes,
      "available_bytes", p.available_bytes, "device_bytes", p.device_bytes, "fits", p.fits, "machine", p.machine,
      "read_gb_per_s", p.read_gb_per_s, "int8_gop_per_s", p.int8_gop_per_s, "speeds", p.speeds);
}
nb::object to_python(const VerifyReport& r) {
  return dictionary("tested", r.tested, "reference", r.reference, "checked", r.checked, "prompt_tokens",
                    r.prompt_tokens, "ops", r.ops, "worst", r.worst, "first_divergence", r.first_divergence, "dumped",
                    r.dumped, "text", r.text);
}
nb::object to_python(const ProfileReport& r) {
  return dictionary("backend", r.backend, "workers", r.workers, "most_of_limit", r.most_of_limit, "phases", r.phases,
                    "text", r.text);
}
nb::object to_python(const BenchRow& r) {
  return dictionary("phase", r.phase, "name", r.name, "type", r.type, "kv_type", r.kv_type, "backend", r.backend,
                    "threads", r.threads, "batch", r.batch, "depth", r.depth, "tokens", r.tokens, "tokens_per_second",
                    r.tokens_per_second, "gb_per_s", r.gb_per_s, "gop_per_s", r.gop_per_s, "percent_of_limit",
                    r.percent_of_limit, "microseconds", r.microseconds, "accepted_percent", r.accepted_percent, "gain",
                    r.gain);
}
nb::object to_python(const EngineStats& s) {
  return dictionary("steps", s.steps, "prompt_tokens", s.prompt_tokens, "reused_tokens", s.reused_tokens,
                    "generated_tokens", s.generated_tokens, "drafts", s.drafts, "drafted_tokens", s.drafted_tokens,
                    "accepted_tokens", s.accepted_tokens, "finished_requests", s.finished_requests, "preemptions",
                    s.preemptions, "running", s.running, "waiting", s.waiting, "cost_error", s.cost_error);
}
nb::object to_python(const GenerateResult& r) {
  return dictionary("samples", r.samples, "metrics", r.metrics);
}
nb::object to_python(const SamplingSettings& s) {
  return dictionary("temperature", s.temperature, "top_k", s.top_k, "top_p", s.top_p, "min_p", s.min_p,
                    "repeat_penalty", s.repeat_penalty, "presence_penalty", s.presence_penalty, "frequency_penalty",
                    s.frequency_penalty, "penalty_window", s.penalty_window);
}

}  // namespace inferno::python
