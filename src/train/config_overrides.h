// config_overrides: values in place of a configuration's own, for a model that starts from scratch.
// Source: transformers' PretrainedConfig.update_from_string
#pragma once

#include <string_view>

#include "core/json.h"

namespace hone {

// `overrides`: "key=value,...". A key must be in the configuration, and its value of the type that it has there: a
// number, true or false, or text. Throws Error.
void override_config(Json& config, std::string_view overrides);

}  // namespace hone
