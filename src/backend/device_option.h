// The option `device` of commands.
#pragma once

#include <string_view>

#include "backend/device.h"
#include "core/options.h"

namespace hone {

template <>
inline constexpr EnumTable kEnumTable<DeviceChoice>{.names = "auto|cpu|cuda", .aliases = "gpu=cuda"};

// Reads as "v("device", device, kDeviceHelp)".
inline constexpr std::string_view kDeviceHelp = "Where to run; auto: the GPU where there is one";

}  // namespace hone
