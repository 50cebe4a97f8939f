#include "model/weight_tensors.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "core/error.h"
#include "model/transpose.h"

namespace hone {
namespace {

// Byte offset of a part in its block.
std::size_t offset_of(const PartSlice& slice, std::size_t element_bytes) {
  return static_cast<std::size_t>(slice.part->row * row_elements(*slice.spec)) * element_bytes;
}

// Downloads bytes [begin, begin + out.size()) of the concatenated slices of a tensor.
void download_slices(const CheckpointTensor& tensor, const TensorStore& weights, std::size_t begin,
                     std::span<std::byte> out) {
  const std::size_t size = size_of(weights.type(tensor.slices.front().spec->name).dtype);
  for (const PartSlice& slice : tensor.slices) {
    const std::size_t first = static_cast<std::size_t>(slice.first) * size;
    const std::size_t from = std::max(begin, first);
    const std::size_t end = std::min(begin + out.size(), first + static_cast<std::size_t>(slice.elements()) * size);
    if (from >= end) continue;
    weights.download(slice.spec->name, offset_of(slice, size) + from - first, out.subspan(from - begin, end - from));
  }
}

// The staging buffers that all sources of a file share, because the writer reads one source after the other.
struct Staging {
  std::vector<std::byte> rows;
  std::vector<std::byte> transposed;
};

// Returns bytes starting at `begin`, at most up to the end of their matrix. The matrix is transposed into the staging
// buffer when its first bytes are requested.
std::span<const std::byte> transposed_piece(const CheckpointTensor& tensor, const TensorStore& weights,
                                            Staging& staging, std::uint64_t begin, std::size_t most) {
  const std::size_t size = size_of(weights.type(tensor.slices.front().spec->name).dtype);
  const std::size_t bytes = static_cast<std::size_t>(tensor.matrix_elements()) * size;
  const std::size_t at = begin % bytes;
  if (at == 0) {
    staging.rows.resize(bytes);
    staging.transposed.resize(bytes);
    download_slices(tensor, weights, begin, staging.rows);
    transpose(staging.rows, tensor.rows, tensor.columns, size, staging.transposed);
  }
  return std::span<const std::byte>(staging.transposed).subspan(at, std::min(most, bytes - at));
}

}  // namespace

std::vector<TensorSource> weight_sources(const std::vector<WeightSpec>& specs, bool in_folder,
                                         const TensorStore& weights) {
  std::vector<TensorSource> sources;
  const auto staging = std::make_shared<Staging>();
  for (CheckpointTensor& tensor : checkpoint_tensors(specs, in_folder)) {
    TensorSource source{tensor.name, weights.type(tensor.slices.front().spec->name).dtype, tensor.shape, {}};
    const std::vector<std::string>& copies = tensor.slices.front().part->copies;
    source.piece = [&weights, staging, tensor = std::move(tensor)](std::uint64_t begin, std::size_t most) {
      if (tensor.transposed) return transposed_piece(tensor, weights, *staging, begin, most);
      staging->rows.resize(most);
      download_slices(tensor, weights, begin, staging->rows);
      return std::span<const std::byte>(staging->rows);
    };
    sources.push_back(std::move(source));
    for (const std::string& copy : copies) {
      TensorSource again = sources.back();
      again.name = copy;
      sources.push_back(std::move(again));
    }
  }
  return sources;
}

void read_part(const CheckpointTensor& tensor, const PartSlice& slice, const ScaledTensor& stored, DType wanted,
               std::span<std::byte> out) {
  const std::size_t size = size_of(wanted);
  const std::int64_t elements = std::min(slice.elements(), stored.element_count());
  if (!tensor.transposed) {
    return read_as(stored, wanted, slice.first, out.first(static_cast<std::size_t>(elements) * size));
  }
  // A row of the stored matrix is a column of the block. Read the elements of each that belong to the part.
  const std::int64_t matrix = slice.first / tensor.matrix_elements();
  const std::int64_t row = slice.first % tensor.matrix_elements() / tensor.columns;
  const std::int64_t rows = slice.part->rows;
  std::vector<std::byte> columns(static_cast<std::size_t>(elements) * size);
  const std::size_t column_bytes = static_cast<std::size_t>(rows) * size;
  if (rows == tensor.rows) {
    read_as(stored, wanted, slice.first, columns);
  } else {
    for (std::int64_t column = 0; column < tensor.columns; ++column) {
      read_as(stored, wanted, matrix * tensor.matrix_elements() + column * tensor.rows + row,
              std::span(columns).subspan(static_cast<std::size_t>(column) * column_bytes, column_bytes));
    }
  }
  transpose(columns, tensor.columns, rows, size, out);
}

void load_part(const CheckpointTensor& tensor, const PartSlice& slice, const ScaledTensor& stored, TensorStore& weights,
               std::size_t piece_bytes) {
  const std::string& block = slice.spec->name;
  const DType held = weights.type(block).dtype;
  const std::size_t size = size_of(held);
  const std::size_t begin = offset_of(slice, size);
  std::vector<std::byte> staging;
  if (tensor.transposed) {
    staging.resize(static_cast<std::size_t>(slice.elements()) * size);
    read_part(tensor, slice, stored, held, staging);
    return weights.upload(block, begin, staging);
  }
  const std::int64_t most = elements_in_piece(piece_bytes, held);
  for (std::int64_t done = 0; done < slice.elements();) {
    const std::int64_t count = std::min(most, slice.elements() - done);
    staging.resize(static_cast<std::size_t>(count) * size);
    read_as(stored, held, slice.first + done, staging);
    weights.upload(block, begin + static_cast<std::size_t>(done) * size, staging);
    done += count;
  }
}

}  // namespace hone
