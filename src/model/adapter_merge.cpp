#include "model/adapter_merge.h"

#include <cmath>

#include "core/error.h"
#include "core/parallel.h"
#include "model/lora.h"
#include "model/transpose.h"

namespace hone {
namespace {

void expect_shape(const AdapterConfig& config, const StoredTensor& tensor, const std::vector<std::int64_t>& shape) {
  if (tensor.shape == shape) return;
  throw Error(tensor.file, text_of("tensor ", tensor.name, " is ", shape_text(tensor.shape), ", but ", config.file(),
                                   " with its base requires ", shape_text(shape)));
}

// Scales a row to the norm `magnitude`.
void normalize(std::span<float> row, float magnitude) {
  double sum = 0;
  for (const float value : row) sum += static_cast<double>(value) * value;
  const auto factor = static_cast<float>(magnitude / std::max(std::sqrt(sum), 1e-12));
  for (float& value : row) value *= factor;
}

// values [rows, columns] += scale b [rows, rank] a [rank, columns].
void add_product(std::span<float> values, std::int64_t columns, std::span<const float> a, std::span<const float> b,
                 double scale) {
  const auto rows = static_cast<std::int64_t>(values.size()) / columns;
  const auto rank = static_cast<std::int64_t>(a.size()) / columns;
  parallel_for(rows, 1 + 16384 / (columns * rank + 1), [&](std::int64_t begin, std::int64_t end) {
    std::vector<float> delta(static_cast<std::size_t>(columns));
    for (std::int64_t row = begin; row < end; ++row) {
      delta.assign(delta.size(), 0.0f);
      for (std::int64_t j = 0; j < rank; ++j) {
        const float factor = b[static_cast<std::size_t>(row * rank + j)];
        const float* from = a.data() + j * columns;
        for (std::int64_t i = 0; i < columns; ++i) delta[static_cast<std::size_t>(i)] += factor * from[i];
      }
      float* to = values.data() + row * columns;
      for (std::int64_t i = 0; i < columns; ++i) {
        to[i] += static_cast<float>(scale) * delta[static_cast<std::size_t>(i)];
      }
    }
  });
}

// Reads a matrix [rows, columns] as its transpose [columns, rows].
std::vector<float> transposed(const StoredTensor& tensor) {
  const std::vector<float> from = read_values<float>(tensor);
  std::vector<float> to(from.size());
  transpose(std::as_bytes(std::span(from)), tensor.shape[0], tensor.shape[1], sizeof(float),
            std::as_writable_bytes(std::span(to)));
  return to;
}

// Name of a tensor inside the base layer of an adapter: "layer.bias" -> "layer.base_layer.bias".
std::string in_base_layer(const std::string& name) {
  const std::size_t dot = name.rfind('.');
  return dot == std::string::npos ? name : text_of(name.substr(0, dot), ".base_layer", name.substr(dot));
}

}  // namespace

AdapterMerge::AdapterMerge(const ModelDirectory& directory) {
  for (const AdapterFolder& folder : directory.adapters()) {
    Adapter adapter{
        folder.weights.get(), AdapterConfig(*folder.config, (folder.path / "adapter_config.json").string()), {}};
    if (adapter.config.ties_tables() && changes_tables(folder)) {
      throw Error(text_of(adapter.config.file(), ": ensure_weight_tying"),
                  "is true, but an adapter shared by embedding and head is not supported",
                  "merge it with PEFT: merge_and_unload");
    }
    for (const StoredTensor& tensor : folder.weights->tensors()) adapter.unused.insert(tensor.name);
    adapters_.push_back(std::move(adapter));
  }
}

void AdapterMerge::apply(const WeightPart& part, std::span<float> values, std::int64_t columns) {
  for (Adapter& adapter : adapters_) apply(adapter, part, values, columns);
}

void AdapterMerge::apply(Adapter& adapter, const WeightPart& part, std::span<float> values, std::int64_t columns) {
  replace_by_whole(adapter, part, values, columns);
  const std::string module = module_of(part.name);
  const auto [a, b, is_table] = factors_of(adapter, module);
  if (a == nullptr) return;
  const double scale = adapter.config.scale(module);
  const std::int64_t rank = adapter.config.rank(module);
  if (is_table) {
    expect_shape(adapter.config, *a, {rank, part.rows});
    expect_shape(adapter.config, *b, {columns, rank});
    if (adapter.config.dora()) {
      throw Error(text_of(adapter.config.file(), ": use_dora"),
                  text_of("is true, but DoRA on ", module, ", an embedding, is not supported"),
                  "merge it with PEFT: merge_and_unload");
    }
    add_product(values, columns, transposed(*b), transposed(*a), scale);
    return;
  }
  expect_shape(adapter.config, *a, {rank, columns});
  expect_shape(adapter.config, *b, {part.rows, rank});
  add_product(values, columns, read_values<float>(*a), read_values<float>(*b), scale);
  scale_rows(adapter, part, values, columns);
}

const StoredTensor* AdapterMerge::take(Adapter& adapter, const std::string& name) {
  const StoredTensor* tensor = adapter.file->find(std::string(kPeftPrefix) + name);
  if (tensor != nullptr) adapter.unused.erase(tensor->name);
  return tensor;
}

void AdapterMerge::replace_by_whole(Adapter& adapter, const WeightPart& part, std::span<float> values,
                                    std::int64_t columns) {
  for (const std::string& name : {in_base_layer(part.name), part.name}) {
    const StoredTensor* whole = take(adapter, name);
    if (whole == nullptr) continue;
    if (part.transposed)
      throw Error(whole->file,
                  text_of("tensor ", whole->name, " is a transposed matrix saved whole, which is not supported"));
    std::vector<std::int64_t> shape{part.rows};
    if (columns > 1 || whole->shape.size() > 1) shape.push_back(columns);
    expect_shape(adapter.config, *whole, shape);
    const std::vector<float> saved = read_values<float>(*whole);
    std::copy(saved.begin(), saved.end(), values.begin());
  }
}

AdapterMerge::Factors AdapterMerge::factors_of(Adapter& adapter, const std::string& module) {
  const AdapterConfig& config = adapter.config;
  const Factors of_matrix{take(adapter, module + ".lora_A.weight"), take(adapter, module + ".lora_B.weight"), false};
  const Factors of_table{take(adapter, module + ".lora_embedding_A"), take(adapter, module + ".lora_embedding_B"),
                         true};
  const Factors factors = of_table.a != nullptr || of_table.b != nullptr ? of_table : of_matrix;
  if (factors.a == nullptr && factors.b == nullptr) return factors;
  if (factors.a == nullptr || factors.b == nullptr) {
    throw Error(adapter.file->name(),
                text_of(module, " has ", factors.a != nullptr ? "lora_A" : "lora_B", " but not the other matrix"));
  }
  if (!config.targets(module)) {
    throw Error(text_of(config.file(), ": target_modules"),
                text_of("gives ", module, " no adapter, for which ", adapter.file->name(), " has tensors"),
                "are both files of one adapter?");
  }
  return factors;
}

void AdapterMerge::scale_rows(Adapter& adapter, const WeightPart& part, std::span<float> values, std::int64_t columns) {
  const AdapterConfig& config = adapter.config;
  const std::string module = module_of(part.name);
  const StoredTensor* magnitude = take(adapter, module + ".lora_magnitude_vector");
  if ((magnitude != nullptr) != config.dora()) {
    throw Error(text_of(config.file(), ": use_dora"),
                text_of("is ", config.dora() ? "true" : "false", ", but ", adapter.file->name(),
                        config.dora() ? " has no magnitudes for " : " has magnitudes for ", module),
                "are both files of one adapter?");
  }
  if (magnitude == nullptr) return;
  expect_shape(config, *magnitude, {part.rows});
  const std::vector<float> magnitudes = read_values<float>(*magnitude);
  for (std::int64_t row = 0; row < part.rows; ++row) {
    normalize(values.subspan(static_cast<std::size_t>(row * columns), static_cast<std::size_t>(columns)),
              magnitudes[static_cast<std::size_t>(row)]);
  }
}

void AdapterMerge::check_all_applied() const {
  for (const Adapter& adapter : adapters_) {
    if (adapter.unused.empty()) continue;
    throw Error(adapter.file->name(),
                text_of("tensor ", *adapter.unused.begin(), " belongs to no weight of the base model"),
                "does base_model_name_or_path name the right one?");
  }
}

}  // namespace hone
