#include "grammar/expression.h"

#include "base/error.h"

namespace inferno::grammar {

ExprId ExprPool::add(const Expr& e) {
  if (exprs_.size() + lists_.size() >= limits_.expressions) {
    fail_usage("the grammar is too large: more than {} parts", limits_.expressions);
  }
  exprs_.push_back(e);
  return static_cast<ExprId>(exprs_.size() - 1);
}

ExprId ExprPool::literal(std::string_view text) {
  if (text.empty()) return empty();
  const auto first = static_cast<uint32_t>(texts_.size());
  texts_ += text;
  return add({.kind = ExprKind::literal, .first = first, .count = static_cast<uint32_t>(text.size())});
}

ExprId ExprPool::list(ExprKind kind, std::span<const ExprId> parts) {
  const auto first = static_cast<uint32_t>(lists_.size());
  lists_.insert(lists_.end(), parts.begin(), parts.end());
  return add({.kind = kind, .first = first, .count = static_cast<uint32_t>(parts.size())});
}

ExprId ExprPool::sequence(std::span<const ExprId> parts) {
  if (parts.empty()) return empty();
  return parts.size() == 1 ? parts[0] : list(ExprKind::sequence, parts);
}

ExprId ExprPool::choice(std::span<const ExprId> parts) {
  if (parts.empty()) return never();
  return parts.size() == 1 ? parts[0] : list(ExprKind::choice, parts);
}

ExprId ExprPool::repeat(ExprId body, uint32_t least, uint32_t most) {
  if (most == 0) return empty();
  if (least == 1 && most == 1) return body;
  if (least > most) return never();
  return add({.kind = ExprKind::repeat, .first = body, .least = least, .most = most});
}

ExprId ExprPool::append(const ExprPool& other, RuleId rules) {
  const auto exprs = static_cast<uint32_t>(exprs_.size());
  const auto lists = static_cast<uint32_t>(lists_.size());
  const auto texts = static_cast<uint32_t>(texts_.size());
  for (const ExprId id : other.lists_) lists_.push_back(id + exprs);
  texts_ += other.texts_;
  for (Expr e : other.exprs_) {
    const bool is_list = e.kind == ExprKind::sequence || e.kind == ExprKind::choice;
    e.first += is_list ? lists : e.kind == ExprKind::literal ? texts : e.kind == ExprKind::repeat ? exprs : 0;
    e.rule += e.kind == ExprKind::call ? rules : 0;
    (void)add(e);
  }
  return exprs;
}

ExprId ExprPool::chars(const CharSet& set) {
  std::vector<ExprId> forms;
  utf8_sequences(set, [&](std::span<const ByteRange> sequence_of_ranges) {
    std::vector<ExprId> bytes;
    for (const ByteRange& r : sequence_of_ranges) bytes.push_back(range(r.low, r.high));
    forms.push_back(sequence(bytes));
  });
  return choice(forms);
}

}  // namespace inferno::grammar
