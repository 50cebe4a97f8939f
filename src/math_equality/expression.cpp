#include "math_equality/expression.h"

#include <algorithm>
#include <set>
#include <utility>

#include "math_equality/work.h"

namespace hone {
namespace {

using Op = MathNode::Op;

MathTree make(Op op, std::string_view text, std::vector<MathTree> arguments) {
  WorkLimit::spend(1 + std::ssize(arguments));
  MathNode node{.op = op, .text = std::string(text), .arguments = std::move(arguments)};
  node.has_symbols = op == Op::kSymbol || op == Op::kUnknown;
  node.has_infinity = op == Op::kInfinity;
  for (const MathTree& argument : node.arguments) {
    node.has_symbols |= argument->has_symbols;
    node.has_infinity |= argument->has_infinity;
    node.depth = std::max(node.depth, argument->depth + 1);
  }
  if (node.depth > kDeepestTree) throw BeyondDomain();
  return std::make_shared<const MathNode>(std::move(node));
}

// Returns the tree "a op b", with the arguments of `a` merged if it has the same operator. Those of `b` need no
// merging, because chains are parsed from the left.
MathTree joined(Op op, const MathTree& a, const MathTree& b) {
  std::vector<MathTree> arguments;
  if (a->op == op) {
    arguments = a->arguments;
  } else {
    arguments.push_back(a);
  }
  arguments.push_back(b);
  return make(op, "", std::move(arguments));
}

void collect_symbols(const MathTree& tree, std::set<std::string>& names) {
  if (!tree->has_symbols) return;
  WorkLimit::spend(4);
  if (tree->op == Op::kSymbol) names.insert(tree->text);
  if (tree->op == Op::kUnknown) {
    names.insert(tree_text(tree));
    return;
  }
  for (const MathTree& argument : tree->arguments) collect_symbols(argument, names);
}

}  // namespace

MathTree number_tree(std::string_view digits) { return make(Op::kNumber, digits, {}); }
MathTree number_tree(int value) {
  const MathTree magnitude = make(Op::kNumber, std::to_string(value < 0 ? -value : value), {});
  return value < 0 ? negative_tree(magnitude) : magnitude;
}
MathTree symbol_tree(std::string_view name) { return make(Op::kSymbol, name, {}); }
MathTree constant_tree(std::string_view name) { return make(Op::kConstant, name, {}); }
MathTree infinity_tree() { return make(Op::kInfinity, "", {}); }
MathTree sum_tree(const MathTree& a, const MathTree& b) { return joined(Op::kSum, a, b); }
MathTree difference_tree(const MathTree& a, const MathTree& b) { return sum_tree(a, negative_tree(b)); }
MathTree product_tree(const MathTree& a, const MathTree& b) { return joined(Op::kProduct, a, b); }
MathTree quotient_tree(const MathTree& a, const MathTree& b) {
  return product_tree(a, power_tree(b, negative_tree(make(Op::kNumber, "1", {}))));
}
// Returns -1 times the tree, a product whose text is "-". -(-a) is a.
MathTree negative_tree(const MathTree& a) {
  const bool negated = a->op == Op::kProduct && a->arguments.size() == 2 && a->text == "-";
  if (negated) return a->arguments[1];
  return make(Op::kProduct, "-", {make(Op::kNumber, "-1", {}), a});
}
MathTree power_tree(const MathTree& base, const MathTree& exponent) { return make(Op::kPower, "", {base, exponent}); }
MathTree root_tree(const MathTree& base) { return power_tree(base, number_tree("1/2")); }
MathTree function_tree(std::string_view name, std::vector<MathTree> arguments) {
  return make(Op::kFunction, name, std::move(arguments));
}
MathTree unknown_tree(std::string_view name, std::vector<MathTree> arguments) {
  return make(Op::kUnknown, name, std::move(arguments));
}

bool same_tree(const MathTree& a, const MathTree& b) {
  WorkLimit::spend(1);
  return a == b || (a->op == b->op && a->text == b->text && std::ranges::equal(a->arguments, b->arguments, same_tree));
}

MathTree substituted(const MathTree& tree, std::string_view symbol, const MathTree& value) {
  if (!tree->has_symbols) return tree;
  WorkLimit::spend(1);
  if (tree->op == Op::kSymbol) return tree->text == symbol ? value : tree;
  std::vector<MathTree> arguments;
  for (const MathTree& argument : tree->arguments) arguments.push_back(substituted(argument, symbol, value));
  return make(tree->op, tree->text, std::move(arguments));
}

std::vector<std::string> symbols_of(const MathTree& tree) {
  std::set<std::string> names;
  collect_symbols(tree, names);
  return {names.begin(), names.end()};
}

std::string tree_text(const MathTree& tree) {
  WorkLimit::spend(4);
  if (tree->arguments.empty()) return tree->op == Op::kInfinity ? "oo" : tree->text;
  constexpr std::string_view kSigns = "+*^";
  std::string text =
      tree->op == Op::kFunction || tree->op == Op::kUnknown
          ? tree->text
          : std::string(1, kSigns[static_cast<std::size_t>(tree->op) - static_cast<std::size_t>(Op::kSum)]);
  for (std::size_t i = 0; i < tree->arguments.size(); ++i) {
    text += (i == 0 ? '(' : ',') + tree_text(tree->arguments[i]);
    if (text.size() > 4096) throw BeyondDomain();
  }
  return text + ")";
}

bool only_symbols(const MathTree& tree) {
  WorkLimit::spend(1);
  if (tree->op == Op::kSymbol) return true;
  if (tree->op == Op::kPower) {
    const MathTree& exponent = tree->arguments[1];
    const bool inverse = exponent->op == Op::kProduct && exponent->text == "-" && exponent->arguments[1]->text == "1";
    return only_symbols(tree->arguments[0]) && (inverse || only_symbols(exponent));
  }
  return !tree->arguments.empty() && std::ranges::all_of(tree->arguments, only_symbols);
}

}  // namespace hone
