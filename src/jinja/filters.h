// Tables of Jinja's filters.
#pragma once

#include <span>
#include <string_view>

#include "jinja/functions.h"

namespace hone {

// A filter and its name in templates.
struct NamedFilter {
  std::string_view name;
  TemplateValue (*apply)(TemplateBudget&, const TemplateValue& subject, TemplateArguments&);
};

// Filters that take or return sequences and mappings.
[[nodiscard]] std::span<const NamedFilter> sequence_filters();

}  // namespace hone
