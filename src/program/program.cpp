#include "program/program.h"

#include <algorithm>

#include "core/error.h"

namespace hone {

bool reads(const Node& node, ValueId value) {
  return std::find(node.inputs.begin(), node.inputs.end(), value) != node.inputs.end();
}

bool updates_in_place(const Node& node) {
  for (std::size_t i = 0; i < node.outputs.size(); ++i) {
    if (node.op->alias(i) && !node.op->is_view()) return true;
  }
  return false;
}

const Value& Tensor::value() const {
  HONE_ASSERT(valid(), "access to an invalid tensor");
  return program_->value(id_);
}

void Program::add_count(const CountSpec& spec) {
  HONE_ASSERT(spec.count != Count::none && spec.capacity >= 0, "a count of ", spec.capacity, " rows");
  HONE_ASSERT(find_count(spec.count) == nullptr, "count ", spec.count.name(), " is declared twice");
  counts_.push_back(spec);
  counts_.back().before = values_.size();
}

void Program::count(Count count, std::int64_t capacity) { add_count({count, capacity}); }

void Program::count(Count count, std::int64_t capacity, Tensor source) {
  const Type& type = source.type();
  if (type.dtype != DType::kI64 || type.elements() != 1 || type.count() != Count::none) {
    throw Error(text_of("count ", count.name()), text_of("its source is ", to_text(type), ", expected i64[1]"));
  }
  HONE_ASSERT(&source.program() == this, "the source of count ", count.name(), " belongs to another program");
  add_count({count, capacity, source.id()});
}

const CountSpec* Program::find_count(Count count) const {
  const auto found = std::ranges::find(counts_, count, &CountSpec::count);
  return found == counts_.end() ? nullptr : &*found;
}

ValueId Program::count_source(const Type& type) const {
  const CountSpec* spec = find_count(type.count());
  return spec == nullptr ? kNoValue : spec->source;
}

void Program::check_count(const Type& type) const {
  if (type.count() == Count::none) return;
  const CountSpec* spec = find_count(type.count());
  if (spec == nullptr) {
    throw Error(text_of(to_text(type), " has the count ", type.count().name(), ", which the program does not declare"));
  }
  if (type.rows() != spec->capacity * type.shape[0].factor) {
    throw Error(
        text_of(to_text(type), ": the program's count ", type.count().name(), " has the capacity ", spec->capacity));
  }
}

Tensor Program::bound(Role role, std::string name, Type type, bool trainable) {
  HONE_ASSERT(find(role, name) == kNoValue, "two bound values are named ", name);
  if (type.count() != Count::none && find_count(type.count()) == nullptr) {
    count(type.count(), type.rows() / type.shape[0].factor);
  }
  check_count(type);
  if (const ValueId source = count_source(type); source != kNoValue && value(source).producer >= 0) {
    throw Error(text_of(name, " has the count ", type.count().name(), ", which a node computes"));
  }
  const auto id = static_cast<ValueId>(values_.size());
  bound_.at(static_cast<std::size_t>(role)).emplace(name, id);
  values_.push_back({std::move(type), role, std::move(name), trainable, kNoValue, -1});
  return {*this, id};
}

Tensor Program::weight(std::string name, Type type, bool trainable, bool keeps_dtype) {
  const Tensor weight = bound(Role::kWeight, std::move(name), std::move(type), trainable);
  values_.back().keeps_dtype = keeps_dtype;
  return weight;
}
Tensor Program::gradient(std::string name, Type type) {
  return bound(Role::kGradient, std::move(name), std::move(type), false);
}
Tensor Program::state(std::string name, Type type, Placement placement) {
  const Tensor state = bound(Role::kState, std::move(name), std::move(type), false);
  values_.back().placement = placement;
  return state;
}
Tensor Program::input(std::string name, Type type) {
  return bound(Role::kInput, std::move(name), std::move(type), false);
}

std::vector<Tensor> Program::append(const Op& op, Attributes attributes, std::span<const Tensor> inputs) {
  Node node{&op, std::move(attributes), {}, {}, scope_, phase_};
  for (const Tensor& input : inputs) {
    HONE_ASSERT(!input || &input.program() == this, "an input of ", op.name(), " belongs to another program");
    node.inputs.push_back(input.id());
  }
  const std::vector<std::optional<Type>> input_types = types_of(node.inputs);
  std::vector<Type> types;
  try {
    types = op.infer(input_types, node.attributes);
    for (const Type& type : types) {
      type.check();
      check_count(type);
    }
  } catch (const Error& error) {
    throw Error(scope_, error.what());
  }
  std::vector<Tensor> outputs;
  for (std::size_t i = 0; i < types.size(); ++i) {
    Value value{std::move(types[i]), Role::kActivation, {}, false, kNoValue, static_cast<std::int32_t>(nodes_.size())};
    if (const auto aliased = op.alias(i)) {
      if (required(input_types, *aliased, op.name()).bytes() != value.type.bytes()) {
        throw Error(op.name(), text_of("output ", i, ", ", to_text(value.type), ", cannot share the storage of input ",
                                       *aliased, ", ", to_text(*input_types[*aliased])));
      }
      value.alias_of = node.inputs[*aliased];
    }
    node.outputs.push_back(static_cast<ValueId>(values_.size()));
    values_.push_back(std::move(value));
    outputs.emplace_back(*this, node.outputs.back());
  }
  nodes_.push_back(std::move(node));
  return outputs;
}

Tensor Program::append1(const Op& op, Attributes attributes, std::initializer_list<Tensor> inputs) {
  auto outputs = append(op, std::move(attributes), std::span<const Tensor>(inputs.begin(), inputs.size()));
  HONE_ASSERT(outputs.size() == 1, op.name(), " has ", outputs.size(), " outputs");
  return outputs[0];
}

void Program::output(std::string name, Tensor value) { outputs_.push_back({std::move(name), value.id()}); }

ValueId Program::find(Role role, std::string_view name) const {
  if (role == Role::kActivation) return kNoValue;
  const auto& names = bound_.at(static_cast<std::size_t>(role));
  const auto found = names.find(std::string(name));
  return found == names.end() ? kNoValue : found->second;
}

ValueId Program::storage_of(ValueId id) const {
  while (value(id).alias_of != kNoValue) id = value(id).alias_of;
  return id;
}

std::vector<std::optional<Type>> Program::types_of(std::span<const ValueId> ids) const {
  std::vector<std::optional<Type>> types;
  types.reserve(ids.size());
  for (const ValueId id : ids) types.push_back(id == kNoValue ? std::nullopt : std::optional<Type>(value(id).type));
  return types;
}

Cost Program::cost(const Node& node) const {
  std::vector<Type> outputs;
  outputs.reserve(node.outputs.size());
  for (const ValueId id : node.outputs) outputs.push_back(value(id).type);
  return node.op->cost(types_of(node.inputs), outputs, node.attributes);
}

Cost Program::cost() const {
  Cost total;
  for (const Node& node : nodes_) {
    const Cost cost = this->cost(node);
    total.flops += cost.flops;
    total.pair_flops += cost.pair_flops;
    total.bytes_read += cost.bytes_read;
    total.bytes_written += cost.bytes_written;
  }
  return total;
}

Scope::Scope(Program& program, std::string_view name) : program_(program), outer_(program.scope()) {
  program.set_scope(outer_.empty() ? std::string(name) : outer_ + "." + std::string(name));
}

ProgramRewriter::ProgramRewriter(const Program& from, const BoundChanges& changes)
    : from_(from), recount_(changes.recount), map_(from.values().size(), kNoValue) {
  for (const CountSpec& spec : from.counts()) {
    if (spec.source == kNoValue) to_.count(spec.count, recount_(spec));
  }
  for (std::size_t i = 0; i < from.values().size(); ++i) {
    const Value& value = from.values()[i];
    const auto id = static_cast<ValueId>(i);
    if (value.producer >= 0 || !changes.keeps(id)) continue;
    const Type type = changes.retype(value);
    switch (value.role) {
      case Role::kWeight:
        map(id, to_.weight(value.name, type, value.trainable, value.keeps_dtype));
        break;
      case Role::kGradient:
        map(id, to_.gradient(value.name, type));
        break;
      case Role::kState:
        map(id, to_.state(value.name, type, value.placement));
        break;
      case Role::kInput:
        map(id, to_.input(value.name, type));
        break;
      case Role::kActivation:
        break;
    }
  }
}

void ProgramRewriter::map(ValueId old, Tensor value) {
  map_.at(static_cast<std::size_t>(old)) = value.id();
  for (const CountSpec& spec : from_.counts()) {
    if (spec.source == old && to_.find_count(spec.count) == nullptr) to_.count(spec.count, recount_(spec), value);
  }
}

Tensor ProgramRewriter::mapped(ValueId old) {
  if (old == kNoValue) return {};
  const ValueId id = map_.at(static_cast<std::size_t>(old));
  HONE_ASSERT(id != kNoValue, "value %", old, " is used before it is defined");
  return to_.tensor(id);
}

std::vector<Tensor> ProgramRewriter::clone(const Node& node) {
  std::vector<Tensor> inputs;
  inputs.reserve(node.inputs.size());
  for (const ValueId id : node.inputs) inputs.push_back(mapped(id));
  to_.set_scope(node.scope);
  to_.set_phase(node.phase);
  return to_.append(*node.op, node.attributes, inputs);
}

void ProgramRewriter::replay(const Node& node) {
  const std::vector<Tensor> outputs = clone(node);
  for (std::size_t i = 0; i < outputs.size(); ++i) map(node.outputs[i], outputs[i]);
}

Program ProgramRewriter::finish() {
  for (const Output& output : from_.outputs()) to_.output(output.name, mapped(output.value));
  return take();
}

Program ProgramRewriter::take() {
  to_.set_scope({});
  return std::move(to_);
}

}  // namespace hone
