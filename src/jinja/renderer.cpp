#include "jinja/renderer.h"

#include <algorithm>
#include <utility>

#include "core/error.h"
#include "jinja/lexer.h"
#include "jinja/python_text.h"

namespace hone {

struct Macro {
  const Statement* statement;
  std::weak_ptr<TemplateScope> scope;  // scope of the definition; it owns the macro
};

namespace {

constexpr std::size_t kMostOutput = 64U << 20U;  // bytes

void check_namespace_name(const TemplateValue& name) {
  if (name.is_string() && name.text().starts_with('_')) {
    throw TemplateFailure(text_of("a namespace cannot hold the name '", name.text(), "', which begins with _"));
  }
}

}  // namespace

const TemplateValue* TemplateScope::find(std::string_view name) const {
  for (const TemplateScope* scope = this; scope != nullptr; scope = scope->outer.get()) {
    for (const auto& [known, value] : scope->names) {
      if (known == name) return &value;
    }
  }
  return nullptr;
}

void TemplateScope::set(std::string_view name, TemplateValue value) {
  for (auto& [known, old] : names) {
    if (known == name) {
      old = std::move(value);
      return;
    }
  }
  names.emplace_back(name, std::move(value));
}

// Opens a new innermost scope for the lifetime of the guard.
class TemplateRenderer::ScopeGuard {
 public:
  ScopeGuard(TemplateRenderer& renderer, ScopePtr outer) : renderer_(renderer), saved_(renderer.scope_) {
    renderer_.scope_ = std::make_shared<TemplateScope>();
    renderer_.scope_->outer = std::move(outer);
  }
  explicit ScopeGuard(TemplateRenderer& renderer) : ScopeGuard(renderer, renderer.scope_) {}
  ScopeGuard(const ScopeGuard&) = delete;
  ScopeGuard& operator=(const ScopeGuard&) = delete;
  ~ScopeGuard() { renderer_.scope_ = saved_; }

