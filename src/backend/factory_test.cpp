#include "backend/factory.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>

#include "base/error.h"

namespace inferno {
namespace {

TEST(Factory, TrimsTheName) {
  EXPECT_EQ(create_backend(" scalar\n")->name(), "scalar");
}

// What choosing a backend says; it must be a usage error.
std::string refusal(std::string_view choice) {
  try {
    (void)create_backend(choice);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), Error::Kind::usage);
    return error.what();
  }
  return "accepted";
}

TEST(Factory, UnknownNameIsAUsageErrorThatListsTheKnownOnes) {
  EXPECT_EQ(refusal("x"), "unknown backend \"x\" (supported: scalar, simd, parallel, cuda, metal)");
}

TEST(Factory, ABackendThatIsNotInThisProgramSaysWhyAndWhatToUse) {
  const std::string said = refusal("metal");
  if (said == "accepted") GTEST_SKIP() << "it is in this program";
  EXPECT_EQ(said,
            "no backend \"metal\" here: it is for Macs with Apple silicon, and this program was built without it; use "
            "`backend` parallel");
}

}  // namespace
}  // namespace inferno
