// Expressions as trees, as they were written; algebra.h says what they mean.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace hone {

// Thrown where an expression is too large or of a kind that is not computed here; it is then compared as text.
struct BeyondDomain {};

struct MathNode;
using MathTree = std::shared_ptr<const MathNode>;

struct MathNode {
  enum class Op {
    number,    // text: "12", "0.25" or "1/2", no sign
    symbol,    // text: its name, a real variable
    constant,  // text: "pi", "e", "gamma" (Euler's), "i" (the imaginary unit)
    infinity,  // positive
    sum,       // of its arguments
    product,   // of its arguments
    power,     // arguments: base, exponent; the principal value
    function,  // text: one that algebra.h knows ("sin", "log" with argument and base, "factorial")
    unknown,   // text: a function that is only a name, "f" of "f(x)"
  };
  Op op = Op::number;
  std::string text;
  std::vector<MathTree> arguments;
  bool has_symbols = false;  // or unknown functions: the value is no constant
  bool has_infinity = false;
  int depth = 1;
};

// Builders throw BeyondDomain where a tree grows deeper than kDeepestTree.
inline constexpr int kDeepestTree = 400;

[[nodiscard]] MathTree number_tree(std::string_view digits);
[[nodiscard]] MathTree number_tree(int value);
[[nodiscard]] MathTree symbol_tree(std::string_view name);
[[nodiscard]] MathTree constant_tree(std::string_view name);
[[nodiscard]] MathTree infinity_tree();
[[nodiscard]] MathTree sum_tree(const MathTree& a, const MathTree& b);  // sums in sums are one
[[nodiscard]] MathTree difference_tree(const MathTree& a, const MathTree& b);
[[nodiscard]] MathTree negative_tree(const MathTree& a);
[[nodiscard]] MathTree product_tree(const MathTree& a, const MathTree& b);
[[nodiscard]] MathTree quotient_tree(const MathTree& a, const MathTree& b);
[[nodiscard]] MathTree power_tree(const MathTree& base, const MathTree& exponent);
[[nodiscard]] MathTree root_tree(const MathTree& base);  // the square root
[[nodiscard]] MathTree function_tree(std::string_view name, std::vector<MathTree> arguments);
[[nodiscard]] MathTree unknown_tree(std::string_view name, std::vector<MathTree> arguments);

[[nodiscard]] bool same_tree(const MathTree& a, const MathTree& b);  // written the same
[[nodiscard]] MathTree substituted(const MathTree& tree, std::string_view symbol, const MathTree& value);
// Symbols and unknown functions by their text, sorted, each once.
[[nodiscard]] std::vector<std::string> symbols_of(const MathTree& tree);
// As a symbol's name for an unknown function: "f(x+1)".
[[nodiscard]] std::string tree_text(const MathTree& tree);
// Whether it is made of symbols alone: "x", "ab", "f(x)", "1/x"; not "2x". The left side of an assignment.
[[nodiscard]] bool only_symbols(const MathTree& tree);

}  // namespace hone
