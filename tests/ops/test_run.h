// Runs a program on the tested device with its own zero-filled stores, for tests that compare runs bit by bit.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/random.h"
#include "ops/registry.h"
#include "program/executable.h"
#include "support/bits.h"
#include "support/device.h"

namespace hone::test {

class TestRun {
 public:
  explicit TestRun(Program program)
      : weights_(test_device(), bound(program, Role::kWeight)),
        gradients_(test_device(), bound(program, Role::kGradient)),
        states_(test_device(), bound(program, Role::kState)),
        arena_(std::make_shared<Arena>(test_device())),
        executable_(registered(std::move(program)), arena_,
                    {.weights = &weights_, .gradients = &gradients_, .states = &states_}) {
    if (arena_->bytes() > 0) test_device().fill(arena_->base(), 0xFF, arena_->bytes());
  }

  [[nodiscard]] TensorStore& weights() { return weights_; }
  [[nodiscard]] TensorStore& gradients() { return gradients_; }
  [[nodiscard]] TensorStore& states() { return states_; }
  [[nodiscard]] Executable& executable() { return executable_; }

  template <class T>
  void set(std::string_view input, const std::vector<T>& values) {
    executable_.set<T>(input, values);
  }
  template <class T>
  void set_weight(std::string_view name, const std::vector<T>& values) {
    weights_.upload(name, std::as_bytes(std::span(values)));
  }
  // The first `count` elements of an output.
  template <class T>
  [[nodiscard]] std::vector<T> output(std::string_view name, std::size_t count) const {
    std::vector<T> values(count);
    executable_.get<T>(name, values);
    return values;
  }
  [[nodiscard]] std::vector<std::byte> gradient(std::string_view weight) const { return gradients_.download(weight); }

 private:
  static Program registered(Program program) {
    register_operations();
    return program;
  }
  static std::vector<NamedType> bound(const Program& program, Role role) {
    std::vector<NamedType> types;
    for (const Value& value : program.values()) {
      if (value.producer < 0 && value.role == role) types.push_back({value.name, value.type});
    }
    return types;
  }

  TensorStore weights_;
  TensorStore gradients_;
  TensorStore states_;
  std::shared_ptr<Arena> arena_;
  Executable executable_;
};

template <class T>
[[nodiscard]] std::vector<T> normal_values(std::size_t count, std::uint64_t seed) {
  const RandomStream random(seed, "test values");
  std::vector<T> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = static_cast<T>(random.normal(i));
  return values;
}

}  // namespace hone::test
