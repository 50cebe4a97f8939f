#include "model/weights.h"

#include <algorithm>
#include <cstring>
#include <set>
#include <string>

#include "core/error.h"
#include "core/json_value.h"
#include "core/random.h"
#include "model/adapter_merge.h"
#include "model/config_reader.h"
#include "model/transpose.h"
#include "ops/normal_fill/normal_fill.h"
#include "ops/registry.h"
#include "program/executable.h"
#include "program/kernel.h"

namespace hone {
namespace {

constexpr std::string_view kHeadTensor = "lm_head.weight";

std::int64_t row_elements(const WeightSpec& spec) {
  std::int64_t elements = 1;
  for (std::size_t i = 1; i < spec.shape.size(); ++i) elements *= spec.shape[i];
  return elements;
}

// As in the checkpoint.
std::vector<std::int64_t> part_shape(const WeightSpec& spec, const WeightPart& part) {
  std::vector<std::int64_t> shape = spec.shape;
  shape[0] = part.rows;
  if (part.transposed) std::swap(shape[0], shape[1]);
  return shape;
}

// Tensors that checkpoints carry although the model derives them.
bool is_derived(const Model& model, std::string_view name) {
  return name.ends_with(".rotary_emb.inv_freq") || name.ends_with(".attn.bias") ||
         name.ends_with(".attn.masked_bias") || (name == kHeadTensor && has_tied_head(model));
}

// The tensor of this name, without the model's base prefix where the folder leaves it away; for the head of a model
// whose embedding an adapter parts from it, the embedding's.
const StoredTensor& stored(const Model& model, const ModelDirectory& directory, const std::string& name) {
  const WeightFiles& files = directory.weights();
  const std::string_view prefix = model.base_prefix();
  if (!prefix.empty() && name.starts_with(prefix) && files.find(name) == nullptr) {
    if (const StoredTensor* bare = files.find(name.substr(prefix.size()))) return *bare;
  }
  if (name == kHeadTensor && !directory.adapters().empty() && files.find(name) == nullptr) {
    for (const WeightSpec& spec : model.weights()) {
      if (spec.kind == WeightKind::embedding) return stored(model, directory, spec.parts[0].name);
    }
  }
  return files.at(name);
}

void refuse_unexpected(const Model& model, const ModelDirectory& directory) {
  const WeightFiles& files = directory.weights();
  std::set<std::string, std::less<>> known;
  for (const WeightSpec& spec : model.weights()) {
    if (!spec.in_folder) continue;
    for (const WeightPart& part : spec.parts) known.insert(stored(model, directory, part.name).name);
  }
  for (const std::string& name : files.names()) {
    if (known.contains(name) || is_derived(model, name)) continue;
    throw Error(files.at(name).file,
                text_of("tensor ", name, " is not part of this ",
                        ConfigReader(model.config()).text("model_type", "model"), " model"),
                "does config.json belong to these weights?");
  }
}

std::vector<std::byte> ones(const Type& type) {
  std::vector<std::byte> bytes(type.bytes());
  for_floating(type.dtype, [&]<class T>() {
    const T one = static_cast<T>(1.0f);
    for (std::size_t at = 0; at < bytes.size(); at += sizeof(T)) std::memcpy(bytes.data() + at, &one, sizeof(T));
  });
  return bytes;
}

// f32 -> bf16 in the same memory.
void narrow(std::span<const float> values, std::span<std::byte> to) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    const BFloat16 value(values[i]);
    std::memcpy(to.data() + i * sizeof(value), &value, sizeof(value));
  }
}

// The rows of the vocabulary in a folder whose model knows fewer tokens than `model`; 0 where it knows as many.
std::int64_t smaller_vocabulary(const Model& model, const ModelDirectory& directory) {
  const std::int64_t stored = ConfigReader(directory.config()).positive("vocab_size", model.shape().vocab_size);
  return stored < model.shape().vocab_size ? stored : 0;
}

// Fills the rows of `block` from `filled` on with the mean of those before.
template <class T>
void fill_with_mean(std::span<std::byte> block, std::int64_t filled, std::int64_t columns) {
  T* values = reinterpret_cast<T*>(block.data());
  const std::int64_t rows = static_cast<std::int64_t>(block.size() / sizeof(T)) / columns;
  for (std::int64_t column = 0; column < columns; ++column) {
    double sum = 0;
    for (std::int64_t row = 0; row < filled; ++row) sum += static_cast<float>(values[row * columns + column]);
    const T mean = static_cast<T>(static_cast<float>(sum / static_cast<double>(filled)));
    for (std::int64_t row = filled; row < rows; ++row) values[row * columns + column] = mean;
  }
}

}  // namespace

std::vector<NamedType> weight_types(const Model& model, DType dtype) {
  std::vector<NamedType> types;
  for (const WeightSpec& spec : model.weights()) {
    types.push_back({spec.name, {spec.dtype.value_or(dtype), Shape(spec.shape.begin(), spec.shape.end())}});
  }
  return types;
}

DType model_dtype(const Model& model, const TensorStore& weights) {
  for (const WeightSpec& spec : model.weights()) {
    if (!spec.dtype) return weights.type(spec.name).dtype;
  }
  throw Defect("no weight of the model has the model's type");
}

