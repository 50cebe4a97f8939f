#include "backend/measured_rates.h"

#include <cmath>
#include <fstream>

#include "backend/cpu/bf16_products.h"
#include "core/error.h"
#include "core/files.h"
#include "core/json.h"
#include "core/json_value.h"
#include "core/log.h"
#include "core/parallel.h"
#include "core/strings.h"
#include "system/cache_folder.h"

namespace hone {
namespace fs = std::filesystem;
namespace {

constexpr std::string_view kRatesFormat = "hone device rates 1";
constexpr std::uintmax_t kLargestRates = std::uintmax_t{1} << 20;  // bytes; hone writes no file that large
constexpr double kLargestFigure = 1e18;

struct RateField {
  const char* name;
  DeviceRate DeviceModel::* rate;
};
constexpr RateField kRateFields[] = {{"f32_flops", &DeviceModel::f32_flops},
                                     {"bf16_flops", &DeviceModel::bf16_flops},
                                     {"copy_bytes", &DeviceModel::copy_bytes},
                                     {"link_bytes", &DeviceModel::link_bytes}};

double figure_of(const Json& value) {
  const double figure = value.is_number() ? value.get<double>() : 0;
  if (!(figure > 0 && figure < kLargestFigure)) throw Error("", text_of("expected a rate, saw ", value.dump()));
  return figure;
}

CopyRate copy_of(const Json& pair) {
  if (!pair.is_array() || pair.size() != 2) throw Error("", text_of("expected [bytes, rate], saw ", pair.dump()));
  return {figure_of(pair[0]), figure_of(pair[1])};
}

DeviceModel model_from(const std::string& name, const Json& entry) {
  if (!entry.is_object()) throw Error("", text_of("expected the rates of ", name));
  DeviceModel model{.name = name};
  for (const RateField& field : kRateFields) {
    if (entry.contains(field.name)) model.*field.rate = {figure_of(entry[field.name]), RateSource::kMeasured};
  }
  if (!entry.contains("copies")) return model;
  for (const Json& pair : entry["copies"]) {
    model.copies.push_back(copy_of(pair));
    if (model.copies.size() > 1 && model.copies.back().bytes <= model.copies[model.copies.size() - 2].bytes) {
      throw Error("", "the sizes of copies do not ascend");
    }
  }
  return model;
}

Json entry_of(const DeviceModel& model) {
  Json entry = Json::object();
  for (const RateField& field : kRateFields) {
    const DeviceRate& rate = model.*field.rate;
    if (rate.source == RateSource::kMeasured) entry[field.name] = rate.per_second;
  }
  for (const CopyRate& copy : model.copies) entry["copies"].push_back({copy.bytes, copy.bytes_per_second});
  return entry;
}

// Reads the entries of all devices. Throws Error if the file or one of its entries is not valid.
Json read_entries(const fs::path& path) {
  std::error_code unknown;
  if (const std::uintmax_t bytes = fs::file_size(path, unknown); !unknown && bytes > kLargestRates) {
    throw Error("", "is too large");
  }
  const Json file = read_json(path);
  if (!file.is_object() || !file.contains("format") || file["format"] != Json(kRatesFormat) ||
      !file.contains("devices") || !file["devices"].is_object()) {
    throw Error("", "has another format");
  }
  for (const auto& [name, entry] : file["devices"].items()) (void)model_from(name, entry);
  return file["devices"];
}

Json read_entries_or_empty(const fs::path& path) {
  if (path.empty() || !is_file(path)) return Json::object();
  try {
    return read_entries(path);
  } catch (const Error& error) {
    log_once(text_of(path.string(), " is ignored: not a valid file of device rates: ", error.what()));
    return Json::object();
  }
}

}  // namespace

std::string processor_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const std::size_t colon = line.find(':');
    if (!line.starts_with("model name") || colon == std::string::npos) continue;
    if (const std::string_view name = trim(std::string_view(line).substr(colon + 1)); !name.empty()) {
      return std::string(name);
    }
  }
  return "a processor";
}

std::string device_key(const Device& device) {
  if (device.kind() != DeviceKind::kCpu) return printable_line(device.name());
  // The kinds of bf16 products have different rates.
  const Bf16Products kind = bf16_products();
  const std::string_view products = kind == Bf16Products::kAmx      ? ", amx"
                                    : kind == Bf16Products::kAvx512 ? ", avx512"
                                                                    : "";
  return printable_line(text_of(processor_name(), products, ", ", thread_count(), " threads"));
}

fs::path measured_rates_path() {
  const fs::path folder = cache_folder();
  return folder.empty() ? fs::path() : folder / "device_rates.json";
}

DeviceModel measured_model(const Device& device) {
  const std::string key = device_key(device);
  const Json entries = read_entries_or_empty(measured_rates_path());
  DeviceModel model = entries.contains(key) ? model_from(key, entries[key]) : DeviceModel{};
  model.name = device.name();
  return model;
}

DeviceModel device_model(const Device& device) { return merged(measured_model(device), built_in_model(device.name())); }

void store_measured(const Device& device, const DeviceModel& model) {
  const fs::path path = measured_rates_path();
  if (path.empty()) return;
  try {
    Json entries = read_entries_or_empty(path);
    Json& entry = entries[device_key(device)];
    if (entry.is_null()) entry = Json::object();
    entry.update(entry_of(model));
    hone::create_directories(path.parent_path());
    write_json(path, {{"format", kRatesFormat}, {"devices", std::move(entries)}});
  } catch (const Error& error) {
    log_warning(text_of("cannot store the rates of the device: ", error.what()));
  }
}

}  // namespace hone
