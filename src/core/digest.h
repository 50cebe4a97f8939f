// SHA-256 and SHA-1 (FIPS 180-4), for checksums of files and fingerprints of values. SHA-1 is here only because other
// systems name files by it (git objects).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace hone {

// Base of both digests: splits the input into 64-byte blocks, pads it and prints the state, which is a list of 32-bit
// words.
class Sha {
 public:
  void update(std::string_view bytes);
  [[nodiscard]] std::string finish();  // digest in lower-case hexadecimal; the object must not be used afterwards

 protected:
  Sha() = default;
  ~Sha() = default;
  Sha(const Sha&) = default;
  Sha& operator=(const Sha&) = default;
  virtual void add_block(const unsigned char* block) = 0;  // block: [64] bytes

  std::array<std::uint32_t, 8> state_{};
  std::size_t words_ = 8;  // number of words of state_ that form the digest

 private:
  std::array<unsigned char, 64> pending_{};
  std::size_t filled_ = 0;
  std::uint64_t size_ = 0;
};

class Sha256 final : public Sha {
 public:
  Sha256();

 private:
  void add_block(const unsigned char* block) override;
};

class Sha1 final : public Sha {
 public:
  Sha1();

 private:
  void add_block(const unsigned char* block) override;
};

// SHA-256 over a list of values. Each text is preceded by its length, so that {"ab", "c"} and {"a", "bc"} differ.
class Fingerprint {
 public:
  void add(std::string_view text);
  void add(std::int64_t number);
  [[nodiscard]] std::string finish() { return sha_.finish(); }  // as Sha::finish()

 private:
  Sha256 sha_;
};

}  // namespace hone
