#include "serve/answer_sink.h"

#include <utility>

#include "serve/request_error.h"

namespace hone {

std::string event_text(std::string_view json, std::string_view name) {
  std::string text;
  if (!name.empty()) text.append("event: ").append(name).append("\n");
  return text.append("data: ").append(json).append("\n\n");
}

std::string AnswerForm::failure_body(int status, std::string_view message) const {
  return error_body(message, {}, status);
}

std::string AnswerForm::failure_event(int status, std::string_view message) const {
  return event_text(failure_body(status, message));
}

AnswerSink::AnswerSink(std::shared_ptr<ServerReply> reply, std::unique_ptr<AnswerForm> form,
                       const AnswerDivision& division, std::size_t choices, bool stream)
    : reply_(std::move(reply)), form_(std::move(form)), whole_(choices), open_(choices), stream_(stream) {
  for (std::size_t i = 0; i < choices; ++i)
    choices_.push_back({.divider = AnswerDivider(division), .unsent = {}, .begun = false});
}

void AnswerSink::add(GenerationProgress progress) {
  if (failed_) return;
  const std::size_t index = progress.index;
  Choice& choice = choices_[index];
  const AnswerPart part = choice.divider.add(std::move(progress));
  const bool ends = part.finish_reason != FinishReason::kNone;
  whole_[index].append(part);
  if (ends) --open_;
  if (!stream_) {
    if (open_ == 0) reply_->send({.status = 200, .body = form_->whole(whole_)});
    return;
  }
  choice.unsent.append(part);
  if (!ends && reply_->congested()) return;
  begin_stream();
  send_part(index);
  if (open_ > 0) return;
  reply_->write(form_->end(whole_));
  reply_->end();
}

void AnswerSink::begin_stream() {
  if (std::exchange(begun_, true)) return;
  reply_->begin_events();
  reply_->write(form_->begin());
}

void AnswerSink::send_part(std::size_t index) {
  Choice& choice = choices_[index];
  const AnswerPart part = std::exchange(choice.unsent, {});
  reply_->write(form_->part(index, !std::exchange(choice.begun, true), part));
}

void AnswerSink::fail(int status, std::string_view message) {
  if (failed_.exchange(true)) return;
  if (!begun_) return reply_->send({.status = status, .body = form_->failure_body(status, message)});
  reply_->write(form_->failure_event(status, message));
  reply_->end();
}

}  // namespace hone
