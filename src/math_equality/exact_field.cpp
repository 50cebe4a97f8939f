#include "math_equality/exact_field.h"

#include <algorithm>
#include <cstdlib>

#include "math_equality/flint_values.h"
#include "math_equality/work.h"

namespace hone {
namespace {

using Op = MathNode::Op;

// Limit on the work for one constant, counted in products of terms and relations between the field's generators. Beyond
// it enclosures decide.
constexpr slong kMostFieldWork = 4'096;
constexpr slong kMostGenerators = 12;  // generators of a field; finding relations between more takes seconds
constexpr slong kMostExpanded = 20;    // exponent up to which Calcium expands powers of sums

class Calcium {
 public:
  Calcium() {
    ca_ctx_init(context_);
    context_->options[CA_OPT_PREC_LIMIT] = 1024;
    context_->options[CA_OPT_QQBAR_DEG_LIMIT] = 24;
  }
  ~Calcium() { ca_ctx_clear(context_); }
  Calcium(const Calcium&) = delete;
  Calcium& operator=(const Calcium&) = delete;

  // Returns T_UNKNOWN if Calcium cannot decide or the limit is exceeded.
  truth_t is_zero(const MathTree& tree) {
    Value value(*this);
    if (!evaluate(value.value, tree)) return T_UNKNOWN;
    return ca_check_is_zero(value.value, context_);
  }

 private:
  struct Value {
    explicit Value(Calcium& owner) : context(owner.context_) { ca_init(value, context); }
    ~Value() { ca_clear(value, context); }
    Value(const Value&) = delete;
    Value& operator=(const Value&) = delete;
    ca_ctx_struct* context;
    ca_t value;
  };

  // Counts the work of a step; returns false if the limit is exceeded.
  bool afford(slong units) {
    work_ += units;
    WorkLimit::spend(units);
    return work_ <= kMostFieldWork;
  }

  [[nodiscard]] bool in_polynomials(const ca_t x) {
    return !CA_IS_SPECIAL(x) && !CA_FIELD_IS_QQ(CA_FIELD(x, context_)) && !CA_FIELD_IS_NF(CA_FIELD(x, context_));
  }

  // Returns the number of terms of a quotient of polynomials; 1 if the value is in a single number field.
  slong length(const ca_t x) {
    if (!in_polynomials(x)) return 1;
    const auto* context = CA_FIELD_MCTX(CA_FIELD(x, context_), context_);
    return fmpz_mpoly_length(fmpz_mpoly_q_numref(CA_MPOLY_Q(x)), context) +
           fmpz_mpoly_length(fmpz_mpoly_q_denref(CA_MPOLY_Q(x)), context);
  }

  // Estimates the work of finding the relations between the generators of the field that contains the value.
  slong relations(const ca_t x) {
    if (!in_polynomials(x)) return 1;
    const ca_field_struct* field = CA_FIELD(x, context_);
    const slong generators = CA_FIELD_LENGTH(field);
    if (generators > kMostGenerators) return kMostFieldWork;
    return generators * std::max<slong>(1, CA_FIELD_IDEAL_LENGTH(field));
  }

  bool join(ca_t total, const ca_t next, bool sum) {
    const slong left = length(total);
    const slong right = length(next);
    if (!afford(sum ? left + right : left * right)) return false;
    (sum ? ca_add : ca_mul)(total, total, next, context_);
    return afford(relations(total));
  }

  // Counts the work of expanding a power: the number of terms of the expanded sum times that of the base.
  bool afford_power(const ca_t base, slong exponent) {
    const slong terms = length(base);
    slong written = 1;
    for (slong i = 0; i < exponent && i < kMostExpanded && written <= kMostFieldWork; ++i)
      written = written * (terms + i) / (i + 1);
    return afford(written * terms);
  }

