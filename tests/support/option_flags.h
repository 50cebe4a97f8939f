// Options as a command line sets them.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "core/options.h"

namespace hone::test {

// A copy of a struct of options with flags read into it: {"--cosine_max_len", "10"}.
template <class Options>
[[nodiscard]] Options with_flags(Options options, const std::vector<std::string>& flags) {
  OptionInput input;
  read_option_flags(OptionTable(options), flags, {}, input);
  return options;
}

}  // namespace hone::test
