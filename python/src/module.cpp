// inferno._inferno: the library's calls as Python meets them; python/inferno gives them their public form.
//
// Everything that may take long releases Python's lock (the GIL).
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include "records.h"
#include "request.h"

namespace inferno::python {
namespace {

// A Python function as a progress callback: called with the lock, which the work has released.
OnProgress progress_to(const nb::object& function) {
  if (function.is_none()) return {};
  return [&function](uint64_t done, uint64_t total) {
    const nb::gil_scoped_acquire lock;
    function(done, total);
  };
}

// A model goes away without the lock: a callback of a request that is being ended may wait for it.
void drop(const Llm* llm) {
  std::optional<nb::gil_scoped_release> released;
  if (PyGILState_Check() != 0) released.emplace();
  delete llm;
}

class Model {
 public:
  Model(const std::optional<std::string>& path, const LoadOptions& options, const nb::object& on_progress) {
    LoadOptions with_progress = options;
    with_progress.on_progress = progress_to(on_progress);
    const nb::gil_scoped_release released;
    llm_.reset(new Llm(path ? Llm::load(*path, with_progress) : Llm::builtin(with_progress)), drop);
  }

  // Ends what runs; calls after it are Errors. Called with the lock, as llm() is.
  void close() {
    if (llm_ != nullptr) llm_->cancel();
    llm_.reset();
  }
  // A copy: who uses it while another thread closes the model keeps it.
  [[nodiscard]] std::shared_ptr<Llm> llm() const {
    if (llm_ == nullptr) throw Error("this model was closed");
    return llm_;
  }

  std::unique_ptr<Request> submit(const Prompt& prompt, GenerateOptions options, nb::object on_token) {
    auto queue = std::make_shared<TokenQueue>();
    TokenCallback callback = [queue](const TokenEvent& event) {
      queue->add(event);
      return true;
    };
    if (!on_token.is_none()) callback = calling(std::move(on_token));
    const std::shared_ptr<Llm> used = llm();
    const nb::gil_scoped_release released;
    Generation generation = used->submit(prompt, options, std::move(callback), [queue] { queue->end(); });
    return std::make_unique<Request>(std::move(queue), std::move(generation));
  }

  nb::object logits(const Prompt& prompt, int32_t first) {
    auto made = std::make_unique<Logits>();
    const std::shared_ptr<Llm> used = llm();
    {
      const nb::gil_scoped_release released;
      *made = used->logits(prompt, first);
    }
    const size_t shape[2] = {static_cast<size_t>(made->rows), static_cast<size_t>(made->vocabulary)};
    float* values = made->values.data();
    // The array owns the logits.
    const nb::capsule owner(made.release(), [](void* p) noexcept { delete static_cast<Logits*>(p); });
    return nb::cast(nb::ndarray<nb::numpy, float, nb::ndim<2>>(values, 2, shape, owner));
  }

 private:
  // The function is released with the lock, on whatever thread the request ends.
  static TokenCallback calling(nb::object function) {
    auto held = std::shared_ptr<nb::object>(new nb::object(std::move(function)), [](nb::object* object) {
      const nb::gil_scoped_acquire lock;
      delete object;
    });
    return [held](const TokenEvent& event) {
      const nb::gil_scoped_acquire lock;
      nb::list logprobs;
      for (const TokenLogprob& p : event.logprobs) logprobs.append(nb::make_tuple(p.id, p.logprob));
      const nb::object goes_on = (*held)(text(event.text), event.id, event.sample, logprobs);
      return goes_on.is_none() || nb::cast<bool>(nb::bool_(goes_on));
    };
  }

