// Function constants of foreign kernels: variables that are set before a dispatch.
#pragma once

#include <cstring>
#include <map>
#include <stdexcept>
#include <string>

namespace emulator {

struct ForeignConstant {
  void* data;
  size_t bytes;
};
// By number.
inline std::map<int, ForeignConstant>& foreign_constants() {
  static std::map<int, ForeignConstant> all;
  return all;
}
struct ConstantRegistration {
  template <typename T>
  ConstantRegistration(int number, T& variable) {
    foreign_constants()[number] = {&variable, sizeof variable};
  }
};
template <typename T>
void set_function_constant(int number, T value) {
  const auto found = foreign_constants().find(number);
  if (found == foreign_constants().end() || found->second.bytes != sizeof value) {
    throw std::runtime_error("no function constant " + std::to_string(number) + " of this size");
  }
  std::memcpy(found->second.data, &value, sizeof value);
}

}  // namespace emulator
