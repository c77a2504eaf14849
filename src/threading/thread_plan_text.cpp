#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <tuple>

#include "base/text.h"
#include "threading/cpu_list.h"
#include "threading/thread_plan.h"

namespace inferno {

namespace {

std::string count_of(int count, std::string_view noun) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

// The CPUs of one L3 group, each core in brackets: [0 64] is a core with two siblings. Marks: e = efficiency core,
// x = closed to this process.
std::string draw_cores(const std::vector<Cpu>& cpus, const std::set<int>& allowed) {
  std::map<int, std::vector<Cpu>> cores;
  for (const Cpu& cpu : cpus) cores[cpu.core].push_back(cpu);
  std::string text;
  for (const auto& [core, members] : cores) {
    if (!text.empty()) text += ' ';
    text += '[';
    for (size_t i = 0; i < members.size(); ++i) {
      fmt::format_to(std::back_inserter(text), "{}{}{}", i == 0 ? "" : " ", members[i].id,
                     allowed.contains(members[i].id) ? "" : "x");
    }
    text += members.front().performance ? "]" : "e]";
  }
  return text;
}

std::string wrap(const std::string& text, size_t indent, size_t width) {
  std::string out;
  size_t column = indent;
  for (size_t begin = 0; begin < text.size();) {
    // Break only between cores.
    const size_t end = std::min(text.find("] ", begin), text.size() - 1) + 1;
    const size_t length = end - begin;
    if (column + length > width && column > indent) {
      while (!out.empty() && out.back() == ' ') out.pop_back();
      out += '\n' + std::string(indent, ' ');
      column = indent;
    }
    out.append(text, begin, length);
    column += length;
    begin = end;
    if (begin < text.size()) {
      out += ' ';
      ++column;
      ++begin;
    }
  }
  return out;
}

}  // namespace

std::string draw_thread_plan(const Topology& topology, const CpuLimits& limits, const ThreadPlan& plan) {
  const std::set<int> allowed(limits.allowed.begin(), limits.allowed.end());
  std::string text =
      fmt::format("machine: {}, {}, {}{}, {}, {}\n", count_of(topology.packages, "package"),
                  count_of(topology.nodes, "NUMA node"), count_of(topology.l3_groups, "L3 group"),
                  topology.l3_bytes > 0 ? fmt::format(" of {}", format_bytes(topology.l3_bytes)) : "",
                  count_of(topology.cores, "core"), count_of(static_cast<int>(topology.cpus.size()), "CPU"));
  auto out = std::back_inserter(text);
  std::map<std::tuple<int, int, int>, std::vector<Cpu>> groups;
  for (const Cpu& cpu : topology.cpus) groups[{cpu.package, cpu.node, cpu.l3}].push_back(cpu);
  for (const auto& [key, cpus] : groups) {
    const auto& [package, node, l3] = key;
    const std::string label = fmt::format("  package {}  node {}  L3 {}  ", package, node, l3);
    fmt::format_to(out, "{}{}\n", label, wrap(draw_cores(cpus, allowed), label.size(), 118));
  }
  if (topology.hybrid) text += "  e = efficiency core\n";
  if (allowed.size() < topology.cpus.size()) text += "  x = closed to this process (affinity mask or cpuset)\n";
  fmt::format_to(out, "may use: CPUs {}, quota {}\n", format_cpu_list(limits.allowed),
                 limits.quota ? fmt::format("{:.2f} CPUs", *limits.quota) : "none");
  for (const std::string& reason : plan.reasons) fmt::format_to(out, "  {}\n", reason);
  for (const std::string& warning : plan.warnings) fmt::format_to(out, "  note: {}\n", warning);
  // Threads with the same CPUs share a line.
  for (size_t begin = 0; begin < plan.cpus.size();) {
    size_t end = begin + 1;
    while (end < plan.cpus.size() && plan.cpus[end] == plan.cpus[begin]) ++end;
    fmt::format_to(out, "  thread{} on CPU{} {}\n",
                   end - begin == 1 ? fmt::format(" {}", begin) : fmt::format("s {}-{}", begin, end - 1),
                   plan.cpus[begin].size() == 1 ? "" : "s", format_cpu_list(plan.cpus[begin]));
    begin = end;
  }
  return text;
}

}  // namespace inferno
