#include "cli/flag_names.h"

#include <gtest/gtest.h>

namespace inferno::cli {
namespace {

TEST(FlagNames, OptionsInBackquotesBecomeFlags) {
  EXPECT_EQ(with_flags("`context` 9 is more than 8"), "--ctx 9 is more than 8");
  EXPECT_EQ(with_flags("`affinity` LIST overrides `numa` distribute"), "--affinity LIST overrides --numa distribute");
  EXPECT_EQ(with_flags("use a smaller `context`"), "use a smaller --ctx");
}

TEST(FlagNames, EverythingElseStaysAsItIs) {
  for (const char* text : {"", "no option, a context", "`", "``", "```", "a ` alone", "`colour` is none of them"}) {
    EXPECT_EQ(with_flags(text), text);
  }
  EXPECT_EQ(with_flags("don`t `kv_type`"), "don`t --kv-type");
}

}  // namespace
}  // namespace inferno::cli
