// Random JSON schemas, and a validator of what hone's grammars support of them.
#pragma once

#include <cstdint>

#include "core/json.h"

namespace hone::test {

// A schema of objects, lists, numbers, bounded strings, enumerations and alternatives.
[[nodiscard]] Json random_schema(std::uint64_t seed);

// Returns true if a value satisfies a schema of random_schema(). Objects may have other properties than those named
// unless `strict`.
[[nodiscard]] bool satisfies(const Json& value, const Json& schema, bool strict);

}  // namespace hone::test
