#include "model/received_tensors.h"

#include <algorithm>
#include <optional>

#include "core/error.h"
#include "model/expert_layout.h"
#include "model/fp8_model.h"
#include "model/fp8_weights.h"
#include "model/weight_tensors.h"

namespace hone {
namespace {

bool is_convertible(StoredType type) {
  return type == StoredType::kF16 || type == StoredType::kBf16 || type == StoredType::kF32 || type == StoredType::kF64;
}

bool is_weight_type(std::optional<DType> type) { return type == DType::kF32 || type == DType::kBf16; }

}  // namespace

std::size_t TensorNotice::bytes() const {
  std::size_t bytes = size_of(type);
  for (const std::int64_t extent : shape) {
    if (extent < 0 || __builtin_mul_overflow(bytes, static_cast<std::size_t>(extent), &bytes))
      throw Error(name, text_of("has the shape ", shape_text(shape)));
  }
  return bytes;
}

ReceivedTensors::ReceivedTensors(const Model& model) : model_(model) {
  tensors_ = checkpoint_tensors(model.weights(), true);
  for (const CheckpointTensor& tensor : tensors_) {
    for (const PartSlice& slice : tensor.slices) {
      ++parts_;
      ignored_.insert(slice.part->copies.begin(), slice.part->copies.end());
    }
  }
  for (const ExpertLayout layout : {ExpertLayout::kSplit, ExpertLayout::kMerged}) {
    std::vector<WeightSpec> specs = specs_of_layout(model.weights(), layout);
    merged_.insert(merged_.end(), std::move_iterator(specs.begin()), std::move_iterator(specs.end()));
  }
  for (std::size_t i = 0; i < tensors_.size(); ++i) index_.emplace(tensors_[i].name, i);
  for (CheckpointTensor& tensor : checkpoint_tensors(merged_, true)) {
    if (!index_.emplace(tensor.name, tensors_.size()).second) continue;
    tensors_.push_back(std::move(tensor));
  }
}

const CheckpointTensor* ReceivedTensors::find(const std::string& name) const {
  for (const std::string& candidate : {name, std::string(model_.base_prefix()) + name}) {
    if (const auto found = index_.find(candidate); found != index_.end()) return &tensors_[found->second];
    if (ignored_.contains(candidate)) return nullptr;
  }
  if (name == "lm_head.weight" && has_tied_head(model_)) return nullptr;
  if (!model_.left_out(name).empty()) return nullptr;
  throw Error(name, "is not a tensor of the model that is served", "send the names of its Hugging Face checkpoint");
}

void ReceivedTensors::check(const TensorNotice& notice) const {
  const CheckpointTensor* tensor = find(notice.name);
  if (!is_convertible(notice.type))
    throw Error(notice.name, text_of("has the type ", name_of(notice.type)), "send BF16, F16, F32 or F64");
  (void)notice.bytes();
  if (tensor != nullptr && notice.shape != tensor->shape)
    throw Error(notice.name,
                text_of("is ", shape_text(notice.shape), ", but the model has ", shape_text(tensor->shape)),
                "the trainer's model must be the one that is served");
}

void ReceivedTensors::begin() {
  loaded_.clear();
  casts_.clear();
}

DeviceCast& ReceivedTensors::cast(DType from, DType to, Device& device) {
  return casts_.try_emplace({from, to}, device, from, to).first->second;
}

void ReceivedTensors::load_slice(const CheckpointTensor& tensor, const PartSlice& slice, const TensorNotice& notice,
                                 const std::byte* data, std::vector<std::byte>& host, TensorStore& weights) {
  const std::string& block = slice.spec->name;
  const bool is_fp8 = is_fp8_block(*slice.spec);
  const DType held = weights.type(block).dtype;
  const std::optional<DType> sent = dtype_of(notice.type);
  if (!is_fp8 && !tensor.transposed && (sent == held || (is_weight_type(sent) && is_weight_type(held)))) {
    const auto elements = static_cast<std::size_t>(slice.elements());
    const std::byte* from = data + static_cast<std::size_t>(slice.first) * size_of(*sent);
    std::byte* to =
        weights.data(block) + static_cast<std::size_t>(slice.part->row * row_elements(*slice.spec)) * size_of(held);
    if (sent == held) return weights.device().copy(to, from, elements * size_of(held));
    return cast(*sent, held, weights.device()).run(from, to, elements);
  }
  if (host.empty()) {
    host.resize(notice.bytes());
    weights.device().download(host.data(), data, host.size());
  }
  const StoredTensor stored{
      .name = notice.name, .type = notice.type, .shape = notice.shape, .bytes = host, .file = "the trainer"};
  if (is_fp8) {
    load_fp8_part(tensor, slice, stored, weights);
  } else {
    load_part(tensor, slice, stored, weights);
  }
}

void ReceivedTensors::load(const TensorNotice& notice, const std::byte* data, TensorStore& weights) {
  const CheckpointTensor* tensor = find(notice.name);
  if (tensor == nullptr) return;
  std::vector<std::byte> host;  // the tensor in host memory, if a slice needs it
  for (const PartSlice& slice : tensor->slices) {
    loaded_.emplace(slice.spec->name, slice.part->row);
    load_slice(*tensor, slice, notice, data, host, weights);
  }
}

}  // namespace hone
