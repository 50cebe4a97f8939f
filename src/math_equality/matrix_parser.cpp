#include "math_equality/matrix_parser.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

namespace hone {
namespace {

MathValue scaled(MathValue value, const MathTree& factor) {
  if (value.kind == MathValue::Kind::kScalar) return make_value(plain_scalar(product_tree(factor, value.scalar.value)));
  for (MathValue& row : value.items) {
    for (MathValue& item : row.items) item = make_value(plain_scalar(product_tree(factor, item.scalar.value)));
  }
  return value;
}

MathValue matrix_plus(MathValue left, const MathValue& right) {
  if (left.kind != MathValue::Kind::kMatrix || right.kind != left.kind || left.items.size() != right.items.size())
    throw BeyondDomain();
  for (std::size_t i = 0; i < left.items.size(); ++i) {
    std::vector<MathValue>& row = left.items[i].items;
    if (row.size() != right.items[i].items.size()) throw BeyondDomain();
    for (std::size_t j = 0; j < row.size(); ++j) {
      row[j] = make_value(plain_scalar(sum_tree(row[j].scalar.value, right.items[i].items[j].scalar.value)));
    }
  }
  return left;
}

MathValue matrix_times(const MathValue& left, const MathValue& right) {
  if (left.kind == MathValue::Kind::kScalar) return scaled(right, left.scalar.value);
  if (right.kind == MathValue::Kind::kScalar) return scaled(left, right.scalar.value);
  std::vector<MathValue> rows;
  for (const MathValue& row : left.items) {
    rows.push_back(make_value(MathValue::Kind::kTuple, {}));
    if (row.items.size() != right.items.size()) throw BeyondDomain();
    for (std::size_t j = 0; j < right.items[0].items.size(); ++j) {
      MathTree total = number_tree(0);
      for (std::size_t k = 0; k < row.items.size(); ++k) {
        if (right.items[k].items.size() <= j) throw BeyondDomain();
        total = sum_tree(total, product_tree(row.items[k].scalar.value, right.items[k].items[j].scalar.value));
      }
      rows.back().items.push_back(make_value(plain_scalar(total)));
    }
  }
  return make_value(MathValue::Kind::kMatrix, std::move(rows));
}

}  // namespace

bool MatrixParser::matrix_within(std::size_t begin, std::size_t end) const {
  return std::any_of(tokens_.begin() + static_cast<std::ptrdiff_t>(begin),
                     tokens_.begin() + static_cast<std::ptrdiff_t>(end),
                     [](const MathToken& token) { return token.kind == Kind::kEnvironment; });
}

MathValue MatrixParser::matrix_sum() {
  const Deeper deeper(depth_);
  MathValue total = matrix_product();
  while (next_is("+") || next_is("-")) {
    const bool minus = tokens_[at_++].is("-");
    MathValue next = matrix_product();
    total = matrix_plus(total, minus ? scaled(next, number_tree(-1)) : next);
  }
  return total;
}

MathValue MatrixParser::matrix_product() {
  bool negative = false;
  while (next_is("+") || next_is("-")) negative ^= tokens_[at_++].is("-");
  MathValue total = matrix_factor();
  while (!done()) {
    if (accept("/")) {
      const MathValue below = matrix_factor();
      if (below.kind != MathValue::Kind::kScalar) throw BeyondDomain();
      total = scaled(total, quotient_tree(number_tree(1), below.scalar.value));
      continue;
    }
    const bool sign = accept("\\cdot") || accept("\\times") || accept("*");
    const bool begins = tokens_[at_].kind == Kind::kEnvironment && tokens_[at_].text.starts_with("begin");
    if (!sign && !begins && !factor_ahead(false)) break;
    total = matrix_times(total, matrix_factor());
  }
  return negative ? scaled(total, number_tree(-1)) : total;
}

MathValue MatrixParser::matrix_factor() {
  if (done()) throw MathSyntaxError();
  if (tokens_[at_].kind == Kind::kEnvironment) return matrix();
  const bool fraction = next_is("\\frac") && is_at(at_ + 1, "{");
  const std::size_t open = at_ + (fraction ? 1 : 0);
  if (!opens_group(tokens_[open]) || !matrix_within(open, matching(open))) return make_value(postfix());
  at_ = open + 1;
  MathValue inner = matrix_sum();
  if (done() || !closes_group(tokens_[at_])) throw MathSyntaxError();
  ++at_;
  if (next_is("^")) throw BeyondDomain();
  if (!fraction) return inner;
  expect("{");
  const MathTree below = additive().value;
  expect("}");
  return scaled(inner, quotient_tree(number_tree(1), below));
}

MathValue MatrixParser::matrix() {
  const std::string kind = tokens_[at_].text;
  if (kind == "begin array") {
    matching_columns();
  } else if (kind != "begin pmatrix" && kind != "begin bmatrix" && kind != "begin matrix") {
    throw BeyondDomain();
  } else {
    ++at_;
  }
  std::vector<MathValue> rows(1, make_value(MathValue::Kind::kTuple, {}));
  for (;;) {
    rows.back().items.push_back(make_value(additive()));
    if (accept("&")) continue;
    const bool broken = accept("\\\\");
    if (!done() && tokens_[at_].kind == Kind::kEnvironment) break;
    if (!broken) throw MathSyntaxError();
    rows.push_back(make_value(MathValue::Kind::kTuple, {}));
  }
  if (tokens_[at_++].text != "end" + kind.substr(5)) throw MathSyntaxError();
  if (next_is("^")) throw BeyondDomain();
  for (const MathValue& row : rows) {
    if (row.items.size() != rows[0].items.size()) throw MathSyntaxError();
  }
  return make_value(MathValue::Kind::kMatrix, std::move(rows));
}

// Skips "\begin{array}" and its column specification "{ccc}".
void MatrixParser::matching_columns() {
  ++at_;
  if (!next_is("{")) throw MathSyntaxError();
  at_ = matching(at_) + 1;
}

}  // namespace hone
