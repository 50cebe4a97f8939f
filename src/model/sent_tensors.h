// The tensors of a model's checkpoint one by one in the memory of a device, for processes that receive them there
// (received_tensors.h).
#pragma once

#include <cstddef>
#include <map>
#include <utility>
#include <vector>

#include "checkpoint/safetensors.h"
#include "model/device_cast.h"
#include "model/model.h"
#include "model/received_tensors.h"
#include "model/weight_layout.h"
#include "program/tensor_store.h"

namespace hone {

class SentTensors {
 public:
  // The blocks of `model` are in `weights`, and the tensors are given in memory of `device`: that of the weights, or
  // another one if they are in host memory. narrows: f32 weights without a fixed type are sent as bf16, rounded to
  // nearest even. All references must outlive the object.
  SentTensors(const Model& model, const TensorStore& weights, Device& device, bool narrows);

  [[nodiscard]] Device& device() const { return device_; }
  // Names, types and shapes of all tensors, as a folder of the model has them.
  [[nodiscard]] const std::vector<TensorNotice>& notices() const { return notices_; }
  // Returns the address of a tensor in the weights, if they have its elements as they are sent; null if copy() must put
  // them together.
  [[nodiscard]] std::byte* in_place(std::size_t index) const;
  // Copies a tensor to notices()[index].bytes() bytes of the device, which need no alignment, in order with its other
  // work. Types are converted on the device. Matrices that a checkpoint stores transposed, and weights in the memory of
  // another device, go through host memory in pieces.
  void copy(std::size_t index, std::byte* to);

 private:
  [[nodiscard]] bool narrows(std::size_t index) const;
  [[nodiscard]] bool is_here(std::size_t index) const;
  [[nodiscard]] std::byte* place_of(const PartSlice& slice) const;
  void copy_through_host(std::size_t index, std::byte* to);
  // Returns the conversion between two types on the device.
  [[nodiscard]] DeviceCast& cast(DType from, DType to);

  const TensorStore& weights_;
  Device& device_;
  std::vector<CheckpointTensor> tensors_;
  std::vector<TensorNotice> notices_;  // [tensors]
  std::vector<TensorSource> sources_;  // [tensors]
  std::map<std::pair<DType, DType>, DeviceCast> casts_;
};

}  // namespace hone
