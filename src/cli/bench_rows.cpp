#include "cli/bench_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>

#include "base/error.h"

namespace inferno::cli {
namespace {

using Json = nlohmann::ordered_json;

std::string share(const BenchRow& row) {
  return row.percent_of_limit ? fmt::format("{:.1f}", *row.percent_of_limit) : "";
}

std::string label(const BenchRow& row) {
  std::string text = fmt::format("{}, {} thread{}", row.type, row.threads, row.threads == 1 ? "" : "s");
  if (row.batch > 1) text += fmt::format(", {} sequences", row.batch);
  if (row.depth > 0) text += fmt::format(", depth {}", row.depth);
  return text;
}

std::string markdown(const std::vector<BenchRow>& rows) {
  // Aligned, so that it reads well in a terminal too.
  std::vector<std::vector<std::string>> cells;
  const bool ops = !rows.empty() && rows.front().microseconds;
  if (ops) {
    cells.push_back({"op", "phase", "type", "threads", "tokens", "µs", "±%", "GB/s", "GOP/s", "% of limit"});
  } else {
    cells.push_back({"model", "type", "backend", "cache", "threads", "batch", "depth", "phase", "tok/s", "±%", "GB/s",
                     "GOP/s", "% of limit"});
  }
  const bool guesses = std::ranges::any_of(rows, [](const BenchRow& r) { return r.accepted_percent.has_value(); });
  if (guesses) {
    cells.front().emplace_back("guesses right %");
    cells.front().emplace_back("gain");
  }
  const auto number = [](double value) { return fmt::format("{:.{}f}", value, value < 100 ? 1 : 0); };
  for (const BenchRow& r : rows) {
    const std::string spread = fmt::format("{:.1f}", r.tokens_per_second.spread_percent());
    if (ops) {
      cells.push_back({r.name, r.phase, r.type, std::to_string(r.threads), std::to_string(r.tokens),
                       number(r.microseconds.value_or(0)), spread, number(r.gb_per_s), number(r.gop_per_s), share(r)});
    } else {
      cells.push_back({r.name, r.type, r.backend, r.kv_type, std::to_string(r.threads), std::to_string(r.batch),
                       std::to_string(r.depth), fmt::format("{} {}", r.phase, r.tokens),
                       number(r.tokens_per_second.median), spread, number(r.gb_per_s), number(r.gop_per_s), share(r)});
    }
    if (guesses) {
      cells.back().push_back(r.accepted_percent ? fmt::format("{:.0f}", *r.accepted_percent) : "");
      cells.back().push_back(r.gain ? fmt::format("{:.2f}", *r.gain) : "");
    }
  }
  std::vector<size_t> widths(cells.front().size(), 3);
  for (const auto& line : cells) {
    for (size_t c = 0; c < line.size(); ++c) {
      // "µ" and "±" are two bytes and one column.
      const auto extra = std::count_if(line[c].begin(), line[c].end(), [](char b) { return (b & 0xC0) == 0x80; });
      widths[c] = std::max(widths[c], line[c].size() - static_cast<size_t>(extra));
    }
  }
  std::string out;
  for (size_t l = 0; l < cells.size(); ++l) {
    for (size_t c = 0; c < widths.size(); ++c)
      fmt::format_to(std::back_inserter(out), "| {:<{}} ", cells[l][c], widths[c]);
    out += "|\n";
    if (l != 0) continue;
    for (const size_t width : widths) fmt::format_to(std::back_inserter(out), "|{:-<{}}", "", width + 2);
    out += "|\n";
  }
  return out;
}

Json to_json(const BenchRow& r, const BenchContext& context, size_t index) {
  Json json = {{"phase", r.phase},
               {r.microseconds ? "op" : "model", r.name},
               {"type", r.type},
               {"kv_type", r.kv_type},
               {"backend", r.backend},
               {"threads", r.threads},
               {"batch", r.batch},
               {"depth", r.depth},
               {"tokens", r.tokens},
               {"tokens_per_second", r.tokens_per_second.median},
               {"tokens_per_second_min", r.tokens_per_second.least},
               {"tokens_per_second_max", r.tokens_per_second.most},
               {"spread_percent", r.tokens_per_second.spread_percent()},
               {"gb_per_s", r.gb_per_s},
               {"gop_per_s", r.gop_per_s},
               {"percent_of_limit", nullptr}};
  if (r.percent_of_limit) json["percent_of_limit"] = *r.percent_of_limit;
  if (r.microseconds) json["microseconds"] = *r.microseconds;
  json["guesses_right_percent"] = r.accepted_percent ? Json(*r.accepted_percent) : Json(nullptr);
  json["guesses_gain"] = r.gain ? Json(*r.gain) : Json(nullptr);
  json["file"] = context.files[index];
  json["version"] = context.version;
  json["cpu"] = context.cpu;
  json["date"] = context.date;
  json["settings"] = context.settings;
  json["load_average"] = context.load;
  return json;
}

std::string csv(const std::vector<BenchRow>& rows, const BenchContext& context) {
  std::string out;
  for (size_t i = 0; i < rows.size(); ++i) {
    const Json json = to_json(rows[i], context, i);
    if (out.empty()) {
      for (const auto& [key, value] : json.items()) out += (out.empty() ? "" : ",") + key;
      out += '\n';
    }
    std::string line;
    for (const auto& [key, value] : json.items()) {
      if (!line.empty()) line += ',';
      line += value.is_null() ? "" : value.dump();
    }
    out += line + '\n';
  }
  return out;
}

// Text inside SVG.
std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

}  // namespace

std::string format_rows(const std::vector<BenchRow>& rows, const BenchContext& context, const std::string& format) {
  if (rows.empty()) fail("nothing was measured");
  if (format == "md") return markdown(rows);
  if (format == "csv") return csv(rows, context);
  Json json = Json::array();
  for (size_t i = 0; i < rows.size(); ++i) json.push_back(to_json(rows[i], context, i));
  return json.dump(2) + "\n";
}

std::string plot_rows(const std::vector<BenchRow>& rows, const std::string& title) {
  constexpr int kLabel = 250;  // pixels: room for names, for the longest bar, for a bar's figures
  constexpr int kBar = 380;
  constexpr int kFigures = 190;
  constexpr int kLine = 24;
  std::string body;
  auto out = std::back_inserter(body);
  int y = 30;
  fmt::format_to(out, "<text x=\"12\" y=\"{}\" font-size=\"16\" font-weight=\"bold\">{}</text>\n", y, escaped(title));
  for (const char* phase : {"prefill", "decode"}) {
    double most = 0;
    for (const BenchRow& row : rows) {
      if (row.phase == phase) most = std::max(most, row.tokens_per_second.median);
    }
    if (most <= 0) continue;
    y += kLine + 10;
    fmt::format_to(out, "<text x=\"12\" y=\"{}\" font-weight=\"bold\">{}, tokens per second</text>\n", y, phase);
    for (const BenchRow& row : rows) {
      if (row.phase != phase) continue;
      y += kLine;
      const double length = kBar * row.tokens_per_second.median / most;
      fmt::format_to(out, "<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{}</text>\n", kLabel - 8, y,
                     escaped(label(row)));
      if (row.percent_of_limit && *row.percent_of_limit > 0) {
        // What the machine allows, as far as the picture reaches.
        const double limit = std::min(length * 100 / *row.percent_of_limit, 1.0 * kBar + kFigures - 10);
        fmt::format_to(out, "<rect x=\"{}\" y=\"{}\" width=\"{:.1f}\" height=\"16\" fill=\"#e8e8e8\"/>\n", kLabel,
                       y - 13, limit);
      }
      fmt::format_to(out, "<rect x=\"{}\" y=\"{}\" width=\"{:.1f}\" height=\"16\" fill=\"#d9541e\"/>\n", kLabel, y - 13,
                     length);
      fmt::format_to(out, "<text x=\"{:.1f}\" y=\"{}\">{:.1f}{}</text>\n", kLabel + length + 6, y,
                     row.tokens_per_second.median,
                     row.percent_of_limit ? fmt::format(" ({:.0f} % of limit)", *row.percent_of_limit) : "");
    }
  }
  return fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" viewBox=\"0 0 {0} {1}\" "
      "font-family=\"sans-serif\" font-size=\"13\">\n<rect width=\"{0}\" height=\"{1}\" fill=\"white\"/>\n{2}</svg>\n",
      kLabel + kBar + kFigures, y + 24, body);
}

}  // namespace inferno::cli
