#include "program/text.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <map>
#include <optional>

#include "core/error.h"
#include "core/strings.h"
#include "program/quoted.h"

namespace hone {
namespace {

constexpr std::array<std::string_view, 5> kRoles{"weight", "gradient", "state", "input", "activation"};
constexpr std::array<std::string_view, 3> kPhases{"forward", "backward", "update"};

std::string operand_text(ValueId id) { return id == kNoValue ? "_" : "%" + std::to_string(id); }

// Returns true if a scope can be printed without quotes.
bool is_word(std::string_view scope) {
  return std::all_of(scope.begin(), scope.end(),
                     [](char c) { return static_cast<unsigned char>(c) > ' ' && c != 0x7F && c != '"' && c != '\\'; });
}

std::string bound_line(const Program& program, std::size_t id) {
  const Value& value = program.values()[id];
  return text_of("%", id, ": ", to_text(value.type), " = ", kRoles[static_cast<std::size_t>(value.role)], " ",
                 in_quotes(value.name), value.trainable ? " trainable" : "", value.keeps_dtype ? " keeps_dtype" : "",
                 value.placement == Placement::kHost ? " host" : "", "\n");
}

// Returns true if a bound value declares the count implicitly, so that no line is printed for it.
bool is_declared_implicitly(const Program& program, const CountSpec& spec) {
  return spec.source == kNoValue && std::ranges::any_of(program.values(), [&](const Value& value) {
           return value.producer < 0 && value.type.count() == spec.count;
         });
}

std::string count_line(const CountSpec& spec) {
  return text_of("count ", spec.count.name(), ": ", spec.capacity,
                 spec.source == kNoValue ? "" : " = " + operand_text(spec.source), "\n");
}

std::string node_line(const Program& program, const Node& node) {
  std::string line;
  for (std::size_t i = 0; i < node.outputs.size(); ++i) {
    if (i > 0) line.append(", ");
    line.append(operand_text(node.outputs[i])).append(": ").append(to_text(program.value(node.outputs[i]).type));
  }
  line.append(node.outputs.empty() ? "" : " = ").append(node.op->name()).append("(");
  for (std::size_t i = 0; i < node.inputs.size(); ++i) {
    if (i > 0) line.append(", ");
    line.append(operand_text(node.inputs[i]));
  }
  line.append(")");
  if (const std::string attributes = node.attributes.to_text(); !attributes.empty())
    line.append(" {" + attributes + "}");
  if (!node.scope.empty()) line.append(" @").append(is_word(node.scope) ? node.scope : in_quotes(node.scope));
  line.append(" ").append(kPhases[static_cast<std::size_t>(node.phase)]).append("\n");
  return line;
}

// Tokenizer of one line, from left to right. Its functions skip leading spaces.
class LineReader {
 public:
  explicit LineReader(std::string_view line) : rest_(line) {}

  bool accept(std::string_view token) {
    skip_space();
    if (!rest_.starts_with(token)) return false;
    rest_.remove_prefix(token.size());
    return true;
  }
  void expect(std::string_view token) {
    if (!accept(token)) throw Error(text_of("expected '", token, "' before '", rest_.substr(0, 20), "'"));
  }
  std::string_view until(std::string_view stops) {
    skip_space();
    return trim(take(std::min(rest_.find_first_of(stops), rest_.size())));
  }
  // Reads "%7" or "_" (kNoValue); nullopt if the line continues with something else.
  std::optional<ValueId> value_id() {
    skip_space();
    if (accept("_")) return kNoValue;
    if (!accept("%")) return std::nullopt;
    ValueId id = 0;
    const auto [end, error] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), id);
    if (error != std::errc() || id < 0) throw Error("expected a number after '%'");
    rest_.remove_prefix(static_cast<std::size_t>(end - rest_.data()));
    return id;
  }
  std::int64_t integer() {
    skip_space();
    std::int64_t value = 0;
    const auto [end, error] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), value);
    if (error != std::errc() || value < 0) throw Error(text_of("expected a number before '", rest_.substr(0, 20), "'"));
    rest_.remove_prefix(static_cast<std::size_t>(end - rest_.data()));
    return value;
  }
  std::string quoted() {
    skip_space();
    return unquoted(take(quoted_length(rest_)));
  }
  // Reads a quoted string or, without quotes, the characters up to the next space.
  std::string scope() {
    skip_space();
    return rest_.starts_with('"') ? quoted() : std::string(until(" "));
  }
  // Reads up to and including the closing brace, which it does not return. Braces in quotes are skipped.
  std::string_view attributes() {
    std::size_t end = 0;
    while (end < rest_.size() && rest_[end] != '}') end += rest_[end] == '"' ? quoted_length(rest_.substr(end)) : 1;
    const std::string_view taken = take(end);
    expect("}");
    return taken;
  }
  [[nodiscard]] bool done() {
    skip_space();
    return rest_.empty();
  }
  void expect_end() {
    if (!done()) throw Error(text_of("'", rest_.substr(0, 20), "' after the end of the statement"));
  }

 private:
  std::string_view take(std::size_t count) {
    const std::string_view taken = rest_.substr(0, count);
    rest_.remove_prefix(count);
    return taken;
  }
  void skip_space() {
    while (!rest_.empty() && rest_.front() == ' ') rest_.remove_prefix(1);
  }
  std::string_view rest_;
};

class ProgramReader {
 public:
  explicit ProgramReader(const OpRegistry& registry) : registry_(registry) {}

