#include "gguf/test_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <functional>
#include <initializer_list>
#include <map>
#include <type_traits>
#include <utility>

namespace inferno {
namespace {

// The format's numbers for types, written out here so that the tests do not lean on the code they test.
enum : uint32_t { kU8, kI8, kU16, kI16, kU32, kI32, kF32, kBool, kString, kArray, kU64, kI64, kF64 };

class Builder {
 public:
  template <typename T>
  void put(FieldKind kind, std::string label, T value) {
    static_assert(std::is_arithmetic_v<T>);
    if (record_fields) file.fields.push_back({kind, std::move(label), file.bytes.size(), sizeof value});
    file.bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  void text(FieldKind length_kind, const std::string& label, std::string_view text) {
    put(length_kind, "length of " + label, uint64_t{text.size()});
    if (record_fields && !text.empty())
      file.fields.push_back({FieldKind::text, "text of " + label, file.bytes.size(), text.size()});
    file.bytes += text;
  }
  void preamble(uint32_t version, uint64_t tensors, uint64_t keys) {
    put(FieldKind::magic, "magic", uint32_t{0x46554747});
    put(FieldKind::version, "version", version);
    put(FieldKind::tensor_count, "tensor count", tensors);
    put(FieldKind::metadata_count, "metadata count", keys);
  }
  void key(const std::string& key, uint32_t type) {
    text(FieldKind::key_length, "key " + key, key);
    put(FieldKind::value_type, "type of " + key, type);
  }
  template <typename T>
  void scalar(const std::string& name, uint32_t type, T value) {
    key(name, type);
    put(type == kBool ? FieldKind::boolean : FieldKind::number, name, value);
  }
  void string(const std::string& name, std::string_view value) {
    key(name, kString);
    text(FieldKind::string_length, name, value);
  }
  void array_head(const std::string& name, uint32_t type, uint64_t count) {
    put(FieldKind::array_type, "element type of " + name, type);
    put(FieldKind::array_count, "count of " + name, count);
  }
  template <typename T>
  void array(const std::string& name, uint32_t type, std::initializer_list<T> values) {
    key(name, kArray);
    array_head(name, type, values.size());
    for (const T value : values) put(type == kBool ? FieldKind::boolean : FieldKind::number, "item of " + name, value);
  }
  void tensor(const std::string& name, uint32_t type, const std::vector<uint64_t>& dims, uint64_t offset) {
    text(FieldKind::name_length, "tensor name " + name, name);
    put(FieldKind::rank, "rank of " + name, static_cast<uint32_t>(dims.size()));
    for (size_t i = 0; i < dims.size(); ++i)
      put(FieldKind::dimension, fmt::format("dimension {} of {}", i, name), dims[i]);
    put(FieldKind::tensor_type, "type of " + name, type);
    put(FieldKind::offset, "offset of " + name, offset);
  }
  void data(size_t alignment, size_t bytes) {
    file.bytes.resize((file.bytes.size() + alignment - 1) / alignment * alignment, '\0');
    file.data_begin = file.bytes.size();
    for (size_t i = 0; i < bytes; ++i) file.bytes.push_back(static_cast<char>(i * 37 + 11));
  }

  BuiltFile file;
  bool record_fields = true;
};

void store(std::string& bytes, const FileField& field, uint64_t value) {
  std::memcpy(bytes.data() + field.begin, &value, std::min<size_t>(field.size, sizeof value));
}

uint64_t load(const std::string& bytes, const FileField& field) {
  uint64_t value = 0;
  std::memcpy(&value, bytes.data() + field.begin, std::min<size_t>(field.size, sizeof value));
  return value;
}

constexpr uint64_t kMax = ~uint64_t{0};
constexpr uint64_t bit(int n) {
  return uint64_t{1} << n;
}

// Values that are wrong in a field of this kind anywhere in the sample.
std::vector<uint64_t> bad_values(FieldKind kind) {
  // Times 1, 2, 4, 8 or 32 these wrap to something small; plus anything, the last ones do.
  std::vector<uint64_t> huge = {bit(31), bit(32), bit(40),  bit(59),   bit(60),     bit(61),     bit(62),
                                bit(63), kMax,    kMax - 7, kMax - 31, bit(61) + 1, bit(63) + 1, bit(63) - 1};
  switch (kind) {
    case FieldKind::magic:
      return {0, 1, 0x46475547, 0x47475546, 0xFFFFFFFF, 0x80000000};
    case FieldKind::version:
      return {0, 1, 4, 255, 0x03000000, 0x02000000, 0x7FFFFFFF, 0x80000003, 0xFFFFFFFF};
    case FieldKind::value_type:
    case FieldKind::array_type:
      return {13, 14, 255, 256, 0x7FFFFFFF, 0x80000000, 0x80000004, 0xFFFFFFFF};
    case FieldKind::boolean:
      return {2, 127, 128, 255};
    case FieldKind::rank:
      return {0, 5, 255, 0x7FFFFFFF, 0x80000001, 0xFFFFFFFF};
    case FieldKind::tensor_type:
      return {4, 5, 31, 32, 33, 36, 37, 38, 255, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF};
    case FieldKind::number:
    case FieldKind::text:
      return {};
    case FieldKind::key_length:
    case FieldKind::name_length:
    case FieldKind::dimension: {
      std::vector<uint64_t> values = huge;
      values.push_back(0);
      return values;
    }
    case FieldKind::offset: {
      std::vector<uint64_t> values = huge;
      values.insert(values.end(), {1, 8, 31, 1 << 20});
      return values;
    }
    default:
      return huge;
  }
}

class MalformedFiles {
 public:
  void add(std::string name, std::string bytes) { files.push_back({std::move(name), std::move(bytes)}); }

