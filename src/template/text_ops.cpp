#include "template/text_ops.h"

#include <algorithm>
#include <cstring>

#include "template/unicode.h"

namespace inferno::jinja {
namespace {

bool is_cased(char32_t code) {
  return is_upper(code) || is_lower(code) || is_title(code);
}

constexpr char32_t kCapitalSigma = 0x3A3;
constexpr char32_t kFinalSigma = 0x3C2;

// A sigma at the end of a word has a form of its own.
bool ends_word(std::string_view text, size_t begin, size_t end) {
  const bool letter_before = begin > 0 && is_alpha(character_before(text, begin).code);
  const bool letter_after = end < text.size() && is_alpha(character_at(text, end).code);
  return letter_before && !letter_after;
}

// f(out, code, begin, end) appends what becomes of each character.
template <typename F>
Text map_characters(const Text& text, F f) {
  Text out;
  std::string mapped;
  bool control = true;
  const auto flush = [&] {
    out.append(mapped, control);
    mapped.clear();
  };
  for (size_t i = 0; i < text.size();) {
    const Character c = character_at(text.view(), i);
    const bool origin = text.is_control(i);
    if (origin != control) {
      flush();
      control = origin;
    }
    f(mapped, c.code, i, i + c.size);
    i += c.size;
  }
  flush();
  return out;
}

void lower(std::string& out, std::string_view text, char32_t code, size_t begin, size_t end) {
  if (code == kCapitalSigma && ends_word(text, begin, end)) {
    append_character(out, kFinalSigma);
  } else {
    append_lower(out, code);
  }
}

bool is_in(std::string_view chars, std::string_view character) {
  for (size_t i = 0; i < chars.size();) {
    const size_t size = character_at(chars, i).size;
    if (chars.substr(i, size) == character) return true;
    i += size;
  }
  return false;
}

size_t skip_space(std::string_view text, size_t at) {
  while (at < text.size()) {
    const Character c = character_at(text, at);
    if (!is_space(c.code)) break;
    at += c.size;
  }
  return at;
}

size_t skip_word(std::string_view text, size_t at) {
  while (at < text.size()) {
    const Character c = character_at(text, at);
    if (is_space(c.code)) break;
    at += c.size;
  }
  return at;
}

size_t back_over(std::string_view text, size_t at, bool space) {
  while (at > 0) {
    const Character c = character_before(text, at);
    if (is_space(c.code) != space) break;
    at -= c.size;
  }
  return at;
}

}  // namespace

Text strip(const Text& text, std::optional<std::string_view> chars, Side side) {
  const std::string_view view = text.view();
  const auto goes = [&](const Character& c, size_t at) {
    return chars ? is_in(*chars, view.substr(at, c.size)) : is_space(c.code);
  };
  size_t begin = 0;
  size_t end = view.size();
  while (side != Side::right && begin < end) {
    const Character c = character_at(view, begin);
    if (!goes(c, begin)) break;
    begin += c.size;
  }
  while (side != Side::left && end > begin) {
    const Character c = character_before(view, end);
    if (!goes(c, end - c.size)) break;
    end -= c.size;
  }
  return text.slice(begin, end);
}

Text to_upper(const Text& text) {
  return map_characters(text, [](std::string& out, char32_t code, size_t, size_t) { append_upper(out, code); });
}

Text to_lower(const Text& text) {
  return map_characters(text, [&](std::string& out, char32_t code, size_t begin, size_t end) {
    lower(out, text.view(), code, begin, end);
  });
}

Text to_swapped(const Text& text) {
  return map_characters(text, [&](std::string& out, char32_t code, size_t begin, size_t end) {
    if (is_upper(code)) {
      lower(out, text.view(), code, begin, end);
    } else if (is_lower(code)) {
      append_upper(out, code);
    } else {
      append_character(out, code);
    }
  });
}

Text to_capitalized(const Text& text) {
  return map_characters(text, [&](std::string& out, char32_t code, size_t begin, size_t end) {
    if (begin == 0) {
      append_title(out, code);
    } else {
      lower(out, text.view(), code, begin, end);
    }
  });
}

Text to_title(const Text& text) {
  bool in_word = false;
  return map_characters(text, [&](std::string& out, char32_t code, size_t begin, size_t end) {
    if (in_word) {
      lower(out, text.view(), code, begin, end);
    } else {
      append_title(out, code);
    }
    in_word = is_cased(code);
  });
}

Text replace(const Text& text, std::string_view old, const Text& fresh, int64_t limit) {
  const std::string_view view = text.view();
  Text out;
  size_t at = 0;
  if (old.empty()) {
    // Before each character and at the end.
    while (limit != 0) {
      out.append(fresh);
      --limit;
      if (at >= view.size()) return out;
      const size_t next = at + character_at(view, at).size;
      out.append(text, at, next);
      at = next;
    }
  }
  while (limit != 0) {
    const size_t found = find_part(view, old, at);
    if (found == std::string_view::npos) break;
    out.append(text, at, found);
    out.append(fresh);
    at = found + old.size();
    --limit;
  }
  out.append(text, at, view.size());
  return out;
}

size_t find_part(std::string_view text, std::string_view part, size_t from) {
  constexpr size_t kShort = 32;  // below, trying every position is as good
  if (part.size() < kShort || from > text.size()) return text.find(part, from);
  const void* found = memmem(text.data() + from, text.size() - from, part.data(), part.size());
  return found == nullptr ? std::string_view::npos : static_cast<size_t>(static_cast<const char*>(found) - text.data());
}

size_t count_matches(std::string_view text, std::string_view part) {
  if (part.empty()) return count_characters(text) + 1;
  size_t count = 0;
  for (size_t at = find_part(text, part); at != std::string_view::npos; at = find_part(text, part, at + part.size())) {
    ++count;
  }
  return count;
}

std::vector<Text> split(const Text& text, std::optional<std::string_view> separator, int64_t limit) {
  const std::string_view view = text.view();
  std::vector<Text> parts;
  if (!separator) {
    size_t at = skip_space(view, 0);
    while (at < view.size()) {
      const size_t end = limit == 0 ? view.size() : skip_word(view, at);
      parts.push_back(text.slice(at, end));
      if (limit == 0) break;
      --limit;
      at = skip_space(view, end);
    }
    return parts;
  }
  size_t at = 0;
  while (limit != 0) {
    const size_t found = find_part(view, *separator, at);
    if (found == std::string_view::npos) break;
    parts.push_back(text.slice(at, found));
    at = found + separator->size();
    --limit;
  }
  parts.push_back(text.slice(at, view.size()));
  return parts;
}

std::vector<Text> split_from_right(const Text& text, std::optional<std::string_view> separator, int64_t limit) {
  const std::string_view view = text.view();
  std::vector<Text> parts;
  size_t end = view.size();
  if (!separator) {
    end = back_over(view, end, true);
    while (end > 0) {
      const size_t begin = limit == 0 ? 0 : back_over(view, end, false);
      parts.push_back(text.slice(begin, end));
      if (limit == 0) break;
      --limit;
      end = back_over(view, begin, true);
    }
  } else {
    while (limit != 0 && end >= separator->size()) {
      const size_t found = view.substr(0, end).rfind(*separator);
      if (found == std::string_view::npos) break;
      parts.push_back(text.slice(found + separator->size(), end));
      end = found;
      --limit;
    }
    parts.push_back(text.slice(0, end));
  }
  std::reverse(parts.begin(), parts.end());
  return parts;
}

std::vector<Text> split_lines(const Text& text, bool keep_ends) {
  const std::string_view view = text.view();
  std::vector<Text> lines;
  size_t begin = 0;
  for (size_t at = 0; at < view.size();) {
    const Character c = character_at(view, at);
    const size_t end = at;
    at += c.size;
    if (!is_line_break(c.code)) continue;
    if (c.code == '\r' && at < view.size() && view[at] == '\n') ++at;
    lines.push_back(text.slice(begin, keep_ends ? at : end));
    begin = at;
  }
  if (begin < view.size()) lines.push_back(text.slice(begin, view.size()));
  return lines;
}

}  // namespace inferno::jinja
