// TLS as bytes in and bytes out; who reads and writes sockets is not its matter.
//
// A session belongs to one connection and is used by one thread at a time; a context may be shared and outlives its
// sessions. In a build without OpenSSL (tls_none.cpp) making a context is an Error that says so.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace inferno::serve {

class TlsContext {
 public:
  // Names of files in PEM form: a certificate, with those between it and the authority after it, and its private key
  // without a password. What is wrong with them is an Error of one line.
  TlsContext(const std::string& certificate, const std::string& key);
  ~TlsContext();
  TlsContext(const TlsContext&) = delete;
  TlsContext& operator=(const TlsContext&) = delete;

 private:
  friend class TlsSession;
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

class TlsSession {
 public:
  enum class State : uint8_t { open, ended, failed };

  explicit TlsSession(const TlsContext& context);
  ~TlsSession();
  TlsSession(const TlsSession&) = delete;
  TlsSession& operator=(const TlsSession&) = delete;

  // With bytes of the client: appends what they say to `plain`, and what has to be sent to it to `wire`. Ended: the
  // client sends no more; failed: this is no TLS, and `wire` ends with what to tell it.
  [[nodiscard]] State receive(std::string_view bytes, std::string& plain, std::string& wire);
  // Appends `plain`, encrypted, to `wire`. Only after something was received. False: the session has failed.
  [[nodiscard]] bool send(std::string_view plain, std::string& wire);
  // Says that nothing more is sent.
  void end(std::string& wire);

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

// Whether the first byte of a client can be the beginning of a request without TLS.
[[nodiscard]] constexpr bool is_plain_http(char first) {
  return first >= 'A' && first <= 'Z';
}

}  // namespace inferno::serve
