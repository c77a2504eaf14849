// Loads a server on this machine with streams of /v1/completions, each of which sends its next request when the last
// one has ended, and tells what came of it: generated tokens per second, the time to the first token, the gaps between
// tokens, and what the client itself took. One thread, so that a fast server is what is measured.
//
//   serve_load --port 8080 --streams 1,8,32,128 --prompt 256 --gen 64 --rounds 20
#include <fmt/core.h>
#include <sys/resource.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <boost/asio.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;
using ErrorCode = boost::beast::error_code;
using Tcp = asio::ip::tcp;
using Clock = std::chrono::steady_clock;

double ms_between(Clock::time_point begin, Clock::time_point end) {
  return std::chrono::duration<double, std::milli>(end - begin).count();
}

double quantile(std::vector<double>& values, double share) {
  if (values.empty()) return 0;
  std::ranges::sort(values);
  return values[std::min(values.size() - 1, static_cast<size_t>(share * static_cast<double>(values.size())))];
}

double cpu_seconds() {
  rusage used{};
  getrusage(RUSAGE_SELF, &used);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
  };
  return seconds(used.ru_utime) + seconds(used.ru_stime);
}

struct Options {
  uint16_t port = 8080;
  std::vector<int> streams = {1, 8, 32, 128};
  int prompt = 256;
  int generated = 64;
  int rounds = 20;
  int vocabulary = 150'000;
  std::string model;
  std::string key;
};

// Of one number of streams.
struct Figures {
  std::vector<double> first_ms;
  std::vector<double> gap_ms;
  int64_t tokens = 0;
  int64_t requests = 0;
  int64_t failed = 0;
  std::string failure;  // the first one
};

// One client: a connection with requests one after the other.
class Stream : public std::enable_shared_from_this<Stream> {
 public:
  Stream(asio::io_context& io, const Options& options, Figures& figures, uint32_t seed)
      : socket_(io), options_(options), figures_(figures), random_(seed) {}

  void start() {
    socket_.async_connect({asio::ip::address_v4::loopback(), options_.port},
                          [self = shared_from_this()](const ErrorCode& error) {
                            if (error) return self->fail(error.message());
                            self->socket_.set_option(Tcp::no_delay(true));
                            self->send();
                          });
  }

 private:
  void send() {
    if (left_ == 0) return;
    --left_;
    ++figures_.requests;
    request_ = {http::verb::post, "/v1/completions", 11};
    request_.set(http::field::host, "127.0.0.1");
    request_.set(http::field::content_type, "application/json");
    if (!options_.key.empty()) request_.set(http::field::authorization, "Bearer " + options_.key);
    request_.body() = body();
    request_.prepare_payload();
    parser_.emplace();
    parser_->body_limit(boost::none);
    text_.clear();
    last_.reset();
    sent_ = Clock::now();
    http::async_write(socket_, request_, [self = shared_from_this()](const ErrorCode& error, size_t) {
      if (error) return self->fail(error.message());
      self->receive();
    });
  }

  std::string body() {
    std::string ids;
    for (int i = 0; i < options_.prompt; ++i) {
      ids += fmt::format("{}{}", i == 0 ? "" : ",", random_() % static_cast<uint32_t>(options_.vocabulary));
    }
    return fmt::format(R"({{{}"prompt":[{}],"max_tokens":{},"stream":true,"temperature":0,"ignore_eos":true}})",
                       options_.model.empty() ? "" : fmt::format("\"model\":\"{}\",", options_.model), ids,
                       options_.generated);
  }

  void receive() {
    http::async_read_some(socket_, buffer_, *parser_, [self = shared_from_this()](const ErrorCode& error, size_t) {
      if (error) return self->fail(error.message());
      self->take();
      if (!self->parser_->is_done()) return self->receive();
      if (self->parser_->get().result() != http::status::ok) return self->fail(self->text_);
      if (self->parser_->get().keep_alive()) return self->send();
      self->reconnect();
    });
  }

  void reconnect() {
    if (left_ == 0) return;
    ErrorCode ignored;
    (void)socket_.close(ignored);
    buffer_.clear();
    start();
  }

  // Every event with a token in it counts; a read may have several, or a part of one.
  void take() {
    if (!parser_->is_header_done()) return;
    const auto now = Clock::now();
    text_ += std::exchange(parser_->get().body(), {});
    if (parser_->get().result() != http::status::ok) return;
    size_t begin = 0;
    for (size_t end = text_.find("\n\n"); end != std::string::npos; end = text_.find("\n\n", begin)) {
      if (is_token(std::string_view(text_).substr(begin, end - begin))) add_token(now);
      begin = end + 2;
    }
    text_.erase(0, begin);
  }

