// The tables of Jinja's filters.
#pragma once

#include <span>
#include <string_view>

#include "jinja/functions.h"

namespace hone {

struct NamedFilter {
  std::string_view name;
  TemplateValue (*apply)(TemplateMeter&, const TemplateValue& subject, TemplateArguments&);
};

// Those that take or give sequences and mappings.
[[nodiscard]] std::span<const NamedFilter> sequence_filters();

}  // namespace hone
