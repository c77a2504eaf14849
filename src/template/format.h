// Python's two ways to put values into a string: "%s" % x and "{}".format(x).
#pragma once

#include "template/object.h"
#include "template/run.h"
#include "template/value.h"

namespace inferno::jinja {

// How one value is written.
struct FormatSpec {
  Text fill{" ", true};  // one character
  char align = 0;        // < > ^ =, 0: as the type has it
  char sign = '-';       // - + or space
  bool alternate = false;
  char group = 0;  // , or _ between thousands
  int64_t width = 0;
  int64_t precision = -1;  // -1: not given
  char type = 0;           // 0: not given
};

[[nodiscard]] Value format_percent(Run& run, const Value& format, const Value& arguments);
[[nodiscard]] Value format_braces(Evaluator& evaluator, const Value& format, const CallArguments& arguments);

// Parts of both.
[[nodiscard]] Text format_integer(Run& run, const Value& value, const FormatSpec& spec);
[[nodiscard]] Text format_double(Run& run, const Value& value, const FormatSpec& spec);
[[nodiscard]] Text pad(Run& run, const Text& text, const FormatSpec& spec, char default_align);
// With at most spec.precision characters, padded.
[[nodiscard]] Text format_string(Run& run, const Text& text, const FormatSpec& spec);

}  // namespace inferno::jinja
