// A build without OpenSSL: says what is missing.
#include "base/error.h"
#include "serve/tls.h"

namespace inferno::serve {

struct TlsContext::Parts {};
struct TlsSession::Parts {};

TlsContext::TlsContext(const std::string& /*certificate*/, const std::string& /*key*/) {
  fail_usage("this build has no TLS; install the headers of OpenSSL and build it again, or put a proxy before it");
}
TlsContext::~TlsContext() = default;

TlsSession::TlsSession(const TlsContext& /*context*/) {}
TlsSession::~TlsSession() = default;

TlsSession::State TlsSession::receive(std::string_view /*bytes*/, std::string& /*plain*/, std::string& /*wire*/) {
  return State::failed;
}

bool TlsSession::send(std::string_view /*plain*/, std::string& /*wire*/) {
  return false;
}

void TlsSession::end(std::string& /*wire*/) {}

}  // namespace inferno::serve
