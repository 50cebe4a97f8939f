// Equality of every bit, for what must not depend on threads, tiles or the order of rows.
#pragma once

#include <cstring>
#include <vector>

namespace hone::test {

template <class T>
bool same_bits(const std::vector<T>& x, const std::vector<T>& y) {
  return x.size() == y.size() && (x.empty() || std::memcmp(x.data(), y.data(), x.size() * sizeof(T)) == 0);
}

}  // namespace hone::test
