// Keys of transformers, TRL, accelerate and open-r1 that recipes may contain although they are not options of hone.
#pragma once

#include <span>
#include <string_view>

#include "core/options.h"

namespace hone {

[[nodiscard]] std::span<const ForeignKey> training_foreign_keys();

}  // namespace hone
