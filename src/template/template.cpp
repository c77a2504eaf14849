#include "template/template.h"

#include "base/error.h"
#include "template/evaluator.h"
#include "template/parser.h"

namespace inferno {

namespace {
constexpr size_t kMaxSource = size_t{1} << 20;
}  // namespace

struct TemplateProgram {
  jinja::Program program;
};

Template::Template(std::string_view source) {
  if (source.size() > kMaxSource) fail("the chat template has {} bytes, more than {}", source.size(), kMaxSource);
  try {
    jinja::Parser parser(source);
    program_ = std::make_unique<const TemplateProgram>(TemplateProgram{parser.parse()});
  } catch (const jinja::SyntaxFailure& failure) {
    fail("chat template, line {}: {}", failure.line, failure.what());
  }
}

Template::~Template() = default;
Template::Template(Template&& other) noexcept = default;
Template& Template::operator=(Template&& other) noexcept = default;

std::vector<PromptPiece> Template::render(const TemplateVariables& variables, const TemplateLimits& limits,
                                          std::optional<std::time_t> now) const {
  jinja::Run run(limits, now.value_or(std::time(nullptr)));
  std::vector<PromptPiece> pieces;
  try {
    jinja::Evaluator evaluator(program_->program, variables, run);
    const jinja::Text text = evaluator.render();
    text.each_run(0, text.size(), [&](std::string_view bytes, bool control) {
      pieces.push_back({.text = std::string(bytes), .control = control});
    });
  } catch (const jinja::Failure& failure) {
    fail("chat template, line {}: {}", run.line(), failure.what());
  }
  return pieces;
}

bool Template::uses(std::string_view variable) const {
  return program_->program.ids.contains(std::string(variable));
}

}  // namespace inferno
