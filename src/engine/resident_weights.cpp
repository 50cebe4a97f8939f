#include "engine/resident_weights.h"

#include <new>
#include <span>
#include <utility>

#include "core/error.h"
#include "core/files.h"
#include "model/weights.h"

namespace hone {
namespace {

// Copies all tensors of a store to host memory, one after the other. Throws Error if there is no memory for them.
std::vector<std::byte> content_of(const TensorStore& store) {
  try {
    std::vector<std::byte> bytes;
    bytes.reserve(store.bytes());
    for (const NamedType& tensor : store.tensors()) {
      const std::size_t begin = bytes.size();
      bytes.resize(begin + tensor.type.bytes());
      store.download(tensor.name, 0, std::span(bytes).subspan(begin));
    }
    return bytes;
  } catch (const std::bad_alloc&) {
    throw Error("the weights", text_of("do not fit in host memory: ", store.bytes(), " bytes"),
                "free memory, or sleep with level 2, which drops them");
  }
}

void fill(TensorStore& store, std::span<const std::byte> bytes) {
  for (const NamedType& tensor : store.tensors()) {
    store.upload(tensor.name, bytes.first(tensor.type.bytes()));
    bytes = bytes.subspan(tensor.type.bytes());
  }
}

}  // namespace

ResidentWeights::ResidentWeights(const Model& model, TensorStore weights, EngineGroup* group)
    : model_(model), device_(weights.device()), group_(group), types_(weights.tensors()), store_(std::move(weights)) {}

TensorStore& ResidentWeights::store() {
  HONE_ASSERT(store_.has_value(), "the weights are used while they are given back");
  return *store_;
}

std::exception_ptr ResidentWeights::keep() {
  std::vector<std::byte> copy;
  const std::exception_ptr error = run_together(group_, [&] {
    if (store_ && whole_) copy = content_of(*store_);
  });
  if (!error && store_) kept_ = std::move(copy);
  return error;
}

void ResidentWeights::give_back(SleepLevel level) {
  if (level == SleepLevel::kDropWeights) {
    kept_ = {};
    whole_ = false;
  }
  store_.reset();
}

std::exception_ptr ResidentWeights::take_back() {
  const bool were_there = are_there();
  const std::exception_ptr error = run_together(group_, [&] {
    if (store_) return;
    store_.emplace(device_, types_);
    if (!kept_.empty()) fill(*store_, kept_);
  });
  if (error && !were_there) store_.reset();
  if (!error) kept_ = {};
  return error;
}

std::exception_ptr ResidentWeights::update(const std::filesystem::path& folder) {
  bool begun = false;
  const std::exception_ptr error = run_together(group_, [&] {
    if (!is_folder(folder)) throw Error(folder.string(), "is not a folder", "give the folder of a model");
    const ModelDirectory directory(folder);
    reload_weights(model_, directory, store(), begun);
    begun = true;
  });
  // If one rank has failed, the others may have new weights.
  if (group_ != nullptr) begun = group_->any(begun);
  if (!error) whole_ = true;
  if (error && begun) whole_ = false;
  return error;
}

}  // namespace hone