  void read_line(std::string_view text) {
    LineReader line(text);
    if (line.done() || line.accept("#")) return;
    if (line.accept("output")) {
      std::string name = line.quoted();
      line.expect("=");
      const Tensor value = operand(line);
      if (!value) throw Error("an output needs a value, saw _");
      program_.output(std::move(name), value);
      return line.expect_end();
    }
    if (line.accept("count ")) return read_count(line);
    // "%1: TYPE, %2: TYPE = " of a bound value or node, then its keyword or operation.
    std::vector<std::pair<ValueId, Type>> results;  // ids as written in the text
    while (const auto id = line.value_id()) {
      if (*id == kNoValue || ids_.contains(*id)) throw Error(text_of(operand_text(*id), " cannot be defined here"));
      line.expect(":");
      const std::string type = std::string(line.until("]")) + "]";
      line.expect("]");
      results.emplace_back(*id, type_from_text(type));
      if (!line.accept(",")) break;
    }
    if (!results.empty()) line.expect("=");
    const std::string_view word = line.until(" (");
    for (std::size_t role = 0; role < 4; ++role) {
      if (word == kRoles[role]) return read_bound(line, static_cast<Role>(role), results);
    }
    read_node(line, word, results);
  }

  Program take() { return std::move(program_); }

 private:
  void read_count(LineReader& line) {
    const Count count{line.until(":")};
    line.expect(":");
    const std::int64_t capacity = line.integer();
    if (program_.find_count(count) != nullptr) throw Error(text_of("count ", count.name(), " is declared twice"));
    if (line.accept("=")) {
      const Tensor source = operand(line);
      if (!source) throw Error("a count needs a value, saw _");
      program_.count(count, capacity, source);
    } else {
      program_.count(count, capacity);
    }
    line.expect_end();
  }

  void read_bound(LineReader& line, Role role, const std::vector<std::pair<ValueId, Type>>& results) {
    if (results.size() != 1) throw Error("a bound value needs exactly one result");
    std::string name = line.quoted();
    if (program_.find(role, name) != kNoValue) throw Error(text_of("two values are named '", name, "'"));
    const bool trainable = line.accept("trainable");
    const bool keeps_dtype = line.accept("keeps_dtype");
    const Placement placement = line.accept("host") ? Placement::kHost : Placement::kDevice;
    line.expect_end();
    const Type& type = results[0].second;
    Tensor value;
    switch (role) {
      case Role::kWeight:
        value = program_.weight(std::move(name), type, trainable, keeps_dtype);
        break;
      case Role::kGradient:
        value = program_.gradient(std::move(name), type);
        break;
      case Role::kState:
        value = program_.state(std::move(name), type, placement);
        break;
      default:
        value = program_.input(std::move(name), type);
        break;
    }
    ids_[results[0].first] = value.id();
  }

  void read_node(LineReader& line, std::string_view name, const std::vector<std::pair<ValueId, Type>>& results) {
    const Op& op = registry_.get(name);
    line.expect("(");
    std::vector<Tensor> inputs;
    while (!line.accept(")")) {
      inputs.push_back(operand(line));
      line.accept(",");
    }
    Attributes attributes = op.default_attributes();
    if (line.accept("{")) {
      attributes = attributes.from_text(line.attributes());
    }
    program_.set_scope(line.accept("@") ? line.scope() : std::string());
    const std::string_view word = line.until(" ");
    const auto phase = std::find(kPhases.begin(), kPhases.end(), word);
    if (phase == kPhases.end()) throw Error(text_of("'", word, "' is not forward, backward or update"));
    program_.set_phase(static_cast<Phase>(phase - kPhases.begin()));
    line.expect_end();
    const std::vector<Tensor> outputs = program_.append(op, attributes, inputs);
    if (outputs.size() != results.size())
      throw Error(text_of(name, " has ", outputs.size(), " outputs, not ", results.size()));
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      if (outputs[i].type() != results[i].second) {
        throw Error(text_of(name, " gives ", to_text(outputs[i].type()), ", not ", to_text(results[i].second)));
      }
      ids_[results[i].first] = outputs[i].id();
    }
  }

  Tensor operand(LineReader& line) {
    const auto id = line.value_id();
    if (!id) throw Error("expected a value");
    if (*id == kNoValue) return {};
    const auto found = ids_.find(*id);
    if (found == ids_.end()) throw Error(text_of("%", *id, " is used before it is defined"));
    return program_.tensor(found->second);
  }

  const OpRegistry& registry_;
  Program program_;
  std::map<ValueId, ValueId> ids_;  // id in the text -> id in program_
};

}  // namespace

std::string to_text(const Program& program) {
  // Print bound values and counts in the order of their declaration, between the nodes, so that parsing the text
  // assigns the same ids.
  std::string text;
  std::size_t next = 0;
  auto count = program.counts().begin();
  const auto print_counts_before = [&](std::size_t value) {
    for (; count != program.counts().end() && count->before <= value; ++count) {
      if (!is_declared_implicitly(program, *count)) text.append(count_line(*count));
    }
  };
  const auto print_bound_before = [&](std::size_t end) {
    for (; next < end; ++next) {
      if (program.values()[next].producer < 0) {
        print_counts_before(next);
        text.append(bound_line(program, next));
      }
    }
    print_counts_before(end);
  };
  for (const Node& node : program.nodes()) {
    if (!node.outputs.empty()) print_bound_before(static_cast<std::size_t>(node.outputs.front()));
    text.append(node_line(program, node));
  }
  print_bound_before(program.values().size());
  for (const Output& output : program.outputs())
    text.append(text_of("output ", in_quotes(output.name), " = ", operand_text(output.value), "\n"));
  return text;
}

Program program_from_text(std::string_view text, const OpRegistry& registry) {
  ProgramReader reader(registry);
  std::size_t number = 0;
  for (const std::string& line : split(text, '\n')) {
    ++number;
    try {
      reader.read_line(line);
    } catch (const Error& error) {
      throw Error(text_of("program, line ", number), error.what());
    }
  }
  return reader.take();
}

}  // namespace hone
