// A model's weights in memory: read from a folder, made at random, written back.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <vector>

#include "backend/device.h"
#include "checkpoint/model_directory.h"
#include "model/model.h"
#include "program/tensor_store.h"

namespace hone {

// The blocks of a model's weights by the names of the specs, in `dtype` but for those that have a type of their own.
[[nodiscard]] std::vector<NamedType> weight_types(const Model& model, DType dtype);

// The dtype of those that have the model's.
[[nodiscard]] DType model_dtype(const Model& model, const TensorStore& weights);

enum class Vocabulary : std::uint8_t {
  as_stored,
  may_grow,  // a folder whose config.json has a smaller vocab_size lacks rows of embedding and head: they become the
             // mean of those that are there (transformers' resize_token_embeddings draws them closely around it)
};

// Whether a folder has every weight of the model in its shape, and no other; reads the files' headers alone. Throws
// Error that names file, tensor and both shapes.
void check_weights(const Model& model, const ModelDirectory& directory, Vocabulary vocabulary = Vocabulary::as_stored);

// Every weight read and converted. Throws Error where a tensor is missing, has another shape (both are shown) or is one
// that the model does not have; nothing is returned half loaded. Stages piece_bytes of the host's memory, or one part:
// where the folder has adapters to be merged (in f32 then), holds the part transposed, or has fewer rows of it.
[[nodiscard]] TensorStore load_weights(const Model& model, const ModelDirectory& directory, DType dtype, Device& device,
                                       Vocabulary vocabulary = Vocabulary::as_stored,
                                       std::size_t piece_bytes = kPieceBytes);

// Normal numbers of deviation initializer_range (config.json; 0.02), zeros and ones, as the specs say. Each depends on
// the seed, its tensor's name in the checkpoint and its index alone.
[[nodiscard]] TensorStore random_weights(const Model& model, std::uint64_t seed, DType dtype, Device& device);

// Writes config.json and the weights for transformers to load, in pieces; a matrix that is stored transposed is staged
// whole. `generation_config` may be null.
void save_model(const std::filesystem::path& path, const Model& model, const TensorStore& weights,
                const Json* generation_config);

}  // namespace hone
