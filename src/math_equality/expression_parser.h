// The parser's lower half: the cursor over the tokens and the expressions.
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

// Thrown where a text is malformed; the parser catches it.
struct MathSyntaxError {};

[[nodiscard]] bool is_one_of(const MathToken& token, std::initializer_list<std::string_view> words);
[[nodiscard]] bool opens_group(const MathToken& token);
[[nodiscard]] bool closes_group(const MathToken& token);
[[nodiscard]] bool separates(const MathToken& token);
[[nodiscard]] bool names_function(const MathToken& token);  // \sin, \log, \sqrt ...

[[nodiscard]] MathScalar plain_scalar(MathTree value);
[[nodiscard]] MathScalar number_scalar(MathTree value, bool decimal = false);

// A recursive descent over the tokens of one text. Throws MathSyntaxError where it is malformed, BeyondDomain where it
// is not computed here or too deep.
class ExpressionParser {
 public:
  explicit ExpressionParser(std::vector<MathToken> tokens) : tokens_(std::move(tokens)) {}

 protected:
  static constexpr int kDeepest = 128;  // expressions in expressions; a group takes two
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
  // The closing token of the group that begins at `open`.
  [[nodiscard]] std::size_t matching(std::size_t open) const {
    int depth = 0;
    for (std::size_t i = open; i < tokens_.size(); ++i) {
      if (opens_group(tokens_[i])) ++depth;
      if (closes_group(tokens_[i]) && --depth == 0) return i;
    }
    throw MathSyntaxError();
  }
  // How many tokens in [begin, end) satisfy `wanted` outside groups.
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
  [[nodiscard]] MathScalar comp();      // one factor without postfix: a number, a symbol, a group, a command

  [[nodiscard]] MathScalar postfix();  // the same with its powers and factorials
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

  bool in_bars_ = false;  // a bar closes
};

}  // namespace hone
