// Stores the rates of devices measured on this machine in device_rates.json in the cache folder
// (system/cache_folder.h).
#pragma once

#include <filesystem>
#include <string>

#include "backend/device_model.h"

namespace hone {

// Name of the processor as Linux reports it, "AMD EPYC 7B13"; "a processor" if it reports none.
[[nodiscard]] std::string processor_name();

// Key of a device in the file: the name of a GPU, or a CPU's model and the number of threads that hone uses,
// "AMD EPYC 7B13, 8 threads".
[[nodiscard]] std::string device_key(const Device& device);

// Path of the file; empty if there is no cache folder.
[[nodiscard]] std::filesystem::path measured_rates_path();

// Returns the measured rates of the device; all others are unknown. A file that is damaged or has another format is
// ignored with a notice.
[[nodiscard]] DeviceModel measured_model(const Device& device);
// Returns the measured rates, completed by the built-in table.
[[nodiscard]] DeviceModel device_model(const Device& device);

// Stores the measured rates of `model`. Other rates of this device and those of other devices are kept. The file is
// replaced atomically, also if it was damaged. If it cannot be written, logs a warning.
void store_measured(const Device& device, const DeviceModel& model);

}  // namespace hone
