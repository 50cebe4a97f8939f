// Holds named tensors in one contiguous region of a device's memory: weights, gradients, optimizer states, KV pages.
#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "backend/device.h"
#include "program/type.h"

namespace hone {

struct NamedType {
  std::string name;
  Type type;
};

class TensorStore {
 public:
  TensorStore() = default;
  // Allocates the tensors, filled with zeros. Their names must be distinct.
  TensorStore(Device& device, std::span<const NamedType> tensors);
  // Uses bytes_of(tensors) bytes of device memory that the caller owns and keeps their content.
  TensorStore(Device& device, std::span<const NamedType> tensors, std::byte* at);

  // Returns a store of the same tensors that shares this store's memory and must not outlive it.
  [[nodiscard]] TensorStore view() const { return {*device_, tensors_, base_}; }

  // Size in bytes of a store of these tensors: the sum of their aligned sizes.
  [[nodiscard]] static std::size_t bytes_of(std::span<const NamedType> tensors);

  [[nodiscard]] std::size_t bytes() const { return bytes_; }
  [[nodiscard]] const std::vector<NamedType>& tensors() const { return tensors_; }
  [[nodiscard]] bool contains(std::string_view name) const { return offsets_.find(name) != offsets_.end(); }
  [[nodiscard]] std::byte* data(std::string_view name) const;   // device address; throws Defect for an unknown name
  [[nodiscard]] const Type& type(std::string_view name) const;  // throws Defect for an unknown name
  [[nodiscard]] Device& device() const { return *device_; }
  // Copy a whole tensor from or to host memory.
  void upload(std::string_view name, std::span<const std::byte> bytes);
  [[nodiscard]] std::vector<std::byte> download(std::string_view name) const;
  // Copy bytes.size() bytes of a tensor, starting at byte `begin`.
  void upload(std::string_view name, std::size_t begin, std::span<const std::byte> bytes);
  void download(std::string_view name, std::size_t begin, std::span<std::byte> bytes) const;
  void copy_from(const TensorStore& other);  // `other` must have the same tensors on the same device
  void fill_zero();

 private:
  Device* device_ = nullptr;
  Buffer buffer_;  // empty if the caller owns the memory
  std::byte* base_ = nullptr;
  std::size_t bytes_ = 0;
  std::vector<NamedType> tensors_;
  std::map<std::string, std::size_t, std::less<>> index_;    // name -> index into tensors_
  std::map<std::string, std::size_t, std::less<>> offsets_;  // name -> bytes from base_
};

}  // namespace hone
