#include "model/received_tensors.h"

#include <algorithm>
#include <limits>
#include <optional>

#include "core/error.h"
#include "core/json_value.h"
#include "model/expert_layout.h"
#include "model/fp8_model.h"
#include "model/fp8_weights.h"
#include "model/tensor_parallel_model.h"
#include "model/weight_tensors.h"

namespace hone {
namespace {

bool is_convertible(StoredType type) {
  return type == StoredType::kF16 || type == StoredType::kBf16 || type == StoredType::kF32 || type == StoredType::kF64;
}

bool is_weight_type(DType type) { return type == DType::kF32 || type == DType::kBf16; }

// Returns the type of a tensor that becomes one of type `held` on the device; unset: it goes through host memory.
std::optional<DType> type_on_device(const CheckpointTensor& tensor, StoredType type, DType held) {
  const std::optional<DType> sent = dtype_of(type);
  if (!sent || tensor.transposed) return std::nullopt;
  return *sent == held || (is_weight_type(*sent) && is_weight_type(held)) ? sent : std::nullopt;
}

std::size_t saturating_sum(std::size_t a, std::size_t b) {
  std::size_t sum = 0;
  return __builtin_add_overflow(a, b, &sum) ? std::numeric_limits<std::size_t>::max() : sum;
}

}  // namespace

std::size_t TensorNotice::bytes() const {
  std::size_t bytes = size_of(type);
  for (const std::int64_t extent : shape) {
    if (extent < 0 || __builtin_mul_overflow(bytes, static_cast<std::size_t>(extent), &bytes))
      throw Error(name, text_of("has the shape ", shape_text(shape)));
  }
  return bytes;
}

std::size_t bytes_of(std::span<const TensorNotice> notices) {
  std::size_t bytes = 0;
  for (const TensorNotice& notice : notices) bytes = saturating_sum(bytes, notice.bytes());
  return bytes;
}

std::size_t packed_count(std::span<const TensorNotice> notices, std::size_t limit) {
  std::size_t count = 0;
  for (std::size_t bytes = 0; count < notices.size() && bytes <= limit; ++count)
    bytes = saturating_sum(bytes, notices[count].bytes());
  return count;
}

std::byte* TensorStaging::room_for(std::size_t bytes, Device& device) {
  if (buffer_.size() < bytes) {
    device.synchronize();
    release();  // the device need not have memory for both
    buffer_ = Buffer(device, bytes);
  }
  return buffer_.data();
}

std::string text_of_notices(std::span<const TensorNotice> notices) {
  Json all = Json::array();
  for (const TensorNotice& notice : notices)
    all.push_back({{"name", notice.name}, {"type", static_cast<int>(notice.type)}, {"shape", notice.shape}});
  return all.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::vector<TensorNotice> notices_of_text(const std::string& text) {
  std::vector<TensorNotice> notices;
  for (const Json& each : parse_json(text, "announced tensors")) {
    notices.push_back({.name = each.at("name").get<std::string>(),
                       .type = static_cast<StoredType>(each.at("type").get<int>()),
                       .shape = each.at("shape").get<std::vector<std::int64_t>>()});
  }
  return notices;
}

ReceivedTensors::ReceivedTensors(const Model& model) : model_(model.whole()) {
  for (const WeightSpec& spec : model.weights()) {
    if (is_divided(spec)) divided_.emplace(spec.name, &spec);
  }
  tensors_ = checkpoint_tensors(model_.weights(), true);
  for (const CheckpointTensor& tensor : tensors_) {
    for (const PartSlice& slice : tensor.slices) {
      ++parts_;
      ignored_.insert(slice.part->copies.begin(), slice.part->copies.end());
    }
  }
  for (const ExpertLayout layout : {ExpertLayout::kSplit, ExpertLayout::kMerged}) {
    std::vector<WeightSpec> specs = specs_of_layout(model_.weights(), layout);
    merged_.insert(merged_.end(), std::move_iterator(specs.begin()), std::move_iterator(specs.end()));
  }
  for (std::size_t i = 0; i < tensors_.size(); ++i) index_.emplace(tensors_[i].name, i);
  for (CheckpointTensor& tensor : checkpoint_tensors(merged_, true)) {
    if (!index_.emplace(tensor.name, tensors_.size()).second) continue;
    tensors_.push_back(std::move(tensor));
  }
}

const CheckpointTensor* ReceivedTensors::find(const std::string& name) const {
  for (const std::string& candidate : {name, std::string(model_.base_prefix()) + name}) {
    if (const auto found = index_.find(candidate); found != index_.end()) return &tensors_[found->second];
    if (ignored_.contains(candidate)) return nullptr;
  }
  if (name == "lm_head.weight" && has_tied_head(model_)) return nullptr;
  if (!model_.left_out(name).empty()) return nullptr;
  throw Error(name, "is not a tensor of the model that is served", "send the names of its Hugging Face checkpoint");
}

void ReceivedTensors::check(const TensorNotice& notice) const {
  const CheckpointTensor* tensor = find(notice.name);
  if (!is_convertible(notice.type))
    throw Error(notice.name, text_of("has the type ", name_of(notice.type)), "send BF16, F16, F32 or F64");
  (void)notice.bytes();
  if (tensor != nullptr && notice.shape != tensor->shape)
    throw Error(notice.name,
                text_of("is ", shape_text(notice.shape), ", but the model has ", shape_text(tensor->shape)),
                "the trainer's model must be the one that is served");
}

void ReceivedTensors::begin() {
  loaded_.clear();
  casts_.clear();
}

DeviceCast& ReceivedTensors::cast(DType from, DType to, Device& device) {
  return casts_.try_emplace({from, to}, device, from, to).first->second;
}

void ReceivedTensors::move(const std::byte* from, DType sent, std::byte* to, DType held, std::int64_t elements,
                           Device& device) {
  const auto count = static_cast<std::size_t>(elements);
  if (sent == held) return device.copy(to, from, count * size_of(held));
  cast(sent, held, device).run(from, to, count);
}

StoredTensor ReceivedTensors::on_host(const TensorNotice& notice, const std::byte* data, std::vector<std::byte>& host,
                                      Device& device) {
  if (host.empty()) {
    host.resize(notice.bytes());
    device.download(host.data(), data, host.size());
  }
  return {.name = notice.name, .type = notice.type, .shape = notice.shape, .bytes = host, .file = "the trainer"};
}

void ReceivedTensors::load_share(const CheckpointTensor& tensor, const PartSlice& slice, const WeightSpec& own,
                                 const TensorNotice& notice, const std::byte* data, std::vector<std::byte>& host,
                                 TensorStore& weights) {
  Device& device = weights.device();
  const DType held = weights.type(own.name).dtype;
  const std::optional<DType> sent = type_on_device(tensor, notice.type, held);
  const std::int64_t columns = row_elements(own);
  std::vector<std::byte> part;  // in host memory, of the type of the weights
  if (!sent) {
    part.resize(static_cast<std::size_t>(slice.elements()) * size_of(held));
    read_part(tensor, slice, on_host(notice, data, host, device), held, part);
  }
  for (const WeightPart& piece : own.parts) {
    if (piece.name != slice.part->name) continue;
    HONE_ASSERT(piece.box, "no place of ", piece.name, " in ", own.name);
    const std::vector<std::int64_t>& offset = piece.box->offset;
    const std::int64_t column = offset.size() > 1 ? offset[1] : 0;
    const bool has_rows = columns == tensor.columns;  // they are contiguous
    const std::int64_t runs = has_rows ? 1 : piece.rows;
    const std::int64_t run = has_rows ? piece.rows * columns : columns;
    for (std::int64_t r = 0; r < runs; ++r) {
      const std::int64_t from = (offset[0] + r) * tensor.columns + column;
      const auto to = static_cast<std::size_t>((piece.row + r) * columns) * size_of(held);
      if (sent) {
        move(data + static_cast<std::size_t>(slice.first + from) * size_of(*sent), *sent, weights.data(own.name) + to,
             held, run, device);
      } else {
        weights.upload(own.name, to,
                       std::span(part).subspan(static_cast<std::size_t>(from) * size_of(held),
                                               static_cast<std::size_t>(run) * size_of(held)));
      }
    }
  }
  if (!sent) device.synchronize();  // `part` is in use until then
}

void ReceivedTensors::load_slice(const CheckpointTensor& tensor, const PartSlice& slice, const TensorNotice& notice,
                                 const std::byte* data, std::vector<std::byte>& host, TensorStore& weights) {
  const std::string& block = slice.spec->name;
  const bool is_fp8 = is_fp8_block(*slice.spec);
  const DType held = weights.type(block).dtype;
  if (const std::optional<DType> sent = type_on_device(tensor, notice.type, held); sent && !is_fp8) {
    std::byte* const to =
        weights.data(block) + static_cast<std::size_t>(slice.part->row * row_elements(*slice.spec)) * size_of(held);
    return move(data + static_cast<std::size_t>(slice.first) * size_of(*sent), *sent, to, held, slice.elements(),
                weights.device());
  }
  const StoredTensor stored = on_host(notice, data, host, weights.device());
  if (is_fp8) {
    load_fp8_part(tensor, slice, stored, weights);
  } else {
    load_part(tensor, slice, stored, weights);
  }
}

void ReceivedTensors::load(const TensorNotice& notice, const std::byte* data, TensorStore& weights) {
  const CheckpointTensor* tensor = find(notice.name);
  if (tensor == nullptr) return;
  std::vector<std::byte> host;  // the tensor in host memory, if a slice needs it
  for (const PartSlice& slice : tensor->slices) {
    loaded_.emplace(slice.spec->name, slice.part->row);
    if (const auto own = divided_.find(slice.spec->name); own != divided_.end()) {
      load_share(*tensor, slice, *own->second, notice, data, host, weights);
    } else {
      load_slice(*tensor, slice, notice, data, host, weights);
    }
  }
}

void ReceivedTensors::load_all(std::span<const TensorNotice> notices, const std::byte* data, TensorStore& weights) {
  for (const TensorNotice& notice : notices) {
    load(notice, data, weights);
    data += notice.bytes();
  }
}

}  // namespace hone
