// The layer that a node belongs to, read from its scope. Recomputation and offload work layer by layer.
#pragma once

#include <string_view>

namespace hone {

inline constexpr std::string_view kLayerPrefix = "layers.";

// Returns true if the scope is inside a layer ("layers.N").
[[nodiscard]] inline bool is_in_layer(std::string_view scope) { return scope.starts_with(kLayerPrefix); }

// Cuts a scope to its layer: "layers.3.attention" -> "layers.3". Scopes outside of layers are returned unchanged.
[[nodiscard]] inline std::string_view layer_of(std::string_view scope) {
  if (!is_in_layer(scope)) return scope;
  return scope.substr(0, scope.find('.', kLayerPrefix.size()));
}

}  // namespace hone
