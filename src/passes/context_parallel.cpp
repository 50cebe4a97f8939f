#include "passes/context_parallel.h"

#include <algorithm>
#include <vector>

#include "core/error.h"
#include "program/context_builder.h"

namespace hone {
namespace {

class TokenDivider final : public ContextBuilder {
 public:
  TokenDivider(const Program& program, int ranks)
      : from_(program),
        ranks_(ranks),
        rewriter_(program, {.retype = [&](const Value& value) { return divided(value.type); },
                            .recount =
                                [&](const CountSpec& spec) {
                                  return is_of_tokens(spec.count) ? divided_rows(spec.capacity) : spec.capacity;
                                }}) {
    declare_inputs();
  }

  Program run() {
    for (const Node& node : from_.nodes()) {
      node_ = &node;
      if (has_tokens(node)) {
        rewriter_.program().set_scope(node.scope);
        rewriter_.program().set_phase(node.phase);
        node.op->divide_tokens(*this, node);
      } else {
        rewriter_.replay(node);
      }
    }
    for (const Output& output : from_.outputs()) {
      HONE_ASSERT(from_.value(output.value).type.count() != Count::tokens, "the output ", output.name, " is divided");
    }
    return rewriter_.finish();
  }

  int ranks() const override { return ranks_; }
  const ContextInputs& inputs() const override { return inputs_; }
  Tensor document_bounds() override {
    if (!document_bounds_) {
      document_bounds_ = rewriter_.program().input(kContextDocumentBounds, inputs_.cu_seqlens.type());
    }
    return document_bounds_;
  }
  Tensor input(std::size_t index) override {
    return index < node_->inputs.size() ? rewriter_.mapped(node_->inputs[index]) : Tensor();
  }
  Type divided(Type type) const override {
    if (is_of_tokens(type.count())) type.shape[0].size = divided_rows(type.shape[0].size);
    return type;
  }
  std::vector<Tensor> append(const Attributes& attributes, std::span<const Tensor> inputs) override {
    return rewriter_.program().append(*node_->op, attributes, inputs);
  }
  void set_output(std::size_t index, Tensor value) override {
    const ValueId id = node_->outputs.at(index);
    const Type expected = divided(from_.value(id).type);
    HONE_ASSERT(value.type() == expected, node_->op->name(), " gives ", to_text(value.type()), ", not ",
                to_text(expected));
    rewriter_.map(id, value);
  }
  void set_block(std::size_t index, Tensor value) override { rewriter_.map(node_->outputs.at(index), value); }

 private:
  [[nodiscard]] std::int64_t share_of(std::int64_t tokens) const { return (tokens + ranks_ - 1) / ranks_; }
  // Returns true if a count is of rows of tokens; those that a node counts are the rows of experts.
  [[nodiscard]] bool is_of_tokens(Count count) const {
    const CountSpec* const spec = from_.find_count(count);
    return spec != nullptr && (count == Count::tokens || spec->source != kNoValue);
  }
  // Returns this rank's share of rows of which there is room for the same number for each token.
  [[nodiscard]] std::int64_t divided_rows(std::int64_t rows) const {
    const std::int64_t tokens = from_.find_count(Count::tokens)->capacity;
    HONE_ASSERT(rows % tokens == 0, rows, " rows of ", tokens, " tokens");
    return rows / tokens * share_of(tokens);
  }
  [[nodiscard]] bool has_tokens(const Node& node) const {
    const auto counted = [&](ValueId id) { return id != kNoValue && from_.value(id).type.count() == Count::tokens; };
    return std::ranges::any_of(node.inputs, counted) || std::ranges::any_of(node.outputs, counted);
  }

  void declare_inputs() {
    Program& program = rewriter_.program();
    const CountSpec* tokens = program.find_count(Count::tokens);
    const ValueId bounds = program.find(Role::kInput, "cu_seqlens");
    HONE_ASSERT(tokens != nullptr && bounds != kNoValue, "a program without documents is divided");
    const std::int64_t capacity = tokens->capacity;
    inputs_.cu_seqlens = program.tensor(bounds);
    const std::int64_t documents = inputs_.cu_seqlens.dim(0) - 1;
    const std::int64_t pieces = kPiecesOfDocument * documents;
    const auto declare = [&](const char* name, Dim rows) { return program.input(name, {DType::kI32, {rows}}); };
    inputs_.rows = declare(kContextRows, ranks_ * capacity);
    inputs_.tokens = declare(kContextTokens, Dim(capacity, Count::tokens));
    inputs_.piece_bounds = declare(kContextPieceBounds, pieces + 1);
    inputs_.piece_starts = declare(kContextPieceStarts, pieces);
    inputs_.piece_keys = declare(kContextPieceKeys, pieces);
    inputs_.document_pieces = declare(kContextDocumentPieces, documents + 1);
  }

  const Program& from_;
  int ranks_;
  ProgramRewriter rewriter_;
  ContextInputs inputs_;
  Tensor document_bounds_;      // declared at its first use
  const Node* node_ = nullptr;  // the node that is being divided
};

}  // namespace

Program divide_tokens(const Program& program, int ranks) { return TokenDivider(program, ranks).run(); }

}  // namespace hone
