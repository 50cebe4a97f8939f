// The rows of other data sets that rewards ask for.
#pragma once

#include <functional>
#include <span>
#include <string_view>

#include "reward/reward.h"

namespace hone {

// As RowSource says: a local file, or a data set of the hub by way of its cache.
void visit_rows(const RowQuery& query, const std::function<void(std::span<const std::string_view>)>& visit);

}  // namespace hone