void check_weights(const Model& model, const ModelDirectory& directory, Vocabulary vocabulary) {
  const WeightFiles& files = directory.weights();
  if (files.empty()) throw Error(directory.path().string(), "there are no weights (model.safetensors) in this folder");
  refuse_unexpected(model, directory);
  const std::int64_t stored_vocab = vocabulary == Vocabulary::may_grow ? smaller_vocabulary(model, directory) : 0;
  for (const WeightSpec& spec : model.weights()) {
    if (!spec.in_folder) continue;
    for (const WeightPart& part : spec.parts) {
      const StoredTensor& tensor = stored(model, directory, part.name);
      std::vector<std::int64_t> shape = part_shape(spec, part);
      if (stored_vocab > 0 && spec.is_by_token()) shape[0] = stored_vocab;
      if (tensor.shape == shape) continue;
      throw Error(tensor.file, text_of("tensor ", part.name, " is ", shape_text(tensor.shape), ", config.json wants ",
                                       shape_text(shape)));
    }
  }
}

TensorStore load_weights(const Model& model, const ModelDirectory& directory, DType dtype, Device& device,
                         Vocabulary vocabulary) {
  check_weights(model, directory, vocabulary);
  TensorStore store(device, weight_types(model, dtype));
  AdapterMerge merge(directory);
  std::vector<std::byte> block;
  std::vector<std::byte> untransposed;
  const std::int64_t stored_vocab = vocabulary == Vocabulary::may_grow ? smaller_vocabulary(model, directory) : 0;
  for (const WeightSpec& spec : model.weights()) {
    if (!spec.in_folder) continue;
    const DType held = store.type(spec.name).dtype;
    const DType staged = merge.empty() ? held : DType::f32;  // adapters are merged in f32
    const auto elements = static_cast<std::size_t>(store.type(spec.name).elements());
    block.resize(elements * size_of(staged));
    const bool grows = stored_vocab > 0 && spec.is_by_token();
    const std::size_t row_bytes = static_cast<std::size_t>(row_elements(spec)) * size_of(staged);
    for (const WeightPart& part : spec.parts) {
      const StoredTensor& tensor = stored(model, directory, part.name);
      std::vector<std::int64_t> shape = part_shape(spec, part);
      if (grows) shape[0] = stored_vocab;
      const std::size_t bytes = static_cast<std::size_t>(tensor.element_count()) * size_of(staged);
      const std::span<std::byte> rows = std::span(block).subspan(static_cast<std::size_t>(part.row) * row_bytes, bytes);
      if (!part.transposed) {
        read_as(tensor, staged, rows);
        continue;
      }
      untransposed.resize(bytes);
      read_as(tensor, staged, untransposed);
      transpose(untransposed, shape[0], shape[1], size_of(staged), rows);
    }
    if (grows) {
      for_floating(staged, [&]<class T>() { fill_with_mean<T>(block, stored_vocab, row_elements(spec)); });
    }
    if (!merge.empty()) {
      const std::span<float> values(reinterpret_cast<float*>(block.data()), elements);
      for (const WeightPart& part : spec.parts) {
        const std::int64_t columns = row_elements(spec);
        const auto first = static_cast<std::size_t>(part.row * columns);
        merge.apply(part, values.subspan(first, static_cast<std::size_t>(part.rows * columns)), columns);
      }
      if (held != staged) narrow(values, block);
    }
    store.upload(spec.name, std::span(block).first(elements * size_of(held)));
  }
  merge.check_all_applied();
  return store;
}

TensorStore random_weights(const Model& model, std::uint64_t seed, DType dtype, Device& device) {
  HONE_ASSERT(dtype == DType::f32 || dtype == DType::bf16, "weights of ", name_of(dtype));
  register_operations();
  const double deviation = ConfigReader(model.config()).number("initializer_range", 0.02);
  TensorStore store(device, weight_types(model, dtype));
  Program program;
  for (const WeightSpec& spec : model.weights()) {
    if (spec.initializer == Initializer::zeros) continue;  // as a store is made
    if (spec.initializer == Initializer::ones) {
      store.upload(spec.name, ones(store.type(spec.name)));
      continue;
    }
    Tensor weight = program.weight(spec.name, store.type(spec.name));
    for (const WeightPart& part : spec.parts) {
      weight = normal_fill(weight, {.key = static_cast<std::int64_t>(RandomStream(seed, part.name).key()),
                                    .deviation = deviation * spec.deviation,
                                    .first = part.row * row_elements(spec),
                                    .count = part.rows * row_elements(spec)});
    }
  }
  Executable(std::move(program), std::make_shared<Arena>(device), {.weights = &store}).run();
  device.synchronize();
  return store;
}

void save_model(const std::filesystem::path& path, const Model& model, const TensorStore& weights,
                const Json* generation_config) {
  std::vector<TensorSource> sources;
  std::vector<std::byte> staging;
  std::vector<std::byte> transposed;
  for (const WeightSpec& spec : model.weights()) {
    if (!spec.in_folder) continue;
    for (const WeightPart& part : spec.parts) {
      const Type& type = weights.type(spec.name);
      const std::size_t row_bytes = static_cast<std::size_t>(type.row_size()) * size_of(type.dtype);
      sources.push_back({part.name, type.dtype, part_shape(spec, part),
                         [&weights, &staging, &transposed, &spec, &type, part, row_bytes] {
                           staging.resize(static_cast<std::size_t>(part.rows) * row_bytes);
                           weights.device().download(
                               staging.data(), weights.data(spec.name) + static_cast<std::size_t>(part.row) * row_bytes,
                               staging.size());
                           if (!part.transposed) return std::span<const std::byte>(staging);
                           transposed.resize(staging.size());
                           transpose(staging, part.rows, type.row_size(), size_of(type.dtype), transposed);
                           return std::span<const std::byte>(transposed);
                         }});
    }
  }
  Json config = model.config();
  const DType dtype = model_dtype(model, weights);
  const char* name = dtype == DType::bf16 ? "bfloat16" : "float32";
  config[config.contains("dtype") ? "dtype" : "torch_dtype"] = name;
  write_model_directory(path, {.config = config, .generation_config = generation_config, .weights = sources});
}

}  // namespace hone
