#include "hub/sha256.h"

#include <fmt/core.h>
#include <openssl/evp.h>

#include <array>

#include "base/error.h"

namespace inferno::hub {
namespace {

void check(int result) {
  if (result != 1) fail("the SHA-256 of this machine's OpenSSL cannot be used");
}

}  // namespace

struct Sha256::State {
  EVP_MD_CTX* context = EVP_MD_CTX_new();
  State() = default;
  ~State() { EVP_MD_CTX_free(context); }
  State(const State&) = delete;
  State& operator=(const State&) = delete;
};

Sha256::Sha256() : state_(std::make_unique<State>()) {
  check(state_->context != nullptr ? 1 : 0);
  restart();
}
Sha256::~Sha256() = default;

void Sha256::restart() {
  check(EVP_DigestInit_ex(state_->context, EVP_sha256(), nullptr));
}

void Sha256::add(std::span<const std::byte> bytes) {
  check(EVP_DigestUpdate(state_->context, bytes.data(), bytes.size()));
}

std::string Sha256::finish() {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest = {};
  unsigned int length = 0;
  check(EVP_DigestFinal_ex(state_->context, digest.data(), &length));
  std::string text;
  for (unsigned int i = 0; i < length; ++i) text += fmt::format("{:02x}", digest[i]);
  return text;
}

}  // namespace inferno::hub
