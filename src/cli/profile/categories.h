// What an operation is for, as profiles sort it.
#pragma once

#include <array>
#include <string>
#include <string_view>

namespace hone {

inline constexpr std::array<std::string_view, 10> kCategories{
    "GEMM", "attention", "normalization", "RoPE",   "activation",
    "loss", "optimizer", "communication", "memory", "other"};

// One of them, by the operation's name or the nearest name that it extends: "rms_norm_backward" is sorted as
// "rms_norm".
[[nodiscard]] std::string_view category_of(std::string_view op);

// A scope without the numbers of its layers: "layers.3.mlp" -> "layers.*.mlp".
[[nodiscard]] std::string module_of_scope(std::string_view scope);

}  // namespace hone
