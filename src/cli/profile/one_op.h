// One operation of a program, alone.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "data/host_batch.h"
#include "program/executable.h"
#include "program/program.h"

namespace hone {

// FLOPs and bytes of a node's run on a batch; without documents, at its full capacity as one sequence.
struct Work {
  double flops = 0;
  double bytes = 0;
};
[[nodiscard]] Work work_of(const Program& program, const Node& node, const HostBatch& batch);
// "bf16[8192, 3584], bf16[4608, 3584]": its inputs, at most `most`.
[[nodiscard]] std::string shapes_of(const Program& program, const Node& node, std::size_t most = 3);

// A node of a program as a program of its own, several times over operands that lie elsewhere, so that caches do not
// help. Floating operands are random; inputs named as a batch's hold the batch; other integers are 0.
class OneOp {
 public:
  // `copies`: 0 for as many as a GPU's cache wants.
  OneOp(const Program& from, const Node& node, Device& device, const HostBatch& batch, std::size_t copies);

  [[nodiscard]] std::size_t copies() const { return copies_; }  // nodes a run
  // A run of it is copies() nodes. Keep the OneOp as long.
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
