#include "program/tensor_store.h"

#include "core/error.h"

namespace hone {

std::size_t TensorStore::bytes_of(std::span<const NamedType> tensors) {
  std::size_t bytes = 0;
  for (const NamedType& tensor : tensors) bytes += align_up(tensor.type.bytes());
  return bytes;
}

TensorStore::TensorStore(Device& device, std::span<const NamedType> tensors) : TensorStore(device, tensors, nullptr) {
  buffer_ = Buffer(device, bytes_);
  base_ = buffer_.data();
}

TensorStore::TensorStore(Device& device, std::span<const NamedType> tensors, std::byte* at)
    : device_(&device), base_(at), bytes_(bytes_of(tensors)), tensors_(tensors.begin(), tensors.end()) {
  std::size_t offset = 0;
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    const bool added = offsets_.emplace(tensors_[i].name, offset).second;
    HONE_ASSERT(added, "two tensors are named ", tensors_[i].name);
    index_.emplace(tensors_[i].name, i);
    offset += align_up(tensors_[i].type.bytes());
  }
}

std::byte* TensorStore::data(std::string_view name) const {
  const auto found = offsets_.find(name);
  if (found == offsets_.end()) throw Defect(text_of("no tensor ", name, " in the store"));
  return base_ + found->second;
}

const Type& TensorStore::type(std::string_view name) const {
  const auto found = index_.find(name);
  if (found == index_.end()) throw Defect(text_of("no tensor ", name, " in the store"));
  return tensors_[found->second].type;
}

void TensorStore::upload(std::string_view name, std::span<const std::byte> bytes) {
  HONE_ASSERT(bytes.size() == type(name).bytes(), name, ": ", bytes.size(), " bytes for ", to_text(type(name)));
  device_->upload(data(name), bytes.data(), bytes.size());
}

std::vector<std::byte> TensorStore::download(std::string_view name) const {
  std::vector<std::byte> bytes(type(name).bytes());
  device_->download(bytes.data(), data(name), bytes.size());
  return bytes;
}

void TensorStore::upload(std::string_view name, std::size_t begin, std::span<const std::byte> bytes) {
  const std::size_t size = type(name).bytes();
  HONE_ASSERT(begin <= size && bytes.size() <= size - begin, name, ": bytes ", begin, " to ", begin + bytes.size(),
              " of ", size);
  device_->upload(data(name) + begin, bytes.data(), bytes.size());
}

void TensorStore::download(std::string_view name, std::size_t begin, std::span<std::byte> bytes) const {
  const std::size_t size = type(name).bytes();
  HONE_ASSERT(begin <= size && bytes.size() <= size - begin, name, ": bytes ", begin, " to ", begin + bytes.size(),
              " of ", size);
  device_->download(bytes.data(), data(name) + begin, bytes.size());
}

void TensorStore::copy_from(const TensorStore& other) {
  HONE_ASSERT(device_ == &other.device(), "the stores are on different devices");
  for (const NamedType& tensor : tensors_) {
    HONE_ASSERT(other.type(tensor.name) == tensor.type, tensor.name, " differs in type");
    device_->copy(data(tensor.name), other.data(tensor.name), tensor.type.bytes());
  }
}

void TensorStore::fill_zero() {
  if (bytes_ > 0) device_->fill(base_, 0, bytes_);
}

}  // namespace hone
