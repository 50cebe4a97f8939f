// One option's value: reading, checking and printing it. For options.cpp and option_text.cpp.
#pragma once

#include <string>
#include <string_view>

#include "core/json.h"
#include "core/options.h"

namespace hone {

[[nodiscard]] bool takes_no_value(const Option& option);  // `--key` alone means true
[[nodiscard]] bool is_list(const Option& option);
[[nodiscard]] bool has_any_shape(const Option& option);  // a map or a list that hone's options do not describe
[[nodiscard]] bool may_be_unset(const Option& option);
// Whether a word after `--key` is its value where the key also stands alone.
[[nodiscard]] bool is_value_of_switch(const Option& option, std::string_view word);
// "a number above 0", "one of a, b".
[[nodiscard]] std::string expectation_of(const Option& option);
// Throws Error "PLACE: expected ..., saw ...". A null leaves an option that cannot be unset as it is.
void set_option(const Option& option, const YamlValue& value, const std::string& place);
// As YAML writes it on one line; empty where there is no value.
[[nodiscard]] std::string value_text(const Option& option);
[[nodiscard]] Json value_json(const Option& option);
// A key as a message shows it: control characters escaped, cut where it is long.
[[nodiscard]] std::string shortened(std::string_view key);

}  // namespace hone
