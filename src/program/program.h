// A Program: a flat, typed, static list of operations in order.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "program/count.h"
#include "program/op.h"
#include "program/type.h"

namespace hone {

using ValueId = std::int32_t;
inline constexpr ValueId kNoValue = -1;

enum class Role : std::uint8_t {
  weight,      // bound to a weight set
  gradient,    // what micro-batches accumulate into, named as its weight
  state,       // kept between runs: optimizer moments, KV pages
  input,       // written by the host before a run
  activation,  // in the step arena
};

// Whose memory a state lies in.
enum class Placement : std::uint8_t {
  device,
  host,  // the device reads and writes it there (backend/host_memory.h)
};

enum class Phase : std::uint8_t { forward, backward, update };

struct Value {
  Type type;
  Role role = Role::activation;
  std::string name;                         // of weights, gradients, states and inputs
  bool trainable = false;                   // weights: whether gradients are wanted
  ValueId alias_of = kNoValue;              // the value in whose storage this one lies
  std::int32_t producer = -1;               // index of the node, -1 for what is bound
  Placement placement = Placement::device;  // of states
  bool keeps_dtype = false;                 // of weights: they stay of the type that they were traced in
};

struct Node {
  const Op* op = nullptr;
  Attributes attributes;
  std::vector<ValueId> inputs;  // kNoValue: an optional input that is not given
  std::vector<ValueId> outputs;
  std::string scope;  // "layers.3.attention"
  Phase phase = Phase::forward;
};

// Whether an output lies where an input was, other than as a view.
[[nodiscard]] bool updates_in_place(const Node& node);

// What a count is in a program.
struct CountSpec {
  Count count;
  std::int64_t capacity = 0;  // the most that it says; a first dimension that has it holds capacity x factor rows
  ValueId source = kNoValue;  // the i64 that says it when a node runs; kNoValue: the host says it before a run
  std::size_t before = 0;     // how many values there were when it was declared
};

// A value that the host reads after a run.
struct Output {
  std::string name;
  ValueId value = kNoValue;
};

class Program;

// A handle to one value of a Program under construction.
class Tensor {
 public:
  Tensor() = default;
  Tensor(Program& program, ValueId id) : program_(&program), id_(id) {}

  [[nodiscard]] bool valid() const { return program_ != nullptr; }
  explicit operator bool() const { return valid(); }
  [[nodiscard]] Program& program() const { return *program_; }
  [[nodiscard]] ValueId id() const { return program_ == nullptr ? kNoValue : id_; }
  [[nodiscard]] const Value& value() const;
  [[nodiscard]] const Type& type() const { return value().type; }
  [[nodiscard]] DType dtype() const { return type().dtype; }
  [[nodiscard]] const Shape& shape() const { return type().shape; }
  [[nodiscard]] std::int64_t dim(std::size_t index) const { return shape().at(index).size; }

 private:
  Program* program_ = nullptr;
  ValueId id_ = kNoValue;
};

class Program {
 public:
  // Declares a count that the host sets before a run (Executable::set_count). A bound value declares by itself, as
  // such, what its type counts by and nobody declared.
  void count(Count count, std::int64_t capacity);
  // Declares a count that is the one element of `source`, i64, whenever a node runs, and is not known to the host. What
  // computes `source` keeps it within 0 and the capacity. Values of that count come after it.
  void count(Count count, std::int64_t capacity, Tensor source);
  // Values that are bound from outside. A name is used once a role. Throws Error where a type has more rows than its
  // count's capacity, or fewer, or counts by what a node computes.
  Tensor weight(std::string name, Type type, bool trainable = true, bool keeps_dtype = false);
  Tensor gradient(std::string name, Type type);
  Tensor state(std::string name, Type type, Placement placement = Placement::device);
  Tensor input(std::string name, Type type);
  // Appends a node under the current scope and phase; types and aliases come from the operation. Throws Error where an
  // output counts by what is not declared, or has another capacity.
  std::vector<Tensor> append(const Op& op, Attributes attributes, std::span<const Tensor> inputs);
  Tensor append1(const Op& op, Attributes attributes, std::initializer_list<Tensor> inputs);
  void output(std::string name, Tensor value);

