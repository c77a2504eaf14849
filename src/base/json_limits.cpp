#include "base/json_limits.h"

#include <fmt/core.h>

#include <nlohmann/json.hpp>
#include <vector>

namespace inferno {
namespace {

class LimitChecker final : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit LimitChecker(const JsonLimits& limits) : limits_(limits) {}

  [[nodiscard]] std::string& fault() { return fault_; }

  bool null() override { return count(); }
  bool boolean(bool /*value*/) override { return count(); }
  bool number_integer(number_integer_t /*value*/) override { return count(); }
  bool number_unsigned(number_unsigned_t /*value*/) override { return count(); }
  bool number_float(number_float_t /*value*/, const string_t& /*text*/) override { return count(); }
  bool string(string_t& /*value*/) override { return count(); }
  bool binary(binary_t& /*value*/) override { return count(); }
  bool start_object(size_t /*elements*/) override { return open(); }
  bool end_object() override { return close(); }
  bool start_array(size_t /*elements*/) override { return open(); }
  bool end_array() override { return close(); }
  bool key(string_t& /*name*/) override {
    if (++members_.back() <= limits_.members) return true;
    return stop(fmt::format("has an object with more than {} members", limits_.members));
  }
  bool parse_error(size_t position, const std::string& /*token*/, const nlohmann::detail::exception& error) override {
    constexpr int kNumberOutOfRange = 406;
    return stop(error.id == kNumberOutOfRange ? "holds a number that is out of range"
                                              : fmt::format("is not valid JSON (at byte {})", position));
  }

 private:
  bool stop(std::string fault) {
    fault_ = std::move(fault);
    return false;
  }
  bool count() { return ++values_ <= limits_.values || stop(fmt::format("has more than {} values", limits_.values)); }
  bool open() {
    members_.push_back(0);
    if (members_.size() > limits_.depth) return stop(fmt::format("is nested more than {} deep", limits_.depth));
    return count();
  }
  bool close() {
    members_.pop_back();
    return true;
  }

  const JsonLimits& limits_;
  std::string fault_;
  std::vector<size_t> members_;  // so far, of the objects around this place; of arrays 0
  size_t values_ = 0;
};

}  // namespace

std::string json_fault(std::string_view text, const JsonLimits& limits) {
  LimitChecker checker(limits);
  (void)nlohmann::json::sax_parse(text, &checker);
  return std::move(checker.fault());
}

}  // namespace inferno
