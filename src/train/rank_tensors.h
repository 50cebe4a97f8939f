// Tensors of all ranks of a job in files that rank 0 writes: it reads those of the others over their connections, piece
// by piece, so that only rank 0 needs access to the folder and no rank holds another's states.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "checkpoint/safetensors.h"
#include "system/peers.h"

namespace hone {

class RankTensors {
 public:
  // Called by all ranks, each with its own tensors. A tensor, or the same piece of one, may be given by several ranks;
  // rank 0 writes that of the lowest.
  RankTensors(Peers& peers, std::vector<TensorSource> own);

  // Rank 0: returns the tensors of all ranks, which are valid until finish().
  [[nodiscard]] const std::vector<TensorSource>& of_all_ranks() const { return all_; }
  // Rank 0: ends serve() of the other ranks.
  void finish();
  // Other ranks: send what rank 0 reads, until finish().
  void serve();

 private:
  // Bytes of a tensor that rank 0 reads.
  struct Request {
    std::int64_t rank = -1;  // -1: nothing more
    std::uint64_t tensor = 0;
    std::uint64_t begin = 0;
    std::uint64_t bytes = 0;
  };
  void ask(const Request& request);
  [[nodiscard]] std::span<const std::byte> fetch(const Request& request);

  Peers& peers_;
  std::vector<TensorSource> own_;
  std::vector<TensorSource> all_;
  std::vector<std::byte> fetched_;
};

}  // namespace hone
