#include "model/sent_tensors.h"

#include <cstring>

#include "core/error.h"
#include "model/weight_tensors.h"

namespace hone {
namespace {

constexpr std::size_t kHostPiece = std::size_t{16} << 20;  // bytes

DType held_type(const CheckpointTensor& tensor, const TensorStore& weights) {
  return weights.type(tensor.slices.front().spec->name).dtype;
}

// Rounds f32 to bf16.
std::vector<BFloat16> narrowed(std::span<const std::byte> piece) {
  std::vector<BFloat16> result(piece.size() / sizeof(float));
  for (std::size_t i = 0; i < result.size(); ++i) {
    float value = 0;
    std::memcpy(&value, piece.data() + i * sizeof value, sizeof value);
    result[i] = BFloat16(value);
  }
  return result;
}

}  // namespace

SentTensors::SentTensors(const Model& model, const TensorStore& weights, Device& device, bool narrows)
    : weights_(weights), device_(device), tensors_(checkpoint_tensors(model.weights(), true)) {
  std::map<std::string, TensorSource> sources;  // some are copies of others, which receivers make themselves
  for (TensorSource& source : weight_sources(model.weights(), true, weights))
    sources.emplace(source.name, std::move(source));
  for (const CheckpointTensor& tensor : tensors_) {
    const DType held = held_type(tensor, weights);
    const bool is_narrowed = narrows && held == DType::kF32 && !tensor.slices.front().spec->dtype;
    notices_.push_back({tensor.name, stored_type_of(is_narrowed ? DType::kBf16 : held), tensor.shape});
    sources_.push_back(std::move(sources.at(tensor.name)));
  }
}

bool SentTensors::narrows(std::size_t index) const {
  return notices_[index].type != stored_type_of(held_type(tensors_[index], weights_));
}

bool SentTensors::is_here(std::size_t index) const {
  return &weights_.device() == &device_ && !tensors_[index].transposed;
}

std::byte* SentTensors::place_of(const PartSlice& slice) const {
  const std::string& block = slice.spec->name;
  const auto first = static_cast<std::size_t>(slice.part->row * row_elements(*slice.spec));
  return weights_.data(block) + first * size_of(weights_.type(block).dtype);
}

std::byte* SentTensors::in_place(std::size_t index) const {
  if (!is_here(index) || narrows(index)) return nullptr;
  const CheckpointTensor& tensor = tensors_[index];
  const std::size_t size = size_of(held_type(tensor, weights_));
  std::byte* end = nullptr;
  for (const PartSlice& slice : tensor.slices) {
    std::byte* const begin = place_of(slice);
    if (end != nullptr && begin != end) return nullptr;
    end = begin + static_cast<std::size_t>(slice.elements()) * size;
  }
  return place_of(tensor.slices.front());
}

DeviceCast& SentTensors::cast(DType from, DType to) {
  return casts_.try_emplace({from, to}, device_, from, to).first->second;
}

void SentTensors::copy(std::size_t index, std::byte* to) {
  if (!is_here(index)) return copy_through_host(index, to);
  const DType held = held_type(tensors_[index], weights_);
  for (const PartSlice& slice : tensors_[index].slices) {
    const auto elements = static_cast<std::size_t>(slice.elements());
    if (narrows(index)) {
      cast(held, DType::kBf16).run(place_of(slice), to, elements);
      to += elements * sizeof(BFloat16);
    } else {
      device_.copy(to, place_of(slice), elements * size_of(held));
      to += elements * size_of(held);
    }
  }
}

void SentTensors::copy_through_host(std::size_t index, std::byte* to) {
  const TensorSource& source = sources_[index];
  const std::uint64_t bytes = source.byte_count();
  for (std::uint64_t begin = 0; begin < bytes;) {
    const std::size_t most = std::min<std::uint64_t>(kHostPiece, bytes - begin);
    std::span<const std::byte> piece = source.piece(begin, most);
    piece = piece.first(std::min(piece.size(), most));
    begin += piece.size();
    if (!narrows(index)) {
      device_.upload(to, piece.data(), piece.size());
      to += piece.size();
      continue;
    }
    const std::vector<BFloat16> rounded = narrowed(piece);
    device_.upload(to, rounded.data(), rounded.size() * sizeof(BFloat16));
    to += rounded.size() * sizeof(BFloat16);
  }
}

}  // namespace hone
