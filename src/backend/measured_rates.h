// Rates of devices as they were measured on this machine: device_rates.json in hone's cache (system/cache_folder.h).
#pragma once

#include <filesystem>
#include <string>

#include "backend/device_model.h"

namespace hone {

// What a device's figures stand under: a GPU's name; a host's processor and the threads that hone uses of it,
// "AMD EPYC 7B13, 8 threads".
[[nodiscard]] std::string device_key(const Device& device);

// The file; empty where there is no cache.
[[nodiscard]] std::filesystem::path measured_rates_path();

// What was measured of the device, and nothing else. A file that was damaged, or that hone did not write, is left aside
// with one line.
[[nodiscard]] DeviceModel measured_model(const Device& device);
// The same before what is built in of its name.
[[nodiscard]] DeviceModel device_model(const Device& device);

// Keeps the measured figures of `model`; others of this device, and those of other devices, stay. The file is written
// beside and renamed; one that was damaged is replaced. A warning, and no Error, where it cannot be written.
void keep_measured(const Device& device, const DeviceModel& model);

}  // namespace hone
