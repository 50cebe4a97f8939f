#include "model/weights.h"

#include <cstring>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "core/error.h"
#include "core/parallel.h"
#include "core/random.h"
#include "model/config_reader.h"

namespace hone {
namespace {

std::int64_t row_elements(const WeightSpec& spec) {
  std::int64_t elements = 1;
  for (std::size_t i = 1; i < spec.shape.size(); ++i) elements *= spec.shape[i];
  return elements;
}

std::vector<std::int64_t> part_shape(const WeightSpec& spec, const WeightPart& part) {
  std::vector<std::int64_t> shape = spec.shape;
  shape[0] = part.rows;
  return shape;
}

// Tensors that checkpoints carry although the model derives them.
bool is_derived(const Model& model, std::string_view name) {
  return name.ends_with(".rotary_emb.inv_freq") || (name == "lm_head.weight" && model.head() == "embedding");
}

void refuse_unexpected(const Model& model, const WeightFiles& files) {
  std::set<std::string, std::less<>> known;
  for (const WeightSpec& spec : model.weights()) {
    for (const WeightPart& part : spec.parts) known.insert(part.name);
  }
  for (const std::string& name : files.names()) {
    if (known.contains(name) || is_derived(model, name)) continue;
    throw Error(files.at(name).file,
                text_of("tensor ", name, " is not part of this ",
                        ConfigReader(model.config()).text("model_type", "model"), " model"),
                "does config.json belong to these weights?");
  }
}

}  // namespace

std::vector<NamedType> weight_types(const Model& model, DType dtype) {
  std::vector<NamedType> types;
  for (const WeightSpec& spec : model.weights()) {
    types.push_back({spec.name, {dtype, Shape(spec.shape.begin(), spec.shape.end())}});
  }
  return types;
}

TensorStore load_weights(const Model& model, const ModelDirectory& directory, DType dtype, Device& device) {
  const WeightFiles& files = directory.weights();
  if (files.empty()) throw Error(directory.path().string(), "there are no weights (model.safetensors) in this folder");
  refuse_unexpected(model, files);
  TensorStore store(device, weight_types(model, dtype));
  std::vector<std::byte> block;
  for (const WeightSpec& spec : model.weights()) {
    block.resize(store.type(spec.name).bytes());
    const std::size_t row_bytes = static_cast<std::size_t>(row_elements(spec)) * size_of(dtype);
    for (const WeightPart& part : spec.parts) {
      const StoredTensor& tensor = files.at(part.name);
      const std::vector<std::int64_t> shape = part_shape(spec, part);
      if (tensor.shape != shape) {
        throw Error(tensor.file, text_of("tensor ", part.name, " is ", shape_text(tensor.shape), ", config.json wants ",
                                         shape_text(shape)));
      }
      read_as(tensor, dtype,
              std::span(block).subspan(static_cast<std::size_t>(part.row) * row_bytes,
                                       static_cast<std::size_t>(part.rows) * row_bytes));
    }
    store.upload(spec.name, block);
  }
  return store;
}

TensorStore random_weights(const Model& model, std::uint64_t seed, DType dtype, Device& device) {
  HONE_ASSERT(dtype == DType::f32 || dtype == DType::bf16, "weights of ", name_of(dtype));
  const auto deviation = static_cast<float>(ConfigReader(model.config()).number("initializer_range", 0.02));
  TensorStore store(device, weight_types(model, dtype));
  std::vector<std::byte> block;
  for (const WeightSpec& spec : model.weights()) {
    block.resize(store.type(spec.name).bytes());
    const auto put = [&](std::size_t at, float value) {
      if (dtype == DType::f32) {
        std::memcpy(block.data() + at * sizeof(float), &value, sizeof(float));
      } else {
        const BFloat16 narrow(value);
        std::memcpy(block.data() + at * sizeof(BFloat16), &narrow, sizeof(BFloat16));
      }
    };
    for (const WeightPart& part : spec.parts) {
      const RandomStream random(seed, part.name);
      const std::int64_t first = part.row * row_elements(spec);
      parallel_for(part.rows * row_elements(spec), 4096, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t i = begin; i < end; ++i) {
          const float value = spec.initializer == Initializer::zeros ? 0.0f
                              : spec.initializer == Initializer::ones
                                  ? 1.0f
                                  : deviation * random.normal(static_cast<std::uint64_t>(i));
          put(static_cast<std::size_t>(first + i), value);
        }
      });
    }
    store.upload(spec.name, block);
  }
  return store;
}

void save_model(const std::filesystem::path& path, const Model& model, const TensorStore& weights,
                const Json* generation_config) {
  std::vector<TensorSource> sources;
  std::vector<std::byte> staging;
  for (const WeightSpec& spec : model.weights()) {
    for (const WeightPart& part : spec.parts) {
      const Type& type = weights.type(spec.name);
      const std::size_t row_bytes = static_cast<std::size_t>(type.row_size()) * size_of(type.dtype);
      sources.push_back({part.name, type.dtype, part_shape(spec, part), [&weights, &staging, &spec, part, row_bytes] {
                           staging.resize(static_cast<std::size_t>(part.rows) * row_bytes);
                           weights.device().download(
                               staging.data(), weights.data(spec.name) + static_cast<std::size_t>(part.row) * row_bytes,
                               staging.size());
                           return std::span<const std::byte>(staging);
                         }});
    }
  }
  Json config = model.config();
  const DType dtype = weights.tensors().front().type.dtype;
  const char* name = dtype == DType::bf16 ? "bfloat16" : "float32";
  config[config.contains("dtype") ? "dtype" : "torch_dtype"] = name;
  write_model_directory(path, {.config = config, .generation_config = generation_config, .weights = sources});
}

}  // namespace hone
