// Limits the work of a comparison by counting operations instead of time, so that the verdict is the same on every
// machine.
#pragma once

#include <cstdint>
#include <limits>

namespace hone {

// Thrown when a comparison exceeds its limit. Unlike BeyondDomain it ends the comparison: there is no fallback to a
// comparison as text.
struct BeyondWork {};

// Limits the work of the calling thread during its lifetime. Without a WorkLimit the work is not limited. One unit is
// about the work of visiting a node of an expression or of adding two 64-bit numbers.
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
  // Returns the units that remain, for tests and measurements.
  [[nodiscard]] static std::int64_t left() { return left_; }

 private:
  static inline thread_local std::int64_t left_ =  // NOLINT(readability-identifier-naming): taken for a local variable
      std::numeric_limits<std::int64_t>::max();
  std::int64_t outer_;
};

}  // namespace hone
