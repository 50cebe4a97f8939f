#include "checkpoint/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <string>

#include "checkpoint/safetensors_header.h"
#include "core/error.h"
#include "core/files.h"
#include "core/random.h"
#include "support/paths.h"

namespace hone {
namespace {

using test::fixture;
using test::TemporaryDirectory;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

std::string file_of(std::string_view header, std::size_t data_size) {
  const std::uint64_t length = header.size();
  std::string content(sizeof(length), '\0');
  std::memcpy(content.data(), &length, sizeof(length));
  return content.append(header).append(data_size, '\x01');
}

// Opens a file with this content. Returns the error message, or "" if the file is valid.
std::string error_of(const std::string& content) {
  const TemporaryDirectory folder;
  const auto path = folder.path() / "broken.safetensors";
  write_file(path, content);
  try {
    const SafetensorsFile file(path);
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr(path.string()));
    EXPECT_THAT(error.what(), testing::Not(HasSubstr("\n")));
    return error.what();
  }
  return "";
}

std::string error_of(std::string_view header, std::size_t data_size) { return error_of(file_of(header, data_size)); }

TEST(Safetensors, ReadsWhatTheReferenceWrote) {
  const SafetensorsFile file(fixture("checkpoint/written_by_hone.safetensors"));
  EXPECT_EQ(file.tensors().size(), 9u);
  EXPECT_EQ(file.metadata(), (std::map<std::string, std::string>{{"format", "pt"}}));

  const StoredTensor& matrix = file.at("weight.f32");
  EXPECT_EQ(matrix.type, StoredType::kF32);
  EXPECT_THAT(matrix.shape, ElementsAre(2, 3));
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_THAT(read_values<float>(matrix), ElementsAre(1.5F, -2.25F, 3e-45F, infinity, -infinity, 0.0F));
  EXPECT_TRUE(std::signbit(read_values<float>(matrix)[5]));
  EXPECT_THAT(read_values<std::int64_t>(file.at("c.i64")),
              ElementsAre(std::numeric_limits<std::int64_t>::min(), std::numeric_limits<std::int64_t>::max()));
  EXPECT_THAT(read_values<std::int32_t>(file.at("b.i32")),
              ElementsAre(std::numeric_limits<std::int32_t>::min(), std::numeric_limits<std::int32_t>::max()));
  EXPECT_THAT(read_values<std::uint8_t>(file.at("d.u8")), ElementsAre(0, 127, 255));
  EXPECT_THAT(read_values<double>(file.at("a.f64")), ElementsAre(M_PI, 5e-324));
  EXPECT_TRUE(file.at("scalar").shape.empty());
  EXPECT_THAT(read_values<float>(file.at("scalar")), ElementsAre(7.0F));
  EXPECT_EQ(file.at("empty").element_count(), 0);
  EXPECT_NE(file.find("name with \"quotes\", \\ and \u00e9"), nullptr);
  EXPECT_EQ(file.find("weight"), nullptr);
}

TEST(Safetensors, WritesTheReferencesBytes) {
  const auto reference = fixture("checkpoint/written_by_hone.safetensors");
  const SafetensorsFile file(reference);
  std::vector<TensorSource> sources;
  for (const StoredTensor& tensor : file.tensors()) {  // in reverse: the order of sources does not matter
    sources.insert(sources.begin(), tensor_source(tensor.name, *dtype_of(tensor.type), tensor.shape, tensor.bytes));
  }
  const TemporaryDirectory folder;
  write_safetensors(folder.path() / "copy.safetensors", sources);
  EXPECT_EQ(read_file(folder.path() / "copy.safetensors"), read_file(reference));
  EXPECT_THAT(list_folder(folder.path()), ElementsAre("copy.safetensors"));
}

TEST(Safetensors, OneBufferServesEverySource) {
  std::vector<float> buffer(2);
  const auto source = [&](const char* name, float value) {
    return TensorSource{name, DType::kF32, {2}, [&buffer, value](std::uint64_t begin, std::size_t most) {
                          buffer.assign(2, value);
                          return std::as_bytes(std::span(buffer)).subspan(begin, most);
                        }};
  };
  const TemporaryDirectory folder;
  const std::vector<TensorSource> sources{source("b", 2), source("a", 1)};
  write_safetensors(folder.path() / "x.safetensors", sources);
  const SafetensorsFile file(folder.path() / "x.safetensors");
  EXPECT_THAT(read_values<float>(file.at("a")), ElementsAre(1, 1));
  EXPECT_THAT(read_values<float>(file.at("b")), ElementsAre(2, 2));
}

TEST(Safetensors, AFailedWriteLeavesTheOldFile) {
  const TemporaryDirectory folder;
  const auto path = folder.path() / "x.safetensors";
  const std::vector<float> values{1, 2};
  const std::vector<TensorSource> good{tensor_source("a", {2}, std::span(values))};
  write_safetensors(path, good);
  const std::string before = read_file(path);
  const std::vector<TensorSource> bad{
      {"a", DType::kF32, {2}, [](std::uint64_t, std::size_t) -> std::span<const std::byte> {
         throw Error("lost the device");
       }}};
  EXPECT_THROW(write_safetensors(path, bad), Error);
  EXPECT_EQ(read_file(path), before);
  EXPECT_THAT(list_folder(folder.path()), ElementsAre("x.safetensors"));
}

template <class T>
void expect_same_bits(const SafetensorsFile& file, const std::string& name, const std::string& wanted) {
  const std::vector<T> values = read_values<T>(file.at(name));
  const StoredTensor& expected = file.at(wanted);
  ASSERT_EQ(values.size() * sizeof(T), expected.bytes.size()) << wanted;
  const std::vector<T> expected_values = read_values<T>(expected);
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto value = static_cast<double>(static_cast<float>(values[i]));
    const auto reference = static_cast<double>(static_cast<float>(expected_values[i]));
    if (std::isnan(reference)) {  // the bits of a NaN are not part of the contract
      EXPECT_TRUE(std::isnan(value)) << wanted << " " << i;
    } else {
      EXPECT_EQ(std::memcmp(&values[i], &expected_values[i], sizeof(T)), 0) << wanted << " " << i << ": " << value;
    }
  }
}

