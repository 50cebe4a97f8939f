// The work of a comparison, counted rather than timed: what a bound on it refuses, it refuses on every machine.
#pragma once

#include <cstdint>
#include <limits>

namespace hone {

// Thrown where a comparison has used up its work. Not a BeyondDomain: nothing of it is compared as text instead.
struct BeyondWork {};

// While one lives, the thread's work is bounded by it; where none does, it is not bounded. A unit is about what it
// takes to visit a node of an expression, or to add two numbers of 64 bits.
class WorkLimit {
 public:
  explicit WorkLimit(std::int64_t units) : outer_(left_) { left_ = units; }
  ~WorkLimit() { left_ = outer_; }
  WorkLimit(const WorkLimit&) = delete;
  WorkLimit& operator=(const WorkLimit&) = delete;

  static void spend(std::int64_t units) {
    left_ -= units;
    if (left_ < 0) throw BeyondWork();
  }
  // For tests and measurements.
  [[nodiscard]] static std::int64_t left() { return left_; }

 private:
  static inline thread_local std::int64_t left_ = std::numeric_limits<std::int64_t>::max();
  std::int64_t outer_;
};

}  // namespace hone
