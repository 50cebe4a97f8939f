// The layers of a model, by which activations are kept or made again.
#pragma once

#include <string_view>

namespace hone {

// "layers.3.attention" -> "layers.3"; other scopes as they are.
[[nodiscard]] inline std::string_view layer_of(std::string_view scope) {
  constexpr std::string_view kPrefix = "layers.";
  if (!scope.starts_with(kPrefix)) return scope;
  return scope.substr(0, scope.find('.', kPrefix.size()));
}

}  // namespace hone