TEST(Safetensors, ConvertsFloatingTypesAsTorchDoes) {
  const SafetensorsFile file(fixture("checkpoint/conversions.safetensors"));
  EXPECT_EQ(file.at("every_half").type, StoredType::kF16);
  for (const std::string name : {"half", "every_half", "single", "double", "brain"}) {
    expect_same_bits<float>(file, name, name + ".f32");
    expect_same_bits<BFloat16>(file, name, name + ".bf16");
    expect_same_bits<double>(file, name, name + ".f64");
  }
}

TEST(Safetensors, RefusesOtherConversions) {
  const SafetensorsFile file(fixture("checkpoint/written_by_hone.safetensors"));
  EXPECT_THAT([&] { (void)read_values<float>(file.at("b.i32")); },
              testing::ThrowsMessage<Error>(AllOf(HasSubstr("written_by_hone.safetensors"), HasSubstr("'b.i32'"),
                                                  HasSubstr("I32"), HasSubstr("f32"))));
  EXPECT_THROW((void)read_values<std::int32_t>(file.at("weight.f32")), Error);
  EXPECT_THROW((void)file.at("missing"), Error);
  const SafetensorsFile flags(fixture("checkpoint/bool.safetensors"));
  EXPECT_EQ(flags.at("flags").type, StoredType::kBoolean);
  EXPECT_THROW((void)read_values<std::uint8_t>(flags.at("flags")), Error);
}

TEST(Safetensors, SurvivesAMove) {
  SafetensorsFile first(fixture("checkpoint/written_by_hone.safetensors"));
  const SafetensorsFile second(std::move(first));
  EXPECT_THAT(read_values<float>(second.at("scalar")), ElementsAre(7.0F));
}

