#include "reward/math/rational.h"

#include <algorithm>

namespace hone {
namespace {

constexpr Int128 kLargest = ~(static_cast<Int128>(1) << 127);

Int128 magnitude(Int128 a) { return a < 0 ? -a : a; }

Int128 gcd(Int128 a, Int128 b) {
  while (b != 0) {
    a %= b;
    std::swap(a, b);
  }
  return a;
}

Int128 multiply(Int128 a, Int128 b) {
  Int128 product = 0;
  if (__builtin_mul_overflow(a, b, &product) || product < -kLargest) throw BeyondDomain();
  return product;
}

Int128 add(Int128 a, Int128 b) {
  Int128 sum = 0;
  if (__builtin_add_overflow(a, b, &sum) || sum < -kLargest) throw BeyondDomain();
  return sum;
}

std::string digits_of(Int128 value) {
  if (value == 0) return "0";
  std::string digits;
  for (Int128 rest = magnitude(value); rest != 0; rest /= 10)
    digits.push_back(static_cast<char>('0' + static_cast<int>(rest % 10)));
  if (value < 0) digits.push_back('-');
  std::ranges::reverse(digits);
  return digits;
}

}  // namespace

// The smallest 128-bit integer never arises, so that negation is safe.
Rational::Rational(Int128 numerator, Int128 denominator) {
  if (denominator == 0 || numerator < -kLargest || denominator < -kLargest) throw BeyondDomain();
  const Int128 common = gcd(magnitude(numerator), magnitude(denominator));
  const Int128 sign = denominator < 0 ? -1 : 1;
  numerator_ = sign * (numerator / common);
  denominator_ = sign * (denominator / common);
}

Rational Rational::from_decimal(std::string_view digits) {
  Int128 value = 0;
  Int128 scale = 1;
  bool fraction = false;
  for (const char c : digits) {
    if (c == '.') {
      fraction = true;
      continue;
    }
    value = add(multiply(value, 10), c - '0');
    if (fraction) scale = multiply(scale, 10);
  }
  return {value, scale};
}

Rational Rational::floor() const {
  const Int128 quotient = numerator_ / denominator_;
  return quotient - (numerator_ < 0 && quotient * denominator_ != numerator_ ? 1 : 0);
}

Rational Rational::power(std::int64_t exponent) const {
  if (exponent < 0) return inverse().power(-exponent);
  if (numerator_ == 0 || (denominator_ == 1 && magnitude(numerator_) == 1)) {
    return exponent == 0 || (numerator_ < 0 && exponent % 2 == 0) ? Rational(1) : *this;
  }
  Rational result = 1;
  for (; exponent > 0; --exponent) result = result * *this;  // overflows after 127 rounds at the latest
  return result;
}

Rational Rational::rounded(int places) const {
  const Rational scale = Rational(10).power(places);
  const Rational scaled = *this * scale;
  const Rational below = scaled.floor();
  const Rational rest = scaled - below;
  const Int128 missing = rest.denominator_ - rest.numerator_;
  const bool up = rest.numerator_ > missing || (rest.numerator_ == missing && below.numerator_ % 2 != 0);
  return (up ? below + 1 : below) / scale;
}

long double Rational::approximate() const {
  return static_cast<long double>(numerator_) / static_cast<long double>(denominator_);
}

std::string Rational::text() const {
  return denominator_ == 1 ? digits_of(numerator_) : digits_of(numerator_) + "/" + digits_of(denominator_);
}

Rational operator+(const Rational& a, const Rational& b) {
  const Int128 common = gcd(a.denominator_, b.denominator_);
  const Int128 left = multiply(a.numerator_, b.denominator_ / common);
  const Int128 right = multiply(b.numerator_, a.denominator_ / common);
  return {add(left, right), multiply(a.denominator_, b.denominator_ / common)};
}

Rational operator*(const Rational& a, const Rational& b) {
  const Int128 first = gcd(magnitude(a.numerator_), b.denominator_);
  const Int128 second = gcd(magnitude(b.numerator_), a.denominator_);
  return {multiply(a.numerator_ / first, b.numerator_ / second),
          multiply(a.denominator_ / second, b.denominator_ / first)};
}

}  // namespace hone
