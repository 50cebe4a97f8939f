// GPT-2's alphabet of printable characters, one a byte, in which byte-level vocabularies are written.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace hone {

[[nodiscard]] char32_t byte_character(unsigned char byte);
[[nodiscard]] std::string bytes_to_alphabet(std::string_view bytes);
// Of valid UTF-8; nothing where a character is outside the alphabet.
[[nodiscard]] std::optional<std::string> alphabet_to_bytes(std::string_view text);

}  // namespace hone
