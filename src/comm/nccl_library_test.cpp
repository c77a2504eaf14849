#include "comm/nccl_library.h"

#include <gtest/gtest.h>

namespace inferno {
namespace {

TEST(NcclLibrary, OneThatIsNotThereIsAReasonAndNoCrash) {
  NcclLibrary library;
  std::string reason;
  EXPECT_FALSE(NcclLibrary::open("libnccl-that-nobody-has.so", library, reason));
  EXPECT_NE(reason.find("libnccl-that-nobody-has.so"), std::string::npos) << reason;
}

TEST(NcclLibrary, AnotherLibraryIsRefusedByWhatItLacks) {
  NcclLibrary library;
  std::string reason;
  EXPECT_FALSE(NcclLibrary::open("libc.so.6", library, reason));
  EXPECT_NE(reason.find("ncclGetVersion"), std::string::npos) << reason;
}

TEST(NcclLibrary, AllFunctionsAreThereWhereItIs) {
  std::string reason;
  const NcclLibrary* library = NcclLibrary::load(reason);
  if (library == nullptr) GTEST_SKIP() << "no NCCL here: " << reason;
  int version = 0;
  EXPECT_EQ(library->get_version(&version), NcclLibrary::kSuccess);
  EXPECT_GE(version, 20'000);
  EXPECT_STRNE(library->get_error_string(1), "");
}

}  // namespace
}  // namespace inferno