  void add_bad_fields(const BuiltFile& base) {
    for (const FileField& field : base.fields) {
      for (const uint64_t value : bad_values(field.kind)) {
        std::string bytes = base.bytes;
        store(bytes, field, value);
        add(fmt::format("{} is {:#x}", field.label, value), std::move(bytes));
      }
    }
  }

  // Sets the named fields and adds the result.
  void add_changed(const BuiltFile& base, const std::string& name, const std::map<std::string, uint64_t>& changes) {
    std::string bytes = base.bytes;
    for (const auto& [label, value] : changes) {
      const auto field = std::ranges::find(base.fields, label, &FileField::label);
      store(bytes, *field, value);
    }
    add(name, std::move(bytes));
  }

  void add_cuts(const BuiltFile& base) {
    for (const FileField& field : base.fields) {
      add(fmt::format("cut before {}", field.label), base.bytes.substr(0, field.begin));
      if (field.size > 1)
        add(fmt::format("cut inside {}", field.label), base.bytes.substr(0, field.begin + field.size / 2));
    }
    add("cut before the data", base.bytes.substr(0, base.data_begin));
    add("cut inside the data", base.bytes.substr(0, (base.data_begin + base.bytes.size()) / 2));
    add("cut before the last byte", base.bytes.substr(0, base.bytes.size() - 1));
  }

  // A file with one metadata entry written by `entry`.
  void add_entry(const std::string& name, const std::function<void(Builder&)>& entry) {
    Builder builder;
    builder.preamble(3, 0, 1);
    entry(builder);
    builder.data(32, 64);
    add(name, std::move(builder.file.bytes));
  }

  // A file with tensors of 8 F32 values (32 bytes) each, at these offsets, and `data` bytes of data.
  void add_tensors(const std::string& name, const std::vector<std::pair<std::string, uint64_t>>& tensors, size_t data) {
    Builder builder;
    builder.preamble(3, tensors.size(), 0);
    for (const auto& [tensor, offset] : tensors) builder.tensor(tensor, 0, {8}, offset);
    builder.data(32, data);
    add(name, std::move(builder.file.bytes));
  }

