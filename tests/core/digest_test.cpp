#include "core/digest.h"

#include <gtest/gtest.h>

namespace hone {
namespace {

template <class Digest>
std::string digest_of(std::string_view text, std::size_t step = 1000) {
  Digest digest;
  for (; !text.empty(); text.remove_prefix(std::min(step, text.size()))) digest.update(text.substr(0, step));
  return digest.finish();
}

TEST(Digest, OfTheStandardsExamples) {
  EXPECT_EQ(digest_of<Sha256>(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(digest_of<Sha256>("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(digest_of<Sha1>(""), "da39a3ee5e6b4b0d3255bfef95601890afd80709");
  EXPECT_EQ(digest_of<Sha1>("abc"), "a9993e364706816aba3e25717850c26c9cd0d89d");
  const std::string_view words = "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq";
  EXPECT_EQ(digest_of<Sha256>(words), "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(digest_of<Sha1>(words), "84983e441c3bd26ebaae4aa1f95129e5e54670f1");
  const std::string million(1'000'000, 'a');
  EXPECT_EQ(digest_of<Sha256>(million), "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
  EXPECT_EQ(digest_of<Sha1>(million), "34aa973cd4c4daa4f61eeb2bdbad27316534016f");
}

TEST(Digest, DoesNotDependOnThePieces) {
  std::string text;
  for (int i = 0; i < 300; ++i) text += static_cast<char>(i);
  for (std::size_t size = 0; size < text.size(); ++size) {
    const std::string_view part = std::string_view(text).substr(0, size);
    const std::string whole = digest_of<Sha256>(part);
    EXPECT_EQ(digest_of<Sha256>(part, 1), whole);
    EXPECT_EQ(digest_of<Sha256>(part, 63), whole);
  }
}

}  // namespace
}  // namespace hone