  [[nodiscard]] const std::vector<Value>& values() const { return values_; }
  [[nodiscard]] const std::vector<Node>& nodes() const { return nodes_; }
  [[nodiscard]] const std::vector<Output>& outputs() const { return outputs_; }
  [[nodiscard]] const std::vector<CountSpec>& counts() const { return counts_; }
  [[nodiscard]] const CountSpec* find_count(Count count) const;  // null where it is not declared
  // The value that says how many rows of this type are in use; kNoValue where the host says it, or all are.
  [[nodiscard]] ValueId count_source(const Type& type) const;
  [[nodiscard]] const Value& value(ValueId id) const { return values_.at(static_cast<std::size_t>(id)); }
  [[nodiscard]] Tensor tensor(ValueId id) { return id == kNoValue ? Tensor() : Tensor(*this, id); }
  // The bound value with this role and name, if there is one.
  [[nodiscard]] ValueId find(Role role, std::string_view name) const;
  // The value whose storage `id` uses in the end.
  [[nodiscard]] ValueId storage_of(ValueId id) const;
  [[nodiscard]] std::vector<std::optional<Type>> types_of(std::span<const ValueId> ids) const;
  [[nodiscard]] Cost cost(const Node& node) const;
  [[nodiscard]] Cost cost() const;  // of all nodes

  void set_phase(Phase phase) { phase_ = phase; }
  [[nodiscard]] Phase phase() const { return phase_; }
  [[nodiscard]] const std::string& scope() const { return scope_; }
  void set_scope(std::string scope) { scope_ = std::move(scope); }

 private:
  Tensor bound(Role role, std::string name, Type type, bool trainable);
  void add_count(const CountSpec& spec);
  void check_count(const Type& type) const;

  std::vector<CountSpec> counts_;
  std::vector<Value> values_;
  std::vector<Node> nodes_;
  std::vector<Output> outputs_;
  std::string scope_;
  Phase phase_ = Phase::forward;
};

// Extends the program's scope by ".NAME" for its own life.
class Scope {
 public:
  Scope(Program& program, std::string_view name);
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;
  ~Scope() { program_.set_scope(std::move(outer_)); }

 private:
  Program& program_;
  std::string outer_;
};

// Copies a program node by node, so that a pass only says what it changes. Bound values are copied first, all of them
// and in order; then the caller replays or replaces each node.
class ProgramRewriter {
 public:
  explicit ProgramRewriter(const Program& from);
  // As above, with the types of bound values changed by `retype(value)`.
  template <class Retype>
  ProgramRewriter(const Program& from, const Retype& retype);

  [[nodiscard]] Program& program() { return to_; }
  [[nodiscard]] Tensor mapped(ValueId old);  // invalid for kNoValue
  // Says what an old value became. Counts that it is the source of are declared with it.
  void map(ValueId old, Tensor value);
  // Appends a copy of `node` with mapped inputs; does not map its outputs.
  std::vector<Tensor> clone(const Node& node);
  // clone, and its outputs mapped.
  void replay(const Node& node);
  // Copies the outputs that are not there yet and returns the new program.
  [[nodiscard]] Program finish();

 private:
  void copy_host_counts();

  const Program& from_;
  Program to_;
  std::vector<ValueId> map_;
};

template <class Retype>
ProgramRewriter::ProgramRewriter(const Program& from, const Retype& retype)
    : from_(from), map_(from.values().size(), kNoValue) {
  copy_host_counts();
  for (std::size_t i = 0; i < from.values().size(); ++i) {
    const Value& value = from.values()[i];
    if (value.producer >= 0) continue;
    const Type type = retype(value);
    switch (value.role) {
      case Role::weight:
        map(static_cast<ValueId>(i), to_.weight(value.name, type, value.trainable, value.keeps_dtype));
        break;
      case Role::gradient:
        map(static_cast<ValueId>(i), to_.gradient(value.name, type));
        break;
      case Role::state:
        map(static_cast<ValueId>(i), to_.state(value.name, type, value.placement));
        break;
      case Role::input:
        map(static_cast<ValueId>(i), to_.input(value.name, type));
        break;
      case Role::activation:
        break;
    }
  }
}

}  // namespace hone
