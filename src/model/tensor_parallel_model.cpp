#include "model/tensor_parallel_model.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "core/error.h"
#include "core/log.h"
#include "model/expert_parallel_model.h"
#include "model/weight_layout.h"
#include "program/shard_builder.h"

namespace hone {
namespace {

constexpr const char* kKey = "tensor_parallel_size";

[[noreturn]] void refuse(int ranks, const std::string& reason, std::string_view fix = "--tensor_parallel_size 1") {
  throw Error(kKey, text_of("is ", ranks, ", but ", reason), fix);
}

void check_divides(const Model& model, int ranks) {
  for (const WeightSpec& spec : model.weights()) {
    // A router has a row for each expert.
    if (spec.kind == WeightKind::router && spec.shape[0] % ranks != 0) {
      refuse(ranks, text_of("a layer has ", spec.shape[0], " experts"), "a size that divides them");
    }
  }
  const ModelShape& shape = model.shape();
  if (shape.num_attention_heads % ranks != 0) {
    refuse(ranks, text_of("num_attention_heads is ", shape.num_attention_heads), "a size that divides it");
  }
  if (shape.num_key_value_heads % ranks != 0) {
    refuse(ranks, text_of("num_key_value_heads is ", shape.num_key_value_heads), "a size that divides it");
  }
}

// Returns the axis along which a part is divided; kWhole if it has none.
PartAxis axis_of(const WeightPart& part) {
  for (const PartAxis& axis : part.axes) {
    if (axis.axis != ShardAxis::kWhole && axis.axis != ShardAxis::kExperts) return axis;
  }
  return {};
}

// Calls run(first element in the part, first element in the whole weight, elements) for runs that are contiguous in
// both.
template <class Run>
void for_each_run(const WeightSpec& part, const WeightSpec& whole, const Run& run) {
  const std::int64_t columns = row_elements(part);
  const std::int64_t whole_columns = row_elements(whole);
  if (whole.parts.empty()) return run(0, 0, part.shape[0] * columns);
  for (const WeightPart& piece : part.parts) {
    const auto of = std::ranges::find(whole.parts, piece.name, &WeightPart::name);
    HONE_ASSERT(of != whole.parts.end(), "no place of ", piece.name, " in ", whole.name);
    const std::vector<std::int64_t> offset = piece.box ? piece.box->offset : std::vector<std::int64_t>{0};
    const std::int64_t column = offset.size() > 1 ? offset[1] : 0;
    const std::int64_t row = of->row + offset[0];
    if (columns == whole_columns) {
      run(piece.row * columns, row * columns, piece.rows * columns);
      continue;
    }
    for (std::int64_t r = 0; r < piece.rows; ++r) {
      run((piece.row + r) * columns, (row + r) * whole_columns + column, columns);
    }
  }
}

}  // namespace

TensorParallelModel::TensorParallelModel(std::unique_ptr<Model> whole, int rank, int ranks, bool rows)
    : WrappedModel(std::move(whole)),
      division_{.rank = rank, .ranks = ranks, .rows = rows, .weights = {}, .states = {}} {
  check_divides(base(), ranks);
  if (const std::int64_t vocab = shape().vocab_size; vocab % ranks != 0) {
    log_once(text_of(kKey, " ", ranks, " does not divide the vocabulary of ", vocab,
                     " tokens: every process has embedding and head whole"));
  }
  for (WeightSpec& spec : specs_) {
    spec = part_spec(spec, rank, ranks);
    if (!is_divided(spec)) continue;
    division_.weights[spec.name] = spec.kind == WeightKind::expert ? kDividedRows : axis_of(spec.parts[0]).dimension;
  }
  // Pages have the heads of the rank, [num_blocks, block_size, kv_heads x head_dim], and the scales of FP8 pages too,
  // [num_blocks, kv_heads x block_size].
  for (std::int64_t layer = 0; layer < shape().num_hidden_layers; ++layer) {
    division_.states[KvLayout::key_name(layer)] = 2;
    division_.states[KvLayout::value_name(layer)] = 2;
    division_.states[KvLayout::key_scale_name(layer)] = 1;
    division_.states[KvLayout::value_scale_name(layer)] = 1;
  }
}

WeightSpec part_spec(const WeightSpec& whole, int rank, int ranks) {
  if (whole.kind == WeightKind::expert) return expert_spec(whole, rank, ranks);
  if (whole.parts.empty()) return whole;
  const PartAxis axis = axis_of(whole.parts[0]);
  if (axis.axis == ShardAxis::kWhole) return whole;
  if (axis.axis == ShardAxis::kVocabulary && whole.shape[0] % ranks != 0) return whole;
  const auto dimension = static_cast<std::size_t>(axis.dimension);
  WeightSpec spec = whole;
  spec.parts.clear();
  spec.shape[dimension] /= ranks;
  for (const WeightPart& part : whole.parts) {
    const PartAxis own = axis_of(part);
    HONE_ASSERT(own.axis == axis.axis && own.dimension == axis.dimension && (dimension == 0 || own.sections == 1),
                "the parts of ", whole.name, " are cut along different axes");
    const std::vector<std::int64_t> shape = part_shape(whole, part);
    const std::int64_t section = shape[dimension] / own.sections;
    if (section % (own.unit * ranks) != 0) {
      refuse(ranks,
             text_of(part.name, " has ", section / own.unit, own.axis == ShardAxis::kInner ? " channels" : " heads"),
             "a size that divides them");
    }
    const std::int64_t share = section / ranks;
    // Rows that belong to no part are divided like those around them.
    const std::int64_t first = dimension == 0 ? part.row / ranks : part.row;
    for (std::int64_t s = 0; s < own.sections; ++s) {
      WeightPart piece = part;
      piece.row = first + s * share;
      piece.rows = dimension == 0 ? share : part.rows;
      piece.box = PartBox{.offset = std::vector<std::int64_t>(shape.size(), 0), .whole = shape};
      piece.box->offset[dimension] = s * section + rank * share;
      spec.parts.push_back(std::move(piece));
    }
  }
  return spec;
}

Program TensorParallelModel::adapted(Program program, const TraceUse& use) const {
  return divide_over_ranks(WrappedModel::adapted(std::move(program), use), division_);
}

bool is_divided(const WeightSpec& spec) { return !spec.parts.empty() && spec.parts[0].box.has_value(); }

std::vector<std::byte> part_of(const Model& model, std::size_t index, const TensorStore& weight) {
  const WeightSpec& part = model.weights()[index];
  const WeightSpec& whole = model.whole().weights()[index];
  std::vector<std::byte> from = weight.download(whole.name);
  if (!is_divided(part)) return from;
  const Type& type = weight.type(whole.name);
  std::vector<std::byte> to(Type{type.dtype, Shape(part.shape.begin(), part.shape.end())}.bytes());
  take_part(part, whole, size_of(type.dtype), from, to);
  return to;
}

void take_part(const WeightSpec& part, const WeightSpec& whole, std::size_t size, std::span<const std::byte> from,
               std::span<std::byte> to) {
  for_each_run(part, whole, [&](std::int64_t own, std::int64_t there, std::int64_t count) {
    std::memcpy(to.data() + static_cast<std::size_t>(own) * size, from.data() + static_cast<std::size_t>(there) * size,
                static_cast<std::size_t>(count) * size);
  });
}

void put_part(const WeightSpec& part, const WeightSpec& whole, std::size_t size, std::span<const std::byte> from,
              std::span<std::byte> to) {
  for_each_run(part, whole, [&](std::int64_t own, std::int64_t there, std::int64_t count) {
    std::memcpy(to.data() + static_cast<std::size_t>(there) * size, from.data() + static_cast<std::size_t>(own) * size,
                static_cast<std::size_t>(count) * size);
  });
}

}  // namespace hone
