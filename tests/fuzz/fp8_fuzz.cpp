// Fuzz target: the tensors of a folder in FP8 and the quantization_config of its config.json. The first line of the
// input is config.json, the second one the header of the safetensors file, and the rest its data, so that mutations
// need not keep the length field before the header correct.
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <span>
#include <vector>

#include "checkpoint/fp8_tensor.h"
#include "core/block_scales.h"
#include "core/float8.h"
#include "core/json_value.h"
#include "fuzz/target.h"

namespace hone::fuzz {
namespace {

// A folder whose weights are a file in memory.
class MemoryFolder {
 public:
  MemoryFolder()
      : path_(std::filesystem::temp_directory_path() / ("hone_fp8_fuzz." + std::to_string(::getpid()))),
        owner_(::getpid()) {
    std::filesystem::create_directory(path_);
    std::filesystem::create_symlink(file_.path(), path_ / "model.safetensors");
  }
  MemoryFolder(const MemoryFolder&) = delete;
  MemoryFolder& operator=(const MemoryFolder&) = delete;
  ~MemoryFolder() {
    std::error_code ignored;
    if (owner_ == ::getpid()) std::filesystem::remove_all(path_, ignored);
  }
  void set(std::string_view header, std::string_view data) {
    const std::uint64_t length = header.size();
    std::string content(sizeof(length), '\0');
    std::memcpy(content.data(), &length, sizeof(length));
    content.append(header).append(data);
    file_.set(content);
  }
  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

 private:
  MemoryFile file_;
  std::filesystem::path path_;
  ::pid_t owner_;
};

// Reads elements as T and checks that those of every range are the same, and that they are what bytes and scales make.
void check_values(const ScaledTensor& tensor, std::span<const std::uint8_t> bytes, std::span<const float> scales) {
  const auto count = static_cast<std::size_t>(tensor.element_count());
  std::vector<BFloat16> values(count);
  read_as(tensor, DType::kBf16, 0, std::as_writable_bytes(std::span(values)));
  std::vector<float> wide(count);
  read_as(tensor, DType::kF32, 0, std::as_writable_bytes(std::span(wide)));
  for (std::size_t i = 0; i < count; ++i) {
    const auto columns = static_cast<std::size_t>(tensor.values->shape[1]);
    const std::size_t block =
        i / columns / kScaleBlock * static_cast<std::size_t>(scale_blocks(tensor.values->shape[1])) +
        i % columns / kScaleBlock;
    const BFloat16 expected(e4m3_value(bytes[i]) * scales[block]);
    HONE_ASSERT(values[i].bits == expected.bits, "element ", i, " is ", static_cast<float>(values[i]));
    HONE_ASSERT(wide[i] == static_cast<float>(expected), "element ", i, " is ", wide[i], " in f32");
  }
  const std::size_t first = count / 3;
  std::vector<BFloat16> part(count / 2);
  read_as(tensor, DType::kBf16, static_cast<std::int64_t>(first), std::as_writable_bytes(std::span(part)));
  for (std::size_t i = 0; i < part.size(); ++i)
    HONE_ASSERT(part[i].bits == values[first + i].bits, "element ", i, " from ", first);
}

void check(const StoredTensor& stored, const WeightFiles& files) {
  const ScaledTensor tensor = with_scales(stored, files);
  HONE_ASSERT((tensor.scales != nullptr) == (stored.type == StoredType::kF8E4m3), stored.name);
  if (tensor.scales == nullptr) return;
  HONE_ASSERT(are_fp8_scales(tensor.scales->name, files), tensor.scales->name);
  const std::int64_t blocks = tensor.scales->element_count();
  HONE_ASSERT(stored.element_count() <= blocks * kScaleBlock * kScaleBlock, stored.name, " has ", blocks, " scales");
  std::vector<std::uint8_t> bytes(static_cast<std::size_t>(stored.element_count()));
  std::vector<float> scales;
  const bool reads = accepts([&] {
    read_fp8_bytes(tensor, 0, bytes);
    scales = read_scales(tensor);
  });
  if (reads) return check_values(tensor, bytes, scales);
  std::vector<BFloat16> values(bytes.size());
  HONE_ASSERT(
      bytes.empty() || !accepts([&] { read_as(tensor, DType::kBf16, 0, std::as_writable_bytes(std::span(values))); }),
      stored.name, " is read in spite of its bytes or scales");
}

}  // namespace
}  // namespace hone::fuzz

HONE_FUZZ_TARGET(fp8)(const std::uint8_t* data, std::size_t size) {
  using namespace hone;
  static fuzz::MemoryFolder folder;
  const auto [config, file] = fuzz::parted(fuzz::as_text(data, size), '\n');
  fuzz::accepts([&] { check_quantization(parse_json(config, "config.json"), "config.json"); });
  const auto [header, content] = fuzz::parted(file, '\n');
  folder.set(header, content);
  fuzz::accepts([&] {
    const WeightFiles files(folder.path());
    bool any = false;
    for (const std::string& name : files.names()) {
      any = any || files.at(name).type == StoredType::kF8E4m3;
      fuzz::accepts([&] { fuzz::check(files.at(name), files); });
      (void)are_fp8_scales(name, files);
    }
    HONE_ASSERT(has_fp8(files) == any, "has_fp8");
  });
  return 0;
}
