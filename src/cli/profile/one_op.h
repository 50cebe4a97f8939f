// Runs one operation of a program in isolation, to measure it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "data/host_batch.h"
#include "program/executable.h"
#include "program/program.h"

namespace hone {

// Work of one run of a node.
struct Work {
  double flops = 0;
  double bytes = 0;  // read plus written
};
// Returns the work of a node on a batch. Attention counts the pairs of tokens in the batch's documents, or those of one
// sequence of full capacity if the batch has no documents.
[[nodiscard]] Work work_of(const Program& program, const Node& node, const HostBatch& batch);
// Returns the types of a node's first `most` inputs as text: "bf16[8192, 3584], bf16[4608, 3584]".
[[nodiscard]] std::string shapes_of(const Program& program, const Node& node, std::size_t most = 3);

// A program that contains one node of another program, several times over separate operands, so that no operand is in
// the L2 cache when its node runs. f32 and bf16 operands are random, inputs with the name of a batch's array hold the
// batch, and all others are 0.
class IsolatedOp {
 public:
  // `copies` is the number of times that the node is repeated; 0 chooses enough to exceed the L2 cache of a GPU.
  IsolatedOp(const Program& from, const Node& node, Device& device, const HostBatch& batch, std::size_t copies);

  [[nodiscard]] std::size_t copies() const { return copies_; }  // nodes per run
  // Returns an executable that runs all copies. The IsolatedOp must outlive it.
  [[nodiscard]] Executable executable() const;

 private:
  void fill(const Program& from, const Node& node, const HostBatch& batch);

  Device& device_;
  std::size_t copies_;
  Program program_;
  TensorStore operands_;
  std::shared_ptr<Arena> arena_;
};

}  // namespace hone
