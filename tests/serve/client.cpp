#include "serve/client.h"

#include <arpa/inet.h>
#include <fmt/core.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>

#include "engine/builtin_model.h"

namespace inferno::testing {
namespace {

constexpr int kPatienceSeconds = 120;  // against hanging, not a measurement

// A file whose vocabulary has a chat template.
class ChatFile final : public ModelFile {
 public:
  explicit ChatFile(GgufFile file) : file_(std::move(file)) {}
  [[nodiscard]] const std::string& path() const override { return file_.path(); }
  [[nodiscard]] uint64_t file_bytes() const override { return file_.file_bytes(); }
  [[nodiscard]] const MetadataValue* find(std::string_view key) const override { return file_.find(key); }
  [[nodiscard]] std::span<const MetadataEntry> metadata() const override { return file_.metadata(); }
  [[nodiscard]] size_t tensor_count() const override { return file_.tensor_count(); }
  [[nodiscard]] const FileTensor& tensor(size_t index) const override { return file_.tensor(index); }
  [[nodiscard]] const FileTensor* find_tensor(std::string_view name) const override { return file_.find_tensor(name); }
  void read_tensor(const FileTensor& tensor, std::span<std::byte> out, uint64_t begin) const override {
    file_.read_tensor(static_cast<const GgufTensor&>(tensor), out, begin);
  }
  [[nodiscard]] bool has_vocabulary() const override { return file_.has_vocabulary(); }
  [[nodiscard]] Vocabulary vocabulary() const override {
    Vocabulary result = file_.vocabulary();
    result.chat_template =
        "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
        "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";
    return result;
  }

