#include "tokenizer/normalize.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <tuple>
#include <vector>

#include "base/error.h"

namespace inferno {

namespace {

bool is_ascii(char c) {
  return static_cast<unsigned char>(c) < 0x80;
}

// U+0300 (CC 80) is the first character that composes with one before it or has a decomposition that NFC does not undo.
bool needs_work(std::string_view stretch) {
  return std::any_of(stretch.begin(), stretch.end(), [](char c) { return static_cast<unsigned char>(c) >= 0xCC; });
}

// Canonical order: each run of combining marks by class, equal ones in their order. utf8proc's own sort takes quadratic
// time on a long run.
void order_marks(std::vector<utf8proc_int32_t>& characters) {
  struct Mark {
    int combining_class;
    size_t position;
    utf8proc_int32_t character;
  };
  std::vector<Mark> marks;
  const auto flush_before = [&](size_t end) {
    const auto by_class = [](const Mark& a, const Mark& b) {
      return std::tie(a.combining_class, a.position) < std::tie(b.combining_class, b.position);
    };
    std::sort(marks.begin(), marks.end(), by_class);
    for (size_t i = 0; i < marks.size(); ++i) characters[end - marks.size() + i] = marks[i].character;
    marks.clear();
  };
  for (size_t i = 0; i < characters.size(); ++i) {
    const int combining_class = utf8proc_get_property(characters[i])->combining_class;
    if (combining_class == 0) {
      flush_before(i);
    } else {
      marks.push_back({combining_class, i, characters[i]});
    }
  }
  flush_before(characters.size());
}

void normalize_stretch(std::string_view stretch, std::vector<utf8proc_int32_t>& characters, std::string& out) {
  decompose_nfd(stretch, characters);
  const utf8proc_ssize_t count =
      utf8proc_normalize_utf32(characters.data(), static_cast<utf8proc_ssize_t>(characters.size()),
                               static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
  INFERNO_CHECK(count >= 0);
  for (utf8proc_ssize_t i = 0; i < count; ++i) {
    std::array<utf8proc_uint8_t, 4> encoded{};
    const utf8proc_ssize_t length = utf8proc_encode_char(characters[static_cast<size_t>(i)], encoded.data());
    out.append(reinterpret_cast<const char*>(encoded.data()), static_cast<size_t>(length));
  }
}

}  // namespace

void decompose_nfd(std::string_view text, std::vector<int32_t>& characters) {
  characters.clear();
  const auto* bytes = reinterpret_cast<const utf8proc_uint8_t*>(text.data());
  auto left = static_cast<utf8proc_ssize_t>(text.size());
  while (left > 0) {
    utf8proc_int32_t character = 0;
    const utf8proc_ssize_t used = utf8proc_iterate(bytes, left, &character);
    INFERNO_CHECK(used > 0);
    bytes += used;
    left -= used;
    std::array<utf8proc_int32_t, 16> parts{};  // the longest canonical decomposition has 4
    int boundary = 0;
    const utf8proc_ssize_t count =
        utf8proc_decompose_char(character, parts.data(), static_cast<utf8proc_ssize_t>(parts.size()),
                                static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_DECOMPOSE), &boundary);
    INFERNO_CHECK(count > 0 && count <= static_cast<utf8proc_ssize_t>(parts.size()));
    characters.insert(characters.end(), parts.begin(), parts.begin() + count);
  }
  order_marks(characters);
}

std::string normalize_nfc(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  std::vector<utf8proc_int32_t> characters;
  // An ASCII character changes only together with marks that follow it: each stretch of other characters is
  // normalized with the one ASCII character before it.
  size_t done = 0;
  while (done < text.size()) {
    const auto first = std::find_if_not(text.begin() + static_cast<ptrdiff_t>(done), text.end(), is_ascii);
    const auto last = std::find_if(first, text.end(), is_ascii);
    size_t begin = static_cast<size_t>(first - text.begin());
    const size_t end = static_cast<size_t>(last - text.begin());
    if (begin > done) --begin;
    out.append(text.substr(done, begin - done));
    const std::string_view stretch = text.substr(begin, end - begin);
    if (needs_work(stretch)) {
      normalize_stretch(stretch, characters, out);
    } else {
      out.append(stretch);
    }
    done = end;
  }
  return out;
}

}  // namespace inferno
