// Named tensors in one piece of a device's memory: a weight set, its gradients, optimizer states, KV pages.
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
  // Zero-filled.
  TensorStore(Device& device, std::span<const NamedType> tensors);
  // In bytes_of(tensors) bytes of the device's memory that are another's, as they are.
  TensorStore(Device& device, std::span<const NamedType> tensors, std::byte* at);

  // The same tensors in the same memory, which is this store's: it must outlive the view.
  [[nodiscard]] TensorStore view() const { return {*device_, tensors_, base_}; }

  // Bytes that such a store takes: the sum of the aligned sizes.
  [[nodiscard]] static std::size_t bytes_of(std::span<const NamedType> tensors);

  [[nodiscard]] std::size_t bytes() const { return bytes_; }
  [[nodiscard]] const std::vector<NamedType>& tensors() const { return tensors_; }
  [[nodiscard]] bool contains(std::string_view name) const { return offsets_.find(name) != offsets_.end(); }
  [[nodiscard]] std::byte* data(std::string_view name) const;  // throws Defect where there is none
  [[nodiscard]] const Type& type(std::string_view name) const;
  [[nodiscard]] Device& device() const { return *device_; }
  // Host copies of one tensor,
  void upload(std::string_view name, std::span<const std::byte> bytes);
  [[nodiscard]] std::vector<std::byte> download(std::string_view name) const;
  // and of its bytes from `begin` on.
  void upload(std::string_view name, std::size_t begin, std::span<const std::byte> bytes);
  void download(std::string_view name, std::size_t begin, std::span<std::byte> bytes) const;
  void copy_from(const TensorStore& other);  // same tensors
  void fill_zero();

 private:
  Device* device_ = nullptr;
  Buffer buffer_;  // empty where the memory is another's
  std::byte* base_ = nullptr;
  std::size_t bytes_ = 0;
  std::vector<NamedType> tensors_;
  std::map<std::string, std::size_t, std::less<>> index_;
  std::map<std::string, std::size_t, std::less<>> offsets_;
};

}  // namespace hone
