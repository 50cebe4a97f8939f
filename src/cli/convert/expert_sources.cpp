#include "cli/convert/expert_sources.h"

#include <algorithm>
#include <iterator>
#include <span>

#include "core/block_scales.h"
#include "core/error.h"
#include "core/log.h"

namespace hone {
namespace {

// Consecutive bytes of a file, and where they begin in the tensor to write.
struct FileRange {
  std::uint64_t begin = 0;
  std::span<const std::byte> bytes;
};

// Consecutive elements of a tensor to write, and where they are stored.
struct ExpertElements {
  std::int64_t begin = 0;
  std::int64_t count = 0;
  ScaledTensor stored;
  std::int64_t first = 0;  // in the stored tensor
};

// Returns the source of a tensor that consists of ranges of mapped files, in the order of their beginnings.
TensorSource source_of_ranges(std::string name, DType dtype, std::vector<std::int64_t> shape,
                              std::vector<FileRange> ranges) {
  return {std::move(name), dtype, std::move(shape),
          [ranges = std::move(ranges)](std::uint64_t begin, std::size_t most) {
            const auto after = std::ranges::upper_bound(ranges, begin, {}, &FileRange::begin);
            const FileRange& range = *(after - 1);
            const std::span<const std::byte> rest = range.bytes.subspan(begin - range.begin);
            return rest.first(std::min(most, rest.size()));
          }};
}

// Index of the first scale of a slice, in a tensor of scales [matrices, blocks of rows, blocks of columns].
std::int64_t first_scale(const CheckpointTensor& tensor, const PartSlice& slice) {
  const std::int64_t row = slice.first / tensor.columns;
  const std::int64_t matrix = row / tensor.rows;
  if (row % tensor.rows % kScaleBlock != 0) {
    throw Error(tensor.name,
                text_of("is in FP8, and ", slice.part->name, " begins at its row ", row % tensor.rows,
                        ", inside of a block of 128 x 128 that has one scale"),
                "convert it to bfloat16 with --quantization none");
  }
  return (matrix * scale_blocks(tensor.rows) + row % tensor.rows / kScaleBlock) * scale_blocks(tensor.columns);
}

}  // namespace

ExpertConversion::ExpertConversion(const Model& model, const WeightFiles& files, ExpertLayout layout) : files_(files) {
  check_expert_counts(model, files);
  const std::vector<WeightSpec> stored = specs_in_folder(model, files);
  to_specs_ = specs_of_layout(stored, layout);
  std::ranges::copy_if(stored, std::back_inserter(from_specs_), [](const WeightSpec& spec) {
    return !spec.parts.empty() && !spec.parts.front().alternative.tensor.empty();
  });
  if (to_specs_.empty()) throw Error("experts", "is set, but this model has no mixture of experts", "leave it out");
  from_ = checkpoint_tensors(from_specs_, true);
  to_ = checkpoint_tensors(to_specs_, true);
  for (const CheckpointTensor& tensor : from_) {
    const ScaledTensor found = with_scales(files.at(tensor.name), files);
    if (found.values->shape != tensor.shape) {
      throw Error(found.values->file, text_of("tensor ", tensor.name, " is ", shape_text(found.values->shape),
                                              ", but config.json requires ", shape_text(tensor.shape)));
    }
    taken_.insert(tensor.name);
    if (found.scales != nullptr) taken_.insert(found.scales->name);
    for (const PartSlice& slice : tensor.slices) stored_.emplace(slice.part->name, std::pair(&tensor, &slice));
  }
}

std::vector<ExpertConversion::Segment> ExpertConversion::segments_of(const CheckpointTensor& tensor) const {
  std::vector<Segment> segments;
  for (const PartSlice& slice : tensor.slices) {
    const auto& [from, from_slice] = stored_.at(slice.part->name);
    segments.push_back({with_scales(files_.at(from->name), files_), from, from_slice, &slice});
  }
  return segments;
}

std::vector<TensorSource> ExpertConversion::sources(const Types& types, std::vector<std::byte>& buffer) const {
  std::vector<TensorSource> made;
  for (const CheckpointTensor& tensor : to_) {
    const std::vector<Segment> segments = segments_of(tensor);
    const StoredTensor& first = *segments.front().stored.values;
    const bool in_fp8 = first.type == StoredType::kF8E4m3;
    if (!types.wanted || (in_fp8 && types.keeps_fp8)) {
      for (const Segment& segment : segments) {
        const StoredTensor& other = *segment.stored.values;
        if (other.type == first.type) continue;
        throw Error(other.file,
                    text_of("tensor ", other.name, " is ", name_of(other.type), ", but ", first.name, " is ",
                            name_of(first.type), "; both become parts of ", tensor.name),
                    "set --torch_dtype to bfloat16 or float32");
      }
    }
    if (in_fp8 && types.keeps_fp8) {
      made.push_back(copied(tensor, segments));
      made.push_back(copied_scales(tensor, segments));
      continue;
    }
    if (!types.wanted && first.type == StoredType::kF16) log_once("float16 weights are written as bfloat16");
    const DType dtype = types.wanted.value_or(dtype_of(first.type).value_or(DType::kBf16));
    made.push_back(converted(tensor, segments, dtype, buffer));
  }
  return made;
}

TensorSource ExpertConversion::converted(const CheckpointTensor& tensor, const std::vector<Segment>& segments,
                                         DType dtype, std::vector<std::byte>& buffer) {
  std::vector<ExpertElements> parts;
  parts.reserve(segments.size());
  for (const Segment& segment : segments) {
    parts.push_back({.begin = segment.to_slice->first,
                     .count = segment.to_slice->elements(),
                     .stored = segment.stored,
                     .first = segment.from_slice->first});
  }
  return {tensor.name, dtype, tensor.shape,
          [parts = std::move(parts), dtype, &buffer](std::uint64_t begin, std::size_t most) {
            const auto at = static_cast<std::int64_t>(begin / size_of(dtype));
            const ExpertElements& part = *(std::ranges::upper_bound(parts, at, {}, &ExpertElements::begin) - 1);
            const std::int64_t done = at - part.begin;
            const std::int64_t count = std::min(elements_in_piece(most, dtype), part.count - done);
            buffer.resize(static_cast<std::size_t>(count) * size_of(dtype));
            read_as(part.stored, dtype, part.first + done, buffer);
            return std::span<const std::byte>(buffer);
          }};
}

TensorSource ExpertConversion::copied(const CheckpointTensor& tensor, const std::vector<Segment>& segments) {
  std::vector<FileRange> ranges;
  ranges.reserve(segments.size());
  for (const Segment& segment : segments) {
    ranges.push_back({static_cast<std::uint64_t>(segment.to_slice->first),
                      segment.stored.values->bytes.subspan(static_cast<std::size_t>(segment.from_slice->first),
                                                           static_cast<std::size_t>(segment.to_slice->elements()))});
  }
  TensorSource source = source_of_ranges(tensor.name, DType::kU8, tensor.shape, std::move(ranges));
  source.written_as = StoredType::kF8E4m3;
  return source;
}

TensorSource ExpertConversion::copied_scales(const CheckpointTensor& tensor, const std::vector<Segment>& segments) {
  const StoredTensor& first = *segments.front().stored.scales;
  const std::size_t size = size_of(first.type);
  std::vector<FileRange> ranges;
  ranges.reserve(segments.size());
  for (const Segment& segment : segments) {
    const StoredTensor& scales = *segment.stored.scales;
    if (scales.type != first.type) {
      throw Error(scales.file,
                  text_of("tensor ", scales.name, " is ", name_of(scales.type), ", but ", first.name, " is ",
                          name_of(first.type), "; both become parts of the scales of ", tensor.name),
                  "convert the weights to bfloat16 with --quantization none");
    }
    const std::int64_t count =
        scale_blocks(segment.to_slice->part->rows) * scale_blocks(row_elements(*segment.to_slice->spec));
    ranges.push_back(
        {static_cast<std::uint64_t>(first_scale(tensor, *segment.to_slice)) * size,
         scales.bytes.subspan(static_cast<std::size_t>(first_scale(*segment.from, *segment.from_slice)) * size,
                              static_cast<std::size_t>(count) * size)});
  }
  return source_of_ranges(tensor.name + std::string(kScaleSuffix), required_dtype_of(first.type),
                          scales_shape(tensor.shape), std::move(ranges));
}

}  // namespace hone
