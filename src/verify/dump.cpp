#include "verify/dump.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>

#include "backend/op_fields.h"
#include "backend/op_group.h"
#include "base/checked.h"
#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "verify/op_arguments.h"

namespace inferno {
namespace {

using Json = nlohmann::ordered_json;

constexpr char kMagic[8] = {'I', 'N', 'F', 'E', 'R', 'O', 'P', '2'};
constexpr uint64_t kHeadLimit = uint64_t{1} << 20;
constexpr uint64_t kMost = uint64_t{1} << 40;  // of anything in the head

struct Preamble {
  char magic[8];
  uint64_t head_bytes;
  uint64_t checksum;
};

class Checksum {  // FNV-1a
 public:
  void add(std::span<const std::byte> bytes) {
    for (const std::byte byte : bytes) value_ = (value_ ^ static_cast<uint64_t>(byte)) * 0x100000001b3ULL;
  }
  [[nodiscard]] uint64_t value() const { return value_; }

 private:
  uint64_t value_ = 0xcbf29ce484222325ULL;
};

std::vector<std::byte> canonical_bytes(const Weight& w) {
  std::vector<std::byte> bytes(static_cast<size_t>(w.rows() * row_bytes(w.dtype(), w.cols())));
  WeightRows(w).read(0, bytes);
  return bytes;
}

Json shape_json(const Shape& shape) {
  Json dims = Json::array();
  for (int i = 0; i < shape.rank; ++i) dims.push_back(shape[i]);
  return dims;
}

// ---- writing: one entry per field, pointers as [block, offset]

class WriteFields final : public FieldVisitor {
 public:
  explicit WriteFields(const OpImage& image) : image_(image) {}
  void tensor(FieldTag /*tag*/, std::string_view name, Tensor& t) override {
    if (t.data == nullptr) return;
    fields_[std::string(name)] = {
        {"dtype", dtype_name(t.dtype)}, {"shape", shape_json(t.shape)}, {"at", place(t.data)}};
  }
  void weight(std::string_view name, const Weight*& w) override {
    if (w == nullptr) return;
    fields_[std::string(name)] = {{"weight", weights.size()}};
    weights.push_back(w);
  }
  void kv(FieldTag /*tag*/, std::string_view name, KvLayerView& v) override {
    fields_[std::string(name)] = {
        {"dtype", dtype_name(v.dtype)}, {"pages", v.pages},       {"page_size", v.page_size},
        {"kv_heads", v.kv_heads},       {"head_dim", v.head_dim}, {"v_head_dim", v.v_head_dim},
        {"v_in_k", v.v_in_k},           {"k", place(v.k)},        {"v", place(v.v)}};
  }
  void batch(std::string_view name, StepBatch& b) override {
    fields_[std::string(name)] = {{"tokens", b.tokens},
                                  {"sequences", b.sequences},
                                  {"logit_rows", b.logit_rows},
                                  {"max_pages", b.max_pages},
                                  {"decodes", b.decodes},
                                  {"token_ids", place(b.token_ids)},
                                  {"pos", place(b.pos)},
                                  {"seq_of_token", place(b.seq_of_token)},
                                  {"q_begin", place(b.q_begin)},
                                  {"kv_len", place(b.kv_len)},
                                  {"slot", place(b.slot)},
                                  {"block_table", place(b.block_table)},
                                  {"logit_row_ids", place(b.logit_row_ids)},
                                  {"state_slot", place(b.state_slot)}};
  }
  void attribute(std::string_view name, double& value) override {
    // JSON has no infinities; such a value is kept as text.
    if (std::isfinite(value)) {
      fields_[std::string(name)] = value;
    } else {
      fields_[std::string(name)] = value > 0 ? "inf" : "-inf";
    }
  }
  Json take_fields() { return std::exchange(fields_, Json::object()); }
  std::vector<const Weight*> weights;  // of all ops

