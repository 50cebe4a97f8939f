// Keywords of JSON schemas that xgrammar ignores without a word.
#pragma once

#include "core/json.h"

namespace hone {

// Throws Error that names the first keyword that would have no effect.
void check_schema(const Json& schema);

}  // namespace hone
