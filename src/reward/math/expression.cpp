#include "reward/math/expression.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace hone {
namespace {

constexpr Int128 kLargestRadicand = 1'000'000'000'000;  // factored by trial division up to its square root
constexpr Int128 kLargestExponent = 4096;               // of a product
constexpr Int128 kLargestFold = 64;                     // of a sum

bool is_prime(const std::string& generator) { return generator[0] >= '0' && generator[0] <= '9'; }
bool is_constant(const std::string& generator) {
  return is_prime(generator) || generator == "\\pi" || generator == "\\e";
}

std::int64_t small_exponent(const Rational& exponent, Int128 largest) {
  if (!exponent.is_integer() || exponent.numerator() > largest || exponent.numerator() < -largest) throw BeyondDomain();
  return static_cast<std::int64_t>(exponent.numerator());
}

// Multiplies by generator^exponent, moving whole powers of primes into the coefficient.
void multiply_in(Monomial& monomial, Rational& coefficient, const std::string& generator, const Rational& exponent) {
  const auto place = std::ranges::lower_bound(monomial, generator, {}, &Monomial::value_type::first);
  const bool known = place != monomial.end() && place->first == generator;
  Rational total = known ? place->second + exponent : exponent;
  if (is_prime(generator)) {
    const Rational whole = total.floor();
    total = total - whole;
    coefficient = coefficient * Rational::from_decimal(generator).power(small_exponent(whole, kLargestExponent));
  }
  if (total.is_zero()) {
    if (known) monomial.erase(place);
  } else if (known) {
    place->second = total;
  } else {
    monomial.insert(place, {generator, total});
  }
}

struct Term {
  Monomial monomial;
  Rational coefficient = 1;
};

Term multiply(const Term& a, const Term& b) {
  Term product{a.monomial, a.coefficient * b.coefficient};
  for (const auto& [generator, exponent] : b.monomial) {
    multiply_in(product.monomial, product.coefficient, generator, exponent);
  }
  return product;
}

// Multiplies by base^exponent for a positive integer base.
void multiply_in_root(Term& term, Int128 base, const Rational& exponent) {
  if (base > kLargestRadicand) throw BeyondDomain();
  auto rest = static_cast<std::uint64_t>(base);
  for (std::uint64_t factor = 2; rest > 1; factor += factor == 2 ? 1 : 2) {
    if (factor * factor > rest) factor = rest;
    std::int64_t count = 0;
    for (; rest % factor == 0; rest /= factor) ++count;
    if (count > 0) multiply_in(term.monomial, term.coefficient, std::to_string(factor), exponent * Rational(count));
  }
}

Term power_of(const Term& base, const Rational& exponent) {
  Term result;
  if (exponent.is_integer()) {
    result.coefficient = base.coefficient.power(small_exponent(exponent, kLargestExponent));
  } else {
    if (!base.coefficient.is_positive()) throw BeyondDomain();
    multiply_in_root(result, base.coefficient.numerator(), exponent);
    multiply_in_root(result, base.coefficient.denominator(), -exponent);
  }
  for (const auto& [generator, inner] : base.monomial) {
    if (!exponent.is_integer() && !is_constant(generator)) throw BeyondDomain();
    multiply_in(result.monomial, result.coefficient, generator, inner * exponent);
  }
  return result;
}

std::optional<Term> single_term(const Polynomial& polynomial) {
  if (polynomial.terms().size() != 1) return std::nullopt;
  const auto& [monomial, coefficient] = *polynomial.terms().begin();
  return Term{monomial, coefficient};
}

std::optional<long double> approximate_value(const Polynomial& polynomial) {
  long double sum = 0;
  for (const auto& [monomial, coefficient] : polynomial.terms()) {
    long double product = coefficient.approximate();
    for (const auto& [generator, exponent] : monomial) {
      if (!is_constant(generator)) return std::nullopt;
      const long double base = is_prime(generator)   ? Rational::from_decimal(generator).approximate()
                               : generator == "\\pi" ? std::numbers::pi_v<long double>
                                                     : std::numbers::e_v<long double>;
      product *= std::pow(base, exponent.approximate());
    }
    sum += product;
  }
  return sum;
}

}  // namespace

Polynomial::Polynomial(const Rational& constant) { add({}, constant); }

