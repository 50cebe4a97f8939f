// Normally distributed initial values for weights, drawn on the device that holds them.
#pragma once

#include <cstdint>

#include "program/program.h"

namespace hone {

struct NormalFillAttributes {
  std::int64_t key = 0;  // RandomStream::key
  double deviation = 1.0;
  std::int64_t first = 0;  // elements [first, first + count) of the weight are elements [0, count) of the stream
  std::int64_t count = 0;

  template <class Visitor>
  void fields(Visitor& v) {
    v("key", key);
    v("deviation", deviation);
    v("first", first);
    v("count", count);
  }
};

// Writes deviation x RandomStream::normal in place and returns the updated weight. On a GPU the logarithm and the
// cosine, computed in double, may differ from the host's in the last bit.
Tensor normal_fill(Tensor weight, const NormalFillAttributes& attributes);

}  // namespace hone
