// Turns the progress of a job into the response to its request, whole or as a stream of events.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "http/message.h"
#include "serve/answer.h"
#include "serve/generation_job.h"

namespace hone {

// The texts of an API's responses. Events are complete: each ends with an empty line.
class AnswerForm {
 public:
  AnswerForm() = default;
  AnswerForm(const AnswerForm&) = delete;
  AnswerForm& operator=(const AnswerForm&) = delete;
  virtual ~AnswerForm() = default;

  // The body of a whole response. `choices` are complete.
  [[nodiscard]] virtual std::string whole(const std::vector<AnswerPart>& choices) const = 0;
  // Events at the beginning of a stream.
  [[nodiscard]] virtual std::string begin() { return {}; }
  // Events of what choice `index` has gained. `first`: it is its first part.
  [[nodiscard]] virtual std::string part(std::size_t index, bool first, const AnswerPart& part) = 0;
  // Events at the end of a stream.
  [[nodiscard]] virtual std::string end(const std::vector<AnswerPart>& choices) = 0;
  // The body, or the last event, of an answer that has failed.
  [[nodiscard]] virtual std::string failure_body(int status, std::string_view message) const;
  [[nodiscard]] virtual std::string failure_event(int status, std::string_view message) const;
};

// An event of a stream with JSON as its data. `name`: its type, if it has one.
[[nodiscard]] std::string event_text(std::string_view json, std::string_view name = {});

class AnswerSink : public GenerationSink {
 public:
  // `choices`: completions of the job. If `stream`, parts are sent as they come; while the client does not take them,
  // they are collected and sent together, so that no more than a choice itself is kept.
  AnswerSink(std::shared_ptr<ServerReply> reply, std::unique_ptr<AnswerForm> form, const AnswerDivision& division,
             std::size_t choices, bool stream);

  [[nodiscard]] bool wanted() const override { return !failed_ && !reply_->left(); }
  void add(GenerationProgress progress) override;
  void fail(int status, std::string_view message) override;

 private:
  struct Choice {
    AnswerDivider divider;
    AnswerPart unsent;
    bool begun = false;
  };

  void send_part(std::size_t index);
  void begin_stream();

  std::shared_ptr<ServerReply> reply_;
  std::unique_ptr<AnswerForm> form_;
  std::vector<Choice> choices_;
  std::vector<AnswerPart> whole_;  // [choices]
  std::size_t open_;               // choices that are not complete
  bool stream_;
  bool begun_ = false;
  std::atomic<bool> failed_ = false;
};

}  // namespace hone
