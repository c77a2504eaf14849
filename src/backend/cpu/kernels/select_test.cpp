#include "backend/cpu/kernels/select.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "base/error.h"

namespace inferno {
namespace {

// Sets INFERNO_ISA for one test.
class ForcedIsa {
 public:
  explicit ForcedIsa(const char* name) { setenv("INFERNO_ISA", name, 1); }
  ~ForcedIsa() { unsetenv("INFERNO_ISA"); }
  ForcedIsa(const ForcedIsa&) = delete;
  ForcedIsa& operator=(const ForcedIsa&) = delete;
};

TEST(Select, TheEnvironmentForcesEachAvailableTable) {
  for (const KernelTable* table : available_kernels()) {
    const ForcedIsa forced(table->name);
    EXPECT_EQ(&best_kernels(), table) << table->name;
  }
}

TEST(Select, WithoutTheVariableTheHighestTableIsChosen) {
  unsetenv("INFERNO_ISA");
  EXPECT_EQ(&best_kernels(), available_kernels().back());
}

// A table must not be the one below with another name.
TEST(Select, EachTableBringsItsOwnQuantizedLinear) {
  const auto& tables = available_kernels();
  for (size_t i = 1; i < tables.size(); ++i) {
    const auto type = static_cast<size_t>(DType::q8_0);
    EXPECT_NE(tables[i]->linear[type].run, tables[i - 1]->linear[type].run) << tables[i]->name;
    EXPECT_STREQ(tables[i]->linear[type].name, tables[i]->name);
  }
}

TEST(Select, AnUnknownNameIsAUsageError) {
  const ForcedIsa forced("sse9");
  try {
    (void)best_kernels();
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), Error::Kind::usage);
    EXPECT_EQ(std::string(error.what()).find("unknown kernels \"sse9\""), 0U) << error.what();
  }
}

}  // namespace
}  // namespace inferno
