// Reads tensors that safetensors files store in pieces, for example one piece for each device of a sharded run.
//
// A stored tensor is a box of elements of the whole tensor NAME. A piece is stored as NAME@OFFSET ("w.exp_avg@128,0"),
// and __metadata__ maps that name to its position, "OFFSET of SHAPE": "128,0 of 256,64". A stored tensor without such
// an entry is a whole tensor. The writer adds no entry for whole tensors; the reader accepts one.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/safetensors.h"

namespace hone {

// The name of a stored piece, "NAME@128,0", and its entry in __metadata__, "128,0 of 256,64".
[[nodiscard]] std::string piece_name(std::string_view name, const TensorPlace& place);
[[nodiscard]] std::string place_text(const TensorPlace& place);

// A range of the elements of a whole tensor, assembled from its pieces.
class PiecedTensor {
 public:
  // Copies elements [first, first + out.size() / size_of(wanted)) of the whole tensor, in row-major order, with type
  // `wanted`. They must be within the range passed to PiecedTensors::at(). Throws Error as read_as() does.
  void read(std::int64_t first, DType wanted, std::span<std::byte> out) const;

 private:
  friend class PiecedTensors;

  // A piece of the whole tensor, divided into runs of elements that are contiguous in both.
  struct Box {
    const StoredTensor* stored = nullptr;
    std::vector<std::int64_t> offset;  // first index of the piece in each dimension of the whole
    std::vector<std::int64_t> whole;   // shape of the whole
    std::vector<std::int64_t> stride;  // strides of the whole, in elements
    std::size_t outer = 0;             // leading dimensions that enumerate runs; a run covers the remaining ones
    std::int64_t run = 1;              // elements per run
    std::int64_t runs = 1;             // number of runs

    void measure();                                              // computes stride, outer, run and runs
    [[nodiscard]] std::int64_t start(std::int64_t index) const;  // index in the whole of a run's first element
    // Number of elements of the piece that come before `element` of the whole.
    [[nodiscard]] std::int64_t before(std::int64_t element) const;
  };

  std::vector<Box> boxes_;
};

// All tensors of one or several files, with their pieces grouped by the name of the whole tensor.
class PiecedTensors {
 public:
  // The files, at least one and all in the same folder, must outlive this object. Throws Error with file and tensor if
  // an entry of __metadata__ is malformed or does not fit its tensor.
  explicit PiecedTensors(std::span<const SafetensorsFile> files);
  explicit PiecedTensors(const SafetensorsFile& file) : PiecedTensors(std::span(&file, 1)) {}

  [[nodiscard]] bool contains(std::string_view name) const { return boxes_.contains(name); }
  // Returns elements [first, first + count) of the whole tensor `name` of this shape. Throws Error if the files have no
  // piece of the tensor, give another shape of the whole (the message states both), lack some of the elements or have
  // some of them twice.
  [[nodiscard]] PiecedTensor at(std::string_view name, std::span<const std::int64_t> shape, std::int64_t first,
                                std::int64_t count) const;

 private:
  void add(const StoredTensor& stored, const SafetensorsFile& file);

  std::string where_;  // the file, or the folder of several files, for errors
  std::map<std::string, std::vector<PiecedTensor::Box>, std::less<>> boxes_;  // by name of the whole
};

}  // namespace hone
