// Exact expressions: quotients of polynomials over rational numbers, radicals of rational numbers, and symbols.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "reward/math/rational.h"

namespace hone {

// A product of generators, sorted by name. A generator is a symbol, one of the constants "\\pi" and "\\e", or a prime,
// written in digits, whose exponent lies in (0, 1). Products of different such prime powers are linearly independent
// over the rationals (Besicovitch, "On the linear independence of fractional powers of integers", 1940), so that the
// form of a sum is unique.
using Monomial = std::vector<std::pair<std::string, Rational>>;

// A sum of monomials, none with coefficient 0. At most kMostTerms; more throws BeyondDomain, which bounds the time.
class Polynomial {
 public:
  static constexpr std::size_t kMostTerms = 64;

  Polynomial() = default;
  explicit Polynomial(const Rational& constant);

  [[nodiscard]] const std::map<Monomial, Rational>& terms() const { return terms_; }
  [[nodiscard]] bool is_zero() const { return terms_.empty(); }
  void add(const Monomial& monomial, const Rational& coefficient);

  friend Polynomial operator+(const Polynomial& a, const Polynomial& b);
  friend Polynomial operator*(const Polynomial& a, const Polynomial& b);
  friend bool operator==(const Polynomial& a, const Polynomial& b) = default;

 private:
  std::map<Monomial, Rational> terms_;
};

class MathExpression {
 public:
  MathExpression() = default;
  explicit MathExpression(const Rational& value) : numerator_(value) {}
  [[nodiscard]] static MathExpression generator(const std::string& name);

  [[nodiscard]] std::optional<Rational> rational() const;        // the value where it is a rational number
  [[nodiscard]] std::optional<long double> approximate() const;  // the value where it has no symbols
  // Powers with a rational exponent: of constant products (no sums, not negative), or integer exponents up to 64.
  [[nodiscard]] MathExpression power(const MathExpression& exponent) const;
  // The quotient of this by `other` where it is a rational number.
  [[nodiscard]] std::optional<Rational> ratio_to(const MathExpression& other) const;

  friend MathExpression operator+(const MathExpression& a, const MathExpression& b);
  friend MathExpression operator*(const MathExpression& a, const MathExpression& b);
  friend MathExpression operator/(const MathExpression& a, const MathExpression& b);
  friend MathExpression operator-(const MathExpression& a) { return a * MathExpression(Rational(-1)); }
  friend MathExpression operator-(const MathExpression& a, const MathExpression& b) { return a + (-b); }
  // Mathematical equality. Throws BeyondDomain where the cross products grow too large.
  friend bool operator==(const MathExpression& a, const MathExpression& b);

 private:
  MathExpression(Polynomial numerator, Polynomial denominator);

  Polynomial numerator_;
  Polynomial denominator_ = Polynomial(Rational(1));
};

}  // namespace hone
