// Initializes new adapters, or what a rank has of them.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/random.h"
#include "model/lora.h"
#include "model/weight_layout.h"
#include "program/kernel.h"

namespace hone {
namespace {

// Downloads a tensor as f32.
std::vector<float> values_of(const TensorStore& store, std::string_view name) {
  const std::vector<std::byte> bytes = store.download(name);
  std::vector<float> values(static_cast<std::size_t>(store.type(name).elements()));
  for_floating(store.type(name).dtype, [&]<class T>() {
    const auto* from = reinterpret_cast<const T*>(bytes.data());
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(from[i]);
  });
  return values;
}

// Uploads f32 values in the type of the tensor.
void upload(TensorStore& store, std::string_view name, std::span<const float> values) {
  std::vector<std::byte> bytes(store.type(name).bytes());
  HONE_ASSERT(static_cast<std::int64_t>(values.size()) == store.type(name).elements(), values.size(), " values for ",
              name);
  for_floating(store.type(name).dtype, [&]<class T>() {
    auto* to = reinterpret_cast<T*>(bytes.data());
    for (std::size_t i = 0; i < values.size(); ++i) to[i] = static_cast<T>(values[i]);
  });
  store.upload(name, bytes);
}

void fill_zero(TensorStore& weights, std::string_view name) {
  upload(weights, name, std::vector<float>(static_cast<std::size_t>(weights.type(name).elements())));
}

// Random numbers are indexed by part, so they do not depend on how parts are grouped into blocks, and by element of the
// whole part, of which a rank may have some columns.
std::vector<float> uniform_values(const WeightSpec& spec, std::uint64_t seed) {
  const std::int64_t columns = row_elements(spec);
  std::vector<float> values(static_cast<std::size_t>(spec.shape[0] * columns));
  for (const WeightPart& part : spec.parts) {
    const std::vector<std::int64_t> whole = part.box ? part.box->whole : part_shape(spec, part);
    const std::vector<std::int64_t> offset = part.box ? part.box->offset : std::vector<std::int64_t>{0, 0};
    const auto bound = static_cast<float>(1.0 / std::sqrt(static_cast<double>(whole[1])));
    const RandomStream random(seed, part.name);
    for (std::int64_t i = 0; i < part.rows * columns; ++i) {
      const std::int64_t place = (offset[0] + i / columns) * whole[1] + offset[1] + i % columns;
      values[static_cast<std::size_t>(part.row * columns + i)] =
          bound * (2.0f * random.uniform(static_cast<std::uint64_t>(place)) - 1.0f);
    }
  }
  return values;
}

// Returns true if the store has all columns of the block's weight.
bool has_whole_rows(const Model& model, const std::string& block) {
  const auto spec_in = [&](const std::vector<WeightSpec>& specs) {
    return std::ranges::find(specs, block, &WeightSpec::name);
  };
  const auto own = spec_in(model.weights());
  return own != model.weights().end() && row_elements(*own) == row_elements(*spec_in(model.whole().weights()));
}

}  // namespace

void initialize_magnitudes(const TensorStore& base, const std::string& block, TensorStore& weights) {
  const std::vector<float> rows = values_of(base, block);
  const std::string magnitude = LoraModel::magnitude_name(block);
  const auto count = static_cast<std::size_t>(weights.type(magnitude).elements());
  const std::size_t columns = rows.size() / count;
  std::vector<float> norms(count);
  for (std::size_t row = 0; row < count; ++row) {
    double sum = 0;
    for (std::size_t i = 0; i < columns; ++i) sum += std::pow(static_cast<double>(rows[row * columns + i]), 2);
    norms[row] = static_cast<float>(std::sqrt(sum));
  }
  upload(weights, magnitude, norms);
}

void initialize_adapter(const Model& model, TensorStore& weights, std::uint64_t seed) {
  const LoraModel& lora = *model.whole().adapter();
  for (const auto& [block, parts] : lora.blocks()) {
    const std::string down = LoraModel::down_name(block);
    if (!weights.contains(down)) continue;
    for (const WeightSpec& spec : model.weights()) {
      if (spec.name == down) upload(weights, down, uniform_values(spec, seed));
    }
    fill_zero(weights, LoraModel::up_name(block));
    if (lora.lora().dora && has_whole_rows(model, block)) initialize_magnitudes(weights, block, weights);
  }
  if (lora.adapts_embedding() && weights.contains(LoraModel::kEmbeddingDown)) {
    fill_zero(weights, LoraModel::kEmbeddingDown);
    std::vector<float> up(static_cast<std::size_t>(weights.type(LoraModel::kEmbeddingUp).elements()));
    const RandomStream random(seed, LoraModel::kEmbeddingUp);
    for (std::size_t i = 0; i < up.size(); ++i) up[i] = random.normal(i);
    upload(weights, LoraModel::kEmbeddingUp, up);
  }
  for (const SavedModule& saved : lora.saved()) {
    if (weights.contains(saved.copy) && weights.contains(saved.block)) {
      weights.upload(saved.copy, weights.download(saved.block));
    }
  }
}

}  // namespace hone
