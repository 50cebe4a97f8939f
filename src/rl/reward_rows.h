// Reads rows of other data sets for rewards, such as the tests of a programming contest.
#pragma once

#include <functional>
#include <span>
#include <string_view>

#include "reward/reward.h"

namespace hone {

// A RowSource (reward/reward.h): reads a local file, or a data set of the hub through its cache.
void visit_rows(const RowQuery& query, const std::function<void(std::span<const std::string_view>)>& visit);

}  // namespace hone