  std::shared_ptr<Llm> llm_;
};

nb::object token(const Token& t) {
  nb::list logprobs;
  for (const TokenLogprob& p : t.logprobs) logprobs.append(nb::make_tuple(p.id, p.logprob));
  return nb::make_tuple(text(t.text), t.id, t.sample, logprobs);
}
nb::list tokens(const std::vector<Token>& made) {
  nb::list list;
  for (const Token& t : made) list.append(token(t));
  return list;
}

void bind_options(nb::module_& m) {
  nb::class_<LoadOptions>(m, "LoadOptions")
      .def(nb::init<>())
      .def_rw("backend", &LoadOptions::backend)
      .def_rw("threads", &LoadOptions::threads)
      .def_rw("affinity", &LoadOptions::affinity)
      .def_rw("numa", &LoadOptions::numa)
      .def_rw("context", &LoadOptions::context)
      .def_rw("kv_type", &LoadOptions::kv_type)
      .def_rw("kv_memory", &LoadOptions::kv_memory)
      .def_rw("max_sequences", &LoadOptions::max_sequences)
      .def_rw("draft", &LoadOptions::draft)
      .def_rw("max_token_latency_ms", &LoadOptions::max_token_latency_ms)
      .def_rw("profile", &LoadOptions::profile)
      .def_rw("all_logits", &LoadOptions::all_logits);
  nb::class_<Constraint>(m, "Constraint")
      .def(nb::init<>())
      .def_rw("json_schema", &Constraint::json_schema)
      .def_rw("regex", &Constraint::regex)
      .def_rw("grammar", &Constraint::grammar)
      .def_rw("choice", &Constraint::choice);
  nb::class_<GenerateOptions>(m, "GenerateOptions")
      .def(nb::init<>())
      .def_rw("max_new_tokens", &GenerateOptions::max_new_tokens)
      .def_rw("sampling", &GenerateOptions::sampling)
      .def_rw("samples", &GenerateOptions::samples)
      .def_rw("stop", &GenerateOptions::stop)
      .def_rw("stop_ids", &GenerateOptions::stop_ids)
      .def_rw("stop_at_end", &GenerateOptions::stop_at_end)
      .def_rw("top_logprobs", &GenerateOptions::top_logprobs)
      .def_rw("cache_salt", &GenerateOptions::cache_salt)
      .def_rw("reuse_prefix", &GenerateOptions::reuse_prefix)
      .def_rw("lookup", &GenerateOptions::lookup)
      .def_rw("constraint", &GenerateOptions::constraint)
      .def("add_bias", [](GenerateOptions& o, int32_t id, float bias) { o.logit_bias.push_back({id, bias}); });
  nb::class_<SamplingSettings>(m, "SamplingSettings")
      .def(nb::init<>())
      .def_rw("temperature", &SamplingSettings::temperature)
      .def_rw("top_k", &SamplingSettings::top_k)
      .def_rw("top_p", &SamplingSettings::top_p)
      .def_rw("min_p", &SamplingSettings::min_p)
      .def_rw("repeat_penalty", &SamplingSettings::repeat_penalty)
      .def_rw("presence_penalty", &SamplingSettings::presence_penalty)
      .def_rw("frequency_penalty", &SamplingSettings::frequency_penalty)
      .def_rw("penalty_window", &SamplingSettings::penalty_window)
      .def_rw("seed", &SamplingSettings::seed);
  nb::class_<ToolCall>(m, "ToolCall")
      .def(nb::init<>())
      .def_rw("id", &ToolCall::id)
      .def_rw("name", &ToolCall::name)
      .def_rw("arguments", &ToolCall::arguments);
  nb::class_<ChatMessage>(m, "ChatMessage")
      .def(nb::init<>())
      .def_rw("role", &ChatMessage::role)
      .def_rw("content", &ChatMessage::content)
      .def_rw("reasoning_content", &ChatMessage::reasoning_content)
      .def_rw("tool_calls", &ChatMessage::tool_calls)
      .def_rw("tool_call_id", &ChatMessage::tool_call_id)
      .def_rw("name", &ChatMessage::name);
  nb::class_<ChatOptions>(m, "ChatOptions")
      .def(nb::init<>())
      .def_rw("add_generation_prompt", &ChatOptions::add_generation_prompt)
      .def_rw("enable_thinking", &ChatOptions::enable_thinking)
      .def_rw("tools", &ChatOptions::tools)
      .def_rw("chat_template", &ChatOptions::chat_template);
  nb::class_<Prompt>(m, "Prompt")
      .def_static("text", [](const nb::bytes& text) { return Prompt(std::string(text.c_str(), text.size())); })
      .def_static("ids", [](std::vector<int32_t> ids) { return Prompt(std::move(ids)); })
      .def_static("chat", [](std::vector<ChatMessage> messages, ChatOptions options) {
        return Prompt(std::move(messages), std::move(options));
      });
}

void bind_model(nb::module_& m) {
  nb::class_<Waker>(m, "Waker").def(nb::init<>()).def("descriptor", &Waker::descriptor).def("take", &Waker::take);
  nb::class_<Request>(m, "Request")
      .def("next", [](Request& r) { return tokens(r.next()); })
      .def("take", [](Request& r) { return tokens(r.take()); })
      .def("has_ended", &Request::has_ended)
      .def("notify", &Request::notify)
      .def("cancel", &Request::cancel)
      .def("result", [](Request& r) { return to_python(r.result()); });
  nb::class_<Model>(m, "Model")
      .def(nb::init<const std::optional<std::string>&, const LoadOptions&, const nb::object&>(), nb::arg("path").none(),
           nb::arg("options"), nb::arg("on_progress").none())
      .def("close", &Model::close)
      .def("submit", &Model::submit, nb::arg("prompt"), nb::arg("options"), nb::arg("on_token").none())
      .def("cancel", [](Model& s) { s.llm()->cancel(); })
      .def("logits", &Model::logits)
      .def("encode", [](Model& s, const Prompt& prompt) { return s.llm()->encode(prompt); })
      .def("tokenize", [](Model& s, const nb::bytes& text,
                          bool special) { return s.llm()->tokenize({text.c_str(), text.size()}, special); })
      .def("detokenize",
           [](Model& s, const std::vector<int32_t>& ids) {
             const std::string made = s.llm()->detokenize(ids);
             return nb::bytes(made.data(), made.size());
           })
      .def("render",
           [](Model& s, const Prompt& chat) { return text(s.llm()->render(std::get<Prompt::Chat>(chat.content))); })
      .def("has_chat_template", [](Model& s) { return s.llm()->has_chat_template(); })
      .def("has_vocabulary", [](Model& s) { return s.llm()->has_vocabulary(); })
      .def("vocabulary", [](Model& s) { return s.llm()->vocabulary(); })
      .def("context", [](Model& s) { return s.llm()->context(); })
      .def("end_tokens", [](Model& s) { return s.llm()->end_tokens(); })
      .def("backend", [](Model& s) { return s.llm()->backend(); })
      .def("kv_type", [](Model& s) { return s.llm()->kv_type(); })
      .def("stats", [](Model& s) { return to_python(s.llm()->stats()); })
      .def("suggested_sampling",
           [](Model& s) -> nb::object {
             const auto settings = s.llm()->suggested_sampling();
             return settings ? to_python(*settings) : nb::none();
           })
      .def("profile", [](Model& s) { return to_python(s.llm()->profile()); });
}

// Computes without the lock, then makes Python's objects with it.
template <typename Function>
nb::object report(const Function& compute) {
  auto made = [&] {
    const nb::gil_scoped_release released;
    return compute();
  }();
  return to_python(made);
}

void bind_tools(nb::module_& m) {
  m.def("version", &version);
  m.def("inspect", [](const std::string& path) { return report([&] { return inspect_model(path); }); });
  m.def("plan", [](const std::string& path, const LoadOptions& load, int32_t prompt_tokens, int32_t depth) {
    return report([&] { return plan_model(path, load, {.prompt_tokens = prompt_tokens, .depth = depth}); });
  });
  m.def(
      "quantize",
      [](const std::string& input, const std::string& output, const std::string& type, const QuantizeOptions& options,
         const nb::object& on_progress) {
        QuantizeOptions with_progress = options;
        with_progress.on_progress = progress_to(on_progress);
        return report([&] { return quantize_model(input, output, type, with_progress); });
      },
      nb::arg("input"), nb::arg("output"), nb::arg("type"), nb::arg("options"), nb::arg("on_progress").none());
  m.def("verify", [](const std::string& path, const LoadOptions& load, const Prompt& prompt, const std::string& against,
                     int32_t tokens_after, const std::string& plant) {
    return report([&] {
      return verify_model(path, load, {.against = against, .prompt = prompt, .tokens = tokens_after, .plant = plant});
    });
  });
  m.def("bench", [](const std::string& path, const LoadOptions& load, const BenchOptions& what) {
    std::vector<BenchRow> rows;
    {
      const nb::gil_scoped_release released;
      rows = bench_model(path, load, what);
    }
    nb::list made;
    for (const BenchRow& row : rows) made.append(to_python(row));
    return made;
  });
  nb::class_<BenchOptions>(m, "BenchOptions")
      .def(nb::init<>())
      .def_rw("prompt", &BenchOptions::prompt)
      .def_rw("generate", &BenchOptions::generate)
      .def_rw("depth", &BenchOptions::depth)
      .def_rw("batches", &BenchOptions::batches)
      .def_rw("repeat", &BenchOptions::repeat);
  nb::class_<QuantizeOptions>(m, "QuantizeOptions")
      .def(nb::init<>())
      .def_rw("threads", &QuantizeOptions::threads)
      .def_rw("imatrix", &QuantizeOptions::imatrix)
      .def_rw("output_type", &QuantizeOptions::output_type)
      .def_rw("pure", &QuantizeOptions::pure)
      .def("add_tensor_type", [](QuantizeOptions& o, const std::string& pattern, const std::string& type) {
        o.tensor_types.push_back({.pattern = pattern, .type = type});
      });
}

}  // namespace
}  // namespace inferno::python

NB_MODULE(_inferno, m) {
  namespace py = inferno::python;
  nanobind::exception<inferno::Error>(m, "Error", PyExc_RuntimeError);
  py::bind_options(m);
  py::bind_model(m);
  py::bind_tools(m);
}
