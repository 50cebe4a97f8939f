// What an operation is for, as profiles sort it.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>

namespace hone {

inline constexpr std::array<std::string_view, 11> kCategories{
    "GEMM", "attention", "normalization", "RoPE",   "activation", "elementwise",
    "loss", "optimizer", "communication", "memory", "other"};

// One of them, by the operation's name or the nearest name that it extends: "rms_norm_backward" is sorted as
// "rms_norm". Nothing where no name fits: every registered operation has one.
[[nodiscard]] std::optional<std::string_view> known_category(std::string_view op);
// The same, "other" where no name fits.
[[nodiscard]] std::string_view category_of(std::string_view op);

// A scope without the numbers of its layers: "layers.3.mlp" -> "layers.*.mlp".
[[nodiscard]] std::string module_of_scope(std::string_view scope);

}  // namespace hone
