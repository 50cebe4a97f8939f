#include "core/option_set.h"

#include <algorithm>
#include <typeinfo>

namespace hone {

OptionSet& OptionSet::operator=(const OptionSet& other) {
  if (this != &other) *this = OptionSet(other);
  return *this;
}

void OptionSet::add(const OptionSet& other) {
  for (const auto& each : other.held_) {
    const HeldBase& wanted = *each;
    const bool has = std::ranges::any_of(held_, [&](const auto& held) {
      const HeldBase& here = *held;
      return typeid(here) == typeid(wanted);
    });
    if (!has) held_.push_back(wanted.copy());
  }
}

}  // namespace hone
