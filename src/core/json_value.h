// Complete definition of Json, for sources that use its members. The extern declarations below keep its code out of
// the 140 sources that include this header: json.cpp holds the only instantiation.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>

#include "core/json.h"

namespace hone {

template <class Text>
using JsonInput = decltype(nlohmann::detail::input_adapter(std::declval<const Text&>()));

// Calls the functions of a reader, which is derived from nlohmann::json_sax<Json>, for the values of a JSON text.
// Returns false if one of them did. nlohmann::json::sax_parse() would also compile the readers of binary formats.
template <class Reader>
bool read_json_values(std::string_view text, Reader& reader) {
  return nlohmann::detail::parser<Json, JsonInput<std::string_view>>(nlohmann::detail::input_adapter(text))
      .sax_parse(&reader);
}

}  // namespace hone

extern template class nlohmann::basic_json<nlohmann::ordered_map>;
extern template class nlohmann::detail::serializer<hone::Json>;
extern template class nlohmann::detail::lexer<hone::Json, hone::JsonInput<std::string>>;
extern template class nlohmann::detail::lexer<hone::Json, hone::JsonInput<std::string_view>>;
extern template class nlohmann::detail::parser<hone::Json, hone::JsonInput<std::string>>;
extern template class nlohmann::detail::parser<hone::Json, hone::JsonInput<std::string_view>>;
