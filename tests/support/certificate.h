// Certificates that tests make on the spot.
#pragma once

#include <cstdint>
#include <string>

namespace hone::test {

enum class KeyKind : std::uint8_t { kEllipticCurve, kRsa };

// A certificate of a new key for localhost and 127.0.0.1, signed by that key and valid for a day.
struct Certificate {
  std::string certificate;    // PEM
  std::string key;            // PEM
  std::string encrypted_key;  // PEM, with a password
};
[[nodiscard]] Certificate make_certificate(KeyKind kind = KeyKind::kEllipticCurve);

}  // namespace hone::test
