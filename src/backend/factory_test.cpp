#include "backend/factory.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace inferno {
namespace {

TEST(Factory, TrimsTheName) {
  EXPECT_EQ(create_backend(" scalar\n")->name(), "scalar");
}

TEST(Factory, UnknownNameIsAUsageErrorThatListsTheKnownOnes) {
  try {
    (void)create_backend("x");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), Error::Kind::usage);
    EXPECT_STREQ(error.what(), "unknown backend \"x\" (supported: scalar, simd, parallel, cuda, metal)");
  }
}

TEST(Factory, ABackendThatIsNotInThisProgramSaysWhyAndWhatToUse) {
  try {
    (void)create_backend("metal");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), Error::Kind::usage);
    EXPECT_STREQ(error.what(), "no backend \"metal\" here: it is not written yet; use --backend parallel");
  }
}

}  // namespace
}  // namespace inferno
