// Renders a parsed template: executes its statements and evaluates its expressions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "jinja/ast.h"
#include "jinja/functions.h"

namespace hone {

// Names visible at one place of a template: those of the innermost scope and, through `outer`, those around it.
struct TemplateScope {
  std::vector<std::pair<std::string, TemplateValue>> names;
  std::shared_ptr<TemplateScope> outer;

  [[nodiscard]] const TemplateValue* find(std::string_view name) const;
  void set(std::string_view name, TemplateValue value);
};
using ScopePtr = std::shared_ptr<TemplateScope>;

// Output of a template. `generated` contains the byte ranges [begin, end) that {% generation %} blocks produced.
struct RenderedTemplate {
  std::string text;
  std::vector<std::pair<std::size_t, std::size_t>> generated;
};

// Executes one template. Use a new renderer for each rendering.
class TemplateRenderer {
 public:
  // `local_time`: the time that strftime_now formats, in seconds since 1970-01-01 00:00 on the local wall clock.
  TemplateRenderer(ScopePtr globals, std::int64_t local_time)
      : globals_(std::move(globals)), scope_(globals_), local_time_(local_time) {}

  // Renders a template. Throws Error that names the template's line, also if rendering exceeds the limits of steps and
  // output.
  [[nodiscard]] RenderedTemplate render(const Block& block);

 private:
  enum class Flow { kNext, kBreak, kContinue };
  // Limits the nesting of expressions, blocks and macro calls, so that recursion cannot overflow the stack.
  class Depth {
   public:
    explicit Depth(int& depth) : depth_(depth) {
      constexpr int kDeepest = 600;
      if (depth_ >= kDeepest) throw TemplateFailure("expressions, blocks or calls nested too deep");
      ++depth_;
    }
    Depth(const Depth&) = delete;
    Depth& operator=(const Depth&) = delete;
    ~Depth() { --depth_; }

   private:
    int& depth_;
  };
  class ScopeGuard;

  Flow execute(const Block& block);
  Flow execute(const Statement& statement);
  Flow execute_if(const Statement& statement);
  Flow execute_for(const Statement& statement);
  Flow run_loop(const Statement& statement, const TemplateValue& source, int depth0);
  void execute_set_block(const Statement& statement);
  void execute_macro(const Statement& statement);
  void execute_call_block(const Statement& statement);
  void execute_with(const Statement& statement);
  void execute_generation(const Statement& statement);
  std::string capture(const Block& block);
  void write(std::string_view text);
  void assign(const Expression& target, const TemplateValue& value);
  std::vector<TemplateValue> loop_items(const Statement& statement, const TemplateValue& source);

  TemplateValue evaluate(const Expression& expression);
  TemplateValue evaluate_inner(const Expression& expression);
  TemplateValue evaluate_name(const Expression& expression);
  TemplateValue evaluate_arithmetic(const Expression& expression);
  TemplateValue evaluate_compare(const Expression& expression);
  TemplateValue evaluate_slice(const Expression& expression);
  TemplateValue evaluate_dict(const Expression& expression);
  TemplateValue evaluate_concatenation(const Expression& expression);
  TemplateValue evaluate_filter(const Expression& expression, const TemplateValue* block_text);
  TemplateValue evaluate_call(const Expression& expression, const TemplateValue* caller);
  std::vector<TemplateValue> evaluate_all(const Expression& expression, std::size_t from);
  TemplateArguments arguments_of(const Expression& expression);
  TemplateValue call(const TemplateValue& callee, TemplateArguments& arguments);
  TemplateValue call_global(const std::string& name, TemplateArguments& arguments);
  TemplateValue call_macro(const Macro& macro, TemplateArguments& arguments);
  TemplateValue call_loop(const LoopState& loop, TemplateArguments& arguments);
  TemplateValue range(TemplateArguments& arguments);

  ScopePtr globals_;
  ScopePtr scope_;
  std::int64_t local_time_;
  TemplateBudget meter_;
  int depth_ = 0;
  RenderedTemplate result_;
  std::string* out_ = nullptr;  // result_.text, or the buffer that captures a block's output
};

}  // namespace hone
