// Chat templates: Jinja as models ship them, rendered as transformers renders them.
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

// A rendered conversation. `assistant` holds the byte ranges [begin, end) that {% generation %} blocks produced.
struct RenderedChat {
  std::string text;
  std::vector<std::pair<std::size_t, std::size_t>> assistant;
};

// 2024-07-26 00:00, which the templates of Llama 3 fall back to.
inline constexpr std::int64_t kTemplateTime = 1'721'952'000;

class ChatTemplate {
 public:
  // Throws Error with the template's line where it does not parse.
  explicit ChatTemplate(std::string_view source);
  // What strftime_now tells: the wall clock as seconds from 1970-01-01 00:00 on it, kTemplateTime unless set, so that a
  // text does not depend on the day on which it is rendered.
  void set_local_time(std::int64_t seconds) { local_time_ = seconds; }
  [[nodiscard]] std::int64_t local_time() const { return local_time_; }
  [[nodiscard]] const std::string& source() const { return source_; }

  // `messages`: an array of {"role", "content", ...}. `variables`: an object with what else the template may read
  // (bos_token, eos_token, tools, enable_thinking ...). Throws Error with the template's line, also where rendering
  // takes more steps or output than the limits allow.
  [[nodiscard]] RenderedChat render(const Json& messages, bool add_generation_prompt, const Json& variables) const;

 private:
  struct Node;
  std::string source_;
  std::shared_ptr<const Node> root_;
  std::int64_t local_time_ = kTemplateTime;
};

// The template used where a model has none: ChatML.
[[nodiscard]] std::string_view chatml_template();

}  // namespace hone
