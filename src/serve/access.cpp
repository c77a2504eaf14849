#include "serve/access.h"

#include <algorithm>

#include "base/error.h"
#include "base/text.h"
#include "serve/api_error.h"

namespace inferno::serve {
namespace {

constexpr std::string_view kLoopback = "localhost";  // in the list of origins: pages of this machine, at any port

bool is_loopback_origin(std::string_view origin) {
  const size_t scheme = origin.find("://");
  return scheme != std::string_view::npos && is_loopback_host(origin.substr(scheme + 3));
}

}  // namespace

std::vector<std::string> parse_keys(std::string_view text) {
  std::vector<std::string> keys;
  size_t line = 0;
  while (!text.empty()) {
    ++line;
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view key = trim(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
    if (key.empty() || key.front() == '#') continue;
    const bool printable = std::ranges::all_of(key, [](char c) { return c > ' ' && c < 0x7F; });
    if (!printable || key.size() > kMaxKeyBytes) {
      fail("line {} of the API keys is no key: 1 to {} printable ASCII characters without spaces", line, kMaxKeyBytes);
    }
    keys.emplace_back(key);
  }
  return keys;
}

bool same_key(std::string_view given, std::string_view key) {
  if (key.empty()) return false;
  auto difference = static_cast<unsigned>(given.size() != key.size());
  for (size_t i = 0; i < given.size(); ++i) {
    difference |= static_cast<unsigned char>(given[i]) ^ static_cast<unsigned char>(key[i % key.size()]);
  }
  return difference == 0;
}

bool is_loopback_host(std::string_view host) {
  if (host.starts_with('[')) return host.substr(0, host.find(']') + 1) == "[::1]";
  std::string name(host.substr(0, host.find(':')));
  std::ranges::transform(name, name.begin(),
                         [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
  if (name == "localhost") return true;
  // 127.0.0.0/8, written out: letters would make it a name that somebody else resolves.
  return name.starts_with("127.") && name.find_first_not_of("0123456789.") == std::string::npos;
}

std::string cors_lines(const HttpHead& head) {
  if (head.allowed_origin.empty()) return {};
  return fmt::format(
      "Access-Control-Allow-Origin: {}\r\n"
      "Access-Control-Expose-Headers: X-Request-Id, Server-Timing, X-Reused-Tokens, Retry-After\r\nVary: Origin\r\n",
      head.allowed_origin);
}

Access::Access(std::vector<std::string> keys, bool local, std::vector<std::string> origins)
    : keys_(std::move(keys)), local_(local), origins_(std::move(origins)) {
  for (const std::string& origin : origins_) {
    const size_t scheme = origin.find("://");
    const bool is_sound = origin == "*" || origin == kLoopback ||
                          (scheme != std::string::npos && scheme > 0 && scheme + 3 < origin.size() &&
                           origin.find_first_of("/ \t\r\n,*", scheme + 3) == std::string::npos);
    if (!is_sound)
      fail_usage("`cors_origin` \"{}\" is no origin: https://host, with its port, localhost, or *", printable(origin));
  }
}

std::string Access::allowed_origin(const HttpHead& head) const {
  if (head.origin.empty()) return {};
  if (std::ranges::count(origins_, "*") > 0) return "*";
  const bool is_named = std::ranges::count(origins_, head.origin) > 0 ||
                        (is_loopback_origin(head.origin) && std::ranges::count(origins_, kLoopback) > 0);
  return is_named ? head.origin : std::string();
}

size_t Access::check(const HttpHead& head, bool is_open) const {
  if (!keys_.empty()) {
    size_t known = HttpHead::kNoKey;
    for (size_t i = 0; i < keys_.size(); ++i) {
      if (same_key(head.credential, keys_[i])) known = i;
    }
    if (known != HttpHead::kNoKey || is_open) return known;
    throw ApiError(401,
                   head.credential.empty() ? "an API key is needed: send \"Authorization: Bearer KEY\""
                                           : "the API key is not one of this server's",
                   {}, "invalid_api_key");
  }
  if (!local_) return HttpHead::kNoKey;
  if (!is_loopback_host(head.host)) {
    throw ApiError(403, "this server answers requests to a loopback host alone; start it with an API key for others");
  }
  if (head.origin.empty() || !head.allowed_origin.empty()) return HttpHead::kNoKey;
  if (!is_loopback_origin(head.origin)) throw ApiError(403, "pages of other sites may not use this server");
  return HttpHead::kNoKey;
}

}  // namespace inferno::serve
