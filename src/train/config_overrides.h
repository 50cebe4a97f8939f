// The option config_overrides: changes values of a configuration before a model is initialised from scratch.
// Source: transformers' PretrainedConfig.update_from_string
#pragma once

#include <string_view>

#include "core/json.h"

namespace hone {

// Applies overrides of the form "key=value,...". A key must exist in the configuration, and the value must have the
// type of the existing one: a number, true or false, or text. Otherwise throws Error.
void override_config(Json& config, std::string_view overrides);

}  // namespace hone
