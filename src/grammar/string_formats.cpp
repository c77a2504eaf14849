#include "grammar/string_formats.h"

#include <map>

namespace inferno::grammar {
namespace {

std::map<std::string, std::string, std::less<>> make_patterns() {
  const std::string year = "[0-9]{4}";
  const std::string leap_year = "(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:[02468][048]|[13579][26])00)";
  const std::string date = "(?:" + year + "-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|" +
                           "(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)|02-(?:0[1-9]|1[0-9]|2[0-8]))|" + leap_year +
                           "-02-29)";
  const std::string hours = "(?:[01][0-9]|2[0-3])";
  const std::string time = hours + ":[0-5][0-9]:[0-5][0-9](?:\\.[0-9]+)?(?:[Zz]|[+\\-]" + hours + ":[0-5][0-9])";
  const std::string seconds = "(?:[0-9]+H(?:[0-9]+M(?:[0-9]+S)?)?|[0-9]+M(?:[0-9]+S)?|[0-9]+S)";
  const std::string days = "(?:[0-9]+Y(?:[0-9]+M(?:[0-9]+D)?)?|[0-9]+M(?:[0-9]+D)?|[0-9]+D)";
  // Four labels stay within the 253 characters of a name.
  const std::string label = "[A-Za-z0-9](?:[A-Za-z0-9\\-]{0,58}[A-Za-z0-9])?";
  const std::string hostname = label + "(?:\\." + label + "){0,3}";
  const std::string atom = "[A-Za-z0-9!#$%&'*+/=?^_`{|}~\\-]+";
  const std::string byte = "(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])";
  const std::string ipv4 = byte + "(?:\\." + byte + "){3}";
  const std::string group = "[0-9A-Fa-f]{1,4}";
  std::string ipv6 = "(?:" + group + ":){7}" + group + "|(?:" + group + ":){6}" + ipv4;
  for (int before = 0; before <= 7; ++before) {
    // "::" stands for at least one group of zeros.
    const std::string left = before == 0 ? "" : group + "(?::" + group + "){" + std::to_string(before - 1) + "}";
    const int after = 7 - before;
    ipv6 += "|" + left + "::";
    if (after > 0) ipv6 += "(?:" + group + "(?::" + group + "){0," + std::to_string(after - 1) + "})?";
    if (after > 2) ipv6 += "|" + left + "::(?:" + group + ":){0," + std::to_string(after - 2) + "}" + ipv4;
    if (after == 2) ipv6 += "|" + left + "::" + ipv4;
  }
  const std::string unreserved = "A-Za-z0-9\\-._~!$&'()*+,;=:@";
  const auto chars = [&](const std::string& more) { return "(?:[" + unreserved + more + "]|%[0-9A-Fa-f]{2})"; };
  const std::string authority = "(?:[A-Za-z0-9\\-._~!$&'()*+,;=:@]|%[0-9A-Fa-f]{2})*";
  const std::string path = "(?:/" + chars("") + "*)*";
  const std::string tail = "(?:\\?" + chars("/?") + "*)?(?:#" + chars("/?") + "*)?";
  const std::string uri =
      "[A-Za-z][A-Za-z0-9+.\\-]*:(?://" + authority + path + "|/?(?:" + chars("") + "+" + path + ")?)" + tail;
  const std::string pointer = "(?:/(?:[^~/]|~[01])*)*";
  return {{"date", date},
          {"time", time},
          {"date-time", date + "[Tt]" + time},
          {"duration", "P(?:[0-9]+W|" + days + "(?:T" + seconds + ")?|T" + seconds + ")"},
          {"email", atom + "(?:\\." + atom + ")*@" + hostname},
          {"hostname", hostname},
          {"ipv4", ipv4},
          {"ipv6", ipv6},
          {"uri", uri},
          {"uuid", "[0-9A-Fa-f]{8}-(?:[0-9A-Fa-f]{4}-){3}[0-9A-Fa-f]{12}"},
          {"json-pointer", pointer},
          {"relative-json-pointer", "(?:0|[1-9][0-9]*)(?:#|" + pointer + ")"}};
}

}  // namespace

const std::string* format_pattern(std::string_view name) {
  static const auto kPatterns = make_patterns();
  const auto found = kPatterns.find(name);
  return found == kPatterns.end() ? nullptr : &found->second;
}

}  // namespace inferno::grammar
