// The API without sockets: what waits for a worker, and what becomes of it when nobody wants it any more.
#include "serve/api.h"

#include <gtest/gtest.h>

#include "serve/client.h"

namespace inferno::testing {
namespace {

using serve::Api;
using serve::HttpHead;
using serve::HttpResponse;
using serve::RequestNote;

struct Answers final : serve::Responder {
  void respond(HttpResponse response, const RequestNote& /*note*/) override { whole.push_back(std::move(response)); }
  void begin(std::string_view /*content_type*/) override {}
  void write(std::string_view /*text*/) override {}
  void flush() override {}
  void end(const RequestNote& /*note*/) override {}
  std::vector<HttpResponse> whole;
};

// Workers and the event loop run when they are told to.
class ServeApi : public ::testing::Test {
 protected:
  using Works = std::vector<std::function<void()>>;

  static void run_all(Works& works) {
    for (const auto& work : std::exchange(works, {})) work();
  }
  std::shared_ptr<serve::Exchange> tokenize(const std::string& text) {
    HttpHead head;
    head.method = "POST";
    head.path = "/tokenize";
    return api_.handle(head, Json{{"content", text}}.dump(), answers_);
  }

  Works loop_, workers_;
  std::unique_ptr<Engine> engine_ = story_engine();
  serve::Models models_{{{.name = "story",
                          .facts = serve::facts_of(*engine_),
                          .loaded = {.engine = std::shared_ptr<Engine>(std::shared_ptr<void>(), engine_.get())}}},
                        {},
                        [this](std::function<void()> work) { loop_.push_back(std::move(work)); },
                        {}};
  Api api_{models_,
           {.keys = {}},
           {.loop = [this](std::function<void()> work) { loop_.push_back(std::move(work)); },
            .loop_later = [this](std::function<void()> work) { loop_.push_back(std::move(work)); },
            .worker = [this](std::function<void()> work) { workers_.push_back(std::move(work)); },
            .embedder = [this](std::function<void()> work) { workers_.push_back(std::move(work)); }}};
  std::shared_ptr<Answers> answers_ = std::make_shared<Answers>();
};

TEST_F(ServeApi, BodiesThatNoWorkerHasReadYetCount) {
  const std::string text(1000, 'a');
  const auto one = tokenize(text);
  const auto two = tokenize(text);
  EXPECT_GE(api_.waiting_bytes(), 2000U);
  run_all(workers_);
  EXPECT_EQ(api_.waiting_bytes(), 0U);
  run_all(loop_);
  ASSERT_EQ(answers_->whole.size(), 2U);
  EXPECT_EQ(answers_->whole[0].status, 200);
}

TEST_F(ServeApi, WhatNobodyWaitsForIsNotDone) {
  tokenize("a")->cancel();
  run_all(workers_);
  EXPECT_TRUE(loop_.empty());
  EXPECT_TRUE(answers_->whole.empty());
}

TEST_F(ServeApi, ADeadlineEndsWhatAWorkerDoesAndItsLateAnswerIsNotSent) {
  const auto job = tokenize("a");
  run_all(workers_);
  job->expire();
  run_all(loop_);
  ASSERT_EQ(answers_->whole.size(), 1U);
  EXPECT_EQ(answers_->whole[0].status, 504);
}

}  // namespace
}  // namespace inferno::testing