 private:
  GgufFile file_;
};

std::string lower(std::string_view text) {
  std::string result(text);
  std::ranges::transform(result, result.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return result;
}

bool comes_true(const std::function<bool()>& condition) {
  for (int i = 0; i < 100 * kPatienceSeconds; ++i) {
    if (condition()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return false;
}

}  // namespace

std::vector<std::string> Reply::events() const {
  std::vector<std::string> found;
  for (std::string_view rest = body; !rest.empty();) {
    const size_t end = rest.find("\n\n");
    const std::string_view event = rest.substr(0, end);
    if (event.starts_with("data: ")) found.emplace_back(event.substr(6));
    if (end == std::string_view::npos) break;
    rest.remove_prefix(end + 2);
  }
  return found;
}

std::vector<std::pair<std::string, Json>> Reply::named_events() const {
  std::vector<std::pair<std::string, Json>> found;
  for (std::string_view rest = body; !rest.empty();) {
    const size_t end = rest.find("\n\n");
    const std::string event(rest.substr(0, end));
    const size_t data = event.find("\ndata: ");
    if (event.starts_with("event: ") && data != std::string::npos) {
      found.emplace_back(event.substr(7, data - 7), Json::parse(event.substr(data + 7)));
      EXPECT_EQ(found.back().second["type"], found.back().first);
    }
    if (end == std::string_view::npos) break;
    rest.remove_prefix(end + 2);
  }
  return found;
}

std::vector<Json> Reply::lines() const {
  std::vector<Json> found;
  for (std::string_view rest = body; !rest.empty();) {
    const size_t end = std::min(rest.find('\n'), rest.size());
    found.push_back(Json::parse(rest.substr(0, end)));
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  return found;
}

Client::Client(uint16_t port, int receive_bytes) : socket_(::socket(AF_INET, SOCK_STREAM, 0)) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (receive_bytes > 0) ::setsockopt(socket_, SOL_SOCKET, SO_RCVBUF, &receive_bytes, sizeof receive_bytes);
  const timeval patience{.tv_sec = kPatienceSeconds, .tv_usec = 0};
  ::setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  if (::connect(socket_, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
    ADD_FAILURE() << "no connection";
}

Client::~Client() {
  close();
}

void Client::close() {
  if (socket_ >= 0) ::close(socket_);
  socket_ = -1;
}

void Client::reset() {
  const linger now{.l_onoff = 1, .l_linger = 0};
  ::setsockopt(socket_, SOL_SOCKET, SO_LINGER, &now, sizeof now);
  close();
}

bool Client::send(std::string_view text) const {
  while (!text.empty()) {
    const ssize_t sent = ::send(socket_, text.data(), text.size(), MSG_NOSIGNAL);
    if (sent <= 0) return false;
    text.remove_prefix(static_cast<size_t>(sent));
  }
  return true;
}

bool Client::receive_more() {
  char buffer[65536];
  const ssize_t count = ::recv(socket_, buffer, sizeof buffer, 0);
  if (count <= 0) return false;
  in_.append(buffer, static_cast<size_t>(count));
  if (on_arrival) on_arrival();
  return true;
}

bool Client::receive_until(std::string_view text) {
  while (in_.find(text) == std::string::npos) {
    if (!receive_more()) return false;
  }
  return true;
}

bool Client::at_end() {
  // A connection that is open and silent is not at its end.
  char byte = 0;
  return in_.empty() && ::recv(socket_, &byte, 1, 0) == 0;
}

Reply Client::receive(bool has_body) {
  Reply reply;
  if (!receive_until("\r\n\r\n")) return reply;
  const size_t head_end = in_.find("\r\n\r\n") + 4;
  const std::string head = in_.substr(0, head_end);
  in_.erase(0, head_end);
  reply.status = std::stoi(head.substr(9, 3));
  for (size_t line = head.find("\r\n") + 2; line < head.size() - 2;) {
    const size_t end = head.find("\r\n", line);
    const size_t colon = head.find(": ", line);
    reply.headers[lower(head.substr(line, colon - line))] = head.substr(colon + 2, end - colon - 2);
    line = end + 2;
  }
  if (!has_body || reply.status == 100) return reply;
  if (reply.headers.contains("content-length")) {
    const size_t length = std::stoul(reply.headers["content-length"]);
    while (in_.size() < length && receive_more()) {
    }
    reply.body = in_.substr(0, length);
    in_.erase(0, length);
  } else if (reply.headers.contains("transfer-encoding")) {
    while (receive_until("\r\n")) {
      const size_t line = in_.find("\r\n");
      const size_t length = std::stoul(in_.substr(0, line), nullptr, 16);
      while (in_.size() < line + 2 + length + 2 && receive_more()) {
      }
      reply.body += in_.substr(line + 2, length);
      in_.erase(0, line + 2 + length + 2);
      if (length == 0) break;
    }
  } else {
    while (receive_more()) {
    }
    reply.body = std::exchange(in_, {});
  }
  return reply;
}

Reply Client::get(const std::string& path, const std::string& headers) {
  send(fmt::format("GET {} HTTP/1.1\r\nHost: localhost\r\n{}\r\n", path, headers));
  return receive();
}

void Client::send_post(const std::string& path, const std::string& body, const std::string& headers) const {
  send(fmt::format("POST {} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n{}\r\n{}", path, body.size(), headers,
                   body));
}

Reply Client::post(const std::string& path, const std::string& body, const std::string& headers) {
  send_post(path, body, headers);
  return receive();
}

std::unique_ptr<Engine> story_engine(int32_t max_sequences, decltype(EngineOptions::decorate) decorate) {
  EngineOptions options;
  options.backend = "simd";
  options.context = 1024;
  options.limits.max_sequences = max_sequences;
  options.decorate = std::move(decorate);
  return std::make_unique<Engine>(ChatFile(open_builtin_model()), options);
}

TestServer::TestServer(const std::function<void(serve::ServerOptions&)>& change, int32_t max_sequences,
                       decltype(EngineOptions::decorate) decorate)
    : engine_(story_engine(max_sequences, std::move(decorate))) {
  serve::ServerOptions options;
  options.port = 0;
  options.model = "story";
  if (change) change(options);
  server_ = std::make_unique<serve::Server>(*engine_, options);
  thread_ = std::thread([this] { server_->run(); });
}

TestServer::TestServer(std::vector<serve::ModelSource> models,
                       const std::function<void(serve::ServerOptions&)>& change) {
  serve::ServerOptions options;
  options.port = 0;
  if (change) change(options);
  server_ = std::make_unique<serve::Server>(std::move(models), options);
  thread_ = std::thread([this] { server_->run(); });
}

TestServer::~TestServer() {
  if (!thread_.joinable()) return;
  server_->stop();
  server_->stop();  // without waiting for what still runs
  thread_.join();
}

void TestServer::wait() {
  thread_.join();
}

double metric(uint16_t port, const std::string& name) {
  const Reply reply = Client(port).get("/metrics");
  const size_t at = reply.body.find("\n" + name + " ");
  return at == std::string::npos ? -1 : std::stod(reply.body.substr(at + name.size() + 2));
}

bool metric_becomes(uint16_t port, const std::string& name, double value) {
  return comes_true([&] { return metric(port, name) == value; });
}

bool metric_reaches(uint16_t port, const std::string& name, double value) {
  return comes_true([&] { return metric(port, name) >= value; });
}

}  // namespace inferno::testing
