#include <optional>
#include <string_view>

#include "core/characters.h"
#include "math_equality/value.h"

namespace hone {
namespace {

constexpr int kDeepest = 64;           // maximum nesting
constexpr std::size_t kLongest = 512;  // maximum length in bytes

struct SyntaxError {};

// Recursive-descent parser for Python's arithmetic: + - * / ** (also ^) and parentheses, without implicit
// multiplication.
class Arithmetic {
 public:
  explicit Arithmetic(std::string_view text) : text_(text) {}

  MathScalar whole() {
    MathScalar value = sum();
    skip();
    if (at_ != text_.size()) throw SyntaxError();
    return value;
  }

 private:
  void skip() { at_ = skip_spaces(text_, at_); }
  bool accept(std::string_view word) {
    skip();
    if (!text_.substr(at_).starts_with(word)) return false;
    at_ += word.size();
    return true;
  }
  static MathScalar compound(MathTree value) {
    MathScalar scalar;
    scalar.value = std::move(value);
    return scalar;
  }

  MathScalar sum() {
    if (++depth_ > kDeepest) throw SyntaxError();
    MathScalar left = product();
    for (;;) {
      if (accept("+")) {
        left = compound(sum_tree(left.value, product().value));
      } else if (accept("-")) {
        left = compound(difference_tree(left.value, product().value));
      } else {
        --depth_;
        return left;
      }
    }
  }

  MathScalar product() {
    MathScalar left = unary();
    for (;;) {
      skip();
      if (text_.substr(at_).starts_with("**")) throw SyntaxError();
      if (accept("*")) {
        left = compound(product_tree(left.value, unary().value));
      } else if (accept("/")) {
        left = compound(quotient_tree(left.value, unary().value));
      } else {
        return left;
      }
    }
  }

  MathScalar unary() {
    bool negative = false;
    for (;;) {
      if (accept("-")) {
        negative = !negative;
      } else if (!accept("+")) {
        break;
      }
    }
    MathScalar value = power();
    if (negative) value.value = negative_tree(value.value);
    return value;
  }

  MathScalar power() {
    MathScalar base = atom();
    if (!accept("^") && !accept("**")) return base;
    if (++depth_ > kDeepest) throw SyntaxError();
    const MathScalar exponent = unary();
    --depth_;
    return compound(power_tree(base.value, exponent.value));
  }

  MathScalar atom() {
    if (accept("(")) {
      MathScalar inner = sum();
      if (!accept(")")) throw SyntaxError();
      return inner;
    }
    skip();
    const std::size_t begin = at_;
    bool point = false;
    bool digit = false;
    for (; at_ < text_.size() && (is_digit(text_[at_]) || (text_[at_] == '.' && !point)); ++at_) {
      (text_[at_] == '.' ? point : digit) = true;
    }
    if (!digit) throw SyntaxError();
    const std::string_view digits = text_.substr(begin, at_ - begin);
    if (!point && digits.size() > 1 && digits[0] == '0' && digits.find_first_not_of('0') != std::string_view::npos) {
      throw SyntaxError();  // Python rejects 007
    }
    MathScalar scalar = compound(number_tree(digits));
    scalar.number = true;
    scalar.decimal = point;
    return scalar;
  }

  std::string_view text_;
  std::size_t at_ = 0;
  int depth_ = 0;
};

}  // namespace

std::optional<MathValue> parse_arithmetic(std::string_view text) {
  if (text.size() > kLongest) return std::nullopt;
  try {
    MathValue value;
    value.scalar = Arithmetic(text).whole();
    return value;
  } catch (const SyntaxError&) {
    return std::nullopt;
  } catch (const BeyondDomain&) {
    return std::nullopt;
  }
}

}  // namespace hone
