// Against what jinja2 made of the same templates (tools/check_templates.py --write).
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <string>

#include "inferno/error.h"
#include "support/test_data.h"
#include "template/known_templates.h"
#include "template/template.h"
#include "template/value_text.h"

namespace inferno {
namespace {

using nlohmann::ordered_json;

std::string read_data(const std::string& name) {
  std::ifstream file(testing::shipped_data("templates/" + name).at(0));
  return {std::istreambuf_iterator<char>(file), {}};
}

ordered_json grid() {
  return ordered_json::parse(read_data("conversations.json"));
}

std::string source_of(const std::string& file_name) {
  const std::string_view known = find_known_template(file_name.substr(0, file_name.find('.')));
  return known.empty() ? read_data(file_name) : std::string(known);
}

// Variables as the engine gives them.
TemplateVariables variables_of(const ordered_json& given, const ordered_json& control) {
  TemplateVariables variables;
  for (const auto& [name, value] : given.items()) variables.set(name, jinja::from_json(value));
  for (const auto& [name, value] : control.items())
    variables.set(name, jinja::Value::control(value.get<std::string>()));
  return variables;
}

struct Rendering {
  std::optional<std::string> text;
  std::string control;  // of the text, what may become control tokens
  std::string error;
};

Rendering render(const std::string& source, const TemplateVariables& variables, std::time_t now) {
  Rendering out;
  try {
    for (const PromptPiece& piece : Template(source).render(variables, {}, now)) {
      out.text = out.text.value_or("") + piece.text;
      if (piece.control) out.control += piece.text;
    }
    if (!out.text) out.text = "";
  } catch (const Error& error) {
    out.error = error.what();
  }
  return out;
}

TEST(TemplateData, OurTemplatesRenderEveryConversationAsJinja2) {
  const ordered_json data = grid();
  std::map<std::string, TemplateVariables> conversations;
  for (const ordered_json& conversation : data["conversations"]) {
    for (const bool opened : {true, false}) {
      ordered_json variables = {{"tools", nullptr}, {"documents", nullptr}, {"add_generation_prompt", opened}};
      variables.update(conversation["variables"]);
      conversations[conversation["name"].get<std::string>() + (opened ? ", answer opened" : "")] =
          variables_of(variables, data["control"]);
    }
  }
  std::istringstream lines(read_data("expected.jsonl"));
  int count = 0;
  for (std::string line; std::getline(lines, line); ++count) {
    const ordered_json row = ordered_json::parse(line);
    const Rendering ours = render(source_of(row[0]), conversations.at(row[1]), data["now"].get<std::time_t>());
    const std::string label = row[0].get<std::string>() + " / " + row[1].get<std::string>();
    if (row[2].is_null()) {
      EXPECT_FALSE(ours.text) << label;
      EXPECT_EQ(ours.error.find('\n'), std::string::npos) << ours.error;
    } else {
      ASSERT_TRUE(ours.text) << label << ": " << ours.error;
      EXPECT_EQ(*ours.text, row[2].get<std::string>()) << label;
      EXPECT_EQ(ours.control.find(data["mark"].get<std::string>()), std::string::npos)
          << label << ": user text is control";
    }
  }
  EXPECT_GE(count, 600);
}

TEST(TemplateData, SnippetsOfTheLanguageGiveWhatJinja2Gives) {
  const ordered_json data = ordered_json::parse(read_data("snippets.json"));
  const TemplateVariables variables = variables_of(data["variables"], {{"bos_token", "<s>"}, {"eos_token", "</s>"}});
  for (const ordered_json& row : data["snippets"]) {
    const Rendering ours = render(row[0], variables, grid()["now"].get<std::time_t>());
    if (row[1].is_null()) {
      EXPECT_FALSE(ours.text) << row[0] << " gives " << *ours.text;
    } else {
      ASSERT_TRUE(ours.text) << row[0] << ": " << ours.error;
      EXPECT_EQ(*ours.text, row[1].get<std::string>()) << row[0];
    }
  }
  EXPECT_GE(data["snippets"].size(), 300U);
}

}  // namespace
}  // namespace inferno