TEST(SafetensorsHeader, AcceptsTheLeast) {
  EXPECT_EQ(error_of("{}", 0), "");
  EXPECT_EQ(error_of("{}      ", 0), "");
  EXPECT_EQ(error_of(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", 8), "");
  EXPECT_EQ(error_of(R"({"a":{"data_offsets":[0,0],"shape":[0,9223372036854775807,4],"dtype":"F64"}})", 0), "");
}

TEST(SafetensorsHeader, ChecksTheLengths) {
  EXPECT_THAT(error_of(std::string("abc")), HasSubstr("has 3 bytes"));
  EXPECT_THAT(error_of(std::string()), HasSubstr("has 0 bytes"));
  EXPECT_THAT(error_of(std::string("\xff\xff\xff\xff\xff\xff\xff\xff{}", 10)), HasSubstr("exceeds the limit"));
  EXPECT_THAT(error_of(std::string("\x40\0\0\0\0\0\0\0{}", 10)), HasSubstr("should have 64 bytes, the file has 2"));
  EXPECT_THAT(error_of(std::string(8, '\0')), HasSubstr("does not begin with"));
  EXPECT_THAT(error_of(" {}", 0), HasSubstr("does not begin with"));
}

TEST(SafetensorsHeader, ChecksTheForm) {
  const auto tensor = [](const char* body) { return error_of(std::string(R"({"t":)") + body + "}", 8); };
  EXPECT_THAT(error_of("{", 0), HasSubstr("not valid JSON"));
  EXPECT_THAT(error_of("{}{}", 0), HasSubstr("not valid JSON"));
  EXPECT_THAT(error_of("{\"\xff\":1}", 0), HasSubstr("not valid JSON"));
  EXPECT_THAT(error_of("{" + std::string(1'000'000, '['), 0), HasSubstr("not valid JSON"));
  EXPECT_THAT(tensor("[[[[[["), HasSubstr("holds a list where it may not"));
  EXPECT_THAT(tensor("1e999"), HasSubstr("not valid JSON"));
  EXPECT_THAT(tensor("null"), HasSubstr("holds null"));
  EXPECT_THAT(tensor("true"), HasSubstr("holds a boolean"));
  EXPECT_THAT(tensor("{}"), AllOf(HasSubstr("'t'"), HasSubstr("dtype is missing")));
  EXPECT_THAT(tensor(R"({"dtype":"F32","shape":[2]})"), HasSubstr("data_offsets is missing"));
  EXPECT_THAT(tensor(R"({"dtype":"F32","data_offsets":[0,8]})"), HasSubstr("shape is missing"));
  EXPECT_THAT(tensor(R"({"dtype":"F33","shape":[2],"data_offsets":[0,8]})"),
              AllOf(HasSubstr("'t'"), HasSubstr("unknown dtype 'F33'")));
  EXPECT_THAT(tensor(R"({"dtype":"F32","shape":[-2],"data_offsets":[0,8]})"), HasSubstr("holds -2"));
  EXPECT_THAT(tensor(R"({"dtype":"F32","shape":[2.0],"data_offsets":[0,8]})"), HasSubstr("holds 2.0"));
  EXPECT_THAT(tensor(R"({"dtype":"F32","shape":["2"],"data_offsets":[0,8]})"), HasSubstr("the text '2'"));
  EXPECT_THAT(tensor(R"({"dtype":"F32","shape":[18446744073709551615],"data_offsets":[0,8]})"), HasSubstr("too large"));
  EXPECT_THAT(tensor(R"({"dtype":"F32","shape":2,"data_offsets":[0,8]})"), HasSubstr("holds 2"));
  EXPECT_THAT(tensor(R"({"dtype":"F32","shape":[2],"data_offsets":[0]})"), HasSubstr("needs two numbers"));
  EXPECT_THAT(tensor(R"({"dtype":"F32","shape":[2],"data_offsets":[0,4,8]})"), HasSubstr("more than two"));
  EXPECT_THAT(tensor(R"({"dtype":"F32","dtype":"F32"})"), HasSubstr("dtype is given twice"));
  EXPECT_THAT(tensor(R"({"dtype":"F32","extra":1})"), HasSubstr("unknown field 'extra'"));
  EXPECT_THAT(error_of(R"({"__metadata__":{"a":1}})", 0), HasSubstr("holds 1"));
  EXPECT_THAT(error_of(R"({"__metadata__":{"a":"1","a":"2"}})", 0), HasSubstr("'a' twice"));
  EXPECT_THAT(error_of(R"({"__metadata__":{},"__metadata__":{}})", 0), HasSubstr("__metadata__ twice"));
}

TEST(SafetensorsHeader, ChecksTheLayout) {
  const auto two = [](const char* a, const char* b, const char* second = "b") {
    return error_of(std::string(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":)") + a + R"(},")" + second +
                        R"(":{"dtype":"F32","shape":[2],"data_offsets":)" + b + "}}",
                    16);
  };
  EXPECT_EQ(two("[8,16]", "[0,8]"), "");
  EXPECT_THAT(two("[0,8]", "[4,12]"), AllOf(HasSubstr("'b'"), HasSubstr("inside the one before it")));
  EXPECT_THAT(two("[0,8]", "[0,8]"), HasSubstr("inside the one before it"));
  EXPECT_THAT(two("[0,8]", "[9,17]"), AllOf(HasSubstr("'b'"), HasSubstr("cut short")));
  EXPECT_THAT(two("[0,8]", "[8,12]"), AllOf(HasSubstr("'b'"), HasSubstr("needs 8 bytes, data_offsets give 4")));
  EXPECT_THAT(two("[0,8]", "[16,8]"), HasSubstr("run backwards"));
  EXPECT_THAT(two("[0,8]", "[8,16]", "a"), AllOf(HasSubstr("'a'"), HasSubstr("twice")));
  const char* one = R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[2,4]}})";
  EXPECT_THAT(error_of(one, 4), HasSubstr("behind a gap"));
  EXPECT_THAT(error_of(R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}})", 4), HasSubstr("which has 4"));
  EXPECT_THAT(error_of("{}", 4), HasSubstr("which has 4"));
  EXPECT_THAT(error_of(R"({"a":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,0]}})", 0),
              HasSubstr("too large"));
  EXPECT_THAT(error_of(R"({"a\nb":{"dtype":"U8","shape":[3],"data_offsets":[0,2]}})", 2), HasSubstr("'a?b'"));
}

