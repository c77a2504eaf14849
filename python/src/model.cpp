// A loaded model and its requests.
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "module.h"
#include "records.h"
#include "request.h"

// Of an answer: reasoning, content, and (index, name, arguments) of pieces of calls.
#define INFERNO_PIECE "tuple[str, str, list[tuple[int, str, str, str]]]"

namespace inferno::python {
namespace {

nb::list logprobs_of(std::span<const TokenLogprob> logprobs) {
  nb::list made;
  for (const TokenLogprob& p : logprobs) made.append(nb::make_tuple(p.id, p.logprob));
  return made;
}

// Called with the lock, as the last reference always is given up. A model goes away without it: a callback of a request
// that is being ended may wait for it.
void drop(const Llm* llm) {
  const Released released;
  delete llm;
}

class Model {
 public:
  Model(const std::optional<std::string>& path, const LoadOptions& options, const nb::object& on_progress) {
    LoadOptions with_progress = options;
    with_progress.on_progress = progress_to(on_progress);
    with_progress.on_step = [outbox = outbox_] { outbox->send(); };
    const Released released;
    llm_.reset(new Llm(path ? Llm::load(*path, with_progress) : Llm::builtin(with_progress)), drop);
  }

  // Ends what runs; calls after it are Errors. Called with the lock, as llm() is.
  void close() {
    if (llm_ != nullptr) llm_->cancel();
    llm_.reset();
  }
  [[nodiscard]] bool is_closed() const { return llm_ == nullptr; }
  // A copy: who uses it while another thread closes the model keeps it.
  [[nodiscard]] std::shared_ptr<Llm> llm() const {
    if (llm_ == nullptr) throw Error("this model was closed");
    return llm_;
  }

  // `own_thread`: it goes on when nobody waits for it.
  std::unique_ptr<Request> submit(const Prompt& prompt, GenerateOptions options, nb::object on_token, bool own_thread) {
    auto queue = std::make_shared<TokenQueue>(outbox_);
    TokenCallback callback = [queue](const TokenEvent& event) {
      queue->add(event);
      return true;
    };
    if (!on_token.is_none()) callback = calling(std::move(on_token));
    const std::shared_ptr<Llm> used = llm();
    const Released released;
    const auto end = [queue] { queue->end(); };
    Generation generation = own_thread ? used->submit(prompt, options, std::move(callback), end)
                                       : used->enqueue(prompt, options, std::move(callback), end);
    return std::make_unique<Request>(std::move(queue), std::move(generation),
                                     own_thread ? std::weak_ptr<Llm>() : std::weak_ptr<Llm>(used));
  }

  nb::object logits(const Prompt& prompt, int32_t first) {
    auto made = std::make_unique<Logits>();
    const std::shared_ptr<Llm> used = llm();
    {
      const Released released;
      *made = used->logits(prompt, first);
    }
    const size_t shape[2] = {static_cast<size_t>(made->rows), static_cast<size_t>(made->vocabulary)};
    float* values = made->values.data();
    // The array owns the logits.
    const nb::capsule owner(made.release(), [](void* p) noexcept { delete static_cast<Logits*>(p); });
    return nb::cast(nb::ndarray<nb::numpy, float, nb::ndim<2>>(values, 2, shape, owner));
  }

  nb::object embed(const std::vector<nb::bytes>& texts, const std::string& pooling, bool normalize, int32_t dimensions,
                   bool truncate) {
    std::vector<std::string> plain;
    plain.reserve(texts.size());
    for (const nb::bytes& text : texts) plain.emplace_back(text.c_str(), text.size());
    auto made = std::make_unique<Embeddings>();
    const std::shared_ptr<Llm> used = llm();
    {
      const nb::gil_scoped_release released;
      *made = used->embed(plain,
                          {.pooling = pooling, .normalize = normalize, .dimensions = dimensions, .truncate = truncate});
    }
    const size_t shape[2] = {static_cast<size_t>(made->rows), static_cast<size_t>(made->width)};
    float* values = made->values.data();
    // The array owns the vectors.
    const nb::capsule owner(made.release(), [](void* p) noexcept { delete static_cast<Embeddings*>(p); });
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
      const nb::object goes_on = (*held)(text(event.text), event.id, event.sample, logprobs_of(event.logprobs));
      return goes_on.is_none() || nb::cast<bool>(nb::bool_(goes_on));
    };
  }

