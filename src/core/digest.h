// SHA-256 and SHA-1 (FIPS 180-4): checksums of files, fingerprints. SHA-1 only where others name files by it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace hone {

// What both share: words of 32 bits over blocks of 64 bytes.
class Sha {
 public:
  void update(std::string_view bytes);
  [[nodiscard]] std::string finish();  // lower case hexadecimal; ends the computation

 protected:
  Sha() = default;
  ~Sha() = default;
  Sha(const Sha&) = default;
  Sha& operator=(const Sha&) = default;
  virtual void add_block(const unsigned char* block) = 0;  // 64 bytes

  std::array<std::uint32_t, 8> state_{};
  std::size_t words_ = 8;  // of the digest

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

// SHA-256 over a list of values, each with its length: different lists have different fingerprints.
class Fingerprint {
 public:
  void add(std::string_view text);
  void add(std::int64_t number);
  [[nodiscard]] std::string finish() { return sha_.finish(); }  // lower case hexadecimal; ends the computation

 private:
  Sha256 sha_;
};

}  // namespace hone