 private:
  [[nodiscard]] Json place(const void* address) const {
    if (address == nullptr) return nullptr;
    const auto [block, offset] = image_.locate(address);
    return {block, offset};
  }
  const OpImage& image_;
  Json fields_ = Json::object();
};

// ---- reading

class ReadFields final : public FieldVisitor {
 public:
  ReadFields(const Json& fields, const OpImage& image, const std::vector<const Weight*>& weights)
      : fields_(fields), image_(image), weights_(weights) {}
  void tensor(FieldTag /*tag*/, std::string_view name, Tensor& t) override {
    const Json* field = find(name);
    if (field == nullptr) return;
    t.dtype = dtype(*field);
    t.shape = shape(field->at("shape"));
    t.data = address(field->at("at"), t.bytes());
  }
  void weight(std::string_view name, const Weight*& w) override {
    const Json* field = find(name);
    if (field != nullptr) w = weights_.at(static_cast<size_t>(integer(field->at("weight"), kMost)));
  }
  void kv(FieldTag /*tag*/, std::string_view name, KvLayerView& v) override {
    const Json& field = fields_.at(std::string(name));
    v.dtype = dtype(field);
    v.pages = count(field, "pages");
    v.page_size = count(field, "page_size");
    v.kv_heads = count(field, "kv_heads");
    v.head_dim = count(field, "head_dim");
    v.v_head_dim = count(field, "v_head_dim");
    v.v_in_k = field.value("v_in_k", false);
    v.k = address(field.at("k"), cache_bytes(v));
    v.v = address(field.at("v"), cache_bytes(v.values()));
  }
  void batch(std::string_view name, StepBatch& b) override {
    const Json& field = fields_.at(std::string(name));
    b.tokens = count(field, "tokens");
    b.sequences = count(field, "sequences");
    b.logit_rows = count(field, "logit_rows");
    b.max_pages = count(field, "max_pages");
    b.token_ids = ints(field, "token_ids", b.tokens);
    b.pos = ints(field, "pos", b.tokens);
    b.seq_of_token = ints(field, "seq_of_token", b.tokens);
    b.q_begin = ints(field, "q_begin", b.sequences + int64_t{1});
    b.kv_len = ints(field, "kv_len", b.sequences);
    b.slot = ints(field, "slot", b.tokens);
    b.block_table = ints(field, "block_table", int64_t{b.sequences} * b.max_pages);
    b.logit_row_ids = ints(field, "logit_row_ids", b.logit_rows);
    // Dumps of earlier versions have none of these.
    if (field.contains("decodes")) b.decodes = count(field, "decodes");
    if (field.contains("state_slot")) b.state_slot = ints(field, "state_slot", b.sequences);
  }
  void attribute(std::string_view name, double& value) override {
    const Json& field = fields_.at(std::string(name));
    if (field.is_string()) {
      value = field == "inf" ? INFINITY : -INFINITY;
    } else if (!field.is_number()) {
      throw std::runtime_error("an attribute that is no number");
    } else {
      value = field.get<double>();
    }
  }

  // All keys of a view.
  static int64_t cache_bytes(const KvLayerView& v) {
    auto bytes = static_cast<uint64_t>(v.row_bytes());
    for (const int32_t factor : {v.page_size, v.kv_heads, v.pages}) {
      const auto product = checked_mul(bytes, static_cast<uint64_t>(factor));
      if (!product || *product > kMost) throw std::runtime_error("a cache of an impossible size");
      bytes = *product;
    }
    return static_cast<int64_t>(bytes);
  }
  static DType dtype(const Json& field) {
    const auto found = dtype_from_name(field.at("dtype").get<std::string>());
    if (!found) throw std::runtime_error("unknown type");
    return *found;
  }
  // A whole number, 0 to `most`; anything else would be converted silently.
  static uint64_t integer(const Json& number, uint64_t most) {
    if (!number.is_number_unsigned() || number.get<uint64_t>() > most) throw std::runtime_error("a bad number");
    return number.get<uint64_t>();
  }
  static Shape shape(const Json& dims) {
    if (!dims.is_array()) throw std::runtime_error("bad shape");
    Shape shape;
    uint64_t elements = 1;
    shape.rank = static_cast<int>(dims.size());
    if (shape.rank < 1 || shape.rank > kMaxDims) throw std::runtime_error("bad shape");
    for (int i = 0; i < shape.rank; ++i) {
      const uint64_t dim = integer(dims.at(static_cast<size_t>(i)), kMost);
      const auto product = checked_mul(elements, dim);
      if (!product || *product > kMost) throw std::runtime_error("bad shape");
      elements = *product;
      shape.dims[static_cast<size_t>(i)] = static_cast<int64_t>(dim);
    }
    return shape;
  }

 private:
  [[nodiscard]] const Json* find(std::string_view name) const {
    const auto found = fields_.find(std::string(name));
    return found == fields_.end() ? nullptr : &*found;
  }
  static int32_t count(const Json& field, const char* key) {
    return static_cast<int32_t>(integer(field.at(key), uint64_t{1} << 24));
  }
  [[nodiscard]] const int32_t* ints(const Json& field, const char* key, int64_t entries) const {
    return static_cast<const int32_t*>(address(field.at(key), entries * 4));
  }
  [[nodiscard]] void* address(const Json& place, int64_t bytes) const {
    if (place.is_null()) return nullptr;
    const uint64_t block = integer(place.at(0), kMost);
    const uint64_t offset = integer(place.at(1), kMost);
    // Blocks are aligned, numbers in them too.
    if (block >= image_.block_count() || offset >= image_.block(block).size() || offset % sizeof(float) != 0 ||
        static_cast<uint64_t>(bytes) > image_.block(block).size() - offset) {
      throw std::runtime_error("an argument outside the file's memory");
    }
    return image_.block(block).data() + offset;
  }

