// Python's two ways to format text in chat templates: 'a %s' % b and 'a {}'.format(b).
#pragma once

#include <string>
#include <string_view>

#include "jinja/functions.h"

namespace hone {

// Computes format % arguments. `arguments`: a tuple, a dict for %(name)s, or one value. Throws TemplateFailure where
// Python raises an exception.
[[nodiscard]] std::string format_percent(TemplateBudget& meter, std::string_view format,
                                         const TemplateValue& arguments);
// Computes format.format(arguments). Fields may have attributes, items, !r, !s and a format specification.
[[nodiscard]] std::string format_braces(TemplateBudget& meter, std::string_view format, TemplateArguments& arguments);

}  // namespace hone
