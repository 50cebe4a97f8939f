#include "train/rank_tensors.h"

#include <set>
#include <string>
#include <utility>

#include "checkpoint/tensor_pieces.h"
#include "core/error.h"
#include "core/json_value.h"

namespace hone {
namespace {

Json description_of(const TensorSource& source) {
  return {{"name", source.name},
          {"dtype", static_cast<int>(source.dtype)},
          {"shape", source.shape},
          {"offset", source.place.offset},
          {"whole", source.place.whole}};
}

}  // namespace

RankTensors::RankTensors(Peers& peers, std::vector<TensorSource> own) : peers_(peers), own_(std::move(own)) {
  Json descriptions = Json::array();
  for (const TensorSource& source : own_) descriptions.push_back(description_of(source));
  const std::vector<std::string> ranks = peers_.gather(descriptions.dump());
  if (peers_.rank() != 0) return;
  std::set<std::string> given;  // names of tensors, and of pieces with their places
  const auto is_new = [&](const TensorSource& source) {
    return given.insert(source.place.whole.empty() ? source.name : piece_name(source.name, source.place)).second;
  };
  for (const TensorSource& source : own_) {
    if (is_new(source)) all_.push_back(source);
  }
  for (std::size_t rank = 1; rank < ranks.size(); ++rank) {
    std::uint64_t index = 0;
    for (const Json& each : parse_json(ranks[rank], peers_.name_of(static_cast<int>(rank)))) {
      const Request request{.rank = static_cast<std::int64_t>(rank), .tensor = index++};
      TensorSource source{
          .name = each.at("name").get<std::string>(),
          .dtype = static_cast<DType>(each.at("dtype").get<int>()),
          .shape = each.at("shape").get<std::vector<std::int64_t>>(),
          .piece = [this, request](std::uint64_t begin,
                                   std::size_t most) { return fetch({request.rank, request.tensor, begin, most}); },
          .place = {.offset = each.at("offset").get<std::vector<std::int64_t>>(),
                    .whole = each.at("whole").get<std::vector<std::int64_t>>()}};
      if (is_new(source)) all_.push_back(std::move(source));
    }
  }
}

void RankTensors::ask(const Request& request) {
  std::vector<Peers::Transfer> transfers;
  for (int rank = 1; rank < peers_.size(); ++rank) {
    transfers.push_back({rank, std::as_bytes(std::span(&request, 1)), {}});
  }
  peers_.exchange(transfers);
}

std::span<const std::byte> RankTensors::fetch(const Request& request) {
  ask(request);
  fetched_.resize(request.bytes);
  const Peers::Transfer transfer{static_cast<int>(request.rank), {}, fetched_};
  peers_.exchange({&transfer, 1});
  return fetched_;
}

void RankTensors::finish() { ask({}); }

void RankTensors::serve() {
  for (;;) {
    Request request;
    const Peers::Transfer asked{0, {}, std::as_writable_bytes(std::span(&request, 1))};
    peers_.exchange({&asked, 1});
    if (request.rank < 0) return;
    if (request.rank != peers_.rank()) {
      peers_.exchange({});  // all ranks count the same exchanges
      continue;
    }
    HONE_ASSERT(request.tensor < own_.size(), "tensor ", request.tensor, " of ", own_.size());
    const std::span<const std::byte> bytes =
        own_[request.tensor].piece(request.begin, static_cast<std::size_t>(request.bytes));
    const Peers::Transfer answer{0, bytes, {}};
    peers_.exchange({&answer, 1});
  }
}

}  // namespace hone
