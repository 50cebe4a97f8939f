// The tensors of a folder that hone convert writes, from or to FP8.
#pragma once

#include <cstddef>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "checkpoint/fp8_tensor.h"
#include "checkpoint/safetensors.h"
#include "model/model.h"

namespace hone {

// Returns the source of an FP8 tensor in bf16 or f32. All sources with this buffer must be read in turn.
[[nodiscard]] TensorSource converted_from_fp8(const ScaledTensor& tensor, DType dtype, std::vector<std::byte>& buffer);
// Returns the sources of an FP8 tensor and of its scales as they are.
[[nodiscard]] std::vector<TensorSource> kept_in_fp8(const ScaledTensor& tensor);

// Converts the matrices of linear layers of a model to FP8, those that an Fp8Model (model/fp8_model.h) has in FP8.
class Fp8Conversion {
 public:
  // `files` must outlive the sources.
  Fp8Conversion(const Model& model, const WeightFiles& files);

  // Returns true if the tensor is one of those matrices.
  [[nodiscard]] bool takes(const StoredTensor& tensor) const { return names_.contains(tensor.name); }
  // Returns the sources of the matrix in FP8 and of its scales. Each quantizes the matrix when it is read, unless it
  // was the last one.
  [[nodiscard]] std::vector<TensorSource> sources(const StoredTensor& tensor) const;
  // Modules with a matrix that stays as it is: head, routers, experts and embeddings.
  [[nodiscard]] const std::vector<std::string>& kept() const { return kept_; }

 private:
  struct Quantized;
  std::set<std::string, std::less<>> names_;
  std::vector<std::string> kept_;
  std::shared_ptr<Quantized> last_;
};

}  // namespace hone
