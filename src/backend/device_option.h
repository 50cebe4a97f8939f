// The option `device` of commands.
#pragma once

#include <array>
#include <string_view>

#include "backend/device.h"
#include "core/options.h"

namespace hone {

template <>
struct EnumNames<DeviceChoice> {
  static constexpr std::array<std::string_view, 3> kNames{"auto", "cpu", "cuda"};
  static constexpr std::array<std::pair<std::string_view, std::string_view>, 1> kAliases{{{"gpu", "cuda"}}};
  static constexpr EnumTable value{.names = kNames, .aliases = kAliases};
};

// Reads as "v("device", device, kDeviceHelp)".
inline constexpr std::string_view kDeviceHelp = "Where to run; auto: the GPU where there is one";

}  // namespace hone
