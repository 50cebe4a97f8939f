// Owning C++ wrappers for values of FLINT, Arb and Calcium. The headers are slow to compile: include this file only in
// the .cpp files that compute with these values.
#pragma once

#include <map>
#include <string>

#include "math_equality/expression.h"

#if __has_include(<flint/ca.h>)  // FLINT 3 includes Arb and Calcium
#include <flint/acb.h>
#include <flint/arb.h>
#include <flint/ca.h>
#include <flint/fmpq.h>
#include <flint/fmpz_mpoly_factor.h>
#include <flint/fmpz_mpoly_q.h>
#else
#include <acb.h>
#include <antic/nf_elem.h>
#include <arb.h>
#include <flint/fmpq.h>
#include <flint/fmpz_mpoly_factor.h>
// The inline functions of Calcium are C code: they convert the void* of flint_malloc to other pointer types implicitly.
namespace hone::flint {
struct AnyPointer {
  void* pointer;
  template <class T>
  operator T*() const {
    return static_cast<T*>(pointer);
  }
};
}  // namespace hone::flint
#define flint_malloc(size) (hone::flint::AnyPointer{flint_malloc(size)})
#define flint_realloc(pointer, size) (hone::flint::AnyPointer{flint_realloc(pointer, size)})
#define flint_calloc(count, size) (hone::flint::AnyPointer{flint_calloc(count, size)})
#include <calcium/ca.h>
#include <calcium/fmpz_mpoly_q.h>
#undef flint_malloc
#undef flint_realloc
#undef flint_calloc
#endif

namespace hone {

struct Fmpz {
  Fmpz() { fmpz_init(value); }
  ~Fmpz() { fmpz_clear(value); }
  Fmpz(const Fmpz&) = delete;
  Fmpz& operator=(const Fmpz&) = delete;
  fmpz_t value;
};

struct Fmpq {
  Fmpq() { fmpq_init(value); }
  Fmpq(const Fmpq& other) : Fmpq() { fmpq_set(value, other.value); }
  Fmpq& operator=(const Fmpq& other) {
    fmpq_set(value, other.value);
    return *this;
  }
  ~Fmpq() { fmpq_clear(value); }
  [[nodiscard]] bool is_integer() const { return fmpz_is_one(fmpq_denref(value)) != 0; }
  [[nodiscard]] slong bits() const {
    return static_cast<slong>(fmpz_bits(fmpq_numref(value)) + fmpz_bits(fmpq_denref(value)));
  }
  fmpq_t value;
};

struct Arb {
  Arb() { arb_init(value); }
  ~Arb() { arb_clear(value); }
  Arb(const Arb&) = delete;
  Arb& operator=(const Arb&) = delete;
  arb_t value;
};

struct Acb {
  Acb() { acb_init(value); }
  ~Acb() { acb_clear(value); }
  Acb(const Acb&) = delete;
  Acb& operator=(const Acb&) = delete;
  acb_t value;
};

using Point = std::map<std::string, Fmpq>;  // values of the symbols

[[nodiscard]] std::string text_of_integer(const fmpz_t value);

// Parses "12", "-1", "0.25" or "1/2". Throws BeyondDomain if the text is not a number.
void read_number(Fmpq& result, const std::string& text);

// Computes the value exactly if rational arithmetic is enough, and returns true. Returns false otherwise; the value may
// be rational nevertheless. rational_function_value() takes a node of kind `function`, such as a factorial, a greatest
// common divisor or a rounding.
[[nodiscard]] bool rational_value(const MathTree& tree, const Point& point, Fmpq& result);
[[nodiscard]] bool rational_function_value(const MathTree& function, const Point& point, Fmpq& result);

}  // namespace hone
