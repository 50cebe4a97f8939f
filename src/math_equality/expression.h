// Syntax trees of mathematical expressions. algebra.h computes with their values.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace hone {

// Thrown if an expression is too large or of a kind that is not supported. It is then compared as text.
struct BeyondDomain {};

struct MathNode;
using MathTree = std::shared_ptr<const MathNode>;

struct MathNode {
  enum class Op {
    kNumber,    // text: "12", "0.25" or "1/2", without a sign
    kSymbol,    // text: name of a real variable
    kConstant,  // text: "pi", "e", "gamma" (Euler's), "i" (the imaginary unit)
    kInfinity,  // positive
    kSum,       // arguments: the terms
    kProduct,   // arguments: the factors
    kPower,     // arguments: base, exponent; the principal value
    kFunction,  // text: name of a function that algebra.h supports ("sin", "log" with argument and base, "factorial")
    kUnknown,   // text: name of a function without a definition, "f" for "f(x)"
  };
  Op op = Op::kNumber;
  std::string text;
  std::vector<MathTree> arguments;
  bool has_symbols = false;  // contains symbols or unknown functions, so the value is not a constant
  bool has_infinity = false;
  int depth = 1;
};

// Functions that build trees throw BeyondDomain if a tree is deeper than kDeepestTree.
inline constexpr int kDeepestTree = 400;

[[nodiscard]] MathTree number_tree(std::string_view digits);
[[nodiscard]] MathTree number_tree(int value);
[[nodiscard]] MathTree symbol_tree(std::string_view name);
[[nodiscard]] MathTree constant_tree(std::string_view name);
[[nodiscard]] MathTree infinity_tree();
[[nodiscard]] MathTree sum_tree(const MathTree& a, const MathTree& b);  // appends b to the terms of a if a is a sum
[[nodiscard]] MathTree difference_tree(const MathTree& a, const MathTree& b);
[[nodiscard]] MathTree negative_tree(const MathTree& a);
[[nodiscard]] MathTree product_tree(const MathTree& a, const MathTree& b);
[[nodiscard]] MathTree quotient_tree(const MathTree& a, const MathTree& b);
[[nodiscard]] MathTree power_tree(const MathTree& base, const MathTree& exponent);
[[nodiscard]] MathTree root_tree(const MathTree& base);  // square root
[[nodiscard]] MathTree function_tree(std::string_view name, std::vector<MathTree> arguments);
[[nodiscard]] MathTree unknown_tree(std::string_view name, std::vector<MathTree> arguments);

[[nodiscard]] bool same_tree(const MathTree& a, const MathTree& b);  // structural equality
// Returns the tree with every occurrence of the symbol replaced by `value`.
[[nodiscard]] MathTree substituted(const MathTree& tree, std::string_view symbol, const MathTree& value);
// Returns the names of all symbols and the texts of all unknown functions, sorted, without duplicates.
[[nodiscard]] std::vector<std::string> symbols_of(const MathTree& tree);
// Returns a text that identifies the tree, such as "f(+(x,1))"; an unknown function is a symbol of this name.
[[nodiscard]] std::string tree_text(const MathTree& tree);
// Returns true if the expression contains symbols only and can be the left side of an assignment: "x", "ab", "f(x)" or
// "1/x", but not "2x".
[[nodiscard]] bool only_symbols(const MathTree& tree);

}  // namespace hone
