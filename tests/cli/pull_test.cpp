// Models by name, as a user sees it, against a stand-in of the hub on loopback.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <string>

#include "hub/sha256.h"
#include "hub/stand_in.h"
#include "support/program.h"
#include "support/test_data.h"

namespace inferno::testing {
namespace {

class Pull : public Folder {
 protected:
  Pull() : server_([this](const hub::StandInRequest& request) { return answer(request); }) {
    std::ifstream in(fixture("llama.gguf"), std::ios::binary);
    model_ = std::string(std::istreambuf_iterator<char>(in), {});
    hub::Sha256 hash;
    hash.add(std::as_bytes(std::span(model_)));
    info_ = fmt::format(R"({{"siblings":[{{"rfilename":"tiny-F32.gguf","lfs":{{"sha256":"{}","size":{}}}}}]}})",
                        hash.finish(), model_.size());
  }

  hub::StandInReply answer(const hub::StandInRequest& request) const {
    if (request.path == "/api/models/some/tiny?blobs=true") return {.body = info_};
    if (request.path == "/some/tiny/resolve/main/tiny-F32.gguf") return hub::reply_with(request, model_);
    return {.status = 404};
  }

  Outcome run_here(const std::vector<std::string>& args) {
    return run(args,
               {.environment = {
                    {"HF_ENDPOINT", server_.address()}, {"HF_TOKEN", "secret"}, {"INFERNO_MODELS", path("models")}}});
  }

  std::string model_;
  std::string info_;
  hub::StandIn server_;
};

TEST_F(Pull, ANameWorksWhereAModelIsExpected) {
  const Outcome first = run_here({"generate", "some/tiny", "The sea", "-n", "3", "--quiet"});
  ASSERT_EQ(first.code, 0) << first.err;
  const size_t requests = server_.requests().size();
  EXPECT_EQ(run_here({"generate", "some/tiny:F32", "The sea", "-n", "3", "--quiet"}).out, first.out);
  EXPECT_EQ(run_here({"inspect", "some/tiny", "--offline"}).code, 0);
  EXPECT_EQ(run_here({"logits", "some/tiny:tiny-F32.gguf", "--ids", "1,2"}).code, 0);
  EXPECT_EQ(server_.requests().size(), requests);
}

TEST_F(Pull, PullPrintsThePathAndListAndRemoveKnowIt) {
  const Outcome pulled = run_here({"pull", "some/tiny"});
  ASSERT_EQ(pulled.code, 0) << pulled.err;
  EXPECT_EQ(pulled.out, path("models/some/tiny/tiny-F32.gguf\n"));
  EXPECT_NE(run_here({"list"}).out.find("some/tiny:tiny-F32.gguf"), std::string::npos);
  EXPECT_EQ(run_here({"remove", "some/tiny"}).code, 0);
  EXPECT_EQ(run_here({"list"}).out.find("some/tiny:tiny-F32.gguf"), std::string::npos);
  expect_error(run_here({"remove", "some/tiny"}), 1, "is not in");
}

TEST_F(Pull, WhatCannotBeHadIsOneLine) {
  expect_error(run_here({"pull", "some/other"}), 1, "no model of some/other");
  expect_error(run_here({"pull", "some/tiny:Q9"}), 1, "no file of type Q9");
  expect_error(run_here({"pull", "../x"}), 2, "ORG/NAME");
  expect_error(run_here({"pull", "some/tiny", "--offline"}), 1, "--offline");
  expect_error(run_here({"inspect", "some/tiny", "--offline"}), 1, "--offline");
}

}  // namespace
}  // namespace inferno::testing