  std::shared_ptr<Outbox> outbox_ = std::make_shared<Outbox>();
  std::shared_ptr<Llm> llm_;
};

// Makes instances of a subclass of str with `id`, `sample` and `logprobs`, without running any Python code: between two
// steps of a model an interpreter finds nothing of its own in the caches, and every call is dear.
class TokenMaker {
 public:
  explicit TokenMaker(nb::handle type) : type_(type), new_(id_.type().attr("__new__")) {}

  [[nodiscard]] nb::list operator()(const std::vector<Token>& made) const {
    nb::list list;
    for (const Token& t : made) {
      nb::object token = new_(type_, text(t.text));
      nb::setattr(token, id_, nb::int_(t.id));
      nb::setattr(token, sample_, nb::int_(t.sample));
      nb::setattr(token, logprobs_, t.logprobs.empty() ? no_logprobs_ : nb::object(logprobs_of(t.logprobs)));
      list.append(std::move(token));
    }
    return list;
  }

 private:
  // Attributes are found sooner by a name that is the same object every time.
  static nb::object name(const char* text) { return nb::steal(PyUnicode_InternFromString(text)); }

  nb::handle type_;
  nb::object id_ = name("id");
  nb::object sample_ = name("sample");
  nb::object logprobs_ = name("logprobs");
  nb::object new_;  // of str
  nb::object no_logprobs_ = nb::make_tuple();
};

nb::list ready(const std::vector<Waker::Ready>& made, const TokenMaker& tokens) {
  nb::list list;
  for (const Waker::Ready& r : made) list.append(nb::make_tuple(r.request, tokens(r.tokens), r.ended));
  return list;
}

nb::object piece(const AnswerPiece& made) {
  nb::list calls;
  for (const ToolCallPiece& c : made.calls) {
    calls.append(nb::make_tuple(c.index, text(c.id), text(c.name), text(c.arguments)));
  }
  return nb::make_tuple(text(made.reasoning), text(made.content), calls);
}

void bind_answer(nb::module_& m) {
  nb::class_<AnswerReader>(m, "AnswerReader", "Takes an answer apart as its text comes.")
      .def(
          "push", [](AnswerReader& r, const std::string& text) { return piece(r.push(text)); },
          nb::sig("def push(self, text: str) -> " INFERNO_PIECE), "(reasoning, content, pieces of calls) so far.")
      .def(
          "finish", [](AnswerReader& r) { return piece(r.finish()); }, nb::sig("def finish(self) -> " INFERNO_PIECE),
          "What was held back.");
}

void bind_request(nb::module_& m) {
  nb::class_<Waker>(m, "Waker", "Tells an event loop that requests have tokens, by a descriptor that becomes readable.")
      .def(nb::init<>())
      .def("descriptor", &Waker::descriptor, "Readable when take() gives something.")
      .def(
          "take", [](Waker& w, nb::handle type) { return ready(w.take(), TokenMaker(type)); }, nb::arg("type"),
          nb::sig("def take(self, type: type[str]) -> list[tuple[int, list[typing.Any], bool]]"),
          "(number of the request, its tokens as that type, whether it ended) of all that have something.");
  nb::class_<Request>(m, "Request", "A request that was submitted.")
      .def(
          "next", [](Request& r, nb::handle type) { return TokenMaker(type)(r.next()); }, nb::arg("type"),
          nb::sig("def next(self, type: type[str]) -> list[typing.Any]"),
          "Waits for tokens, made as that type; an empty list at the end.")
      .def("has_ended", &Request::has_ended, "Whether the result is there.")
      .def("notify", &Request::notify, nb::arg("waker"), nb::arg("number"), nb::arg("each"),
           "From now on that waker is told this number at the end, with `each` also when there are tokens.")
      .def("cancel", &Request::cancel, "Ends it before its next step.")
      .def("leave", &Request::leave, "cancel(), and the step that ends it where no other thread would make it.")
      .def(
          "result", [](Request& r) { return to_python(r.result()); },
          nb::sig("def result(self) -> " INFERNO_DICTIONARY), "Waits for the end.");
}

}  // namespace

