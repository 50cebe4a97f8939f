// Loads, initializes and saves the weights of a model.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <vector>

#include "backend/device.h"
#include "checkpoint/model_directory.h"
#include "model/model.h"
#include "program/tensor_store.h"

namespace hone {

// Names and types of the model's weight blocks: `dtype`, or the fixed type of the spec if it has one.
[[nodiscard]] std::vector<NamedType> weight_types(const Model& model, DType dtype);

// The dtype of the loaded weights that have no fixed type.
[[nodiscard]] DType model_dtype(const Model& model, const TensorStore& weights);

// The handling of a folder with fewer tokens than the model.
enum class Vocabulary : std::uint8_t {
  kAsStored,  // an error
  kMayGrow,   // if config.json has a smaller vocab_size, missing rows of embedding and head become the mean of the
              // existing rows (transformers' resize_token_embeddings draws them close to that mean)
};

// Checks that a folder has exactly the weights of the model, in their shapes. Reads only the headers of the files.
// Throws Error with file, tensor and both shapes.
void check_weights(const Model& model, const ModelDirectory& directory, Vocabulary vocabulary = Vocabulary::kAsStored);

// Loads and converts all weights and merges the adapters of the folder (in f32). Throws Error if a tensor is missing,
// has another shape (the message states both) or does not belong to the model. The staging buffer in host memory takes
// piece_bytes, or a whole part if adapters are merged or the part is stored transposed or with fewer rows.
[[nodiscard]] TensorStore load_weights(const Model& model, const ModelDirectory& directory, DType dtype, Device& device,
                                       Vocabulary vocabulary = Vocabulary::kAsStored,
                                       std::size_t piece_bytes = kPieceBytes);

// Loads the weights one after the other, as load_weights() does: calls take(index of the weight, a store in host memory
// that has this weight alone).
void load_each_weight(const Model& model, const ModelDirectory& directory, DType dtype, Vocabulary vocabulary,
                      const std::function<void(std::size_t index, const TensorStore& weight)>& take);

// Loads the weights of another folder of the same model into `weights`, in place. Checks the folder before it changes
// anything: throws Error and changes nothing if config.json differs in a key that the computation depends on, if a
// tensor is missing or has another shape, or if the folder holds an adapter. Throws Error as well if a file cannot be
// read to its end, which leaves some weights old and some new: `begun` is set to true before the first weight changes.
void reload_weights(const Model& model, const ModelDirectory& directory, TensorStore& weights, bool& begun);

// Initializes all weights as their specs require: with zeros, ones or normal numbers of standard deviation
// initializer_range (config.json; default 0.02) x WeightSpec::deviation. Each number depends only on the seed, its
// tensor's name in the checkpoint and its index.
[[nodiscard]] TensorStore random_weights(const Model& model, std::uint64_t seed, DType dtype, Device& device);

// Returns a store of one weight of the model with the numbers that it has in random_weights().
[[nodiscard]] TensorStore random_weight(const Model& model, const WeightSpec& spec, std::uint64_t seed, DType dtype,
                                        Device& device);

// Writes a model folder that transformers can load: config.json, the weights and, unless it is null,
// `generation_config`. Weights are staged in pieces, a matrix that is stored transposed as a whole.
void save_model(const std::filesystem::path& path, const Model& model, const TensorStore& weights,
                const Json* generation_config);

}  // namespace hone
