// The layers of a model, by which activations are kept or made again.
#pragma once

#include <string_view>

namespace hone {

inline constexpr std::string_view kLayerPrefix = "layers.";

[[nodiscard]] inline bool is_in_layer(std::string_view scope) { return scope.starts_with(kLayerPrefix); }

// "layers.3.attention" -> "layers.3"; other scopes as they are.
[[nodiscard]] inline std::string_view layer_of(std::string_view scope) {
  if (!is_in_layer(scope)) return scope;
  return scope.substr(0, scope.find('.', kLayerPrefix.size()));
}

}  // namespace hone
