#include <algorithm>
#include <set>

#include "checkpoint/safetensors.h"
#include "core/error.h"
#include "core/json_value.h"

namespace hone {
namespace {

std::string header_text(std::span<const TensorSource* const> sources,
                        const std::map<std::string, std::string>& metadata) {
  std::string text = "{\"__metadata__\":" + Json(metadata).dump();
  std::uint64_t offset = 0;
  for (const TensorSource* source : sources) {
    const std::uint64_t end = offset + source->byte_count();
    text += text_of(",", Json(source->name).dump(), ":{\"dtype\":\"", name_of(stored_type_of(source->dtype)),
                    "\",\"shape\":", Json(source->shape).dump(), ",\"data_offsets\":[", offset, ",", end, "]}");
    offset = end;
  }
  text += "}";
  text.resize((text.size() + 7) / 8 * 8, ' ');  // so that every tensor is aligned to its elements
  return text;
}

}  // namespace

std::uint64_t TensorSource::byte_count() const {
  std::uint64_t count = size_of(dtype);
  for (const std::int64_t dimension : shape) count *= static_cast<std::uint64_t>(dimension);
  return count;
}

void write_safetensors(const std::filesystem::path& path, std::span<const TensorSource> sources,
                       const std::map<std::string, std::string>& metadata) {
  std::vector<const TensorSource*> ordered;
  std::set<std::string_view> names;
  for (const TensorSource& source : sources) {
    HONE_ASSERT(source.name != "__metadata__" && names.insert(source.name).second, source.name, " twice or reserved");
    ordered.push_back(&source);
  }
  // StoredType is declared in the order of widths.
  std::ranges::sort(ordered, [](const TensorSource* a, const TensorSource* b) {
    const StoredType a_type = stored_type_of(a->dtype);
    const StoredType b_type = stored_type_of(b->dtype);
    return a_type != b_type ? a_type > b_type : a->name < b->name;
  });

  const std::string header = header_text(ordered, metadata);
  const std::uint64_t length = header.size();
  FileWriter file(path);
  file.write(std::as_bytes(std::span(&length, 1)));
  file.write(header);
  for (const TensorSource* source : ordered) {
    const std::span<const std::byte> bytes = source->bytes();
    HONE_ASSERT(bytes.size() == source->byte_count(), source->name, " ", shape_text(source->shape), ": ", bytes.size(),
                " bytes");
    file.write(bytes);
  }
  file.commit();
}

}  // namespace hone
