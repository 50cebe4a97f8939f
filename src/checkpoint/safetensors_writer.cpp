#include <algorithm>
#include <set>

#include "checkpoint/safetensors.h"
#include "checkpoint/tensor_pieces.h"
#include "core/error.h"
#include "core/json_value.h"

namespace hone {
namespace {

std::string header_text(std::span<const TensorSource* const> sources, std::map<std::string, std::string> metadata) {
  for (const TensorSource* source : sources) {
    if (!source->place.whole.empty()) metadata.emplace(stored_name(*source), place_text(source->place));
  }
  std::string text = "{\"__metadata__\":" + Json(metadata).dump();
  std::uint64_t offset = 0;
  for (const TensorSource* source : sources) {
    const std::uint64_t end = offset + source->byte_count();
    text += text_of(",", Json(stored_name(*source)).dump(), ":{\"dtype\":\"", name_of(source->stored_type()),
                    "\",\"shape\":", Json(source->shape).dump(), ",\"data_offsets\":[", offset, ",", end, "]}");
    offset = end;
  }
  text += "}";
  text.resize((text.size() + 7) / 8 * 8, ' ');  // aligns every tensor to its element size
  return text;
}

}  // namespace

std::string stored_name(const TensorSource& source) {
  return source.place.whole.empty() ? source.name : piece_name(source.name, source.place);
}

std::uint64_t TensorSource::byte_count() const {
  std::uint64_t count = size_of(dtype);
  for (const std::int64_t dimension : shape) count *= static_cast<std::uint64_t>(dimension);
  return count;
}

TensorSource tensor_source(std::string name, DType dtype, std::vector<std::int64_t> shape,
                           std::span<const std::byte> bytes) {
  return {std::move(name), dtype, std::move(shape),
          [bytes](std::uint64_t begin, std::size_t most) { return bytes.subspan(begin, most); }};
}

void write_safetensors(const std::filesystem::path& path, std::span<const TensorSource> sources,
                       const std::map<std::string, std::string>& metadata, std::size_t piece_bytes) {
  std::vector<const TensorSource*> ordered;
  std::set<std::string> names;
  for (const TensorSource& source : sources) {
    HONE_ASSERT(source.name != "__metadata__" && names.insert(stored_name(source)).second, source.name,
                " is reserved or given twice");
    ordered.push_back(&source);
  }
  // StoredType is declared in the order of element sizes.
  std::ranges::sort(ordered, [](const TensorSource* a, const TensorSource* b) {
    const StoredType a_type = a->stored_type();
    const StoredType b_type = b->stored_type();
    return a_type != b_type ? a_type > b_type : stored_name(*a) < stored_name(*b);
  });

  const std::string header = header_text(ordered, metadata);
  const std::uint64_t length = header.size();
  FileWriter file(path);
  file.write(std::as_bytes(std::span(&length, 1)));
  file.write(header);
  for (const TensorSource* source : ordered) {
    const std::size_t bound =
        static_cast<std::size_t>(elements_in_piece(piece_bytes, source->dtype)) * size_of(source->dtype);
    for (std::uint64_t begin = 0; begin < source->byte_count();) {
      const std::size_t most = std::min<std::uint64_t>(bound, source->byte_count() - begin);
      const std::span<const std::byte> bytes = source->piece(begin, most);
      HONE_ASSERT(!bytes.empty() && bytes.size() <= most, source->name, " ", shape_text(source->shape), ": ",
                  bytes.size(), " bytes, requested were at most ", most);
      file.write(bytes);
      begin += bytes.size();
    }
  }
  file.commit();
}

}  // namespace hone
