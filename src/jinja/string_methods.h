// Methods of Python strings that chat templates may call.
#pragma once

#include <span>
#include <string_view>

#include "jinja/functions.h"

namespace hone {

using TemplateMethod = TemplateValue (*)(TemplateBudget&, const TemplateValue& self, TemplateArguments&);
struct NamedMethod {
  std::string_view name;
  TemplateMethod method;
};

[[nodiscard]] std::span<const NamedMethod> string_methods();

}  // namespace hone
