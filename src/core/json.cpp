#include "core/json.h"

#include <algorithm>

#include "core/error.h"
#include "core/files.h"
#include "core/json_value.h"

template class nlohmann::basic_json<nlohmann::ordered_map>;
template class nlohmann::detail::serializer<hone::Json>;
template class nlohmann::detail::lexer<hone::Json, hone::JsonInput<std::string>>;
template class nlohmann::detail::lexer<hone::Json, hone::JsonInput<std::string_view>>;
template class nlohmann::detail::parser<hone::Json, hone::JsonInput<std::string>>;
template class nlohmann::detail::parser<hone::Json, hone::JsonInput<std::string_view>>;

namespace hone {

bool is_too_deep_json(std::string_view text) {
  const auto opens = [](char c) { return c == '[' || c == '{'; };
  if (std::count_if(text.begin(), text.end(), opens) <= kMaxJsonDepth) return false;
  int depth = 0;
  bool in_string = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      if (c == '"') in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (opens(c)) {
      if (++depth > kMaxJsonDepth) return true;
    } else if (c == ']' || c == '}') {
      --depth;
    }
  }
  return false;
}

Json parse_json(std::string_view text, std::string_view where) {
  if (is_too_deep_json(text)) throw Error(where, text_of("JSON nested deeper than ", kMaxJsonDepth, " levels"));
  try {
    return Json::parse(text);
  } catch (const nlohmann::json::parse_error& error) {
    const std::size_t end = std::min<std::size_t>(error.byte > 0 ? error.byte - 1 : 0, text.size());
    const auto line = 1 + std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(end), '\n');
    const std::size_t newline = text.substr(0, end).rfind('\n');
    const std::size_t column = newline == std::string_view::npos ? end + 1 : end - newline;
    throw Error(where, text_of("not valid JSON at line ", line, ", column ", column));
  } catch (const nlohmann::json::exception&) {
    throw Error(where, "not valid JSON: a number is out of range");
  }
}

Json read_json(const std::filesystem::path& path) { return parse_json(read_file(path), path.string()); }

void write_json(const std::filesystem::path& path, const Json& value) {
  write_file(path, value.dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
}

}  // namespace hone
