// Keys of transformers, TRL, accelerate and open-r1 that are no options of hone.
#pragma once

#include <span>

#include "core/options.h"

namespace hone {

[[nodiscard]] std::span<const ForeignKey> training_foreign_keys();

}  // namespace hone