  const Json& fields_;
  const OpImage& image_;
  const std::vector<const Weight*>& weights_;
};

}  // namespace

void write_dump(const std::string& path, const OpImage& image, const DumpInfo& info) {
  WriteFields fields(image);
  Json head = {{"model", info.model},
               {"tested", info.tested},
               {"reference", info.reference},
               {"fused", info.fused},
               {"layer", info.layer}};
  for (const OpRecord& record : image.records()) {
    visit_fields(record, fields);
    head["ops"].push_back({{"op", op_name(record.op())}, {"fields", fields.take_fields()}});
  }
  for (size_t i = 0; i < image.block_count(); ++i) head["blocks"].push_back(image.block(i).size());
  head["weights"] = Json::array();
  for (const Weight* w : fields.weights) {
    head["weights"].push_back({{"name", w->name()},
                               {"layer", w->layer()},
                               {"dtype", dtype_name(w->dtype())},
                               {"shape", shape_json(w->shape())}});
  }
  const std::string text = head.dump();

  Checksum checksum;
  checksum.add(std::as_bytes(std::span(text)));
  for (size_t i = 0; i < image.block_count(); ++i) checksum.add(image.block(i));
  for (const Weight* w : fields.weights) checksum.add(canonical_bytes(*w));
  Preamble preamble{.magic = {}, .head_bytes = text.size(), .checksum = checksum.value()};
  std::memcpy(preamble.magic, kMagic, sizeof kMagic);

  AtomicOutputFile file(path);
  file.write(std::as_bytes(std::span(&preamble, 1)));
  file.write(text);
  for (size_t i = 0; i < image.block_count(); ++i) file.write(image.block(i));
  for (const Weight* w : fields.weights) file.write(canonical_bytes(*w));
  file.commit();
}

namespace {

// A layer's number, or -1.
int32_t layer_from(const Json& number) {
  if (number == -1) return -1;
  return static_cast<int32_t>(ReadFields::integer(number, uint64_t{1} << 24));
}

}  // namespace

Dump read_dump(const std::string& path) {
  const InputFile file(path);
  Preamble preamble{};
  const auto fail_damaged = [&](std::string_view why) {
    fail("\"{}\" is no dump of inferno verify, or a damaged one ({}); record it again", path, why);
  };
  if (file.size() < sizeof preamble) fail_damaged("too short");
  file.read_at(0, std::as_writable_bytes(std::span(&preamble, 1)));
  if (std::memcmp(preamble.magic, kMagic, sizeof kMagic) != 0) fail_damaged("another kind of file");
  if (preamble.head_bytes > kHeadLimit || preamble.head_bytes > file.size() - sizeof preamble) fail_damaged("cut off");
  std::string text(preamble.head_bytes, '\0');
  file.read_at(sizeof preamble, std::as_writable_bytes(std::span(text)));
  Dump dump;
  try {
    const Json head = Json::parse(text);
    Checksum checksum;
    checksum.add(std::as_bytes(std::span(text)));
    uint64_t position = sizeof preamble + preamble.head_bytes;
    const auto read = [&](std::span<std::byte> out) {
      file.read_at(position, out);
      checksum.add(out);
      position += out.size();
    };
    const auto check_room = [&](uint64_t bytes) {
      if (bytes > file.size() - position) throw std::runtime_error("cut off");
    };
    for (const Json& entry : head.at("blocks")) {
      const uint64_t bytes = std::max<uint64_t>(ReadFields::integer(entry, kMost), 1);
      check_room(bytes);
      read(dump.image.block(dump.image.add_block(bytes)));
    }
    std::vector<const Weight*> weights;
    for (const Json& w : head.at("weights")) {
      const DType dtype = ReadFields::dtype(w);
      const Shape shape = ReadFields::shape(w.at("shape"));
      if (dtype == DType::i32 || shape.rank > 3 || shape.elements() == 0 ||
          shape.cols() % dtype_info(dtype).block_size != 0) {
        throw std::runtime_error("an impossible weight");
      }
      const int64_t size = shape.rows() * row_bytes(dtype, shape.cols());
      check_room(static_cast<uint64_t>(size));
      std::vector<std::byte> bytes(static_cast<size_t>(size));
      read(bytes);
      weights.push_back(dump.image.weight(w.at("name").get<std::string>(), dtype, shape, std::move(bytes),
                                          layer_from(w.at("layer"))));
    }
    if (checksum.value() != preamble.checksum) throw std::runtime_error("its checksum is wrong");
    const Json& ops = head.at("ops");
    if (ops.empty() || ops.size() > OpGroup::kMaxOps) throw std::runtime_error("a bad number of ops");
    for (const Json& entry : ops) {
      const auto op = op_from_name(entry.at("op").get<std::string>());
      if (!op) throw std::runtime_error("an op this version does not know");
      OpRecord record = empty_record(*op);
      ReadFields fields(entry.at("fields"), dump.image, weights);
      visit_fields(record, fields);
      dump.image.add_record(record);
    }
    check_arguments(dump.image);
    dump.info = {.model = printable(head.at("model").get<std::string>(), 200),
                 .tested = head.at("tested").get<std::string>(),
                 .reference = head.at("reference").get<std::string>(),
                 .fused = head.at("fused").get<bool>(),
                 .layer = layer_from(head.at("layer"))};
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    fail_damaged(error.what());
  }
  return dump;
}

}  // namespace inferno
