// Program: the intermediate representation of all computations. It is a flat list of nodes in the order of execution
// over typed values with static shapes. Models and trainers build programs, passes rewrite them, Executable runs them.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "program/count.h"
#include "program/op.h"
#include "program/type.h"

namespace hone {

using ValueId = std::int32_t;
inline constexpr ValueId kNoValue = -1;

// Kind of memory that holds a value. All roles except activation are bound: their memory exists outside the program.
enum class Role : std::uint8_t {
  kWeight,      // in a store of weights
  kGradient,    // in a store of gradients, where micro-batches accumulate; has the name of its weight
  kState,       // kept between runs: optimizer moments, KV pages
  kInput,       // written by the host before a run
  kActivation,  // computed by a node, in the step arena
};

// Memory that holds a state.
enum class Placement : std::uint8_t {
  kDevice,
  kHost,  // host memory that the device accesses directly (backend/host_memory.h)
};

enum class Phase : std::uint8_t { kForward, kBackward, kUpdate };

struct Value {
  Type type;
  Role role = Role::kActivation;
  std::string name;                          // empty for activations
  bool trainable = false;                    // weights: gradients are computed
  ValueId alias_of = kNoValue;               // the value whose storage this one shares
  std::int32_t producer = -1;                // index of the node that computes it; -1 for bound values
  Placement placement = Placement::kDevice;  // states only
  bool keeps_dtype = false;                  // weights: passes that change the dtype of a program skip it
};

struct Node {
  const Op* op = nullptr;
  Attributes attributes;
  std::vector<ValueId> inputs;  // kNoValue: an optional input that is missing
  std::vector<ValueId> outputs;
  std::string scope;  // "layers.3.attention"
  Phase phase = Phase::kForward;
};

// Returns true if the value is an input of the node.
[[nodiscard]] bool reads(const Node& node, ValueId value);

// Returns true if the node overwrites the storage of an input.
[[nodiscard]] bool updates_in_place(const Node& node);

// Declaration of a count in a program.
struct CountSpec {
  Count count;
  std::int64_t capacity = 0;  // largest value; a dimension with this count has capacity x factor rows
  ValueId source = kNoValue;  // i64 value that holds the count while nodes run; kNoValue: set by the host before a run
  std::size_t before = 0;     // number of values when it was declared
};

// Value that the host reads after a run.
struct Output {
  std::string name;
  ValueId value = kNoValue;
};

class Program;

// Handle to one value of a Program. The default is invalid and stands for a missing optional input.
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
  // Declares a count that the host sets before a run (Executable::set_count). A bound value whose type has an
  // undeclared count declares it implicitly.
  void count(Count count, std::int64_t capacity);
  // Declares a count that the device computes: the only element of `source`, of type i64, when a node runs. The host
  // does not know it. The node that computes `source` must keep it from 0 to the capacity. Values with that count must
  // be declared after it.
  void count(Count count, std::int64_t capacity, Tensor source);
  // Declare bound values, whose names are unique within a role. Throw Error if the rows of the type do not match the
  // capacity of its count or if a node computes that count.
  Tensor weight(std::string name, Type type, bool trainable = true, bool keeps_dtype = false);
  Tensor gradient(std::string name, Type type);
  Tensor state(std::string name, Type type, Placement placement = Placement::kDevice);
  Tensor input(std::string name, Type type);
  // Appends a node in the current scope and phase and returns its outputs, whose types and aliases the operation
  // determines. Throws Error if the inputs do not fit, or if an output has an undeclared count or another capacity.
  std::vector<Tensor> append(const Op& op, Attributes attributes, std::span<const Tensor> inputs);
  // The same for an operation with one output.
  Tensor append1(const Op& op, Attributes attributes, std::initializer_list<Tensor> inputs);
  // Declares a value as an output of the program.
  void output(std::string name, Tensor value);

  [[nodiscard]] const std::vector<Value>& values() const { return values_; }
  [[nodiscard]] const std::vector<Node>& nodes() const { return nodes_; }
  [[nodiscard]] const std::vector<Output>& outputs() const { return outputs_; }
  [[nodiscard]] const std::vector<CountSpec>& counts() const { return counts_; }
  [[nodiscard]] const CountSpec* find_count(Count count) const;  // null if it is not declared
  // Value that holds the count of this type; kNoValue if the type has none or the host sets it.
  [[nodiscard]] ValueId count_source(const Type& type) const;
  [[nodiscard]] const Value& value(ValueId id) const { return values_.at(static_cast<std::size_t>(id)); }
  [[nodiscard]] Tensor tensor(ValueId id) { return id == kNoValue ? Tensor() : Tensor(*this, id); }
  // Bound value with this role and name; kNoValue if there is none.
  [[nodiscard]] ValueId find(Role role, std::string_view name) const;
  // Value that owns the storage of `id`, found by following its aliases.
  [[nodiscard]] ValueId storage_of(ValueId id) const;
  [[nodiscard]] std::vector<std::optional<Type>> types_of(std::span<const ValueId> ids) const;
  [[nodiscard]] Cost cost(const Node& node) const;
  [[nodiscard]] Cost cost() const;  // sum over all nodes

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
  std::array<std::unordered_map<std::string, ValueId>, 4> bound_;  // by role and name
  std::vector<Node> nodes_;
  std::vector<Output> outputs_;
  std::string scope_;
  Phase phase_ = Phase::kForward;
};

// Appends ".NAME" to the program's scope until the object is destroyed.
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

// The changes that a copy of a program makes to bound values and to the capacities of counts.
struct BoundChanges {
  std::function<Type(const Value&)> retype = [](const Value& value) { return value.type; };
  std::function<std::int64_t(const CountSpec&)> recount = [](const CountSpec& spec) { return spec.capacity; };
  std::function<bool(ValueId)> keeps = [](ValueId) { return true; };  // false: the value is left out
};

// Copies a program node by node, so that a pass has code only for the nodes that it changes. The constructor copies all
// bound values in order; then the pass replays or replaces each node.
class ProgramRewriter {
 public:
  explicit ProgramRewriter(const Program& from, const BoundChanges& changes = {});

  [[nodiscard]] Program& program() { return to_; }
  // New value of an old one; an invalid tensor for kNoValue.
  [[nodiscard]] Tensor mapped(ValueId old);
  // Registers the new value of an old one and declares the counts whose source it is.
  void map(ValueId old, Tensor value);
  // Appends a copy of `node` with mapped inputs; does not map its outputs.
  std::vector<Tensor> clone(const Node& node);
  // Appends a copy of `node` and maps its outputs.
  void replay(const Node& node);
  // Copies the outputs of the program and returns the new program.
  [[nodiscard]] Program finish();
  // Returns the new program with the outputs that the pass has declared.
  [[nodiscard]] Program take();

 private:
  const Program& from_;
  std::function<std::int64_t(const CountSpec&)> recount_;
  Program to_;
  std::vector<ValueId> map_;
};

}  // namespace hone