std::string mutated(std::string content, const RandomStream& random, std::uint64_t& draw) {
  const auto below = [&](std::uint64_t bound) { return random.below(draw++, bound); };
  const std::string_view alphabet = "0123456789[]{}\",:-eF\xff\x7f ";
  for (std::uint64_t edits = 1 + below(4); edits > 0 && !content.empty(); --edits) {
    const std::uint64_t at = below(content.size());
    const std::uint64_t other = below(content.size());
    const std::uint64_t length = 1 + below(8);
    switch (below(4)) {
      case 0:
        content[at] = alphabet[below(alphabet.size())];
        break;
      case 1:
        content.erase(at, length);
        break;
      case 2:
        content.insert(at, content.substr(other, length));
        break;
      default:
        content[at] = static_cast<char>(content[at] ^ (1 << (length - 1)));
        break;
    }
  }
  return content;
}

// Every mutation of a valid header is either rejected with an Error or yields tensors inside the data.
TEST(SafetensorsHeader, SurvivesMutations) {
  const std::string good = read_file(fixture("checkpoint/written_by_hone.safetensors"));
  const std::string header = good.substr(8, good.rfind('}') + 1 - 8);
  const std::size_t data_size = 81;
  const RandomStream random(1, "safetensors mutations");
  std::uint64_t draw = 0;
  int refused = 0;
  int accepted = 0;
  for (int round = 0; round < 20'000; ++round) {
    try {
      for (const HeaderEntry& entry : parse_safetensors_header(mutated(header, random, draw), data_size, "x").entries) {
        ASSERT_LE(entry.begin, entry.end);
        ASSERT_LE(entry.end, data_size);
      }
      ++accepted;
    } catch (const Error&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, 10'000);
  EXPECT_GT(accepted, 100);  // mutations that only change a name
}

// Every mutation of a valid file is either rejected with an Error or all bytes of its tensors can be read.
TEST(Safetensors, SurvivesMutations) {
  const std::string good = read_file(fixture("checkpoint/written_by_hone.safetensors"));
  const TemporaryDirectory folder;
  const auto path = folder.path() / "mutated.safetensors";
  const RandomStream random(2, "safetensors mutations");
  std::uint64_t draw = 0;
  int refused = 0;
  for (int round = 0; round < 200; ++round) {
    std::ofstream(path, std::ios::binary) << mutated(good, random, draw);
    try {
      const SafetensorsFile file(path);
      for (const StoredTensor& tensor : file.tensors()) {
        const std::string copy(reinterpret_cast<const char*>(tensor.bytes.data()), tensor.bytes.size());
        ASSERT_EQ(copy.size(), tensor.bytes.size());
      }
    } catch (const Error&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, 100);
}

}  // namespace
}  // namespace hone