  std::vector<MalformedFile> files;
};

}  // namespace

BuiltFile build_sample_file(uint32_t version) {
  Builder b;
  b.preamble(version, 5, 29);
  b.string("general.architecture", "sample");
  b.scalar("general.alignment", kU32, uint32_t{32});
  b.scalar("s.u8", kU8, uint8_t{250});
  b.scalar("s.i8", kI8, int8_t{-5});
  b.scalar("s.u16", kU16, uint16_t{65000});
  b.scalar("s.i16", kI16, int16_t{-300});
  b.scalar("s.u32", kU32, uint32_t{4000000000});
  b.scalar("s.i32", kI32, int32_t{-70000});
  b.scalar("s.f32", kF32, 1.5F);
  b.scalar("s.true", kBool, uint8_t{1});
  b.scalar("s.false", kBool, uint8_t{0});
  b.string("s.string", "tab\tnul");
  b.string("s.empty", "");
  b.scalar("s.u64", kU64, bit(63) + 1);
  b.scalar("s.i64", kI64, -int64_t{1} << 40);
  b.scalar("s.f64", kF64, 0.1);
  b.array<uint8_t>("a.u8", kU8, {1, 2, 3});
  b.array<int8_t>("a.i8", kI8, {-1, 2});
  b.array<uint16_t>("a.u16", kU16, {1, 65535});
  b.array<int16_t>("a.i16", kI16, {-1, 1});
  b.array<uint32_t>("a.u32", kU32, {7, 8, 9});
  b.array<int32_t>("a.i32", kI32, {-7, 8});
  b.array<float>("a.f32", kF32, {0.5F, -0.25F});
  b.array<uint8_t>("a.bool", kBool, {1, 0, 1});
  b.array<uint64_t>("a.u64", kU64, {kMax, 0});
  b.array<int64_t>("a.i64", kI64, {-1});
  b.array<double>("a.f64", kF64, {3.25});
  b.key("a.string", kArray);
  b.array_head("a.string", kString, 3);
  b.text(FieldKind::string_length, "item 0 of a.string", "hello");
  b.text(FieldKind::string_length, "item 1 of a.string", "");
  b.text(FieldKind::string_length, "item 2 of a.string", "\xF0\x9F\x94\xA5");
  b.key("a.nested", kArray);
  b.array_head("a.nested", kArray, 2);
  b.array_head("a.nested item 0", kU16, 2);
  b.put(FieldKind::number, "a.nested item 0 item 0", uint16_t{5});
  b.put(FieldKind::number, "a.nested item 0 item 1", uint16_t{6});
  b.array_head("a.nested item 1", kString, 1);
  b.text(FieldKind::string_length, "a.nested item 1 item 0", "deep");
  b.tensor("t.f32", 0, {8, 3}, 0);          // 96 bytes
  b.tensor("t.q8", 8, {64, 2}, 96);         // 136 bytes
  b.tensor("t.f16", 1, {2, 1, 3, 2}, 256);  // 24 bytes
  b.tensor("t.tq2", 35, {512}, 288);        // 132 bytes
  b.tensor("t.last", 30, {4, 2, 2}, 448);   // 32 bytes
  b.data(32, 480);
  return std::move(b.file);
}

std::vector<MalformedFile> build_malformed_files() {
  MalformedFiles out;
  const BuiltFile base = build_sample_file();
  out.add_bad_fields(base);
  out.add_cuts(base);

  // Products and sums that wrap around to something plausible.
  const std::vector<std::pair<uint64_t, uint64_t>> pairs = {
      {bit(32), bit(32)}, {bit(63), 2}, {bit(62), 4}, {bit(61), 8}, {bit(33), bit(31)}, {kMax, kMax}, {bit(62), 3}};
  for (const auto& [first, second] : pairs) {
    out.add_changed(base, fmt::format("t.f32 has {:#x} x {:#x} elements", first, second),
                    {{"dimension 0 of t.f32", first}, {"dimension 1 of t.f32", second}});
    out.add_changed(base, fmt::format("t.q8 has {:#x} x {:#x} elements", first, second),
                    {{"dimension 0 of t.q8", first}, {"dimension 1 of t.q8", second}});
  }
  out.add_changed(base, "four dimensions wrap to 0",
                  {{"dimension 0 of t.f16", bit(16)},
                   {"dimension 1 of t.f16", bit(16)},
                   {"dimension 2 of t.f16", bit(16)},
                   {"dimension 3 of t.f16", bit(16)}});
  for (const uint64_t offset : {uint64_t{0}, uint64_t{32}, uint64_t{64}, uint64_t{128}, uint64_t{480}, uint64_t{512}})
    out.add_changed(base, fmt::format("t.q8 at offset {}", offset), {{"offset of t.q8", offset}});
  for (const uint64_t cols : {1, 31, 33, 63, 65, 96, 127})
    out.add_changed(base, fmt::format("t.q8 with rows of {}", cols), {{"dimension 0 of t.q8", cols}});
  for (const uint64_t alignment : {0, 3, 5, 7, 13, 31, 33, 96, 64, 4096, 1 << 30})
    out.add_changed(base, fmt::format("alignment {}", alignment), {{"general.alignment", alignment}});
  out.add_changed(base, "alignment 2^31", {{"general.alignment", bit(31)}});
  out.add_changed(base, "alignment is an i32", {{"type of general.alignment", kI32}});
  out.add_changed(base, "alignment is an f32", {{"type of general.alignment", kF32}});
  out.add_changed(base, "one metadata entry too many", {{"metadata count", 30}});
  out.add_changed(base, "one metadata entry too few", {{"metadata count", 28}});
  out.add_changed(base, "no metadata", {{"metadata count", 0}});
  out.add_changed(base, "one tensor too many", {{"tensor count", 6}});
  out.add_changed(base, "65537 metadata entries", {{"metadata count", 65537}});
  out.add_changed(base, "131073 tensors", {{"tensor count", 131073}});

  out.add("empty file", "");
  out.add("only zeros", std::string(4096, '\0'));
  out.add("only 0xFF", std::string(4096, '\xFF'));
  out.add("a text file", "Once upon a time there was a file that was not a model.\n");
  out.add("two files' worth of magic", "GGUFGGUFGGUFGGUFGGUFGGUFGGUFGGUF");

  out.add_entry("empty key", [](Builder& b) { b.scalar("", kU8, uint8_t{1}); });
  out.add_entry("key is not UTF-8", [](Builder& b) { b.scalar("a\xC0\x80", kU8, uint8_t{1}); });
  out.add_entry("key is half a UTF-8 sequence", [](Builder& b) { b.scalar("a\xE2\x82", kU8, uint8_t{1}); });
  out.add_entry("key of 65536 bytes", [](Builder& b) { b.scalar(std::string(65536, 'k'), kU8, uint8_t{1}); });
  out.add_entry("array of arrays of an unknown type", [](Builder& b) {
    b.key("k", kArray);
    b.array_head("k", kArray, 1);
    b.array_head("k", 13, 0);
  });
  for (const uint32_t alignment : {0U, 3U, 13U, 31U, 0x40000008U, 0x80000000U, 0xFFFFFFFFU}) {
    out.add_entry(fmt::format("alignment {} without tensors", alignment),
                  [&](Builder& b) { b.scalar("general.alignment", kU32, alignment); });
  }
  out.add_entry("alignment is a u64", [](Builder& b) { b.scalar("general.alignment", kU64, uint64_t{32}); });
  out.add_entry("alignment is a string", [](Builder& b) { b.string("general.alignment", "32"); });
  for (const size_t depth : {5, 6, 100, 20000}) {
    out.add(fmt::format("arrays nested {} deep", depth), build_file_with_nested_arrays(1, depth));
  }
  out.add("65537 nested arrays", build_file_with_nested_arrays(65537, 2));
  {
    Builder b;
    b.preamble(3, 0, 2);
    b.scalar("twin", kU8, uint8_t{1});
    b.scalar("twin", kU8, uint8_t{1});
    out.add("a key twice", std::move(b.file.bytes));
  }
  {
    Builder b;
    b.preamble(3, 0, 3);
    b.scalar("b", kU8, uint8_t{1});
    b.scalar("a", kU8, uint8_t{1});
    b.string("b", "other type");
    out.add("a key twice, with another type and another key between", std::move(b.file.bytes));
  }

  for (const size_t rank : {0, 5, 6, 1000}) {
    Builder b;
    b.preamble(3, 1, 0);
    b.tensor("t", 0, std::vector<uint64_t>(rank, 1), 0);
    b.data(32, 32);
    out.add(fmt::format("a tensor of {} dimensions", rank), std::move(b.file.bytes));
  }
  out.add_tensors("a tensor twice", {{"a", 0}, {"b", 32}, {"a", 64}}, 96);
  out.add_tensors("two tensors at one place", {{"a", 0}, {"b", 0}}, 64);
  out.add_tensors("first tensor not at 0", {{"a", 32}, {"b", 64}}, 96);
  out.add_tensors("a gap between tensors", {{"a", 0}, {"b", 64}}, 96);
  out.add_tensors("a gap that reaches the end", {{"a", 0}, {"b", 96}}, 96);
  out.add_tensors("half overlap", {{"a", 0}, {"b", 16}}, 64);
  out.add_tensors("data one byte short", {{"a", 0}, {"b", 32}}, 63);
  out.add_tensors("no data at all", {{"a", 0}}, 0);
  out.add_tensors("offset before the data section", {{"a", 0}, {"b", kMax - 31}}, 64);
  out.add_tensors("empty tensor name", {{"", 0}}, 32);
  out.add_tensors("tensor name of 256 bytes", {{std::string(256, 'n'), 0}}, 32);
  out.add_tensors("tensor name is not UTF-8", {{"a\xFF", 0}}, 32);
  return std::move(out.files);
}

std::string build_file_with_many_keys(size_t count) {
  Builder b;
  b.record_fields = false;
  b.preamble(3, 0, count);
  for (size_t i = 0; i < count; ++i) b.scalar(fmt::format("{:x}", i), kU8, uint8_t{0});
  return std::move(b.file.bytes);
}

std::string build_file_with_many_tensors(size_t count) {
  Builder b;
  b.record_fields = false;
  b.preamble(3, count, 1);
  b.scalar("general.alignment", kU32, uint32_t{1});
  for (size_t i = 0; i < count; ++i) b.tensor(fmt::format("{:x}", i), 24, {1}, i);
  b.data(1, count);
  return std::move(b.file.bytes);
}

std::string build_file_with_nested_arrays(size_t count, size_t depth) {
  Builder b;
  b.record_fields = false;
  b.preamble(3, 0, 1);
  b.key("nested", kArray);
  for (size_t level = 2; level < depth; ++level) b.array_head("level", kArray, 1);
  b.array_head("level", kArray, count);
  for (size_t i = 0; i < count; ++i) b.array_head("leaf", kU8, 0);
  return std::move(b.file.bytes);
}

std::string mutate(const BuiltFile& base, std::mt19937_64& random) {
  const auto below = [&](size_t n) { return static_cast<size_t>(random() % n); };
  const auto pick_field = [&]() -> const FileField& { return base.fields[below(base.fields.size())]; };
  std::string bytes = base.bytes;
  // Changes of fields come first: inserting or erasing bytes moves the fields after them.
  const size_t field_changes = below(4);
  for (size_t i = 0; i < field_changes; ++i) {
    const FileField& field = pick_field();
    const uint64_t old = load(bytes, field);
    const std::array<uint64_t, 12> values = {0,
                                             1,
                                             kMax,
                                             old + 1,
                                             old - 1,
                                             old ^ bit(static_cast<int>(below(64))),
                                             bit(static_cast<int>(below(64))),
                                             old * 2,
                                             old + 32,
                                             bytes.size() - field.begin,
                                             load(bytes, pick_field()),
                                             random()};
    store(bytes, field, values[below(values.size())]);
  }
  const size_t begin = below(bytes.size());
  const size_t length = std::min(bytes.size() - begin, below(64));
  switch (below(8)) {
    case 0:
      bytes.resize(begin);
      break;
    case 1:
      bytes.erase(begin, length);
      break;
    case 2:
      bytes.insert(begin, bytes.substr(below(bytes.size()), length));
      break;
    case 3:
      bytes.insert(begin, std::string(length, static_cast<char>(random())));
      break;
    case 4:
      for (size_t i = 0; i < length; ++i) bytes[begin + i] = static_cast<char>(random());
      break;
    case 5:
      bytes[begin] = static_cast<char>(bytes[begin] ^ (1 << below(8)));
      break;
    default:
      if (field_changes == 0) bytes[begin] = static_cast<char>(random());
      break;
  }
  return bytes;
}

}  // namespace inferno
