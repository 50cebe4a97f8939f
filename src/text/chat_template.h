// Renders the Jinja chat templates of models with the same result as transformers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/json.h"

namespace hone {

// A rendered conversation. `assistant` contains the byte ranges [begin, end) that {% generation %} blocks produced.
struct RenderedChat {
  std::string text;
  std::vector<std::pair<std::size_t, std::size_t>> assistant;
};

// Default time of strftime_now: 2024-07-26 00:00, the date that Llama 3's templates use by default. In seconds.
inline constexpr std::int64_t kTemplateTime = 1'721'952'000;

class ChatTemplate {
 public:
  // Parses a template. Throws Error that names the line of a syntax error.
  explicit ChatTemplate(std::string_view source);
  // Sets the local time that strftime_now formats, in seconds since 1970-01-01 00:00 of the same wall clock. The
  // default is the constant kTemplateTime, so that a text does not depend on the day on which it is rendered.
  void set_local_time(std::int64_t seconds) { local_time_ = seconds; }
  [[nodiscard]] std::int64_t local_time() const { return local_time_; }
  [[nodiscard]] const std::string& source() const { return source_; }

  // Renders a conversation. `messages`: an array of {"role", "content", ...}. `variables`: an object with everything
  // else that the template may read (bos_token, eos_token, tools, enable_thinking ...). Throws Error that names the
  // template's line, also if rendering exceeds the limits of steps and output.
  [[nodiscard]] RenderedChat render(const Json& messages, bool add_generation_prompt, const Json& variables) const;

 private:
  struct Node;
  std::string source_;
  std::shared_ptr<const Node> root_;
  std::int64_t local_time_ = kTemplateTime;
};

// Returns the default template for models without one: ChatML.
[[nodiscard]] std::string_view chatml_template();

}  // namespace hone
