// Parses, checks and prints the value of one option. Internal to the option sources of core.
#pragma once

#include <string>
#include <string_view>

#include "core/json.h"
#include "core/options.h"

namespace hone {

[[nodiscard]] bool takes_no_value(const Option& option);  // `--key` alone means true
[[nodiscard]] bool is_list(const Option& option);
[[nodiscard]] bool is_untyped(const Option& option);    // the member is a YamlValue: a map or list of any shape
[[nodiscard]] bool may_be_unset(const Option& option);  // null is a value: the member is a std::optional or YamlValue
// Returns true if `word` after `--key` is the value of the key, for options with takes_no_value().
[[nodiscard]] bool is_switch_value(const Option& option, std::string_view word);
// Describes the accepted values for a message: "a number above 0", "one of a, b".
[[nodiscard]] std::string expectation_of(const Option& option);
// Sets the member. Throws Error "PLACE: expected ..., saw ..." if the value does not fit. Null leaves an option that
// cannot be unset unchanged.
void set_option(const Option& option, const YamlValue& value, const std::string& place);
// Formats the value as YAML on one line; empty if there is no value.
[[nodiscard]] std::string value_text(const Option& option);
[[nodiscard]] Json value_json(const Option& option);
// Formats a key for a message: control characters are escaped, long keys are truncated.
[[nodiscard]] std::string shortened(std::string_view key);

}  // namespace hone
