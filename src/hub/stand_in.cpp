#include "hub/stand_in.h"

#include <arpa/inet.h>
#include <fmt/core.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <stdexcept>

namespace inferno::hub {
namespace {

std::string header(const std::string& head, const std::string& name) {
  const size_t at = head.find("\r\n" + name + ": ");
  if (at == std::string::npos) return "";
  const size_t begin = at + name.size() + 4;
  return head.substr(begin, head.find("\r\n", begin) - begin);
}

void send_all(int connection, const std::string& text) {
  for (size_t sent = 0; sent < text.size();) {
    const ssize_t count = ::send(connection, text.data() + sent, text.size() - sent, MSG_NOSIGNAL);
    if (count <= 0) return;
    sent += static_cast<size_t>(count);
  }
}

}  // namespace

StandIn::StandIn(Handler handler) : handler_(std::move(handler)) {
  listener_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  if (::bind(listener_, reinterpret_cast<sockaddr*>(&address), length) != 0 || ::listen(listener_, 16) != 0 ||
      ::getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &length) != 0) {
    throw std::runtime_error("no port on loopback");
  }
  port_ = ntohs(address.sin_port);
  thread_ = std::thread([this] { serve(); });
}

StandIn::~StandIn() {
  stop_ = true;
  ::shutdown(listener_, SHUT_RDWR);
  thread_.join();
  ::close(listener_);
}

std::string StandIn::address() const {
  return fmt::format("http://127.0.0.1:{}", port_);
}

std::vector<StandInRequest> StandIn::requests() const {
  const std::lock_guard lock(mutex_);
  return requests_;
}

void StandIn::serve() {
  while (!stop_) {
    const int connection = ::accept(listener_, nullptr, nullptr);
    if (connection < 0) continue;
    answer(connection);
    ::close(connection);
  }
}

void StandIn::answer(int connection) {
  std::string head;
  char buffer[4096];
  while (head.find("\r\n\r\n") == std::string::npos) {
    const ssize_t count = ::recv(connection, buffer, sizeof buffer, 0);
    if (count <= 0) return;
    head.append(buffer, static_cast<size_t>(count));
  }
  StandInRequest request;
  const size_t path = head.find(' ') + 1;
  request.path = head.substr(path, head.find(' ', path) - path);
  request.authorization = header(head, "Authorization");
  const std::string range = header(head, "Range");
  if (range.starts_with("bytes=")) request.first_byte = std::strtoull(range.c_str() + 6, nullptr, 10);
  {
    const std::lock_guard lock(mutex_);
    requests_.push_back(request);
  }
  const StandInReply reply = handler_(request);
  send_all(connection, fmt::format("HTTP/1.1 {} X\r\nContent-Length: {}\r\nConnection: close\r\n{}\r\n", reply.status,
                                   reply.body.size(), reply.headers));
  send_all(connection, reply.body.substr(0, reply.cut_at));
}

StandInReply reply_with(const StandInRequest& request, const std::string& file) {
  if (request.first_byte == 0) return {.body = file};
  if (request.first_byte >= file.size()) return {.status = 416};
  return {.status = 206,
          .headers = fmt::format("Content-Range: bytes {}-{}/{}\r\n", request.first_byte, file.size() - 1, file.size()),
          .body = file.substr(request.first_byte)};
}

}  // namespace inferno::hub
