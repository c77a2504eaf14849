#include "profile/trace_writer.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

namespace inferno {
namespace {

constexpr int kStepTrack = 0;
constexpr size_t kFlushBytes = size_t{4} << 20;

int worker_track(int worker) {
  return worker + 1;
}

}  // namespace

TraceWriter::TraceWriter(const std::string& path, std::string backend) : file_(path), backend_(std::move(backend)) {
  text_.reserve(kFlushBytes + kFlushBytes / 4);
  text_ = "{\"displayTimeUnit\": \"ns\", \"traceEvents\": [";
}

void TraceWriter::track(int id, const std::string& name) {
  text_ += fmt::format(
      "{}\n{{\"ph\": \"M\", \"name\": \"thread_name\", \"pid\": 1, \"tid\": {}, \"args\": {{\"name\": "
      "\"{}\"}}}}",
      first_event_ ? "" : ",", id, name);
  first_event_ = false;
}

// By hand and not with a format string: a step of a small model has hundreds of spans and lasts half a millisecond.
void TraceWriter::span(int track, std::string_view category, std::string_view name, uint64_t begin, uint64_t end) {
  if (end < begin) return;
  const uint64_t from = nanoseconds(begin);
  text_ += ",\n{\"ph\":\"X\",\"cat\":\"";
  text_ += category;
  text_ += "\",\"name\":\"";
  text_ += name;
  text_ += "\",\"pid\":1,\"tid\":";
  append_number(static_cast<uint64_t>(track));
  text_ += ",\"ts\":";
  append_microseconds(from);
  text_ += ",\"dur\":";
  append_microseconds(nanoseconds(end) - from);  // so that adjacent spans touch exactly
  text_ += '}';
}

uint64_t TraceWriter::nanoseconds(uint64_t ticks) const {
  return static_cast<uint64_t>(std::llround(static_cast<double>(ticks - origin_) * ns_per_tick_));
}

void TraceWriter::append_number(uint64_t value) {
  char digits[20];
  text_.append(digits, std::to_chars(digits, digits + sizeof digits, value).ptr);
}

void TraceWriter::append_microseconds(uint64_t ns) {
  append_number(ns / 1000);
  const auto rest = static_cast<int>(ns % 1000);
  const char fraction[] = {'.', static_cast<char>('0' + rest / 100), static_cast<char>('0' + rest / 10 % 10),
                           static_cast<char>('0' + rest % 10)};
  text_.append(fraction, sizeof fraction);
}

void TraceWriter::add_step(const StepTimes& times, const StepView& view) {
  if (steps_ == 0) {
    origin_ = times.begin;
    ns_per_tick_ = 1000 / times.ticks_per_us;
    workers_ = times.workers;
    asleep_since_.assign(static_cast<size_t>(workers_), times.begin);
    track(kStepTrack, "steps");
    for (int w = 0; w < workers_; ++w) track(worker_track(w), fmt::format("{} {}", backend_, w));
  }
  if (times.begin < last_end_) {  // a device's clock restarts with each step: append this one to the previous
    origin_ = times.begin - (last_end_ - origin_);
    std::fill(asleep_since_.begin(), asleep_since_.end(), times.begin);
  }
  last_end_ = std::max(times.end, view.ops.back().end);
  const std::string name =
      view.phase == Phase::prefill ? fmt::format("prompt of {}", view.tokens) : fmt::format("token {}", position_);
  if (view.phase == Phase::decode) position_ += view.tokens;
  span(kStepTrack, "step", name, times.begin, last_end_);
  for (size_t i = 0; i < view.ops.size();) {
    size_t next = i + 1;
    while (next < view.ops.size() && view.ops[next].layer == view.ops[i].layer) ++next;
    if (view.ops[i].layer >= 0) {
      span(kStepTrack, "layer", fmt::format("layer {}", view.ops[i].layer), view.ops[i].begin, view.ops[next - 1].end);
    }
    for (; i < next; ++i) span(kStepTrack, "op", op_name(view.ops[i].op), view.ops[i].begin, view.ops[i].end);
  }
  size_t dispatch = 0;
  for (size_t i = 0; i < view.ops.size(); ++i) {
    while (dispatch + 1 < times.dispatches.size() && times.dispatches[dispatch + 1] <= i) ++dispatch;
    const bool first = times.dispatches[dispatch] == i;
    const bool last =
        i + 1 == view.ops.size() || (dispatch + 1 < times.dispatches.size() && times.dispatches[dispatch + 1] == i + 1);
    for (int w = 0; w < workers_; ++w) {
      const WorkerTime& time = times.time(i, w);
      uint64_t& asleep = asleep_since_[static_cast<size_t>(w)];
      const uint64_t begin = std::max(time.begin, asleep);
      const uint64_t work_end = std::max(begin, time.end - std::min(time.wait, time.end - time.begin));
      // The last op has no next one: its workers wait until the slowest is done.
      const uint64_t wait_end = std::max(work_end, last ? view.ops[i].end : times.time(i + 1, w).begin);
      if (first) span(worker_track(w), "sleep", w == 0 ? "host" : "sleep", asleep, begin);
      span(worker_track(w), "work", op_name(view.ops[i].op), begin, work_end);
      if (wait_end > work_end) span(worker_track(w), "wait", "barrier", work_end, wait_end);
      asleep = wait_end;
    }
  }
  ++steps_;
  if (text_.size() >= kFlushBytes) flush();
}

void TraceWriter::flush() {
  file_.write(text_);
  text_.clear();
}

void TraceWriter::finish() {
  text_ += "\n]}\n";
  flush();
  file_.commit();
}

std::string check_trace(const std::string& text) {
  using Json = nlohmann::json;
  struct Span {
    double begin;
    double end;
    std::string name;
  };
  // Times have three digits, their sums in binary do not.
  constexpr double kRounding = 0.0005;
  std::map<int, std::vector<Span>> tracks;
  std::set<int> named;
  try {
    const Json json = Json::parse(text);
    for (const Json& event : json.at("traceEvents")) {
      const auto phase = event.at("ph").get<std::string>();
      const auto track = event.at("tid").get<int>();
      if (event.at("pid").get<int>() != 1) return "an event of another process";
      if (phase == "M") {
        if (event.at("name") == "thread_name" && !event.at("args").at("name").get<std::string>().empty()) {
          named.insert(track);
        }
        continue;
      }
      if (phase != "X") return "an event of the kind " + phase;
      const auto begin = event.at("ts").get<double>();
      const auto duration = event.at("dur").get<double>();
      auto name = event.at("name").get<std::string>();
      if (!(begin >= 0) || !(duration >= 0) || !std::isfinite(begin + duration)) return "a bad time at " + name;
      if (event.at("cat").get<std::string>().empty() || name.empty()) return "a span without a name";
      tracks[track].push_back({begin, begin + duration, std::move(name)});
    }
  } catch (const Json::exception& error) {
    return error.what();
  }
  if (tracks.empty()) return "no spans";
  for (auto& [track, spans] : tracks) {
    if (!named.contains(track)) return fmt::format("track {} has no name", track);
    std::sort(spans.begin(), spans.end(),
              [](const Span& a, const Span& b) { return a.begin < b.begin || (a.begin == b.begin && a.end > b.end); });
    std::vector<Span> open;
    for (const Span& span : spans) {
      while (!open.empty() && span.begin >= open.back().end - kRounding) open.pop_back();
      if (!open.empty() && span.end > open.back().end + kRounding) {
        return fmt::format("on track {} \"{}\" overlaps the end of \"{}\"", track, span.name, open.back().name);
      }
      open.push_back(span);
    }
  }
  return "";
}

}  // namespace inferno
