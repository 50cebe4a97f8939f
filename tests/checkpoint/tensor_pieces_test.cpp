// Tests of tensors stored in pieces, and of writing tensors in pieces of bounded size.
#include "checkpoint/tensor_pieces.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "core/error.h"
#include "core/files.h"
#include "core/random.h"
#include "support/paths.h"

namespace hone {
namespace {

using test::TemporaryDirectory;
using testing::AllOf;
using testing::HasSubstr;

using Sizes = std::vector<std::int64_t>;

std::vector<float> ascending(std::int64_t count) {
  std::vector<float> values(static_cast<std::size_t>(count));
  std::iota(values.begin(), values.end(), 0.0f);
  return values;
}

// The elements of a piece of a whole tensor with the elements 0, 1, 2, ...
std::vector<float> box_of(const Sizes& whole, const Sizes& offset, const Sizes& shape) {
  std::vector<float> values;
  Sizes at(shape.size(), 0);
  std::int64_t count = 1;
  for (const std::int64_t size : shape) count *= size;
  for (std::int64_t i = 0; i < count; ++i) {
    std::int64_t element = 0;
    for (std::size_t d = 0; d < shape.size(); ++d) element = element * whole[d] + offset[d] + at[d];
    values.push_back(static_cast<float>(element));
    for (std::size_t d = shape.size(); d-- > 0;) {
      if (++at[d] < shape[d]) break;
      at[d] = 0;
    }
  }
  return values;
}

// A file with pieces of "w", given by offset and shape.
class Pieces {
 public:
  Pieces(const Sizes& whole, const std::vector<std::pair<Sizes, Sizes>>& boxes) {
    for (const auto& [offset, shape] : boxes) {
      values_.push_back(box_of(whole, offset, shape));
      sources_.push_back(tensor_source("w", shape, std::span<const float>(values_.back())));
      sources_.back().place = {offset, whole};
    }
    write_safetensors(path(), sources_);
    file_ = std::make_unique<SafetensorsFile>(path());
  }
  [[nodiscard]] std::filesystem::path path() const { return folder_.path() / "w.safetensors"; }
  [[nodiscard]] const SafetensorsFile& file() const { return *file_; }
  [[nodiscard]] std::string error_of(const Sizes& shape, std::int64_t first, std::int64_t count) const {
    try {
      (void)PiecedTensors(*file_).at("w", shape, first, count);
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), AllOf(HasSubstr(path().string()), HasSubstr("'w'"), testing::Not(HasSubstr("\n"))));
      return error.what();
    }
    return "";
  }

 private:
  TemporaryDirectory folder_;
  std::vector<std::vector<float>> values_;
  std::vector<TensorSource> sources_;
  std::unique_ptr<SafetensorsFile> file_;
};

TEST(TensorPieces, TwoPiecesArePutTogether) {
  const Pieces pieces({4, 6}, {{{0, 0}, {4, 2}}, {{0, 2}, {4, 4}}});
  EXPECT_THAT(pieces.file().metadata(), testing::Contains(testing::Pair("w@0,2", "0,2 of 4,6")));
  EXPECT_EQ(pieces.file().at("w@0,2").shape, (Sizes{4, 4}));
  std::vector<float> whole(24);
  PiecedTensors(pieces.file())
      .at("w", Sizes{4, 6}, 0, 24)
      .read(0, DType::kF32, std::as_writable_bytes(std::span(whole)));
  EXPECT_EQ(whole, ascending(24));
}

// Random partitions of a tensor, read over random ranges.
TEST(TensorPieces, EveryStretchOfEveryCutComesBack) {
  const RandomStream random(1, "cuts");
  std::uint64_t draw = 0;
  const auto below = [&](std::int64_t bound) {
    return static_cast<std::int64_t>(random.below(draw++, static_cast<std::uint64_t>(bound)));
  };
  for (int round = 0; round < 60; ++round) {
    const Sizes whole{1 + below(4), 1 + below(5), 1 + below(6)};
    std::vector<std::pair<Sizes, Sizes>> boxes{{{0, 0, 0}, whole}};
    for (std::int64_t cuts = below(5); cuts > 0; --cuts) {
      auto& [offset, shape] = boxes[static_cast<std::size_t>(below(std::ssize(boxes)))];
      const auto d = static_cast<std::size_t>(below(3));
      if (shape[d] < 2) continue;
      const std::int64_t left = 1 + below(shape[d] - 1);
      auto right = std::pair(offset, shape);
      right.first[d] += left;
      right.second[d] -= left;
      shape[d] = left;
      boxes.push_back(std::move(right));
    }
    const Pieces pieces(whole, boxes);
    const PiecedTensors tensors(pieces.file());
    const std::int64_t elements = whole[0] * whole[1] * whole[2];
    for (int stretch = 0; stretch < 10; ++stretch) {
      const std::int64_t first = below(elements);
      const std::int64_t count = 1 + below(elements - first);
      std::vector<double> values(static_cast<std::size_t>(count), -1.0);
      const PiecedTensor tensor = tensors.at("w", whole, first, count);
      const std::int64_t half = count / 2;  // read in two calls
      const auto bytes = std::as_writable_bytes(std::span(values));
      tensor.read(first, DType::kF64, bytes.first(static_cast<std::size_t>(half) * sizeof(double)));
      tensor.read(first + half, DType::kF64, bytes.subspan(static_cast<std::size_t>(half) * sizeof(double)));
      for (std::int64_t i = 0; i < count; ++i) {
        ASSERT_EQ(values[static_cast<std::size_t>(i)], static_cast<double>(first + i)) << "round " << round;
      }
    }
  }
}