void bind_model(nb::module_& m) {
  bind_answer(m);
  bind_request(m);
  nb::class_<Model>(m, "Model", "A loaded model; see inferno.Llm.")
      .def(nb::init<const std::optional<std::string>&, const LoadOptions&, const nb::object&>(), nb::arg("path").none(),
           nb::arg("options"), nb::arg("on_progress").none())
      .def("close", &Model::close, "Ends what runs; calls after it are errors.")
      .def("is_closed", &Model::is_closed, "Whether close() was called.")
      .def("submit", &Model::submit, nb::arg("prompt"), nb::arg("options"), nb::arg("on_token").none(),
           nb::arg("own_thread"), "Returns at once.")
      .def(
          "cancel", [](Model& s) { s.llm()->cancel(); }, "Ends all that runs or waits.")
      .def("logits", &Model::logits, nb::arg("prompt"), nb::arg("first"),
           nb::sig("def logits(self, prompt: Prompt, first: int) -> numpy.typing.NDArray[numpy.float32]"),
           "Rows of the prompt's positions from `first` on.")
      .def("embed", &Model::embed, nb::arg("texts"), nb::arg("pooling"), nb::arg("normalize"), nb::arg("dimensions"),
           nb::arg("truncate"),
           nb::sig("def embed(self, texts: collections.abc.Sequence[bytes], pooling: str, normalize: bool, "
                   "dimensions: int, truncate: bool) -> numpy.typing.NDArray[numpy.float32]"),
           "A row per text.")
      .def(
          "encode", [](Model& s, const Prompt& prompt) { return s.llm()->encode(prompt); }, nb::arg("prompt"),
          "The ids that a generation begins with.")
      .def(
          "tokenize",
          [](Model& s, const nb::bytes& text, bool special) {
            return s.llm()->tokenize({text.c_str(), text.size()}, special);
          },
          nb::arg("text"), nb::arg("special"), "The ids of a text alone.")
      .def(
          "detokenize",
          [](Model& s, const std::vector<int32_t>& ids) {
            const std::string made = s.llm()->detokenize(ids);
            return nb::bytes(made.data(), made.size());
          },
          nb::arg("ids"), "The bytes of ids.")
      .def(
          "render",
          [](Model& s, const Prompt& chat) { return text(s.llm()->render(std::get<Prompt::Chat>(chat.content))); },
          nb::sig("def render(self, chat: Prompt) -> str"), "A conversation as text.")
      .def(
          "answer_reader",
          [](Model& s, const Prompt& chat, uint64_t id_seed) {
            return s.llm()->answer_reader(std::get<Prompt::Chat>(chat.content), id_seed);
          },
          nb::arg("chat"), nb::arg("id_seed"), "Of the answer to a conversation; the seed makes the ids of calls.")
      .def(
          "has_chat_template", [](Model& s) { return s.llm()->has_chat_template(); }, "Whether its file has one.")
      .def(
          "vocabulary", [](Model& s) { return s.llm()->vocabulary(); }, "How many tokens it knows.")
      .def(
          "context", [](Model& s) { return s.llm()->context(); }, "Positions of one sequence.")
      .def(
          "end_tokens", [](Model& s) { return s.llm()->end_tokens(); }, "Tokens that end a text.")
      .def(
          "backend", [](Model& s) { return s.llm()->backend(); }, "What computes.")
      .def(
          "kv_type", [](Model& s) { return s.llm()->kv_type(); }, "Of the cache.")
      .def(
          "stats", [](Model& s) { return to_python(s.llm()->stats()); },
          nb::sig("def stats(self) -> " INFERNO_DICTIONARY), "Counts since it was loaded.")
      .def(
          "suggested_sampling",
          [](Model& s) -> nb::object {
            const auto settings = s.llm()->suggested_sampling();
            return settings ? to_python(*settings) : nb::none();
          },
          nb::sig("def suggested_sampling(self) -> " INFERNO_DICTIONARY " | None"), "What its file says of drawing.")
      .def(
          "profile", [](Model& s) { return to_python(s.llm()->profile()); },
          nb::sig("def profile(self) -> " INFERNO_DICTIONARY), "Where the time went.");
}

}  // namespace inferno::python
