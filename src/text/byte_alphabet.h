// GPT-2's byte alphabet: one printable character for each byte value. Byte-level vocabularies are written in it.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace hone {

[[nodiscard]] char32_t byte_character(unsigned char byte);
[[nodiscard]] std::string bytes_to_alphabet(std::string_view bytes);
// Converts valid UTF-8 back to bytes; returns nullopt if a character is outside the alphabet.
[[nodiscard]] std::optional<std::string> alphabet_to_bytes(std::string_view text);

}  // namespace hone