 private:
  TemplateRenderer& renderer_;
  ScopePtr saved_;
};

RenderedTemplate TemplateRenderer::render(const Block& block) {
  out_ = &result_.text;
  const ScopeGuard scope(*this);
  execute(block);
  return std::move(result_);
}

void TemplateRenderer::write(std::string_view text) {
  if (out_->size() + text.size() > kMostOutput) throw TemplateFailure("the template's output exceeds the limit");
  meter_.charge_bytes(text.size());
  out_->append(text);
}

std::string TemplateRenderer::capture(const Block& block) {
  std::string text;
  std::string* const saved = out_;
  out_ = &text;
  try {
    execute(block);
  } catch (...) {
    out_ = saved;
    throw;
  }
  out_ = saved;
  return text;
}

TemplateRenderer::Flow TemplateRenderer::execute(const Block& block) {
  for (const auto& statement : block) {
    Flow flow = Flow::kNext;
    try {
      const Depth depth(depth_);
      meter_.step();
      flow = execute(*statement);
    } catch (const TemplateFailure& failure) {
      fail_in_template(statement->line, failure.what());
    }
    if (flow != Flow::kNext) return flow;
  }
  return Flow::kNext;
}

TemplateRenderer::Flow TemplateRenderer::execute(const Statement& statement) {
  switch (statement.kind) {
    case Statement::Kind::kText:
      write(statement.text);
      break;
    case Statement::Kind::kOutput:
      write(printed(meter_, evaluate(*statement.expression)));
      break;
    case Statement::Kind::kIf:
      return execute_if(statement);
    case Statement::Kind::kFor:
      return execute_for(statement);
    case Statement::Kind::kSet:
      assign(*statement.target, evaluate(*statement.expression));
      break;
    case Statement::Kind::kSetBlock:
      execute_set_block(statement);
      break;
    case Statement::Kind::kMacro:
      execute_macro(statement);
      break;
    case Statement::Kind::kCallBlock:
      execute_call_block(statement);
      break;
    case Statement::Kind::kFilterBlock: {
      const ScopeGuard scope(*this);
      const TemplateValue text = capture(statement.body);
      write(printed(meter_, evaluate_filter(*statement.expression, &text)));
      break;
    }
    case Statement::Kind::kWith:
      execute_with(statement);
      break;
    case Statement::Kind::kGeneration:
      execute_generation(statement);
      break;
    case Statement::Kind::kBreak:
      return Flow::kBreak;
    case Statement::Kind::kContinue:
      return Flow::kContinue;
  }
  return Flow::kNext;
}

TemplateRenderer::Flow TemplateRenderer::execute_if(const Statement& statement) {
  for (const auto& [condition, body] : statement.branches) {
    if (condition == nullptr || evaluate(*condition).truthy()) return execute(body);
  }
  return Flow::kNext;
}

// Returns the items that satisfy the loop's own condition; `loop` counts only these.
std::vector<TemplateValue> TemplateRenderer::loop_items(const Statement& statement, const TemplateValue& source) {
  std::vector<TemplateValue> items = iterate(source);
  meter_.charge_bytes(items.size() * 32);
  if (statement.condition == nullptr) return items;
  std::vector<TemplateValue> kept;
  for (TemplateValue& item : items) {
    const ScopeGuard scope(*this);
    assign(*statement.target, item);
    if (evaluate(*statement.condition).truthy()) kept.push_back(std::move(item));
  }
  return kept;
}

TemplateRenderer::Flow TemplateRenderer::execute_for(const Statement& statement) {
  return run_loop(statement, evaluate(*statement.expression), 0);
}

TemplateRenderer::Flow TemplateRenderer::run_loop(const Statement& statement, const TemplateValue& source, int depth0) {
  const auto loop = std::make_shared<LoopState>();
  loop->items = loop_items(statement, source);
  loop->depth0 = depth0;
  if (statement.recursive) {
    loop->recursive = &statement;
    loop->scope = scope_;
  }
  if (loop->items.empty()) return execute(statement.orelse);
  for (; loop->index < loop->items.size(); ++loop->index) {
    meter_.step();
    const ScopeGuard scope(*this);
    scope_->set("loop", loop);
    assign(*statement.target, loop->items[loop->index]);
    if (execute(statement.body) == Flow::kBreak) break;
  }
  return Flow::kNext;
}

void TemplateRenderer::assign(const Expression& target, const TemplateValue& value) {
  if (target.kind == Expression::Kind::kName) {
    scope_->set(target.name, value);
  } else if (target.kind == Expression::Kind::kAttribute) {
    const TemplateValue object = evaluate(*target.arguments[0]);
    if (!object.is<TemplateValue::Namespace>())
      throw TemplateFailure("cannot assign attribute on non-namespace object");
    if (value.shape().holds_reference) throw TemplateFailure("a namespace cannot hold functions or namespaces");
    check_namespace_name(TemplateValue(target.name));
    object.as<TemplateValue::Namespace>()->fields.set(TemplateValue(target.name), value);
  } else {
    const std::vector<TemplateValue> items = iterate(value);
    if (items.size() != target.arguments.size()) {
      throw TemplateFailure(
          text_of("cannot unpack ", items.size(), " values into ", target.arguments.size(), " names"));
    }
    for (std::size_t i = 0; i < items.size(); ++i) assign(*target.arguments[i], items[i]);
  }
}

void TemplateRenderer::execute_set_block(const Statement& statement) {
  TemplateValue text;
  {
    const ScopeGuard scope(*this);
    text = capture(statement.body);
    if (statement.expression) text = evaluate_filter(*statement.expression, &text);
  }
  assign(*statement.target, text);
}

void TemplateRenderer::execute_macro(const Statement& statement) {
  auto macro = std::make_shared<const Macro>(Macro{&statement, scope_});
  scope_->set(statement.text, std::make_shared<const CallableData>(CallableData{statement.text, {}, std::move(macro)}));
}

void TemplateRenderer::execute_call_block(const Statement& statement) {
  const auto macro = std::make_shared<const Macro>(Macro{&statement, scope_});
  const TemplateValue caller = std::make_shared<const CallableData>(CallableData{"caller", {}, macro});
  write(printed(meter_, evaluate_call(*statement.expression, &caller)));
}

void TemplateRenderer::execute_with(const Statement& statement) {
  std::vector<TemplateValue> values;
  values.reserve(statement.assignments.size());
  for (const auto& [target, expression] : statement.assignments) values.push_back(evaluate(*expression));
  const ScopeGuard scope(*this);
  for (std::size_t i = 0; i < values.size(); ++i) assign(*statement.assignments[i].first, values[i]);
  execute(statement.body);
}

void TemplateRenderer::execute_generation(const Statement& statement) {
  const std::size_t begin = result_.text.size();
  const bool is_output = out_ == &result_.text;
  const ScopeGuard scope(*this);
  execute(statement.body);
  if (is_output) result_.generated.emplace_back(begin, result_.text.size());
}

TemplateValue TemplateRenderer::call(const TemplateValue& callee, TemplateArguments& arguments) {
  if (callee.is_undefined()) throw TemplateFailure(callee.as<Undefined>().name);
  if (callee.is<TemplateValue::Loop>()) return call_loop(*callee.as<TemplateValue::Loop>(), arguments);
  if (!callee.is<TemplateValue::Callable>())
    throw TemplateFailure(text_of("a value of type ", callee.type_name(), " cannot be called"));
  const CallableData& function = *callee.as<TemplateValue::Callable>();
  if (function.macro) return call_macro(*function.macro, arguments);
  if (!function.self.is_undefined()) return call_method(meter_, function.self, function.name, arguments);
  return call_global(function.name, arguments);
}

TemplateValue TemplateRenderer::call_global(const std::string& name, TemplateArguments& arguments) {
  if (name == "range") return range(arguments);
  if (name == "strftime_now") {
    const std::string format = arguments.get_text(0, "format", "");
    arguments.finish(name);
    meter_.charge_bytes(format.size(), 16);
    return python_strftime(format, local_time_);
  }
  if (name == "raise_exception") {
    throw TemplateFailure(
        text_of("the template refuses the conversation: ", printed(meter_, arguments.get(0, "message", ""))));
  }
  DictData fields;
  if (const TemplateValue* source = arguments.find(0, {}); source != nullptr) {
    if (!source->is_dict())
      throw TemplateFailure(text_of(name, " of a value of type ", source->type_name(), ", expected a mapping"));
    fields = source->dict_data();
    meter_.charge_bytes(fields.items.size(), 32);
  }
  for (const auto& [key, value] : arguments.named) {
    if (value.shape().holds_reference) throw TemplateFailure(text_of(name, " cannot hold functions or namespaces"));
    fields.set(TemplateValue(key), value);
  }
  if (name == "dict") return TemplateValue::dict(std::move(fields));
  for (const auto& [key, value] : fields.items) check_namespace_name(key);
  return std::make_shared<NamespaceData>(NamespaceData{std::move(fields)});
}

TemplateValue TemplateRenderer::range(TemplateArguments& arguments) {
  constexpr std::int64_t kMost = 100'000;  // the limit of Jinja's sandbox
  std::int64_t start = 0, stop = arguments.get_integer(0, "stop", 0);
  if (arguments.positional.size() > 1) {
    start = stop;
    stop = arguments.get_integer(1, "stop", 0);
  }
  const std::int64_t step = arguments.get_integer(2, "step", 1);
  arguments.finish("range");
  if (step == 0) throw TemplateFailure("range: the step is zero");
  std::vector<TemplateValue> items;
  for (std::int64_t i = start; step > 0 ? i < stop : i > stop;) {
    if (static_cast<std::int64_t>(items.size()) >= kMost) throw TemplateFailure("range: more than 100000 items");
    items.emplace_back(i);
    if (__builtin_add_overflow(i, step, &i)) break;
  }
  meter_.charge_bytes(items.size() * 32);
  return TemplateValue::list(std::move(items));
}

// Evaluates {{ loop(items) }} in a recursive loop: the text of the loop for other items.
TemplateValue TemplateRenderer::call_loop(const LoopState& loop, TemplateArguments& arguments) {
  const ScopePtr outer = loop.scope.lock();
  if (loop.recursive == nullptr || !outer) throw TemplateFailure("the loop is not recursive");
  const TemplateValue source = arguments.get(0, "iterable", {});
  arguments.finish("loop");
  const ScopeGuard scope(*this, outer);
  std::string text;
  std::string* const saved = std::exchange(out_, &text);
  try {
    run_loop(*loop.recursive, source, loop.depth0 + 1);
  } catch (...) {
    out_ = saved;
    throw;
  }
  out_ = saved;
  return text;
}

TemplateValue TemplateRenderer::call_macro(const Macro& macro, TemplateArguments& arguments) {
  const ScopePtr outer = macro.scope.lock();
  if (!outer) throw TemplateFailure("a macro is called outside of the block that defines it");
  const Statement& statement = *macro.statement;
  const ScopeGuard scope(*this, outer);
  for (std::size_t i = 0; i < statement.parameters.size(); ++i) {
    const MacroParameter& parameter = statement.parameters[i];
    const TemplateValue* given = arguments.find(i, parameter.name);
    TemplateValue value = Undefined{text_of("parameter '", parameter.name, "' was not provided")};
    if (given != nullptr) {
      value = *given;
    } else if (parameter.fallback) {
      value = evaluate(*parameter.fallback);
    }
    scope_->set(parameter.name, std::move(value));
  }
  if (const TemplateValue caller = arguments.get_named("caller", {}); !caller.is_undefined())
    scope_->set("caller", caller);
  if (statement.takes_varargs) scope_->set("varargs", arguments.take_rest());
  if (statement.takes_kwargs) scope_->set("kwargs", arguments.take_named_rest());
  arguments.finish(statement.kind == Statement::Kind::kMacro ? statement.text : "caller");
  return capture(statement.body);
}

}  // namespace hone
