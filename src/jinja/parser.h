// Parses a chat template: Jinja's grammar as of version 3.1, without inheritance and imports.
#pragma once

#include <string_view>

#include "jinja/ast.h"

namespace hone {

// Returns the template's statements. Throws Error that names the template's line.
[[nodiscard]] Block parse_template(std::string_view source);

}  // namespace hone