  // The last event with a choice has its reason to end, and no token.
  static bool is_token(std::string_view event) {
    return event.starts_with("data: {") && event.find("\"choices\":[{") != std::string_view::npos &&
           event.find("\"finish_reason\":null") != std::string_view::npos;
  }

  void add_token(Clock::time_point now) {
    ++figures_.tokens;
    (last_ ? figures_.gap_ms : figures_.first_ms).push_back(ms_between(last_.value_or(sent_), now));
    last_ = now;
  }

  void fail(const std::string& why) {
    ++figures_.failed;
    if (figures_.failure.empty()) figures_.failure = why.substr(0, 200);
  }

  Tcp::socket socket_;
  const Options& options_;
  Figures& figures_;
  std::mt19937 random_;
  int left_ = options_.rounds;
  http::request<http::string_body> request_;
  std::optional<http::response_parser<http::string_body>> parser_;
  boost::beast::flat_buffer buffer_;
  std::string text_;  // of events that are not complete
  Clock::time_point sent_;
  std::optional<Clock::time_point> last_;  // token
};

// False when a request failed.
bool measure(const Options& options, int streams) {
  asio::io_context io(1);
  Figures figures;
  std::vector<std::shared_ptr<Stream>> all;
  // No two prompts begin alike, of this run or an earlier one: the server would know them.
  std::random_device seeds;
  for (int i = 0; i < streams; ++i) all.push_back(std::make_shared<Stream>(io, options, figures, seeds()));
  const double cpu = cpu_seconds();
  const auto begin = Clock::now();
  for (const auto& stream : all) stream->start();
  io.run();
  const double seconds = ms_between(begin, Clock::now()) / 1e3;
  const auto tokens = static_cast<double>(figures.tokens);
  fmt::print("{:>7} {:>8} {:>10.1f} {:>10.1f} {:>10.1f} {:>9.2f} {:>9.2f} {:>9.2f} {:>10.2f}\n", streams,
             figures.requests, tokens / seconds, quantile(figures.first_ms, 0.5), quantile(figures.first_ms, 0.99),
             quantile(figures.gap_ms, 0.5), quantile(figures.gap_ms, 0.99), quantile(figures.gap_ms, 1),
             tokens > 0 ? (cpu_seconds() - cpu) * 1e6 / tokens : 0);
  if (figures.failed > 0) fmt::print(stderr, "{} failed: {}\n", figures.failed, figures.failure);
  return figures.failed == 0;
}

}  // namespace

int main(int argc, char** argv) try {
  Options options;
  CLI::App app("Streams of completions from a server on this machine");
  app.add_option("--port", options.port, "of the server on 127.0.0.1")->default_str("8080");
  app.add_option("--streams", options.streams, "at once; several are measured one after the other")->delimiter(',');
  app.add_option("--prompt", options.prompt, "random tokens of each prompt")->check(CLI::Range(1, 1 << 20));
  app.add_option("--gen", options.generated, "tokens of each answer")->check(CLI::Range(1, 1 << 20));
  app.add_option("--rounds", options.rounds, "requests of each stream")->check(CLI::Range(1, 1 << 20));
  app.add_option("--vocab", options.vocabulary, "token ids are below it")->check(CLI::Range(1, 1 << 24));
  app.add_option("--model", options.model, "its name");
  app.add_option("--key", options.key, "API key");
  CLI11_PARSE(app, argc, argv);
  fmt::print("{:>7} {:>8} {:>10} {:>10} {:>10} {:>9} {:>9} {:>9} {:>10}\n", "streams", "requests", "tokens/s",
             "first p50", "first p99", "gap p50", "gap p99", "gap max", "client us");
  fmt::print("{:>7} {:>8} {:>10} {:>10} {:>10} {:>9} {:>9} {:>9} {:>10}\n", "", "", "", "ms", "ms", "ms", "ms", "ms",
             "per token");
  bool passed = true;
  for (const int streams : options.streams) passed = measure(options, streams) && passed;
  return passed ? 0 : 1;
} catch (const std::exception& error) {
  std::fprintf(stderr, "serve_load: %s\n", error.what());
  return 1;
}
