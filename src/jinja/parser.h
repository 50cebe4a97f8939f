// Parses a template (Jinja's grammar as of version 3.1, without inheritance and imports).
#pragma once

#include <string_view>

#include "jinja/ast.h"

namespace hone {

// Throws Error with the template's line.
[[nodiscard]] Block parse_template(std::string_view source);

}  // namespace hone
