#include <array>
#include <cstdint>

#include "base/error.h"
#include "base/text.h"
#include "threading/cpu_list.h"
#include "threading/thread_plan.h"

namespace inferno {

int parse_thread_count(std::string_view text, std::string_view origin) {
  const std::optional<int64_t> count = parse_int(trim(text));
  if (!count) fail_usage("{}: '{}' is not a number of threads; give 1 or more", origin, printable(text));
  if (*count < 1)
    fail_usage("{}: {} threads cannot work; give 1 or more, or leave it out for the default", origin, *count);
  return static_cast<int>(std::min<int64_t>(*count, INT32_MAX));
}

void parse_affinity(std::string_view text, ThreadRequest& request) {
  struct Name {
    std::string_view name;
    Affinity affinity;
  };
  constexpr std::array<Name, 4> kNames = {{{"auto", Affinity::automatic},
                                           {"none", Affinity::none},
                                           {"compact", Affinity::compact},
                                           {"spread", Affinity::spread}}};
  for (const Name& entry : kNames) {
    if (entry.name == text) {
      request.affinity = entry.affinity;
      return;
    }
  }
  if (text.empty() || text[0] < '0' || text[0] > '9') {
    fail_usage("`affinity`: '{}' is none of auto, none, compact, spread or a CPU list such as 0-3,8", printable(text));
  }
  request.affinity = Affinity::list;
  request.affinity_list = parse_cpu_list(text, "`affinity`");
}

void parse_numa(std::string_view text, ThreadRequest& request) {
  if (text == "distribute") {
    request.numa = Numa::distribute;
  } else if (text == "isolate") {
    request.numa = Numa::isolate;
  } else if (text == "numactl") {
    request.numa = Numa::numactl;
  } else {
    fail_usage("`numa`: '{}' is none of distribute, isolate, numactl", printable(text));
  }
}

void apply_environment(ThreadRequest& request, const char* (*environment)(const char* name)) {
  if (request.threads) return;
  if (const char* text = environment("INFERNO_THREADS"); text != nullptr && *text != '\0') {
    request.threads = parse_thread_count(text, "INFERNO_THREADS");
    request.threads_origin = "INFERNO_THREADS";
    return;
  }
  if (const char* text = environment("OMP_NUM_THREADS"); text != nullptr) {
    // A list gives the counts of nested levels; ours is the first.
    const std::string_view first = std::string_view(text).substr(0, std::string_view(text).find(','));
    const std::optional<int64_t> count = parse_int(trim(first));
    if (!count || *count < 1 || *count > INT32_MAX) return;
    request.threads = static_cast<int>(*count);
    request.threads_origin = "OMP_NUM_THREADS";
  }
}

}  // namespace inferno
