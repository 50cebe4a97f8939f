// Base of the LaTeX parser: the cursor over the tokens and the grammar of scalar expressions.
#pragma once

#include <algorithm>
#include <cstddef>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "math_equality/tokens.h"
#include "math_equality/value.h"

namespace hone {

// Thrown if a text is malformed; parse_latex() catches it.
struct MathSyntaxError {};

[[nodiscard]] bool is_one_of(const MathToken& token, std::initializer_list<std::string_view> words);
[[nodiscard]] bool opens_group(const MathToken& token);
[[nodiscard]] bool closes_group(const MathToken& token);
[[nodiscard]] bool separates(const MathToken& token);
[[nodiscard]] bool names_function(const MathToken& token);  // \sin, \log, \sqrt, ...

[[nodiscard]] MathScalar plain_scalar(MathTree value);
[[nodiscard]] MathScalar number_scalar(MathTree value, bool decimal = false);

// Recursive-descent parser over the tokens of one text. Throws MathSyntaxError if the text is malformed and
// BeyondDomain if it is not supported or nested too deeply.
class ExpressionParser {
 public:
  explicit ExpressionParser(std::vector<MathToken> tokens) : tokens_(std::move(tokens)) {}

 protected:
  static constexpr int kDeepest = 128;  // maximum nesting of expressions; a group takes two levels
  using Kind = MathToken::Kind;

  [[nodiscard]] bool done() const { return at_ >= tokens_.size(); }
  [[nodiscard]] bool next_is(std::string_view word) const { return !done() && tokens_[at_].is(word); }
  [[nodiscard]] bool is_at(std::size_t at, std::string_view word) const {
    return at < tokens_.size() && tokens_[at].is(word);
  }
  bool accept(std::string_view word) {
    if (!next_is(word)) return false;
    ++at_;
    return true;
  }
  void expect(std::string_view word) {
    if (!accept(word)) throw MathSyntaxError();
  }
  // Returns the index of the token that closes the group that begins at token `open`.
  [[nodiscard]] std::size_t matching(std::size_t open) const {
    int depth = 0;
    for (std::size_t i = open; i < tokens_.size(); ++i) {
      if (opens_group(tokens_[i])) ++depth;
      if (closes_group(tokens_[i]) && --depth == 0) return i;
    }
    throw MathSyntaxError();
  }
  // Counts the tokens in [begin, end) that satisfy `wanted` and are not inside a nested group.
  template <class Wanted>
  [[nodiscard]] std::size_t count_outside(std::size_t begin, std::size_t end, const Wanted& wanted) const {
    int depth = 0;
    std::size_t count = 0;
    for (std::size_t i = begin; i < end; ++i) {
      if (closes_group(tokens_[i])) --depth;
      if (depth == 0 && wanted(tokens_[i])) ++count;
      if (opens_group(tokens_[i])) ++depth;
    }
    return count;
  }
  // Counts the nesting depth during its lifetime.
  struct Deeper {
    explicit Deeper(int& depth) : depth_(depth) {
      if (++depth_ > kDeepest) throw BeyondDomain();
    }
    Deeper(const Deeper&) = delete;
    Deeper& operator=(const Deeper&) = delete;
    ~Deeper() { --depth_; }
    int& depth_;
  };

  [[nodiscard]] MathScalar additive();  // terms joined by + and -
  [[nodiscard]] MathScalar comp();      // one factor without postfix: a number, a symbol, a group or a command

  [[nodiscard]] MathScalar postfix();  // one factor with its powers and factorials
  // Returns true if the next token may begin a further factor of a product without a multiplication sign.
  [[nodiscard]] bool factor_ahead(bool in_argument) const;

  std::vector<MathToken> tokens_;
  std::size_t at_ = 0;
  int depth_ = 0;

 private:
  MathScalar product();
  static MathScalar quotient(const MathScalar& above, const MathScalar& below);
  MathScalar unary(bool in_argument = false);
  MathScalar juxtaposed(bool in_argument);
  static MathScalar beside(const MathScalar& left, const MathScalar& right);
  bool degree();
  MathScalar exponent();
  MathScalar group(std::string_view open, std::string_view close);
  MathScalar number();
  MathScalar letter();
  MathScalar symbol_or_call(std::string name);
  [[nodiscard]] bool applied() const;
  std::vector<MathTree> arguments();
  std::string subscript();
  MathScalar command();
  MathScalar function(const std::string& name);
  MathScalar logarithm(const std::string& name);
  MathScalar operator_name();
  MathScalar extreme(const std::string& name);
  MathScalar repeated(bool sum);
  MathTree argument();
  MathTree script(std::string_view sign);

  bool in_bars_ = false;  // inside |...|, so the next bar closes the absolute value
};

}  // namespace hone