TEST(TensorPieces, AnEntryOfAWholeTensorIsHonoured) {
  const TemporaryDirectory folder;
  const std::vector<float> values = ascending(6);
  const TensorSource source = tensor_source("w", {2, 3}, std::span(values));
  write_safetensors(folder.path() / "w.safetensors", {&source, 1}, {{"format", "pt"}, {"w", "0,0 of 2,3"}});
  const SafetensorsFile file(folder.path() / "w.safetensors");
  std::vector<float> read(6);
  PiecedTensors(file).at("w", Sizes{2, 3}, 0, 6).read(0, DType::kF32, std::as_writable_bytes(std::span(read)));
  EXPECT_EQ(read, values);
}

TEST(TensorPieces, WhatDoesNotFitTogetherIsNamed) {
  const Pieces half({4, 6}, {{{0, 0}, {2, 6}}});
  EXPECT_EQ(half.error_of({4, 6}, 0, 12), "");
  EXPECT_THAT(half.error_of({4, 6}, 0, 24), HasSubstr("its pieces hold 12 of the 24 elements that are needed"));
  EXPECT_THAT(half.error_of({6, 4}, 0, 12), HasSubstr("is [4, 6], expected [6, 4]"));
  EXPECT_THAT(Pieces({4, 6}, {{{0, 0}, {3, 6}}, {{2, 0}, {2, 6}}}).error_of({4, 6}, 0, 24),
              HasSubstr("the pieces 'w@0,0' and 'w@2,0' overlap"));
  try {
    (void)PiecedTensors(half.file()).at("v", Sizes{4, 6}, 0, 24);
    FAIL() << "a tensor that does not exist was found";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("holds no tensor 'v'"));
  }
}

TEST(TensorPieces, EntriesOfMetadataThatCannotBeAreRefused) {
  const std::vector<float> values = ascending(6);
  const TensorSource source = tensor_source("w", {2, 3}, std::span(values));
  for (const char* entry : {"", "0,0", "0,0 of", "0,0 of 2,3,", "a,0 of 2,3", "0,-1 of 2,3", "0 of 6", "0,1 of 2,3",
                            "1,0 of 2,3", "0,0 of 4611686018427387904,4", "9223372036854775807,0 of 2,3"}) {
    const TemporaryDirectory folder;
    write_safetensors(folder.path() / "w.safetensors", {&source, 1}, {{"w", entry}});
    const SafetensorsFile file(folder.path() / "w.safetensors");
    try {
      const PiecedTensors tensors(file);
      ADD_FAILURE() << "'" << entry << "' was accepted";
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), AllOf(HasSubstr(file.name()), HasSubstr("'w' is [2, 3]"), HasSubstr(entry)));
    }
  }
}

// The writer requests at most piece_bytes at a time, in order, and writes the same file.
TEST(TensorPieces, TheWriterAsksForPieces) {
  const TemporaryDirectory folder;
  const std::vector<float> values = ascending(1000);
  const auto bytes = std::as_bytes(std::span(values));
  std::size_t largest = 0;
  std::uint64_t expected = 0;
  const TensorSource source{"w", DType::kF32, {10, 100}, [&](std::uint64_t begin, std::size_t most) {
                              EXPECT_EQ(begin, expected);
                              largest = std::max(largest, most);
                              const std::size_t given = begin == 0 ? 4 : most;  // a source may return fewer bytes
                              expected += given;
                              return bytes.subspan(begin, given);
                            }};
  write_safetensors(folder.path() / "pieces.safetensors", {&source, 1}, {}, 130);
  EXPECT_EQ(largest, 128u);
  const TensorSource whole = tensor_source("w", {10, 100}, std::span(values));
  write_safetensors(folder.path() / "whole.safetensors", {&whole, 1}, {});
  EXPECT_EQ(read_file(folder.path() / "pieces.safetensors"), read_file(folder.path() / "whole.safetensors"));
}

}  // namespace
}  // namespace hone