void Polynomial::add(const Monomial& monomial, const Rational& coefficient) {
  if (coefficient.is_zero()) return;
  const auto [place, added] = terms_.try_emplace(monomial, coefficient);
  if (!added) {
    place->second = place->second + coefficient;
    if (place->second.is_zero()) terms_.erase(place);
  }
  if (terms_.size() > kMostTerms) throw BeyondDomain();
}

Polynomial operator+(const Polynomial& a, const Polynomial& b) {
  Polynomial sum = a;
  for (const auto& [monomial, coefficient] : b.terms_) sum.add(monomial, coefficient);
  return sum;
}

Polynomial operator*(const Polynomial& a, const Polynomial& b) {
  Polynomial product;
  for (const auto& [left, left_coefficient] : a.terms_) {
    for (const auto& [right, right_coefficient] : b.terms_) {
      const Term term = multiply({left, left_coefficient}, {right, right_coefficient});
      product.add(term.monomial, term.coefficient);
    }
  }
  return product;
}

// A denominator of one term is divided out, so that most expressions are plain sums.
MathExpression::MathExpression(Polynomial numerator, Polynomial denominator)
    : numerator_(std::move(numerator)), denominator_(std::move(denominator)) {
  if (denominator_.is_zero()) throw BeyondDomain();
  if (const auto divisor = single_term(denominator_)) {
    const Term inverse = power_of(*divisor, -1);
    Polynomial factor;
    factor.add(inverse.monomial, inverse.coefficient);
    numerator_ = numerator_ * factor;
    denominator_ = Polynomial(Rational(1));
  }
}

MathExpression MathExpression::generator(const std::string& name) {
  MathExpression result;
  result.numerator_.add({{name, 1}}, 1);
  return result;
}

std::optional<Rational> MathExpression::rational() const { return ratio_to(MathExpression(Rational(1))); }

std::optional<long double> MathExpression::approximate() const {
  const auto above = approximate_value(numerator_);
  const auto below = approximate_value(denominator_);
  if (!above || !below || *below == 0) return std::nullopt;
  return *above / *below;
}

MathExpression MathExpression::power(const MathExpression& exponent) const {
  const std::optional<Rational> value = exponent.rational();
  if (!value) throw BeyondDomain();
  if (numerator_.is_zero()) {
    if (!value->is_positive()) throw BeyondDomain();
    return *this;
  }
  const auto above = single_term(numerator_);
  const auto below = single_term(denominator_);
  if (above && below) {
    const Term term = multiply(power_of(*above, *value), power_of(*below, -*value));
    MathExpression result;
    result.numerator_.add(term.monomial, term.coefficient);
    return result;
  }
  const std::int64_t count = small_exponent(*value, kLargestFold);
  MathExpression result(Rational(1));
  for (std::int64_t i = 0; i < std::abs(count); ++i) result = result * *this;
  return count < 0 ? MathExpression(Rational(1)) / result : result;
}

std::optional<Rational> MathExpression::ratio_to(const MathExpression& other) const {
  const Polynomial left = numerator_ * other.denominator_;
  const Polynomial right = other.numerator_ * denominator_;
  if (right.is_zero()) return std::nullopt;
  if (left.is_zero()) return Rational(0);
  const Rational ratio = left.terms().begin()->second / right.terms().begin()->second;
  if (left != right * Polynomial(ratio)) return std::nullopt;
  return ratio;
}

MathExpression operator+(const MathExpression& a, const MathExpression& b) {
  if (a.denominator_ == b.denominator_) return {a.numerator_ + b.numerator_, a.denominator_};
  return {a.numerator_ * b.denominator_ + b.numerator_ * a.denominator_, a.denominator_ * b.denominator_};
}

MathExpression operator*(const MathExpression& a, const MathExpression& b) {
  return {a.numerator_ * b.numerator_, a.denominator_ * b.denominator_};
}

MathExpression operator/(const MathExpression& a, const MathExpression& b) {
  return {a.numerator_ * b.denominator_, a.denominator_ * b.numerator_};
}

bool operator==(const MathExpression& a, const MathExpression& b) {
  return a.numerator_ * b.denominator_ == b.numerator_ * a.denominator_;
}

}  // namespace hone
