// Exact fractions of 128-bit integers.
#pragma once

#include <compare>
#include <cstdint>
#include <exception>
#include <string>
#include <string_view>

namespace hone {

__extension__ typedef __int128 Int128;

// Thrown where an expression leaves what is computed exactly here (more than 38 digits, a root of a sum, a function).
// The parser catches it and keeps the expression as text.
class BeyondDomain : public std::exception {
 public:
  [[nodiscard]] const char* what() const noexcept override { return "beyond the exact domain"; }
};

// n/d in lowest terms, d > 0. All operations throw BeyondDomain on overflow and on division by zero.
class Rational {
 public:
  Rational() = default;
  Rational(Int128 numerator, Int128 denominator = 1);  // NOLINT(google-explicit-constructor): integers are rationals
  // "12", "1.50", ".5": digits with at most one point.
  [[nodiscard]] static Rational from_decimal(std::string_view digits);

  [[nodiscard]] Int128 numerator() const { return numerator_; }
  [[nodiscard]] Int128 denominator() const { return denominator_; }
  [[nodiscard]] bool is_zero() const { return numerator_ == 0; }
  [[nodiscard]] bool is_integer() const { return denominator_ == 1; }
  [[nodiscard]] bool is_positive() const { return numerator_ > 0; }
  [[nodiscard]] bool is_negative() const { return numerator_ < 0; }
  [[nodiscard]] Rational inverse() const { return {denominator_, numerator_}; }
  [[nodiscard]] Rational floor() const;
  [[nodiscard]] Rational power(std::int64_t exponent) const;
  // Rounded to a multiple of 10^-places, ties to even.
  [[nodiscard]] Rational rounded(int places) const;
  [[nodiscard]] long double approximate() const;
  [[nodiscard]] std::string text() const;  // "3", "-3/4"

  friend Rational operator+(const Rational& a, const Rational& b);
  friend Rational operator-(const Rational& a) { return {-a.numerator_, a.denominator_}; }
  friend Rational operator-(const Rational& a, const Rational& b) { return a + (-b); }
  friend Rational operator*(const Rational& a, const Rational& b);
  friend Rational operator/(const Rational& a, const Rational& b) { return a * b.inverse(); }
  friend bool operator==(const Rational& a, const Rational& b) = default;
  // A strict order for use as a key; it is not the order of the values.
  friend std::strong_ordering operator<=>(const Rational& a, const Rational& b) = default;

 private:
  Int128 numerator_ = 0;
  Int128 denominator_ = 1;
};

}  // namespace hone
