// Tensors that a file holds in pieces, as several devices have them.
//
// A stored tensor is a box of a whole one. One that is less than the whole is stored as NAME@OFFSET
// ("w.exp_avg@128,0"), and __metadata__ says under that key where it lies, "OFFSET of SHAPE": "128,0 of 256,64". A
// stored tensor without such an entry is the whole of its name; the writer gives a whole tensor none, the reader takes
// either.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/safetensors.h"

namespace hone {

// The name under which a tensor is stored that lies there, and the entry that says so: "NAME@128,0", "128,0 of 256,64".
[[nodiscard]] std::string piece_name(std::string_view name, const TensorPlace& place);
[[nodiscard]] std::string place_text(const TensorPlace& place);

// A whole tensor, or a stretch of one, ready to be read.
class PiecedTensor {
 public:
  // Copies elements [first, first + out.size() / size_of(wanted)) of the whole, in row-major order, as `wanted`; they
  // lie in what was asked of PiecedTensors::at. Throws Error as read_as does.
  void read(std::int64_t first, DType wanted, std::span<std::byte> out) const;

 private:
  friend class PiecedTensors;

  // A box of the whole, as runs of elements that are next to each other in both.
  struct Box {
    const StoredTensor* stored = nullptr;
    std::vector<std::int64_t> offset;  // of the box in the whole
    std::vector<std::int64_t> whole;   // shape
    std::vector<std::int64_t> stride;  // elements of the whole, by dimension
    std::size_t outer = 0;             // dimensions that count runs; those behind lie inside one
    std::int64_t run = 1;              // elements
    std::int64_t runs = 1;

    void measure();                                              // from shapes: stride, outer, run, runs
    [[nodiscard]] std::int64_t start(std::int64_t index) const;  // of a run, in the whole
    // How many of its elements lie before one of the whole.
    [[nodiscard]] std::int64_t before(std::int64_t element) const;
  };

  std::vector<Box> boxes_;
};

class PiecedTensors {
 public:
  // Those of a file, which outlives it. Throws Error, naming file and tensor, where an entry of __metadata__ cannot be
  // read or does not fit the tensor.
  explicit PiecedTensors(const SafetensorsFile& file);

  // Elements [first, first + count) of the whole tensor `name` of this shape. Throws Error where the file has no piece
  // of it, says another shape of the whole (both are shown), lacks some of the elements, or has some twice.
  [[nodiscard]] PiecedTensor at(std::string_view name, std::span<const std::int64_t> shape, std::int64_t first,
                                std::int64_t count) const;

 private:
  void add(const StoredTensor& stored);

  const SafetensorsFile* file_;
  std::map<std::string, std::vector<PiecedTensor::Box>, std::less<>> boxes_;  // by the name of the whole
};

}  // namespace hone
