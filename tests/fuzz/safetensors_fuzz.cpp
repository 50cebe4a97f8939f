// Fuzz target: the input as a safetensors file, and as a header alone, so that mutations need not keep the length field
// before the header correct.
#include <vector>

#include "checkpoint/safetensors.h"
#include "checkpoint/safetensors_header.h"
#include "checkpoint/tensor_pieces.h"
#include "fuzz/target.h"

namespace hone::fuzz {
namespace {

constexpr std::uint64_t kDataSize = 64;  // bytes of data that follow the header alone

void check(const StoredTensor& tensor) {
  std::int64_t elements = 1;
  for (const std::int64_t dimension : tensor.shape) elements = dimension == 0 ? 0 : elements * dimension;
  HONE_ASSERT(elements == tensor.element_count() || elements == 0, tensor.name, " has ", tensor.element_count());
  const bool converts = tensor.type == StoredType::kF16 || tensor.type == StoredType::kBf16 ||
                        tensor.type == StoredType::kF32 || tensor.type == StoredType::kF64;
  HONE_ASSERT(accepts([&] { (void)read_values<float>(tensor); }) == converts, "conversion of ", name_of(tensor.type));
}

}  // namespace
}  // namespace hone::fuzz

HONE_FUZZ_TARGET(safetensors)(const std::uint8_t* data, std::size_t size) {
  using namespace hone;
  static fuzz::MemoryFile storage;
  const std::string_view text = fuzz::as_text(data, size);
  storage.set(text);
  fuzz::accepts([&] {
    const SafetensorsFile file(storage.path());
    for (const StoredTensor& tensor : file.tensors()) {
      HONE_ASSERT(file.find(tensor.name) == &tensor, tensor.name, " is not found");
      fuzz::check(tensor);
    }
    const PiecedTensors pieces(file);
    for (const StoredTensor& tensor : file.tensors()) {
      fuzz::accepts([&] { (void)pieces.at(tensor.name, tensor.shape, 0, tensor.element_count()); });
    }
  });
  fuzz::accepts([&] { (void)parse_safetensors_header(text, fuzz::kDataSize, "header"); });
  return 0;
}
