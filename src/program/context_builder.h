// Interface through which an operation appends what one rank of a context group computes of one of its nodes.
// Implemented by the pass that divides a program's tokens over the group (passes/context_parallel.h), which visits the
// nodes in order.
#pragma once

#include <cstddef>
#include <vector>

#include "program/program.h"

namespace hone {

// Division of a micro-batch's tokens over the ranks of a context group: inputs of a divided program, i32. A rank's
// tokens are pieces of documents, in the order of the micro-batch. Its rows of a value with Count::tokens, `capacity`
// of them, are a block; the blocks of all ranks hold all tokens of the micro-batch.
struct ContextInputs {
  Tensor rows;             // [ranks x capacity]: the row in the blocks of all ranks that each token of the micro-batch
                           // has; -1 past the last token
  Tensor tokens;           // [capacity], counted by tokens: the token of the micro-batch in each row of this rank
  Tensor piece_bounds;     // [pieces + 1]: the first row of each piece of this rank; absent pieces repeat the end
  Tensor piece_starts;     // [pieces]: the position of its first token in its document
  Tensor piece_keys;       // [pieces]: the first token of its document
  Tensor document_pieces;  // [documents + 1]: the first piece of each document; absent documents repeat the end
  Tensor cu_seqlens;       // [documents + 1]: the first token of each document of the whole micro-batch
};

// Names of these inputs.
inline constexpr const char* kContextRows = "context_rows";
inline constexpr const char* kContextTokens = "context_tokens";
inline constexpr const char* kContextPieceBounds = "context_piece_bounds";
inline constexpr const char* kContextPieceStarts = "context_piece_starts";
inline constexpr const char* kContextPieceKeys = "context_piece_keys";
inline constexpr const char* kContextDocumentPieces = "context_document_pieces";
inline constexpr const char* kContextDocumentBounds = "context_document_bounds";
// Most pieces of a rank for each document that a program has room for.
inline constexpr std::int64_t kPiecesOfDocument = 2;

class ContextBuilder {
 public:
  virtual ~ContextBuilder() = default;

  [[nodiscard]] virtual int ranks() const = 0;
  [[nodiscard]] virtual const ContextInputs& inputs() const = 0;
  // Returns an input like cu_seqlens: the first of this rank's rows of each document. A program has it if it is used.
  [[nodiscard]] virtual Tensor document_bounds() = 0;
  // Returns what this rank has of an operand of the node: its rows of one with Count::tokens, otherwise all of it;
  // invalid for an optional input that is missing.
  [[nodiscard]] virtual Tensor input(std::size_t index) = 0;
  // Returns the type of a rank's rows of a value.
  [[nodiscard]] virtual Type divided(Type type) const = 0;
  // Appends a copy of the node with other attributes and operands.
  [[nodiscard]] virtual std::vector<Tensor> append(const Attributes& attributes, std::span<const Tensor> inputs) = 0;
  // Registers what this rank has of an output.
  virtual void set_output(std::size_t index, Tensor value) = 0;
  // The same of an output that is a block of a tensor group's rows (ops/rank_rows): it has a smaller block of this
  // rank's tokens. What is computed from blocks alone follows by type inference.
  virtual void set_block(std::size_t index, Tensor value) = 0;
};

// Appends a copy of the node with this rank's rows of its operands, which gives this rank's rows of its outputs.
inline void divide_alike(ContextBuilder& builder, const Node& node, const Attributes& attributes) {
  std::vector<Tensor> inputs;
  inputs.reserve(node.inputs.size());
  for (std::size_t i = 0; i < node.inputs.size(); ++i) inputs.push_back(builder.input(i));
  const std::vector<Tensor> outputs = builder.append(attributes, inputs);
  for (std::size_t i = 0; i < outputs.size(); ++i) builder.set_output(i, outputs[i]);
}

}  // namespace hone
