#include "math_equality/rational_functions.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "math_equality/flint_values.h"
#include "math_equality/work.h"

namespace hone {
namespace {

using Op = MathNode::Op;

constexpr slong kMostExponent = 64;
constexpr slong kMostTerms = 4'000;
constexpr slong kMostTermWork = 100'000;  // products of terms for one function

class RationalFunctions {
 public:
  explicit RationalFunctions(std::vector<std::string> symbols) : symbols_(std::move(symbols)) {
    fmpz_mpoly_ctx_init(context_, std::max<slong>(1, static_cast<slong>(symbols_.size())), ORD_LEX);
  }
  ~RationalFunctions() { fmpz_mpoly_ctx_clear(context_); }
  RationalFunctions(const RationalFunctions&) = delete;
  RationalFunctions& operator=(const RationalFunctions&) = delete;

  struct Value {
    explicit Value(RationalFunctions& owner) : context(owner.context_) { fmpz_mpoly_q_init(value, context); }
    ~Value() { fmpz_mpoly_q_clear(value, context); }
    Value(const Value&) = delete;
    Value& operator=(const Value&) = delete;
    fmpz_mpoly_ctx_struct* context;
    fmpz_mpoly_q_t value;
  };

  // Evaluates the tree to a rational function. Returns false if it is not one or if it is too large.
  bool evaluate(Value& result, const MathTree& tree) {
    if (!afford(1)) return false;
    if (!tree->has_symbols) {
      Fmpq value;
      if (!rational_value(tree, {}, value)) return false;
      fmpz_mpoly_q_set_fmpq(result.value, value.value, context_);
      return true;
    }
    switch (tree->op) {
      case Op::kSymbol:
      case Op::kUnknown: {
        const std::string name = tree->op == Op::kSymbol ? tree->text : tree_text(tree);
        const auto place = std::ranges::lower_bound(symbols_, name);
        if (place == symbols_.end() || *place != name) return false;
        fmpz_mpoly_q_gen(result.value, place - symbols_.begin(), context_);
        return true;
      }
      case Op::kSum:
      case Op::kProduct: {
        Value total(*this);
        Value next(*this);
        if (tree->op == Op::kProduct) fmpz_mpoly_q_one(total.value, context_);
        for (const MathTree& argument : tree->arguments) {
          if (!evaluate(next, argument)) return false;
          if (!afford(size(total) * size(next))) return false;
          (tree->op == Op::kSum ? fmpz_mpoly_q_add : fmpz_mpoly_q_mul)(total.value, total.value, next.value, context_);
        }
        fmpz_mpoly_q_swap(result.value, total.value, context_);
        return true;
      }
      case Op::kPower:
        return power(result, tree);
      default:
        return false;
    }
  }

  std::optional<std::string> roots(const MathTree& tree) {
    Value value(*this);
    if (!evaluate(value, tree) || fmpz_mpoly_q_is_zero(value.value, context_)) return std::nullopt;
    fmpz_mpoly_factor_t factors;
    fmpz_mpoly_factor_init(factors, context_);
    fmpz_mpoly_t product;
    fmpz_mpoly_init(product, context_);
    fmpz_mpoly_one(product, context_);
    const bool factored = fmpz_mpoly_factor_squarefree(factors, fmpz_mpoly_q_numref(value.value), context_) != 0;
    for (slong i = 0; i < factors->num; ++i) fmpz_mpoly_mul(product, product, factors->poly + i, context_);
    char* text = fmpz_mpoly_get_str_pretty(product, nullptr, context_);
    std::string result(text);
    flint_free(text);
    fmpz_mpoly_clear(product, context_);
    fmpz_mpoly_factor_clear(factors, context_);
    return factored ? std::optional(std::move(result)) : std::nullopt;
  }

 private:
  // Counts the products of terms of a step; returns false if this step or all steps together exceed a limit.
  bool afford(slong products) {
    work_ += products;
    WorkLimit::spend(products);
    return products <= kMostTerms && work_ <= kMostTermWork;
  }

  slong size(const Value& value) const {
    return std::max<slong>(1, fmpz_mpoly_length(fmpz_mpoly_q_numref(value.value), context_) +
                                  fmpz_mpoly_length(fmpz_mpoly_q_denref(value.value), context_));
  }

  bool power(Value& result, const MathTree& tree) {
    Fmpq exponent;
    if (!rational_value(tree->arguments[1], {}, exponent) || !exponent.is_integer()) return false;
    if (fmpz_cmpabs(fmpq_numref(exponent.value), Limit().value) > 0) return false;
    Value base(*this);
    if (!evaluate(base, tree->arguments[0])) return false;
    const slong count = fmpz_get_si(fmpq_numref(exponent.value));
    if (count < 0) {
      if (fmpz_mpoly_q_is_zero(base.value, context_)) return false;
      fmpz_mpoly_q_inv(base.value, base.value, context_);
    }
    Value total(*this);
    fmpz_mpoly_q_one(total.value, context_);
    for (slong i = 0; i < std::abs(count); ++i) {
      if (!afford(size(total) * size(base))) return false;
      fmpz_mpoly_q_mul(total.value, total.value, base.value, context_);
    }
    fmpz_mpoly_q_swap(result.value, total.value, context_);
    return true;
  }

  struct Limit : Fmpz {
    Limit() { fmpz_set_si(value, kMostExponent); }
  };

  std::vector<std::string> symbols_;
  fmpz_mpoly_ctx_t context_;
  slong work_ = 0;
};

}  // namespace

std::optional<bool> zero_function(const MathTree& tree, const std::vector<std::string>& symbols) {
  RationalFunctions functions(symbols);
  RationalFunctions::Value value(functions);
  if (!functions.evaluate(value, tree)) return std::nullopt;
  return fmpz_mpoly_q_is_zero(value.value, value.context) != 0;
}

std::optional<std::string> square_free_numerator(const MathTree& tree, const std::vector<std::string>& symbols) {
  return RationalFunctions(symbols).roots(tree);
}

}  // namespace hone