  bool power(ca_t result, const MathTree& tree) {
    Fmpq exponent;
    if (!rational_value(tree->arguments[1], {}, exponent)) {
      Value above(*this);
      if (!evaluate(result, tree->arguments[0]) || !evaluate(above.value, tree->arguments[1])) return false;
      if (!afford(length(result) * length(above.value))) return false;
      ca_pow(result, result, above.value, context_);
      return afford(relations(result));
    }
    Fmpq whole;
    if (rational_value(tree, {}, whole)) return ca_set_fmpq(result, whole.value, context_), true;
    const fmpz* numerator = fmpq_numref(exponent.value);
    if (fmpz_cmpabs(fmpq_denref(exponent.value), numerator) < 0 && fmpz_bits(numerator) > 10) return false;
    if (fmpz_bits(fmpq_denref(exponent.value)) > 6) return false;
    if (!evaluate(result, tree->arguments[0])) return false;
    const bool bounded = fmpz_bits(numerator) < 5;
    if (!afford_power(result, bounded ? std::abs(fmpz_get_si(numerator)) : kMostExpanded)) return false;
    ca_pow_fmpq(result, result, exponent.value, context_);
    return afford(relations(result));
  }

  bool trigonometric(ca_t result, const std::string& name, const ca_t x) {
    if (name == "tan") return ca_tan(result, x, context_), true;
    if (name == "cot") return ca_cot(result, x, context_), true;
    if (name == "asin") return ca_asin(result, x, context_), true;
    if (name == "acos") return ca_acos(result, x, context_), true;
    if (name == "atan") return ca_atan(result, x, context_), true;
    if (name != "sin" && name != "cos" && name != "sec" && name != "csc") return false;
    Value sine(*this);
    Value cosine(*this);
    ca_sin_cos(sine.value, cosine.value, x, context_);
    ca_set(result, name == "sin" || name == "csc" ? sine.value : cosine.value, context_);
    if (name == "sec" || name == "csc") ca_inv(result, result, context_);
    return true;
  }

  bool function(ca_t result, const MathTree& tree) {
    if (Fmpq exact; rational_function_value(tree, {}, exact)) return ca_set_fmpq(result, exact.value, context_), true;
    Value x(*this);
    if (tree->arguments.size() > 2 || !evaluate(x.value, tree->arguments[0])) return false;
    if (!afford(64 + length(x.value) * length(x.value))) return false;
    return known_function(result, tree, x) && afford(relations(result));
  }

  bool known_function(ca_t result, const MathTree& tree, Value& x) {
    const std::string& name = tree->text;
    if (name == "exp") return ca_exp(result, x.value, context_), true;
    if (name == "abs") return ca_abs(result, x.value, context_), true;
    if (name == "floor") return ca_floor(result, x.value, context_), true;
    if (name == "ceil") return ca_ceil(result, x.value, context_), true;
    if (name == "log") {
      ca_log(result, x.value, context_);
      if (tree->arguments.size() < 2) return true;
      if (!evaluate(x.value, tree->arguments[1])) return false;
      ca_log(x.value, x.value, context_);
      return ca_div(result, result, x.value, context_), true;
    }
    return tree->arguments.size() == 1 && trigonometric(result, name, x.value);
  }

  bool evaluate(ca_t result, const MathTree& tree) {
    if (!afford(1)) return false;
    switch (tree->op) {
      case Op::kNumber: {
        Fmpq value;
        read_number(value, tree->text);
        ca_set_fmpq(result, value.value, context_);
        return true;
      }
      case Op::kConstant:
        if (tree->text == "pi") return ca_pi(result, context_), true;
        if (tree->text == "i") return ca_i(result, context_), true;
        if (tree->text == "gamma") return ca_euler(result, context_), true;
        ca_one(result, context_);
        return ca_exp(result, result, context_), true;
      case Op::kSum:
      case Op::kProduct: {
        Value total(*this);
        Value next(*this);
        if (tree->op == Op::kProduct) ca_one(total.value, context_);
        for (const MathTree& argument : tree->arguments) {
          if (!evaluate(next.value, argument)) return false;
          if (!join(total.value, next.value, tree->op == Op::kSum)) return false;
        }
        return ca_set(result, total.value, context_), true;
      }
      case Op::kPower:
        return power(result, tree);
      case Op::kFunction:
        return function(result, tree);
      case Op::kSymbol:
      case Op::kUnknown:
      case Op::kInfinity:
        break;
    }
    return false;
  }

  ca_ctx_t context_;
  slong work_ = 0;
};

}  // namespace

std::optional<bool> exactly_zero(const MathTree& constant) {
  const truth_t truth = Calcium().is_zero(constant);
  return truth == T_UNKNOWN ? std::nullopt : std::optional(truth == T_TRUE);
}

}  // namespace hone
